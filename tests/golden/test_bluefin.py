"""BlueFin's updates against hand calculations, and the traps it must not fall into."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.knobs import Knob, Space
from trimtab.search.bluefin import PRESETS, Ascent, BlueFinPreset, ExponentialWeights
from trimtab.search.sampler import BlueFin, make_sampler
from trimtab.search.space import Axis, SearchSpace
from trimtab.testing import by_name
from trimtab.world import Seeds

U = np.array([0.6, 0.8])  # a unit vector
SGD = BlueFinPreset(optimiser="sgd")
ONE_SGD = BlueFinPreset(points=1, eta=0.01, delta=0.1, optimiser="sgd")


def moved(preset: BlueFinPreset, *updates, start=(0.5, 0.5)) -> list[float]:
    ascent = Ascent(preset, start)
    for direction, rewards in updates:
        ascent.update(np.array(direction), preset.delta, rewards)
    return ascent.centre.tolist()


def lattice(high: int, count: int = 1) -> SearchSpace:
    about = {"trades": "", "takes_effect": "", "in_flight": "", "kind": "int", "high": high}
    names = [f"k{place}" for place in range(count)]
    space = Space(tuple(Knob(name=name, default=high // 2, **about) for name in names))
    return by_name(space, tuple(Axis(name, "int", 0, high) for name in names))


def smooth(count: int = 3) -> SearchSpace:
    about = {"trades": "", "takes_effect": "", "in_flight": "", "kind": "fraction", "high": 1}
    names = [f"x{place}" for place in range(count)]
    space = Space(tuple(Knob(name=name, default=0.05, **about) for name in names))
    return by_name(space, tuple(Axis(name, "linear", 0, 1) for name in names))


# One update of each mode and optimiser ---------------------------------------------------------------------


def test_presets_are_as_published_and_as_measured():
    assert PRESETS["bluefin"] == BlueFinPreset(
        points=2, eta=0.05, delta=0.3, optimiser="rmsprop", alpha=0.9, baseline=False
    )
    assert PRESETS["bluefin_oppertune"] == BlueFinPreset(
        points=1, eta=0.01, delta=0.1, optimiser="rmsprop", alpha=0.99, baseline=False
    )


def test_two_point_sgd():
    """D = (1.2 - 0.9) / 1.2 = 0.25; g = d D u / (2 delta) = 2 x 0.25 u / 0.6 = (0.5, 0.6667);
    the step is eta g = 0.05 g = (0.025, 0.0333)."""
    assert moved(SGD, (U, [1.2, 0.9])) == pytest.approx([0.525, 0.5 + 1 / 30])


def test_two_point_rmsprop():
    """First g = (0.5, 0.6667) as above; s = 0.1 g^2 = (0.025, 0.04444); the step is 0.05 g / sqrt(s),
    whatever the size of g: 0.05 / sqrt(0.1) = 0.158114 on both axes. Then u = (0.8, -0.6), rewards 0.8, 1.0:
    D = -0.2; g = 2 x -0.2 u / 0.6 = (-0.53333, 0.4); s = 0.9 s + 0.1 g^2 = (0.0509444, 0.056);
    the step is (-0.05 x 0.53333 / 0.225709, 0.05 x 0.4 / 0.236643) = (-0.118146, 0.084515);
    0.658114 + 0.084515 = 0.742629 is clipped to 1 - delta = 0.7."""
    first = (U, [1.2, 0.9])
    assert moved(PRESETS["bluefin"], first) == pytest.approx([0.658114, 0.658114], abs=1e-6)
    second = ([0.8, -0.6], [0.8, 1.0])
    assert moved(PRESETS["bluefin"], first, second) == pytest.approx([0.539968, 0.7], abs=1e-6)


def test_one_point_sgd():
    """g = d r u / delta = 2 x 1.2 u / 0.1 = (14.4, 19.2); the step is 0.01 g = (0.144, 0.192)."""
    assert moved(ONE_SGD, (U, [1.2])) == pytest.approx([0.644, 0.692])


def test_one_point_sgd_with_a_baseline():
    """The mean starts at the incumbent's 1: g = 2 x (1.2 - 1) u / 0.1 = (2.4, 3.2), step (0.024, 0.032).
    Then the mean is 1.1, and 1.0 is below it: g = 2 x -0.1 u / 0.1 = (-1.2, -1.6), step (-0.012, -0.016)."""
    preset = dataclasses.replace(ONE_SGD, baseline=True)
    assert moved(preset, (U, [1.2])) == pytest.approx([0.524, 0.532])
    assert moved(preset, (U, [1.2]), (U, [1.0])) == pytest.approx([0.512, 0.516])


def test_one_point_rmsprop_goes_towards_whatever_it_tried():
    """s = 0.01 g^2, so the first step is 10 eta = 0.1 along the sign of u, for a good and a bad reward alike;
    with a baseline a bad reward points the other way."""
    preset = PRESETS["bluefin_oppertune"]
    assert moved(preset, (U, [1.2])) == pytest.approx([0.6, 0.6])
    assert moved(preset, (U, [0.2])) == pytest.approx([0.6, 0.6])
    assert moved(dataclasses.replace(preset, baseline=True), (U, [0.2])) == pytest.approx([0.4, 0.4])


def test_nothing_to_choose_between_moves_nothing():
    """D = 0 for equal rewards, also if both are 0; RMSprop divides 0 by a tiny number, not by 0."""
    for rewards in ([1.0, 1.0], [0.0, 0.0]):
        assert moved(PRESETS["bluefin"], (U, rewards)) == [0.5, 0.5]


@given(
    rewards=st.lists(st.floats(0.01, 100), min_size=2, max_size=2),
    scale=st.floats(0.001, 1000),
    preset=st.sampled_from((SGD, PRESETS["bluefin"])),
)
def test_the_unit_of_rewards_does_not_matter_to_two_points(rewards, scale, preset):
    scaled = [scale * reward for reward in rewards]
    assert moved(preset, (U, scaled)) == pytest.approx(moved(preset, (U, rewards)), abs=1e-5)


# Categories ------------------------------------------------------------------------------------------------


def test_exponential_weights_by_hand():
    """K = 2. Round 1: mix = min(1, sqrt 2) = 1, odds 0.5; rate = sqrt(ln 2 / 2) = 0.588705. The first
    category is tried for 1.2: its weight grows by exp(0.588705 x 1.2 / 0.5) = exp(1.412892) = 4.107820, so it
    holds 4.107820 / 5.107820 = 0.804222. Round 2: mix = 1, odds 0.5; the lowest reward so far is 1.2, so
    rate = sqrt(ln 2 / 4) / 1.2 = 0.346898. The second is tried for 0.5: it grows by exp(0.346898), and the
    first holds 1 / (1 + exp(0.346898 - 1.412892)) = 0.743834. Round 3: mix = sqrt(2 / 3) = 0.816497, so its
    odds are 0.183503 x 0.743834 + 0.816497 / 2 = 0.544744."""
    table = ExponentialWeights(2)
    assert table.odds().tolist() == [0.5, 0.5]
    table.update(0, 1.2)
    assert table.weights()[0] == pytest.approx(0.804222, abs=1e-6)
    assert table.odds().tolist() == [0.5, 0.5]
    table.update(1, 0.5)
    assert table.weights()[0] == pytest.approx(0.743834, abs=1e-6)
    assert table.odds()[0] == pytest.approx(0.544744, abs=1e-6)


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 1e300)), max_size=30))
def test_odds_stay_odds_whatever_the_rewards(history):
    table = ExponentialWeights(3)
    for picked, reward in history:
        table.update(picked, reward)
    odds = table.odds()
    assert odds.sum() == pytest.approx(1)
    assert (odds > 0).all()


def test_the_better_category_is_found():
    """One of three kinds is worth 1.5, the others 1: after 60 pairs it is tried more often than by chance."""
    about = {"trades": "", "takes_effect": "", "in_flight": ""}
    knob = Knob(name="kind", kind="choice", default="a", choices=("a", "b", "c"), **about)
    space = by_name(Space((knob,)), (Axis("kind", "choice", choices=("a", "b", "c")),))
    tried = []
    for root in range(10):
        sampler = make_sampler("bluefin", space, space.base, Seeds(root))
        for _ in range(60):
            (ticket,) = sampler.ask()  # no ordered axis: nothing to pair
            tried.append(ticket.point["kind"])
            sampler.tell({ticket.id: 1.5 if ticket.point["kind"] == "b" else 1.0})
    assert tried.count("b") > 0.4 * len(tried)


def test_a_pair_teaches_its_categories_its_mean_once():
    """Gains 1.4 and 1.0 are one reward of 1.2 in round 1: the weight becomes 0.804222, see above. The pair of
    round 2 is abandoned: the weight stays, and it is still round 2, whose odds are even."""
    about = {"trades": "", "takes_effect": "", "in_flight": ""}
    flag, size = (
        Knob(name="flag", kind="bool", default=False, **about),
        Knob(name="size", kind="fraction", default=0.5, high=1, **about),
    )
    axes = (Axis("flag", "choice", choices=(False, True)), Axis("size", "linear", 0, 1))
    sampler = BlueFin(by_name(Space((flag, size)), axes), Space((flag, size)).defaults, Seeds(1), SGD)
    plus, minus = sampler.ask()
    picked = int(plus.point["flag"])
    sampler.tell({plus.id: 1.4, minus.id: 1.0})
    table = sampler.weights["flag"]
    assert table.weights()[picked] == pytest.approx(0.804222, abs=1e-6)
    plus, minus = sampler.ask()
    sampler.tell({plus.id: 1.4, minus.id: None})
    assert table.weights()[picked] == pytest.approx(0.804222, abs=1e-6)
    assert table.odds().tolist() == [0.5, 0.5]


# Pairs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("root", range(5))
def test_a_pair_is_symmetric_around_the_centre_and_delta_apart(root):
    sampler = BlueFin(smooth(), smooth().base, Seeds(root), PRESETS["bluefin"])
    for step in range(20):
        centre = np.array(list(sampler.centre.values()))
        plus, minus = (np.array(list(ticket.point.values())) for ticket in sampler.ask())
        assert (plus + minus).tolist() == pytest.approx((2 * centre).tolist())
        assert np.linalg.norm(plus - centre) == pytest.approx(0.3)
        sampler.tell(dict(zip(range(2 * step, 2 * step + 2), (1.0 + plus[0], 1.0 + minus[0]), strict=True)))
        assert all(0.3 <= unit <= 0.7 for unit in sampler.centre.values())


def test_the_first_centre_is_the_start_clipped():
    for name, preset in PRESETS.items():
        sampler = make_sampler(name, smooth(), smooth().base, Seeds(1))  # starts at 0.05
        assert isinstance(sampler, BlueFin)
        assert list(sampler.centre.values()) == [preset.delta] * 3


@pytest.mark.parametrize("missing", [None, math.nan, math.inf])
def test_an_abandoned_pair_moves_nothing_and_the_next_direction_is_new(missing):
    sampler = BlueFin(smooth(), smooth().base, Seeds(1), PRESETS["bluefin"])
    before = sampler.centre
    plus, minus = sampler.ask()
    sampler.tell({plus.id: 1.3})
    sampler.tell({minus.id: missing})
    assert sampler.centre == before
    assert sampler.ask()[0].point != plus.point


def test_a_pair_on_a_coarse_lattice_is_widened_for_itself_only():
    """Five values, delta 0.1, centre 0.5: 0.6 x 4 = 2.4 and 0.4 x 4 = 1.6 both round to 2, for either sign.
    Delta 0.2 gives 0.7 x 4 = 2.8 -> 3 and 0.3 x 4 = 1.2 -> 1. With gains 1.2 (plus) and 0.9, D = 0.25 and
    g = 0.25 u / (2 x 0.2) = 0.625 u: the centre moves by 0.05 x 0.625 = 0.03125 to where plus was. From
    there, 0.53125, delta is 0.1 again: 2.525 -> 3 and 1.725 -> 2 (or mirrored), no wider."""
    preset = dataclasses.replace(SGD, delta=0.1)
    sampler = BlueFin(lattice(4), lattice(4).base, Seeds(1), preset)
    plus, minus = sampler.ask()
    assert {plus.point["k0"], minus.point["k0"]} == {1, 3}
    sampler.tell({plus.id: 1.2, minus.id: 0.9})
    up = plus.point["k0"] == 3
    assert sampler.centre["k0"] == pytest.approx(0.53125 if up else 0.46875)
    assert {ticket.point["k0"] for ticket in sampler.ask()} == ({2, 3} if up else {1, 2})


def test_a_direction_that_changes_nothing_is_drawn_again_before_it_is_widened():
    """Two knobs of three values, delta 0.26, centre 0.5: an end differs from the centre by 0.52 |u_i| steps,
    so the ends differ once some |u_i| > 0.5 / 0.52. The first such direction of the stream is taken; if there
    is none among six, the sixth at twice the radius, where 1.04 |u_i| is enough for the larger part."""
    preset = dataclasses.replace(SGD, delta=0.26)
    redrawn = widened = 0
    for root in range(60):
        dice = Seeds(root).stream("sampler", "bluefin")
        drawn = [direction / np.linalg.norm(direction) for direction in dice.standard_normal((6, 2))]
        good = [direction for direction in drawn if abs(direction).max() > 0.5 / 0.52]
        direction, delta = (good[0], 0.26) if good else (drawn[5], 0.52)
        plus, _ = BlueFin(lattice(2, 2), lattice(2, 2).base, Seeds(root), preset).ask()
        assert list(plus.point.values()) == [
            round(2 * min(max(0.5 + delta * part, 0), 1)) for part in direction
        ]
        redrawn += direction is not drawn[0]
        widened += not good
    assert redrawn > 20
    assert widened > 1


def test_a_pair_that_no_radius_tells_apart_is_one_ticket():
    about = {"trades": "", "takes_effect": "", "in_flight": ""}
    knob = Knob(name="size", kind="int", default=1, high=9, **about)
    space = by_name(Space((knob,), lambda values: values | {"size": 1}), (Axis("size", "int", 0, 9),))
    sampler = BlueFin(space, space.base, Seeds(1), PRESETS["bluefin"])
    (ticket,) = sampler.ask()
    before = sampler.centre
    sampler.tell({ticket.id: 1.2})
    assert sampler.centre == before
    assert len(sampler.ask()) == 1


# Does it climb? --------------------------------------------------------------------------------------------


def best_gain(name: str, root: int, evaluations: int) -> tuple[float, float]:
    """Return the best gain found and the gain where the centre ends, on a bowl around (0.6, 0.45, 0.65)."""
    space, target = smooth(), np.array([0.6, 0.45, 0.65])

    def cost(place: list[float]) -> float:
        return 1 + 4 * float(((np.array(place) - target) ** 2).sum())

    def gain(place: list[float]) -> float:
        return cost(list(space.to_point(space.base).values())) / cost(place)

    sampler = make_sampler(name, space, space.base, Seeds(root))
    assert isinstance(sampler, BlueFin)
    best, used = 0.0, 0
    while used < evaluations:
        batch = sampler.ask()
        gains = {ticket.id: gain(list(ticket.point.values())) for ticket in batch}
        best, used = max(best, *gains.values()), used + len(batch)
        sampler.tell(gains)
    return best, gain(list(sampler.centre.values()))


def test_forty_pairs_climb_further_than_the_published_settings():
    """Both have 80 evaluations from the same bad start, where the gain is 1."""
    ours = np.array([best_gain("bluefin", root, 80) for root in range(10)])
    published = np.array([best_gain("bluefin_oppertune", root, 80) for root in range(10)])
    assert (ours > 1.5).all()
    assert (ours.mean(axis=0) > published.mean(axis=0) + 0.05).all()
