"""What will a setting cost? Boosted trees predict what waiting is made of, and the sum is never learned.

    log(1 + mediator) ~ trees(axes that act on it, features of the workload)
    wait = queue + restart + slowdown,  JCT = age + run - unrun + wait

Age and run are known before anything is simulated. An objective that is no such sum is learned from the
mediators; so that the sum can be judged, one that is may be learned from the knobs instead. Five members
each leave out a fifth of the situations, so that all rows have a prediction by a member that never saw
them: from these come the spread (split conformal) and whether the model is any good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.search.causal import IDENTITIES, Graph
from trimtab.search.samples import MEDIATORS, Matrix, Summary, Table, Vector

MEMBERS = 5
HERE_WEIGHT = 10.0  # of a row of the situation that is being searched
SPEARMAN_MIN = 0.5
COVERAGE = 0.9
_SCALE_FLOOR = 0.005  # of log gain: where members agree, they may still be wrong together
_RANKED_ROWS_MIN = 8
_TRUST_RATIO = 1.02  # a graph is followed if leaving out the other knobs costs no more than this in error

_TREES = 80
_SETTINGS: dict[str, Any] = {
    "objective": "regression",
    "learning_rate": 0.1,
    "num_leaves": 15,
    "min_data_in_leaf": 5,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "seed": 1,
    "verbosity": -1,
}

Folds = NDArray[np.int64]


class _Constant:
    """Stands for trees where there is nothing to learn."""

    def __init__(self, value: float) -> None:
        self._value = value

    def predict(self, rows: Matrix, **_: Any) -> Vector:
        return np.full(len(rows), self._value)


@dataclass(frozen=True)
class Prediction:
    """What settings will do, row by row.

    Attributes:
        cost: The objective's cost, s; shape (rows,).
        members: The same by each member; shape (members, rows).
        mediators: Mediator -> its value; shape (rows,) each.
        parts: Mediator -> its value by each member; shape (members, rows) each.
        spread: Half the width of a 90 % interval of the logarithm of the gain; shape (rows,).
    """

    cost: Vector
    members: Matrix
    mediators: Mapping[str, Vector]
    parts: Mapping[str, Matrix]
    spread: Vector

    def gains(self, over: int = 0) -> Vector:
        """Return the gains over one of the rows; shape (rows,)."""
        return np.asarray((self.cost[over] + 1.0) / (self.cost + 1.0))

    def member_gains(self, over: int = 0) -> Matrix:
        """Return the gains by each member; shape (members, rows)."""
        return np.asarray((self.members[:, [over]] + 1.0) / (self.members + 1.0))


@dataclass(frozen=True)
class Model:
    """A fitted model.

    Attributes:
        objective: Whose costs it predicts.
        adds_up: Whether these are sums of predicted mediators.
        columns: Mediator -> columns of the encoding it is predicted from.
        rows: How many it was fitted to.
        spearman: Rank correlation with the cost inside situations that a member had not seen, their mean.
        quantile: The 90 % quantile of errors of log gain, in members' standard deviations.
    """

    objective: str
    adds_up: bool
    columns: Mapping[str, tuple[int, ...]]
    rows: int
    spearman: float
    quantile: float
    _trees: Mapping[str, tuple[Any, ...]]
    _tops: tuple[Any, ...]

    def ready(self, knobs: int) -> bool:
        """Whether it may reject settings, for so many axes: enough rows, and ranks that held elsewhere."""
        return self.rows >= max(2 * knobs, 16) and self.spearman >= SPEARMAN_MIN

    def predict(self, knobs: Matrix, summary: Summary) -> Prediction:
        """Predict settings on one situation.

        Args:
            knobs: Rows of the encoding; shape (rows, columns).
            summary: The situation.
        """
        count = len(knobs)
        features = np.broadcast_to(summary.features, (count, len(summary.features)))
        run_s, age_s = np.full(count, summary.run_s), np.full(count, summary.age_s)
        parts, members = self._by_member(knobs, features, run_s, age_s)
        mediators = {name: np.expm1(np.log1p(values).mean(axis=0)) for name, values in parts.items()}
        cost = np.expm1(np.log1p(members).mean(axis=0))
        if self.adds_up:
            cost = add_up(self.objective, mediators, run_s, age_s)
        spread = self.quantile * (_SCALE_FLOOR + np.log1p(members).std(axis=0))
        return Prediction(cost, members, mediators, parts, spread)

    def _by_member(
        self, knobs: Matrix, features: Matrix, run_s: Vector, age_s: Vector
    ) -> tuple[dict[str, Matrix], Matrix]:
        """Return the mediators and the cost by each member; shape (members, rows) each."""
        parts = {}
        for name, trees in self._trees.items():
            inputs = _inputs(knobs, features, self.columns[name])
            logs = np.array([one.predict(inputs, num_threads=1) for one in trees])
            parts[name] = np.expm1(np.maximum(logs, 0.0))
        if self.adds_up:
            return parts, np.maximum(add_up(self.objective, parts, run_s, age_s), 0.0)
        tops = []
        for member, top in enumerate(self._tops):
            known = [np.log1p(values[member]) for values in parts.values()]
            tops.append(top.predict(_top_inputs(known, knobs, features), num_threads=1))
        return parts, np.expm1(np.maximum(tops, 0.0))


def add_up(objective: str, mediators: Mapping[str, Vector], run_s: Vector, age_s: Vector) -> Vector:
    """Return the cost that mediators add up to; exact for measured ones."""
    waiting = mediators["queue_s"] + mediators["restart_s"] + mediators["slowdown_s"]
    return waiting if objective == "wait" else age_s + run_s - mediators["unrun_s"] + waiting


def fit(
    table: Table,
    objective: str,
    parents: Mapping[str, frozenset[str]] | None,
    here: int | None = None,
    identity: bool = True,
) -> Model:
    """Fit a model to rows.

    Args:
        table: The rows.
        objective: Its name.
        parents: Mediator -> the knobs it is predicted from; all knobs for one that is not named.
        here: The situation whose rows weigh more.
        identity: Whether mediators are predicted; without, the objective alone is, from all knobs.
    """
    names = IDENTITIES.get(objective, MEDIATORS) if identity else ()
    adds_up = identity and objective in IDENTITIES
    columns = {name: _columns(table.axis_of, (parents or {}).get(name)) for name in names}
    folds = _folds(table.situation, here)
    weights = np.where(table.situation == here, HERE_WEIGHT, 1.0)
    trees = {name: _members(table, name, columns[name], folds, weights) for name in names}
    inputs = _top_inputs([np.log1p(_mediator(table, name)) for name in names], table.knobs, table.features)
    tops: tuple[Any, ...] = ()
    if not adds_up:
        tops = tuple(_train(inputs, np.log1p(table.cost), weights, folds != one) for one in range(MEMBERS))
    model = Model(objective, adds_up, columns, len(table), 0.0, 0.0, trees, tops)
    _, costs = model._by_member(table.knobs, table.features, table.run_s, table.age_s)
    quantile, spearman = _judge(table, costs, folds, here)
    return replace(model, quantile=quantile, spearman=spearman)


def trusted(table: Table, graph: Graph) -> dict[str, frozenset[str]]:
    """Return the knobs of each mediator for which the graph can be followed.

    That is where trees on the graph's knobs alone err hardly more, on situations they have not seen, than
    trees on all knobs: FCI sees monotone effects only, and a threshold that counts now and then escapes it.
    """
    found = {}
    folds = _folds(table.situation, None)
    weights = np.ones(len(table))
    for name in IDENTITIES.get(graph.objective, MEDIATORS):
        knobs = graph.parents(name)
        some, every = _columns(table.axis_of, knobs), _columns(table.axis_of, None)
        errors = [_error(table, name, columns, folds, weights) for columns in (some, every)]
        if errors[0] <= _TRUST_RATIO * errors[1]:
            found[name] = knobs
    return found


def _error(table: Table, name: str, columns: tuple[int, ...], folds: Folds, weights: Vector) -> float:
    """Return the root mean square error of a mediator's logarithm on rows a member had not seen."""
    members = _members(table, name, columns, folds, weights)
    inputs = _inputs(table.knobs, table.features, columns)
    values = np.array([one.predict(inputs, num_threads=1) for one in members])[folds, np.arange(len(table))]
    return float(np.sqrt(np.mean((values - np.log1p(_mediator(table, name))) ** 2)))


