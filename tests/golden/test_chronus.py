"""Chronus on a few jobs each, worked out by hand."""

from __future__ import annotations

import pytest

from scenario import acts, expect, jobs, run
from trimtab.cluster import Cluster
from trimtab.job import JobFacts, JobState, JobView, Service
from trimtab.policies import chronus, lease_milp
from trimtab.policies.catalog import find_policy
from trimtab.policies.chronus import ACCEPTED, REFUSED, Rules, resume_ms
from trimtab.policies.lease_milp import recorded, solve
from trimtab.policies.lease_plan import Capacity, Request, plan_greedily
from trimtab.simulate.engine import Engine
from trimtab.simulate.state import Environment
from trimtab.simulate.workload import OracleEstimator, Workload

MINUTE_MS = 60_000
# Leases of ten minutes; nothing is planned beyond the estimates but half a minute and more for a resume.
LEASES_OF_TEN = {"lease": 10, "safety": 0.0}

# Four GPUs: A and C need two leases of three, B one of two.
A, B, C = Request(0, 2, 2, (3,), (10,)), Request(1, 4, 1, (2,), (10,)), Request(2, 2, 2, (3,), (10,))
D = Request(3, 2, 1, (1,), (10,))


def test_the_hardest_job_is_planned_first_each_from_its_last_lease():
    """B is widest: lease 1. A takes 2, finds 1 full, takes 0; C beside it. Lease 0 is full by then."""
    for maximize in (True, False):
        assert plan_greedily([A, B, C], {}, 4, maximize=maximize) == {0: (0, 2), 1: (1,), 2: (0, 2)}


def test_the_program_finds_the_same_plan():
    """Three deadlines of 10, and 4 of 4 GPUs used in lease 0."""
    with recorded() as record:
        solution = solve([A, B, C], {}, 4, maximize=True, rows_max=400)
    assert solution is not None
    assert solution.plans == {0: (0, 2), 1: (1,), 2: (0, 2)}
    assert solution.value == pytest.approx(31)
    assert (record.solves, record.limited, record.failed, record.worst_gap) == (1, 0, 0, 0)


def test_one_job_more_has_no_room_before_its_deadline():
    """Leases 0 to 2 are full, so that D could be promised the end of lease 3: 80 minutes of 20 each."""
    capacity = Capacity(4)
    for request, plan in zip((A, B, C), ((0, 2), (1,), (0, 2)), strict=True):
        capacity.take(request.gpus, plan)
    assert capacity.latest(D.gpus, D.leases, D.window) == ()
    assert capacity.smallest_window(D.gpus, D.leases) == 4
    with recorded() as record:
        assert solve([A, B, C, D], {}, 4, maximize=True, rows_max=400) is None
    assert record.failed == 1


def wanted(table: str, deadlines_min: dict[str, tuple[float, ...]]) -> Workload:
    """Return jobs of a table with deadlines in minutes: one is strict, several are soft."""
    workload = jobs(table)
    facts = []
    for one in workload.facts:
        ends = deadlines_min.get(one.label, ())
        kind = "best" if not ends else "strict" if len(ends) == 1 else "soft"
        values = (10, 8, 5, 2)[: len(ends)]
        facts.append(
            one._replace(service=Service(kind, tuple(round(MINUTE_MS * end) for end in ends), values))
        )
    return Workload(facts, workload.duration_ms)


def promises_min(engine: Engine) -> list[float | None]:
    return [None if one.promise_ms is None else one.promise_ms / MINUTE_MS for one in engine.records]


