"""Causal graphs: a known truth is found again, and what makes FCI fail silently is caught."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from graphs import KNOBS, graph_of
from trimtab.errors import ConfigError
from trimtab.search import causal
from trimtab.search.causal import Edge, Graph, learn, run_fci
from trimtab.search.samples import FEATURES, Table
from trimtab.world import Seeds

pytest.importorskip("causallearn", reason="causal-learn is not installed")

# queue <- a, b; restart <- b, c, queue; slowdown <- restart; d does nothing; preemptions repeat restart.
TRUTH = {
    ("a", "queue_s"),
    ("b", "queue_s"),
    ("b", "restart_s"),
    ("c", "restart_s"),
    ("queue_s", "restart_s"),
    ("restart_s", "slowdown_s"),
}


def table(
    rows: int,
    seed: int = 0,
    situations: int = 1,
    knobs: np.ndarray | None = None,
    copies: Sequence[tuple[int, int]] = (),
) -> Table:
    """Return rows of a linear system with the edges of `TRUTH`; `copies` are columns made equal."""
    dice = np.random.default_rng(seed)
    knobs = dice.random((rows, len(KNOBS))) if knobs is None else knobs
    for one, other in copies:
        knobs[:, other] = knobs[:, one]
    situation = np.arange(rows) % situations
    level = 3 * dice.standard_normal(situations)[situation]  # the workload moves all of them together
    a, b, c, _ = 3 * (knobs - 0.5).T

    def noise() -> np.ndarray:
        return 0.6 * dice.standard_normal(rows)

    queue = a + b + noise()
    restart = queue + 1.2 * b - 1.5 * c + noise()
    slowdown = restart + noise()
    parts = [queue, restart, slowdown, np.full(rows, -level - 30), restart]
    mediators = np.expm1(np.column_stack(parts) + level[:, None] + 30)
    return Table(
        {name: name for name in KNOBS},
        knobs,
        np.zeros((rows, len(FEATURES))),
        mediators,
        mediators[:, :3].sum(axis=1),
        np.full(rows, 100.0),
        np.zeros(rows),
        situation,
        np.ones(rows, dtype=bool),
    )


def adjacent(graph: Graph) -> set[tuple[str, str]]:
    """Return learned adjacencies in the truth's direction where it has one."""
    skip = {"declared", "determined"}
    pairs = {(edge.cause, edge.effect) for edge in graph.edges if edge.rule not in skip}
    return {(two, one) if (two, one) in TRUTH else (one, two) for one, two in pairs}


@pytest.mark.parametrize("seed", range(3))
def test_a_known_truth_is_found_from_few_rows(seed: int) -> None:
    found = adjacent(learn(table(100, seed), "wait", Seeds(seed)))
    assert found <= TRUTH, "precision 1"
    assert len(found) >= 0.5 * len(TRUTH)


@pytest.mark.parametrize("seed", range(3))
def test_more_rows_find_nearly_all_of_it(seed: int) -> None:
    """The low bar for frequency may let an edge too many in."""
    found = adjacent(learn(table(600, seed), "wait", Seeds(seed)))
    assert len(found & TRUTH) >= 0.8 * len(TRUTH)
    assert len(found - TRUTH) <= 1


def test_the_workload_does_not_make_mediators_look_related() -> None:
    graph = learn(table(400, 5, situations=20), "wait", Seeds(0))
    assert len(adjacent(graph) - TRUTH) <= 1
    assert graph.situations == 20
    assert graph.parents("slowdown_s") == {"a", "b", "c"}
    assert graph.parents("queue_s") == {"a", "b"}
    assert not graph.paths("d")


def test_sums_are_declared_and_not_learned() -> None:
    graph = learn(table(200), "wait", Seeds(0))
    declared = {(edge.cause, edge.effect) for edge in graph.edges if edge.rule == "declared"}
    assert declared == {("queue_s", "wait"), ("restart_s", "wait"), ("slowdown_s", "wait")}
    learned = learn(table(200), "jct_p99", Seeds(0))
    towards = [edge for edge in learned.edges if edge.effect == "jct_p99"]
    assert towards
    assert {edge.rule for edge in towards} <= {"objective", "knob"}
    assert not [edge for edge in learned.edges if edge.cause == "jct_p99"]


