"""Earliest deadline first on both engines, with deadlines of all kinds; best effort among them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

import strategies as some
from trimtab.job import BEST_EFFORT, Service
from trimtab.simulate.engine import Engine
from trimtab.simulate.fast import FastEngine
from trimtab.simulate.workload import Workload
from twins.pairs import check_equal, compiled, ending, events, examples, moments, state


@st.composite
def dated(draw: st.DrawFn, updates_max: int = 2) -> some.Case:
    """Return a case under EDF whose jobs have no deadline, one, or several; some have passed."""
    case = draw(some.cases(["edf"], updates_max=updates_max))
    ahead_ms = st.lists(
        st.sampled_from([-1, 0, 1, 30_000, 60_000, 90_000, 3_600_000]), max_size=3, unique=True
    ).map(sorted)
    facts = [one._replace(service=_service(one.submit_ms, draw(ahead_ms))) for one in case.workload.facts]
    return replace(case, workload=Workload(facts, case.workload.duration_ms))


def _service(submit_ms: int, ahead_ms: list[int]) -> Service:
    if not ahead_ms:
        return BEST_EFFORT
    kind = "strict" if len(ahead_ms) == 1 else "soft"
    return Service(kind, tuple(submit_ms + one for one in ahead_ms), tuple(range(len(ahead_ms), 0, -1)))


@examples(300)
@given(dated())
def test_the_twins_give_the_same_events(case):
    reference, core = case.engine(), compiled(case)
    assert ending(reference) == ending(core)
    check_equal(reference, core)


@examples(100)
@given(dated(), st.data())
def test_a_snapshot_goes_on_in_the_other_engine(case, data):
    time_ms = data.draw(moments(case))
    reference, core = case.engine(), compiled(case)
    if ending(reference, time_ms) is not None:
        return
    assert ending(core, time_ms) is None
    snapshot = reference.snapshot()
    assert state(snapshot) == state(core.snapshot())
    found = []
    for engine in (Engine, FastEngine):
        rest = engine.resume(
            snapshot, case.workload, case.cluster, case.policy, case.environment, timeline=True
        )
        found.append((ending(rest), events(rest), rest.records))
    assert found[0] == found[1]


@examples(200)
@given(dated())
def test_the_index_decides_as_the_book_says(case):
    indexed, plain = case.done(), case.done(by_the_book=True)
    assert events(indexed) == events(plain)
    assert indexed.records == plain.records
