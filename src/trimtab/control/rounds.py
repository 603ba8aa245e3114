"""The record of one tuning round: what was known, what was tried and what was decided."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab.control.guardrails import Apply, Verdict
from trimtab.knobs import Knobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round. Times in seconds on the trace's output clock; `search_s` is wall time, never compared.

    Costs are NaN where nothing was simulated.
    """

    time_s: float
    knobs_before: Knobs
    best: Knobs  # what the round would change to if no guardrail stood in the way
    verdict: Verdict
    gain: float
    cost_running: float  # the objective of the running setting on the round's future
    cost_best: float
    trials: int
    pending: int
    running: int
    arrivals: int  # jobs of the future that the trials were run on
    search_s: float
    realised_gain: float | None = None  # of a change on the true future, where an evaluation looked it up
    search: str = "main"  # or background: between main rounds
    record: Mapping[str, Any] = field(default_factory=dict)  # all the search did, for the journal
    forecast: Mapping[str, Any] | None = None  # who is expected to come, hour by hour; see `forecast_of`

    @property
    def knobs_after(self) -> Knobs:
        """The knobs in force after the round."""
        return self.verdict.knobs if isinstance(self.verdict, Apply) else self.knobs_before

    @property
    def switched(self) -> bool:
        return isinstance(self.verdict, Apply)

    def jsonable(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        plain = {
            "time_s": self.time_s,
            "search": self.search,
            "verdict": "apply" if self.switched else "keep",
            "reason": self.verdict.reason,
            "knobs": self.knobs_after.jsonable(),
            "gain": self.gain,
            "cost_running": None if math.isnan(self.cost_running) else self.cost_running,
            "cost_best": None if math.isnan(self.cost_best) else self.cost_best,
            "trials": self.trials,
            "pending": self.pending,
            "running": self.running,
            "arrivals": self.arrivals,
            "search_s": self.search_s,
        }
        return plain if self.realised_gain is None else {**plain, "realised_gain": self.realised_gain}

    def recorded(self) -> dict[str, Any]:
        """Return all that is known of the round, for the journal."""
        brief = self.jsonable()
        simulations = brief.pop("trials")  # which are listed one by one in the record
        knobs = {"knobs_before": self.knobs_before.jsonable(), "best": self.best.jsonable()}
        return {**brief, **knobs, "simulations": simulations, **self.record}
