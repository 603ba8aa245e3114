"""Guardrails: pure functions that answer Apply or Keep, always with the reason."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trimtab.knobs import Knobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrails:
    """When a change is worth making.

    Attributes:
        gain_min: Least gain over the running setting (1 = anything strictly better).
        dwell_ms: Least time a setting stays.
    """

    gain_min: float = 1.1
    dwell_ms: int = 1_800_000


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


def guards(running_for_ms: int, gain: float, rails: Guardrails) -> dict[str, float]:
    """Return what the guardrails look at, each value beside what it must reach; for the journal."""
    return {
        "gain": gain,
        "gain_min": max(rails.gain_min, 1.0),
        "running_for_s": running_for_ms / 1000,
        "dwell_s": rails.dwell_ms / 1000,
    }


def judge(
    running: Knobs, running_for_ms: int, best: Knobs, gain: float, rails: Guardrails, cost: float = math.inf
) -> Verdict:
    """Decide whether to change from the running setting to the best one found.

    `gain` is the best's over the running one's, larger is better whatever the objective; `cost` is what
    the running one costs, where that is known.
    """
    if cost == 0:
        return Keep("the running setting costs nothing: there is nothing to gain")
    if best == running:
        return Keep("no setting was better than the running one")
    if math.isnan(gain) or gain == -math.inf:
        return Keep(f"the search gave a gain of {gain}, which is no number to act on")
    if running_for_ms < rails.dwell_ms:
        return Keep(f"running for {running_for_ms / 1000:g} s, dwell is {rails.dwell_ms / 1000:g} s")
    if gain <= 1 or gain < rails.gain_min:
        return Keep(f"gain {gain:.3f} is under {max(rails.gain_min, 1):g}")
    if math.isinf(gain):
        return Apply(best, "the running setting makes jobs thrash; this one reaches an end")
    return Apply(best, f"gain {gain:.3f} reaches {max(rails.gain_min, 1):g}")
