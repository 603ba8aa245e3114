"""Earliest deadline first: the classic order of jobs with deadlines, best effort behind them."""

from __future__ import annotations

from typing import Any, ClassVar

from trimtab.job import JobFacts, JobView
from trimtab.knobs import Knob, Knobs, Space, Value
from trimtab.policies.policy import BACKFILL, MIN_RUN, Key, Plan, QueuePolicy

NEVER_MS = 1 << 62  # later than any deadline


def due_ms(facts: JobFacts) -> int:
    """Return the deadline a job is queued by: the first that was still to come when it was submitted.

    Where all have passed by then it is the last one; best effort has `NEVER_MS`.
    """
    deadlines_ms = facts.service.deadlines_ms
    if facts.service.kind == "best" or not deadlines_ms:
        return NEVER_MS
    return next((at_ms for at_ms in deadlines_ms if at_ms > facts.submit_ms), deadlines_ms[-1])


def _due(job: JobView, now_ms: int) -> Key:
    return due_ms(job.facts)


def _settle(values: dict[str, Any]) -> dict[str, Value]:
    """Without preemption nobody needs to be safe from it."""
    if not values["preemption"]:
        values["min_run"] = MIN_RUN.default
    return values


class Edf(QueuePolicy):
    """Order (deadline, submit, id), best effort last; preemptive if asked to be.

    A job that can no longer make its deadline keeps its place: under overload one late job makes the next
    late. This is the baseline that deadline-aware policies are measured against.
    """

    name: ClassVar[str] = "edf"
    space: ClassVar[Space] = Space(
        (
            BACKFILL,
            Knob(
                name="preemption",
                kind="bool",
                default=False,
                trades="on: urgent jobs start at once, others are interrupted and pay for it",
                takes_effect="next pass",
                in_flight="on: running jobs may lose their GPUs to more urgent ones; off: nobody does",
            ),
            MIN_RUN,
        ),
        settle=_settle,
    )

    def plan(self, knobs: Knobs, completed_gpu_ms: tuple[int, ...] = ()) -> Plan:
        return Plan(
            preemptive=bool(knobs["preemption"]),
            strict=knobs.choice("backfill") == "strict",
            key=_due,
            min_run_ms=knobs.integer("min_run") * 1000,
        )
