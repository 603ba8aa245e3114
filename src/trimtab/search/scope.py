"""Where is there still something to gain? Knobs that cannot pay are held, and bad halves are left out.

A knob is held at its best measured value only if the causal graph shows no way from it to the objective,
and the model sees no gain in any value of it, and it has been varied enough to know. Each of the three is
wrong at times: the graph misses thresholds that count only now and then, the model knows only what it saw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab.knobs import Knobs
from trimtab.search.causal import Graph
from trimtab.search.model import Model, Prediction
from trimtab.search.samples import Encoding, Summary
from trimtab.search.space import Axis, AxisValue, Point, SearchSpace

PATH_MIN = 0.1
EFFECT_MAX = 0.005  # of gain
VARIED_MIN = 12
_UPPER = 0.9
_AGREED = 0.95
_BEST = 5
_LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)
_SAME = 1e-9


@dataclass(frozen=True)
class Scope:
    """What is left of a search space.

    Attributes:
        held: Axis -> the only value it may have.
        ranges: Ordered axis -> the part of [0, 1] it may lie in.
        reasons: Axis -> why it is held or halved, or else why not.
    """

    held: Mapping[str, AxisValue] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)

    def narrow(self, space: SearchSpace, point: Point) -> Point:
        """Return the nearest point in scope."""
        inside = {**point, **self.held}
        for axis in space.axes:
            if axis.name in self.ranges:
                low, high = self.ranges[axis.name]
                unit = axis.encode(point[axis.name])
                if not low <= unit <= high:
                    inside[axis.name] = axis.decode(min(max(unit, low), high))
        return inside

    def holds(self, space: SearchSpace, knobs: Knobs) -> bool:
        """Whether a setting is in scope."""
        return space.knobs(self.narrow(space, space.to_point(knobs))) == space.knobs(space.to_point(knobs))

    def regret(self, space: SearchSpace, gains: Mapping[Knobs, float]) -> float:
        """Return how much better the best of measured gains is than the best of those in scope."""
        inside = [gain for knobs, gain in gains.items() if self.holds(space, knobs)]
        return max(gains.values(), default=1.0) - max(inside, default=1.0)

    def jsonable(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        ranges = {name: list(ends) for name, ends in self.ranges.items()}
        return {"held": dict(self.held), "ranges": ranges, "reasons": dict(self.reasons)}


def what_if(
    graph: Graph, model: Model, encoding: Encoding, summary: Summary, measured: Sequence[Knobs]
) -> Scope:
    """Ask of each axis what other values of it would do.

    Args:
        graph: What acts on what.
        model: What settings cost.
        encoding: Of the search space.
        summary: The situation.
        measured: The settings measured on it, best first.
    """
    held: dict[str, AxisValue] = {}
    ranges: dict[str, tuple[float, float]] = {}
    reasons: dict[str, str] = {}
    for axis in encoding.space.axes:
        reason = _doubt(axis, graph, encoding, measured)
        predicted = _other_values(axis, model, encoding, summary, measured[:_BEST])
        if reason is None:
            bound = _effect_bound(predicted)
            reason = f"another value may gain {100 * bound:.1f} %"
            if bound < EFFECT_MAX:
                held[axis.name] = encoding.space.to_point(measured[0])[axis.name]
                reason = f"held: no path, and no value gains more than {100 * max(bound, 0):.2f} %"
        part = _good_part(axis, graph, encoding, predicted)
        if part is not None:
            ranges[axis.name] = part
            reason = f"halved to {part[0]:.2f} .. {part[1]:.2f}: beyond, all it acts on gets worse"
        reasons[axis.name] = reason
    return Scope(held, ranges, reasons)


@dataclass(frozen=True)
class _Others:
    """What other values of one axis would do to one of the best settings; row 0 is that setting itself."""

    units: list[float]
    active: bool
    predicted: Prediction


def _doubt(axis: Axis, graph: Graph, encoding: Encoding, measured: Sequence[Knobs]) -> str | None:
    """Return why an axis is not even considered to be held, None if it is."""
    paths = _paths(axis, graph)
    if paths:
        return f"path {' -> '.join(paths[0])}"
    if axis.name in encoding.gates:
        return "others depend on it"
    space = encoding.space
    active = [encoding.counts(knobs, axis) for knobs in measured]
    if not any(active[:_BEST]):
        return "makes no difference to the best settings"
    points = [space.to_point(knobs) for knobs, counts in zip(measured, active, strict=True) if counts]
    values = [point[axis.name] for point in points]
    varied = len(values) - max(map(values.count, set(values)))
    return f"varied only {varied} times" if varied < VARIED_MIN else None


def _paths(axis: Axis, graph: Graph) -> list[tuple[str, ...]]:
    return [path.nodes for path in graph.paths(axis.name) if path.frequency >= PATH_MIN]


def _other_values(
    axis: Axis, model: Model, encoding: Encoding, summary: Summary, best: Sequence[Knobs]
) -> list[_Others]:
    space, found = encoding.space, []
    values = list(axis.choices) if axis.scale == "choice" else [axis.decode(unit) for unit in _LEVELS]
    for knobs in best:
        point = space.to_point(knobs)
        others = [space.knobs({**point, axis.name: value}) for value in values]
        units = [axis.encode(value) for value in (point[axis.name], *values)]
        predicted = model.predict(encoding.rows([knobs, *others]), summary)
        found.append(_Others(units, encoding.counts(knobs, axis), predicted))
    return found


def _effect_bound(others: Sequence[_Others]) -> float:
    """Return the upper 90 % quantile over members of the most that any value gains on the best settings."""
    most = [one.predicted.member_gains().max(axis=1) - 1.0 for one in others]
    return float(np.quantile(np.max(most, axis=0), _UPPER))


def _good_part(
    axis: Axis, graph: Graph, encoding: Encoding, others: Sequence[_Others]
) -> tuple[float, float] | None:
    """Return the half of an ordered axis that is left if, on the other side, all it acts on gets worse.

    The best settings stay in it. None if there is no such side, or if there are two.
    """
    reached = {path[1] for path in _paths(axis, graph)}
    if axis.scale == "choice" or axis.name in encoding.gates or not reached:
        return None
    worse: dict[bool, list[np.bool_]] = {False: [], True: []}
    for one in (one for one in others if one.active):
        for at, unit in enumerate(one.units[1:], 1):
            if abs(unit - one.units[0]) > _SAME:
                for name in sorted(reached & set(one.predicted.parts)):
                    part = one.predicted.parts[name]
                    worse[unit > one.units[0]].extend(part[:, at] > part[:, 0])
    bad = [above for above, votes in worse.items() if votes and np.mean(votes) >= _AGREED]
    places = [one.units[0] for one in others if one.active]
    if len(bad) != 1:
        return None
    return (0.0, max(0.5, *places)) if bad[0] else (min(0.5, *places), 1.0)
