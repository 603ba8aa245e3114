"""Projection is total, idempotent and canonical, people's text is refused rather than repaired, and an axis
takes every value there and back."""

from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from trimtab.errors import KnobError, UnknownName
from trimtab.knobs import Knob, Knobs, Space, Value, write
from trimtab.policies.catalog import POLICIES, find_policy
from trimtab.search.sampler import design, make_sampler
from trimtab.search.space import Axis, SearchSpace
from trimtab.testing import axes, knobs, raw, raw_values, search_spaces, spaces, units
from trimtab.world import Seeds


def knob(kind: str, default: Value, **rest: object) -> Knob:
    about = {"trades": "", "takes_effect": "", "in_flight": ""}
    return Knob(name="x", kind=kind, default=default, **about, **rest)


def is_legal(declared: Knob, value: object) -> bool:
    """The rule, said again without projection."""
    match declared.kind:
        case "bool":
            return type(value) is bool
        case "choice":
            return value in declared.choices
        case "list":
            ascending = list(value) == sorted(set(value))
            return ascending and all(type(x) is int and declared.low <= x <= declared.high for x in value)
        case "int":
            return type(value) is int and declared.low <= value <= declared.high
        case _:
            whole_ppm = math.isinf(value) or round(value, 6) == value
            return type(value) is float and whole_ppm and declared.low <= value <= declared.high


@given(data=st.data(), declared=knobs())
def test_a_knob_projects_anything_to_a_legal_value_and_keeps_legal_ones(data, declared):
    found = declared.project(data.draw(raw(declared)))
    assert is_legal(declared, found)
    assert declared.project(found) == found


@given(data=st.data(), declared=knobs())
def test_what_is_written_is_read_back(data, declared):
    value = declared.project(data.draw(raw(declared)))
    again = declared.parse(write(value))
    assert again == value
    assert type(again) is type(value)
    assert write(again) == write(value)


@given(data=st.data(), space=spaces())
def test_projection_is_total_idempotent_and_canonical(data, space):
    first = space.project(data.draw(raw_values(space)))
    assert list(first) == list(space.by_name)
    assert all(is_legal(space.by_name[name], value) for name, value in first.items())
    again = space.project(first)
    assert again == first
    assert hash(again) == hash(first)
    assert again.text() == first.text()
    assert pickle.loads(pickle.dumps(first)) == first


@given(data=st.data(), space=spaces())
def test_legal_settings_are_parsed_as_they_are(data, space):
    legal = space.project(data.draw(raw_values(space)))
    assert space.parse({name: write(value) for name, value in legal.items()}) == legal


@given(data=st.data(), space=spaces())
def test_parse_refuses_what_projection_would_change(data, space):
    """A parsed setting contains each value that was written, unless no value of that knob matters."""
    declared = data.draw(st.sampled_from(space.knobs))
    value = data.draw(raw(declared))
    text = write(tuple(value) if isinstance(value, list) else value)
    try:
        found = space.parse({declared.name: text})
    except KnobError:
        return
    if found[declared.name] != declared.parse(text):
        others = [space.project({**found, declared.name: data.draw(raw(declared))}) for _ in range(5)]
        assert all(other == found for other in others)


@given(text=st.text(max_size=8), declared=knobs())
@example(text="maybe", declared=knob("bool", False))
@example(text="nan", declared=knob("fraction", 1.0))
@example(text="9" * 400, declared=knob("int", 1, high=5))
@example(text="1/1", declared=knob("list", ()))
def test_any_text_is_a_legal_value_or_refused(text, declared):
    try:
        value = declared.parse(text)
    except KnobError:
        return
    assert is_legal(declared, value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12.345678, "12.345678"),
        (1234567.25, "1234567.25"),
        (2.0, "2"),
        (math.inf, "inf"),
        (True, "on"),
        ((1, 2), "1/2"),
    ],
)
def test_writing_loses_no_digit(value, text):
    assert write(value) == text


def test_minus_zero_and_whole_numbers_have_one_form():
    share = knob("fraction", 0.5, low=-1, high=1)
    assert [write(share.project(value)) for value in (-0.0, -1e-9, 0, 1)] == ["0", "0", "0", "1"]
    assert [type(share.project(value)) for value in (0, 1, True)] == [float] * 3


def test_equal_settings_have_equal_hashes_in_any_order():
    one, other = Knobs({"a": 1, "b": 2}), Knobs({"b": 2, "a": 1})
    assert one == other
    assert hash(one) == hash(other)


def two_in_order(values: dict[str, Value]) -> dict[str, Value]:
    return values | {"second": max(values["first"], values["second"])}


def test_a_value_that_another_knob_overrides_is_refused_not_ignored():
    """First is 4, so second must be at least 4: 2 and even 4 x low would become 4, but 6 would not."""
    about = {"trades": "", "takes_effect": "", "in_flight": "", "kind": "int", "low": 1, "high": 8}
    space = Space(
        (Knob(name="first", default=4, **about), Knob(name="second", default=4, **about)), two_in_order
    )
    assert space.parse({"second": "6"})["second"] == 6
    with pytest.raises(KnobError, match="does not go with the others"):
        space.parse({"second": "2"})
    with pytest.raises(UnknownName):
        space.parse({"third": "2"})


