"""How many jobs will be submitted in the next ten minutes? What Lucid switches sharing by.

Lucid's throughput model [Hu et al., ASPLOS'23] is an additive model of calendar and lags, trained anew every
week. Here it is linear: weights for the counts just before, those of the same time a day and a week ago, and
the time of day. A forecast is the mean over the next five periods of ten minutes, and is made from what was
submitted before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

BIN_MS = 600_000
AHEAD = 5  # bins that a forecast is the mean of
HOUR, DAY, WEEK = 6, 144, 1008  # bins

_RIDGE = 10.0  # pulls weights to 0 where there is little to learn from
_PPM = 1_000_000

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Throughput:
    """Forecasts of submissions, one each ten minutes of the clock.

    Attributes:
        submit_ms: When jobs are submitted, ascending; shape (jobs,). Each forecast uses what is before it.
    """

    submit_ms: Integers

    @classmethod
    def of(cls, submit_ms: Sequence[int]) -> Throughput:
        """Return the forecasts for submissions in any order."""
        return cls(np.sort(np.array(submit_ms, dtype=np.int64)))

    def at(self, now_ms: int) -> int:
        """Return the jobs per ten minutes forecast at the last full ten minutes, in ppm of a job."""
        place = min(max(now_ms // BIN_MS - self._first, 0), len(self._jobs_ppm) - 1)
        return self._jobs_ppm[place]

    def next_ms(self, now_ms: int) -> int | None:
        """Return when the next forecast is made, None after the last, which is of no job."""
        following = max(now_ms // BIN_MS, self._first - 1) + 1
        return following * BIN_MS if following - self._first < len(self._jobs_ppm) else None

    def supposing(self, now_ms: int, coming_ms: Sequence[int]) -> Throughput:
        """Return the forecasts if, from an instant on, other jobs are submitted than really are."""
        known = self.submit_ms[: np.searchsorted(self.submit_ms, now_ms)]
        return Throughput(np.sort(np.concatenate([known, np.array(coming_ms, dtype=np.int64)])))

    @cached_property
    def _first(self) -> int:
        return int(self.submit_ms[0]) // BIN_MS if len(self.submit_ms) else 0

    @cached_property
    def _jobs_ppm(self) -> list[int]:
        """Forecasts from the bin of the first submission on, until a day after the last."""
        bins = self.submit_ms // BIN_MS - self._first
        counts = np.bincount(bins, minlength=int(bins[-1]) + DAY + 1 if len(bins) else 1)
        found = np.round(_forecasts(counts.astype(np.float64), self._first) * _PPM).astype(np.int64)
        found[-1] = 0
        return [int(one) for one in found]


def _forecasts(counts: Reals, first: int) -> Reals:
    """Return the forecast at the beginning of each bin; shape (bins,).

    Until a week is known it is the mean of the last hour.
    """
    rows = _rows(counts, first)
    found = _means(counts, HOUR)
    sums = np.concatenate([[0.0], np.cumsum(counts)])
    targets = (sums[AHEAD:] - sums[:-AHEAD]) / AHEAD if len(counts) >= AHEAD else np.empty(0)
    for begin in range(WEEK, len(counts), WEEK):
        known = begin - AHEAD + 1  # bins whose following bins are over
        weights = _fit(rows[DAY:known], targets[DAY:known])
        found[begin : begin + WEEK] = rows[begin : begin + WEEK] @ weights
    return np.asarray(np.maximum(found, 0.0))


def _means(counts: Reals, length: int) -> Reals:
    """Return the mean of up to so many bins before each one; 0 before the first."""
    sums = np.concatenate([[0.0], np.cumsum(counts)])[:-1]
    places = np.arange(len(counts))
    begin = np.maximum(places - length, 0)
    return np.asarray((sums - sums[begin]) / np.maximum(places - begin, 1))


def _ago(counts: Reals, bins: int) -> Reals:
    """Return the mean of the five bins that begin so many bins before each one; 0 where not all are known."""
    found = np.zeros(len(counts))
    sums = np.concatenate([[0.0], np.cumsum(counts)])
    places = np.arange(bins, len(counts))
    found[bins:] = (sums[places - bins + AHEAD] - sums[places - bins]) / AHEAD
    return found


def _rows(counts: Reals, first: int) -> Reals:
    """Return what each forecast is a weighted sum of; shape (bins, columns)."""
    phase = 2 * math.pi * ((first + np.arange(len(counts))) % DAY) / DAY
    calendar = [function(times * phase) for times in (1, 2) for function in (np.sin, np.cos)]
    means = [_means(counts, length) for length in (1, HOUR, DAY)]
    return np.column_stack([np.ones(len(counts)), *means, _ago(counts, DAY), _ago(counts, WEEK), *calendar])


def _fit(rows: Reals, targets: Reals) -> Reals:
    """Return the weights of least squares, with a small penalty on all but the constant."""
    penalty = np.full(rows.shape[1], _RIDGE)
    penalty[0] = 0.0
    return np.asarray(np.linalg.solve(rows.T @ rows + np.diag(penalty), rows.T @ targets), dtype=np.float64)
