"""Who pays for a mean: waiting by the kind of hour a job was submitted in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trimtab.report.lines import Line
from trimtab.timeline import Timeline
from trimtab.traces.trace import DAY_MS

# So long after a change of settings, a job counts as one of those it met first.
AFTER_S = 7_200.0

# Jobs that have held GPUs for longer are long ones.
LONG_MS = DAY_MS

Segments = dict[str, dict[str, float]]


def segments_of(lines: Sequence[Line], interval_ms: int) -> list[Segments]:
    """Return mean waiting and p99 by segment, for each of the lines; the first is their reference.

    Hours (of `interval_ms`) with at least one submission are ranked by how many jobs they brought: the lower
    third is `trough`, the upper third `peak`, the top twentieth `burst` (peak, too). In `long-job-dominated`
    hours at least half of the GPUs held at their start are held by jobs that have run for over a day under
    the first line; so these segments hold the same jobs in every line. `after-change` are the jobs submitted
    within two hours after a change of the line's own settings; what the same jobs waited under the first line
    stands beside it.
    """
    long_hours = dominated_hours(lines[0].timeline, interval_ms)
    return [_segments(line, lines[0].jobs, long_hours, interval_ms) for line in lines]


def _segments(line: Line, reference: pl.DataFrame, long_hours: Sequence[int], interval_ms: int) -> Segments:
    hour = (pl.col("submit_s") * 1000 // interval_ms).cast(pl.Int64).alias("hour")
    jobs = line.jobs.with_columns(hour, reference["wait_s"].alias("reference_s")).filter(~pl.col("rejected"))
    jobs = jobs.with_columns(pl.len().over("hour").alias("crowd"))
    if jobs.is_empty():
        return {}
    changed_s = np.array([one.time_s for one in line.rounds if one.switched])
    parts = {
        **_by_crowd(jobs),
        "long-job-dominated": jobs["hour"].is_in(list(long_hours)),
        "after-change": pl.Series(_soon_after(jobs["submit_s"].to_numpy(), changed_s)),
    }
    found = {}
    for name, inside in parts.items():
        some = jobs.filter(inside & jobs["wait_s"].is_not_null())
        if some.height:
            found[name] = _waiting(some["wait_s"].to_numpy())
            if name == "after-change":
                found[name]["reference_wait_s_mean"] = float(some["reference_s"].to_numpy().mean())
    return found


def _by_crowd(jobs: pl.DataFrame) -> Mapping[str, pl.Series]:
    crowds = np.sort(jobs.group_by("hour").len()["len"].to_numpy())
    low, high, burst = (
        int(crowds[min(len(crowds) - 1, int(len(crowds) * part))]) for part in (1 / 3, 2 / 3, 0.95)
    )
    crowd = jobs["crowd"]
    return {
        "trough": crowd < low,
        "middle": (crowd >= low) & (crowd < high),
        "peak": crowd >= high,
        "burst": crowd >= burst,
    }


def _soon_after(submit_s: NDArray[np.float64], changed_s: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which submissions follow a change within `AFTER_S`; those at its instant do."""
    latest = np.searchsorted(changed_s, submit_s, side="right")
    since_s = submit_s - np.concatenate([[-np.inf], changed_s])[latest]
    return np.asarray(since_s < AFTER_S)


def _waiting(wait_s: NDArray[np.float64]) -> dict[str, float]:
    p99 = float(np.percentile(wait_s, 99))
    return {"jobs": len(wait_s), "wait_s_mean": float(wait_s.mean()), "wait_s_p99": p99}


def dominated_hours(timeline: Timeline, interval_ms: int) -> list[int]:
    """Return the hours, counted from time 0, at whose start long jobs hold half of the GPUs held or more.

    A job is long once it has held GPUs for over a day in all. What happens at the start itself comes after
    it. Hours after the last submission are not looked at.
    """
    submits = [event.time_ms for event in timeline.events if event.kind == "submit"]
    if not submits:
        return []
    hours = iter(range(submits[0] // interval_ms + 1, submits[-1] // interval_ms + 1))
    return [hour for hour, old, held in _held(timeline, hours, interval_ms) if 0 < held <= 2 * old]


def _held(timeline: Timeline, hours: Iterator[int], interval_ms: int) -> Iterator[tuple[int, int, int]]:
    """Yield hour, GPUs held by long jobs and GPUs held, at the start of each hour."""
    held_ms: dict[int, int] = {}
    since_ms: dict[int, int] = {}
    hour = next(hours, None)
    for event in timeline.events:
        while hour is not None and hour * interval_ms <= event.time_ms:
            now_ms = hour * interval_ms
            old = (job for job, since in since_ms.items() if held_ms.get(job, 0) + now_ms - since > LONG_MS)
            yield hour, sum(timeline.gpus[job] for job in old), sum(timeline.gpus[job] for job in since_ms)
            hour = next(hours, None)
        if event.job is None:
            continue
        if event.kind == "start":
            since_ms[event.job] = event.time_ms
        elif event.kind in ("preempt", "finish"):
            held_ms[event.job] = held_ms.get(event.job, 0) + event.time_ms - since_ms.pop(event.job)