def test_plans_promises_and_what_is_left():
    """A (10 min, 11.5 planned) needs leases 0 and 1, B (15, 17.25) two of four: 2 and 3. E, by 12, finds its
    lease only after 40: refused. At 10 A has ended; E could end at 15 and is given up, so nobody refused
    waits and B is brought forward from lease 2. It ends at 25, a slot of filling."""
    workload = wanted(
        """
        job  submit_s  duration_s  gpus
        A    0         600         4
        B    0         900         4
        C    60        300         2
        E    60        300         2
        """,
        {"A": (20,), "B": (40,), "E": (12,)},
    )
    engine = run(workload, "chronus", LEASES_OF_TEN)
    assert acts(engine) == expect("""
          0 start  A
        600 finish A
        600 start  B
       1500 finish B
       1500 start  C E
       1800 finish C E
    """)
    assert promises_min(engine) == [20, 40, None, None]


TWO = """
    job  submit_s  duration_s  gpus
    A    0         300         4
    X    0         1800        4
"""


@pytest.mark.parametrize("objective", ["minimize", "maximize", "adaptive"])
def test_a_promised_job_runs_as_late_as_it_may_or_as_early_as_it_can(objective):
    """A needs one lease of two. As late as it may: X, best effort, has lease 0 and is evicted at its end; A
    leaves half of lease 1, filled at once, for 15 is a slot. Nobody refused waits, so adaptive is early."""
    engine = run(wanted(TWO, {"A": (20,)}), "chronus", {**LEASES_OF_TEN, "objective": objective})
    late = """
          0 start   X
        600 preempt X
        600 start   A
        900 finish  A
        900 start   X
       2100 finish  X
    """
    early = """
          0 start  A
        300 finish A
        300 start  X
       2100 finish X
    """
    assert acts(engine) == expect(late if objective == "minimize" else early)
    assert promises_min(engine) == [20, None]


def test_free_gpus_wait_for_the_next_slot_or_go_at_once():
    """A ends at 5; the next slot of 7 min is at 7."""
    early = run(wanted(TWO, {"A": (20,)}), "chronus", {**LEASES_OF_TEN, "fill_every": 7})
    assert "420 start X" in acts(early)
    workload = wanted(TWO.replace("300 ", "301 "), {"A": (20,)})
    assert "301 start X" in acts(run(workload, "chronus", {**LEASES_OF_TEN, "fill_every": 0}))


def test_a_refused_job_that_ends_in_the_lease_evicts_who_merely_fills():
    """R comes at 1; no whole lease lies before 10.5 min. At the slot of 5 it would end with the lease."""
    workload = wanted(
        """
        job  submit_s  duration_s  gpus
        X    0         1800        4
        R    60        300         4
        """,
        {"R": (10.5,)},
    )
    engine = run(workload, "chronus", LEASES_OF_TEN)
    assert acts(engine) == expect("""
          0 start   X
        300 preempt X
        300 start   R
        600 finish  R
        600 start   X
       2100 finish  X
    """)
    assert promises_min(engine) == [None, None]


def test_a_soft_job_is_promised_the_first_deadline_that_has_room():
    """A and S want lease 0; A has no other. S is promised 20, and ends at 10 because A leaves GPUs at 5."""
    workload = wanted(
        """
        job  submit_s  duration_s  gpus
        S    0         300         4
        A    0         300         4
        """,
        {"S": (10, 20), "A": (10,)},
    )
    engine = run(workload, "chronus", LEASES_OF_TEN)
    assert promises_min(engine) == [20, 10]
    assert acts(engine) == expect("""
          0 start  A
        300 finish A
        300 start  S
        600 finish S
    """)


def test_what_is_planned_for_a_job():
    """1.1 x 100 min x (1 + .5 (1 + log2 g) / 20): 112.75 for one GPU, 121 for eight; 3 GPUs count as 4."""
    space = find_policy("chronus").space
    rules, exact = Rules.of(space.defaults), Rules.of(space.project({"round_up": False}))
    assert [rules.leases(100 * MINUTE_MS, gpus) for gpus in (1, 8)] == [6, 7]
    assert [resume_ms(gpus) for gpus in (1, 2, 3, 8)] == [30_000, 60_000, 77_549, 120_000]
    widths = [JobView(0, JobFacts("j", 0, gpus), 0, None) for gpus in (1, 3, 5, 8, 12)]
    assert [rules.gpus(job, 64) for job in widths] == [1, 4, 8, 8, 12]
    assert [exact.gpus(job, 64) for job in widths] == [1, 3, 5, 8, 12]
    assert rules.gpus(widths[2], 6) == 6


