"""The surrogate sampler: predict thousands of settings, simulate the few from which most is to be expected.

What is known beforehand (a model of other hours, or nothing) gives a first guess of each log gain. What this
search has measured corrects it: the differences are taken for a Gaussian process over the places of settings
on their axes, so that near a measured setting the measurement counts and far from all the first guess does.
Candidates are scattered points, and steps away from the best settings measured. The next one is that of the
greatest expected improvement [Jones, Schonlau and Welch, JOGO'98]; some are left to chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.knobs import Knobs
from trimtab.search.sampler import Desk, Ticket, random_points, sobol_points
from trimtab.search.samples import Encoding, Matrix, Vector
from trimtab.search.space import Axis, AxisValue, Point, SearchSpace
from trimtab.world import Seeds

Guess = Callable[[Sequence[Knobs]], Vector]  # settings -> log gains over the running one

SCATTERED = 2000
BATCH = 5  # the last of them by chance
_STEPS = 300  # candidates near the best, drawn anew for each batch
_LEADERS = 5
_STEP_SIZES = (0.03, 0.1, 0.3)
_LENGTHS = (0.15, 0.4, 1.0, 2.5)
_NOISES = (0.001, 0.01, 0.1)
_FEW = 5  # gains from which a first guess can be corrected
_OUTLIER = 3.0  # standard deviations: how bad a bad setting is teaches nothing about good ones
_FLOOR = 1e-9


class SurrogateSampler:
    """Proposes what a guess, corrected by all gains known so far, says may be better than the best.

    Args:
        space: Where to look.
        seeds: Random streams.
        known: Gains measured before the first `ask`.
        guess: What is known beforehand; None to learn from this search alone.
    """

    def __init__(
        self, space: SearchSpace, seeds: Seeds, known: Mapping[Knobs, float], guess: Guess | None = None
    ) -> None:
        self._space, self._guess = space, guess
        self._encoding = Encoding(space)
        self._gains: dict[Knobs, float] = dict(known)
        self._tried = set(known)
        self._dice = seeds.stream("sampler", "surrogate")
        self._opening = sobol_points(space, seeds, "surrogate")
        self._scattered = self._scatter(random_points(space, self._dice))
        self._desk = Desk()

    def ask(self) -> list[Ticket]:
        """Return the settings to evaluate next; see `Sampler`."""
        if not self._desk.open and self._space.axes:
            few = len(self._gains) < (_FEW if self._guess else len(self._space.axes) + 4)
            for point, purpose in self._spread() if few else self._proposals():
                self._tried.add(self._space.knobs(point))
                self._desk.issue(point, purpose)
        return list(self._desk.open.values())

    def tell(self, results: Mapping[int, float | None]) -> None:
        """Take gains; a missing one teaches nothing, and the setting is not proposed again."""
        points = {number: ticket.point for number, ticket in self._desk.open.items()}
        self._desk.close(results)
        for number, gain in results.items():
            if gain is not None and math.isfinite(gain) and gain > 0:
                self._gains[self._space.knobs(points[number])] = gain

    def _scatter(self, points: Iterator[Point]) -> dict[Knobs, Point]:
        drawn = (next(points) for _ in range(SCATTERED if self._space.axes else 0))
        return {self._space.knobs(point): point for point in drawn}

    def _spread(self) -> list[tuple[Point, str]]:
        """Return points of a Sobol sequence, while too little is known to predict anything."""
        points = (next(self._opening) for _ in range(10 * BATCH))
        fresh = {self._space.knobs(point): point for point in points}
        return [(point, "sobol") for knobs, point in fresh.items() if knobs not in self._tried][:BATCH]

    def _proposals(self) -> list[tuple[Point, str]]:
        candidates = {**self._scattered, **self._near_the_best()}
        fresh = {knobs: point for knobs, point in candidates.items() if knobs not in self._tried}
        if not fresh:
            return []
        settings = list(fresh)
        chosen = self._choose(settings, min(BATCH - 1, len(settings)))
        proposed = [(fresh[settings[at]], "proposed") for at in chosen]
        left = [at for at in range(len(settings)) if at not in chosen]
        if left:
            proposed.append((fresh[settings[self._dice.choice(left)]], "random"))
        return proposed

    def _near_the_best(self) -> dict[Knobs, Point]:
        best = sorted(self._gains, key=lambda knobs: -self._gains[knobs])[:_LEADERS]
        starts = [self._space.to_point(knobs) for knobs in best]
        points = (self._step(starts[self._dice.integers(len(starts))]) for _ in range(_STEPS))
        return {self._space.knobs(point): point for point in points}

    def _step(self, point: Point) -> Point:
        """Change one axis, at times two or three."""
        count = min(1 + self._dice.binomial(2, 0.35), len(self._space.axes))
        axes = self._dice.choice(len(self._space.axes), size=count, replace=False)
        return {
            **point,
            **{self._space.axes[at].name: self._moved(self._space.axes[at], point) for at in axes},
        }

    def _moved(self, axis: Axis, point: Point) -> AxisValue:
        if axis.scale == "choice":
            return axis.choices[self._dice.integers(len(axis.choices))]
        size = max(float(self._dice.choice(_STEP_SIZES)), 1 / axis.lattice if axis.lattice else 0.0)
        return axis.decode(axis.encode(point[axis.name]) + size * self._dice.standard_normal())

    def _choose(self, settings: Sequence[Knobs], count: int) -> list[int]:
        """Return the most promising settings; each one chosen is taken to be as predicted for the next."""
        known = list(self._gains)
        logs = np.log([self._gains[knobs] for knobs in known])
        here, there = (self._places(some) for some in (known, settings))
        prior = np.zeros(len(known) + len(settings))
        if self._guess is not None:
            prior = self._guess([*known, *settings])
        field = Field.fit(here, logs - prior[: len(known)])
        ahead, best, chosen = prior[len(known) :], float(logs.max()), list[int]()
        for _ in range(count):
            mean, deviation = field.at(there)
            expected = _improvement(mean + ahead - best, deviation)
            expected[chosen] = -1.0
            chosen.append(int(np.argmax(expected)))
            field = field.believing(there[chosen[-1]], float(mean[chosen[-1]]))
        return chosen

    def _places(self, settings: Sequence[Knobs]) -> Matrix:
        """Return where settings lie; an inactive axis in its middle."""
        rows = self._encoding.rows(settings)
        return np.where(np.isnan(rows), 0.5, rows)


def _improvement(lead: Vector, deviation: Vector) -> Vector:
    """Return what is expected beyond the best, of values so far ahead of it and so uncertain."""
    from scipy.special import ndtr

    ratio = lead / deviation
    density = np.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi)
    return np.asarray(lead * ndtr(ratio) + deviation * density)


@dataclass(frozen=True)
class Field:
    """A Gaussian process with a Matern 5/2 kernel, conditioned on values at places.

    Attributes:
        places: Shape (rows, columns). values: Standardised; shape (rows,).
        lengths: How far a value reaches, by column. noise: Variance of a value beside the field's.
        level, scale: What turns standardised values into the original ones.
        variance: Of the field, standardised.
    """

    places: Matrix
    values: Vector
    lengths: Vector
    noise: float
    level: float
    scale: float
    variance: float

    @classmethod
    def fit(cls, places: Matrix, values: Vector) -> Field:
        """Choose lengths and noise by likelihood: one length for all columns first, then each by itself."""
        level, scale = float(np.median(values)), float(values.std()) + _FLOOR
        scaled = np.clip((values - level) / scale, -_OUTLIER, _OUTLIER)
        columns = places.shape[1]
        tried = [(np.full(columns, length), noise) for length in _LENGTHS for noise in _NOISES]
        lengths, noise = max(tried, key=lambda one: _likelihood(places, scaled, *one))
        best = _likelihood(places, scaled, lengths, noise)
        for column in range(columns):
            for factor in (0.4, 2.5):
                other = lengths.copy()
                other[column] *= factor
                likelihood = _likelihood(places, scaled, other, noise)
                if likelihood > best:
                    best, lengths = likelihood, other
        weights = np.linalg.solve(_covariance(places, lengths, noise), scaled)
        variance = max(float(scaled @ weights) / len(scaled), _FLOOR)
        return cls(places, scaled, lengths, noise, level, scale, variance)

    def at(self, places: Matrix) -> tuple[Vector, Vector]:
        """Return mean and standard deviation of the field at places; shape (rows,) each."""
        across = _matern(places, self.places, self.lengths)
        inverse = np.linalg.inv(_covariance(self.places, self.lengths, self.noise))
        left = 1 - np.einsum("ij,jk,ik->i", across, inverse, across, optimize=True)
        deviation = self.scale * np.sqrt(self.variance * np.maximum(left, _FLOOR))
        return self.level + self.scale * (across @ (inverse @ self.values)), deviation

    def believing(self, place: Vector, value: float) -> Field:
        """Return the field as if a value had been seen at a place."""
        values = np.append(self.values, (value - self.level) / self.scale)
        return Field(
            np.vstack([self.places, place]),
            values,
            self.lengths,
            self.noise,
            self.level,
            self.scale,
            self.variance,
        )


def _matern(one: Matrix, other: Matrix, lengths: Vector) -> Matrix:
    one, other = one / lengths, other / lengths
    squares = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1) - 2 * one @ other.T
    far = np.sqrt(5 * np.maximum(squares, 0.0))
    return np.asarray((1 + far + far**2 / 3) * np.exp(-far))


def _covariance(places: Matrix, lengths: Vector, noise: float) -> Matrix:
    return _matern(places, places, lengths) + noise * np.eye(len(places))


def _likelihood(places: Matrix, values: Vector, lengths: Vector, noise: float) -> float:
    """Return the log likelihood at the best variance; unusual lengths have to earn it."""
    root = np.linalg.cholesky(_covariance(places, lengths, noise))
    solved = np.linalg.solve(root, values)
    variance = max(float(solved @ solved) / len(values), _FLOOR)
    unusual = float((np.log(lengths / 0.6) ** 2).sum()) / 8
    return -len(values) / 2 * math.log(variance) - float(np.log(np.diag(root)).sum()) - unusual
