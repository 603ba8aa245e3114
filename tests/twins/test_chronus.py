"""Chronus is decided in the core with the greedy selector, in Python with the program; both by the book."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import strategies as some
from trimtab.policies.chronus import Chronus
from trimtab.simulate.native import native_decider
from twins.pairs import check_either_goes_on, check_equal, compiled, ending, examples, moments


@examples(300)
@given(some.deadline_cases(["chronus"], updates_max=3))
def test_the_twins_give_the_same_events(case):
    reference, core = case.engine(), compiled(case)
    assert ending(reference) == ending(core)
    check_equal(reference, core)


@examples(100)
@given(some.deadline_cases(["chronus"], updates_max=2), st.data())
def test_notes_are_the_same_at_every_stop_and_go_on_in_either_engine(case, data):
    until_ms = data.draw(moments(case))
    reference, core = case.engine(), compiled(case)
    assert ending(reference, until_ms) == ending(core, until_ms)
    check_either_goes_on(case, reference, core)


def test_only_the_program_is_asked_of_python():
    space = Chronus.space
    assert native_decider(Chronus(), space.defaults) is not None
    assert native_decider(Chronus(), space.project({"selector": "milp"})) is None
