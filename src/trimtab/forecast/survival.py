"""How much longer may a job run? Kaplan-Meier curves of run time, of the jobs most like it.

Everything is counted on the service axis: the work a job has done, not the time since its submission, so a
job that was preempted for a day is as old as its work. A job that has not completed tells that its run time
is longer than what it has run (right-censored); leaving such jobs out would make every forecast too short.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.forecast.history import Integers, Past

ENDLESS_MS = 1 << 42  # beyond every run time: the open end of a range
EVENTS_MIN = 20  # completions that a curve must have in the asked range, else a coarser one is asked
LINDY_MIN_MS = 60_000  # a job is taken to run on for as long as it ran, at least a minute

_WIDTHS = 64  # gang widths a label is combined with
_RARE = 0.005  # the tail is cut at its 99.5 % quantile
_TAIL_FROM = 0.75  # the long end of the run times, as a quantile of the completed ones

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RunTimes:
    """Kaplan-Meier curves of a history's run times, one a group of alike jobs.

    A job belongs to four groups: same user and gang width; same virtual cluster and gang width; same gang
    width; all. Widths are powers of two (3 and 4 GPUs are one width). Groups by something the trace does not
    tell do not exist. The estimator is Kaplan and Meier's (JASA 1958): survival falls by 1/(jobs that ran at
    least as long) at each completion; at one run time completions come before censorings.

    Attributes:
        codes: Of each of the four ways to group, the codes of its groups, ascending.
        event_at: Completed run times with the place of their group, `group x ENDLESS_MS + ms`, ascending;
            each group begins with 0 ms.
        survival: Share of the group that runs longer than that, same shape.
        descent: `2 x group + 1 - survival`, ascending, so that all curves are searched as one.
        tail_index: Pareto index of the long end: completions over summed log excess (Hill's, with
            censoring).
    """

    codes: tuple[Integers, ...]
    event_at: Integers
    survival: Floats
    descent: Floats
    tail_index: float

    @classmethod
    def of(cls, past: Past) -> RunTimes:
        """Return the curves of everything that has run at all."""
        known = (past.ran_ms > 0) | past.completed
        ran_ms = np.clip(past.ran_ms[known], 1, ENDLESS_MS - 1)
        completed = past.completed[known]
        codes, group, job = [], [], []
        groups = 0
        for code in _codes(past):
            told = np.flatnonzero(code[known] >= 0)
            ways, place = np.unique(code[known][told], return_inverse=True)
            codes.append(ways)
            group.append(place + groups)
            job.append(told)
            groups += len(ways)
        jobs = np.concatenate(job)
        event_at, survival = _curves(np.concatenate(group), ran_ms[jobs], completed[jobs])
        descent = 2 * (event_at // ENDLESS_MS) + 1 - survival
        return cls(tuple(codes), event_at, survival, descent, _tail_index(ran_ms, completed))

    @property
    def empty(self) -> bool:
        """Whether nothing has completed."""
        return not np.any(self.survival < 1)

    def remaining_ms(
        self, past: Past, rows: Integers, levels: Floats, from_ms: int = 0, below_ms: int = ENDLESS_MS
    ) -> Integers:
        """Return quantiles of the remaining service of jobs that have not completed, given what they ran.

        Uniform numbers as levels make a sample; the same numbers make the same sample, job by job.

        The curve is that of a job's most specific group with at least 20 completions in the asked range of
        run times, else that of all jobs. Beyond the last completion, and for jobs that outlasted all but the
        last 20, an open range goes on exponentially, with the hazard a Pareto tail has there, up to its
        99.5 % quantile. Without a completion in it, a bounded range is uniform; where nothing has completed
        at all, an open one is Lindy's.

        Args:
            past: The jobs; not necessarily those of the curves.
            rows: Places of the asked jobs in it, shape (jobs,).
            levels: Levels in [0, 1), shape (..., jobs).
            from_ms: The remaining service is known to be at least this,
            below_ms: and less than this.

        Returns:
            Whole ms, at least 1, in the shape of `levels`.
        """
        is_open = below_ms >= ENDLESS_MS
        ran_ms = np.minimum(past.ran_ms[rows], ENDLESS_MS // 4)
        reached_ms = ran_ms + max(1, from_ms)
        if self.empty and is_open:
            return np.broadcast_to(np.maximum(lindy_ms(ran_ms), from_ms), levels.shape).copy()
        even_ms = from_ms + (levels * (below_ms - from_ms)).astype(np.int64)
        if self.empty:
            return np.maximum(1, even_ms)
        group, first, last = (
            self._end(past, rows, reached_ms)
            if is_open
            else self._range(past, rows, reached_ms, ran_ms + below_ms)
        )
        opens, closes = self.survival[first - 1], self.survival[last - 1]
        target = opens - levels * (opens - (0.0 if is_open else closes))
        place = np.searchsorted(self.descent, 2 * group + 1 - target, side="right")
        inside_ms = self.event_at[np.clip(place, first, np.maximum(first, last - 1)) % len(self.event_at)]
        remaining_ms = inside_ms % ENDLESS_MS - ran_ms
        if is_open:
            outside = (last == first) | (place >= last)
            begin_ms = self._tail_from_ms(reached_ms, first, last)
            share = np.where(last == first, 1 - levels, target / np.where(closes > 0, closes, 1.0))
            excess_ms = begin_ms / self.tail_index * -np.log(np.clip(share, _RARE, 1.0))
            remaining_ms = np.where(outside, begin_ms - ran_ms + excess_ms.astype(np.int64), remaining_ms)
        else:
            remaining_ms = np.where(last == first, even_ms, remaining_ms)
        return np.maximum(1, remaining_ms)

    def longer(self, past: Past, rows: Integers, after_ms: Integers) -> Floats:
        """Return the chance that each job's remaining service is at least so much, given what it ran.

        It is by the same curves as `remaining_ms`.

        Args:
            past: The jobs; not necessarily those of the curves.
            rows: Places of the asked jobs in it, shape (jobs,).
            after_ms: Remaining service, at least 1 ms, shape (times,).

        Returns:
            Chances, shape (jobs, times).
        """
        ran_ms = np.minimum(past.ran_ms[rows], ENDLESS_MS // 4)
        if self.empty:
            return (lindy_ms(ran_ms)[:, None] >= after_ms).astype(np.float64)
        group, first, last = self._end(past, rows, ran_ms + 1)
        at_ms = ran_ms[:, None] + after_ms
        place = np.searchsorted(self.event_at, group[:, None] * ENDLESS_MS + at_ms)
        opens = self.survival[first - 1]
        share = self.survival[place - 1] / np.where(opens > 0, opens, 1.0)[:, None]
        share[last == first] = 1.0
        begin_ms = self._tail_from_ms(ran_ms + 1, first, last)[:, None]
        in_tail = (place == last[:, None]) | (first == last)[:, None]
        excess_ms = np.where(in_tail, np.maximum(0, at_ms - begin_ms), 0)
        chance: Floats = share * np.exp(-excess_ms * self.tail_index / begin_ms)
        return chance

    def _end(self, past: Past, rows: Integers, from_ms: Integers) -> tuple[Integers, Integers, Integers]:
        """Return the same as `_range` without an upper bound; nothing where the curve's end is too thin."""
        group, first, last = self._range(past, rows, from_ms, np.full(len(rows), ENDLESS_MS))
        before = first - np.searchsorted(self.event_at, group * ENDLESS_MS + 1)
        is_thin = (last - first < EVENTS_MIN) & (before >= EVENTS_MIN)
        return group, np.where(is_thin, last, first), last

    def _tail_from_ms(self, reached_ms: Integers, first: Integers, last: Integers) -> Integers:
        last_ms = self.event_at[last - 1] % ENDLESS_MS
        return np.where(first == last, reached_ms, np.maximum(reached_ms, last_ms))

    def _range(
        self, past: Past, rows: Integers, from_ms: Integers, below_ms: Integers
    ) -> tuple[Integers, Integers, Integers]:
        """Return group, first event and event after the last of each job's curve in its range."""
        found = np.zeros((3, len(rows)), dtype=np.int64)
        waiting = np.ones(len(rows), dtype=np.bool_)
        groups = 0
        for codes, code in zip(self.codes, _codes(past, rows), strict=True):
            place = np.searchsorted(codes, code)
            is_known = np.append(codes, -1)[place] == np.where(code < 0, -2, code)
            group = (place + groups) * ENDLESS_MS
            first = np.searchsorted(self.event_at, group + from_ms)
            last = np.searchsorted(self.event_at, group + below_ms)
            enough = (last - first >= EVENTS_MIN) | (code == _ALL)
            use = waiting & is_known & enough
            found[:, use] = np.stack((place + groups, first, last))[:, use]
            waiting &= ~use
            groups += len(codes)
        return found[0], found[1], found[2]


