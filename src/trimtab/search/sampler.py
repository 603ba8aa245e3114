"""Samplers: which points of a search space to try next, by ask and tell.

`ask` returns tickets that may be evaluated together, `tell` brings back what each was worth. A sampler
depends on its seed and on what it was told, never on the order within a batch. Points are not yet legal:
`SearchSpace.knobs` projects them, and several points may mean the same knobs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trimtab.errors import InvariantError, UnknownName
from trimtab.knobs import Knobs
from trimtab.search.bluefin import PRESETS, Ascent, BlueFinPreset, ExponentialWeights, Vector
from trimtab.search.space import Axis, Point, SearchSpace
from trimtab.world import Seeds

_WIDENING = (1, 1, 1, 1, 1, 1, 2, 4, 8)  # a pair that means one setting: redraw it 5 times, then double delta
_DRAWS = 200  # draws without a new setting after which a space counts as exhausted


@dataclass(frozen=True, slots=True)
class Ticket:
    """One point to evaluate; `purpose` says why: `plus`, `minus`, `random`, `sobol` or `proposed`."""

    id: int
    point: Point
    purpose: str


class Sampler(Protocol):
    """Proposes points and learns from their gains."""

    def ask(self) -> list[Ticket]:
        """Return the next batch, whose tickets may be evaluated together; empty when there is nothing new.

        A sampler that learns returns what is left of its batch again until all of it has been told.
        """

    def tell(self, results: Mapping[int, float | None]) -> None:
        """Take gains by ticket id: about 1 like the incumbent, larger is better, None if there is none.

        A gain that is not finite counts as None. To let a model's value stand in for a rejected ticket,
        tell it as that ticket's gain.

        Raises:
            InvariantError: If a ticket was never handed out, or is told twice; nothing was learnt then.
        """


class Desk:
    """Numbers the tickets, and takes each of them back once."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self.open: dict[int, Ticket] = {}

    def issue(self, point: Point, purpose: str) -> Ticket:
        ticket = Ticket(next(self._numbers), point, purpose)
        self.open[ticket.id] = ticket
        return ticket

    def close(self, results: Mapping[int, float | None]) -> None:
        if unknown := sorted(results.keys() - self.open.keys()):
            raise InvariantError(f"ticket {unknown[0]} is not open; no gain was used.")
        for number in results:
            del self.open[number]


class _Listed:
    """Goes through points one by one, skipping settings it has proposed before; learns nothing."""

    def __init__(self, space: SearchSpace, points: Iterator[Point], purpose: str) -> None:
        self._points = _fresh(space, points, set())
        self._purpose = purpose
        self._desk = Desk()

    def ask(self) -> list[Ticket]:
        return [self._desk.issue(point, self._purpose) for point in itertools.islice(self._points, 1)]

    def tell(self, results: Mapping[int, float | None]) -> None:
        self._desk.close(results)


class RandomSampler(_Listed):
    """Independent uniform points."""

    def __init__(self, space: SearchSpace, seeds: Seeds) -> None:
        super().__init__(space, random_points(space, seeds.stream("sampler", "random")), "random")


class SobolSampler(_Listed):
    """A scrambled Sobol sequence: points that leave no large gap."""

    def __init__(self, space: SearchSpace, seeds: Seeds) -> None:
        super().__init__(space, sobol_points(space, seeds, "sobol"), "sobol")


class BlueFin:
    """Climbs along random directions (ordered axes) while weighing categories (the others).

    A batch is one direction. Its categories are drawn once, held for the whole batch, and rewarded with its
    mean gain. A batch with a missing gain is abandoned: nothing moves. A pair whose two ends still mean the
    same knobs after redrawing and widening becomes a single ticket, which teaches the categories only.
    """

    def __init__(self, space: SearchSpace, start: Knobs, seeds: Seeds, preset: BlueFinPreset) -> None:
        point = space.to_point(start)
        self._space, self._preset = space, preset
        self._ordered = [axis for axis in space.axes if not is_category(axis)]
        self._values = {axis.name: axis.values() or [] for axis in space.axes if is_category(axis)}
        self.weights = {name: ExponentialWeights(len(values)) for name, values in self._values.items()}
        self._ascent = Ascent(preset, [axis.encode(point[axis.name]) for axis in self._ordered])
        self._dice = seeds.stream("sampler", "bluefin")
        self._desk = Desk()
        self._direction, self._delta = np.zeros(0), preset.delta
        self._picked: dict[str, int] = {}
        self._gains: dict[int, float | None] = {}

    @property
    def centre(self) -> dict[str, float]:
        """Where the ascent stands: each ordered axis's place in [0, 1]."""
        return {axis.name: float(unit) for axis, unit in zip(self._ordered, self._ascent.centre, strict=True)}

    def ask(self) -> list[Ticket]:
        """Return the pair (or single point) to evaluate next; see `Sampler`."""
        if not self._desk.open and self._space.axes:
            self._picked = {name: table.pick(self._dice) for name, table in self.weights.items()}
            for point, purpose in zip(self._draw(), ("plus", "minus"), strict=False):
                self._desk.issue(point, purpose)
        return list(self._desk.open.values())

    def tell(self, results: Mapping[int, float | None]) -> None:
        """Take gains; the centre and the categories move once the batch is complete; see `Sampler`."""
        self._desk.close(results)
        self._gains |= results
        if self._gains and not self._desk.open:
            self._learn([gain for _, gain in sorted(self._gains.items())])
            self._gains = {}

    def _learn(self, told: list[float | None]) -> None:
        gains = [gain for gain in told if gain is not None and math.isfinite(gain)]
        if len(gains) < len(told):
            return
        if len(gains) == self._preset.points:
            self._ascent.update(self._direction, self._delta, gains)
        for name, table in self.weights.items():
            table.update(self._picked[name], float(np.mean(gains)))

    def _draw(self) -> list[Point]:
        """Choose a direction and radius whose ends mean different knobs; a single point if there is none."""
        for factor in _WIDENING:
            if factor == 1:
                direction = self._dice.standard_normal(len(self._ordered))
                self._direction = direction / np.linalg.norm(direction)
            self._delta = factor * self._preset.delta
            ends = self._ascent.proposals(self._direction, self._delta)
            points = [self._point(end) for end in ends]
            if len({self._space.knobs(point) for point in points}) == self._preset.points:
                return points
        return points[:1]

    def _point(self, unit: Vector) -> Point:
        point = {name: self._values[name][index] for name, index in self._picked.items()}
        return point | {
            axis.name: axis.decode(float(at)) for axis, at in zip(self._ordered, unit, strict=True)
        }


