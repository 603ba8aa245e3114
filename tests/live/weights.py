"""A stand-in for a model of Slurm: an order by arrival, and Slurm's settings as knobs it does not look at."""

from __future__ import annotations

from typing import Any, ClassVar

from trimtab.knobs import Knob, Space
from trimtab.policies.fifo import Fifo

_TEXTS: dict[str, Any] = {"trades": "nothing", "takes_effect": "next pass", "in_flight": "nothing"}


def _number(name: str, default: int, low: int, high: int, unit: str = "") -> Knob:
    return Knob(name=name, kind="int", default=default, low=low, high=high, unit=unit, **_TEXTS)


class Weights(Fifo):
    """Slurm's settings, bounded as a model would bound them."""

    name: ClassVar[str] = "weights"
    space: ClassVar[Space] = Space(
        (
            _number("bf_interval", 30, 1, 600, "s"),
            _number("bf_window", 1440, 1, 43_200, "min"),
            _number("bf_max_job_user", 0, 0, 1000),
            Knob(name="bf_continue", kind="bool", default=False, **_TEXTS),
            _number("PriorityWeightAge", 1000, 0, 100_000),
            _number("PriorityWeightJobSize", 500, 0, 100_000),
            _number("PriorityWeightPartition", 1000, 0, 100_000),
            _number("PriorityMaxAge", 1440, 1, 20_160, "min"),
            Knob(name="PriorityFavorSmall", kind="bool", default=False, **_TEXTS),
        )
    )

    def plan(self, knobs: Any, completed_gpu_ms: tuple[int, ...] = ()) -> Any:
        return super().plan(Fifo.space.defaults, completed_gpu_ms)


class Bold(Weights):
    """The same with bounds that no Slurm would like."""

    name: ClassVar[str] = "bold"
    space: ClassVar[Space] = Space(
        tuple(
            knob
            if knob.kind == "bool"
            else Knob(name=knob.name, kind="int", default=knob.default, low=-(10**9), high=10**12, **_TEXTS)
            for knob in Weights.space.knobs
        )
    )
