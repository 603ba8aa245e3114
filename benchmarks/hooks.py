"""Tiresias as a user would write it: an order in plain Python."""

from __future__ import annotations

from bisect import bisect_right
from typing import ClassVar

from trimtab.job import JobView
from trimtab.knobs import Knobs
from trimtab.policies.policy import QueuePolicy

THRESHOLDS_GPU_MS = (3_600_000,)


class HookTiresias(QueuePolicy):
    """The built-in's default thresholds, with `in_queue_order=submit`: the same schedules."""

    name: ClassVar[str] = "hook-tiresias"
    preemptive: ClassVar[bool] = True
    levels: ClassVar[int] = len(THRESHOLDS_GPU_MS) + 1

    def level(self, job: JobView, knobs: Knobs) -> int:
        return bisect_right(THRESHOLDS_GPU_MS, job.attained_gpu_ms())

    def next_change_ms(self, job: JobView, knobs: Knobs) -> int | None:
        attained = job.attained_gpu_ms()
        level = bisect_right(THRESHOLDS_GPU_MS, attained)
        if level == len(THRESHOLDS_GPU_MS):
            return None
        return -(-(THRESHOLDS_GPU_MS[level] - attained) // job.gpus)
