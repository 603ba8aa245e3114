"""The what-if scope: each of its conditions alone keeps a knob free."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pytest

from graphs import graph_of
from trimtab.knobs import Knobs, Value
from trimtab.search.causal import Graph
from trimtab.search.model import Model, Prediction
from trimtab.search.sampler import design
from trimtab.search.samples import FEATURES, Encoding, Matrix, Summary
from trimtab.search.scope import Scope, what_if
from trimtab.testing import example_space
from trimtab.world import Seeds

SPACE = example_space()
ENCODING = Encoding(SPACE)
NAMES = tuple(axis.name for axis in SPACE.axes)
SUMMARY = Summary(np.zeros(len(FEATURES)), 100.0, 0.0)


@dataclass
class Made:
    """Stands for a model: queueing falls with `order=fifo` and grows with `quantum`."""

    limit_pays: float = 0.0
    quantum_hurts: float = 1.0

    def predict(self, knobs: Matrix, summary: Summary) -> Prediction:
        at = dict(zip(ENCODING.columns, knobs.T, strict=True))
        queue = 100.0 + 20 * self.quantum_hurts * at["quantum"] - 10 * at["order=fifo"]
        queue = queue - 100 * self.limit_pays * np.nan_to_num(at["limit"])
        members = np.array([queue * factor for factor in (0.98, 0.99, 1.0, 1.01, 1.02)])
        parts = {"queue_s": members, "restart_s": np.ones_like(members)}
        return Prediction(queue, members, {}, parts, np.zeros(len(knobs)))


def drawn(graph: Graph, measured: list[Knobs], **how: float) -> Scope:
    return what_if(graph, cast(Model, Made(**how)), ENCODING, SUMMARY, measured)


def settings(**fixed: Value) -> list[Knobs]:
    """Return forty measured settings, some knobs being the same in all."""
    points = design(SPACE, 40, Seeds(1))
    return list(dict.fromkeys(SPACE.space.project({**SPACE.knobs(point), **fixed}) for point in points))


def acts(*knobs: str, frequency: float = 0.5) -> Graph:
    return graph_of(*((knob, "queue_s") for knob in knobs), knobs=NAMES, frequency=frequency)


def test_what_cannot_pay_is_held_at_its_best_value() -> None:
    measured = settings(share=True)
    found = drawn(acts("quantum", "order"), measured)
    assert dict(found.held) == {"queues": measured[0]["queues"], "limit": measured[0]["limit"]}
    assert found.reasons["limit"].startswith("held: no path")


def test_a_path_keeps_a_knob_free_unless_it_is_rare() -> None:
    measured = settings(share=True)
    assert "limit" not in drawn(acts("limit"), measured).held
    assert "path" in drawn(acts("limit"), measured).reasons["limit"]
    assert "limit" in drawn(acts("limit", frequency=0.09), measured).held


def test_a_predicted_gain_keeps_a_knob_free() -> None:
    found = drawn(acts("quantum"), settings(share=True), limit_pays=0.05)
    assert "limit" not in found.held
    assert "may gain" in found.reasons["limit"]


def test_one_optimistic_member_of_five_is_enough() -> None:
    class Split(Made):
        def predict(self, knobs: Matrix, summary: Summary) -> Prediction:
            made, other = (Made(limit_pays=one).predict(knobs, summary) for one in (0.0, 0.3))
            members = made.members.copy()
            members[0] = other.members[0]
            return replace(made, members=members)

    found = what_if(acts("quantum"), cast(Model, Split()), ENCODING, SUMMARY, settings(share=True))
    assert "limit" not in found.held


def test_a_knob_that_was_hardly_varied_is_not_held() -> None:
    found = drawn(acts("quantum"), settings(share=True)[:10])
    assert not found.held
    assert found.reasons["limit"].startswith("varied only")


def test_a_knob_on_which_others_depend_is_never_held() -> None:
    assert ENCODING.gates == {"share"}
    found = drawn(acts("quantum"), settings())
    assert "share" not in found.held
    assert found.reasons["share"] == "others depend on it"


def test_a_knob_that_is_inert_in_the_best_settings_is_not_held() -> None:
    found = drawn(acts("quantum"), [*settings(share=False)[:5], *settings(share=True)])
    assert "limit" not in found.held
    assert found.reasons["limit"] == "makes no difference to the best settings"


def test_the_bad_half_of_a_knob_is_left_out() -> None:
    low = sorted(settings(share=True), key=lambda knobs: knobs.fraction("quantum"))
    quantum = next(axis for axis in SPACE.axes if axis.name == "quantum")
    found = drawn(acts("quantum", "order"), low[::-1])
    highest = quantum.encode(low[-1].fraction("quantum"))
    assert found.ranges == {"quantum": (0.0, highest)}, "the best settings stay in scope"
    at_the_end = [SPACE.space.project({**knobs, "quantum": 60.0}) for knobs in low]
    found = drawn(acts("quantum", "order"), at_the_end)
    assert found.ranges == {"quantum": (0.0, 0.5)}
    point = found.narrow(SPACE, {**SPACE.to_point(SPACE.base), "quantum": 90_000.0})
    assert quantum.encode(point["quantum"]) == pytest.approx(0.5)
    assert not drawn(acts("quantum"), at_the_end, quantum_hurts=0.0).ranges


def test_proposals_are_moved_into_scope_and_regret_is_what_lies_outside() -> None:
    scope = Scope({"order": "least"}, {"queues": (0.0, 0.5)})
    base = SPACE.base
    inside = SPACE.space.project({**base, "order": "least"})
    outside = SPACE.space.project({**base, "order": "small", "queues": 5})
    moved = SPACE.knobs(scope.narrow(SPACE, SPACE.to_point(outside)))
    assert (moved["order"], moved["queues"]) == ("least", 3)
    assert scope.holds(SPACE, inside)
    assert not scope.holds(SPACE, outside)
    assert scope.regret(SPACE, {inside: 1.1, outside: 1.3}) == pytest.approx(0.2)
    assert Scope().regret(SPACE, {inside: 1.1, outside: 1.3}) == 0