def is_category(axis: Axis) -> bool:
    """Whether an axis is searched as categories: it is unordered, or has no more than two values."""
    return axis.scale == "choice" or axis.lattice == 1 or axis.low == axis.high


def _at(axes: Sequence[Axis], unit: Vector) -> Point:
    """Return the point at `unit`, where each value of a lattice has an equal share of its axis."""
    steps = [axis.lattice for axis in axes]
    even = [min(int(at * (n + 1)), n) / n if n else float(at) for at, n in zip(unit, steps, strict=True)]
    return {axis.name: axis.decode(at) for axis, at in zip(axes, even, strict=True)}


def random_points(space: SearchSpace, dice: np.random.Generator) -> Iterator[Point]:
    """Yield independent uniform points without end."""
    return (_at(space.axes, dice.random(len(space.axes))) for _ in itertools.count())


def sobol_points(space: SearchSpace, seeds: Seeds, purpose: str) -> Iterator[Point]:
    """Yield a scrambled Sobol sequence without end, of the random stream of a purpose."""
    from scipy.stats import qmc  # here because importing it takes longer than many a simulation

    count = len(space.axes)
    sequence = qmc.Sobol(max(1, count), scramble=True, seed=seeds.stream("sampler", purpose))
    while True:
        yield _at(space.axes, sequence.random(1)[0, :count])


def _fresh(space: SearchSpace, points: Iterator[Point], seen: set[Knobs]) -> Iterator[Point]:
    """Yield the points whose knobs are not in `seen`, adding them; stop when none turns up."""
    misses = 0
    for point in points:
        knobs = space.knobs(point)
        misses = misses + 1 if knobs in seen else 0
        if misses >= _DRAWS:
            return
        if not misses:
            seen.add(knobs)
            yield point


def design(space: SearchSpace, count: int, seeds: Seeds, start: Knobs | None = None) -> list[Point]:
    """Return up to `count` points to measure before climbing, all with different knobs, none the start's.

    Corners come first (from the start, one ordered axis at a time to its low and its high end, which an
    ascent cannot reach), then a scrambled Sobol sequence. The start is `space.base` unless given.
    """
    begin = space.to_point(space.base if start is None else start)
    ordered = [axis for axis in space.axes if axis.scale != "choice"]
    corners = ({**begin, axis.name: axis.decode(end)} for axis in ordered for end in (0.0, 1.0))
    points = itertools.chain(corners, sobol_points(space, seeds, "design"))
    return list(itertools.islice(_fresh(space, points, {space.knobs(begin)}), count))


OPTUNA_SAMPLERS = ("tpe", "cma")
SURROGATE = "surrogate"
SAMPLERS = ("random", "sobol", *PRESETS, *OPTUNA_SAMPLERS, SURROGATE)


def make_sampler(
    name: str, space: SearchSpace, start: Knobs, seeds: Seeds, known: Mapping[Knobs, float] | None = None
) -> Sampler:
    """Return the sampler called `name`.

    Args:
        name: One of `SAMPLERS`.
        space: Where to look.
        start: Where one that climbs begins.
        seeds: Random streams.
        known: Gains measured already, for one that can learn from them (`tpe`, `surrogate`).

    Raises:
        UnknownName: If there is none of that name.
        ConfigError: If it needs a package that is not installed.
    """
    if name in OPTUNA_SAMPLERS:
        from trimtab.search.optuna_sampler import OptunaSampler  # here because it builds on this module

        return OptunaSampler(name, space, seeds, known or {start: 1.0})
    if name == SURROGATE:
        from trimtab.search.surrogate import SurrogateSampler  # for the same reason

        return SurrogateSampler(space, seeds, known or {start: 1.0})
    if name in PRESETS:
        return BlueFin(space, start, seeds, PRESETS[name])
    if name not in SAMPLERS:
        raise UnknownName("sampler", name, SAMPLERS)
    return RandomSampler(space, seeds) if name == "random" else SobolSampler(space, seeds)
