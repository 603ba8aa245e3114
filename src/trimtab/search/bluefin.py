"""BlueFin's arithmetic: gradient ascent from one or two rewards, and exponential weights for categories.

The centre lives in the unit cube. A proposal is the centre plus (and minus) `delta` times a random unit
vector; its rewards estimate the gradient, an optimiser turns that into a step, and the new centre is clipped
to [delta, 1 - delta]. There is no decay: in the original it overwrites `delta` and can leave the cube.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
_TINY = 1e-8  # keeps RMSprop's first step finite where the gradient is 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BlueFinPreset:
    """How a BlueFin moves."""

    points: Literal[1, 2] = 2  # rewards per update: both ends of a direction, or only its head
    eta: float = 0.05  # step size
    delta: float = 0.3  # exploration radius, as a share of each axis; at most a half
    optimiser: Literal["rmsprop", "sgd"] = "rmsprop"
    alpha: float = 0.9  # how much of the gradient's recent size RMSprop keeps
    baseline: bool = (
        False  # one point: subtract the running mean of rewards, which starts at the incumbent's 1
    )


PRESETS = {
    "bluefin": BlueFinPreset(),
    "bluefin_oppertune": BlueFinPreset(
        points=1, eta=0.01, delta=0.1, alpha=0.99
    ),  # as published: no baseline
}


class Ascent:
    """The numeric half: a centre that climbs the reward."""

    def __init__(self, preset: BlueFinPreset, start: Sequence[float]) -> None:
        self._preset = preset
        self.centre = self._inside(np.asarray(start, dtype=np.float64))
        self._square = np.zeros(len(start))
        self._rewards = [1.0]

    def proposals(self, direction: Vector, delta: float) -> list[Vector]:
        """Return the points to try, clipped to the cube: the plus end, then with two points the minus end."""
        signs = (1.0, -1.0)[: self._preset.points]
        return [np.clip(self.centre + sign * delta * direction, 0.0, 1.0) for sign in signs]

    def update(self, direction: Vector, delta: float, rewards: Sequence[float]) -> None:
        """Move the centre by the rewards of one direction's proposals, in their order."""
        gradient = self._slope(rewards) * len(direction) * direction / delta
        self.centre = self._inside(self.centre + self._step(gradient))
        self._rewards.extend(rewards)

    def _slope(self, rewards: Sequence[float]) -> float:
        if self._preset.points == 1:
            return rewards[0] - (float(np.mean(self._rewards)) if self._preset.baseline else 0.0)
        plus, minus = rewards
        largest = max(abs(plus), abs(minus))
        return (plus - minus) / largest / 2 if largest else 0.0

    def _step(self, gradient: Vector) -> Vector:
        if self._preset.optimiser == "sgd":
            return self._preset.eta * gradient
        alpha = self._preset.alpha
        self._square = alpha * self._square + (1 - alpha) * gradient**2
        return self._preset.eta * gradient / (np.sqrt(self._square) + _TINY)

    def _inside(self, point: Vector) -> Vector:
        return point.clip(self._preset.delta, 1 - self._preset.delta)


class ExponentialWeights:
    """The categorical half: one axis's categories, chosen more often the better they paid."""

    def __init__(self, count: int) -> None:
        self._logs = np.zeros(count)  # logarithms: a huge reward must not overflow
        self._round = 1
        self._scale = 1.0
        self._lowest = math.inf

    def weights(self) -> Vector:
        """Return what has been learnt, as shares that sum to 1."""
        raw = np.exp(self._logs - self._logs.max())
        return np.asarray(raw / raw.sum())

    def odds(self) -> Vector:
        """Return the chance of each category: the weights, mixed with a uniform share that shrinks."""
        count = len(self._logs)
        mix = min(1.0, math.sqrt(count / self._round))
        return (1 - mix) * self.weights() + mix / count

    def pick(self, dice: np.random.Generator) -> int:
        """Draw a category."""
        return int(dice.choice(len(self._logs), p=self.odds()))

    def update(self, picked: int, reward: float) -> None:
        """Reward the category that was tried, the more the less likely it was."""
        count = len(self._logs)
        rate = math.sqrt(math.log(count) / (count * self._round)) / self._scale
        self._logs[picked] += rate * reward / self.odds()[picked]
        self._lowest = min(self._lowest, reward)
        self._scale = max(1.0, abs(self._lowest))
        self._round += 1
