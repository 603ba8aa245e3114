"""Running jobs at instants of the past, and what was known of each: what remaining times are learned from.

A job is taken to have run without a pause until it completed, or until now. Without preemption and waiting
in between that is what happened; with them the work done at an instant is an approximation, while what was
left of it, the class to be learned, stays exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.forecast.history import Integers, Past
from trimtab.forecast.survival import width
from trimtab.traces.trace import DAY_MS

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS

# Remaining service is told in six classes: below 5 min, 30 min, 1 h, 2 h, 4 h, and longer.
EDGES_MS = np.array([5, 30, 60, 120, 240]) * MINUTE_MS
CLASSES = len(EDGES_MS) + 1
MATURE_MS = int(EDGES_MS[-1])  # so much later a snapshot's class is known, even if the job still runs
GRID_MS = 30 * MINUTE_MS

_LAST = 32  # completed jobs of a group that its statistics are of
_BESIDE = 8  # jobs of a group submitted just before a job, and just after it, that are looked at
_BURST_MS = 10 * MINUTE_MS
_SPAN = 1 << 44  # beyond every difference of times, in ms

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Snapshots:
    """Running jobs at instants, shape (snapshots,) each: place in the past, instant, service so far."""

    rows: Integers
    at_ms: Integers
    ran_ms: Integers

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, which: Integers | NDArray[np.bool_]) -> Snapshots:
        """Return some of them."""
        return Snapshots(self.rows[which], self.at_ms[which], self.ran_ms[which])


def mature(past: Past, phase_ms: int) -> Snapshots:
    """Return every running job at each instant of a 30-minute grid whose class is known by now.

    An instant counts if it lies at least 4 h back. A job that has not completed had at least 4 h left then,
    so it has a class too; who completed since is not asked, and so nothing is biased towards short jobs.

    Args:
        past: What is known.
        phase_ms: Where the grid lies, 0 to 30 minutes.
    """
    start_ms, end_ms = _ran_between(past)
    latest_ms = past.now_ms - MATURE_MS - phase_ms
    newest = np.maximum(0, -((end_ms - 1 - latest_ms) // GRID_MS))  # steps back to the last one it ran at
    oldest = (latest_ms - start_ms - 1) // GRID_MS
    count = np.maximum(0, oldest - newest + 1)
    rows = np.repeat(np.arange(len(past)), count)
    nth = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    at_ms = latest_ms - (np.repeat(newest, count) + nth) * GRID_MS
    return Snapshots(rows, at_ms, at_ms - start_ms[rows])


def classes(past: Past, snapshots: Snapshots) -> Integers:
    """Return the class of each mature snapshot's remaining service, 0 to 5."""
    left_ms = np.where(
        past.completed[snapshots.rows], past.ran_ms[snapshots.rows] - snapshots.ran_ms, MATURE_MS
    )
    return np.digitize(left_ms, EDGES_MS)


