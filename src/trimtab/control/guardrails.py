"""Guardrails: pure functions that answer Apply or Keep, always with the reason."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trimtab.forecast.backtest import FULL, Belief
from trimtab.knobs import Knobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrails:
    """When a change is worth making.

    Attributes:
        gain_min: Least gain over the running setting (1 = anything strictly better).
        dwell_ms: Least time a setting stays.
        return_ms: Time for which no knob goes back to a value that it left; 0 = none.
        belief_min: Least belief in the forecast, 0 .. 1; see `forecast.backtest.Belief`.
    """

    gain_min: float = 1.1
    dwell_ms: int = 1_800_000
    return_ms: int = 0
    belief_min: float = 0.0


@dataclass(frozen=True, slots=True)
class Tenure:
    """How the running setting stands.

    Attributes:
        running_for_ms: How long it has been in force.
        left: What was in force before, the latest first, and how long ago each was left, ms.
    """

    running_for_ms: int
    left: tuple[tuple[Knobs, int], ...] = ()

    def undoes(self, running: Knobs, best: Knobs, within_ms: int) -> tuple[str, int] | None:
        """Return a knob that would go back to a value left so short a time ago, and how long ago that was."""
        moved = [name for name in best if best[name] != running.get(name)]
        for knobs, ago_ms in self.left:
            if ago_ms > within_ms:
                return None  # those before were left earlier still
            for name in moved:
                if knobs.get(name) == best[name]:
                    return name, ago_ms
        return None


@dataclass(frozen=True, slots=True)
class Apply:
    """Change to these knobs."""

    knobs: Knobs
    reason: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Change nothing."""

    reason: str


Verdict = Apply | Keep


def guards(tenure: Tenure, gain: float, rails: Guardrails, belief: Belief = FULL) -> dict[str, float]:
    """Return what the guardrails look at, each value beside what it must reach; for the journal."""
    return {
        "gain": gain,
        "gain_min": max(rails.gain_min, 1.0),
        "running_for_s": tenure.running_for_ms / 1000,
        "dwell_s": rails.dwell_ms / 1000,
        "belief": belief.value,
        "belief_min": rails.belief_min,
    }


def judge(
    running: Knobs,
    tenure: Tenure,
    best: Knobs,
    gain: float,
    rails: Guardrails,
    cost: float = math.inf,
    belief: Belief = FULL,
) -> Verdict:
    """Decide whether to change from the running setting to the best one found.

    Args:
        gain: The best's over the running one's, larger is better whatever the objective.
        cost: What the running one costs, where that is known; NaN if it could not be simulated.
        belief: In the forecast that the gain was measured on.
    """
    if math.isnan(cost):
        return Keep("the running setting could not be simulated: nothing can be compared with it")
    if cost == 0:
        return Keep("the running setting costs nothing: there is nothing to gain")
    if best == running:
        return Keep("no setting was better than the running one")
    if math.isnan(gain) or gain == -math.inf:
        return Keep(f"the search gave a gain of {gain}, which is no number to act on")
    if doubt := belief.doubt(rails.belief_min):
        return Keep(doubt)
    if tenure.running_for_ms < rails.dwell_ms:
        return Keep(f"running for {tenure.running_for_ms / 1000:g} s, dwell is {rails.dwell_ms / 1000:g} s")
    if gain <= 1 or gain < rails.gain_min:
        return Keep(f"gain {gain:.3f} is under {max(rails.gain_min, 1):g}")
    if math.isinf(gain):
        return Apply(best, "the running setting makes jobs thrash; this one reaches an end")
    if undone := tenure.undoes(running, best, rails.return_ms):
        name, ago_ms = undone
        return Keep(
            f"{name} would be back at {best[name]}, left {ago_ms / 1000:g} s ago; "
            f"that takes more than {rails.return_ms / 1000:g} s"
        )
    return Apply(best, f"gain {gain:.3f} reaches {max(rails.gain_min, 1):g}")
