"""Kaplan-Meier curves: one worked by hand, unbiased under censoring, and no curve where there is nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.forecast.history import NEVER_MS, Past
from trimtab.forecast.survival import ENDLESS_MS, LINDY_MIN_MS, RunTimes, width
from trimtab.world import Seeds

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def jobs(ran_ms: Sequence[int], completed: Sequence[bool], **columns: Sequence[int]) -> Past:
    """Return jobs of one GPU and no label, unless said otherwise."""
    count = len(ran_ms)
    told = {name: np.array(column, dtype=np.int64) for name, column in columns.items()}
    none = np.full(count, -1)
    return Past(
        now_ms=1 << 40,
        submit_ms=np.arange(count),
        gpus=told.get("gpus", np.ones(count, dtype=np.int64)),
        vc=told.get("vc", none),
        user=told.get("user", none),
        name=told.get("name", none),
        finish_ms=np.where(np.array(completed, dtype=np.bool_), 1 << 39, NEVER_MS),
        ran_ms=np.array(ran_ms, dtype=np.int64),
    )


def asked(past: Past, row: int, levels: Sequence[float], **between: int) -> list[int]:
    rows = np.array([row])
    found = RunTimes.of(past).remaining_ms(past, rows, np.array(levels)[:, None], **between)
    return found[:, 0].tolist()


def test_the_curve_worked_by_hand() -> None:
    """Freireich's 6-MP arm in weeks as hours; survival as in every textbook that prints the table."""
    hours = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
    censored = {3, 5, 7, 8, 11, 12, 13, 16, 17, 18, 19, 20}
    past = jobs([hour * HOUR_MS for hour in hours], [place not in censored for place in range(21)])
    curves = RunTimes.of(past)
    assert len(curves.event_at) == 2 * (1 + 9)  # the group of one GPU and that of all: 0 and each completion
    every = slice(11, None)
    at = curves.event_at[every] % ENDLESS_MS // HOUR_MS
    steps = dict(zip(at.tolist(), curves.survival[every].tolist(), strict=True))
    assert {hour: round(share, 4) for hour, share in steps.items()} == {
        6: 0.8571, 7: 0.8067, 10: 0.7529, 13: 0.6902, 16: 0.6275, 22: 0.5378, 23: 0.4482,
    }  # fmt: skip


def test_remaining_is_conditional_on_what_ran() -> None:
    past = jobs([60, 120, 180, 240, 100], [True, True, True, True, False])
    # Of five that ran, the one still running leaves S = 4/5 at 60; then 3 remain: 8/15, 4/15, 0.
    assert asked(past, 4, [0.0, 0.3, 0.34, 0.6, 0.67, 0.999]) == [20, 20, 80, 80, 140, 140]


def test_a_range_is_kept_to() -> None:
    past = jobs([60, 120, 180, 240, 100], [True, True, True, True, False])
    assert asked(past, 4, [0.0, 0.49, 0.51, 0.99], from_ms=50, below_ms=141) == [80, 80, 140, 140]
    assert asked(past, 4, [0.0, 0.5], from_ms=100, below_ms=120) == [100, 110]  # none there: uniform


def test_beyond_the_last_completion_it_goes_on() -> None:
    past = jobs([1000, 2000, 4000], [True, True, False])
    levels = [0.0, 0.5, 0.995, 0.9999]
    found = asked(past, 2, levels)
    assert found == sorted(found)
    assert 1 <= found[0] < found[1] < found[2] == found[3]  # cut at the 99.5 % quantile
    index = 1 / (np.log(2000 / 1750) + np.log(4000 / 1750))  # beyond the 75 % quantile of 1000 and 2000
    assert found[2] == 1 + int(4001 / index * np.log(200))


def test_nothing_completed_is_lindy() -> None:
    past = jobs([10, 5 * HOUR_MS], [False, False])
    assert RunTimes.of(past).empty
    assert asked(past, 0, [0.1, 0.9]) == [LINDY_MIN_MS] * 2
    assert asked(past, 1, [0.1, 0.9]) == [5 * HOUR_MS] * 2


def test_no_jobs_at_all() -> None:
    past = jobs([], [])
    assert RunTimes.of(past).remaining_ms(past, np.zeros(0, dtype=np.int64), np.zeros((3, 0))).shape == (3, 0)


def test_the_most_specific_group_with_enough_completions_answers() -> None:
    short, long = [MINUTE_MS] * 20, [10 * HOUR_MS] * 200
    past = jobs(
        [*short, *long, 1, 1, 1],
        [True] * 220 + [False] * 3,
        user=[1] * 20 + [2] * 200 + [1, 3, 1],
        gpus=[1] * 222 + [8],
    )
    assert asked(past, 220, [0.5]) == [MINUTE_MS - 1]  # its user's
    assert asked(past, 221, [0.5]) == [10 * HOUR_MS - 1]  # nobody's: everyone of that width
    assert asked(past, 222, [0.5]) == [10 * HOUR_MS - 1]  # no width of its own: everyone
    fewer = jobs([*short[1:], *long, 1], [True] * 219 + [False], user=[1] * 19 + [2] * 200 + [1])
    assert asked(fewer, 219, [0.5]) == [10 * HOUR_MS - 1]


def test_unfinished_jobs_are_counted_without_bias() -> None:
    """Exponential run times cut at random times: the median is the true one, dropping them is far off."""
    dice = Seeds(0).stream("censoring")
    true_ms = 1 + (dice.exponential(HOUR_MS, 20_000)).astype(np.int64)
    cut_ms = 1 + (dice.exponential(HOUR_MS, 20_000)).astype(np.int64)
    ran_ms = np.minimum(true_ms, cut_ms)
    past = jobs([*ran_ms.tolist(), 1], [*(true_ms <= cut_ms).tolist(), False])
    (median_ms,) = asked(past, 20_000, [0.5])
    assert median_ms == pytest.approx(np.log(2) * HOUR_MS, rel=0.03)
    assert np.median(ran_ms[true_ms <= cut_ms]) < 0.6 * median_ms


@given(st.lists(st.tuples(st.integers(0, 10**7), st.booleans(), st.integers(1, 9)), min_size=1), st.data())
def test_quantiles_rise_and_know_their_range(rows: list[tuple[int, bool, int]], data: st.DataObject) -> None:
    ran_ms, completed, gpus = zip(*rows, strict=True)
    past = jobs([*ran_ms, 7], [*completed, False], gpus=[*gpus, 3])
    levels = sorted(data.draw(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=9)))
    whole = asked(past, len(rows), levels)
    assert whole == sorted(whole)
    assert whole[0] >= 1
    from_ms = data.draw(st.integers(0, 10**6))
    below_ms = from_ms + data.draw(st.integers(2, 10**6))
    within = asked(past, len(rows), levels, from_ms=from_ms, below_ms=below_ms)
    assert within == sorted(within)
    assert from_ms <= max(within[0], from_ms) <= within[-1] < below_ms


def test_widths_are_powers_of_two() -> None:
    assert width(np.array([1, 2, 3, 4, 5, 8, 9, 400])).tolist() == [0, 1, 2, 2, 3, 3, 4, 9]
