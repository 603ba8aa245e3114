"""Which knobs act on the waiting, and through what: a causal graph learned from measured rows.

FCI with Fisher's z on normal scores [Spirtes et al.; Zhang, AIJ'08], repeated on bootstrap samples. Tiers say
what is known: knobs come first and do not act on each other, then the mediators, then the objective. Each
situation's mean is taken out of the mediators beforehand: that removes whatever the workload does to them,
so features of the workload need no nodes of their own.

Knobs are set by us, so what they do can be predicted without the graph. It buys scope and explanation.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import ConfigError
from trimtab.search.samples import MEDIATORS, Matrix, Table, Vector
from trimtab.world import Seeds, wall_s

# What adds up to an objective: its edges are known and not learned (nearly exact sums break faithfulness).
IDENTITIES: Mapping[str, tuple[str, ...]] = {
    "wait": ("queue_s", "restart_s", "slowdown_s"),
    "jct": ("queue_s", "restart_s", "slowdown_s", "unrun_s"),
}

BOOTSTRAPS = 30
FREQUENCY_MIN = 0.3  # low: a missed edge is worse than an extra one
_SITUATIONS_MIN = 5  # with fewer, bootstrap samples are drawn row by row
_MANY_ROWS = 500
_UNEXPLAINED_MIN = 1e-4  # a column with less variance of its own is a function of the others
_WEIGHT_MIN = 0.05  # standardised weight from which a column counts as part of that function

_ARROW, _CIRCLE = 1, 2  # causal-learn's end marks; 0 is no edge, -1 a tail


@dataclass(frozen=True, slots=True)
class Edge:
    """One edge, or a pair whose direction is open.

    Attributes:
        cause, effect: Axes, mediators or the objective.
        frequency: The share of bootstrap samples that have it.
        rule: Why it looks as it does: `knob`, `declared`, `objective`, `majority`, `open` or `determined`.
        joint: Whether its direction is open: both ends then depend on all knobs that act on either.
        marks: How often the bootstrap samples drew it how, as `o->` and the like; empty where not learned.
    """

    cause: str
    effect: str
    frequency: float
    rule: str
    joint: bool
    marks: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Path:
    """A way from a knob to the objective, and the product of its edges' frequencies."""

    nodes: tuple[str, ...]
    frequency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """What was learned, and from what.

    Attributes:
        knobs: The axes.
        mediators: In the order of `MEDIATORS`.
        objective: Its name.
        edges: With at least `FREQUENCY_MIN`, without cycles.
        dropped: Edges taken out to break cycles.
        inactive: Columns that never changed.
        determined: Column that is a function of others -> these.
        rows, situations: How much it was learned from.
        bootstraps: How many samples were drawn.
        alpha: The test's level.
        data_sha256: Of the scores it was learned from.
        versions: Of the libraries.
    """

    knobs: tuple[str, ...]
    mediators: tuple[str, ...]
    objective: str
    edges: tuple[Edge, ...]
    dropped: tuple[Edge, ...]
    inactive: tuple[str, ...]
    determined: Mapping[str, tuple[str, ...]]
    rows: int
    situations: int
    bootstraps: int
    alpha: float
    data_sha256: str
    versions: Mapping[str, str]

    def parents(self, node: str) -> frozenset[str]:
        """Return the knobs that act on a mediator or the objective, directly or through mediators."""
        return frozenset(knob for knob in self.knobs if self._routes(knob, node))

    def paths(self, knob: str) -> list[Path]:
        """Return a knob's ways to the objective, the most frequent first."""
        found = self._routes(knob, self.objective)
        return sorted(found, key=lambda path: (-path.frequency, path.nodes))

    def _routes(self, start: str, end: str) -> list[Path]:
        """Return the ways along arrows, an open pair being one either way, no node visited twice."""
        found: list[Path] = []
        open_paths = [Path((start,), 1.0)]
        while open_paths:
            path = open_paths.pop()
            for node, frequency in self._next(path.nodes[-1]):
                if node not in path.nodes and node not in self.knobs:
                    longer = Path((*path.nodes, node), path.frequency * frequency)
                    (found if node == end else open_paths).append(longer)
        return found

    def _next(self, node: str) -> list[tuple[str, float]]:
        onward = [(edge.effect, edge.frequency) for edge in self.edges if edge.cause == node]
        back = [(edge.cause, edge.frequency) for edge in self.edges if edge.joint and edge.effect == node]
        return onward + back

    def jsonable(self) -> dict[str, Any]:
        """Return plain values, as `graph.json` holds them."""
        return {"version": 1, **asdict(self)}