def test_columns_that_never_change_are_named_and_join_nothing() -> None:
    knobs = np.random.default_rng(1).random((150, 4))
    knobs[:, 0] = 0.5
    graph = learn(table(150, knobs=knobs), "wait", Seeds(0))
    assert set(graph.inactive) == {"a", "unrun_s"}
    assert not [edge for edge in graph.edges if "a" in (edge.cause, edge.effect)]


def test_fci_itself_would_join_a_constant_to_everything() -> None:
    """Why they are taken out: the test gives no number, and that counts as dependent."""
    data = np.random.default_rng(0).standard_normal((200, 4))
    data[:, 3] = 1.0
    with np.errstate(all="ignore"):
        marks = run_fci(data, [0, 1, 1, 1], 0.05)
    assert (marks[3, 1:3] != 0).all()


def test_a_knobs_copy_shares_its_edges() -> None:
    graph = learn(table(300, copies=[(1, 3)]), "wait", Seeds(0))
    assert graph.determined["d"] == ("b",)
    assert {edge.effect for edge in graph.edges if edge.cause == "d"} == {
        edge.effect for edge in graph.edges if edge.cause == "b"
    }


def test_a_mediators_copy_stands_beside_it() -> None:
    graph = learn(table(300), "wait", Seeds(0))
    assert graph.determined["preemptions"] == ("restart_s",)
    assert graph.parents("preemptions") == graph.parents("restart_s")


def test_fci_itself_refuses_copies() -> None:
    data = np.random.default_rng(0).integers(0, 2, (64, 3)).astype(float)
    data[:, 2] = data[:, 1]
    with pytest.raises(ValueError, match="singular"):
        run_fci(data, [0, 1, 1], 0.05)


def test_choices_merge_into_their_knob() -> None:
    dice = np.random.default_rng(2)
    chosen = dice.integers(0, 3, 300)
    made = table(300)
    queue = np.expm1(30 + 2.0 * (chosen == 2) + dice.standard_normal(300))
    made = replace(
        made,
        axis_of={"order=x": "order", "order=y": "order", "order=z": "order"},
        knobs=np.eye(3)[chosen],
        mediators=np.column_stack([queue, *np.zeros((4, 300))]),
    )
    graph = learn(made, "wait", Seeds(0))
    assert graph.determined == {"order=z": ("order=x", "order=y")}
    assert graph.knobs == ("order",)
    assert graph.parents("queue_s") == {"order"}


def test_no_pair_of_knob_and_mediator_is_forbidden_both_ways() -> None:
    """c -> m1 -> m2: were c - m2 forbidden both ways, the arrow at m2 would turn round."""
    dice = np.random.default_rng(0)
    first = dice.standard_normal(2000)
    second = first + 0.5 * dice.standard_normal(2000)
    third = second + 0.5 * dice.standard_normal(2000)
    marks = run_fci(np.column_stack([first, second, third]), [0, 1, 1], 0.01)
    assert marks[0, 2] == marks[2, 0] == 0
    assert marks[1, 2] == causal._ARROW
    assert marks[2, 1] != causal._ARROW


def test_a_common_cause_of_mediator_and_objective_is_not_ruled_out_by_their_tiers() -> None:
    """FCI draws a tail at what may not be an effect; the record leaves that end open. Knobs are set by us."""
    dice = np.random.default_rng(0)
    common = dice.standard_normal(400)
    pair = np.column_stack([common, common]) + 0.5 * dice.standard_normal((400, 2))
    marks = run_fci(pair, [1, 2], 0.01)
    assert (marks[0, 1], marks[1, 0]) == (causal._ARROW, -1), "as if it were known that nothing is behind"
    (edge,) = causal._resolve([marks] * 3, ["queue_s", "jct_p99"], KNOBS)
    assert (edge.cause, edge.effect, edge.marks) == ("queue_s", "jct_p99", {"o->": 3})
    (edge,) = causal._resolve([marks] * 3, ["a", "queue_s"], KNOBS)
    assert edge.marks == {"-->": 3}


