"""FIFO: in order of arrival."""

from __future__ import annotations

from typing import ClassVar

from trimtab.job import JobView
from trimtab.knobs import Knobs, Space
from trimtab.policies.policy import BACKFILL, Key, Plan, QueuePolicy


def _arrival(job: JobView, now_ms: int) -> Key:
    return job.id


class Fifo(QueuePolicy):
    """Order (submit, id), not preemptive."""

    name: ClassVar[str] = "fifo"
    space: ClassVar[Space] = Space((BACKFILL,))

    def plan(self, knobs: Knobs, completed_gpu_ms: tuple[int, ...] = ()) -> Plan:
        return Plan(
            strict=knobs.choice("backfill") == "strict",
            key=_arrival,
        )