def _columns(axis_of: Mapping[str, str], knobs: frozenset[str] | None) -> tuple[int, ...]:
    return tuple(at for at, axis in enumerate(axis_of.values()) if knobs is None or axis in knobs)


def _inputs(knobs: Matrix, features: Matrix, columns: tuple[int, ...]) -> Matrix:
    return np.hstack([knobs[:, list(columns)], features])


def _mediator(table: Table, name: str) -> Vector:
    return table.mediators[:, MEDIATORS.index(name)]


def _folds(situation: NDArray[np.int64], here: int | None) -> Folds:
    """Return the member that does not see a row: whole situations, but this one's rows (or few's) singly."""
    numbers, place = np.unique(situation, return_inverse=True)
    by_row = np.arange(len(situation)) % MEMBERS
    if len(numbers) < MEMBERS:
        return by_row
    return np.where(situation == here, by_row, place % MEMBERS)


def _members(
    table: Table, name: str, columns: tuple[int, ...], folds: Folds, weights: Vector
) -> tuple[Any, ...]:
    inputs, target = _inputs(table.knobs, table.features, columns), np.log1p(_mediator(table, name))
    return tuple(_train(inputs, target, weights, folds != one) for one in range(MEMBERS))


def _train(inputs: Matrix, target: Vector, weights: Vector, seen: NDArray[np.bool_]) -> Any:
    import lightgbm  # here because importing it takes longer than many a simulation

    if not seen.any() or np.ptp(target[seen]) < 1e-9:
        return _Constant(float(target[seen].mean()) if seen.any() else 0.0)
    data = lightgbm.Dataset(inputs[seen], label=target[seen], weight=weights[seen])
    return lightgbm.train(_SETTINGS, data, num_boost_round=_TREES)


