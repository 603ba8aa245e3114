"""What a page about a walk-forward evaluation is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from trimtab.cluster import Cluster
from trimtab.control.rounds import Round
from trimtab.knobs import Knobs
from trimtab.search.causal import Graph
from trimtab.simulate.metrics import Metrics
from trimtab.timeline import Timeline
from trimtab.traces.trace import Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of an evaluation: the same jobs under one way of choosing the settings."""

    name: str
    meaning: str
    metrics: Metrics
    start_knobs: Knobs
    rounds: tuple[Round, ...]
    segments: dict[str, dict[str, float]]
    seconds: dict[str, float]  # wall and CPU seconds; never part of a comparison of results
    jobs: pl.DataFrame  # as `simulate.metrics.jobs_table` gives it
    timeline: Timeline
    notes: tuple[str, ...] = ()
    graph: Graph | None = None  # the causal graph a line learned last
    switching: dict[str, float | None] = field(default_factory=dict)  # as `studies.switching` gives it

    @property
    def switches(self) -> int:
        return sum(one.switched for one in self.rounds)

    def jsonable(self) -> dict[str, Any]:
        """Return the object `evaluate --format json` prints for a line."""
        return {
            "line": self.name,
            "metrics": self.metrics,
            "knobs": self.start_knobs.jsonable(),
            "switches": self.switches,
            "hours": [one.jsonable() for one in self.rounds],
            "switching": self.switching,
            "segments": self.segments,
            "seconds": self.seconds,
            "notes": list(self.notes),
            "digest": self.timeline.digest(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One number over several runs; `deviation` (standard) is None where there was one run."""

    mean: float
    deviation: float | None
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """How a line compares with another one.

    Attributes:
        ratio: Of mean waits, run by run; None where the reference never waits.
        days: On which jobs were submitted.
        difference_s: Mean wait less that of the same jobs under the reference, all runs together.
        interval_s: 95 % of it when days are drawn again; None for fewer than two days.
    """

    line: str
    reference: str
    ratio: Estimate | None
    days: int
    difference_s: float
    interval_s: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What several runs of one evaluation say together; `waits` are mean waits by line, s."""

    runs: int
    waits: Mapping[str, Estimate]
    contrasts: tuple[Contrast, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A walk-forward evaluation: all its lines and what they share."""

    provenance: Provenance
    kept: int
    window: str
    first_day: str  # what second 0 of the output clock is, for people
    cluster: Cluster
    policy: str
    settings: dict[str, Any]  # objective, horizons, budget, threshold, seed … as given
    lines: tuple[Line, ...]
    statistics: Statistics | None = None  # where it was run several times; all else is the first run's
