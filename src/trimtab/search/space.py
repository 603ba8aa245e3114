"""What a search varies: a few axes, and the way from a point on them to legal knobs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from trimtab.knobs import Knobs, Space, Value

Scale = Literal["int", "linear", "log", "choice"]
AxisValue = int | float | str | bool


@dataclass(frozen=True, slots=True)
class Axis:
    """One direction of the search.

    `int` and `log` axes map the unit interval to low .. high; `steps` > 0 puts a lattice of that many
    equal steps on it (an `int` axis has high - low). A `choice` axis is unordered: samplers treat
    binary and unordered knobs as categories, never as numbers.
    """

    name: str
    scale: Scale
    low: float = 0
    high: float = 1
    choices: tuple[AxisValue, ...] = ()
    steps: int = 0

    @property
    def lattice(self) -> int:
        """Steps between the first and the last value; 0 if continuous, or if they are the same."""
        return int(self.high - self.low) if self.scale == "int" or self.low == self.high else self.steps

    def decode(self, unit: float) -> AxisValue:
        """Return the value at `unit`, clipped to [0, 1]; a lattice takes the nearest point, half to even."""
        unit = min(max(unit, 0.0), 1.0)
        if self.scale == "choice":
            return self.choices[min(int(unit * len(self.choices)), len(self.choices) - 1)]
        if self.lattice:
            unit = round(unit * self.lattice) / self.lattice
        if self.scale == "int":
            return int(self.low) + round(unit * self.lattice)
        if unit in (0, 1):
            return float(self.high if unit else self.low)  # the ends exactly
        if self.scale == "log":
            value = math.exp(math.log(self.low) + unit * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + unit * (self.high - self.low)
        return float(min(max(value, self.low), self.high))

    def encode(self, value: AxisValue) -> float:
        """Return where a value lies in [0, 1]: outside, the nearest end; an unknown choice, the first."""
        if self.scale == "choice":
            place = self.choices.index(value) if value in self.choices else 0
            return (place + 0.5) / len(self.choices)
        if self.low == self.high:
            return 0.0
        assert isinstance(value, int | float)
        clipped = min(max(float(value), self.low), self.high)
        if self.scale == "log":
            return math.log(clipped / self.low) / math.log(self.high / self.low)
        return (clipped - self.low) / (self.high - self.low)

    def values(self) -> list[AxisValue] | None:
        """Return every value, or None for a continuous axis."""
        if self.scale == "choice":
            return list(self.choices)
        if self.lattice:
            return [self.decode(step / self.lattice) for step in range(self.lattice + 1)]
        return [self.decode(0.0)] if self.low == self.high else None


Point = Mapping[str, AxisValue]


@dataclass(frozen=True)
class SearchSpace:
    """The axes of a policy's search and what a point on them means.

    Attributes:
        axes: The directions, in order.
        space: The policy's knobs.
        to_values: Point -> knob values (not yet legal); projection does the rest.
        to_point: Knobs -> the nearest point, where a search starts.
        base: Knobs the search leaves as they are.
    """

    axes: tuple[Axis, ...]
    space: Space
    to_values: Callable[[Point], Mapping[str, Value]]
    to_point: Callable[[Knobs], Point]
    base: Knobs

    def knobs(self, point: Point) -> Knobs:
        """Return the legal, canonical knobs of a point."""
        return self.space.project({**self.base, **self.to_values(point)})

    def moved(self, point: Point, knobs: Knobs) -> dict[str, AxisValue]:
        """Return the axes in which a setting is not what was proposed, with what they became."""
        legal = self.to_point(knobs)
        return {name: legal[name] for name, value in point.items() if legal[name] != value}

    def enumerate(self, limit: int) -> list[Knobs] | None:
        """Return all distinct settings in axis order, or None if there are `limit` or more of them."""
        columns = [axis.values() for axis in self.axes]
        if any(column is None for column in columns):
            return None
        if math.prod(len(column) for column in columns if column is not None) > 50 * limit:
            return None
        found = dict.fromkeys(self.knobs(point) for point in self._grid(columns))
        return list(found) if len(found) < limit else None

    def _grid(self, columns: list[list[AxisValue] | None]) -> Iterator[Point]:
        names = [axis.name for axis in self.axes]
        for values in itertools.product(*(column or [] for column in columns)):
            yield dict(zip(names, values, strict=True))
