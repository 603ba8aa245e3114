"""Objectives: what is to be made small, and the one place where signs are settled.

Everything downstream sees a gain: larger is better, the incumbent is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.errors import UnknownName


@dataclass(frozen=True, slots=True)
class Stay:
    """One job's stay in a what-if simulation: times from submission to `until`, in ms.

    Attributes:
        age_ms: From submission to completion, or to the simulation's end if it came first.
        idle_ms: The part of it inside the simulation in which its work did not progress at full speed.
    """

    age_ms: int
    idle_ms: int


@dataclass(frozen=True, slots=True)
class Objective:
    """A cost in seconds, to be made small."""

    name: str
    meaning: str
    cost: Callable[[Sequence[Stay]], float]

    def gain(self, incumbent: float, candidate: float) -> float:
        """Return how many times better than the incumbent a candidate is; the incumbent itself has 1.

        One second is added to both costs, so that an empty queue does not divide by zero.
        """
        return (incumbent + 1.0) / (candidate + 1.0)


def _mean_wait(stays: Sequence[Stay]) -> float:
    return sum(stay.idle_ms for stay in stays) / 1000 / len(stays) if stays else 0.0


def _mean_jct(stays: Sequence[Stay]) -> float:
    return sum(stay.age_ms for stay in stays) / 1000 / len(stays) if stays else 0.0


def _jct_p99(stays: Sequence[Stay]) -> float:
    return float(np.percentile([stay.age_ms for stay in stays], 99)) / 1000 if stays else 0.0


OBJECTIVES: dict[str, Objective] = {
    objective.name: objective
    for objective in (
        Objective("wait", "mean waiting, s (JCT less run time; restarts and slowdown included)", _mean_wait),
        Objective("jct", "mean job completion time, s", _mean_jct),
        Objective("jct_p99", "99th percentile of job completion time, s", _jct_p99),
    )
}


def find_objective(name: str) -> Objective:
    """Return an objective by name.

    Raises:
        UnknownName: If there is none of that name.
    """
    if name not in OBJECTIVES:
        raise UnknownName("objective", name, OBJECTIVES)
    return OBJECTIVES[name]