def test_fci_gets_a_test_without_chance_and_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cache on disk knows data by their text, from which NumPy leaves out the middle."""
    from causallearn.search.ConstraintBased import FCI

    asked: list[tuple[tuple[object, ...], dict[str, object]]] = []
    true = FCI.fci

    def spy(*given: object, **named: object) -> object:
        asked.append((given[1:], named))
        return true(*given, **named)

    monkeypatch.setattr(FCI, "fci", spy)
    learn(table(120), "wait", Seeds(0))
    assert len(asked) == causal.BOOTSTRAPS
    for given, named in asked:
        assert given == ("fisherz", 0.05)
        assert set(named) == {"background_knowledge", "node_names", "show_progress", "verbose"}


def test_what_never_changes_or_repeats_in_one_bootstrap_sample_joins_nothing_there() -> None:
    dice = np.random.default_rng(0)
    scores = dice.standard_normal((200, 4))
    scores[:, 3] += scores[:, 2]
    expected = causal._marks(scores, [0, 1, 1, 1], 0.01)
    assert expected[2, 3] != 0
    for spoilt in (np.full(200, 0.5), scores[:, 2] * 2 + 1):
        worse = scores.copy()
        worse[:, 1] = worse[:, 3] = spoilt
        marks = causal._marks(worse, [0, 1, 1, 1], 0.01)
        assert not marks[[1, 3]].any()
        assert not marks[:, [1, 3]].any()


def test_with_little_time_fewer_samples_are_drawn_and_the_graph_says_how_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = itertools.count()
    monkeypatch.setattr(causal, "wall_s", lambda: float(next(clock)))
    assert learn(table(150), "wait", Seeds(0), budget_s=4.5).bootstraps == 5
    assert learn(table(150), "wait", Seeds(0), budget_s=0.0).bootstraps == 1
    assert learn(table(150), "wait", Seeds(0)).bootstraps == causal.BOOTSTRAPS


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    learn(table(120), "wait", Seeds(0))
    assert capfd.readouterr().out == ""


def test_the_same_rows_and_seed_give_the_same_bytes() -> None:
    one, two, other = (json.dumps(learn(table(150), "wait", Seeds(s)).jsonable()) for s in (1, 1, 2))
    assert one == two
    assert one != other
    changed = learn(table(150, seed=1), "wait", Seeds(1))
    assert json.loads(one)["data_sha256"] != changed.data_sha256
    assert set(json.loads(one)["versions"]) == {"causal-learn", "numpy", "scipy"}


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(ConfigError, match="too few"):
        learn(table(causal.rows_min({name: name for name in KNOBS}) - 1), "wait", Seeds(0))


def test_no_more_proposed_rows_than_scattered_ones_are_used() -> None:
    made = table(200)
    designed = np.arange(200) < 60
    made = replace(made, designed=designed)
    assert learn(made, "wait", Seeds(0)).rows == 120


def _majority(cause: str, effect: str, frequency: float, joint: bool = False) -> Edge:
    return Edge(cause, effect, frequency, "majority", joint, {})


def test_cycles_lose_their_least_frequent_edge() -> None:
    ring = [
        _majority("x", "y", 0.9),
        _majority("y", "z", 0.4),
        _majority("z", "x", 0.6),
        _majority("z", "w", 0.3),
    ]
    kept, dropped = causal._without_cycles(ring)
    assert [(edge.cause, edge.effect) for edge in dropped] == [("y", "z")]
    assert len(kept) == 3


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ({"o->": 6, "<-o": 2}, ("queue_s", "restart_s", "majority", False)),
        ({"<--": 6, "<->": 2}, ("restart_s", "queue_s", "majority", False)),
        ({"-->": 3, "<--": 3}, ("queue_s", "restart_s", "open", True)),
        ({"o-o": 5, "-->": 4}, ("queue_s", "restart_s", "open", True)),
        ({"<->": 8}, ("queue_s", "restart_s", "open", True)),
    ],
)
def test_directions_between_mediators(marks: dict[str, int], expected: tuple[str, str, str, bool]) -> None:
    edge = causal._edge("queue_s", "restart_s", 0.5, marks, KNOBS)
    assert (edge.cause, edge.effect, edge.rule, edge.joint) == expected


def test_open_pairs_share_their_knobs_and_paths_multiply() -> None:
    graph = graph_of(("a", "queue_s"), ("b", "restart_s"), joint=[("queue_s", "restart_s")])
    assert graph.parents("queue_s") == graph.parents("restart_s") == {"a", "b"}
    assert [(path.nodes[1:], path.frequency) for path in graph.paths("a")] == [
        (("queue_s", "wait"), 0.5),
        (("queue_s", "restart_s", "wait"), 0.25),
    ]
    assert not graph.paths("c")
