"""Objectives: what is to be made small, and the one place where signs are settled.

Everything downstream sees a gain: larger is better, the incumbent is 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.curve import FULL_SPEED_PPM
from trimtab.errors import UnknownName

_DAY_S = 86_400


class Totals(NamedTuple):
    """Sums over the jobs of a what-if simulation, of its own span alone; each aggregated member counts.

    run + queue + restart + slowdown is the whole time spent in it, to the millisecond: `run_ms` is work done,
    in ms at full speed, `queue_ms` time without GPUs, `restart_ms` restart cost paid, and the rest slowdown.
    """

    jobs: int
    run_ms: int
    queue_ms: int
    restart_ms: int
    preemptions: int


@dataclass(frozen=True, slots=True, eq=False)
class Stays:
    """The stays of the jobs of a what-if simulation, one entry a job, in ms.

    Attributes:
        age_ms: From submission to completion, or to the simulation's end if it came first; shape (jobs,).
        idle_ms: The part of it inside the simulation in which a job's work did not progress at full
            speed; shape (jobs,).
        members: How many jobs each stands for, 1 unless jobs were aggregated; shape (jobs,).
        fair: Whether its finish-time fairness rho is at most 1 (see `policies.fairness`); a job that is not
            done counts as if it went on at full speed from the end; shape (jobs,).
        totals: Where the time went.
        lost_ppm: Share of the value of its deadlines that it loses by being late, in ppm, with jobs that are
            not done taken as above; -1 for one without a deadline; shape (jobs,). None if no job has any.
    """

    age_ms: NDArray[np.int64]
    idle_ms: NDArray[np.int64]
    members: NDArray[np.int32]
    fair: NDArray[np.bool_]
    totals: Totals
    lost_ppm: NDArray[np.int64] | None = None


class Measured(NamedTuple):
    """What a trial gave: the objective's cost and where the time went, in mean seconds a job.

    wait = queue + restart + slowdown, and the time spent inside the simulation = run + wait: accounting
    identities, exact up to floating point. All of it is infinite for a trial that thrashes.
    """

    cost: float
    run_s: float
    queue_s: float
    restart_s: float
    slowdown_s: float
    preemptions: float


_THRASHES = Measured(math.inf, math.inf, math.inf, math.inf, math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Objective:
    """A cost, in seconds or per cent, to be made small.

    Attributes:
        title: The cost in few words, `unit` what it is counted in: `mean wait`, `s`.
        individual: Whether it asks how each job fares: such jobs may not be merged.
    """

    name: str
    title: str
    unit: str
    measure: Callable[[Stays], float]
    individual: bool = False

    def of(self, stays: Stays | None) -> Measured:
        """Return what a trial gave; None is one that thrashes."""
        if stays is None:
            return _THRASHES
        jobs, run_ms, queue_ms, restart_ms, preemptions = stays.totals
        slowdown_ms = _total(stays.idle_ms, stays) - queue_ms - restart_ms
        each = max(jobs, 1)
        times_ms = (run_ms, queue_ms, restart_ms, slowdown_ms)
        run_s, queue_s, restart_s, slowdown_s = (time_ms / 1000 / each for time_ms in times_ms)
        return Measured(self.measure(stays), run_s, queue_s, restart_s, slowdown_s, preemptions / each)

    def gain(self, incumbent: float, candidate: float) -> float:
        """Return how many times better than the incumbent a candidate is; the incumbent itself has 1.

        One (second, or percentage point) is added to both costs, so that an empty queue does not divide by
        zero. Of `rho`, 1.1 is what 10 % of unfair jobs are over 9 %, or 98 % over 89 %.
        """
        return 1.0 if incumbent == candidate else (incumbent + 1.0) / (candidate + 1.0)


def _total(times_ms: NDArray[np.int64] | NDArray[np.bool_], stays: Stays) -> int:
    return int(times_ms @ stays.members)


def _mean_wait(stays: Stays) -> float:
    """Return the mean of JCT less run time: restart cost and slowdown count as waiting."""
    return _total(stays.idle_ms, stays) / 1000 / max(stays.totals.jobs, 1)


def _mean_jct(stays: Stays) -> float:
    return _total(stays.age_ms, stays) / 1000 / max(stays.totals.jobs, 1)


def _jct_p99(stays: Stays) -> float:
    return (
        float(np.percentile(np.repeat(stays.age_ms, stays.members), 99)) / 1000 if stays.totals.jobs else 0.0
    )


def _unfair(stays: Stays) -> float:
    """Return the per cent of jobs that take longer than alone on their share."""
    return 100 * _total(~stays.fair, stays) / max(stays.totals.jobs, 1)


def _late(stays: Stays) -> float:
    """Return the per cent of value lost to lateness, to a tenth; mean JCT decides below that.

    JCT adds less than a tenth of a point, rising with it, half of that at a day: so fewer violations always
    come first, and the gain of shorter JCT alone is below (1 + 0.1) / 1.
    """
    tenths = round(10 * _lost_percent(stays))
    jct_s = _mean_jct(stays)
    return (tenths + jct_s / (jct_s + _DAY_S)) / 10


def _lost_percent(stays: Stays) -> float:
    if stays.lost_ppm is None:
        return 0.0
    bound = stays.lost_ppm >= 0
    members = int(stays.members[bound].sum())
    lost = int(stays.lost_ppm[bound] @ stays.members[bound])
    return 100 * lost / (FULL_SPEED_PPM * members) if members else 0.0


OBJECTIVES: dict[str, Objective] = {
    objective.name: objective
    for objective in (
        Objective("wait", "mean wait", "s", _mean_wait),
        Objective("jct", "mean JCT", "s", _mean_jct),
        Objective("jct_p99", "p99 JCT", "s", _jct_p99),
        Objective("rho", "jobs with rho > 1", "%", _unfair, individual=True),
        Objective("violations", "value lost to lateness, then mean JCT", "%", _late, individual=True),
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
