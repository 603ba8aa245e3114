"""Chronus: deadlines kept by planning whole leases of GPUs [Gao et al., SoCC'21], rebuilt from its artifact.

A job is accepted when it comes if its leases can still be planned before its deadline; then that is promised.
At each lease boundary the plan is made anew, and whoever has the new lease runs for all of it. What is left
goes to the others, whom the next plan may evict.

The artifact scores placements by measured speeds of their shapes, charges nothing for bad ones and has no
such measurements of other jobs; here gangs go where the engine's placement rule puts them, widest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from trimtab.cluster import ClusterView
from trimtab.curve import FULL_SPEED_PPM
from trimtab.job import JobView
from trimtab.knobs import Knob, Knobs, Space, Value
from trimtab.policies.fairness import log2_units
from trimtab.policies.lease_milp import solve
from trimtab.policies.lease_plan import Capacity, Leases, Plans, Request, packing_order, plan_greedily
from trimtab.policies.policy import Decision, Note, Plan, Preempt, Start, WholePass, ppm, walk_through

MINUTE_MS = 60_000
RESUME_MS = 30_000  # of one GPU, and as much again for each doubling
_LOG_ONE = 1 << 40
_ROWS_A_MINUTE = 20  # of the program, by minutes of a lease

# A job's status, the first number of its note.
ACCEPTED, REFUSED, BEST_EFFORT = 0, 1, 2


def _settle(values: dict[str, Value]) -> dict[str, Value]:
    """Give the limit of the program its default where there is no program."""
    if values["selector"] == "greedy":
        values["solve_limit"] = 0
    return values


SPACE = Space(
    knobs=(
        Knob(
            name="lease",
            kind="int",
            default=20,
            low=5,
            high=120,
            unit="min",
            trades="longer: fewer preemptions, but deadlines count in whole leases: more jobs are refused",
            takes_effect="next pass",
            in_flight="promises stay, plans are made anew at once in the new leases and may come out short",
        ),
        Knob(
            name="selector",
            kind="choice",
            default="greedy",
            choices=("greedy", "milp"),
            trades="milp: a better use of the leases where plans are tight, at the price of a solve a lease",
            takes_effect="next lease boundary",
            in_flight="promises and plans stay until then",
        ),
        Knob(
            name="objective",
            kind="choice",
            default="adaptive",
            choices=("adaptive", "maximize", "minimize"),
            trades="maximize: promised jobs run early; minimize: as late as they may, others before them; "
            "adaptive: minimize while a refused job waits",
            takes_effect="next lease boundary",
            in_flight="promises and plans stay until then",
        ),
        Knob(
            name="round_up",
            kind="bool",
            default=True,
            trades="on: 3 GPUs are planned as 4, 5 to 7 as 8, so that plans fit on nodes of 8; off: more "
            "jobs are accepted, and some find no node",
            takes_effect="next pass",
            in_flight="promises stay; plans are kept until the next lease boundary",
        ),
        Knob(
            name="safety",
            kind="fraction",
            default=0.1,
            low=0,
            high=1,
            trades="run time planned beyond the estimate: larger: promises hold with worse estimates, fewer "
            "are made",
            takes_effect="next pass",
            in_flight="promises stay; plans are kept until the next lease boundary",
        ),
        Knob(
            name="be_order",
            kind="choice",
            default="srsf",
            choices=("srsf", "fifo"),
            trades="order of refused and best-effort jobs; srsf: least GPU time left first, shorter JCT; "
            "fifo: long jobs wait less",
            takes_effect="next pass",
            in_flight="running jobs are put in the new order at the next lease boundary",
        ),
        Knob(
            name="fill_every",
            kind="int",
            default=5,
            low=0,
            high=60,
            unit="min",
            trades="how often free GPUs are given away inside a lease; longer: GPUs idle; 0: at every event",
            takes_effect="next pass",
            in_flight="untouched",
        ),
        Knob(
            name="solve_limit",
            kind="int",
            default=0,
            low=0,
            high=60,
            unit="s",
            trades="time of one solve; longer: better plans, later decisions; 0: a fixed number of nodes, so "
            "that the same input always gives the same plan",
            takes_effect="next lease boundary",
            in_flight="untouched",
        ),
    ),
    settle=_settle,
)


@dataclass(frozen=True, slots=True)
class Rules:
    """The knobs in whole numbers."""

    lease_ms: int
    exact: bool  # whether the program plans
    objective: str
    rounds_up: bool
    safety_ppm: int
    shortest_first: bool
    fill_ms: int
    limit_s: int

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, knobs: Knobs) -> Rules:
        """Return what the knobs say."""
        return cls(
            lease_ms=MINUTE_MS * knobs.integer("lease"),
            exact=knobs.choice("selector") == "milp",
            objective=knobs.choice("objective"),
            rounds_up=bool(knobs["round_up"]),
            safety_ppm=ppm(knobs.fraction("safety")),
            shortest_first=knobs.choice("be_order") == "srsf",
            fill_ms=MINUTE_MS * knobs.integer("fill_every"),
            limit_s=knobs.integer("solve_limit"),
        )

    def gpus(self, job: JobView, cluster_gpus: int) -> int:
        """Return the GPUs planned for a job."""
        width = job.member_gpus
        if self.rounds_up and width <= 8:
            width = 1 << (width - 1).bit_length()
        return min(width * job.facts.members, cluster_gpus)

    def leases(self, left_ms: int, member_gpus: int) -> int:
        """Return the leases a job needs with so much run time left.

        Each lease is planned to begin with a resume, so ceil((1 + safety) left (1 + resume / lease) / lease).
        """
        safe = FULL_SPEED_PPM + self.safety_ppm
        planned_ms = left_ms * safe * (self.lease_ms + resume_ms(member_gpus))
        planned_ms //= FULL_SPEED_PPM * self.lease_ms
        return max(1, -(-planned_ms // self.lease_ms))


@lru_cache(maxsize=1024)
def resume_ms(gpus: int) -> int:
    """Return what Chronus plans for a preemption: 0.5 (1 + log2 g) minutes, rounded up to the millisecond."""
    return -(-RESUME_MS * (_LOG_ONE + log2_units(gpus, 1)) // _LOG_ONE)


class Entry:
    """A job in one pass: what its note says, what it still needs, and by when.

    Attributes:
        status: None before it was looked at. earliest_ms: the earliest deadline it could have been promised
            when it came, 0 for best effort. plan: leases by their number since the clock's zero, ascending.
        gpus: GPUs planned for it. left_ms: estimated run time left.
        deadline_ms: The deadline it runs for: the promised one, or else the last; None if it has none, or
            cannot meet any any more.
    """

    __slots__ = ("deadline_ms", "earliest_ms", "gpus", "job", "left_ms", "plan", "promise_ms", "status")

    def __init__(self, job: JobView, view: ClusterView, rules: Rules) -> None:
        self.job = job
        self.status: int | None = None
        self.earliest_ms = 0
        self.plan: Leases = ()
        self.promise_ms = job.promise_ms
        if job.note:
            self.status, lease_ms, self.earliest_ms, *plan = job.note
            self.plan = tuple(plan) if lease_ms == rules.lease_ms else ()
        self.gpus = rules.gpus(job, view.vc.gpus)
        self.left_ms = -(-job.remaining(view.now_ms) // FULL_SPEED_PPM)
        options = self.options(view.now_ms)
        self.deadline_ms = options[-1][0] if options else None

    def options(self, now_ms: int) -> list[tuple[int, int]]:
        """Return the deadlines it can still meet, with their values: up to the promised one, if it can."""
        service = self.job.facts.service
        open_ = [
            option
            for option in zip(service.deadlines_ms, service.worth, strict=True)
            if now_ms + self.left_ms <= option[0]
        ]
        if self.promise_ms is None:
            return open_
        return [option for option in open_ if option[0] <= self.promise_ms] or open_[:1]

    def request(self, now_ms: int, first: int, rules: Rules) -> Request:
        """Return what it needs of the leases from `first` on, before deadlines it can meet, or the last."""
        options = self.options(now_ms) or [(self.job.facts.service.deadlines_ms[-1], 0)]
        windows = tuple(max(1, deadline_ms // rules.lease_ms - first) for deadline_ms, _ in options)
        needs = rules.leases(self.left_ms, self.job.member_gpus)
        return Request(self.job.id, self.gpus, needs, windows, tuple(value for _, value in options))

    def note(self, rules: Rules) -> tuple[int, ...]:
        """Return what is to be written down about it."""
        assert self.status is not None
        return (self.status, rules.lease_ms, self.earliest_ms, *self.plan)


class Chronus(WholePass):
    """Promises deadlines by plans of whole leases; reads estimates of run times."""

    name: ClassVar[str] = "chronus"
    space: ClassVar[Space] = SPACE

    def settings(self, knobs: Knobs) -> Plan:
        """Return that it reads estimates."""
        return Plan(needs_estimates=True)

    def decide(self, view: ClusterView, knobs: Knobs) -> list[Decision]:
        """Return who is accepted, and at lease boundaries and slots of filling who runs."""
        rules = Rules.of(knobs)
        begins = view.now_ms % rules.lease_ms == 0
        fills = begins or not rules.fill_ms or view.now_ms % rules.fill_ms == 0
        if not fills and not any(_is_stale(job, rules) for job in (*view.pending, *view.running)):
            return []
        board = Board(view, rules)
        board.admit()
        if begins:
            board.plan()
        changes = board.run(anew=begins) if fills else []
        return [*changes, *board.notes()]

    def next_review_ms(self, view: ClusterView, knobs: Knobs) -> int | None:
        """Return the next lease boundary, or slot of filling while jobs wait; None if there are no jobs."""
        rules = Rules.of(knobs)
        if not len(view.pending) and not len(view.running):
            return None
        steps_ms = [rules.lease_ms, *([rules.fill_ms] if rules.fill_ms and len(view.pending) else [])]
        return min((view.now_ms // step_ms + 1) * step_ms for step_ms in steps_ms)


def _is_stale(job: JobView, rules: Rules) -> bool:
    """Whether nothing is known of a job, or its leases are of another length."""
    return not job.note or job.note[1] != rules.lease_ms


class Board:
    """All jobs of one virtual cluster in one pass."""

    def __init__(self, view: ClusterView, rules: Rules) -> None:
        self.view = view
        self.rules = rules
        self.now_ms = view.now_ms
        self.gpus = view.vc.gpus
        self.lease = view.now_ms // rules.lease_ms
        self.first = -(-view.now_ms // rules.lease_ms)  # the first lease that is still whole
        self.entries = [Entry(job, view, rules) for job in (*view.pending, *view.running)]

    # ---- admission -------------------------------------------------------------------------------

    def admit(self) -> None:
        """Accept or refuse the newcomers, and plan anew who has leases of another length."""
        unplanned = []
        for entry in self.entries:
            if entry.status is None and not entry.job.facts.service.deadlines_ms:
                entry.status = BEST_EFFORT
            is_open = entry.status == ACCEPTED and entry.deadline_ms is not None
            if entry.status is None or (is_open and _is_stale(entry.job, self.rules)):
                unplanned.append(entry)
        if not unplanned:
            return
        capacity = Capacity(self.gpus)
        for entry in self.entries:
            ahead = tuple(lease - self.first for lease in entry.plan if lease >= self.first)
            capacity.take(entry.gpus, ahead)
        requests = {entry.job.id: entry.request(self.now_ms, self.first, self.rules) for entry in unplanned}
        for entry in sorted(unplanned, key=lambda entry: packing_order(requests[entry.job.id])):
            self._admit(entry, requests[entry.job.id], capacity)

    def _admit(self, entry: Entry, request: Request, capacity: Capacity) -> None:
        """Promise the first deadline before which there is room, and plan for it as late as possible."""
        if entry.status is None:
            window = capacity.smallest_window(request.gpus, request.leases)
            entry.earliest_ms = (self.first + window) * self.rules.lease_ms
            kept = [ms for ms, _ in entry.options(self.now_ms) if ms >= entry.earliest_ms]
            entry.status = ACCEPTED if kept else REFUSED
            if not kept:
                return
            entry.promise_ms = entry.deadline_ms = kept[0]
        assert entry.deadline_ms is not None
        window = entry.deadline_ms // self.rules.lease_ms - self.first
        found = capacity.latest(request.gpus, request.leases, window)
        capacity.take(request.gpus, found)
        entry.plan = tuple(self.first + lease for lease in found)

    # ---- the plan of a lease ---------------------------------------------------------------------

    def plan(self) -> None:
        """Plan the leases of all accepted jobs anew, from the one that begins now.

        A job whose estimate was too low gets what leases there are before its deadline.
        """
        kept: Plans = {}
        requests = []
        for entry in self.entries:
            if entry.status == ACCEPTED and entry.deadline_ms is not None:
                kept[entry.job.id] = tuple(lease - self.lease for lease in entry.plan if lease >= self.lease)
                request = entry.request(self.now_ms, self.lease, self.rules)
                requests.append(request._replace(leases=min(request.leases, request.window)))
        plans = self._select(requests, kept)
        for entry in self.entries:
            leases = plans.get(entry.job.id, ())
            entry.plan = tuple(self.lease + lease for lease in leases)

    def _select(self, requests: list[Request], kept: Plans) -> Plans:
        rules = self.rules
        maximize = rules.objective == "maximize"
        if rules.objective == "adaptive":
            maximize = not any(
                entry.status == REFUSED and entry.deadline_ms is not None for entry in self.entries
            )
        if rules.exact:
            rows_max = _ROWS_A_MINUTE * rules.lease_ms // MINUTE_MS
            solution = solve(
                *(requests, kept, self.gpus),
                maximize=maximize,
                rows_max=rows_max,
                limit_s=rules.limit_s,
            )
            if solution is not None:
                return solution.plans
        return plan_greedily(requests, kept, self.gpus, maximize=maximize)

    # ---- who runs --------------------------------------------------------------------------------

    def run(self, *, anew: bool) -> list[Decision]:
        """Give the GPUs away: to those who have this lease, then to those who end in it, then to others.

        Args:
            anew: Whether all running jobs are decided upon again, as at a lease boundary; if not, those who
                have the lease stay, and the others lose their GPUs only to who may evict them.
        """
        has = [entry for entry in self.entries if self.lease in entry.plan]
        chosen = [entry for entry in has if anew or not entry.job.nodes]
        promoted = self._promoted(self.gpus - sum(entry.gpus for entry in has))
        if not (anew or chosen or promoted or any(self.view.free.free)):
            return []
        taken = {id(entry) for entry in (*has, *promoted)}
        others = sorted((entry for entry in self.entries if id(entry) not in taken), key=self._order)
        if not anew:
            others.sort(key=lambda entry: not entry.job.nodes)
        ordered = [*sorted(chosen, key=lambda entry: (-entry.gpus, entry.job.id)), *promoted, *others]
        changes = walk_through([entry.job for entry in ordered], self.view.free, None)
        self._mark(promoted, changes)
        return changes

    def _promoted(self, spot: int) -> list[Entry]:
        """Return refused jobs that end in this lease, as many as fit beside those who have it."""
        end_ms = (self.lease + 1) * self.rules.lease_ms
        able = [
            entry
            for entry in self.entries
            if entry.status == REFUSED
            and entry.deadline_ms is not None
            and self.lease not in entry.plan
            and self.now_ms + entry.left_ms <= end_ms
        ]
        found = []
        for entry in sorted(able, key=self._order):
            if entry.gpus <= spot:
                spot -= entry.gpus
                found.append(entry)
        return found

    def _order(self, entry: Entry) -> tuple[int, int, int, int]:
        """Return a job's place among those who fill: refused and best effort, accepted, then the hopeless."""
        job = entry.job
        rank, weight = 0, entry.left_ms * job.gpus if self.rules.shortest_first else 0
        if entry.status != BEST_EFFORT and entry.deadline_ms is None:
            rank = 2
        elif entry.status == ACCEPTED and entry.deadline_ms is not None:
            rank, weight = 1, (entry.deadline_ms - self.now_ms - entry.left_ms) * job.gpus
        return rank, weight, job.submit_ms, job.id

    def _mark(self, promoted: Iterable[Entry], changes: Sequence[Decision]) -> None:
        """Write this lease into the plans of those promoted jobs that run now."""
        started = {change.job_id for change in changes if isinstance(change, Start)}
        lost = {change.job_id for change in changes if isinstance(change, Preempt)}
        for entry in promoted:
            job = entry.job
            if job.id in started or (job.nodes and job.id not in lost):
                entry.plan = (self.lease,)

    def notes(self) -> list[Decision]:
        """Return what must be written down, as far as it is not there already."""
        return [
            Note(entry.job.id, note, entry.promise_ms)
            for entry in self.entries
            if (note := entry.note(self.rules)) != entry.job.note
        ]
