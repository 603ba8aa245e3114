"""What holds for every plan of leases, and for every schedule that follows from them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

import strategies as some
from properties.test_engine import events, examples
from strategies import Case, RestartCost
from trimtab.cluster import Cluster
from trimtab.policies.chronus import ACCEPTED, Rules
from trimtab.policies.lease_milp import solve
from trimtab.policies.lease_plan import Capacity, Plans, Request, plan_greedily
from trimtab.simulate.workload import Workload

GPUS = 8


@st.composite
def planned(draw: st.DrawFn) -> tuple[list[Request], Plans]:
    """Return jobs that were accepted one after the other, with the plans they were accepted with."""
    capacity, requests, kept = Capacity(GPUS), [], Plans()
    for number in range(draw(st.integers(0, 8))):
        gpus, leases = draw(st.sampled_from([1, 1, 2, 4, 8])), draw(st.integers(1, 4))
        windows = sorted(draw(st.sets(st.integers(1, 9), min_size=1, max_size=3)))
        request = Request(number, gpus, leases, tuple(windows), (10, 8, 5)[: len(windows)])
        plan = capacity.latest(gpus, leases, request.window)
        if len(plan) == leases:
            capacity.take(gpus, plan)
            requests.append(request)
            kept[number] = plan
    return requests, kept


def _check(requests: list[Request], plans: Plans) -> None:
    """Each job has its leases before what it was promised, and no lease has more GPUs than there are."""
    assert plans.keys() == {request.id for request in requests}
    used: Counter[int] = Counter()
    for request in requests:
        plan = plans[request.id]
        assert len(set(plan)) == len(plan) == request.leases
        assert list(plan) == sorted(plan)
        assert all(0 <= lease < request.window for lease in plan)
        used.update(dict.fromkeys(plan, request.gpus))
    assert max(used.values(), default=0) <= GPUS


@examples(300)
@given(planned(), st.booleans())
def test_who_was_accepted_keeps_its_leases(case, maximize):
    requests, kept = case
    _check(requests, plan_greedily(requests, kept, GPUS, maximize=maximize))


@examples(60)
@given(planned(), st.booleans(), st.sampled_from([3, 400]))
def test_the_program_keeps_them_too_and_is_no_worse(case, maximize, rows_max):
    requests, kept = case
    solution = solve(requests, kept, GPUS, maximize=maximize, rows_max=rows_max)
    assert solution is not None
    _check(requests, solution.plans)
    if rows_max == 400:
        assert solution.gap == 0
        greedy = plan_greedily(requests, kept, GPUS, maximize=maximize)
        assert _value(requests, solution.plans, maximize) >= _value(requests, greedy, maximize) - 1e-9


def _value(requests: list[Request], plans: Plans, maximize: bool) -> float:
    value = 0.0
    for request in requests:
        plan = plans[request.id]
        met = next(place for place, window in enumerate(request.windows) if plan[-1] < window)
        value += request.values[met] + (1 if maximize else -1) * request.gpus * (0 in plan) / GPUS
    return value


def _whole(case: Case) -> Case:
    """Return a case in which nothing keeps a plan from coming true: nodes of 8, gangs that fill them, the
    truth told, free restarts."""
    cluster = Cluster.pool(case.cluster.nodes, 8)
    facts = [
        one._replace(gpus=one.gpus if one.gpus <= 8 else -(-one.gpus // 8) * 8, vc=None, members=1)
        for one in case.workload.facts
    ]
    knobs = case.policy.space.project({**case.knobs, "round_up": True})
    return replace(
        case,
        workload=Workload(facts, case.workload.duration_ms),
        cluster=cluster,
        placement="consolidated",
        restart=RestartCost(0, 0),
        cold_start_ms=0,
        estimates_ms=tuple(max(1, span_ms) for span_ms in case.workload.duration_ms),
        knobs=knobs,
    )


@examples(200)
@given(some.deadline_cases(["chronus"]).map(_whole))
def test_promises_are_kept_and_all_jobs_end(case):
    engine = case.done()
    for record, facts in zip(engine.records, case.workload.facts, strict=True):
        if record.rejected:
            continue
        assert record.finish_ms is not None
        if record.promise_ms is not None:
            assert record.promise_ms in facts.service.deadlines_ms
            assert record.finish_ms <= record.promise_ms


@examples(100)
@given(some.deadline_cases(["chronus"]).map(_whole), st.integers(0, 40))
def test_no_lease_is_planned_twice(case, minutes):
    """The notes of all jobs together, at any instant; a job that has the present lease keeps its GPUs."""
    assume(len(case.workload))
    engine = case.engine()
    engine.run(case.workload.facts[0].submit_ms + minutes * 60_000)
    rules, gpus = Rules.of(case.knobs), case.cluster.gpus
    used: Counter[int] = Counter()
    for job in engine.snapshot().jobs:
        status, _, _, *plan = job.note
        assert (status == ACCEPTED) == (job.promise_ms is not None)
        used.update(dict.fromkeys(plan, rules.gpus(job, gpus)))
    ahead = [count for lease, count in used.items() if lease >= engine.now_ms // rules.lease_ms]
    assert max(ahead, default=0) <= gpus


@examples(100)
@given(some.deadline_cases(["chronus"]).map(_whole))
def test_jobs_are_stopped_only_for_the_next_lease_or_a_slot(case):
    rules = Rules.of(case.knobs)
    for event in events(case.done()):
        if event.kind == "preempt" and rules.fill_ms:
            assert event.time_ms % rules.lease_ms == 0 or event.time_ms % rules.fill_ms == 0
