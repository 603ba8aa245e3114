"""The causal search: rejections and scope change what is simulated, and nothing stops it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import pytest

from trimtab.errors import TrialsLost
from trimtab.knobs import Knobs
from trimtab.objective import Measured, find_objective
from trimtab.policies.catalog import find_policy
from trimtab.search import causal_search as module
from trimtab.search.causal_search import PAPER, CausalSearch, Experience, Rules, causal_search
from trimtab.search.model import Model, Prediction
from trimtab.search.samples import FEATURES, Matrix, Summary
from trimtab.search.space import SearchSpace
from trimtab.search.spaces import search_space
from trimtab.search.tuner import Tuning
from trimtab.world import Seeds

WAIT = find_objective("wait")
POLICY = find_policy("tiresias")
SPACE = search_space(POLICY, POLICY.space.defaults, "consolidated")

Behaviour = Callable[[Knobs], Measured]


def bowl(level: float = 1.0) -> Behaviour:
    """Queueing is least at three queues and a threshold of 5,000; restarts grow with the queues."""

    def measure(knobs: Knobs) -> Measured:
        queues = knobs.integer("num_queues")
        first = (knobs.numbers("queue_thresholds") or (10**6,))[0]
        queue = level * 100 * math.exp(0.5 * abs(queues - 3) + 0.4 * abs(math.log(first / 5000)))
        restart = level * 20.0 * queues
        return Measured(queue + restart, 900.0, queue, restart, 0.0, restart / 62)

    return measure


def summary(hour: int) -> Summary:
    dice = np.random.default_rng(hour)
    return Summary(dice.standard_normal(len(FEATURES)), 900.0, 0.0)


class Scheduler:
    """Measures by a function and remembers what it was asked."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.asked: list[Knobs] = []

    def __call__(self, candidates: Sequence[Knobs]) -> list[Measured]:
        self.asked += candidates
        return [self.behaviour(knobs) for knobs in candidates]


@lru_cache
def hours(
    count: int = 3,
    rules: Rules | None = None,
    budget: int = 45,
    behaviour: Callable[[float], Behaviour] = bowl,
    seed: int = 0,
    space: SearchSpace = SPACE,
) -> tuple[list[CausalSearch], list[Scheduler]]:
    """Search hour after hour with one experience."""
    experience, found, asked = Experience(), [], []
    for hour in range(count):
        scheduler = Scheduler(behaviour(1.0 + hour / 4))
        lessons = experience.of("tiresias", "wait", space)
        tuning = Tuning(objective=WAIT, budget=budget)
        seeds = Seeds(seed + 100 * hour)
        found.append(
            causal_search(
                scheduler, summary(hour), space, space.base, tuning, seeds, lessons, hour // 24, rules
            )
        )
        asked.append(scheduler)
    return found, asked


def test_the_budget_is_spent_on_different_settings_and_every_proposal_has_a_fate() -> None:
    for found, scheduler in zip(*hours(), strict=True):
        assert len(scheduler.asked) == len(set(scheduler.asked)) == found.simulated == 45
        assert found.stopped == "budget spent"
        assert found.count("simulated") + found.count("explored") == 45
        assert {trial.fate for trial in found.trials} <= {"simulated", "explored", "rejected", "duplicate"}
        assert found.gain > 1


def test_rejections_follow_the_rule_and_say_so() -> None:
    found = hours(rules=PAPER)[0][-1]
    assert found.count("rejected") > 5
    assert found.count("explored") > 0
    best = 1.0
    for trial in found.trials:
        if trial.fate in ("rejected", "explored"):
            assert trial.predicted < 0.95 * found.gain
            assert "predicted gain" in trial.reason
        if trial.fate == "rejected":
            assert math.isnan(trial.cost)
            assert {"reason", "predicted"} <= set(trial.jsonable())
        best = max(best, trial.gain if math.isfinite(trial.gain) else 0.0)
    assert best == found.gain


