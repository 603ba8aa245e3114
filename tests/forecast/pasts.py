"""Small pasts for forecast tests: jobs from lists, and random weeks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.forecast.history import History, Past

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def history(
    submit_ms: Sequence[int] | np.ndarray,
    gpus: int | np.ndarray = 1,
    duration_ms: int | np.ndarray = 60_000,
) -> History:
    """Return jobs without labels, in submit order."""
    submits = np.sort(np.asarray(submit_ms, dtype=np.int64))
    none = np.full(len(submits), -1, dtype=np.int64)
    return History(
        submits,
        np.broadcast_to(np.int64(1) * duration_ms, submits.shape),
        np.broadcast_to(np.int64(1) * gpus, submits.shape),
        none,
        none,
        none,
    )


def daily(days: int, seed: int = 0, jobs_a_day: int = 200) -> History:
    """Return days whose afternoons are busier than their nights, with sizes and run times of all kinds."""
    dice = np.random.default_rng(seed)
    at = dice.integers(0, days * DAY_MS, 2 * days * jobs_a_day)
    busy = 0.5 + 0.45 * np.sin(2 * np.pi * at / DAY_MS)
    submits = np.sort(at[dice.random(len(at)) < busy])
    return history(
        submits,
        dice.choice([1, 1, 1, 2, 4, 8], len(submits)),
        np.exp(dice.normal(np.log(900_000), 1.5, len(submits))).astype(np.int64) + 1,
    )


def regular(start_ms: int, end_ms: int, every_ms: int = 600_000) -> np.ndarray:
    """Return submit times at equal distances."""
    return np.arange(start_ms, end_ms, every_ms)


def empty(now_ms: int) -> Past:
    """Return a past without a job."""
    return history([]).as_of(now_ms)
