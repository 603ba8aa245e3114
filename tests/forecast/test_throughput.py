"""Submissions per ten minutes, forecast: nothing later is used, and a daily rhythm is learnt."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab.forecast.throughput import BIN_MS, DAY, WEEK, Throughput
from trimtab.world import Seeds


def _daily(weeks: int, seed: int = 0) -> Throughput:
    """Jobs at random, 30 per ten minutes by day and 2 by night."""
    draw = Seeds(seed).stream("throughput")
    found = []
    for place in range(weeks * WEEK):
        jobs = draw.poisson(30 if place % DAY < DAY // 2 else 2)
        found += draw.integers(place * BIN_MS, (place + 1) * BIN_MS, jobs).tolist()
    return Throughput.of(found)


def test_nothing_submitted_later_is_used():
    """At fifty instants: with other submissions from there on, all forecasts up to it stay bit for bit."""
    whole = _daily(3)
    draw = Seeds(1).stream("cuts")
    for now_ms in draw.integers(1, 3 * WEEK * BIN_MS, 50).tolist():
        other = whole.supposing(now_ms, (now_ms + draw.integers(0, 10 * BIN_MS, 40)).tolist())
        bins = range(0, now_ms // BIN_MS + 1)
        assert [other.at(one * BIN_MS) for one in bins] == [whole.at(one * BIN_MS) for one in bins]
    assert other.at(now_ms + 2 * BIN_MS) != whole.at(now_ms + 2 * BIN_MS)


def test_a_day_has_a_rhythm():
    """After two weeks the forecast knows when nights begin: a fifth less off than the last hour's mean."""
    pace = _daily(3)
    counts = np.bincount(pace.submit_ms // BIN_MS)
    errors, naive = [], []
    for place in range(2 * WEEK, 3 * WEEK - 5):
        truth = counts[place : place + 5].mean()
        errors.append(abs(pace.at(place * BIN_MS) / 1e6 - truth))
        naive.append(abs(counts[place - 6 : place].mean() - truth))
    assert np.mean(errors) < 0.8 * np.mean(naive)


def test_a_forecast_holds_for_ten_minutes():
    pace = Throughput.of([5 * BIN_MS + 1, 5 * BIN_MS + 2])
    assert pace.at(0) == pace.at(6 * BIN_MS - 1) == 0
    assert pace.at(6 * BIN_MS) == 2_000_000
    assert pace.at(7 * BIN_MS) == 1_000_000
    assert pace.next_ms(0) == 5 * BIN_MS
    assert pace.next_ms(6 * BIN_MS) == 7 * BIN_MS
    assert pace.next_ms(1000 * BIN_MS) is None
    assert pace.at(1000 * BIN_MS) == 0


@pytest.mark.parametrize("submits", [[], [0], [-7_000_000]])
def test_few_jobs_are_no_problem(submits):
    pace = Throughput.of(submits)
    assert pace.at(0) >= 0
    assert pace.at(10**12) == 0
