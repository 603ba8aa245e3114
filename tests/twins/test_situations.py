"""Batches: many settings from one situation equal each of them alone, on any number of threads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies as some
from trimtab.cluster import Cluster
from trimtab.errors import ConfigError, TrimtabError
from trimtab.job import JobFacts, Service
from trimtab.objective import Stays, find_objective
from trimtab.simulate.engine import Engine
from trimtab.simulate.fast import FastEngine, FastSituation
from trimtab.simulate.state import Environment
from trimtab.simulate.trials import LocalTrials
from trimtab.simulate.whatif import Situation
from trimtab.simulate.workload import Workload
from twins.pairs import ending, examples, moments


def _plain(stays: list[Stays | None]) -> list[tuple[object, ...] | None]:
    return [
        None
        if one is None
        else (
            one.age_ms.tolist(),
            one.idle_ms.tolist(),
            one.members.tolist(),
            one.totals,
            None if one.lost_ppm is None else one.lost_ppm.tolist(),
        )
        for one in stays
    ]


@st.composite
def _with_deadlines(draw: st.DrawFn, case: some.Case) -> some.Case:
    """Give some jobs a deadline or two; a policy that does not look is not changed by that."""
    facts = []
    for one in case.workload.facts:
        deadlines = sorted(draw(st.sets(st.integers(1, 400_000), max_size=2)))
        kind = ("best", "strict", "soft")[len(deadlines)]
        absolute = tuple(one.submit_ms + deadline for deadline in deadlines)
        facts.append(one._replace(service=Service(kind, absolute, (10, 4)[: len(deadlines)])))
    return replace(case, workload=replace(case.workload, facts=facts))


@st.composite
def situations(draw: st.DrawFn) -> tuple[Situation, list[object]]:
    case = draw(_with_deadlines(draw(some.cases(updates_max=1))))
    engine = case.engine()
    if ending(engine, draw(moments(case))) is not None:
        engine = case.engine()
    snapshot = engine.snapshot()
    until_ms = draw(st.one_of(st.none(), st.integers(0, 600_000).map(lambda span: snapshot.now_ms + span)))
    situation = Situation(snapshot, case.workload, case.cluster, case.policy_name, case.environment, until_ms)
    settings = draw(st.lists(some.settings(case.policy.space), max_size=4))
    return situation, [snapshot.knobs, *settings]


@examples(150)
@given(situations())
def test_a_batch_equals_one_by_one_on_any_number_of_threads(drawn):
    situation, candidates = drawn
    fast = FastSituation(
        situation.snapshot,
        situation.workload,
        situation.cluster,
        some.find_policy(situation.policy),
        situation.environment,
        situation.until_ms,
        situation.preemptions_max,
    )
    try:
        expected = [situation.stays(knobs) for knobs in candidates]
    except TrimtabError as refused:
        with pytest.raises(type(refused)) as found:
            fast.stays(candidates, 2)
        assert str(found.value) == str(refused)  # noqa: PT017
        return
    for threads in (1, 2, 3):
        assert _plain(fast.stays(candidates, threads)) == _plain(expected)
    assert [_plain(fast.stays([knobs], 1)) for knobs in candidates] == [_plain([one]) for one in expected]
    for name in ("wait", "violations"):
        costs = [
            LocalTrials(kind, threads).measure(situation, candidates, find_objective(name))
            for kind, threads in (("reference", 1), ("compiled", 1), ("compiled", 2))
        ]
        assert costs[0] == costs[1] == costs[2]


@pytest.mark.parametrize("engine", [Engine, FastEngine])
def test_a_state_goes_on_with_its_own_jobs_only(engine):
    policy = some.find_policy("edf")
    facts = [JobFacts("a", 0, 1), JobFacts("b", 0, 1)]
    cluster, environment = Cluster.pool(1, 1), Environment()
    first = Engine(Workload(facts, [999, 5]), cluster, policy, policy.space.defaults, environment)
    first.run(1)
    snapshot = first.snapshot()
    urgent = facts[1]._replace(service=Service("strict", (1,), (10,)))
    for others in ([facts[0], urgent], facts[:1]):
        with pytest.raises(
            ConfigError, match=r"^job b, active in the snapshot at 1 ms, is not job 1 of the workload"
        ):
            engine.resume(snapshot, Workload(others, [999, 5][: len(others)]), cluster, policy, environment)
    same = [one._replace() for one in facts]
    engine.resume(snapshot, Workload(same, [7, 5]), cluster, policy, environment).run()
