"""The surrogate sampler: fields go through what was measured, and proposals go where it pays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice

import numpy as np
import pytest

from trimtab.knobs import Knobs
from trimtab.policies.catalog import find_policy
from trimtab.search.sampler import random_points, sobol_points
from trimtab.search.samples import Vector
from trimtab.search.space import SearchSpace
from trimtab.search.spaces import search_space
from trimtab.search.surrogate import BATCH, Field, SurrogateSampler
from trimtab.world import Seeds


def space_of(policy: str) -> SearchSpace:
    found = find_policy(policy)
    return search_space(found, found.space.defaults, "consolidated")


SPACE = space_of("tiresias")


def log_gain(knobs: Knobs) -> float:
    """Greatest at three queues with a first threshold of 5,000 GPU-s."""
    thresholds = knobs.numbers("queue_thresholds") or (10**6,)
    return -0.3 * abs(knobs.integer("num_queues") - 3) - 0.2 * abs(math.log(thresholds[0] / 5000))


def true_guess(settings: Sequence[Knobs]) -> Vector:
    return np.array([log_gain(knobs) for knobs in settings])


def climbed(sampler: SurrogateSampler, rounds: int) -> list[float]:
    """Tell true gains for some rounds; return all log gains in order."""
    logs = []
    for _ in range(rounds):
        tickets = sampler.ask()
        here = [log_gain(SPACE.knobs(ticket.point)) for ticket in tickets]
        sampler.tell({ticket.id: math.exp(log) for ticket, log in zip(tickets, here, strict=True)})
        logs += here
    return logs


def few_gains() -> dict[Knobs, float]:
    """Return the true gains of as many settings as a guess needs."""
    settings = map(SPACE.knobs, islice(sobol_points(SPACE, Seeds(5), "test"), 6))
    return {knobs: math.exp(log_gain(knobs)) for knobs in settings}


def test_a_field_goes_through_its_values_and_knows_where_it_knows_nothing() -> None:
    places = np.linspace(0, 0.5, 12)[:, None]
    values = np.sin(6 * places[:, 0])
    field = Field.fit(places, values)
    mean, deviation = field.at(places)
    assert np.abs(mean - values).max() < 0.05
    between, _ = field.at(places[:-1] + 0.02)
    assert np.abs(between - np.sin(6 * (places[:-1, 0] + 0.02))).max() < 0.1
    assert field.at(np.array([[1.0]]))[1][0] > 5 * deviation.max()


def test_a_column_that_says_nothing_reaches_further() -> None:
    dice = np.random.default_rng(0)
    places = dice.random((40, 2))
    field = Field.fit(places, np.sin(8 * places[:, 0]))
    assert field.lengths[1] > 2 * field.lengths[0]


def test_believing_a_value_makes_it_certain_there_and_changes_little_elsewhere() -> None:
    places = np.random.default_rng(1).random((15, 3))
    field = Field.fit(places, places[:, 0])
    there = np.array([[2.0, 2.0, 2.0]])
    mean, before = field.at(there)
    believing = field.believing(there[0], float(mean[0]))
    assert believing.at(there)[1][0] < before[0] / 2
    assert np.allclose(believing.at(places)[0], field.at(places)[0], atol=0.05)


@pytest.mark.parametrize("values", [np.zeros(6), np.arange(6.0), np.array([0, 0, 0, 0, 0, 1e6])])
def test_constant_columns_copies_and_repeated_places_give_numbers(values: Vector) -> None:
    column = np.array([0.1, 0.1, 0.3, 0.3, 0.9, 0.9])
    places = np.column_stack([column, column, np.full(6, 0.5), *[column] * 9])  # more columns than rows
    for part in Field.fit(places, values).at(places):
        assert np.isfinite(part).all()


def test_it_finds_more_than_chance() -> None:
    ahead = []
    for seed in range(3):
        found = max(climbed(SurrogateSampler(SPACE, Seeds(seed), {SPACE.base: 1.0}), 7))
        drawn = islice(random_points(SPACE, np.random.default_rng(seed)), 7 * BATCH)
        ahead.append(found - max(log_gain(SPACE.knobs(point)) for point in drawn))
    assert np.mean(ahead) > 0
    assert min(ahead) > -0.05


def test_a_good_guess_is_followed_at_once_and_a_bad_one_is_corrected() -> None:
    known = few_gains()
    good = SurrogateSampler(SPACE, Seeds(0), known, true_guess)
    assert max(climbed(good, 1)) > -0.1
    bad = SurrogateSampler(SPACE, Seeds(0), known, lambda settings: -true_guess(settings))
    logs = climbed(bad, 8)
    assert max(logs[-2 * BATCH :]) > -0.3


def test_a_batch_is_shown_until_it_is_told_and_nothing_is_proposed_twice() -> None:
    sampler = SurrogateSampler(SPACE, Seeds(0), {SPACE.base: 1.0})
    seen: set[Knobs] = {SPACE.base}
    for _ in range(6):
        tickets = sampler.ask()
        assert sampler.ask() == tickets
        settings = {SPACE.knobs(ticket.point) for ticket in tickets}
        assert len(settings) == len(tickets) == BATCH
        assert not settings & seen
        seen |= settings
        gains = [None, math.nan, math.inf, *[1.0] * (BATCH - 3)]
        sampler.tell({ticket.id: gain for ticket, gain in zip(tickets, gains, strict=True)})


def test_one_in_five_is_left_to_chance() -> None:
    sampler = SurrogateSampler(SPACE, Seeds(0), few_gains(), true_guess)
    assert [ticket.purpose for ticket in sampler.ask()] == ["proposed"] * 4 + ["random"]


def test_the_same_seed_proposes_the_same() -> None:
    one, same, other = (climbed(SurrogateSampler(SPACE, Seeds(seed), {}), 4) for seed in (1, 1, 2))
    assert one == same != other


def test_a_space_that_is_used_up_has_nothing_to_propose() -> None:
    space = space_of("fifo")
    sampler = SurrogateSampler(space, Seeds(0), {})
    tickets = sampler.ask()
    assert len({space.knobs(ticket.point) for ticket in tickets}) == len(tickets) == 2
    sampler.tell({ticket.id: 1.0 for ticket in tickets})
    assert sampler.ask() == []
