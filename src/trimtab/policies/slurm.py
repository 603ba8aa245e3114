"""Slurm's own scheduler: multifactor priorities, a main pass in strict order, and backfill by time limits.

A model of slurmctld 22.05 with sched/backfill, priority/multifactor (Fair Tree) and select/cons_tres, to
measure what its settings do. Where it simplifies: docs/decisions/0010-slurm-model.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from trimtab.cluster import ClusterView, FreeMap
from trimtab.job import JobFacts, JobView, Nodes
from trimtab.knobs import Knobs, Space
from trimtab.policies.policy import Decision, Preempt, Remember, Start, WholePass
from trimtab.policies.slurm_knobs import PREEMPT_NONE, PREEMPT_PARTITION, SPACE, Rules
from trimtab.policies.slurm_usage import (
    NEVER_MS,
    PPM,
    Association,
    Books,
    Usage,
    association_of,
    number_of,
    shares_of,
)
from trimtab.site import Site

# A requeued job may start again after its credential has expired, and a second [measured on 22.05.8].
REQUEUE_MS = 121_000
UNLIMITED_MS = 365 * 86_400_000  # what backfill takes for no limit


class Slurm(WholePass):
    """Order (partition tier, priority, id); reads limits, users, accounts and partitions, no estimates."""

    name: ClassVar[str] = "slurm"
    space: ClassVar[Space] = SPACE

    def decide(self, view: ClusterView, knobs: Knobs) -> list[Decision]:
        """Return what the passes that are due start and preempt, and what is to be remembered."""
        rules, now_ms = Rules.of(knobs), view.now_ms
        books = Books.open(view.memory, now_ms, rules)
        is_changed = (len(view.pending), len(view.running)) != (books.pending, books.running)
        is_calculated = books.advance(now_ms, rules.formula)
        if not (is_changed or is_calculated or now_ms >= min(books.main_due_ms, books.fill_due_ms)):
            return []
        board = Board(view, rules, books)
        passes = board.run(is_changed)
        board.await_next(passes, is_stale=is_changed or is_calculated)
        board.count_in_use()
        return [
            *(Preempt(job_id) for job_id in board.lost),
            *(Start(job.id, nodes) for job, nodes in board.started),
            *([Remember(memory)] if (memory := books.memory()) != view.memory else []),
        ]

    def next_review_ms(self, view: ClusterView, knobs: Knobs) -> int | None:
        """Return when a pass or the next calculation is due; None if there are no jobs."""
        if not len(view.pending) and not len(view.running):
            return None
        books = Books.open(view.memory, view.now_ms, Rules.of(knobs))
        return min(books.next_calculation_ms, books.main_due_ms, books.fill_due_ms)


def eligible_ms(job: JobView) -> int:
    """Return from when on a job may start, and grows older."""
    return job.stopped_ms + REQUEUE_MS if job.preemptions else job.submit_ms


def limit_ms(facts: JobFacts) -> int:
    """Return how long backfill expects a job to hold its GPUs."""
    return UNLIMITED_MS if facts.limit_ms is None else facts.limit_ms


def factors_ppm(facts: JobFacts, site: Site) -> tuple[int, int]:
    """Return a job's partition and QOS factors."""
    factor, priority = site.partition(facts.vc).factor, site.qos(facts.qos).priority
    return PPM * factor // site.factor_max, PPM * priority // site.qos_max


