"""A knob that others have made inert changes no run, whatever its value: `settle` only gives it a name."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies as some
from trimtab.knobs import Knob, Knobs, Value
from trimtab.policies.catalog import POLICIES
from trimtab.testing import raw
from twins.pairs import compiled, ending, events, examples
from twins.test_sensascale import deadline_cases

# Under first come first served SensaScale gives no deadline up, takes no GPUs and promises nothing: these are
# not without effect, they are set.
SET_BY_FIFO = ("hopeless", "preempt", "admission")


def values_of(knob: Knob) -> st.SearchStrategy[Value]:
    return st.sampled_from(knob.choices) if knob.kind == "choice" else raw(knob).map(knob.project)


def check_inert(data: st.DataObject, case: some.Case) -> None:
    """Run a case with other values of all its inert knobs, past projection, on both engines.

    Lists are left out: of another length they tell another number of queues.
    """
    space = case.policy.space
    single = [name for name in case.knobs if space.by_name[name].kind != "list"]
    names = [name for name in single if space.is_inert(name, case.knobs)]
    if case.knobs.get("order") == "fifo":
        names = [name for name in names if name not in SET_BY_FIFO]
    others = {name: data.draw(values_of(space.by_name[name])) for name in names}
    wild = replace(case, knobs=Knobs({**case.knobs, **others}))
    for make in (some.Case.engine, compiled):
        plain, odd = make(case), make(wild)
        assert ending(plain) == ending(odd)
        assert events(plain) == events(odd), others
        assert plain.records == odd.records


@examples(80)
@given(st.data(), deadline_cases())
def test_inert_knobs_of_sensascale_change_nothing(data, case):
    check_inert(data, replace(case, updates=()))


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_inert_knobs_change_nothing(name):
    @examples(30)
    @given(st.data(), some.cases([name]))
    def check(data, case):
        check_inert(data, case)

    check()