def _top_inputs(mediators: Sequence[Vector], knobs: Matrix, features: Matrix) -> Matrix:
    """Return what an objective is predicted from: logarithms of mediators, or the knobs if there are none."""
    return np.column_stack([*(mediators or [knobs]), features])


def _judge(table: Table, costs: Matrix, folds: Folds, here: int | None) -> tuple[float, float]:
    """Return the quantile of scaled errors and the mean rank correlation, both on rows not seen.

    Errors are those of log gain: what a whole situation is off by cancels.
    """
    from scipy.stats import spearmanr

    logs = np.log1p(costs)
    unseen = logs[folds, np.arange(len(table))]
    scale = _SCALE_FLOOR + logs.std(axis=0)
    errors, ranks = [], []
    numbers = np.unique(table.situation)
    for number in numbers:
        rows = table.situation == number
        off = unseen[rows] - np.log1p(table.cost[rows])
        errors.append(np.abs(off - off.mean()) / scale[rows])
        flat = np.ptp(unseen[rows]) == 0 or np.ptp(table.cost[rows]) == 0
        if rows.sum() >= _RANKED_ROWS_MIN and not flat and (number != here or len(numbers) == 1):
            ranks.append(float(spearmanr(unseen[rows], table.cost[rows]).statistic))
    if not errors:
        return 0.0, 0.0
    return float(np.quantile(np.concatenate(errors), COVERAGE)), float(np.mean(ranks)) if ranks else 0.0
