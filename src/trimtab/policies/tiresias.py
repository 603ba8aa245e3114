"""Tiresias: two-dimensional least attained service, discretised [Gu et al., NSDI'19].

Jobs sink through K queues as they attain GPU time; upper queues may take GPUs from lower ones.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from trimtab.curve import FULL_SPEED_PPM
from trimtab.job import JobView
from trimtab.knobs import Knob, Knobs, Space, Value
from trimtab.policies.policy import MIN_RUN, Key, Plan, QueuePolicy, graded_change_ms, ppm

# Largest tensor as a share of all tensors, from the models' published layer shapes; parts per million.
MODEL_SKEW_PPM: Mapping[str, int] = {
    "vgg11": 774_000,
    "vgg16": 744_000,
    "vgg19": 717_000,
    "alexnet": 611_000,
    "inception3": 138_000,
    "resnet50": 112_000,
    "resnet101": 75_000,
    "resnet152": 60_000,
    "inception4": 44_000,
}

THRESHOLD_RATIO_MIN = 1.1
THRESHOLD_MIN_GPU_S, THRESHOLD_MAX_GPU_S = 60, 1_000_000
GITTINS_REFRESH_MS = 3_600_000
_GITTINS_POINTS = 64


def _settle(values: dict[str, Any]) -> dict[str, Value]:
    """Give the thresholds the right number and spacing, and inert knobs their default."""
    thresholds: tuple[int, ...] = values["queue_thresholds"]
    values["queue_thresholds"] = _spaced(thresholds, values["num_queues"] - 1)
    values["num_queues"] = len(values["queue_thresholds"]) + 1
    if values["num_queues"] == 1:
        values["promote_knob"], values["regrade"] = math.inf, "immediate"
    if math.isinf(values["promote_knob"]):
        values["starve_mode"] = "ratio"
    if values["priority"] != "las":
        values["in_queue_order"] = "sim_tail"
    return values


def _imply(values: dict[str, Value]) -> dict[str, Value]:
    """Thresholds without a number of queues say it themselves."""
    thresholds = values.get("queue_thresholds")
    if isinstance(thresholds, tuple) and "num_queues" not in values:
        values["num_queues"] = len(thresholds) + 1
    return values


def _spaced(thresholds: Sequence[int], count: int) -> tuple[int, ...]:
    """Return `count` thresholds, each at least 1.1 times the one before, as near to the given as fits.

    Missing ones continue with the ratio of the last two (10 where there is one), or a smaller one that
    stays below the ceiling; what is pushed above it is left out.
    """
    found: list[int] = []
    for threshold in thresholds[:count]:
        lowest = math.ceil(found[-1] * THRESHOLD_RATIO_MIN) if found else THRESHOLD_MIN_GPU_S
        found.append(max(threshold, lowest))
    if not found and count:
        found.append(3600)
    missing = count - len(found)
    if missing > 0:
        fits = (THRESHOLD_MAX_GPU_S / found[-1]) ** (1 / missing)
        ratio = min(found[-1] / found[-2] if len(found) > 1 else 10.0, fits)
        for _ in range(missing):
            found.append(max(int(found[-1] * ratio), math.ceil(found[-1] * THRESHOLD_RATIO_MIN)))
    return tuple(threshold for threshold in found if threshold <= THRESHOLD_MAX_GPU_S)


SPACE = Space(
    knobs=(
        Knob(
            name="num_queues",
            kind="int",
            default=2,
            low=1,
            high=8,
            trades="more: short jobs pass sooner, more preemptions",
            takes_effect="immediate",
            in_flight="see regrade; jobs of removed queues go to the last one",
        ),
        Knob(
            name="queue_thresholds",
            kind="list",
            default=(3600,),
            low=THRESHOLD_MIN_GPU_S,
            high=THRESHOLD_MAX_GPU_S,
            unit="GPU-s",
            trades="lower: protects short jobs, preempts more",
            takes_effect="immediate",
            in_flight="see regrade",
        ),
        Knob(
            name="regrade",
            kind="choice",
            default="immediate",
            choices=("immediate", "lazy", "new_only"),
            trades="how new thresholds reach jobs already there",
            takes_effect="immediate",
            in_flight="immediate: queues from attained service now; lazy: only future crossings; "
            "new_only: jobs keep the thresholds they arrived with",
        ),
        Knob(
            name="promote_knob",
            kind="fraction",
            default=math.inf,
            low=0.25,
            high=math.inf,
            trades="lower: starving jobs return sooner (better maximum, worse mean); inf: never",
            takes_effect="immediate",
            in_flight="waiting already done counts; overdue jobs are promoted at once",
        ),
        Knob(
            name="starve_mode",
            kind="choice",
            default="ratio",
            choices=("ratio", "absolute"),
            trades="ratio: wait promote_knob x time run; absolute: promote_knob hours",
            takes_effect="immediate",
            in_flight="as promote_knob",
        ),
        Knob(
            name="in_queue_order",
            kind="choice",
            default="sim_tail",
            choices=("sim_tail", "start", "submit"),
            trades="sim_tail preempts least; start and submit favour seniors",
            takes_effect="next pass",
            in_flight="may preempt",
        ),
        Knob(
            name="priority",
            kind="choice",
            default="las",
            choices=("las", "gittins", "fifo", "srsf"),
            trades="order inside a queue: in_queue_order, Gittins index, arrival, remaining service",
            takes_effect="next pass",
            in_flight="may preempt",
        ),
        Knob(
            name="pack_limit",
            kind="fraction",
            default=0.3,
            low=0,
            high=1,
            trades="0: every gang waits for few nodes; 1: every gang may be spread and run slower",
            takes_effect="new placements",
            in_flight="running jobs never migrate",
        ),
        Knob(
            name="quantum",
            kind="int",
            default=0,
            low=0,
            high=600,
            unit="s",
            trades="longer: fewer passes, later starts; 0: at every event",
            takes_effect="next tick",
            in_flight="next tick = max(now, last tick + new)",
        ),
        MIN_RUN,
    ),
    settle=_settle,
    imply=_imply,
)


class Tiresias(QueuePolicy):
    """Discretised 2D-LAS with starvation promotion, in-queue orders and pack limit."""

    name: ClassVar[str] = "tiresias"
    space: ClassVar[Space] = SPACE
    preemptive: ClassVar[bool] = True

    def plan(self, knobs: Knobs, completed_gpu_ms: tuple[int, ...] = ()) -> Plan:
        priority = knobs.choice("priority")
        return Plan(
            preemptive=True,
            grades=tuple(threshold * 1000 for threshold in knobs.numbers("queue_thresholds")),
            regrade=knobs.choice("regrade"),
            key=_key(priority, knobs.choice("in_queue_order"), completed_gpu_ms),
            next_change_ms=gittins_change_ms(completed_gpu_ms) if priority == "gittins" else graded_change_ms,
            starve_ms=_starve_ms(knobs.fraction("promote_knob"), knobs.choice("starve_mode")),
            consolidate=_consolidate(ppm(knobs.fraction("pack_limit"))),
            min_run_ms=knobs.integer("min_run") * 1000,
            quantum_ms=knobs.integer("quantum") * 1000,
            needs_estimates=priority == "srsf",
            refresh_ms=GITTINS_REFRESH_MS if priority == "gittins" else 0,
        )


def _starve_ms(promote_knob: float, mode: str) -> Callable[[JobView], int] | None:
    """Return the waiting time after which a job is promoted: knob x run time rounded up, or knob hours."""
    if math.isinf(promote_knob):
        return None
    knob_ppm = ppm(promote_knob)
    if mode == "absolute":
        limit_ms = -(-knob_ppm * 3_600_000 // FULL_SPEED_PPM)
        return lambda job: limit_ms
    return lambda job: -(-knob_ppm * job.graded_ms // FULL_SPEED_PPM)


def _consolidate(limit_ppm: int) -> Callable[[JobView], bool]:
    return lambda job: job.gpus > 1 and job.facts.skew_ppm > limit_ppm


def _key(
    priority: str, order: str, completed_gpu_ms: tuple[int, ...]
) -> Callable[[JobView, int], Key] | None:
    if priority == "srsf":
        return lambda job, now_ms: job.remaining(now_ms) * job.member_gpus
    if priority == "gittins":
        return gittins_key(completed_gpu_ms)
    if priority == "fifo" or order == "submit":
        return lambda job, now_ms: job.id
    if order == "start":
        return lambda job, now_ms: _seniority(job)
    return None


def _seniority(job: JobView) -> float:
    return math.inf if job.first_ms is None else job.first_ms


def gittins_key(completed_gpu_ms: tuple[int, ...]) -> Callable[[JobView, int], Key]:
    """Return the order `(-G, first start)` from the service of completed jobs."""
    index = GittinsIndex.of(completed_gpu_ms)

    def key(job: JobView, now_ms: int) -> Key:
        held_ms = job.graded_ms + (now_ms - job.since_ms if job.nodes else 0)
        attained = job.member_gpus * held_ms
        level = bisect_right(job.grades, attained)
        bound = job.grades[level] if level < len(job.grades) else None
        return -index.at(attained, bound), _seniority(job)

    return key


def gittins_change_ms(completed_gpu_ms: tuple[int, ...]) -> Callable[[JobView], int | None]:
    """Return when a running job's level or index next falls: between the sizes of the sample it rises."""
    sample = GittinsIndex.of(completed_gpu_ms).sample_gpu_ms

    def change_ms(job: JobView) -> int | None:
        grade_ms = graded_change_ms(job)
        attained = job.attained_gpu_ms()
        passed = bisect_right(sample, attained)
        if passed == len(sample):
            return grade_ms
        size_ms = -(-(sample[passed] - attained) // job.member_gpus)
        return size_ms if grade_ms is None else min(grade_ms, size_ms)

    return change_ms


@dataclass(frozen=True)
class GittinsIndex:
    """How likely a job is to complete per unit of service given to it, by what it has attained.

    G(a) = max over s > a of  #{x: a < x <= s} / sum over x > a of min(x - a, s - a),  x and s from the
    sample; 0 where nothing is longer than `a`. `bound` limits s to the queue's upper threshold (the
    bound itself is then the last s).
    """

    sample_gpu_ms: tuple[int, ...]

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, completed_gpu_ms: tuple[int, ...]) -> GittinsIndex:
        """Thin the services of completed jobs to at most 64 evenly spaced order statistics."""
        ordered = sorted(completed_gpu_ms)
        if len(ordered) > _GITTINS_POINTS:
            ordered = [
                ordered[i * (len(ordered) - 1) // (_GITTINS_POINTS - 1)] for i in range(_GITTINS_POINTS)
            ]
        return cls(tuple(ordered))

    def at(self, attained_gpu_ms: int, bound_gpu_ms: int | None = None) -> float:
        """Return G at an attained service, per GPU-ms."""
        tail = self.sample_gpu_ms[bisect_right(self.sample_gpu_ms, attained_gpu_ms) :]
        best = 0.0
        below = 0  # sum of x - a over the support points passed
        for count, service in enumerate(tail, start=1):
            if bound_gpu_ms is not None and service > bound_gpu_ms:
                spent = below + (len(tail) - count + 1) * (bound_gpu_ms - attained_gpu_ms)
                return max(best, (count - 1) / spent) if spent else best
            below += service - attained_gpu_ms
            spent = below + (len(tail) - count) * (service - attained_gpu_ms)
            best = max(best, count / spent)
        return best
