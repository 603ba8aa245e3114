"""The tuner: what it spends, what it remembers and what it answers, on costs made up here."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from trimtab.errors import ConfigError, TrialsLost, UnknownName
from trimtab.knobs import Knobs
from trimtab.objective import OBJECTIVES, find_objective
from trimtab.policies.catalog import POLICIES, find_policy
from trimtab.search.sampler import SAMPLERS, design
from trimtab.search.space import SearchSpace
from trimtab.search.spaces import search_space
from trimtab.search.tuner import Search, Tuning, search
from trimtab.world import Seeds

WAIT = find_objective("wait")


def space_of(policy: str) -> SearchSpace:
    found = find_policy(policy)
    return search_space(found, found.space.defaults, "consolidated")


TIRESIAS = space_of("tiresias")


class Oracle:
    """Costs by a function; remembers what it was asked, in batches."""

    def __init__(self, cost: Callable[[Knobs], float]) -> None:
        self.cost = cost
        self.asked: list[Knobs] = []

    def __call__(self, candidates: Sequence[Knobs]) -> list[float]:
        self.asked += candidates
        return [self.cost(knobs) for knobs in candidates]


def bowl(knobs: Knobs) -> float:
    """Least at three queues with a first threshold of 5,000 GPU-s."""
    thresholds = knobs.numbers("queue_thresholds") or (10**6,)
    return 100 + 50 * abs(knobs.integer("num_queues") - 3) + 40 * abs(math.log(thresholds[0] / 5000))


def tuned(
    cost: Callable[[Knobs], float] = bowl,
    budget: int = 40,
    sampler: str = "bluefin",
    space: SearchSpace = TIRESIAS,
    first: Sequence[Knobs] = (),
    seed: int = 0,
) -> tuple[Search, Oracle]:
    oracle = Oracle(cost)
    tuning = Tuning(objective=WAIT, sampler=sampler, budget=budget)
    return search(oracle, space, space.base, tuning, Seeds(seed), first), oracle


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("budget", [1, 2, 3, 17, 60])
def test_the_budget_is_spent_and_not_exceeded(sampler: str, budget: int) -> None:
    found, oracle = tuned(budget=budget, sampler=sampler)
    assert len(oracle.asked) == found.simulated == budget
    assert len(set(oracle.asked)) == budget, "a setting was simulated twice"
    assert found.stopped == "budget spent"


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_trial_has_its_fate(sampler: str) -> None:
    found, oracle = tuned(sampler=sampler)
    assert [trial.knobs for trial in found.trials if trial.fate == "simulated"] == oracle.asked
    seen: set[Knobs] = set()
    for trial in found.trials:
        assert trial.fate == ("duplicate" if trial.knobs in seen else "simulated")
        assert trial.cost == bowl(trial.knobs)
        assert trial.gain == (bowl(TIRESIAS.base) + 1) / (trial.cost + 1)
        seen.add(trial.knobs)


def test_the_incumbent_is_always_simulated_and_first() -> None:
    found, oracle = tuned(budget=1)
    assert oracle.asked == [TIRESIAS.base]
    assert found.best == found.incumbent == TIRESIAS.base
    assert found.gain == 1
    assert found.trials[0].purpose == "incumbent"


def test_no_budget_is_refused() -> None:
    for budget in (0, -3):
        with pytest.raises(ConfigError, match="at least 1"):
            tuned(budget=budget)
    with pytest.raises(UnknownName, match="bluefin"):
        tuned(sampler="bluefn")


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_ties_keep_the_incumbent(sampler: str) -> None:
    found, _ = tuned(cost=lambda knobs: 7.0, sampler=sampler)
    assert found.best == found.incumbent
    assert found.gain == 1


def test_ties_among_better_ones_go_to_the_earlier() -> None:
    found, oracle = tuned(cost=lambda knobs: 9.0 if knobs == TIRESIAS.base else 5.0)
    assert found.best == oracle.asked[1]
    assert found.leaders(3) == oracle.asked[1:4]


def test_a_search_that_can_gain_nothing_ends_after_one_simulation() -> None:
    found, oracle = tuned(cost=lambda knobs: 0.0, first=[TIRESIAS.space.project({"num_queues": 3})])
    assert oracle.asked == [TIRESIAS.base]
    assert found.stopped == "nothing to gain"
    assert found.idle
    assert found.best == found.incumbent
    assert not tuned(budget=2)[0].idle


@pytest.mark.parametrize("policy", ["fifo", "sjf"])
def test_a_small_space_is_enumerated(policy: str) -> None:
    space = space_of(policy)
    found, oracle = tuned(cost=lambda knobs: 3.0 + (knobs["backfill"] == "strict"), space=space)
    assert set(oracle.asked) == {space.space.project({"backfill": choice}) for choice in ("strict", "skip")}
    assert found.best["backfill"] == "skip"
    assert found.stopped == "space enumerated"
    cut, _ = tuned(cost=lambda knobs: 3.0, space=space, budget=1)
    assert cut.stopped == "budget spent"


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policys_space_can_be_searched(policy: str) -> None:
    space = space_of(policy)
    found, oracle = tuned(cost=lambda knobs: 1.0 + len(knobs.text()), space=space, budget=25)
    assert found.simulated == len(set(oracle.asked)) <= 25
    for knobs in oracle.asked:
        assert space.space.project(knobs) == knobs, "not canonical"


def test_earlier_leaders_are_tried_before_anything_else() -> None:
    leaders = [TIRESIAS.space.project({"queue_thresholds": (number,)}) for number in (400, 5000)]
    found, oracle = tuned(first=[leaders[0], TIRESIAS.base, *leaders], budget=6)
    assert oracle.asked[:3] == [TIRESIAS.base, *leaders]
    fates = [(trial.purpose, trial.fate) for trial in found.trials[:5]]
    assert fates == [
        ("incumbent", "simulated"),
        ("earlier leader", "simulated"),
        ("earlier leader", "duplicate"),
        ("earlier leader", "duplicate"),
        ("earlier leader", "simulated"),
    ]
    short, _ = tuned(first=leaders, budget=2)
    assert list(short.costs) == [TIRESIAS.base, leaders[0]]


def test_the_design_comes_next() -> None:
    found, oracle = tuned(budget=30)
    points = design(TIRESIAS, 2 * len(TIRESIAS.axes) + 8, Seeds(0), TIRESIAS.base)
    expected = list(dict.fromkeys([TIRESIAS.base, *(TIRESIAS.knobs(point) for point in points)]))
    assert oracle.asked[: len(expected)] == expected
    assert {trial.purpose for trial in found.trials} >= {"incumbent", "design", "plus", "minus"}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_same_seed_searches_the_same_way(sampler: str) -> None:
    first, second, other = (tuned(sampler=sampler, seed=seed)[0] for seed in (3, 3, 4))
    assert first.trials == second.trials
    assert [trial.knobs for trial in first.trials] != [trial.knobs for trial in other.trials]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_searching_pays(sampler: str) -> None:
    found, _ = tuned(sampler=sampler, budget=60)
    assert found.costs[found.best] == min(found.costs.values())
    assert found.gain > 1.2


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_costs_that_are_no_numbers_are_never_best(broken: float) -> None:
    found, _ = tuned(cost=lambda knobs: broken if knobs.integer("num_queues") == 3 else bowl(knobs))
    assert found.best.integer("num_queues") != 3
    assert math.isfinite(found.costs[found.best])
    assert found.leaders(4)[0] == found.best


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_simulation_that_raises_is_a_failed_trial_and_the_others_of_its_batch_count(sampler: str) -> None:
    def cost(knobs: Knobs) -> float:
        if knobs.integer("num_queues") == 3:
            raise ZeroDivisionError("no queue")
        return bowl(knobs)

    found, _ = tuned(cost, sampler=sampler)
    failed = [trial for trial in found.trials if trial.fate == "failed"]
    assert failed
    assert {trial.knobs.integer("num_queues") for trial in failed} == {3}
    assert {trial.reason for trial in failed} == {"ZeroDivisionError: no queue"}
    assert found.simulated == 40
    assert found.best.integer("num_queues") != 3
    assert found.gain > 1


def test_lost_workers_end_a_search() -> None:
    def lost(_: Knobs) -> float:
        raise TrialsLost("gone")

    with pytest.raises(TrialsLost):
        tuned(lost)


def test_gain_is_better_when_larger_and_turns_round_when_costs_are_swapped() -> None:
    for objective in OBJECTIVES.values():
        assert objective.gain(200.0, 100.0) > 1 > objective.gain(100.0, 200.0)
        assert objective.gain(150.0, 150.0) == 1
        assert objective.gain(0.0, 0.0) == 1
        assert objective.gain(200.0, 100.0) * objective.gain(100.0, 200.0) == pytest.approx(1)