@given(space=spaces())
def test_silencers_are_values_of_others_beside_which_a_knob_says_nothing(space):
    for name in space.by_name:
        found = space.silencers(name)
        assert name not in found
        for other, values in found.items():
            assert all(is_legal(space.by_name[other], value) for value in values)
            if not space.is_inert(name, space.defaults):
                silent = [space.project({**space.defaults, other: value}) for value in values]
                assert all(space.is_inert(name, one) for one in silent)


def test_a_knob_that_never_matters_has_no_silencers():
    about = {"trades": "", "takes_effect": "", "in_flight": ""}
    single = Knob(name="single", kind="choice", default="a", choices=("a",), **about)
    switch = Knob(name="switch", kind="bool", default=False, **about)
    assert Space((single, switch)).silencers("single") == {}


def test_silencers_are_told_of_a_knob_that_is_silent_by_default():
    space = find_policy("sensascale").space
    assert space.silencers("w_mem") == {"unit_mode": ("node",), "pair_scope": ("off",)}
    assert space.silencers("be_order") == {"order": ("fifo", "srtf")}
    assert space.silencers("theta") == {}
    assert find_policy("lucid").space.silencers("prio_ratio") == {"gsc": (0,)}


@given(data=st.data(), axis=axes())
def test_an_axis_takes_each_value_there_and_back(data, axis):
    values = axis.values()
    if values is not None:
        assert [axis.decode(axis.encode(value)) for value in values] == values
        assert len(set(values)) == len(values)
    value = axis.decode(data.draw(st.floats(0, 1)))
    again = axis.decode(axis.encode(value))
    assert again == (value if values is not None else pytest.approx(value))


@given(axis=axes(), unit=st.floats(-1, 2))
def test_an_axis_stays_within_its_ends(axis, unit):
    value = axis.decode(unit)
    assert 0 <= axis.encode(value) <= 1
    if axis.scale == "choice":
        assert value in axis.choices
    else:
        assert axis.low <= value <= axis.high
        assert (axis.decode(0), axis.decode(1)) == (axis.low, axis.high)
        assert type(value) is (int if axis.scale == "int" else float)


@given(axis=axes(), first=st.floats(0, 1), second=st.floats(0, 1))
def test_decoding_keeps_order(axis, first, second):
    assume(axis.scale != "choice" and first <= second)
    assert axis.decode(first) <= axis.decode(second)


def test_a_start_outside_an_axis_is_its_nearest_end():
    assert Axis("x", "log", 10, 1000).encode(1) == 0
    assert Axis("x", "linear", 0, 2).encode(math.inf) == 1
    assert Axis("x", "choice", choices=("a", "b")).encode("z") == 0.25


@given(data=st.data(), search=search_spaces())
def test_knobs_of_any_point_are_legal_and_stay_when_projected(data, search: SearchSpace):
    unit = data.draw(units(len(search.axes)))
    point = {axis.name: axis.decode(at) for axis, at in zip(search.axes, unit, strict=True)}
    found = search.knobs(point)
    assert all(is_legal(search.space.by_name[name], value) for name, value in found.items())
    assert search.space.project(found) == found


@given(search=search_spaces(), name=st.sampled_from(("random", "sobol", "bluefin", "bluefin_oppertune")))
def test_samplers_work_on_any_search_space(search: SearchSpace, name):
    sampler = make_sampler(name, search, search.base, Seeds(1))
    for _ in range(3):
        batch = sampler.ask()
        for ticket in batch:
            found = search.knobs(ticket.point)
            assert all(is_legal(search.space.by_name[key], value) for key, value in found.items())
        sampler.tell({ticket.id: 1.0 + ticket.id for ticket in batch})
    assert len({search.knobs(point) for point in design(search, 4, Seeds(1))} - {search.base}) <= 4


@given(search=search_spaces())
def test_enumeration_finds_every_setting_of_a_lattice(search: SearchSpace):
    found = search.enumerate(200)
    assume(found is not None)
    assert len(set(found)) == len(found) < 200
    for ticket in make_sampler("random", search, search.base, Seeds(1)).ask():
        assert search.knobs(ticket.point) in found


@pytest.mark.parametrize("name", POLICIES)
def test_a_part_of_a_whole_number_is_refused_for_that(name):
    space = find_policy(name).space
    for one in space.knobs:
        if one.kind == "int":
            with pytest.raises(KnobError, match=r"a whole number, "):
                space.parse({one.name: f"{one.low}.5"})


def test_bounds_are_told_in_full():
    assert knob("int", 24_576, low=1024, high=1_048_576).rule() == "1024 .. 1048576"
    assert knob("fraction", 2.0, low=0.25, high=math.inf).rule() == "0.25 .. inf"
