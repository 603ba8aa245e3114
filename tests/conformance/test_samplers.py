"""Every sampler keeps the shipped promises; what is special about each follows."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

from trimtab.errors import ConfigError, UnknownName
from trimtab.knobs import Knobs
from trimtab.search.sampler import (
    OPTUNA_SAMPLERS,
    SAMPLERS,
    BlueFin,
    Sampler,
    design,
    is_category,
    make_sampler,
)
from trimtab.search.space import Axis, SearchSpace
from trimtab.testing import SamplerConformance, by_name, example_space
from trimtab.world import Seeds

SPACE = example_space()


class TestRandom(SamplerConformance):
    def make(self, space: SearchSpace, start: Knobs, seeds: Seeds) -> Sampler:
        return make_sampler("random", space, start, seeds)


class TestSobol(SamplerConformance):
    def make(self, space: SearchSpace, start: Knobs, seeds: Seeds) -> Sampler:
        return make_sampler("sobol", space, start, seeds)


class TestSurrogate(SamplerConformance):
    def make(self, space: SearchSpace, start: Knobs, seeds: Seeds) -> Sampler:
        return make_sampler("surrogate", space, start, seeds)


class TestBlueFin(SamplerConformance):
    def make(self, space: SearchSpace, start: Knobs, seeds: Seeds) -> Sampler:
        return make_sampler("bluefin", space, start, seeds)


class TestBlueFinOppertune(SamplerConformance):
    def make(self, space: SearchSpace, start: Knobs, seeds: Seeds) -> Sampler:
        return make_sampler("bluefin_oppertune", space, start, seeds)


@pytest.mark.skipif(find_spec("optuna") is None, reason="optuna is not installed")
class TestTpe(SamplerConformance):
    def make(self, space: SearchSpace, start: Knobs, seeds: Seeds) -> Sampler:
        return make_sampler("tpe", space, start, seeds)


@pytest.mark.skipif(find_spec("cmaes") is None, reason="cmaes is not installed")
class TestCma(SamplerConformance):
    def make(self, space: SearchSpace, start: Knobs, seeds: Seeds) -> Sampler:
        return make_sampler("cma", space, start, seeds)


def test_without_its_package_a_sampler_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, package in (("cma", "cmaes"), ("tpe", "optuna")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ConfigError, match=rf"sampler {name} needs .*pip install 'trimtab\[tune\]'"):
            make_sampler(name, SPACE, SPACE.base, Seeds(1))


def test_an_unknown_sampler_is_refused_with_the_nearest_name():
    with pytest.raises(UnknownName, match="did you mean 'bluefin'"):
        make_sampler("blufin", SPACE, SPACE.base, Seeds(1))


def test_all_names_can_be_made():
    assert SAMPLERS == ("random", "sobol", "bluefin", "bluefin_oppertune", "tpe", "cma", "surrogate")
    for name in SAMPLERS:
        if name in OPTUNA_SAMPLERS and find_spec("cmaes" if name == "cma" else "optuna") is None:
            continue
        assert make_sampler(name, SPACE, SPACE.base, Seeds(1)).ask()


@pytest.mark.parametrize("name", ["random", "sobol"])
def test_listed_samplers_never_repeat_a_setting_and_run_out(name):
    small = by_name(
        SPACE.space, (Axis("queues", "int", 1, 5), Axis("share", "choice", choices=(False, True)))
    )
    sampler = make_sampler(name, small, small.base, Seeds(1))
    found = []
    while batch := sampler.ask():
        found += [small.knobs(ticket.point) for ticket in batch]
        sampler.tell({ticket.id: 1.0 for ticket in batch})
    assert len(found) == len(set(found)) == 10


@pytest.mark.parametrize("name", ["random", "sobol"])
def test_each_value_of_a_lattice_has_an_equal_share(name):
    space = by_name(SPACE.space, (Axis("queues", "int", 1, 5), Axis("quantum", "log", 60, 100_000)))
    sampler = make_sampler(name, space, space.base, Seeds(1))
    drawn = [ticket.point["queues"] for _ in range(640) for ticket in sampler.ask()]
    assert all(abs(drawn.count(value) - 128) < 40 for value in range(1, 6))


def test_a_learning_sampler_repeats_what_is_open():
    sampler = make_sampler("bluefin", SPACE, SPACE.base, Seeds(1))
    plus, minus = sampler.ask()
    assert [plus.purpose, minus.purpose] == ["plus", "minus"]
    assert sampler.ask() == [plus, minus]
    sampler.tell({plus.id: 1.1})
    assert sampler.ask() == [minus]
    sampler.tell({minus.id: 0.9})
    assert {ticket.id for ticket in sampler.ask()} == {2, 3}


def test_categories_are_held_over_a_pair():
    sampler = make_sampler("bluefin", SPACE, SPACE.base, Seeds(1))
    seen = set()
    for _ in range(20):
        plus, minus = sampler.ask()
        assert all(plus.point[name] == minus.point[name] for name in ("order", "share"))
        seen.add((plus.point["order"], plus.point["share"]))
        sampler.tell({plus.id: 1.0, minus.id: 1.0})
    assert len(seen) > 3


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        (Axis("a", "int", 0, 1), True),
        (Axis("a", "log", 1, 8, steps=1), True),
        (Axis("a", "linear", 3, 3), True),
        (Axis("a", "choice", choices=("x", "y", "z")), True),
        (Axis("a", "int", 0, 2), False),
        (Axis("a", "linear", 0, 1), False),
    ],
)
def test_unordered_and_binary_axes_are_categories(axis, expected):
    assert is_category(axis) is expected


def test_design_has_corners_first_then_spreads():
    points = design(SPACE, 20, Seeds(3))
    start = SPACE.to_point(SPACE.base)
    changed = [{name for name in start if point[name] != start[name]} for point in points]
    assert changed[:4] == [{"queues"}, {"queues"}, {"quantum"}, {"quantum"}]
    assert [point["queues"] for point in points[:2]] == [1, 5]
    assert [point["quantum"] for point in points[2:4]] == [60, 100_000]
    assert all(len(names) > 1 for names in changed[4:])  # `limit` is inert at the start: no corner of its own
    found = [SPACE.knobs(point) for point in points]
    assert len({*found, SPACE.base}) == 21


def test_design_is_reproducible_and_stops_when_the_space_runs_out():
    small = by_name(SPACE.space, (Axis("queues", "int", 1, 5),))
    assert design(SPACE, 12, Seeds(3)) == design(SPACE, 12, Seeds(3))
    assert design(SPACE, 12, Seeds(3)) != design(SPACE, 12, Seeds(4))
    assert sorted(str(point["queues"]) for point in design(small, 100, Seeds(3))) == list("1345")
    assert design(SPACE, 2, Seeds(3)) == design(SPACE, 12, Seeds(3))[:2]


def test_a_start_outside_the_axes_is_clipped():
    narrow = by_name(
        SPACE.space,
        (
            Axis("quantum", "log", 6000, 100_000),
            Axis("queues", "int", 3, 5),
            Axis("order", "choice", choices=("x",)),
        ),
    )
    sampler = make_sampler("bluefin", narrow, narrow.base, Seeds(1))
    assert isinstance(sampler, BlueFin)
    assert sampler.centre == {"quantum": 0.3, "queues": 0.3}
