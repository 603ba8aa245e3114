"""FIFO: in order of arrival."""

from __future__ import annotations

from typing import ClassVar

from trimtab.job import JobView
from trimtab.knobs import Knob, Knobs, Space
from trimtab.policies.policy import Key, Plan, QueuePolicy, graded_change_ms, graded_level


def backfill(default: str) -> Knob:
    """Return the knob that says whether the first job that does not fit blocks those behind it."""
    return Knob(
        name="backfill",
        kind="choice",
        default=default,
        choices=("strict", "skip"),
        trades="skip: fuller GPUs, wide gangs may starve",
        takes_effect="next pass",
        in_flight="untouched",
    )


def _arrival(job: JobView, now_ms: int) -> Key:
    return job.id


class Fifo(QueuePolicy):
    """Order (submit, id), not preemptive."""

    name: ClassVar[str] = "fifo"
    space: ClassVar[Space] = Space((backfill("strict"),))

    def plan(self, knobs: Knobs, completed_gpu_ms: tuple[int, ...] = ()) -> Plan:
        return Plan(
            strict=knobs.choice("backfill") == "strict",
            key=_arrival,
            level=graded_level,
            next_change_ms=graded_change_ms,
        )
