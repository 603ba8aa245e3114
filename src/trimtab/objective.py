"""Objectives: what is to be made small, and the one place where signs are settled.

Everything downstream sees a gain: larger is better, the incumbent is 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import UnknownName


@dataclass(frozen=True, slots=True)
class Stays:
    """The stays of the jobs of a what-if simulation, one entry a job, in ms.

    Attributes:
        age_ms: From submission to completion, or to the simulation's end if it came first; shape (jobs,).
        idle_ms: The part of it inside the simulation in which a job's work did not progress at full
            speed; shape (jobs,).
    """

    age_ms: NDArray[np.int64]
    idle_ms: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.age_ms)


@dataclass(frozen=True, slots=True)
class Objective:
    """A cost in seconds, to be made small."""

    name: str
    meaning: str
    measure: Callable[[Stays], float]

    def cost(self, stays: Stays | None) -> float:
        """Return the cost of a trial in seconds; infinite for one that thrashes (None)."""
        return math.inf if stays is None else self.measure(stays)

    def gain(self, incumbent: float, candidate: float) -> float:
        """Return how many times better than the incumbent a candidate is; the incumbent itself has 1.

        One second is added to both costs, so that an empty queue does not divide by zero.
        """
        return 1.0 if incumbent == candidate else (incumbent + 1.0) / (candidate + 1.0)


def _mean_wait(stays: Stays) -> float:
    return int(stays.idle_ms.sum()) / 1000 / len(stays) if len(stays) else 0.0


def _mean_jct(stays: Stays) -> float:
    return int(stays.age_ms.sum()) / 1000 / len(stays) if len(stays) else 0.0


def _jct_p99(stays: Stays) -> float:
    return float(np.percentile(stays.age_ms, 99)) / 1000 if len(stays) else 0.0


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
