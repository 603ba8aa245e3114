"""What a policy is: a pure function of a view, or an order from which that function follows.

A whole-pass policy writes `decide`. A queue policy (FIFO, SRTF, Tiresias and most others) only says how
jobs are ordered: its levels, a key inside a level, and when a running job changes level. `decide` then
follows from one walk (`walk`), and the engine has an indexed walk that gives the same answer faster.
A policy object holds no state and no knobs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from trimtab.cluster import ClusterView, FreeMap
from trimtab.curve import FULL_SPEED_PPM, Share
from trimtab.errors import ConfigError
from trimtab.job import JobState, JobView, Nodes
from trimtab.knobs import Knob, Knobs, Space

BACKFILL = Knob(
    name="backfill",
    kind="choice",
    default="strict",
    choices=("strict", "skip"),
    trades="skip: fuller GPUs, wide gangs may starve",
    takes_effect="next pass",
    in_flight="untouched",
)

MIN_RUN = Knob(
    name="min_run",
    kind="int",
    default=0,
    low=0,
    high=600,
    unit="s",
    trades="longer: fewer preemptions, urgent jobs wait longer",
    takes_effect="next pass",
    in_flight="counts from a running job's last start",
)

Key = int | float | tuple[int | float, ...]


def is_key(key: object) -> bool:
    """Whether a key is a number, or several: whole ones or floats, but not NaN, which has no order."""
    if isinstance(key, tuple):
        return all(not isinstance(part, tuple) and is_key(part) for part in key)
    return hasattr(type(key), "__index__") or (isinstance(key, float) and key == key)


@dataclass(frozen=True, slots=True)
class Start:
    """Start a pending job; without nodes the placement rule chooses, and it must find a place.

    Attributes:
        until_ms: When the job loses its GPUs and its work if it has not finished, None for never.
        beside: A running job of as many GPUs on one node, to share them; both run at the speeds of a pair.
        share: CPU and memory, for a job on one node; None for the proportional part, which is always free.
    """

    job_id: int
    nodes: Nodes | None = None
    until_ms: int | None = None
    beside: int | None = None
    share: Share | None = None


@dataclass(frozen=True, slots=True)
class Preempt:
    """Take a running job off its GPUs; it keeps its progress and pays the restart cost to resume."""

    job_id: int


@dataclass(frozen=True, slots=True)
class Lease:
    """Promise a running job, or one that is started now, its GPUs for a while.

    The engine keeps leases with the jobs, in snapshots as well, and asks the policy again when one ends while
    a job waits; what follows is the policy's to decide. A job that is preempted loses its lease.
    """

    job_id: int
    start_ms: int
    end_ms: int
    renewal_ms: int  # see JobView


@dataclass(frozen=True, slots=True)
class Resize:
    """Change the CPU and memory of a running job on one node; None for the proportional part of it."""

    job_id: int
    share: Share | None


@dataclass(frozen=True, slots=True)
class Note:
    """Write down what the policy must know of an active job later; it replaces what was written before.

    The engine keeps notes with the jobs, in snapshots as well. A promise counts in the metrics: whether the
    job has finished by then.
    """

    job_id: int
    note: tuple[int, ...]
    promise_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Remember:
    """Write down what the policy must know of this virtual cluster later, in place of what it wrote before.

    The engine keeps it with the virtual cluster, in snapshots as well, and gives it back as
    `ClusterView.memory`. It is for what outlives the jobs, such as what users have consumed.
    """

    memory: tuple[int, ...]


Decision = Start | Preempt | Lease | Resize | Note | Remember


@runtime_checkable
class Policy(Protocol):
    """A scheduler. `space` declares its knobs."""

    name: ClassVar[str]
    space: ClassVar[Space]

    def decide(self, view: ClusterView, knobs: Knobs) -> list[Decision]:
        """Return the changes to make now: preemptions, starts, leases. An empty list changes nothing."""
        ...

    def next_review_ms(self, view: ClusterView, knobs: Knobs) -> int | None:
        """Return when to be asked again if nothing else happens first, or None."""
        ...


def graded_level(job: JobView) -> int:
    """Return the level of a job by what it has attained: reaching a grade exactly demotes."""
    return max(job.level, bisect_right(job.grades, job.attained_gpu_ms()))


def graded_change_ms(job: JobView) -> int | None:
    """Return how long a running job may hold its GPUs until it attains its next grade, rounded up.

    With g GPUs and `a` GPU-ms attained, grade Q is reached after ceil((Q - a) / g) ms. Grades at or
    below what it has attained are behind it: only future crossings count.
    """
    attained = job.attained_gpu_ms()
    ahead = max(job.level, bisect_right(job.grades, attained))
    if ahead >= len(job.grades):
        return None
    return -(-(job.grades[ahead] - attained) // job.member_gpus)


_LONGEST_MS = 1 << 50
_PPM_MAX = 1 << 62
_LARGEST_GRADE = 1 << 60


def by_arrival(job: JobView, now_ms: int) -> int:
    """Return the key of a policy that has none: first come, first served."""
    return job.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a queue policy's knobs amount to: all the engine asks while time passes.

    Attributes:
        preemptive: Whether a job reached later in the walk may lose its GPUs to one reached earlier.
        strict: Whether the first job that does not fit stops the walk (else it is skipped).
        grades: Attained GPU-ms, ascending, at which a job moves one level down; levels = len + 1.
        regrade: What new grades do to jobs already there: immediate, lazy or new_only.
        key: Order inside a level, smaller first, ties by id; it may not change while a job is pending.
            None leaves the order to the engine: running jobs first, then pending ones, newcomers last.
        level, next_change_ms: The level of a job, and how long a running job may run until that or its key
            has to be looked at again; by default what the grades say.
        starve_ms: Waiting time after which a pending job is lifted to level 0, None for never.
        consolidate: Whether a gang may not be spread (relaxed placement only); None: any may be.
        min_run_ms: Time a started job is safe from preemption.
        quantum_ms: Passes happen only at multiples of this; 0 = at every event.
        needs_estimates: Whether the order reads `estimate_ms`.
        needs_nodes: Whether it matters on which node a job is.
        gives_shares: Whether the policy gives CPU and memory to jobs.
        history_weight: Weight of the history mean in predicted estimates, the rest is the model's.
        retrain_ms, rescore: How often estimates are retrained, and whether queued jobs are estimated anew.
        refresh_ms: How often the plan is made anew from the services of completed jobs; 0 = never.
    """

    preemptive: bool = False
    strict: bool = False
    grades: tuple[int, ...] = ()
    regrade: str = "immediate"
    key: Callable[[JobView, int], Key] | None = None
    level: Callable[[JobView], int] = graded_level
    next_change_ms: Callable[[JobView], int | None] = graded_change_ms
    starve_ms: Callable[[JobView], int | None] | None = None
    consolidate: Callable[[JobView], bool] | None = None
    min_run_ms: int = 0
    quantum_ms: int = 0
    needs_estimates: bool = False
    needs_nodes: bool = False
    gives_shares: bool = False
    history_weight: float = 0.0
    retrain_ms: int = 86_400_000
    rescore: bool = False
    refresh_ms: int = 0

    def __post_init__(self) -> None:
        """Refuse what no engine could run.

        Raises:
            ConfigError: If a time or grade is no whole number in bounds, or the regrading has no such name.
        """
        for name in ("min_run_ms", "quantum_ms", "retrain_ms", "refresh_ms"):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= _LONGEST_MS:
                raise ConfigError(
                    f"a plan's {name} = {value!r}: it must be a whole number from 0 to 2**50; "
                    "the run ends here."
                )
        if any(type(grade) is not int or not 0 <= grade <= _LARGEST_GRADE for grade in self.grades):
            raise ConfigError(
                f"a plan's grades = {self.grades!r}: they must be whole GPU-ms from 0 to 2**60; "
                "the run ends here."
            )
        if self.regrade not in ("immediate", "lazy", "new_only"):
            raise ConfigError(
                f"a plan's regrade = {self.regrade!r}: it must be immediate, lazy or new_only; "
                "the run ends here."
            )

    @property
    def levels(self) -> int:
        return len(self.grades) + 1


