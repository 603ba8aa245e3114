"""What can be set on Slurm's scheduler, by Slurm's own names, units and defaults [slurm.conf(5), 22.05]."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import isqrt
from typing import NamedTuple

from trimtab.knobs import Knob, Knobs, Space, Value

MINUTE_MS = 60_000
DECAY_BITS = 40  # a decay is a whole number of 2**-40
_WEIGHT_MAX = 1_000_000_000
_YEAR_MIN = 525_600
_ROOT_BITS = 62

BUILTIN, BACKFILL = "sched/builtin", "sched/backfill"
PREEMPT_NONE, PREEMPT_PARTITION, PREEMPT_QOS = "preempt/none", "preempt/partition_prio", "preempt/qos"

_CALCULATED = "next calculation of priorities; of jobs submitted from now on at once"
_REORDERED = "waiting jobs get new priorities then; running jobs stay"
_RECONFIGURED = "next scheduling pass"
_RESTARTED = "restart of slurmctld"
_UNTOUCHED = "untouched"


def _weight(name: str, trades: str) -> Knob:
    return Knob(
        name=name,
        kind="int",
        default=0,
        high=_WEIGHT_MAX,
        trades=trades,
        takes_effect=_CALCULATED,
        in_flight=_REORDERED,
    )


def _parameter(name: str, default: int, low: int, high: int, unit: str, trades: str) -> Knob:
    return Knob(
        name=name,
        kind="int",
        default=default,
        low=low,
        high=high,
        unit=unit,
        trades=trades,
        takes_effect=_RECONFIGURED,
        in_flight=_UNTOUCHED,
    )


_BACKFILL = (
    _parameter("bf_interval", 30, 1, 10_800, "s", "shorter: gaps are filled sooner, more work for slurmctld"),
    _parameter(
        *("bf_window", 1440, 1, 43_200, "min"),
        "longer: jobs that start later get their place, too, and longer ones are held back; at least the "
        "longest limit",
    ),
    _parameter(
        *("bf_resolution", 60, 1, 3600, "s"),
        "coarser: ends are rounded up further, so fewer gaps are found, with less work",
    ),
    _parameter(
        *("bf_max_job_test", 500, 1, 1_000_000, "jobs"),
        "more: jobs deep in the queue may fill gaps, and more of those before them hold places",
    ),
    _parameter(
        *("bf_max_job_user", 0, 0, 1_000_000, "jobs"),
        "fewer: nobody fills the test with own jobs; 0: no limit",
    ),
    _parameter(
        *("bf_max_job_start", 0, 0, 10_000, "jobs"),
        "fewer: backfill starts less at once; 0: no limit",
    ),
)


def _settle(values: dict[str, Value]) -> dict[str, Value]:
    """Give what is not looked at its default: backfill that is off, factors without a weight."""
    if values["SchedulerType"] == BUILTIN:
        values |= {knob.name: knob.default for knob in _BACKFILL}
    if values["PreemptType"] == PREEMPT_NONE:
        values["PreemptExemptTime"] = 0
    if values["PriorityWeightAge"] == 0:
        values["PriorityMaxAge"] = _MAX_AGE.default
    if values["PriorityWeightJobSize"] == 0:
        values["PriorityFavorSmall"] = False
    return values


_MAX_AGE = Knob(
    name="PriorityMaxAge",
    kind="int",
    default=10_080,
    low=1,
    high=_YEAR_MIN,
    unit="min",
    trades="waiting time at which the age factor is full; longer: age sets long waits apart, and counts for "
    "less in short ones",
    takes_effect=_CALCULATED,
    in_flight=_REORDERED,
)

SPACE = Space(
    knobs=(
        _weight("PriorityWeightAge", "larger: who waits longer goes first"),
        _weight("PriorityWeightFairshare", "larger: who has used less than their share goes first"),
        _weight(
            "PriorityWeightJobSize",
            "larger: wide jobs go first (narrow ones with PriorityFavorSmall)",
        ),
        _weight("PriorityWeightPartition", "larger: the partition's PriorityJobFactor counts for more"),
        _weight("PriorityWeightQOS", "larger: the priority of the quality of service counts for more"),
        _weight(
            "PriorityWeightTRES",
            "the weight of gres/gpu; larger: who asks for a larger part of all GPUs goes first",
        ),
        _MAX_AGE,
        Knob(
            name="PriorityFavorSmall",
            kind="bool",
            default=False,
            trades="on: the size factor favours narrow jobs; off: wide ones",
            takes_effect=_CALCULATED,
            in_flight=_REORDERED,
        ),
        Knob(
            name="PriorityDecayHalfLife",
            kind="int",
            default=10_080,
            high=_YEAR_MIN,
            unit="min",
            trades="time in which half of the past usage is forgotten; shorter: fair-share follows the last "
            "days; 0: nothing is forgotten",
            takes_effect="next calculation of priorities",
            in_flight="usage that is counted already stays, and decays at the new rate",
        ),
        Knob(
            name="PriorityCalcPeriod",
            kind="int",
            default=5,
            low=1,
            high=60,
            unit="min",
            trades="shorter: priorities follow age and usage sooner, more work for slurmctld",
            takes_effect="next calculation of priorities",
            in_flight=_UNTOUCHED,
        ),
        _parameter(
            *("default_queue_depth", 100, 1, 1_000_000, "jobs"),
            "more: a pass after an event looks deeper, with more work; a full pass looks at all jobs",
        ),
        _parameter("sched_interval", 60, 1, 3600, "s", "shorter: full passes come sooner after an event"),
        _parameter(
            *("sched_min_interval", 2, 0, 10_000_000, "us"),
            "longer: bursts of events share one pass, and jobs wait for it",
        ),
        _parameter(
            *("batch_sched_delay", 3, 0, 3600, "s"),
            "longer: jobs that come or end within it share one pass, and wait for it; a full pass does not",
        ),
        Knob(
            name="SchedulerType",
            kind="choice",
            default=BACKFILL,
            choices=(BACKFILL, BUILTIN),
            trades="backfill: jobs start out of turn where that delays nobody before them, by time limits",
            takes_effect=_RESTARTED,
            in_flight=_UNTOUCHED,
        ),
        *_BACKFILL,
        Knob(
            name="PreemptType",
            kind="choice",
            default=PREEMPT_NONE,
            choices=(PREEMPT_NONE, PREEMPT_PARTITION, PREEMPT_QOS),
            trades="who may take GPUs of running jobs: higher partition tiers, or a quality of service that "
            "lists theirs; those are requeued",
            takes_effect=_RESTARTED,
            in_flight="running jobs may lose their GPUs from then on",
        ),
        Knob(
            name="PreemptExemptTime",
            kind="int",
            default=0,
            high=86_400,
            unit="s",
            trades="longer: started jobs are safe for so long, urgent ones wait",
            takes_effect=_RECONFIGURED,
            in_flight="counts from a running job's last start",
        ),
    ),
    settle=_settle,
)

# What `scontrol reconfigure` puts in force; the rest needs a restart.
RECONFIGURED = tuple(knob.name for knob in SPACE.knobs if knob.takes_effect != _RESTARTED)


class Formula(NamedTuple):
    """How priorities are calculated: weights, and what the factors need.

    Attributes:
        minute_decay: What is left of usage after a minute, in 2**-40.
    """

    age: int
    fairshare: int
    size: int
    partition: int
    qos: int
    tres: int
    max_age_ms: int
    favors_small: int
    minute_decay: int
    period_ms: int


@dataclass(frozen=True, slots=True)
class Rules:
    """The knobs in whole numbers; 0 jobs are no limit."""

    formula: Formula
    depth: int
    interval_ms: int
    rest_ms: int
    fills: bool  # whether there is backfill
    fill_ms: int
    window_ms: int
    resolution_ms: int
    test_max: int
    user_max: int
    start_max: int
    preempts: str
    exempt_ms: int

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, knobs: Knobs) -> Rules:
        """Return what the knobs say."""
        number = knobs.integer
        return cls(
            formula=Formula(
                age=number("PriorityWeightAge"),
                fairshare=number("PriorityWeightFairshare"),
                size=number("PriorityWeightJobSize"),
                partition=number("PriorityWeightPartition"),
                qos=number("PriorityWeightQOS"),
                tres=number("PriorityWeightTRES"),
                max_age_ms=MINUTE_MS * number("PriorityMaxAge"),
                favors_small=int(bool(knobs["PriorityFavorSmall"])),
                minute_decay=minute_decay(number("PriorityDecayHalfLife")),
                period_ms=MINUTE_MS * number("PriorityCalcPeriod"),
            ),
            depth=number("default_queue_depth"),
            interval_ms=1000 * number("sched_interval"),
            rest_ms=max(number("sched_min_interval") // 1000, 1000 * number("batch_sched_delay")),
            fills=knobs.choice("SchedulerType") == BACKFILL,
            fill_ms=1000 * number("bf_interval"),
            window_ms=MINUTE_MS * number("bf_window"),
            resolution_ms=1000 * number("bf_resolution"),
            test_max=number("bf_max_job_test"),
            user_max=number("bf_max_job_user"),
            start_max=number("bf_max_job_start"),
            preempts=knobs.choice("PreemptType"),
            exempt_ms=1000 * number("PreemptExemptTime"),
        )


@lru_cache(maxsize=256)
def minute_decay(half_life_min: int) -> int:
    """Return 2**(-1 / half life) in 2**-40: what is left of usage after a minute; all of it where that is 0.

    The exponent is taken digit by digit, and each digit is a repeated square root of a half, rounded down.
    """
    if half_life_min == 0:
        return 1 << DECAY_BITS
    exponent = (1 << DECAY_BITS) // half_life_min
    left, root = 1 << _ROOT_BITS, 1 << _ROOT_BITS - 1
    for digit in range(DECAY_BITS, -1, -1):
        if exponent >> digit & 1:
            left = left * root >> _ROOT_BITS
        root = isqrt(root << _ROOT_BITS)
    return left >> _ROOT_BITS - DECAY_BITS


def decay(minute: int, minutes: int) -> int:
    """Return what is left after so many minutes, in 2**-40."""
    left = 1 << DECAY_BITS
    while minutes:
        if minutes & 1:
            left = left * minute >> DECAY_BITS
        minute = minute * minute >> DECAY_BITS
        minutes >>= 1
    return left