def test_without_a_plan_from_the_program_the_greedy_one_counts(monkeypatch):
    """The program is asked, and where it says nothing the schedule is the greedy one."""
    asked = []

    def nothing(requests, kept, gpus, **how):
        asked.append(how)

    workload = wanted(TWO, {"A": (20,)})
    greedy = run(workload, "chronus", LEASES_OF_TEN)
    monkeypatch.setattr(chronus, "solve", nothing)
    program = run(workload, "chronus", {**LEASES_OF_TEN, "selector": "milp"})
    assert acts(program) == acts(greedy)
    assert asked[0] == {"maximize": True, "rows_max": 200, "limit_s": 0}


def test_a_solve_may_end_at_its_limit(monkeypatch):
    """No node at all: nothing is found. One node and no more: a plan, and how far off it may be."""
    capacity, requests = Capacity(97), []
    for number in range(200):
        gpus, leases = (3, 5, 7, 11, 13)[number % 5], 2 + number % 7
        window = leases + number % 11
        if len(plan := capacity.latest(gpus, leases, window)) == leases:
            capacity.take(gpus, plan)
            requests.append(Request(number, gpus, leases, (window,), (10,)))
    monkeypatch.setattr(lease_milp, "NODES_MAX", 0)
    with recorded() as record:
        assert solve(requests, {}, 97, maximize=False, rows_max=400) is None
        monkeypatch.setattr(lease_milp, "NODES_MAX", 1)
        solution = solve(requests, {}, 97, maximize=False, rows_max=400)
    assert solution is not None
    assert solution.is_limited
    assert (record.solves, record.limited, record.failed) == (2, 1, 1)
    assert 0 < record.worst_gap == solution.gap < 0.01


@pytest.mark.parametrize(("width", "plan"), [(2, [0]), (3, [])])
def test_only_what_nobody_is_planned_for_protects_a_refused_job(width, plan):
    """A has leases 0 and 1. R, by 8, fills a GPU at 5 and would end at 7. Beside 3 GPUs, planned as 4, it has
    no claim to the lease. It could have been promised the end of lease 1 at the earliest, or of lease 2."""
    workload = wanted(
        f"""
        job  submit_s  duration_s  gpus
        A    0         600         {width}
        R    60        120         1
        """,
        {"A": (20,), "R": (8,)},
    )
    policy = find_policy("chronus")
    environment = Environment(estimator=OracleEstimator(workload.duration_ms))
    knobs = policy.space.project(LEASES_OF_TEN)
    engine = Engine(workload, Cluster.pool(1, 4), policy, knobs, environment)
    engine.run(301_000)
    one, other = engine.snapshot().jobs
    assert [job.state for job in (one, other)] == [JobState.RUNNING] * 2
    assert one.note == (ACCEPTED, 600_000, 1_200_000, 0, 1)
    assert other.note == (REFUSED, 600_000, 1_200_000 if width == 2 else 1_800_000, *plan)


def test_plans_are_made_anew_when_leases_change():
    """A, by 40, has the lease from 30 on. From 1 on leases last 5 min, and it needs two: again from 30."""
    workload = wanted(TWO.replace("1800", "2400"), {"A": (40,)})
    knobs = {**LEASES_OF_TEN, "objective": "minimize"}
    engine = run(workload, "chronus", knobs, updates=[(60, {"lease": 5})])
    assert [line for line in acts(engine).splitlines() if "knobs" not in line] == [
        "0 start X",
        "1800 preempt X",
        "1800 start A",
        "2100 finish A",
        "2100 start X",
        "2700 finish X",
    ]
    assert promises_min(engine) == [40, None]