class Features:
    """What was known of running jobs at instants, as numbers; NaN where there is nothing to know.

    The columns, in this order: elapsed, gang, hours and weekday of submission and snapshot; arrivals and
    completions of the last 5 and 60 minutes; the group statistics of the last 32 jobs completed before the
    instant, for same user and name, same user and gang, same virtual cluster and gang, same gang; the jobs
    of the same owner and gang submitted next to it, completed or still running.
    """

    def __init__(self, past: Past) -> None:
        """Sort what is known, so that any instant of it can be asked for."""
        self._past = past
        self._origin_ms = int(past.submit_ms[0]) if len(past) else past.now_ms
        self._start_ms, self._end_ms = _ran_between(past)
        done = np.flatnonzero(past.completed)
        self._by_finish = done[np.argsort(past.finish_ms[done], kind="stable")]
        self._arrivals = _Flow(past.submit_ms, past.gpus)
        self._completions = _Flow(past.finish_ms[self._by_finish], past.gpus[self._by_finish])
        self._log_ran = np.log(np.maximum(1.0, past.ran_ms / 1000.0))
        self._groups = [self._ranked(code) for code in _keys(past)]

    def of(self, snapshots: Snapshots) -> Floats:
        """Return a table of shape (snapshots, columns); every entry uses nothing later than its instant."""
        past, rows, at_ms = self._past, snapshots.rows, snapshots.at_ms
        columns = [np.log1p(snapshots.ran_ms / 1000.0), np.log2(past.gpus[rows])]
        columns += _turns(past.submit_ms[rows], DAY_MS) + _turns(past.submit_ms[rows], 7 * DAY_MS)
        columns += _turns(at_ms, DAY_MS)
        for flow in (self._arrivals, self._completions):
            for span_ms in (5 * MINUTE_MS, HOUR_MS):
                columns += flow.within(at_ms, span_ms)
        for group in self._groups:
            columns += self._completed_like(group, snapshots)
        owned = self._groups[1] if (past.user >= 0).any() else self._groups[2]
        columns += self._beside(owned if owned.told else self._groups[3], snapshots)
        return np.stack(columns, axis=1)

    def _ranked(self, code: Integers) -> _Group:
        rank = np.unique(code, return_inverse=True)[1] if (code >= 0).any() else np.zeros_like(code)
        short = rank.astype(np.uint16) if rank.max(initial=0) < 1 << 16 else rank  # sorted by digits
        completed = self._by_finish[np.argsort(short[self._by_finish], kind="stable")]
        submitted = np.argsort(short, kind="stable")
        offset_ms = self._past.finish_ms[completed] - self._origin_ms
        place = np.empty_like(submitted)
        place[submitted] = np.arange(len(submitted))
        return _Group(code, rank, completed, rank[completed] * _SPAN + offset_ms, submitted, place)

    def _completed_like(self, group: _Group, snapshots: Snapshots) -> list[Floats]:
        """Return ten statistics of the last jobs of a snapshot's group that had completed by its instant."""
        rows = snapshots.rows
        if not group.told or not len(group.completed):
            return [np.full(len(rows), np.nan)] * 10
        key = group.rank[rows] * _SPAN
        end = np.searchsorted(group.finish_at, key + snapshots.at_ms - self._origin_ms, side="right")
        count = np.minimum(end - np.searchsorted(group.finish_at, key), _LAST)
        count[group.code[rows] < 0] = 0
        back = np.arange(_LAST)
        jobs = group.completed[np.maximum(0, end[:, None] - 1 - back)]
        log_s = np.where(back < count[:, None], self._log_ran[jobs], np.nan)
        log_elapsed = np.log(np.maximum(1.0, snapshots.ran_ms / 1000.0))[:, None]
        longer = log_s > log_elapsed
        some = np.maximum(count, 1)
        mean = np.nansum(log_s, axis=1) / some
        spread = np.sqrt(np.nansum((log_s - mean[:, None]) ** 2, axis=1) / some)
        left = np.log(
            np.maximum(1.0, np.exp(log_s) - np.exp(log_elapsed)), where=longer, out=np.zeros_like(log_s)
        )
        survivors = longer.sum(axis=1)
        ordered = np.sort(log_s, axis=1)  # NaN last
        nth = np.arange(len(rows))
        since_h = (snapshots.at_ms - self._past.finish_ms[jobs[:, 0]]) / HOUR_MS
        told = [
            mean,
            spread,
            ordered[nth, count // 2],
            ordered[nth, count * 9 // 10],
            survivors / some,
            np.where(survivors > 0, left.sum(axis=1) / np.maximum(survivors, 1), np.nan),
            log_s[:, 0],
            log_s[:, 1],
            log_s[:, 2],
            since_h,
        ]
        return [np.where(count > 0, column, np.nan) for column in told]

    def _beside(self, group: _Group, snapshots: Snapshots) -> list[Floats]:
        """Return what became of the jobs that were submitted next to a snapshot's job, in its group."""
        past, rows, at_ms = self._past, snapshots.rows[:, None], snapshots.at_ms[:, None]
        steps = np.concatenate([np.arange(-_BESIDE, 0), np.arange(1, _BESIDE + 1)])
        place = group.place[rows] + steps
        inside = (place >= 0) & (place < len(past))
        jobs = group.submitted[np.clip(place, 0, len(past) - 1)]
        gap_ms = np.abs(past.submit_ms[jobs] - past.submit_ms[rows])
        known = inside & (group.rank[jobs] == group.rank[rows]) & (past.submit_ms[jobs] < at_ms)
        known &= group.code[rows] >= 0
        ended = past.completed[jobs] & (self._end_ms[jobs] <= at_ms)
        log_s = self._log_ran[jobs]
        log_so_far = np.log1p(np.maximum(0, at_ms - self._start_ms[jobs]) / 1000.0)
        log_elapsed = np.log1p(snapshots.ran_ms / 1000.0)[:, None]
        columns = []
        for span_ms in (_BURST_MS, _SPAN):
            near = known & (gap_ms <= span_ms)
            over, running = near & ended, near & ~ended
            columns += [
                near.sum(axis=1).astype(np.float64),
                _mean(over, near),
                _mean(log_s, over),
                _mean(log_s > log_elapsed, over),
                _mean(log_so_far, running),
            ]
        nearest = np.where(known & ended, gap_ms, _SPAN).argmin(axis=1)
        nth = np.arange(len(snapshots))
        some = (known & ended)[nth, nearest]
        columns.append(np.where(some, log_s[nth, nearest], np.nan))
        columns.append(np.where(some, np.log1p(gap_ms[nth, nearest] / 1000.0), np.nan))
        return columns


@dataclass(frozen=True, eq=False)
class _Group:
    """Jobs by what they share: in order of completion, with the group's rank before it, and of submission."""

    code: Integers
    rank: Integers
    completed: Integers
    finish_at: Integers
    submitted: Integers
    place: Integers

    @property
    def told(self) -> bool:
        return bool((self.code >= 0).any())


class _Flow:
    """Events with their GPUs, by time."""

    def __init__(self, at_ms: Integers, gpus: Integers) -> None:
        self._at_ms = at_ms
        self._gpus = np.append(0, np.cumsum(gpus))

    def within(self, now_ms: Integers, span_ms: int) -> list[Floats]:
        """Return how many there were in the time before each instant, and their GPUs."""
        last = np.searchsorted(self._at_ms, now_ms)
        first = np.searchsorted(self._at_ms, now_ms - span_ms)
        return [(last - first).astype(np.float64), (self._gpus[last] - self._gpus[first]).astype(np.float64)]


def _ran_between(past: Past) -> tuple[Integers, Integers]:
    end_ms = np.where(past.completed, past.finish_ms, past.now_ms)
    return end_ms - past.ran_ms, end_ms


def _keys(past: Past) -> tuple[Integers, ...]:
    wide = width(past.gpus)
    named = np.where((past.user < 0) | (past.name < 0), -1, past.user * (1 << 31) + past.name)
    owned = np.where(past.user < 0, -1, past.user * 64 + wide)
    placed = np.where(past.vc < 0, -1, past.vc * 64 + wide)
    return named, owned, placed, past.gpus


def _turns(at_ms: Integers, period_ms: int) -> list[Floats]:
    turn = 2 * np.pi * (at_ms % period_ms) / period_ms
    return [np.sin(turn), np.cos(turn)]


def _mean(values: NDArray[np.generic], which: NDArray[np.bool_]) -> Floats:
    count = which.sum(axis=1)
    total = np.where(which, values, 0.0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
