"""Optuna's samplers behind our ask and tell: tree-structured Parzen estimators and CMA-ES."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trimtab.errors import ConfigError
from trimtab.knobs import Knobs
from trimtab.search.sampler import Desk, Ticket, is_category
from trimtab.search.space import Axis, AxisValue, Point, SearchSpace
from trimtab.world import Seeds


class OptunaSampler:
    """`tpe` or `cma`, one point at a time.

    Ordered axes are searched by their place, unordered ones as categories, which CMA-ES leaves to chance.
    It begins with the gains that are known already.

    Raises:
        ConfigError: If Optuna, or the package its CMA-ES needs, is not installed.
    """

    def __init__(self, name: str, space: SearchSpace, seeds: Seeds, known: Mapping[Knobs, float]) -> None:
        _require(name)
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        seed = int(seeds.stream("sampler", name).integers(1 << 31))
        self._axes, self._desk = space.axes, Desk()
        self._study = optuna.create_study(direction="maximize", sampler=_make(name, seed))
        self._ranges = {axis.name: _range(axis) for axis in space.axes}
        self._open: dict[int, Any] = {}
        for knobs, gain in known.items():
            self._add(space.to_point(knobs), gain)

    def _add(self, point: Point, gain: float) -> None:
        import optuna

        places = {axis.name: _place(axis, point[axis.name]) for axis in self._axes}
        if places and math.isfinite(gain):
            self._study.add_trial(
                optuna.trial.create_trial(params=places, distributions=self._ranges, value=gain)
            )

    def ask(self) -> list[Ticket]:
        """Return the point to evaluate next; see `Sampler`."""
        if not self._desk.open and self._axes:
            trial = self._study.ask(self._ranges)
            point = {axis.name: _value(axis, trial.params[axis.name]) for axis in self._axes}
            self._open[self._desk.issue(point, "proposed").id] = trial
        return list(self._desk.open.values())

    def tell(self, results: Mapping[int, float | None]) -> None:
        """Take gains; a missing one is a failed trial of the study; see `Sampler`."""
        from optuna.trial import TrialState

        self._desk.close(results)
        for number, gain in results.items():
            if gain is None or not math.isfinite(gain):
                self._study.tell(self._open.pop(number), state=TrialState.FAIL)
            else:
                self._study.tell(self._open.pop(number), gain)


def _require(name: str) -> None:
    try:
        import optuna  # noqa: F401

        if name == "cma":
            import cmaes  # noqa: F401
    except ImportError as missing:
        raise ConfigError(
            f"sampler {name} needs {missing.name}; pip install 'trimtab[tune]'; nothing was run."
        ) from None


def _make(name: str, seed: int) -> Any:
    from optuna.samplers import CmaEsSampler, RandomSampler, TPESampler

    if name == "tpe":
        return TPESampler(seed=seed)
    chance = RandomSampler(seed=seed)
    return CmaEsSampler(seed=seed, independent_sampler=chance, warn_independent_sampling=False)


def _range(axis: Axis) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if is_category(axis):
        return CategoricalDistribution(axis.values() or [])
    return IntDistribution(0, axis.lattice) if axis.lattice else FloatDistribution(0.0, 1.0)


def _place(axis: Axis, value: AxisValue) -> Any:
    """Return where the study has a value; the nearest where the axis does not reach."""
    unit = axis.encode(value)
    if is_category(axis):
        return axis.decode(unit)
    return round(unit * axis.lattice) if axis.lattice else unit


def _value(axis: Axis, place: Any) -> AxisValue:
    if is_category(axis):
        return place  # type: ignore[no-any-return]
    return axis.decode(place / axis.lattice if axis.lattice else place)
