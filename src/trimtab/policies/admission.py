"""Admission with feedback: whether a job can be promised its deadline, and if not, what would help."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from trimtab.cluster import ClusterView
from trimtab.curve import FULL_SPEED_PPM, Share
from trimtab.job import JobView
from trimtab.knobs import Knobs
from trimtab.policies.backfill import Outlook
from trimtab.policies.sensascale_knobs import Rules
from trimtab.policies.urgency import Rated, rate


class Answer(NamedTuple):
    """What a user is told of a job that waits (absolute times in ms).

    Attributes:
        promise_ms: The first of its deadlines that the plan meets with its proportional share, None if it
            meets none.
        start_ms: When the plan starts it. deadline_ms: the earliest deadline that could be promised.
        share: The fewest cores and memory with which the plan would meet its last deadline, None if none
            would.
        start_by_ms: By when it would have to start to meet its last deadline with its proportional share.
    """

    promise_ms: int | None
    start_ms: int
    deadline_ms: int
    share: Share | None
    start_by_ms: int | None


class Promises:
    """What is promised, as a plan of GPUs over time; jobs are asked about one after another."""

    def __init__(self, outlook: Outlook, promised: Iterable[Rated], guard_ms: int) -> None:
        """Enter those that wait with a promise, latest start first; a promise needs `guard_ms` of slack."""
        self.plan = outlook.copy()
        self.guard_ms = guard_ms
        for job in sorted(promised, key=lambda job: (job.latest_ms() or 0, job.id)):
            self._enter(job)

    def _enter(self, job: Rated) -> int:
        length_ms = job.left_ms(FULL_SPEED_PPM)
        start_ms = self.plan.earliest_ms(job.gpus, length_ms)
        self.plan.take(start_ms, length_ms, job.gpus)
        return start_ms

    def ask(self, job: Rated) -> Answer:
        """Return what can be promised, and enter the job if something can."""
        deadlines_ms = job.job.facts.service.deadlines_ms
        length_ms = job.left_ms(FULL_SPEED_PPM)
        start_ms = self.plan.earliest_ms(job.gpus, length_ms)
        end_ms = start_ms + length_ms
        kept_ms = end_ms + self.guard_ms
        promise_ms = next((deadline_ms for deadline_ms in deadlines_ms if kept_ms <= deadline_ms), None)
        if promise_ms is not None:
            self.plan.take(start_ms, length_ms, job.gpus)
        last_ms = deadlines_ms[-1] if deadlines_ms else None
        return Answer(
            promise_ms,
            start_ms,
            kept_ms,
            None if last_ms is None else _enough(job, last_ms - self.guard_ms - start_ms),
            None if last_ms is None else last_ms - self.guard_ms - length_ms,
        )


def _enough(job: Rated, time_ms: int) -> Share | None:
    """Return the smallest share on the way to its best demand with which a job takes no longer than this."""
    best = job.traits.best
    memory_mib = max(job.part.memory_mib, best.memory_mib)
    for cores in range(job.part.cores, max(job.part.cores, best.cores) + 1):
        share = Share(cores, job.part.memory_mib if cores == job.part.cores else memory_mib)
        if job.left_ms(job.speed_ppm(share)) <= time_ms:
            return share
    return None


def outlook_of(now_ms: int, free_gpus: int, running: Iterable[Rated]) -> Outlook:
    """Return the free GPUs of the future if all goes on at present speeds."""
    ends = ((now_ms + max(1, job.left_ms(job.speed_now_ppm)), job.gpus) for job in running)
    return Outlook.of(now_ms, free_gpus, ends)


def admission(view: ClusterView, job: JobView, knobs: Knobs) -> Answer:
    """Return what a job that waits could be promised now, beside what is promised to others."""
    rules = Rules.of(knobs)
    believed = rules.beliefs
    running = [rate(one, view.vc, view.now_ms, believed) for one in view.running]
    waiting = [rate(one, view.vc, view.now_ms, believed) for one in view.pending if one.id != job.id]
    outlook = outlook_of(view.now_ms, sum(view.free.free), running)
    promised = (one for one in waiting if one.is_promised)
    promises = Promises(outlook, promised, rules.adjusting.guard_ms)
    return promises.ask(rate(job, view.vc, view.now_ms, believed))