class Timid:
    """A model that ranks settings well and draws all of them towards one cost."""

    rows, spearman = 100, 0.9

    def ready(self, _: int) -> bool:
        return True

    def predict(self, knobs: Matrix, _: Summary) -> Prediction:
        cost = 300 * np.exp(0.04 * np.abs(knobs[:, 0] - 0.5))
        return Prediction(cost, cost[None], {}, {}, np.zeros(len(cost)))


def test_the_fair_rule_compares_predictions_with_a_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_graph(*_: object) -> None:
        raise module.ConfigError("no graph")

    monkeypatch.setattr(module, "learn", no_graph)
    monkeypatch.setattr(module, "fit", lambda *_: Timid())
    paper, fair = (hours.__wrapped__(1, rules)[0][0] for rules in (PAPER, Rules()))
    assert fair.gain > 1.1, "the model's gains of 1.02 at most are far below"
    assert fair.count("rejected") == 0
    assert paper.count("rejected") > 20


def surrogate_hours(behaviour: Callable[[float], Behaviour] = bowl, budget: int = 30) -> list[CausalSearch]:
    """Search three hours with the model proposing."""
    experience, found = Experience(), []
    for hour in range(3):
        lessons = experience.of("tiresias", "wait", SPACE)
        tuning = Tuning(objective=WAIT, budget=budget, sampler="surrogate")
        scheduler = Scheduler(behaviour(1.0 + hour / 4))
        given = scheduler, summary(hour), SPACE, SPACE.base, tuning, Seeds(hour), lessons, hour // 24
        found.append(causal_search(*given))
    return found


def test_the_surrogate_proposes_what_earlier_hours_taught() -> None:
    found = surrogate_hours()
    assert not any(one.count("rejected") for one in found)
    assert all(one.simulated == 30 and one.stopped == "budget spent" for one in found)
    assert not any(event.kind == "model" for event in found[0].events), "there were no earlier hours"
    assert [event.detail["ready"] for one in found[1:] for event in one.events if event.kind == "model"]
    plain = hours(3, budget=30)[0]
    assert found[-1].gain > 0.98 * plain[-1].gain
    proposed = [[trial.purpose for trial in one.trials].index("proposed") for one in found]
    assert proposed[-1] < proposed[0], "less scattering where something is known"
    assert repr([a.trials for a in found]) == repr([a.trials for a in surrogate_hours()])


def test_a_guess_that_is_no_number_and_a_broken_candidate_do_not_stop_the_surrogate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    true = Model.predict

    def nothing(self: Model, *given: object) -> Prediction:
        predicted = true(self, *given)  # type: ignore[arg-type]
        predicted.cost[:] = math.nan
        return predicted

    def broken(level: float) -> Behaviour:
        def measure(knobs: Knobs) -> Measured:
            if knobs.integer("num_queues") == 4:
                raise ZeroDivisionError("no queue")
            return bowl(level)(knobs)

        return measure

    monkeypatch.setattr(Model, "predict", nothing)
    found = surrogate_hours(broken)[-1]
    assert found.stopped == "budget spent"
    assert found.simulated == 30
    assert {trial.reason for trial in found.trials if trial.fate == "failed"} == {
        "ZeroDivisionError: no queue"
    }
    assert found.best.integer("num_queues") != 4
    assert found.gain > 1


@pytest.mark.parametrize("sampler", ["bluefin", "surrogate"])
def test_a_budget_of_one_keeps_the_running_setting(sampler: str) -> None:
    tuning = Tuning(objective=WAIT, budget=1, sampler=sampler)
    lessons = Experience().of("tiresias", "wait", SPACE)
    found = causal_search(Scheduler(bowl()), summary(0), SPACE, SPACE.base, tuning, Seeds(0), lessons, 0)
    assert found.best == SPACE.base
    assert found.stopped == "budget spent"


def test_columns_that_fci_cannot_tell_apart_leave_the_search_without_a_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def singular(*_: object) -> None:
        raise ValueError("Data correlation matrix is singular")

    monkeypatch.setattr(module, "learn", singular)
    found = hours.__wrapped__(1)[0]
    notes = [event.detail["text"] for event in found[0].events if event.kind == "note"]
    assert notes == ["no causal graph: Data correlation matrix is singular; the search goes without one."]
    assert found[-1].stopped == "budget spent"