def learn(table: Table, objective: str, seeds: Seeds, budget_s: float | None = None) -> Graph:
    """Learn a graph from measured rows.

    Of the rows that searches proposed, no more are used than of those that were scattered over the space:
    proposals follow each other and make knobs look related.

    Args:
        table: The rows.
        objective: The objective's name; of those in `IDENTITIES` the edges are declared.
        seeds: For the bootstrap samples.
        budget_s: Stop drawing samples after this long; None to draw all `BOOTSTRAPS`.

    Raises:
        ConfigError: If causal-learn is not installed, or there are too few rows.
    """
    require_causal_learn()
    table = _balanced(table)
    if len(table) < rows_min(table.axis_of):
        raise ConfigError(
            f"{len(table)} rows are too few for a causal graph of {len(table.axis_of)} columns of knobs; "
            "the search goes without one."
        )
    learned = None if objective in IDENTITIES else objective
    names, tiers = _nodes(table, learned)
    scores = _scores(table, learned)
    inactive = [name for name, column in zip(names, scores.T, strict=True) if column.std() < 1e-9]
    determined = _determined(names, scores, set(inactive))
    kept = [at for at, name in enumerate(names) if name not in inactive and name not in determined]
    alpha = 0.01 if len(table) >= _MANY_ROWS else 0.05
    drawn = _bootstrap(scores[:, kept], [tiers[at] for at in kept], table.situation, alpha, seeds, budget_s)
    axis_of = {name: table.axis_of.get(name, name) for name in names}
    knobs = tuple(dict.fromkeys(table.axis_of.values()))
    edges = _resolve(drawn, [axis_of[names[at]] for at in kept], knobs)
    edges += _of_determined(edges, determined, axis_of, knobs)
    if learned is None:
        edges += [Edge(one, objective, 1.0, "declared", False, {}) for one in IDENTITIES[objective]]
    edges, dropped = _without_cycles(edges)
    return Graph(
        knobs=knobs,
        mediators=MEDIATORS,
        objective=objective,
        edges=tuple(edges),
        dropped=tuple(dropped),
        inactive=tuple(inactive),
        determined=determined,
        rows=len(table),
        situations=len(set(table.situation.tolist())),
        bootstraps=len(drawn),
        alpha=alpha,
        data_sha256=hashlib.sha256(np.ascontiguousarray(scores).tobytes()).hexdigest(),
        versions={name: metadata.version(name) for name in ("causal-learn", "numpy", "scipy")},
    )


def rows_min(axis_of: Mapping[str, str]) -> int:
    """Return how many rows a graph needs: twice as many as there are nodes."""
    return 2 * (len(axis_of) + len(MEDIATORS) + 1)


def require_causal_learn() -> None:
    """Refuse where causal-learn is missing.

    Raises:
        ConfigError: If it is.
    """
    try:
        metadata.version("causal-learn")
    except metadata.PackageNotFoundError:
        raise ConfigError(
            "a causal graph needs causal-learn (pip install 'trimtab[causal]'); the search goes without one."
        ) from None


# ---- rows ----------------------------------------------------------------------------------------


def _balanced(table: Table) -> Table:
    """Leave out the oldest proposed rows until there are no more of them than of scattered ones."""
    proposed = np.flatnonzero(~table.designed)
    surplus = max(0, len(proposed) - int(table.designed.sum()))
    keep = np.ones(len(table), dtype=bool)
    keep[proposed[:surplus]] = False
    return table.take(keep)


def _nodes(table: Table, learned: str | None) -> tuple[list[str], list[int]]:
    columns = list(table.axis_of)
    last = [learned] if learned else []
    return [*columns, *MEDIATORS, *last], [0] * len(columns) + [1] * len(MEDIATORS) + [2] * len(last)


def _scores(table: Table, learned: str | None) -> Matrix:
    """Return normal scores: ranks as Gaussian quantiles, an inactive knob in the middle of its column."""
    knobs = [np.where(np.isnan(column), _middle(column), column) for column in table.knobs.T]
    results = [*np.log1p(table.mediators.T), *([np.log1p(table.cost)] if learned else [])]
    centred = [_centred(column, table.situation) for column in results]
    return np.column_stack([_normal(column) for column in (*knobs, *centred)])


def _middle(column: Vector) -> float:
    seen = column[~np.isnan(column)]
    return float(np.median(seen)) if len(seen) else 0.0


