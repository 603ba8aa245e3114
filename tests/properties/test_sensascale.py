"""What SensaScale must keep whatever comes: capacity, envelopes, floors, the order of hope, its purity."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deadlines import CURVES, HUNGRY, MINUTE_MS, jobs, run, wanted_jobs
from strategies import settings as some_knobs
from trimtab.cluster import Cluster, ClusterView, VirtualCluster
from trimtab.curve import Curve
from trimtab.job import BEST_EFFORT, JobFacts, JobView, Move, Service
from trimtab.knobs import Knobs
from trimtab.policies import sensascale
from trimtab.policies.adjust import split
from trimtab.policies.backfill import NEVER_MS, Backfill, Blocked, Outlook
from trimtab.policies.catalog import find_policy
from trimtab.policies.policy import Decision, Plan, Policy, Preempt, Start, WholePass
from trimtab.policies.sensascale import SensaScale
from trimtab.policies.sensascale_knobs import Rules
from trimtab.policies.units import assignment, make_units, spare_of
from trimtab.policies.urgency import Rank, Rated, rate
from trimtab.simulate.engine import Engine
from trimtab.simulate.state import Environment, flat_restart
from trimtab.simulate.workload import OracleEstimator, Workload

EXAMPLES = settings(max_examples=150, deadline=None, derandomize=True, database=None)


POLICIES = st.sampled_from(["sensascale", "sensascale-plus"])
CLUSTERS = st.sampled_from([Cluster.pool(2, 4), Cluster.pool(3, 4), Cluster.pool(1, 8)])


class Watched(WholePass):
    """A policy that is asked twice."""

    def __init__(self, inner: Policy) -> None:
        self.inner, self.name, self.space = inner, inner.name, inner.space  # type: ignore[misc]
        self.seen_ms: int | None = None

    def settings(self, knobs: Knobs) -> Plan:
        assert isinstance(self.inner, WholePass)
        return self.inner.settings(knobs)

    def next_review_ms(self, view: ClusterView, knobs: Knobs) -> int | None:
        return self.inner.next_review_ms(view, knobs)

    def decide(self, view: ClusterView, knobs: Knobs) -> list[Decision]:
        decisions = self.inner.decide(view, knobs)
        assert self.inner.decide(view, knobs) == decisions
        self.seen_ms = view.now_ms
        return decisions


def engine_of(
    workload: Workload, cluster: Cluster, policy: Policy, knobs: Knobs, restart_ms: int = 0
) -> Engine:
    environment = Environment(
        placement="consolidated",
        restart_ms=flat_restart(restart_ms),
        estimator=OracleEstimator(workload.duration_ms),
    )
    return Engine(workload, cluster, policy, knobs, environment, timeline=True)


def drawn(data: st.DataObject, name: str) -> tuple[Policy, Knobs]:
    policy = find_policy(name)
    return policy, data.draw(some_knobs(policy.space))


@EXAMPLES
@given(wanted_jobs(), CLUSTERS, POLICIES, st.data(), st.sampled_from([0, 62_000]))
def test_all_jobs_finish_and_a_view_has_one_answer(workload, cluster, name, data, restart_ms):
    """The engine refuses what no node has; all jobs that fit end, and a view twice gives the same."""
    policy, knobs = drawn(data, name)
    watched = Watched(policy)
    engine = engine_of(workload, cluster, watched, knobs, restart_ms)
    engine.run()
    for record, facts in zip(engine.records, workload.facts, strict=True):
        assert (record.finish_ms is None) == (facts.gpus > cluster.gpus)
        assert record.preemptions <= knobs.integer("max_evictions")


@EXAMPLES
@given(wanted_jobs(), CLUSTERS, POLICIES, st.data())
def test_asked_again_at_the_same_instant_nothing_changes(workload, cluster, name, data):
    policy, knobs = drawn(data, name)
    watched = Watched(policy)
    engine = engine_of(workload, cluster, watched, knobs)
    while (now_ms := engine._next_ms()) is not None:
        engine._instant(now_ms)
        if watched.seen_ms == now_ms:
            assert policy.decide(engine._view(engine._parts[0]), knobs) == []


class Starts(Watched):
    """Checks at each pass what it starts and gives."""

    def decide(self, view: ClusterView, knobs: Knobs) -> list[Decision]:
        decisions = super().decide(view, knobs)
        check_hope(view, knobs, decisions)
        return decisions


def check_hope(view: ClusterView, knobs: Knobs, decisions: list[Decision]) -> None:
    """No hopeless job starts where a hopeful one as narrow and as short still waits."""
    rules = Rules.of(knobs)
    rated = [rate(job, view.vc, view.now_ms, rules.beliefs) for job in view.pending]
    started = {one.job_id for one in decisions if isinstance(one, Start)}
    hopeless = [job for job in rated if job.id in started and job.rank is Rank.HOPELESS]
    waiting = [job for job in rated if job.id not in started and job.rank <= Rank.DEADLINE]
    for job in hopeless:
        for other in waiting:
            longer = other.left_ms(1_000_000) > job.left_ms(1_000_000)
            assert other.gpus > job.gpus or longer


@EXAMPLES
@given(wanted_jobs(), CLUSTERS, POLICIES)
def test_hopeless_jobs_are_never_ahead(workload, cluster, name):
    policy = Starts(find_policy(name))
    engine_of(workload, cluster, policy, policy.space.defaults).run()


RESTART_MS = 62_000


class GivesWay(Watched):
    """Checks who loses GPUs to whom: nobody that has just started, nobody that is made late by it."""

    def decide(self, view: ClusterView, knobs: Knobs) -> list[Decision]:
        decisions = super().decide(view, knobs)
        check_slack(view, knobs, decisions)
        return decisions


def check_slack(view: ClusterView, knobs: Knobs, decisions: list[Decision]) -> None:
    """Whoever is evicted with a deadline still meets it if it goes on when one in its place has ended."""
    rules = Rules.of(knobs)
    lost = {one.job_id for one in decisions if isinstance(one, Preempt)}
    starts = {one.job_id: one.nodes or () for one in decisions if isinstance(one, Start)}
    newcomers = [job for job in view.pending if job.id in starts]
    for victim in (rate(job, view.vc, view.now_ms, rules.beliefs) for job in view.running if job.id in lost):
        assert victim.job.started_ms != view.now_ms
        if victim.rank is Rank.DEADLINE:
            node = victim.nodes[0][0]
            waits_ms = [
                rate(job, view.vc, view.now_ms, rules.beliefs).left_ms(1_000_000)
                for job in newcomers
                if any(place == node for place, _ in starts[job.id])
            ]
            assert victim.latest_ms() - RESTART_MS >= view.now_ms + min(waits_ms)


@EXAMPLES
@given(wanted_jobs(), CLUSTERS, st.sampled_from(["lst", "edf", "srtf"]), st.sampled_from([0, 15]))
def test_nobody_is_made_late_by_giving_way(workload, cluster, order, urgent):
    """With a guard of five minutes, and a minute that a restart costs."""
    policy = GivesWay(find_policy("sensascale-plus"))
    knobs = policy.space.project({**policy.space.defaults, "order": order, "urgent": urgent})
    engine_of(workload, cluster, policy, knobs, RESTART_MS).run()


def rated_on(vc: VirtualCluster, rows: list[tuple[int, str | None, int]], rules: Rules) -> list[Rated]:
    """Return running jobs of one node: GPUs, model and minutes until the deadline.

    0 is none; below 0 the job is soft, with another deadline an hour after that one.
    """
    found, used = [], 0
    for number, (gpus, model, minutes) in enumerate(rows):
        if used + gpus > vc.gpus_per_node:
            continue
        used += gpus
        facts = JobFacts(f"j{number}", 0, gpus, service=wanted_by(minutes), curve=MODELS.get(model or ""))
        job = JobView(number, facts, 0, 60 * MINUTE_MS)
        job.move(Move.START)
        job.nodes, job.started_ms = ((0, gpus),), 0
        found.append(rate(job, vc, 0, rules.beliefs))
    return found


def wanted_by(minutes: int) -> Service:
    if not minutes:
        return BEST_EFFORT
    first_ms = abs(minutes) * MINUTE_MS
    if minutes > 0:
        return Service("strict", (first_ms,), (10,))
    return Service("soft", (first_ms, first_ms + 60 * MINUTE_MS), (10, 5))


# A job that gains and one that could spare memory, neither of which runs with less than its footprint.
MODELS = {
    **CURVES,
    "hungry": HUNGRY,
    "large": Curve((1, 3), (21_333, 64_000), ((1_000_000,) * 2,) * 2, footprint_mib=50_000),
}


def rows(*minutes: int) -> st.SearchStrategy[list[tuple[int, str | None, int]]]:
    row = st.tuples(st.integers(1, 4), st.sampled_from([None, *MODELS]), st.sampled_from(minutes))
    return st.lists(row, min_size=1, max_size=8)


ROWS = rows(0, 45, 61, 70, 300, -30, -61, -300)


@EXAMPLES
@given(ROWS, st.data(), POLICIES)
def test_shares_stay_in_the_node_and_above_the_floors(rows, data, name):
    """Together no more than the node; nobody below its footprint, what it needs without loss and the floor of
    lenders."""
    vc = Cluster.pool(1, 8).vcs[0]
    rules = Rules.of(drawn(data, name)[1])
    jobs = rated_on(vc, rows, rules)
    shares = split(jobs, vc.node_share, rules.adjusting, 0)
    assert sum(share.cores for share in shares.values()) <= vc.cores_per_node
    assert sum(share.memory_mib for share in shares.values()) <= vc.memory_mib_per_node
    for job in jobs:
        floor = job.part.cores * rules.adjusting.floor_ppm / 1_000_000
        assert shares[job.id].cores >= min(job.traits.least.cores, max(1, floor))
        assert shares[job.id].memory_mib >= job.job.facts.footprint_mib
        least_mib = job.part.memory_mib * rules.adjusting.floor_ppm / 1_000_000
        assert shares[job.id].memory_mib >= min(job.traits.least.memory_mib, least_mib)
        given = job.part.cores - shares[job.id].cores
        assert given <= max(spare_of(job).cores, 0) + job.part.cores * rules.adjusting.donate_ppm / 1_000_000


@EXAMPLES
@given(rows(45, 61, 70, -30, -61), st.data(), POLICIES)
def test_loans_go_back_once_nobody_needs_them(rows, data, name):
    """With deadlines far off, whatever they hold from when these were near, jobs have what they have anew."""
    vc = Cluster.pool(1, 8).vcs[0]
    rules = Rules.of(drawn(data, name)[1])
    held = split(rated_on(vc, rows, rules), vc.node_share, rules.adjusting, 0)
    far = [(gpus, model, 900 * minutes // abs(minutes)) for gpus, model, minutes in rows]
    fresh, indebted = rated_on(vc, far, rules), rated_on(vc, far, rules)
    for job in indebted:
        job.share = held[job.id]
        job.speed_now_ppm = job.speed_ppm(job.share)
    anew = split(fresh, vc.node_share, rules.adjusting, 0)
    assert split(indebted, vc.node_share, rules.adjusting, 0) == anew


@EXAMPLES
@given(
    st.permutations([(1, "resnet18", 0), (1, "resnet18", -200), (1, "resnet18", 300)]),
    st.integers(40, 59),
    st.sampled_from([0.34, 0.6, 1.0]),
)
def test_best_effort_lends_before_soft_jobs_and_these_before_strict_ones(lenders, minutes, donate_max):
    """Each may give as much: nobody is asked while one before it keeps what it could have given."""
    vc = Cluster.pool(1, 8).vcs[0]
    knobs = {
        "pair_scope": "off",
        "free_pool": False,
        "donate_max": donate_max,
        "guard_abs": 0,
        "guard_rel": 0,
    }
    rules = Rules.of(SensaScale.space.project(knobs))
    jobs = rated_on(vc, [(5, "mobilenet", minutes), *lenders], rules)
    shares = split(jobs, vc.node_share, rules.adjusting, 0)
    lent = {job.job.facts.service.kind: job.part.cores - shares[job.id].cores for job in jobs[1:]}
    most = int(3 * Fraction(str(donate_max)))
    classes = ["best", "soft", "strict"]
    for before, after in pairwise(classes):
        assert lent[after] == 0 or lent[before] == min(most, 3 - 2), lent


@EXAMPLES
@given(ROWS)
def test_a_pair_stays_in_its_envelope_and_loses_nothing(rows):
    vc = Cluster.pool(1, 8).vcs[0]
    rules = Rules.of(SensaScale.space.project({"unit_mode": "explicit"}))
    jobs = rated_on(vc, rows, rules)
    for unit in make_units(jobs, rules.pairing, 0):
        shares = unit.shares()
        part = vc.proportional(unit.gpus)
        assert unit.gpus <= vc.gpus_per_node
        assert sum(share.cores for share in shares) <= part.cores
        assert sum(share.memory_mib for share in shares) <= part.memory_mib
        for job, share in zip(unit.jobs, shares, strict=True):
            assert job.speed_ppm(share) >= 1_000_000


LENGTHS = st.integers(1, 60)


@EXAMPLES
@given(
    st.integers(0, 6),
    st.lists(st.tuples(st.integers(0, 60), LENGTHS, st.integers(1, 3)), max_size=6),
    st.integers(1, 6),
    LENGTHS,
)
def test_the_earliest_start_is_the_first_instant_with_room(free, taken, gpus, length_ms):
    """Also in a gap before GPUs that are kept for others; compared with a count of every millisecond."""
    outlook, by_ms = Outlook.of(0, free, []), [free] * 200
    for start_ms, span_ms, width in taken:
        outlook.take(start_ms, span_ms, width)
        for at_ms in range(start_ms, start_ms + span_ms):
            by_ms[at_ms] -= width
    room = (at_ms for at_ms in range(122) if min(by_ms[at_ms : at_ms + length_ms]) >= gpus)
    assert outlook.earliest_ms(gpus, length_ms) == next(room, NEVER_MS)


@EXAMPLES
@given(
    st.integers(0, 6),
    st.lists(st.tuples(LENGTHS, st.integers(1, 3)), max_size=8),
    st.lists(st.tuples(st.integers(1, 6), LENGTHS, st.integers(0, 90)), min_size=1, max_size=4),
    st.tuples(st.integers(1, 4), LENGTHS),
)
def test_a_safe_start_makes_nobody_late(free, releases, waiting, candidate):
    """Whoever waits starts by its latest start, or no later than it would have without the candidate."""
    gpus, length_ms = candidate
    outlook = Outlook.of(0, free, releases)
    most = free + sum(width for _, width in releases)
    blocked = [Blocked(width, span_ms, latest_ms) for width, span_ms, latest_ms in waiting if width <= most]
    backfill = Backfill("lst", 0, outlook, blocked)
    if gpus > free or not backfill.is_safe(0, Blocked(gpus, length_ms, None)):
        return
    before, after = outlook.copy(), outlook.copy()
    after.take(0, length_ms, gpus)
    for unit in blocked:
        was_ms = before.earliest_ms(unit.gpus, unit.length_ms)
        is_ms = after.earliest_ms(unit.gpus, unit.length_ms)
        before.take(was_ms, unit.length_ms, unit.gpus)
        after.take(is_ms, unit.length_ms, unit.gpus)
        assert is_ms <= max(unit.latest_ms or 0, was_ms)
        assert min(after.free) >= 0


class Vouching(Backfill):
    """Checks each start that was found safe: whoever waits starts by its latest start, or no later for it.

    A start for which room was kept, as for a promise, is compared with that room in its place, and may make
    late who has no promise.
    """

    asked: tuple[Outlook, list[Blocked], int] | None = None  # as all was when a start was found safe
    vouched: tuple[Outlook, list[Blocked], int] | None = None  # the same, once it is that start's turn
    checked = 0

    def is_safe(self, now_ms: int, unit: Blocked) -> bool:
        safe = super().is_safe(now_ms, unit)
        kept = [other for other in self.blocked if other.is_promised or not unit.is_promised]
        self.asked = (self.outlook.copy(), kept, unit.job_id) if safe else None
        return safe

    def unblock(self, job_id: int) -> None:
        super().unblock(job_id)
        self.vouched, self.asked = self.asked, None

    def start(self, now_ms: int, length_ms: int, gpus: int) -> None:
        super().start(now_ms, length_ms, gpus)
        if self.vouched is None:
            return
        outlook, blocked, own_id = self.vouched
        before, after = outlook.copy(), self.outlook.copy()
        for unit in blocked:
            was_ms = before.earliest_ms(unit.gpus, unit.length_ms)
            before.take(was_ms, unit.length_ms, unit.gpus)
            if unit.job_id != own_id:
                is_ms = after.earliest_ms(unit.gpus, unit.length_ms)
                after.take(is_ms, unit.length_ms, unit.gpus)
                assert is_ms <= max(unit.latest_ms or 0, was_ms)
                Vouching.checked += 1


@EXAMPLES
@given(wanted_jobs(jobs_max=24), CLUSTERS, POLICIES, st.data())
def test_no_safe_backfill_of_a_run_pushes_who_waits_past_its_latest_start(workload, cluster, name, data):
    """Whatever the knobs; jobs that are urgent, or for which others give way, do not ask."""
    policy, knobs = drawn(data, name)
    knobs = policy.space.project({**knobs, "backfill": "lst", "preempt": "off"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sensascale, "Backfill", Vouching)
        engine_of(workload, cluster, policy, knobs).run()


def test_safe_backfills_are_seen_to_be_checked():
    """Two GPUs of four are free beside a job that blocks a wide one: short jobs pass it."""
    table = "R 0 60 2 - 70\nK 0 30 4 - 200\n" + "".join(f"B{n} 0 {10 + n} 1 - -\n" for n in range(4))
    before = Vouching.checked
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sensascale, "Backfill", Vouching)
        run(jobs(table))
    assert Vouching.checked > before


@given(st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=3, max_size=3))
def test_the_assignment_is_the_best(gains):
    best = max(
        sum(gains[row][column] for row, column in enumerate(order)) for order in permutations(range(3))
    )
    assert sum(gains[row][column] for row, column in assignment(gains)) == best