def test_a_search_ends_after_its_rounds() -> None:
    few, more = (hours.__wrapped__(1, Rules(learning=False, rounds_max=most))[0][0] for most in (2, 4))
    assert (few.stopped, more.stopped) == ("2 rounds", "4 rounds")
    assert few.simulated < more.simulated
    assert [trial.knobs for trial in few.trials] == [trial.knobs for trial in more.trials[: len(few.trials)]]


def test_without_the_model_as_many_but_other_settings_are_simulated() -> None:
    with_it, asked = hours()
    without, plainly = hours(rules=Rules(learning=False))
    assert [one.simulated for one in with_it] == [one.simulated for one in without]
    assert not any(one.count("rejected") or one.events for one in without)
    assert any(set(one.asked) != set(two.asked) for one, two in zip(asked, plainly, strict=True))


def test_a_model_of_the_cost_itself_rejects_other_settings() -> None:
    asked, directly = (hours(rules=rules)[1] for rules in (None, Rules(identity=False)))
    assert any(one.asked != two.asked for one, two in zip(asked, directly, strict=True))
    assert hours(rules=Rules(identity=False))[0][-1].count("rejected") > 0


def test_the_model_does_no_harm_to_what_is_found() -> None:
    pairs = zip(hours(5)[0], hours(5, Rules(learning=False))[0], strict=True)
    gains = [math.log(one.gain / two.gain) for one, two in pairs]
    assert np.mean(gains) > -0.02


def test_what_happened_is_recorded() -> None:
    pytest.importorskip("causallearn", reason="causal-learn is not installed")
    first, *later = hours()[0]
    kinds = [event.kind for event in first.events]
    assert kinds.count("graph") == 1, "one graph a day"
    assert not any(event.kind == "graph" for one in later for event in one.events)
    for one in (first, *later):
        assert 1 <= sum(event.kind == "model" for event in one.events) <= 8
    scopes = [event for one in later for event in one.events if event.kind == "scope"]
    assert scopes
    assert set(scopes[0].jsonable()) == {"kind", "simulated", "held", "ranges", "reasons", "regret"}


def test_a_new_day_brings_a_new_graph() -> None:
    pytest.importorskip("causallearn", reason="causal-learn is not installed")
    lessons = Experience().of("tiresias", "wait", SPACE)
    graphs = []
    for day in (0, 0, 1):
        tuning = Tuning(objective=WAIT, budget=45)
        causal_search(Scheduler(bowl()), summary(day), SPACE, SPACE.base, tuning, Seeds(day), lessons, day)
        graphs.append(lessons.graph)
    assert graphs[0] is graphs[1] is not None
    assert graphs[2] is not graphs[1]


def test_the_same_seed_searches_the_same_way() -> None:
    one, other = (hours(seed=seed)[0] for seed in (0, 2))
    two = hours.__wrapped__()[0]
    assert repr([a.trials for a in one]) == repr([b.trials for b in two])  # NaN differs from itself
    assert repr([a.events for a in one]) == repr([b.events for b in two])
    assert repr([a.trials for a in one]) != repr([b.trials for b in other])


def test_later_hours_do_not_reach_back() -> None:
    short, long = hours(2)[0], hours(3)[0]
    assert repr([(a.trials, a.events) for a in short]) == repr([(a.trials, a.events) for a in long[:2]])


def test_without_causal_learn_it_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise module.ConfigError("a causal graph needs causal-learn (...); the search goes without one.")

    monkeypatch.setattr(module, "learn", refuse)
    found = hours.__wrapped__()[0]
    notes = [event.detail["text"] for event in found[0].events if event.kind == "note"]
    assert notes == ["a causal graph needs causal-learn (...); the search goes without one."]
    assert found[-1].count("rejected") > 0, "the model works without a graph"
    assert not found[-1].scope.held