class WholePass:
    """A policy that writes `decide` itself and reads estimates; its plan says how these are made."""

    def settings(self, knobs: Knobs) -> Plan:
        """Return a plan of which only estimates, placement, shares and the quantum count."""
        return Plan()


def plan_of(policy: Policy, knobs: Knobs) -> Plan:
    """Return the plan of a policy that decides whole passes, whether it says anything of one or not."""
    return policy.settings(knobs) if isinstance(policy, WholePass) else Plan()


class QueuePolicy:
    """A policy that is an order. Override `key`, `level` and `next_change_ms`, or `plan` as a whole.

    Hooks see a `JobView` settled to the present and return whole numbers.
    """

    name: ClassVar[str] = "queue"
    space: ClassVar[Space] = Space()
    preemptive: ClassVar[bool] = False
    levels: ClassVar[int] = 1

    def key(self, job: JobView, now_ms: int, knobs: Knobs) -> Key:
        """Return the order inside a level: smaller first, ties by id; constant while pending."""
        return job.id

    def level(self, job: JobView, knobs: Knobs) -> int:
        """Return the queue of a job: 0 first, below `levels`."""
        return 0

    def next_change_ms(self, job: JobView, knobs: Knobs) -> int | None:
        """Return how long a running job may run on until its level changes, or None."""
        return None

    def plan(self, knobs: Knobs, completed_gpu_ms: tuple[int, ...] = ()) -> Plan:
        """Return what the knobs amount to; `completed_gpu_ms` are the services of completed jobs."""
        own, is_single = type(self), self.levels == 1
        has_key = own.key is not QueuePolicy.key
        has_level = own.level is not QueuePolicy.level or not is_single
        has_change = own.next_change_ms is not QueuePolicy.next_change_ms or not is_single
        return Plan(
            preemptive=self.preemptive,
            grades=tuple(range(1, self.levels)),  # only their number matters: `level` is our own
            key=(lambda job, now_ms: self.key(job, now_ms, knobs)) if has_key else by_arrival,
            level=(lambda job: self.level(job, knobs)) if has_level else graded_level,
            next_change_ms=(lambda job: self.next_change_ms(job, knobs)) if has_change else graded_change_ms,
        )

    def decide(self, view: ClusterView, knobs: Knobs) -> list[Decision]:
        """Return what one walk over the view changes."""
        return walk(view, self.plan(knobs, view.completed_gpu_ms))

    def next_review_ms(self, view: ClusterView, knobs: Knobs) -> int | None:
        """Return None: arrivals, completions and level changes are all that matter to a queue."""
        return None


