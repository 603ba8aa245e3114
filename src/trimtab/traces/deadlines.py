"""Deadlines for traces that have none, and a trace at another load: everything drawn job by job.

What a job draws depends on its label and the seed alone, so leaving out other jobs, another order, another
mix of classes or another load changes nothing for it.

The rule `chronus` is what the published traces of Chronus (Gao et al., SoCC'21) show: a run time times
U(1.1, 2) plus U(0, 1 h), drawn anew until it is at most 85 h, which binds from run times of 42 h on.
Soft jobs have four deadlines, worth 10, 8, 5 and 2. How far the later ones are after the first is only known
in outline; here, in steps of ten minutes:

    run time up to 8 h      o1 = U{20, 30 .. 60} min, o2 = o1 + another such, o3 = o2 + another
    longer                  o1 = run time x U(0.10, 0.17), 60 .. 480 min; o2 = 2 o1, o3 = 5 o1
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from trimtab.errors import ConfigError, UnknownName
from trimtab.traces.trace import LONGEST_MS, SCHEMA, Trace
from trimtab.world import Seeds

LOAD_MIN, LOAD_MAX = 0.01, 100.0
OPTION_VALUES = (10, 8, 5, 2)  # what a soft job is worth if it meets its first deadline, its second, ...

_MINUTE_MS = 60_000
_STEP_MS = 10 * _MINUTE_MS
_SHORT_MS = 8 * 60 * _MINUTE_MS
_TRIES = 1_000


@dataclass(frozen=True, slots=True)
class Rule:
    """How long after its submission a job's first deadline is: run time x U(low, high) + U(0, extra).

    Attributes:
        low, high: Bounds of the factor.
        extra_ms: The most that is added.
        most_ms: Deadlines are drawn anew until they are at most this, up to 1,000 times; then it is the
            least there is. A job that could not keep to it is drawn for as if there were no such bound.
    """

    low: float
    high: float
    extra_ms: int = 0
    most_ms: int = LONGEST_MS

    def draw_ms(self, duration_ms: int, rng: np.random.Generator) -> int:
        """Return the deadline of a job that runs so long, in ms after its submission, rounded up."""
        least_ms = duration_ms * self.low
        for _ in range(_TRIES):
            found_ms = duration_ms * rng.uniform(self.low, self.high) + rng.uniform(0, self.extra_ms)
            if found_ms <= self.most_ms or least_ms >= self.most_ms:
                return math.ceil(found_ms)
        return math.ceil(least_ms)


RULES: Mapping[str, Rule] = {
    "tight": Rule(1.05, 1.3),
    "chronus": Rule(1.1, 2.0, 60 * _MINUTE_MS, 85 * 60 * _MINUTE_MS),
    "loose": Rule(1.5, 3.0),
}

# Weights of strict, soft and best-effort jobs.
CLASS_MIXES: Mapping[str, str] = {"SLO": "100/0/0", "MIX1": "70/0/30", "MIX2": "30/60/10"}


def with_deadlines(trace: Trace, rule: str, classes: str, seeds: Seeds) -> Trace:
    """Return the trace with classes of service and deadlines drawn anew, whatever it had.

    Args:
        trace: The jobs.
        rule: A name of `RULES`.
        classes: Weights of strict, soft and best-effort jobs, `70/0/30`, or a name of `CLASS_MIXES`.
        seeds: Root of the draws.

    Raises:
        UnknownName: If there is no such rule.
        ConfigError: If the classes are no weights.
    """
    if rule not in RULES:
        raise UnknownName("deadline rule", rule, RULES)
    weights = check_classes(classes)
    drawn = [
        _drawn(RULES[rule], weights, duration_ms, seeds.stream("deadline", label))
        for label, duration_ms in zip(trace.jobs["job_id"], trace.column("duration_ms").tolist(), strict=True)
    ]
    names = ("service_class", "deadline_ms", "deadline_value")
    columns = [
        pl.Series(name, values, dtype=SCHEMA[name])
        for name, values in zip(names, zip(*drawn, strict=True), strict=True)
    ]
    jobs = trace.jobs.with_columns(columns)
    jobs = jobs.select(name for name in SCHEMA if name in jobs.columns)
    note = (
        f"Deadlines were drawn by the rule {rule} for {classes} strict/soft/best-effort, seed {seeds.root}."
    )
    return _noted(replace(trace, jobs=jobs), note)


def check_classes(classes: str) -> list[int]:
    """Return the weights of strict, soft and best-effort jobs.

    Raises:
        ConfigError: If the text is neither three weights nor a known mix.
    """
    text = CLASS_MIXES.get(classes.upper(), classes)
    if re.fullmatch(r"\d{1,6}/\d{1,6}/\d{1,6}", text):
        weights = [int(part) for part in text.split("/")]
        if any(weights):
            return weights
    raise ConfigError(
        f"classes {classes!r}: must be weights of strict, soft and best-effort jobs such as 70/0/30, or one "
        f"of {', '.join(CLASS_MIXES)}; nothing was run."
    )


def _drawn(
    rule: Rule, weights: Sequence[int], duration_ms: int, rng: np.random.Generator
) -> tuple[str, str | None, str | None]:
    """Return a job's class, its deadlines and what they are worth, as a trace has them."""
    place = rng.random() * sum(weights)  # drawn first, so that it shifts no other draw
    first_ms = rule.draw_ms(duration_ms, rng)
    if place < weights[0]:
        return "strict", str(first_ms), str(OPTION_VALUES[0])
    if place >= weights[0] + weights[1]:
        return "best", None, None
    options_ms = [first_ms, *(first_ms + offset_ms for offset_ms in _offsets_ms(duration_ms, rng))]
    return "soft", "/".join(map(str, options_ms)), "/".join(map(str, OPTION_VALUES))


