"""A stand-in for a model of Slurm: an order by arrival, or with much weight on the partition by width."""

from __future__ import annotations

from typing import Any, ClassVar

from trimtab.job import JobView
from trimtab.knobs import Knob, Knobs, Space
from trimtab.policies.policy import Key, Plan, QueuePolicy

_TEXTS: dict[str, Any] = {"trades": "nothing", "takes_effect": "next pass", "in_flight": "nothing"}


def _arrival(job: JobView, now_ms: int) -> Key:
    return job.id


def _narrow_first(job: JobView, now_ms: int) -> Key:
    return job.gpus * 1_000_000 + job.id


def _number(name: str, default: int, low: int, high: int, unit: str = "") -> Knob:
    return Knob(name=name, kind="int", default=default, low=low, high=high, unit=unit, **_TEXTS)


class Weights(QueuePolicy):
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

    def plan(self, knobs: Knobs, completed_gpu_ms: tuple[int, ...] = ()) -> Plan:
        return Plan(
            strict=True, key=_narrow_first if knobs.integer("PriorityWeightPartition") > 2000 else _arrival
        )


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
