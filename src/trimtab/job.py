"""Jobs: the facts a scheduler is told, the state it may see, and the legal moves between states.

A job's true run time is not here. Only the simulator knows it; a policy sees an estimate or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from trimtab.curve import FULL_SPEED_PPM, Curve, Share
from trimtab.errors import InvariantError, UnknownName
from trimtab.profile import Profile


class JobState(Enum):
    """Where a job is in its life."""

    PENDING = "pending"
    RUNNING = "running"
    FINISHED = "finished"
    REJECTED = "rejected"


class Move(Enum):
    """Why a job changes state."""

    START = "start"
    PREEMPT = "preempt"
    FINISH = "finish"
    REJECT = "reject"


_NEXT: dict[tuple[JobState, Move], JobState] = {
    (JobState.PENDING, Move.START): JobState.RUNNING,
    (JobState.RUNNING, Move.PREEMPT): JobState.PENDING,
    (JobState.RUNNING, Move.FINISH): JobState.FINISHED,
    (JobState.PENDING, Move.REJECT): JobState.REJECTED,
}

# GPUs a job holds, as (node, GPUs) pairs; a node stands at most once.
Nodes = tuple[tuple[int, int], ...]

ServiceClass = Literal["strict", "soft", "best"]

_USUAL_VALUE = 10


class Service(NamedTuple):
    """What a job's user wants of it.

    Attributes:
        kind: `strict` (one deadline), `soft` (several, worth less and less), `best` (none: best effort).
        deadlines_ms: Absolute, on the engine's clock, ascending. values: what each of them is worth if it is
            the first that is met; both of shape (options,).
    """

    kind: ServiceClass = "best"
    deadlines_ms: tuple[int, ...] = ()
    values: tuple[int, ...] = ()

    def later(self, by_ms: int) -> Service:
        """Return the same wish of a job that is submitted so much later."""
        return self._replace(deadlines_ms=tuple(deadline_ms + by_ms for deadline_ms in self.deadlines_ms))

    @property
    def worth(self) -> tuple[int, ...]:
        """What each deadline is worth; the usual of one that is met where no value is told."""
        return self.values or (_USUAL_VALUE,) * len(self.deadlines_ms)


BEST_EFFORT = Service()


class JobFacts(NamedTuple):
    """What a scheduler is told when a job is submitted."""

    label: str
    submit_ms: int
    gpus: int
    vc: str | None = None
    user: str | None = None
    name: str | None = None
    skew_ppm: int = FULL_SPEED_PPM  # largest tensor / all tensors (Tiresias); unknown counts as 1
    spread_ppm: int = FULL_SPEED_PPM // 2  # speed when the gang is not consolidated
    members: int = 1  # jobs of one width that are simulated side by side as this one (aggregation)
    profile: Profile | None = None  # what it is measured to use; a policy that profiles looks only afterwards
    service: Service = BEST_EFFORT
    curve: Curve | None = None  # its speed by CPU and memory, as far as is known; None: they do not matter
    limit_ms: int | None = None  # a job that runs longer is ended then; None for no limit
    account: str | None = None  # to whom its GPU time is charged
    qos: str | None = None  # the quality of service it asks for

    def submitted(self, submit_ms: int) -> JobFacts:
        """Return what the same job is if it is submitted at another instant: its deadlines move along."""
        service = self.service
        if service.deadlines_ms:
            service = service.later(submit_ms - self.submit_ms)
        return self._replace(submit_ms=submit_ms, service=service)

    @property
    def footprint_mib(self) -> int:
        """Memory of its node without which it does not run, as far as is known."""
        return 0 if self.curve is None else self.curve.footprint_mib * self.gpus


class JobView:
    """A job as a policy may know it. The engine owns it; policies and hooks only read.

    Attributes (times in ms on the engine's clock):
        id: Dense index in submit order, the last tie-breaker everywhere.
        facts, gpus, submit_ms: What was submitted. home: index of its virtual cluster.
        member_gpus: GPUs of one member: what service is counted by; `gpus` unless jobs are aggregated.
        state: Pending or running while a policy sees it.
        estimate_ms: Estimated run time at full speed, None where there is none.
        level: Queue index, 0 first. grades: the attained GPU-ms at which it moves one level down.
        place: Position inside its level where the engine keeps the order (`Plan.key` is None).
        since_ms: The instant up to which the numbers below are settled.
        held_ms: Time it has held its GPUs. graded_ms: the part of it since arrival or promotion.
        done: Work done, in ms x ppm. speed_ppm: its speed now. overhead_ms: restart cost still unpaid;
            paid_ms: paid so far.
        first_ms: First start since arrival or promotion (seniority), None before it.
        started_ms, stopped_ms: Last start; last time it stopped running, or its submission.
        first_start_ms: First start of all. preemptions, promotions: How often.
        nodes: The GPUs it holds, empty while pending. shielded: may not be preempted yet.
        lease_start_ms, lease_end_ms: Its lease, where its policy gives any, None while pending.
        renewal_ms: For how long a lease is renewed when it ends while nobody waits.
        submit_job_ms: `ClusterView.job_ms` when it was submitted.
        partner: The job it shares them with, None if nobody.
        until_ms: When it loses its GPUs and its work if it has not finished, None for never.
        share: CPU and memory it was given by its policy; None for the proportional part of its nodes'.
        resized_ms: When they were changed last while it ran, None for never. resizes: how often.
        note: What its policy wrote down about it last; the policy alone knows what it means.
        promise_ms: By when its policy promised that it will have finished, None for no promise.
        stamp: Counts its changes, so that entries made before one are known to be stale.
    """

    __slots__ = (
        "done",
        "estimate_ms",
        "facts",
        "first_ms",
        "first_start_ms",
        "gpus",
        "graded_ms",
        "grades",
        "held_ms",
        "home",
        "id",
        "lease_end_ms",
        "lease_start_ms",
        "level",
        "member_gpus",
        "nodes",
        "note",
        "overhead_ms",
        "paid_ms",
        "partner",
        "place",
        "preemptions",
        "promise_ms",
        "promotions",
        "renewal_ms",
        "resized_ms",
        "resizes",
        "share",
        "shielded",
        "since_ms",
        "speed_ppm",
        "stamp",
        "started_ms",
        "state",
        "stopped_ms",
        "submit_job_ms",
        "submit_ms",
        "until_ms",
    )

    def __init__(self, job_id: int, facts: JobFacts, home: int, estimate_ms: int | None) -> None:
        submit_ms = facts.submit_ms
        self.id = job_id
        self.home = home
        self.facts = facts
        self.gpus = facts.gpus
        self.member_gpus = facts.gpus // facts.members
        self.submit_ms = submit_ms
        self.state = JobState.PENDING
        self.estimate_ms = estimate_ms
        self.level = 0
        self.grades: tuple[int, ...] = ()
        self.place = 0
        self.since_ms = submit_ms
        self.held_ms = 0
        self.graded_ms = 0
        self.done = 0
        self.speed_ppm = FULL_SPEED_PPM
        self.overhead_ms = 0
        self.paid_ms = 0
        self.first_ms: int | None = None
        self.started_ms: int | None = None
        self.stopped_ms = submit_ms
        self.first_start_ms: int | None = None
        self.preemptions = 0
        self.promotions = 0
        self.nodes: Nodes = ()
        self.shielded = False
        self.lease_start_ms: int | None = None
        self.lease_end_ms: int | None = None
        self.renewal_ms: int | None = None
        self.submit_job_ms = 0
        self.partner: int | None = None
        self.until_ms: int | None = None
        self.share: Share | None = None
        self.resized_ms: int | None = None
        self.resizes = 0
        self.note: tuple[int, ...] = ()
        self.promise_ms: int | None = None
        self.stamp = 0

    def copy(self) -> JobView:
        """Return an independent copy."""
        twin = object.__new__(JobView)
        for name in JobView.__slots__:
            setattr(twin, name, getattr(self, name))
        return twin

    def move(self, move: Move) -> None:
        """Change state by the table of legal moves."""
        try:
            self.state = _NEXT[self.state, move]
        except KeyError:
            raise InvariantError(f"job {self.id} cannot {move.value} while {self.state.value}") from None
        self.stamp += 1

    def settle(self, now_ms: int) -> None:
        """Bring held time, unpaid overhead and work done up to now; nothing changes while pending."""
        if self.state is JobState.RUNNING:
            elapsed_ms = now_ms - self.since_ms
            due_ms = min(elapsed_ms, self.overhead_ms)
            self.held_ms += elapsed_ms
            self.graded_ms += elapsed_ms
            self.overhead_ms -= due_ms
            self.paid_ms += due_ms
            self.done += (elapsed_ms - due_ms) * self.speed_ppm
        self.since_ms = now_ms

    def grant(self, start_ms: int | None, end_ms: int | None, renewal_ms: int | None) -> None:
        """Give it a lease, or none."""
        self.lease_start_ms, self.lease_end_ms, self.renewal_ms = start_ms, end_ms, renewal_ms

    def attained_gpu_ms(self) -> int:
        """Return the GPU-ms a member has held since arrival or promotion, as of `since_ms`."""
        return self.member_gpus * self.graded_ms

    def remaining(self, now_ms: int) -> int:
        """Return the estimated work left at `now_ms`, in ms x ppm, never below 0; needs an estimate."""
        assert self.estimate_ms is not None
        return max(0, self.estimate_ms * FULL_SPEED_PPM - self.done_by(now_ms))

    def done_by(self, now_ms: int) -> int:
        """Return the work done by `now_ms`, in ms x ppm, if nothing happens to it before."""
        if self.state is JobState.RUNNING:
            return self.done + max(0, now_ms - self.since_ms - self.overhead_ms) * self.speed_ppm
        return self.done

    def unpaid_overhead_ms(self, now_ms: int) -> int:
        """Return the restart cost still to be paid: now if it runs, at its next start if it waits."""
        if self.state is JobState.RUNNING:
            return max(0, self.overhead_ms - (now_ms - self.since_ms))
        return self.overhead_ms


COLUMNS = (
    "id",
    "gpus",
    "submit_ms",
    "estimate_ms",
    "held_ms",
    "done",
    "speed_ppm",
    "overhead_ms",
    "started_ms",
    "stopped_ms",
    "first_start_ms",
    "preemptions",
)


class Jobs(Protocol):
    """Jobs by id, to be read one by one or as columns."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[JobView]: ...

    def __getitem__(self, place: int) -> JobView: ...

    def column(self, name: str) -> NDArray[np.int64]:
        """Return one attribute of all jobs, read-only; -1 where a job has none.

        Raises:
            UnknownName: If it is none of `COLUMNS`.
        """
        ...

    def find(self, job_id: int) -> JobView | None:
        """Return the job with an id, or None."""
        ...


class JobList(tuple[JobView, ...]):
    """`Jobs` of the reference engine."""

    __slots__ = ()

    def column(self, name: str) -> NDArray[np.int64]:
        """Return one attribute of all jobs; see `Jobs`."""
        check_column(name)
        values = [getattr(job, name) for job in self]
        column = np.array([-1 if value is None else value for value in values], dtype=np.int64)
        column.flags.writeable = False
        return column

    def find(self, job_id: int) -> JobView | None:
        """Return the job with an id, or None."""
        return next((job for job in self if job.id == job_id), None)


def check_column(name: str) -> None:
    """Refuse the name of a column that there is not.

    Raises:
        UnknownName: If it is none of `COLUMNS`.
    """
    if name not in COLUMNS:
        raise UnknownName("column", name, COLUMNS)
