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
from trimtab.policies.urgency import Rank, Rated, rate


class Answer(NamedTuple):
    """What a user is told of a job that waits (absolute times in ms).

    What would help is told only if the plan meets none of its deadlines, and is about the last of them.

    Attributes:
        promise_ms: The first of its deadlines that the plan meets with its proportional share, None if it
            meets none.
        start_ms: When the plan starts it. deadline_ms: the earliest deadline that could be promised.
        share: The fewest cores, and with them the least memory, with which the plan would meet it, None if
            none would.
        gpus: The most GPUs below its own with which the plan would meet it if, on fewer, it runs longer in
            proportion; None if none would.
        start_by_ms: By when it would have to start to meet it with its proportional share.
    """

    promise_ms: int | None
    start_ms: int
    deadline_ms: int
    share: Share | None = None
    gpus: int | None = None
    start_by_ms: int | None = None


class Promises:
    """What is promised, as a plan of GPUs over time; jobs are asked about one after another."""

    def __init__(self, outlook: Outlook, promised: Iterable[Rated], guard_ms: int) -> None:
        """Enter those that wait with a promise, oldest promise first; a promise needs `guard_ms` of slack."""
        self.plan = outlook.copy()
        self.guard_ms = guard_ms
        for job in sorted(promised, key=lambda job: job.id):
            self._enter(job, self._start_ms(job, job.gpus))

    def admit(self, job: Rated) -> int | None:
        """Return the first of a job's deadlines that can be promised, and enter the job, or None."""
        start_ms = self._start_ms(job, job.gpus)
        promise_ms = self._promise_ms(job, self._kept_ms(job, job.gpus, start_ms))
        if promise_ms is not None:
            self._enter(job, start_ms)
        return promise_ms

    def ask(self, job: Rated) -> Answer:
        """Return what could be promised, and what would help if nothing can; the plan stays as it is."""
        start_ms = self._start_ms(job, job.gpus)
        kept_ms = self._kept_ms(job, job.gpus, start_ms)
        answer = Answer(self._promise_ms(job, kept_ms), start_ms, kept_ms)
        deadlines_ms = job.job.facts.service.deadlines_ms
        if answer.promise_ms is not None or not deadlines_ms:
            return answer
        last_ms = deadlines_ms[-1]
        end_ms = last_ms - self.guard_ms
        narrower = (
            gpus
            for gpus in range(job.gpus - 1, 0, -1)
            if self._kept_ms(job, gpus, self._start_ms(job, gpus)) <= last_ms
        )
        return answer._replace(
            share=_enough(job, end_ms - start_ms),
            gpus=next(narrower, None),
            start_by_ms=end_ms - _length_ms(job, job.gpus),
        )

    def _enter(self, job: Rated, start_ms: int) -> None:
        self.plan.take(start_ms, _length_ms(job, job.gpus), job.gpus)

    def _start_ms(self, job: Rated, gpus: int) -> int:
        """Return when the plan starts it on so many GPUs."""
        return self.plan.earliest_ms(gpus, _length_ms(job, gpus))

    def _kept_ms(self, job: Rated, gpus: int, start_ms: int) -> int:
        """Return the earliest deadline that could be promised with that start on so many GPUs."""
        return start_ms + _length_ms(job, gpus) + self.guard_ms

    def _promise_ms(self, job: Rated, kept_ms: int) -> int | None:
        deadlines_ms = job.job.facts.service.deadlines_ms
        return next((deadline_ms for deadline_ms in deadlines_ms if kept_ms <= deadline_ms), None)


def _length_ms(job: Rated, gpus: int) -> int:
    """Return how long a job takes at full speed, on fewer GPUs than its own in proportion longer."""
    return job.unpaid_ms - (-job.work * job.gpus // (FULL_SPEED_PPM * gpus))


def _enough(job: Rated, time_ms: int) -> Share | None:
    """Return the smallest share on the way to its best demand with which a job takes no longer than this."""
    part, best = job.part, job.traits.best
    sizes_mib = sorted({part.memory_mib, max(part.memory_mib, best.memory_mib)})
    for cores in range(part.cores, max(part.cores, best.cores) + 1):
        for memory_mib in sizes_mib:
            share = Share(cores, memory_mib)
            if job.left_ms(job.speed_ppm(share)) <= time_ms:
                return share
    return None


def outlook_of(now_ms: int, free_gpus: int, running: Iterable[Rated]) -> Outlook:
    """Return the free GPUs of the future if all goes on at present speeds."""
    ends = ((now_ms + max(1, job.left_ms(job.speed_now_ppm)), job.gpus) for job in running)
    return Outlook.of(now_ms, free_gpus, ends)


def promises_of(
    now_ms: int, free_gpus: int, running: Iterable[Rated], waiting: Iterable[Rated], rules: Rules
) -> Promises:
    """Return what is promised to those that wait already."""
    promised = (job for job in waiting if job.is_promised)
    return Promises(outlook_of(now_ms, free_gpus, running), promised, rules.adjusting.guard_ms)


def unanswered(waiting: Iterable[Rated]) -> list[Rated]:
    """Return the jobs with a deadline in reach that have been promised, and refused, nothing yet."""
    return [job for job in waiting if job.rank is Rank.DEADLINE and not job.job.note]


def admission(view: ClusterView, job: JobView, knobs: Knobs) -> Answer:
    """Return what a job that waits could be promised now, beside what is promised to others.

    Jobs that came before it and have not been answered are answered first.
    """
    rules = Rules.of(knobs)
    running = [rate(one, view.vc, view.now_ms, rules.beliefs) for one in view.running]
    waiting = [rate(one, view.vc, view.now_ms, rules.beliefs) for one in view.pending if one.id != job.id]
    promises = promises_of(view.now_ms, sum(view.free.free), running, waiting, rules)
    for one in unanswered(waiting):
        if one.id < job.id:
            promises.admit(one)
    return promises.ask(rate(job, view.vc, view.now_ms, rules.beliefs))