def test_a_simulation_that_raises_is_a_failed_trial() -> None:
    def broken(level: float) -> Behaviour:
        fine = bowl(level)

        def measure(knobs: Knobs) -> Measured:
            if knobs.integer("num_queues") == 4:
                raise ZeroDivisionError("no queue")
            return fine(knobs)

        return measure

    found = hours(2, behaviour=broken)[0][-1]
    failed = [trial for trial in found.trials if trial.fate == "failed"]
    assert failed
    assert {trial.reason for trial in failed} == {"ZeroDivisionError: no queue"}
    assert all(math.isnan(trial.cost) for trial in failed)
    assert found.best.integer("num_queues") != 4
    assert found.gain > 1


def test_lost_workers_end_the_search() -> None:
    def lost(_: Sequence[Knobs]) -> list[Measured]:
        raise TrialsLost("gone")

    tuning = Tuning(objective=WAIT, budget=5)
    lessons = Experience().of("tiresias", "wait", SPACE)
    with pytest.raises(TrialsLost):
        causal_search(lost, summary(0), SPACE, SPACE.base, tuning, Seeds(0), lessons, 0)


def test_where_nothing_can_be_compared_the_running_setting_stays() -> None:
    def fails(_: float) -> Behaviour:
        def measure(knobs: Knobs) -> Measured:
            raise ValueError("broken")

        return measure

    for found in (hours(1, behaviour=fails)[0][0], hours(1, budget=0)[0][0]):
        assert found.best == SPACE.base
        assert found.gain == 1
        assert found.stopped in (
            "the running setting could not be simulated: ValueError: broken",
            "no budget: nothing was simulated",
        )


def test_thrashing_trials_teach_nothing_and_are_never_best() -> None:
    def thrashing(level: float) -> Behaviour:
        fine = bowl(level)

        def measure(knobs: Knobs) -> Measured:
            return Measured(*[math.inf] * 6) if knobs.integer("num_queues") == 3 else fine(knobs)

        return measure

    found = hours(2, behaviour=thrashing)[0][-1]
    assert found.count("thrashes") > 0
    assert found.best.integer("num_queues") != 3
    assert math.isfinite(found.gain)


def test_a_model_that_gives_no_number_rejects_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    true = Model.predict

    def nothing(self: Model, *given: object) -> object:
        predicted = true(self, *given)  # type: ignore[arg-type]
        predicted.cost[:] = math.nan
        return predicted

    monkeypatch.setattr(Model, "predict", nothing)
    assert not any(one.count("rejected") for one in hours.__wrapped__(2)[0])


def test_when_all_is_rejected_it_stops_and_says_so() -> None:
    found = hours(3, Rules(reject_below=1e9, explore=0.0))[0][-1]
    assert found.stopped == "nothing left that may pay"
    assert found.count("rejected") > 0
    assert found.simulated < 45
    assert found.gain >= 1


def test_no_round_begins_once_the_time_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = hours(1, Rules(learning=False))[0][0]
    clock = itertools.count()
    monkeypatch.setattr(module, "wall_s", lambda: float(next(clock)))
    found = hours.__wrapped__(1, Rules(learning=False, budget_s=2.5))[0][0]
    assert found.stopped == "time spent after 2 rounds"
    assert found.simulated < whole.simulated
    assert repr(found.trials) == repr(whole.trials[: len(found.trials)])


def test_rows_of_other_axes_are_kept_apart() -> None:
    experience = Experience()
    other = search_space(POLICY, POLICY.space.defaults, "relaxed")
    assert experience.of("tiresias", "wait", SPACE) is experience.of("tiresias", "wait", SPACE)
    assert experience.of("tiresias", "wait", SPACE) is not experience.of("tiresias", "wait", other)
    assert experience.of("tiresias", "wait", SPACE) is not experience.of("tiresias", "jct", SPACE)


def test_a_small_space_is_enumerated_and_nothing_rejected() -> None:
    fifo = find_policy("fifo")
    space = search_space(fifo, fifo.space.defaults, "consolidated")
    tuning = Tuning(objective=WAIT, budget=60)
    lessons = Experience().of("fifo", "wait", space)
    scheduler = Scheduler(lambda knobs: Measured(1.0, 0.0, 1.0, 0.0, 0.0, 0.0))
    found = causal_search(scheduler, summary(0), space, space.base, tuning, Seeds(0), lessons, 0)
    assert found.stopped == "space enumerated"
    assert not found.events
