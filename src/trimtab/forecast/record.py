"""A cluster's arrivals as counts per five minutes, ending at the present: what all arrival forecasts read.

Several hours without a single submission, on a cluster that has no such pauses otherwise, are taken for an
outage of the accounting. What happened then is unknown, which is not the same as nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.forecast.history import Integers, Past

BIN_MS = 300_000
HOUR = 12  # in bins, as DAY and WEEK
DAY = 24 * HOUR
WEEK = 7 * DAY

REACH = 28 * DAY  # how far back an instant may look
KEEP = REACH + 12 * DAY  # a backtest looks back from instants of its own

OUTAGE_MS = 3 * HOUR * BIN_MS
_ALIKE_MAX = 2  # an unusual pause is one of so few that are at least half as long
_PAUSES_MIN = 50  # fewer do not tell what is usual

Reals = NDArray[np.float64]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Record:
    """Arrivals of the last 40 days at most, from the first submission on; the last bin ends at the present.

    Attributes:
        past: What it was made of.
        counts: Jobs submitted per bin, shape (bins,).
        counts_before, service_before: Jobs, and GPU-ms run so far by jobs, submitted before a bin,
            shape (bins + 1,).
        unknown_before: Bins of an outage before a bin, shape (bins + 1,).
    """

    past: Past
    counts: Integers
    counts_before: Integers
    service_before: Reals
    unknown_before: Integers

    @classmethod
    def of(cls, past: Past) -> Record:
        """Count what is known at an instant; without a job in 40 days the record has no bin."""
        recent = past.since(past.now_ms - KEEP * BIN_MS)
        bins = -(-(past.now_ms - int(recent.submit_ms[0])) // BIN_MS) if len(recent) else 0
        place = bins - 1 - (past.now_ms - 1 - recent.submit_ms) // BIN_MS
        counts = np.bincount(place, minlength=bins).astype(np.int64)
        service = np.bincount(place, recent.gpus.astype(np.float64) * recent.ran_ms, minlength=bins)
        unknown = _unknown(recent, bins)
        return cls(past, counts, _before(counts), _before(service), _before(unknown.astype(np.int64)))

    def __len__(self) -> int:
        return len(self.counts)

    def start_ms(self, place: int) -> int:
        """Return the instant at which a bin begins."""
        return self.past.now_ms - (len(self) - place) * BIN_MS

    def usable(self, start: Integers, length: int) -> Booleans:
        """Return whether segments of `length` bins are within the record and free of outages."""
        inside = (start >= 0) & (start + length <= len(self))
        first = np.where(inside, start, 0)
        last = np.where(inside, start + length, 0)
        return np.asarray(inside & (self.unknown_before[last] == self.unknown_before[first]))

    def sums(self, before: NDArray[np.int64] | Reals, start: Integers, length: int) -> Reals:
        """Return sums over segments, 0 for those not within the record; `before` is one of the above."""
        inside = (start >= 0) & (start + length <= len(self))
        first = np.where(inside, start, 0)
        last = np.where(inside, start + length, 0)
        return np.asarray(before[last] - before[first], dtype=np.float64)


def _before(values: NDArray[np.int64] | Reals) -> NDArray[Any]:
    return np.concatenate([values[:0], [0], np.cumsum(values)])


def _unknown(recent: Past, bins: int) -> Booleans:
    """Return which bins lie wholly in a pause, the one before the present included, that is an outage."""
    unknown = np.zeros(bins, dtype=np.bool_)
    begin_ms = recent.submit_ms
    pause_ms = np.diff(np.append(begin_ms, recent.now_ms))
    if len(pause_ms) < _PAUSES_MIN:
        return unknown
    ascending = np.sort(pause_ms)
    for at in np.flatnonzero(pause_ms >= OUTAGE_MS):
        alike = len(ascending) - int(np.searchsorted(ascending, pause_ms[at] / 2))
        if alike <= _ALIKE_MAX:
            first_ms, last_ms = int(begin_ms[at]), int(begin_ms[at] + pause_ms[at])
            first = bins - (recent.now_ms - first_ms - 1) // BIN_MS
            last = bins - -(-(recent.now_ms - last_ms) // BIN_MS)
            unknown[first:last] = True
    return unknown