def _offsets_ms(duration_ms: int, rng: np.random.Generator) -> list[int]:
    """Return how long after the first deadline the other three are; see the module."""
    if duration_ms <= _SHORT_MS:
        return [int(steps) * _STEP_MS for steps in np.cumsum(rng.integers(2, 7, size=3))]
    steps = round(duration_ms * rng.uniform(0.10, 0.17) / _STEP_MS)
    first_ms = min(max(steps, 6), 48) * _STEP_MS
    return [first_ms, 2 * first_ms, 5 * first_ms]


# ---- load ----------------------------------------------------------------------------------------


def load_of(trace: Trace, gpus: int) -> float:
    """Return the trace's load on so many GPUs: GPU time asked for over GPU time there is between the first
    and the last submission.

    Raises:
        ConfigError: If all jobs come at one instant.
    """
    first_ms, last_ms = trace.span_ms
    if last_ms == first_ms:
        raise ConfigError("all jobs come at one instant: there is no load to state; nothing was run.")
    gpu_ms = float((trace.column("gpus").astype(np.float64) * trace.column("duration_ms")).sum())
    return gpu_ms / (gpus * (last_ms - first_ms))


def scaled_to_load(trace: Trace, load: float, gpus: int) -> Trace:
    """Return the trace with the times between submissions stretched or shrunk to a load on so many GPUs.

    The first job stays where it is. When jobs really started and ended is no longer known.

    Raises:
        ConfigError: If the load is out of range, all jobs come at one instant, or would then.
    """
    if not LOAD_MIN <= load <= LOAD_MAX:
        raise ConfigError(f"load = {load:g}: it must be {LOAD_MIN:g} .. {LOAD_MAX:g}; nothing was run.")
    if gpus < 1:
        raise ConfigError(f"gpus = {gpus}: it must be at least 1; nothing was run.")
    first_ms, last_ms = trace.span_ms
    before = load_of(trace, gpus)
    factor = before / load
    span_ms = (last_ms - first_ms) * factor
    if not 1 <= span_ms <= LONGEST_MS:
        long = "over 1,000 years long" if span_ms > 1 else "shorter than a millisecond"
        raise ConfigError(f"load = {load:g} on {gpus:,} GPUs: the trace would be {long}; nothing was run.")

    def scaled(frame: pl.DataFrame) -> pl.DataFrame:
        moved = (first_ms + ((pl.col("submit_ms") - first_ms) * factor).round()).cast(pl.Int64)
        return frame.with_columns(submit_ms=moved).drop("start_ms", "end_ms", strict=False)

    note = f"Submissions were moved: load {before:.3f} on {gpus:,} GPUs became {load:g}."
    return _noted(replace(trace, jobs=scaled(trace.jobs), unrun=scaled(trace.unrun)), note)


def thinned_by_job(trace: Trace, share: float, seeds: Seeds) -> Trace:
    """Return a share of the jobs; whether one stays depends on its label and the seed alone.

    The load changes with it, not always by the same share.

    Raises:
        ConfigError: If the share is not in (0, 1], or leaves no job.
    """
    if not 0 < share <= 1:
        raise ConfigError(f"thin = {share:g}: it must be above 0 and at most 1; nothing was run.")
    keep = [seeds.stream("thin", label).random() < share for label in trace.jobs["job_id"]]
    if not any(keep):
        raise ConfigError(f"thin = {share:g} leaves none of {len(trace)} jobs; nothing was run.")
    return trace.select(keep, "thinned")


def _noted(trace: Trace, note: str) -> Trace:
    known = trace.provenance
    return replace(trace, provenance=replace(known, notes=(*known.notes, note)))
