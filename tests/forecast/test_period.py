"""Periods: planted ones are found, harmonics belong to their fundamental, noise has none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from trimtab.forecast.history import History
from trimtab.forecast.period import find_periods
from trimtab.forecast.record import BIN_MS, REACH, Record
from trimtab.traces.loader import load

HOUR_MS = 3_600_000
HOUR = 12  # bins


def _poisson(rate: np.ndarray, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).poisson(rate)


def _time(days: int) -> np.ndarray:
    return np.arange(days * 24 * HOUR) / HOUR  # hours


@pytest.mark.parametrize("period_h", [3, 8, 12, 20, 24, 36])
def test_a_planted_sine_is_found(period_h: int) -> None:
    counts = _poisson(3 + 2.5 * np.sin(2 * np.pi * _time(28) / period_h))
    first = find_periods(counts, BIN_MS)[0]
    assert first.period_ms == pytest.approx(period_h * HOUR_MS, rel=0.03)
    assert not first.weak
    assert 0 < first.confidence <= first.share <= 1


def test_harmonics_stronger_than_the_day_belong_to_it() -> None:
    hours = _time(28)
    lines = {24: 0.4, 8: 0.9, 4.8: 1.2, 24 / 7: 0.8}
    rate = 4 + sum(height * np.sin(2 * np.pi * hours / period_h) for period_h, height in lines.items())
    assert find_periods(_poisson(rate), BIN_MS)[0].period_ms == pytest.approx(24 * HOUR_MS, rel=0.01)


def test_a_week_of_quiet_weekends_is_second_to_the_day() -> None:
    hours = _time(28)
    rate = (3 + 2 * np.sin(2 * np.pi * hours / 24)) * np.where(hours % 168 < 120, 1.0, 0.25)
    day, week = find_periods(_poisson(rate), BIN_MS)
    assert day.period_ms == pytest.approx(24 * HOUR_MS, rel=0.02)
    assert week.period_ms == pytest.approx(168 * HOUR_MS, rel=0.02)


@pytest.mark.parametrize("seed", range(8))
def test_noise_has_no_period(seed: int) -> None:
    assert find_periods(_poisson(np.full(28 * 24 * HOUR, 3.0), seed), BIN_MS) == []


@pytest.mark.parametrize("counts", [[], [4], [0, 7], [5] * 5000, list(range(30))])
def test_too_little_or_constant_counts_have_none(counts: list[int]) -> None:
    assert find_periods(np.array(counts, dtype=np.int64), BIN_MS) == []


def test_less_than_two_days_show_no_day() -> None:
    counts = _poisson(3 + 2.5 * np.sin(2 * np.pi * _time(28)[: 40 * HOUR] / 24))
    assert all(one.period_ms <= 20 * HOUR_MS * 1.1 for one in find_periods(counts, BIN_MS))


@settings(max_examples=60)
@given(arrays.arrays(np.int64, st.integers(0, 900), elements=st.integers(0, 50)))
def test_any_counts_give_periods_within_bounds_or_none(counts: np.ndarray) -> None:
    for one in find_periods(counts, BIN_MS):
        assert 0 <= one.confidence <= one.share <= 1
        assert 1.8 * HOUR_MS <= one.period_ms <= 8.8 * 24 * HOUR_MS


@pytest.mark.parametrize(
    ("file", "date"),
    [
        ("helios/venus_gpu_jobs_until_2020-08-09.csv.gz", "2020-07-26"),
        ("pai/pai_gpu_tasks_sample_days_0_45.csv.gz", "32d"),
    ],
)
def test_venus_and_pai_have_a_day_and_a_week(shared: Path, file: str, date: str) -> None:
    trace = load(str(shared / "data" / file))
    record = Record.of(History.of(trace).as_of(trace.instant_ms(date) - trace.zero_ms))
    day, week = find_periods(record.counts[-REACH:], BIN_MS)
    assert abs(day.period_ms - 24 * HOUR_MS) <= HOUR_MS / 2
    assert abs(week.period_ms - 168 * HOUR_MS) <= HOUR_MS


def test_philly_is_weak(shared: Path) -> None:
    trace = load(str(shared / "data" / "philly" / "philly_until_2017-10-31.csv.gz"))
    record = Record.of(History.of(trace).as_of(trace.instant_ms("2017-10-20") - trace.zero_ms))
    (day,) = find_periods(record.counts[-REACH:], BIN_MS)
    assert day.period_ms == 24 * HOUR_MS
    assert day.weak
    assert 0.02 <= day.share <= 0.05