def lindy_ms(ran_ms: Integers) -> Integers:
    """Return Lindy's guess of the remaining service: as long as a job ran, at least a minute."""
    return np.maximum(ran_ms, LINDY_MIN_MS)


def width(gpus: Integers) -> Integers:
    """Return gang widths as powers of two: 0 for 1 GPU, 1 for 2, 2 for 3 and 4."""
    exponent: NDArray[np.int32] = np.frexp(gpus - 0.5)[1]
    return exponent.astype(np.int64)


_ALL = 1 << 62  # the code of all jobs


def _codes(past: Past, rows: Integers | slice = slice(None)) -> tuple[Integers, ...]:
    """Return the codes of jobs' groups, the most specific first; -1 where the trace does not tell."""
    wide = width(past.gpus[rows])
    user, vc = past.user[rows], past.vc[rows]
    return (
        np.where(user < 0, -1, user * _WIDTHS + wide),
        np.where(vc < 0, -1, vc * _WIDTHS + wide),
        wide,
        np.full(len(wide), _ALL),
    )


def _curves(group: Integers, ran_ms: Integers, completed: NDArray[np.bool_]) -> tuple[Integers, Floats]:
    """Return all groups' completed run times, each group's after a 0, and the survival after each."""
    order = np.lexsort((~completed, ran_ms, group))
    group, ran_ms, completed = group[order], ran_ms[order], completed[order]
    ends = np.cumsum(np.bincount(group)) if len(group) else np.zeros(0, dtype=np.int64)
    at_risk = ends[group] - np.arange(len(group))
    # Sums of logs, so that one running sum serves all groups; the last of a group has no log.
    fall = np.where(completed & (at_risk > 1), np.log1p(-1 / np.maximum(at_risk, 2)), 0.0)
    fallen = np.append(0.0, np.cumsum(fall))
    starts = np.append(0, ends)[:-1]
    survival = np.exp(fallen[1:] - fallen[starts][group]) * (~completed | (at_risk > 1))
    event_at = np.append(np.arange(len(ends)), (group + 0)[completed]) * ENDLESS_MS
    event_at[len(ends) :] += ran_ms[completed]
    survival = np.append(np.ones(len(ends)), survival[completed])
    order = np.argsort(event_at, kind="stable")
    return event_at[order], survival[order]


def _tail_index(ran_ms: Integers, completed: NDArray[np.bool_]) -> float:
    if not completed.any():
        return 1.0
    begin_ms = float(np.quantile(ran_ms[completed], _TAIL_FROM))
    long = ran_ms > begin_ms
    excess = float(np.log(ran_ms[long] / begin_ms).sum())
    # A lower index has no finite mean; 1 is Lindy's: as long again, on average.
    return max(1.0, int(completed[long].sum()) / excess) if excess > 0 else 1.0
