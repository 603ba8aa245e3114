"""Synergy on both engines: CPU and memory to the core and the MiB, at every instant."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

import sensitive
import strategies as some
from trimtab.cluster import Cluster
from trimtab.job import JobFacts
from trimtab.policies.synergy import Synergy
from trimtab.simulate.engine import Engine
from trimtab.simulate.fast import FastEngine
from trimtab.simulate.native import native_decider
from trimtab.simulate.workload import Workload
from twins.pairs import check_equal, compiled, ending, events, examples, moments, state


@st.composite
def shaped(draw: st.DrawFn, updates_max: int = 2) -> some.Case:
    """Return a case on nodes with CPU and memory of all proportions, cores that do not divide among them."""
    case = draw(sensitive.cases(updates_max))
    cores = draw(st.sampled_from([0, 0, 5, 7, 48]))
    memory_mib = draw(st.sampled_from([0, 0, 100_001, 1_000_000]))
    vcs = tuple(
        replace(
            vc,
            cores_per_node=cores or vc.cores_per_node,
            memory_mib_per_node=memory_mib or vc.memory_mib_per_node,
        )
        for vc in case.cluster.vcs
    )
    return replace(case, cluster=Cluster(vcs, case.cluster.pooled))


@examples(200)
@given(shaped())
def test_the_twins_give_the_same_events(case):
    """All orders and allocations, changed while jobs run: OPT is asked of Python by the core, too."""
    reference, core = case.engine(), compiled(case)
    assert ending(reference) == ending(core)
    check_equal(reference, core)


@examples(60)
@given(shaped(), st.data())
def test_a_snapshot_goes_on_in_either_engine(case, data):
    time_ms = data.draw(moments(case))
    found = []
    for first in (case.engine(), compiled(case)):
        if ending(first, time_ms) is not None:
            return
        snapshot = first.snapshot()
        found.append(state(snapshot))
        for engine in (Engine, FastEngine):
            rest = engine.resume(
                snapshot, case.workload, case.cluster, case.policy, case.environment, timeline=True
            )
            found.append((ending(rest), events(rest), rest.records))
    assert found[0] == found[3]
    assert all(one == found[1] for one in (found[2], found[4], found[5]))


def test_python_is_asked_only_for_opt():
    assert native_decider(Synergy(), Synergy.space.defaults) is not None
    assert native_decider(Synergy(), Synergy.space.project({"allocation": "opt"})) is None


def test_the_cases_are_about_something():
    """Among them are jobs that share a node unevenly, are changed while they run, and are interrupted."""
    for kind in ("start", "resize", "preempt"):
        once = settings(examples(500), phases=[Phase.generate])
        case = find(shaped(), partial(_has, kind), settings=once)
        assert _has(kind, case)


def _has(kind: str, case: some.Case) -> bool:
    return any(
        event.kind == kind and (event.detail or kind == "preempt")
        for event in case.done().timeline.events  # type: ignore[union-attr]
    )


def test_a_review_that_waits_for_the_tick_of_longer_rounds_is_not_asked_for_again_and_again():
    """Reviewed every 7 s, then in rounds of 260: the review of 14 s falls between their ticks."""
    workload = Workload([JobFacts(f"j{one}", 0, 3) for one in range(3)], [60_000] * 3)
    case = some.plain_case(workload, "synergy", {"order": "las", "round_s": 7})
    longer = case.policy.space.project({"order": "fifo", "round_s": 260})
    case = replace(case, cluster=Cluster.pool(1, 3), updates=((10_000, longer),))
    reference, core = case.engine(), compiled(case)
    assert ending(reference) == ending(core)
    check_equal(reference, core)
