"""The performance model: sums are exact, errors are honest, and it says when it knows nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphs import graph_of
from trimtab.search.model import MEMBERS, add_up, fit, trusted
from trimtab.search.samples import FEATURES, MEDIATORS, Summary, Table

AXES = ("a", "b", "c")


def table(rows: int = 400, situations: int = 10, seed: int = 0) -> Table:
    """Return rows in which queueing depends on a and b and on the load, restarts on b; c does nothing."""
    dice = np.random.default_rng(seed)
    knobs = dice.random((rows, len(AXES)))
    situation = np.arange(rows) % situations
    features = dice.standard_normal((situations, len(FEATURES)))[situation]
    noise = np.exp(0.02 * dice.standard_normal((2, rows)))
    queue = 500 * np.exp(knobs[:, 0] - (knobs[:, 1] > 0.5) + 0.3 * features[:, 0]) * noise[0]
    restart = 50 * np.exp(1.5 * knobs[:, 1]) * noise[1]
    mediators = np.column_stack([queue, restart, np.zeros(rows), np.full(rows, 30.0), restart / 62])
    run_s, age_s = np.full(rows, 900.0) + situation, 100.0 * situation
    parts = dict(zip(MEDIATORS, mediators.T, strict=True))
    cost = add_up("jct", parts, run_s, age_s)
    designed = np.ones(rows, dtype=bool)
    axis_of = {name: name for name in AXES}
    return Table(axis_of, knobs, features, mediators, cost, run_s, age_s, situation, designed)


def summary(made: Table, row: int) -> Summary:
    return Summary(made.features[row], made.run_s[row], made.age_s[row])


@pytest.mark.parametrize("objective", ["jct", "wait"])
def test_a_cost_is_exactly_the_sum_of_its_parts(objective: str) -> None:
    made = table()
    predicted = fit(made, objective, None).predict(made.knobs[:50], summary(made, 3))
    waiting = sum(predicted.mediators[name] for name in ("queue_s", "restart_s", "slowdown_s"))
    known = made.age_s[3] + made.run_s[3] - predicted.mediators["unrun_s"] if objective == "jct" else 0.0
    assert np.array_equal(predicted.cost, known + waiting)


def test_unseen_situations_are_predicted() -> None:
    made = table(800, 20)
    model = fit(made.take(made.situation < 15), "jct", None)
    for number in range(15, 20):
        rows = made.take(made.situation == number)
        predicted = model.predict(rows.knobs, summary(rows, 0))
        assert np.mean(np.abs(predicted.cost / rows.cost - 1)) < 0.15
        assert np.corrcoef(predicted.cost, rows.cost)[0, 1] > 0.9
        gains, true = predicted.gains(), (rows.cost[0] + 1) / (rows.cost + 1)
        assert gains[0] == 1
        off = np.log(gains / true)
        assert np.mean(np.abs(off - off.mean()) <= predicted.spread) > 0.7


def test_it_is_ready_once_its_ranks_hold_where_it_has_not_been() -> None:
    made = table()
    assert fit(made, "jct", None).spearman > 0.8
    assert fit(made, "jct", None).ready(3)
    assert not fit(made.take(np.arange(15)), "jct", None).ready(3)
    shuffled = replace(made, mediators=np.random.default_rng(0).permutation(made.mediators))
    shuffled = replace(shuffled, cost=shuffled.mediators[:, :2].sum(axis=1))
    assert not fit(shuffled, "wait", None).ready(3)


def test_rows_of_this_situation_weigh_more() -> None:
    made = table(300, 6)
    other = replace(made, mediators=np.where((made.situation == 5)[:, None], 3, 1) * made.mediators)
    rows = made.situation == 5
    truth = other.mediators[rows][:, :3].sum(axis=1)
    errors = []
    for here in (None, 5):
        predicted = fit(other, "wait", None, here).predict(made.knobs[rows], summary(made, 5))
        errors.append(np.mean(np.abs(predicted.cost / truth - 1)))
    assert errors[1] < errors[0]


def test_a_mediator_is_predicted_from_the_graphs_knobs_alone() -> None:
    made = table()
    parents = {"queue_s": frozenset("ab"), "restart_s": frozenset("b")}
    model = fit(made, "wait", parents)
    assert model.columns == {"queue_s": (0, 1), "restart_s": (1,), "slowdown_s": (0, 1, 2)}
    moved = made.knobs[:20].copy()
    moved[:, 2] = 1 - moved[:, 2]
    one, two = (model.predict(knobs, summary(made, 0)) for knobs in (made.knobs[:20], moved))
    assert np.array_equal(one.cost, two.cost)


def test_an_objective_that_is_no_sum_is_learned() -> None:
    made = table()
    tail = replace(made, cost=7 * made.mediators[:, 0] + made.mediators[:, 1])
    predicted = fit(tail, "jct_p99", None).predict(tail.knobs, summary(tail, 0))
    rows = tail.situation == 0
    assert np.mean(np.abs(predicted.cost[rows] / tail.cost[rows] - 1)) < 0.1


def test_constant_columns_and_single_rows_do_no_harm() -> None:
    made = table().take(np.arange(2))
    model = fit(made, "wait", None)
    assert np.isfinite(model.predict(made.knobs, summary(made, 0)).cost).all()
    assert not model.ready(3)


def test_constant_and_copied_columns_and_more_columns_than_rows_do_no_harm() -> None:
    made = table()
    still, copy = np.full((len(made), 1), 0.5), made.knobs[:, :1]
    axis_of = {**made.axis_of, "still": "still", "copy": "copy"}
    wide = replace(made, axis_of=axis_of, knobs=np.hstack([made.knobs, still, copy]))
    plain = fit(made, "wait", None).predict(made.knobs, summary(made, 0))
    with_copies = fit(wide, "wait", None).predict(wide.knobs, summary(wide, 0))
    assert np.corrcoef(np.log(plain.cost), np.log(with_copies.cost))[0, 1] > 0.99
    few = wide.take(np.arange(len(axis_of) - 1))
    assert np.isfinite(fit(few, "wait", None).predict(wide.knobs, summary(wide, 0)).cost).all()


def test_the_same_rows_give_the_same_numbers() -> None:
    made = table()
    one, two = (fit(made, "jct", None, 4).predict(made.knobs, summary(made, 4)) for _ in range(2))
    assert np.array_equal(one.members, two.members)
    assert one.members.shape == (MEMBERS, len(made))
    assert np.array_equal(one.spread, two.spread)


def test_a_graph_that_misses_a_knob_is_not_followed() -> None:
    made = table()
    good = graph_of(("a", "queue_s"), ("b", "queue_s"), ("b", "restart_s"))
    poor = graph_of(("a", "queue_s"), ("b", "restart_s"))
    assert trusted(made, good)["queue_s"] == {"a", "b"}
    assert "queue_s" not in trusted(made, poor)


@pytest.mark.parametrize("objective", ["jct", "jct_p99"])
def test_without_the_identity_the_cost_is_learned_from_the_knobs(objective: str) -> None:
    made = table(800, 20)
    seen, rows = made.take(made.situation < 15), made.take(made.situation == 17)
    direct = fit(seen, objective, None, identity=False)
    blind = fit(replace(seen, mediators=np.zeros_like(seen.mediators)), objective, None, identity=False)
    predicted = direct.predict(rows.knobs, summary(rows, 0))
    assert predicted.mediators == {}
    assert np.corrcoef(predicted.cost, rows.cost)[0, 1] > 0.8
    assert np.array_equal(predicted.cost, blind.predict(rows.knobs, summary(rows, 0)).cost)