def _centred(column: Vector, situation: NDArray[np.int64]) -> Vector:
    """Take each situation's mean out of a column; what is left of a constant is exactly 0."""
    _, place = np.unique(situation, return_inverse=True)
    means = np.bincount(place, column) / np.bincount(place)
    left = column - means[place]
    return np.where(np.abs(left) < 1e-9, 0.0, left)


def _normal(column: Vector) -> Vector:
    from scipy.special import ndtri
    from scipy.stats import rankdata

    return np.asarray(ndtri((rankdata(column) - 0.5) / len(column)))


def _determined(names: Sequence[str], scores: Matrix, inactive: set[str]) -> dict[str, tuple[str, ...]]:
    """Return the columns that are functions of earlier ones, copies among them, and of which."""
    found: dict[str, tuple[str, ...]] = {}
    kept: list[int] = []
    for at, name in enumerate(names):
        if name in inactive:
            continue
        column = scores[:, at] / scores[:, at].std()
        others = scores[:, kept] / scores[:, kept].std(axis=0)
        weights = np.linalg.lstsq(others - others.mean(axis=0), column - column.mean(), rcond=None)[0]
        rest = column - column.mean() - (others - others.mean(axis=0)) @ weights
        if kept and rest.var() < _UNEXPLAINED_MIN:
            parts = [names[kept[i]] for i in np.flatnonzero(np.abs(weights) > _WEIGHT_MIN)]
            found[name] = tuple(parts)
        else:
            kept.append(at)
    return found


# ---- bootstrap -----------------------------------------------------------------------------------


def _bootstrap(
    scores: Matrix,
    tiers: Sequence[int],
    situation: NDArray[np.int64],
    alpha: float,
    seeds: Seeds,
    budget_s: float | None,
) -> list[NDArray[np.int64]]:
    """Return the end marks of the graph of each bootstrap sample: `marks[i, j]` is the mark at j."""
    dice, began = seeds.stream("causal", "bootstrap"), wall_s()
    numbers = np.unique(situation)
    groups = [np.flatnonzero(situation == number) for number in numbers]
    if len(groups) < _SITUATIONS_MIN:
        groups = [np.array([row]) for row in range(len(scores))]
    found: list[NDArray[np.int64]] = []
    while len(found) < BOOTSTRAPS and not (budget_s is not None and found and wall_s() - began > budget_s):
        rows = np.concatenate([groups[one] for one in dice.integers(len(groups), size=len(groups))])
        found.append(_marks(scores[rows], tiers, alpha))
    return found


def _marks(scores: Matrix, tiers: Sequence[int], alpha: float) -> NDArray[np.int64]:
    """Run FCI on the columns that vary and are no functions of others in this sample."""
    names = [str(at) for at in range(scores.shape[1])]
    still = {name for name, column in zip(names, scores.T, strict=True) if column.std() < 1e-9}
    still |= set(_determined(names, scores, still))
    kept = [at for at in range(scores.shape[1]) if names[at] not in still]
    marks = np.zeros((scores.shape[1],) * 2, dtype=np.int64)
    if len(kept) > 1:
        marks[np.ix_(kept, kept)] = run_fci(scores[:, kept], [tiers[at] for at in kept], alpha)
    return marks


def run_fci(scores: Matrix, tiers: Sequence[int], alpha: float) -> NDArray[np.int64]:
    """Return the end marks of one FCI run: `marks[i, j]` is the mark at j of the edge between i and j.

    Nothing is forbidden both ways except within the first tier, whose columns have no causes here: forbidding
    a pair both ways makes FCI believe in colliders that are not there. No cache is used: it would take data
    sets of the same abbreviated text for the same.
    """
    from causallearn.graph.GraphNode import GraphNode
    from causallearn.search.ConstraintBased.FCI import fci
    from causallearn.utils.PCUtils.BackgroundKnowledge import BackgroundKnowledge

    names = [f"n{at}" for at in range(len(tiers))]
    known = BackgroundKnowledge()
    for name, tier in zip(names, tiers, strict=True):
        known.add_node_to_tier(GraphNode(name), tier)
    known.forbid_within_tier(0)
    with redirect_stdout(io.StringIO()):
        graph, _ = fci(
            scores,
            "fisherz",
            alpha,
            background_knowledge=known,
            node_names=names,
            show_progress=False,
            verbose=False,
        )
    assert [node.get_name() for node in graph.get_nodes()] == names
    return np.asarray(graph.graph, dtype=np.int64).T


# ---- from marks to edges -------------------------------------------------------------------------


