"""Shortest first: SJF and QSSF without preemption, SRTF and SRSF with it. All read estimates."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from trimtab.curve import FULL_SPEED_PPM
from trimtab.job import JobView
from trimtab.knobs import Knob, Knobs, Space
from trimtab.policies.policy import BACKFILL, MIN_RUN, Key, Plan, QueuePolicy


def _estimate_ms(job: JobView) -> int:
    assert job.estimate_ms is not None
    return job.estimate_ms


def _whole(job: JobView, now_ms: int) -> Key:
    return _estimate_ms(job)


def _whole_service(job: JobView, now_ms: int) -> Key:
    return _estimate_ms(job) * job.member_gpus


class Sjf(QueuePolicy):
    """Order (estimated run time, submit, id), not preemptive."""

    name: ClassVar[str] = "sjf"
    space: ClassVar[Space] = Space((BACKFILL,))

    def plan(self, knobs: Knobs, completed_gpu_ms: tuple[int, ...] = ()) -> Plan:
        return Plan(
            strict=knobs.choice("backfill") == "strict",
            key=_whole,
            needs_estimates=True,
        )


class Qssf(QueuePolicy):
    """Quasi-shortest service first [Hu et al., SC'21]: estimate x GPUs, fixed when a job is queued."""

    name: ClassVar[str] = "qssf"
    space: ClassVar[Space] = Space(
        (
            BACKFILL,
            Knob(
                name="alpha",
                kind="fraction",
                default=0.1,
                low=0,
                high=1,
                trades="weight of the user's own history against the learned model in predicted estimates",
                takes_effect="new arrivals",
                in_flight="queued jobs keep their estimate unless rescore is on",
            ),
            Knob(
                name="retrain_period",
                kind="int",
                default=86_400,
                low=3600,
                high=2_592_000,
                unit="s",
                trades="shorter: fresher estimates, more training",
                takes_effect="next arrival",
                in_flight="untouched",
            ),
            Knob(
                name="rescore",
                kind="bool",
                default=False,
                trades="on: queued jobs are estimated anew after each retraining",
                takes_effect="immediate",
                in_flight="queued jobs may change places",
            ),
        )
    )

    def plan(self, knobs: Knobs, completed_gpu_ms: tuple[int, ...] = ()) -> Plan:
        return Plan(
            strict=knobs.choice("backfill") == "strict",
            key=_whole_service,
            needs_estimates=True,
            history_weight=knobs.fraction("alpha"),
            retrain_ms=knobs.integer("retrain_period") * 1000,
            rescore=bool(knobs["rescore"]),
        )


_REMAINING_SPACE = Space(
    (
        MIN_RUN,
        Knob(
            name="rem_counts_overhead",
            kind="bool",
            default=False,
            trades="on: unpaid restart cost counts as remaining time",
            takes_effect="next pass",
            in_flight="may preempt",
        ),
    )
)


def _remaining_plan(knobs: Knobs, weigh: Callable[[JobView], int]) -> Plan:
    """Return the plan of a preemptive order by `weigh` x estimated remaining time."""
    counts_overhead = bool(knobs["rem_counts_overhead"])

    def key(job: JobView, now_ms: int) -> Key:
        left = job.remaining(now_ms)
        if counts_overhead:
            left += job.unpaid_overhead_ms(now_ms) * FULL_SPEED_PPM
        return left * weigh(job)

    return Plan(
        preemptive=True,
        key=key,
        min_run_ms=knobs.integer("min_run") * 1000,
        needs_estimates=True,
    )


class Srtf(QueuePolicy):
    """Order (estimated remaining time, submit, id), preemptive, greedy with skip."""

    name: ClassVar[str] = "srtf"
    space: ClassVar[Space] = _REMAINING_SPACE
    preemptive: ClassVar[bool] = True

    def plan(self, knobs: Knobs, completed_gpu_ms: tuple[int, ...] = ()) -> Plan:
        return _remaining_plan(knobs, lambda job: 1)


class Srsf(QueuePolicy):
    """Order (estimated remaining time x GPUs, submit, id), preemptive, greedy with skip."""

    name: ClassVar[str] = "srsf"
    space: ClassVar[Space] = _REMAINING_SPACE
    preemptive: ClassVar[bool] = True

    def plan(self, knobs: Knobs, completed_gpu_ms: tuple[int, ...] = ()) -> Plan:
        return _remaining_plan(knobs, lambda job: job.member_gpus)