def _next(now_ms: int, step_ms: int) -> int:
    """Return the next multiple of a step after now."""
    return (now_ms // step_ms + 1) * step_ms


def _up(time_ms: int, step_ms: int) -> int:
    """Return a time rounded up to a multiple of a step."""
    return -(-time_ms // step_ms) * step_ms


@dataclass(frozen=True, slots=True)
class Passes:
    """Which passes happened: a main pass, whether it looked at all jobs, and backfill."""

    main: bool
    full: bool
    fill: bool


@dataclass(frozen=True, slots=True)
class Booking:
    """GPUs that backfill keeps for a job: whole nodes, or as many as it needs where nodes do not count."""

    from_ms: int
    to_ms: int
    nodes: Nodes


class Board:
    """One virtual cluster while passes change it.

    Attributes:
        free: GPUs that are free. started: jobs with their GPUs, in order. lost: jobs that lose theirs.
    """

    def __init__(self, view: ClusterView, rules: Rules, books: Books) -> None:
        self.view, self.rules, self.books = view, rules, books
        self.now_ms = view.now_ms
        self.free = view.free
        self.started: list[tuple[JobView, Nodes]] = []
        self.lost: list[int] = []
        for job in (*view.pending, *view.running):
            books.usage.setdefault(association_of(job.facts), Usage())

    # ---- order -----------------------------------------------------------------------------------

    def queue(self) -> list[JobView]:
        """Return the pending jobs that may start, most urgent first."""
        site = self.view.site
        fair_ppm = self.books.fair_shares_ppm(shares_of(site)) if len(self.view.pending) else {}
        keyed = [
            (-site.partition(job.facts.vc).tier, -self.priority(job, fair_ppm), job.id, job)
            for job in self.view.pending
            if eligible_ms(job) <= self.now_ms
        ]
        return [job for *_, job in sorted(keyed, key=lambda one: one[:3])]

    def priority(self, job: JobView, fair_ppm: dict[Association, int]) -> int:
        """Return a job's priority: weights times factors from 0 to 1, rounded down, at least 1."""
        books, facts = self.books, job.facts
        is_new = job.submit_ms > books.calculated_ms
        formula = self.rules.formula if is_new else books.formula
        waited_ms = min(max(0, books.calculated_ms - eligible_ms(job)), formula.max_age_ms)
        partition_ppm, qos_ppm = factors_ppm(facts, self.view.site)
        terms = (
            (formula.age, PPM * waited_ms // formula.max_age_ms),
            (formula.fairshare, fair_ppm[association_of(facts)]),
            (formula.size, self.size_ppm(job, favors_small=bool(formula.favors_small))),
            (formula.partition, partition_ppm),
            (formula.qos, qos_ppm),
            (formula.tres, PPM * job.gpus // self.view.vc.gpus),
        )
        return max(1, sum(weight * factor_ppm for weight, factor_ppm in terms) // PPM)

    def size_ppm(self, job: JobView, *, favors_small: bool) -> int:
        """Return the size factor: the mean of a job's parts of all nodes and all GPUs, or what it leaves."""
        vc = self.view.vc
        nodes = -(-job.gpus // vc.gpus_per_node)
        part_ppm = PPM * (nodes * vc.gpus + job.gpus * vc.nodes) // (2 * vc.nodes * vc.gpus)
        return PPM - part_ppm if favors_small else part_ppm

    # ---- passes ----------------------------------------------------------------------------------

    def run(self, is_changed: bool) -> Passes:
        """Do the passes that are due; after an event a main pass looks no deeper than told, and may wait."""
        rules, books = self.rules, self.books
        is_due = is_changed or self.now_ms >= books.main_due_ms
        is_full = self.now_ms % rules.interval_ms == 0
        passes = Passes(
            main=is_due and (is_full or self.now_ms >= books.rested_ms),
            full=is_full,
            fill=rules.fills and self.now_ms >= books.fill_due_ms,
        )
        if is_due and not passes.main:
            books.main_due_ms = books.rested_ms
        queue = self.queue() if passes.main or passes.fill else []
        if passes.main:
            books.rested_ms = self.now_ms + rules.rest_ms
            self._start_in_order(queue if passes.full else queue[: rules.depth])
        if passes.fill:
            self._fill(queue[len(self.started) :])
        return passes

    def _start_in_order(self, queue: Sequence[JobView]) -> None:
        """Start jobs until one finds no place: all partitions have the same nodes."""
        for job in queue:
            nodes = self.free.place(job.gpus) or self._place_by_preemption(job)
            if nodes is None:
                return
            self._start(job, nodes)

    def _start(self, job: JobView, nodes: Nodes) -> None:
        self.free.take(nodes)
        self.started.append((job, nodes))

    def _place_by_preemption(self, job: JobView) -> Nodes | None:
        """Return where a job fits if it takes others' GPUs, least important first; only those it needs go."""
        victims = self._victims(job)
        lifted: list[JobView] = []
        nodes = None
        while nodes is None and len(lifted) < len(victims):
            lifted.append(victims[len(lifted)])
            self.free.give(lifted[-1].nodes)
            nodes = self.free.place(job.gpus)
        if nodes is None:
            for victim in lifted:
                self.free.take(victim.nodes)
            return None
        self.free.take(nodes)
        for victim in reversed(lifted):
            if self.free.holds(victim.nodes):
                self.free.take(victim.nodes)
            else:
                self.lost.append(victim.id)
        self.free.give(nodes)
        return nodes

    def _victims(self, job: JobView) -> list[JobView]:
        """Return the running jobs that may lose their GPUs to a job: lowest first, then narrowest, newest."""
        if self.rules.preempts == PREEMPT_NONE:
            return []
        found = []
        for other in self.view.running:
            rank = self._rank_below(job, other)
            assert other.started_ms is not None
            is_exempt = other.started_ms + self.rules.exempt_ms > self.now_ms
            if rank is not None and not is_exempt and other.id not in self.lost:
                found.append((rank, other.gpus, -other.id, other))
        return [other for *_, other in sorted(found, key=lambda one: one[:3])]

    def _rank_below(self, job: JobView, other: JobView) -> int | None:
        """Return how important a running job is, None if it is safe from a pending one."""
        site = self.view.site
        if self.rules.preempts == PREEMPT_PARTITION:
            rank = site.partition(other.facts.vc).tier
            return rank if rank < site.partition(job.facts.vc).tier else None
        is_below = (other.facts.qos or "") in site.qos(job.facts.qos).preempts
        return site.qos(other.facts.qos).priority if is_below else None

    # ---- backfill --------------------------------------------------------------------------------

    def _fill(self, queue: Sequence[JobView]) -> None:
        """Start what delays nobody before it; keep places for what must wait and starts inside the window."""
        rules = self.rules
        outlook = Outlook(self)
        tested, before = 0, len(self.started)
        of_user: dict[int, int] = {}
        for job in queue:
            user = number_of(job.facts.user)
            if rules.user_max and of_user.get(user, 0) >= rules.user_max:
                continue
            if tested >= rules.test_max:
                return
            tested += 1
            of_user[user] = of_user.get(user, 0) + 1
            at_ms, nodes = outlook.earliest(job)
            if nodes is None:
                continue
            if at_ms > self.now_ms:
                outlook.book(job, at_ms, nodes)
                continue
            self._start(job, nodes)
            outlook.hold(self.now_ms, job, nodes)
            if rules.start_max and len(self.started) - before >= rules.start_max:
                return

    # ---- what is next ----------------------------------------------------------------------------

    def await_next(self, passes: Passes, *, is_stale: bool) -> None:
        """Write down when the next passes are due: after what has changed, and when jobs become free to."""
        books, rules, now_ms = self.books, self.rules, self.now_ms
        has_acted = bool(self.started or self.lost)
        books.pending = len(self.view.pending) - len(self.started) + len(self.lost)
        books.running = len(self.view.running) + len(self.started) - len(self.lost)
        wake_ms = self._wake_ms()
        if passes.main:
            books.main_due_ms = NEVER_MS
        if has_acted or (is_stale and not (passes.main and passes.full)):
            books.main_due_ms = min(books.main_due_ms, _next(now_ms, rules.interval_ms))
        if passes.fill or not rules.fills:
            books.fill_due_ms = NEVER_MS
        if rules.fills and (has_acted or (is_stale and not passes.fill)):
            books.fill_due_ms = min(books.fill_due_ms, _next(now_ms, rules.fill_ms))
        if wake_ms is not None:
            books.main_due_ms = min(books.main_due_ms, _up(wake_ms, rules.interval_ms))
            if rules.fills:
                books.fill_due_ms = min(books.fill_due_ms, _up(wake_ms, rules.fill_ms))
        if not books.pending:
            books.main_due_ms = books.fill_due_ms = NEVER_MS

    def _wake_ms(self) -> int | None:
        """Return when a requeued job may start again, or a running one may be preempted, None for never."""
        now_ms, exempt_ms = self.now_ms, self.rules.exempt_ms
        times = [eligible_ms(job) for job in self.view.pending]
        times += [now_ms + REQUEUE_MS] if self.lost else []
        if exempt_ms:
            times += [job.started_ms + exempt_ms for job in self.view.running if job.started_ms is not None]
            times += [now_ms + exempt_ms] if self.started else []
        return min((time_ms for time_ms in times if time_ms > now_ms), default=None)

    def count_in_use(self) -> None:
        """Write down how many GPUs each association uses from now on."""
        usage = self.books.usage
        for one in usage.values():
            one.gpus = 0
        for job in self.view.running:
            if job.id not in self.lost:
                usage[association_of(job.facts)].gpus += job.gpus
        for job, _ in self.started:
            usage[association_of(job.facts)].gpus += job.gpus


class Outlook:
    """GPUs that become free by the time limits of running jobs, less what is kept for jobs further up."""

    def __init__(self, board: Board) -> None:
        self.now_ms = board.now_ms
        self.free = board.free
        self.resolution_ms = board.rules.resolution_ms
        self.horizon_ms = board.now_ms + board.rules.window_ms
        self.ends: list[tuple[int, int, Nodes]] = []
        self.bookings: list[Booking] = []
        for job in board.view.running:
            if job.id not in board.lost:
                assert job.started_ms is not None
                self.hold(job.started_ms, job, job.nodes)
        for job, nodes in board.started:
            self.hold(self.now_ms, job, nodes)

    def hold(self, from_ms: int, job: JobView, nodes: Nodes) -> None:
        """Enter when a running job is expected to end: at its limit, or soon if it is past that."""
        end_ms = from_ms + limit_ms(job.facts)
        if end_ms <= self.now_ms:
            end_ms = self.now_ms + self.resolution_ms
        self.ends.append((_up(end_ms, self.resolution_ms), job.id, nodes))

    def book(self, job: JobView, at_ms: int, nodes: Nodes) -> None:
        """Keep a place for a job."""
        if self.free.placement != "count":
            nodes = tuple((node, self.free.gpus_per_node) for node, _ in nodes)
        self.bookings.append(Booking(at_ms, self._end_ms(job, at_ms), nodes))

    def _end_ms(self, job: JobView, at_ms: int) -> int:
        return _up(at_ms + limit_ms(job.facts), self.resolution_ms)

    def earliest(self, job: JobView) -> tuple[int, Nodes | None]:
        """Return the first instant inside the window at which a job finds a place for all of its limit."""
        ends = sorted(self.ends)
        times = {self.now_ms, *(end_ms for end_ms, *_ in ends), *(one.to_ms for one in self.bookings)}
        free, passed = list(self.free.free), 0
        for at_ms in sorted(times):
            if not self.now_ms <= at_ms <= self.horizon_ms:
                continue
            while passed < len(ends) and ends[passed][0] <= at_ms:
                for node, gpus in ends[passed][2]:
                    free[node] += gpus
                passed += 1
            usable = list(free)
            for one in self.bookings:
                if one.from_ms < self._end_ms(job, at_ms) and at_ms < one.to_ms:
                    for node, gpus in one.nodes:
                        usable[node] = max(0, usable[node] - gpus)
            nodes = FreeMap(usable, self.free.gpus_per_node, self.free.placement).place(job.gpus)
            if nodes is not None:
                return at_ms, nodes
        return self.horizon_ms, None