def order_of(job: JobView, now_ms: int, plan: Plan) -> tuple[int, Key, int]:
    """Return a job's place in the walk: level, key inside it, id."""
    key = job.place if plan.key is None else plan.key(job, now_ms)
    return job.level, key, job.id


def walk(view: ClusterView, plan: Plan) -> list[Decision]:
    """Decide by one walk in priority order over a map from which preemptible running jobs are lifted.

    A running job reached in the walk keeps its GPUs if they are still free in the map; if not, it goes
    on as a pending job at its place in the walk. A pending job is placed among the GPUs that are really
    free, and only where it does not fit there, over the map. What does not fit is skipped, or stops the
    walk of a strict policy. Really free = held by nobody who still stands: what a job gives up when it
    is reached and cannot keep its GPUs counts from then on, what is placed no longer does.
    """
    liftable = [job for job in view.running if plan.preemptive and not job.shielded]
    ordered = sorted([*view.pending, *liftable], key=lambda job: order_of(job, view.now_ms, plan))
    return walk_through(ordered, view.free, plan.consolidate, strict=plan.strict)


def walk_through(
    ordered: Sequence[JobView],
    lifted: FreeMap,
    consolidate: Callable[[JobView], bool] | None,
    *,
    strict: bool = False,
    aside: Sequence[JobView] = (),
) -> list[Decision]:
    """Decide by one walk over pending jobs, and running ones that may lose their GPUs, in the order given.

    Args:
        ordered: The jobs.
        lifted: The GPUs that are really free; changed on the way.
        consolidate: Which gangs may not be spread, None for any may be.
        strict: Whether the first job that does not fit stops the walk.
        aside: Running jobs that may lose their GPUs, too, and are not walked over.
    """
    really_free = FreeMap(lifted.free, lifted.gpus_per_node, lifted.placement)
    for job in (*ordered, *aside):
        lifted.give(job.nodes)
    places: dict[int, Nodes] = {}
    lost: list[int] = []
    stopped = False
    for job in ordered:
        if job.state is JobState.RUNNING:
            if lifted.holds(job.nodes):
                lifted.take(job.nodes)
                continue
            lost.append(job.id)
            really_free.give(job.nodes)
        if stopped:
            continue
        alone = consolidate is not None and consolidate(job)
        nodes = really_free.place(job.gpus, alone) or lifted.place(job.gpus, alone)
        if nodes is not None:
            lifted.take(nodes)
            really_free.take(nodes)
            places[job.id] = nodes
        stopped = nodes is None and strict
    return [
        *(Preempt(job_id) for job_id in lost),
        *(Start(job_id, nodes) for job_id, nodes in places.items()),
    ]


def ppm(fraction: float) -> int:
    """Return a fraction in whole parts per million, as many as fit into 64 bits where it is larger."""
    return round(min(fraction * FULL_SPEED_PPM, _PPM_MAX))
