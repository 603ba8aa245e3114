"""SensaScale on both engines: the core's own pass against the one written in Python, compared with `==`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies as some
from deadlines import CURVES, wanted_jobs
from trimtab.cluster import Cluster, VirtualCluster
from trimtab.job import BEST_EFFORT, JobFacts, Service
from trimtab.policies.catalog import find_policy
from trimtab.simulate.workload import Workload
from twins.pairs import check_equal, compiled, ending, examples

CLUSTERS = st.sampled_from(
    [
        Cluster.pool(2, 4),
        Cluster.pool(3, 4),
        Cluster.pool(2, 8),
        Cluster((VirtualCluster("odd", 3, 3, cores_per_node=10, memory_mib_per_node=200_001),)),
    ]
)


@st.composite
def deadline_cases(draw: st.DrawFn) -> some.Case:
    name = draw(st.sampled_from(["sensascale", "sensascale-plus"]))
    space = find_policy(name).space
    workload = draw(wanted_jobs(jobs_max=30))
    if draw(st.booleans()):  # the truth is another one than what is known
        truths = st.sampled_from([None, *CURVES.values()])
        size = len(workload)
        workload = replace(workload, curves=tuple(draw(st.lists(truths, min_size=size, max_size=size))))
    guess = st.sampled_from([0.5, 1.0, 1.0, 1.0, 1.7])
    told = tuple(max(1, int(draw(guess) * duration_ms)) for duration_ms in workload.duration_ms)
    moments = st.sampled_from([0, 60_000, 61_003, 500_000, 1_800_000])
    first_ms = workload.facts[0].submit_ms
    updates = draw(st.lists(st.tuples(moments, some.settings(space)), max_size=2))
    return some.Case(
        workload=workload,
        cluster=draw(CLUSTERS),
        policy_name=name,
        knobs=draw(st.one_of(st.just(space.defaults), some.settings(space))),
        placement=draw(st.sampled_from(["consolidated", "relaxed"])),
        restart=draw(st.sampled_from([some.RestartCost(0, 0), some.RestartCost(62_000, 337)])),
        cold_start_ms=draw(st.sampled_from([0, 0, 1_501])),
        estimates_ms=told,
        completed_gpu_ms=(),
        updates=tuple(sorted(((first_ms + at, knobs) for at, knobs in updates), key=lambda one: one[0])),
    )


@examples(400)
@given(deadline_cases())
def test_the_twins_give_the_same_events(case):
    reference, core = case.engine(), compiled(case)
    assert ending(reference) == ending(core)
    check_equal(reference, core)


@examples(60)
@given(deadline_cases(), st.integers(0, 3_600_000))
def test_the_twins_agree_from_a_snapshot_on(case, until_ms):
    reference, core = case.engine(), compiled(case)
    assert ending(reference, until_ms) == ending(core, until_ms)
    check_equal(reference, core)
    assert ending(reference) == ending(core)
    check_equal(reference, core)


def crowded(jobs: int) -> Workload:
    """Return jobs of all kinds that come faster than they end."""
    models = [*CURVES, None]
    facts, durations = [], []
    for number in range(jobs):
        duration_ms = 60_000 * (5 + 37 * number % 240)
        submit_ms = 20_000 * number
        due_ms = submit_ms + duration_ms * (11 + number % 13) // 10
        kinds = [
            BEST_EFFORT,
            Service("strict", (due_ms,), (10,)),
            Service("soft", (due_ms, 2 * due_ms), (10, 5)),
        ]
        service = kinds[number * 7 % 4 % 3]
        curve = CURVES.get(models[number % len(models)] or "")
        facts.append(
            JobFacts(f"j{number}", submit_ms, (1, 1, 1, 2, 4, 8)[number % 6], service=service, curve=curve)
        )
        durations.append(duration_ms)
    return Workload(facts, durations)


@pytest.mark.parametrize("name", ["sensascale", "sensascale-plus"])
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"unit_mode": "explicit"},
        {"unit_mode": "explicit", "match": "hungarian"},
        {"order": "lst", "preempt": "rescue"},
        {"order": "srtf", "preempt": "slack", "outlast": 2.0},
    ],
)
def test_the_twins_agree_in_a_crowd(name, values):
    """Many jobs on six nodes: long queues, many promises, loans and rescues."""
    workload = crowded(250)
    case = replace(
        some.plain_case(workload, name, values),
        cluster=Cluster.pool(6, 8),
        restart=some.RestartCost(30_000, 0),
    )
    reference, core = case.engine(), compiled(case)
    assert ending(reference) == ending(core)
    check_equal(reference, core)
