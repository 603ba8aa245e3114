"""What a trace looks like, in numbers: plain functions over arrays.

`describe` prints them, and the synthetic generator is held to them, so each has one definition here.
Shares are in per cent, times in the unit the name says, arrays have shape (jobs,) unless said otherwise.
Nothing here divides by zero: a statistic of nothing is 0, or nan where 0 would be a claim.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 86_400_000
BIN_MS = 5 * MINUTE_MS  # arrivals are counted in bins of five minutes

# Lower bounds of half-open classes; the last one has no upper bound.
RUN_TIME_BOUNDS_S: tuple[int, ...] = (0, 300, 1_800, 3_600, 7_200, 14_400)
RUN_TIME_NAMES: tuple[str, ...] = ("[0,5m)", "[5m,30m)", "[30m,1h)", "[1h,2h)", "[2h,4h)", "[4h,)")
GANG_BOUNDS: tuple[int, ...] = (1, 2, 5, 9, 17)
GANG_NAMES: tuple[str, ...] = ("1", "2-4", "5-8", "9-16", ">16")
QUANTILES: tuple[float, ...] = (0.10, 0.50, 0.90, 0.99)
LAGS_BINS: tuple[int, ...] = (1, 12, 288, 2_016)  # 5 min, 1 h, 24 h, 168 h


def class_shares(values: np.ndarray, bounds: Sequence[int], weights: np.ndarray | None = None) -> FloatArray:
    """Return the share of each class in per cent, shape (len(bounds),); weighted where weights are given.

    Class k holds bounds[k] <= value < bounds[k + 1]; values under bounds[0] fall into the first.
    """
    place = np.clip(np.searchsorted(np.asarray(bounds), values, side="right") - 1, 0, None)
    heavy = None if weights is None else np.asarray(weights, dtype=np.float64)
    sums = np.bincount(place, weights=heavy, minlength=len(bounds)).astype(np.float64)
    total = sums.sum()
    return 100.0 * sums / total if total > 0 else np.zeros(len(bounds))


def run_time_shares(duration_ms: np.ndarray, weights: np.ndarray | None = None) -> FloatArray:
    """Return the share of the six run-time classes `RUN_TIME_NAMES` in per cent."""
    return class_shares(duration_ms, [bound * 1000 for bound in RUN_TIME_BOUNDS_S], weights)


def gang_shares(gpus: np.ndarray, weights: np.ndarray | None = None) -> FloatArray:
    """Return the share of the five gang classes `GANG_NAMES` in per cent."""
    return class_shares(gpus, GANG_BOUNDS, weights)


def gpu_time_ms(gpus: np.ndarray, duration_ms: np.ndarray) -> FloatArray:
    """Return GPUs x run time of each job in GPU-milliseconds, as floats (sums may exceed int64)."""
    return gpus.astype(np.float64) * duration_ms.astype(np.float64)


def run_time_quantiles_s(duration_ms: np.ndarray, shares: Sequence[float] = QUANTILES) -> FloatArray:
    """Return run-time quantiles in seconds by linear interpolation, shape (len(shares),)."""
    if len(duration_ms) == 0:
        return np.full(len(shares), np.nan)
    return np.asarray(np.quantile(duration_ms, shares) / 1000.0, dtype=np.float64)


def arrival_counts(submit_ms: np.ndarray, start_ms: int, end_ms: int, bin_ms: int = BIN_MS) -> IntArray:
    """Return arrivals per bin over [start_ms, end_ms), shape (bins,); the last bin may be cut short."""
    bins = max(0, -(-(end_ms - start_ms) // bin_ms))
    inside = submit_ms[(submit_ms >= start_ms) & (submit_ms < end_ms)]
    return np.bincount((inside - start_ms) // bin_ms, minlength=bins).astype(np.int64)


def dispersion(counts: np.ndarray) -> float:
    """Return variance over mean of counts: 1 for a Poisson process, more for bursts; nan without arrivals."""
    mean = float(np.mean(counts)) if len(counts) else 0.0
    return float(np.var(counts)) / mean if mean > 0 else float("nan")


def autocorrelation(counts: np.ndarray, lag: int) -> float:
    """Return the autocorrelation of counts at `lag` bins; nan where the series is too short or constant.

    Mean of (x[i] - mean)(x[i + lag] - mean) over the n - lag pairs, by the variance; the mean is the whole
    series'. Dividing by the pairs there are keeps a weekly lag comparable over four weeks.
    """
    if lag >= len(counts):
        return float("nan")
    away = counts - np.mean(counts)
    power = float(np.dot(away, away))
    if power <= 0:
        return float("nan")
    pairs = len(away) - lag
    return float(np.dot(away[:pairs], away[lag:])) / pairs / (power / len(away))


def load(gpus: np.ndarray, duration_ms: np.ndarray, span_ms: int, cluster_gpus: int) -> float:
    """Return the GPU time asked for over the GPU time the cluster has in the span; nan for an empty span."""
    capacity = float(span_ms) * cluster_gpus
    return float(gpu_time_ms(gpus, duration_ms).sum()) / capacity if capacity > 0 else float("nan")


def same_second_share(submit_ms: np.ndarray) -> float:
    """Return the share of jobs, in per cent, that share their second of submission with another job."""
    if len(submit_ms) == 0:
        return 0.0
    _, inverse, counts = np.unique(submit_ms // 1000, return_inverse=True, return_counts=True)
    return 100.0 * float(np.mean(counts[inverse] > 1))


@dataclass(frozen=True, slots=True)
class Repeats:
    """How much the members of a label (users, virtual clusters, kinds of job) repeat themselves."""

    distinct: int
    top_share: float  # per cent of jobs that belong to the most frequent member
    often_share: float  # per cent of jobs whose member occurs more than ten times


def repeats(labels: Sequence[Hashable | None]) -> Repeats:
    """Count how jobs spread over a label; jobs without one (None) are left out of all three numbers."""
    known: dict[Hashable, int] = {}
    for label in labels:
        if label is not None:
            known[label] = known.get(label, 0) + 1
    total = sum(known.values())
    if total == 0:
        return Repeats(0, 0.0, 0.0)
    often = sum(count for count in known.values() if count > 10)
    return Repeats(len(known), 100.0 * max(known.values()) / total, 100.0 * often / total)


def busiest(submit_ms: np.ndarray, bin_ms: int = BIN_MS) -> tuple[int, int]:
    """Return the arrivals of the busiest bin and the time its first job came; (0, 0) without jobs."""
    if len(submit_ms) == 0:
        return 0, 0
    bins, counts = np.unique(submit_ms // bin_ms, return_counts=True)
    at = int(np.argmax(counts))
    return int(counts[at]), int(np.min(submit_ms[submit_ms // bin_ms == bins[at]]))