def _resolve(drawn: Sequence[NDArray[np.int64]], owners: Sequence[str], knobs: Sequence[str]) -> list[Edge]:
    """Merge the samples' graphs, columns of one axis being one node; keep what is frequent enough."""
    nodes = list(dict.fromkeys(owners))
    found = []
    for place, one in enumerate(nodes):
        for other in nodes[place + 1 :]:
            counts = Counter(filter(None, (_between(marks, owners, one, other) for marks in drawn)))
            frequency = sum(counts.values()) / len(drawn) if drawn else 0.0
            if frequency >= FREQUENCY_MIN and other not in knobs:
                found.append(_edge(one, other, frequency, dict(sorted(counts.items())), knobs))
    return found


def _between(marks: NDArray[np.int64], owners: Sequence[str], one: str, other: str) -> str:
    """Return how a sample's graph draws the edge between two nodes, empty if it has none."""
    for i, owner in enumerate(owners):
        for j, second in enumerate(owners):
            if owner == one and second == other and marks[i, j]:
                left = {_ARROW: "<", _CIRCLE: "o"}.get(int(marks[j, i]), "-")
                return f"{left}-{ {_ARROW: '>', _CIRCLE: 'o'}.get(int(marks[i, j]), '-') }"
    return ""


def _edge(one: str, other: str, frequency: float, marks: Mapping[str, int], knobs: Sequence[str]) -> Edge:
    """Direct an edge: away from knobs, towards the objective, between mediators by the majority of arrows."""
    if one in knobs:
        return Edge(one, other, frequency, "knob", False, marks)
    if other not in MEDIATORS:
        return Edge(one, other, frequency, "objective", False, _untailed(marks))
    there = marks.get("-->", 0) + marks.get("o->", 0)
    back = marks.get("<--", 0) + marks.get("<-o", 0)
    half = sum(marks.values()) / 2
    if there > half:
        return Edge(one, other, frequency, "majority", False, marks)
    if back > half:
        return Edge(other, one, frequency, "majority", False, _turned(marks))
    return Edge(one, other, frequency, "open", True, marks)


def _untailed(marks: Mapping[str, int]) -> dict[str, int]:
    """Return marks without tails at the cause: the tier draws these, no test rules out a common cause."""
    open_ended = Counter[str]()
    for text, count in marks.items():
        open_ended[f"o{text[1:]}" if text[0] == "-" else text] += count
    return dict(sorted(open_ended.items()))


def _turned(marks: Mapping[str, int]) -> dict[str, int]:
    return {text[::-1].translate(str.maketrans("<>", "><")): count for text, count in marks.items()}


def _of_determined(
    edges: Sequence[Edge],
    determined: Mapping[str, tuple[str, ...]],
    axis_of: Mapping[str, str],
    knobs: Sequence[str],
) -> list[Edge]:
    """Return further edges for columns that are functions of others.

    A knob gets the edges of the knobs it is a function of. A mediator depends on the knobs that determine it,
    and stands beside the mediators that do.
    """
    found: dict[tuple[str, str], Edge] = {}
    for column, parts in determined.items():
        name = axis_of[column]
        sources = sorted({axis_of[part] for part in parts} - {name})
        if name in knobs:
            copied = [(name, edge.effect, edge.frequency) for edge in edges if edge.cause in sources]
        else:
            copied = [(source, name, 1.0) for source in sources]
        for cause, effect, frequency in copied:
            joint = cause in MEDIATORS and effect in MEDIATORS
            found.setdefault((cause, effect), Edge(cause, effect, frequency, "determined", joint, {}))
    known = {(edge.cause, edge.effect) for edge in edges}
    return [edge for key, edge in found.items() if key not in known]


def _without_cycles(edges: Sequence[Edge]) -> tuple[list[Edge], list[Edge]]:
    """Take out the least frequent edge of a cycle until there is none; return what stays and what went."""
    kept, dropped = list(edges), []
    while ring := [edge for edge in kept if not edge.joint and _reaches(kept, edge.effect, edge.cause)]:
        weakest = min(ring, key=lambda edge: (edge.frequency, edge.cause, edge.effect))
        kept.remove(weakest)
        dropped.append(weakest)
    return kept, dropped


def _reaches(edges: Sequence[Edge], start: str, end: str) -> bool:
    seen, todo = {start}, [start]
    while todo:
        node = todo.pop()
        onward = {edge.effect for edge in edges if edge.cause == node and not edge.joint} - seen
        seen |= onward
        todo += onward
    return end in seen
