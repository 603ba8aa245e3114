"""Arrival forecasts: small cases by hand, no knowledge of the future, a result for any history."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecast.pasts import DAY_MS, HOUR_MS, daily, empty, history, regular
from trimtab.errors import ConfigError, UnknownName
from trimtab.forecast.arrivals import (
    DAYS_AGO,
    METHODS,
    Arrivals,
    View,
    day_again,
    expected,
    forecast_arrivals,
)
from trimtab.forecast.backtest import FIRST_CHOICE, FULL, Backtest, backtest, belief, best_arrivals
from trimtab.forecast.history import History, Past
from trimtab.forecast.record import BIN_MS, Record
from trimtab.world import Seeds

MINUTE_MS = 60_000


def _same(one: Arrivals, other: Arrivals) -> bool:
    return (
        one.submit_ms.tobytes() == other.submit_ms.tobytes()
        and one.source.tobytes() == other.source.tobytes()
        and (one.method, one.reason) == (other.method, other.reason)
    )


# ---- by hand -------------------------------------------------------------------------------------


def test_the_last_hour_is_repeated_with_its_offsets() -> None:
    past = history([MINUTE_MS, HOUR_MS + 5 * MINUTE_MS, HOUR_MS + 7]).as_of(2 * HOUR_MS)
    found = forecast_arrivals(past, 2 * HOUR_MS, "last-hour")
    offsets = [7, 5 * MINUTE_MS, HOUR_MS + 7, HOUR_MS + 5 * MINUTE_MS]
    assert (found.submit_ms - past.now_ms).tolist() == offsets
    assert found.source.tolist() == [1, 2, 1, 2]
    assert (found.method, found.reason) == ("last-hour", "")


def test_yesterday_and_last_week_are_those() -> None:
    days = np.arange(9)
    past = history(days * DAY_MS + days * MINUTE_MS).as_of(9 * DAY_MS)
    assert forecast_arrivals(past, HOUR_MS, "yesterday").source.tolist() == [8]
    assert forecast_arrivals(past, HOUR_MS, "last-week").source.tolist() == [2]
    assert forecast_arrivals(past, 2 * DAY_MS, "last-week").source.tolist() == [2, 3]


def test_hour_of_day_is_the_mean_of_the_days() -> None:
    jobs = [day * DAY_MS + count * 1000 for day in range(4) for count in range(2 * day + 1)]
    past = history(jobs).as_of(4 * DAY_MS)
    assert len(forecast_arrivals(past, HOUR_MS, "hour-of-day")) == 4  # the mean of 1, 3, 5, 7


def test_the_nearest_segment_follows_the_hour_like_the_last() -> None:
    hours = [[10, 20], [30], [], [10, 20]]  # minutes of each hour's jobs
    jobs = [at * HOUR_MS + minute * MINUTE_MS for at, minutes in enumerate(hours) for minute in minutes]
    past = history([-2 * HOUR_MS, *jobs]).as_of(4 * HOUR_MS)
    found = forecast_arrivals(past, HOUR_MS, "nearest")
    assert found.source.tolist() == [3]
    assert (found.submit_ms - past.now_ms).tolist() == [30 * MINUTE_MS]


def test_of_equally_near_segments_the_later_is_taken() -> None:
    jobs = [at * 2 * HOUR_MS + minute * MINUTE_MS for at in range(5) for minute in (0, 20, 65 + at)]
    past = history(jobs).as_of(9 * HOUR_MS)
    assert forecast_arrivals(past, HOUR_MS, "nearest").source.tolist() == [11]


def test_half_of_the_jobs_are_large_and_small_in_their_proportions() -> None:
    """The mean of a full day and an idle one takes every second job, by size."""
    jobs = np.arange(40) * MINUTE_MS
    gpus = np.tile([1, 8], 20)
    past = history([*jobs, 2 * DAY_MS - 2 * HOUR_MS], np.append(gpus, 1)).as_of(2 * DAY_MS)
    found = forecast_arrivals(past, HOUR_MS, "hour-of-day")
    assert np.sort(past.gpus[found.source]).tolist() == [1] * 10 + [8] * 10


def test_a_blend_mixes_the_last_hour_into_the_next_one_only() -> None:
    """Ten jobs an hour for 14 days but 20 in the last: 0.4 x 20 + 0.6 x 10, then what the days promise."""
    usual = regular(0, 14 * DAY_MS, 6 * MINUTE_MS)
    more = regular(14 * DAY_MS - HOUR_MS, 14 * DAY_MS, 6 * MINUTE_MS)
    past = history(np.concatenate([usual, more])).as_of(14 * DAY_MS)
    assert len(forecast_arrivals(past, HOUR_MS, "blend-0.4-x1")) == 14
    assert len(forecast_arrivals(past, HOUR_MS, "blend-0.4-x0.6")) == 8
    day = forecast_arrivals(past, 24 * HOUR_MS, "blend-0.4-x1")
    assert len(day) == pytest.approx(14 + 230, abs=3)


def test_a_blend_follows_yesterday_and_the_same_day_of_last_week() -> None:
    """Jobs of a day: 100, but 200 yesterday and 300 a week ago. 0.6 x the mean + 0.2 x 200 + 0.2 x 300."""
    sizes = np.full(14, 100)
    sizes[13], sizes[7] = 200, 300
    jobs = [day * DAY_MS + np.arange(size) * (DAY_MS // size) for day, size in enumerate(sizes)]
    past = history(np.concatenate(jobs)).as_of(14 * DAY_MS)
    found = len(forecast_arrivals(past, 2 * DAY_MS, "blend-0.4-x1"))
    assert found == pytest.approx(2 * (0.6 * sizes.mean() + 40 + 60), abs=4)


def test_days_ago_copies_that_day() -> None:
    past = daily(9).as_of(9 * DAY_MS)
    for days in DAYS_AGO:
        found = day_again(past, DAY_MS, days)
        first, last = np.searchsorted(past.submit_ms, [(9 - days) * DAY_MS, (10 - days) * DAY_MS])
        assert found.source.tolist() == list(range(first, last))


def test_neighbours_are_drawn_one_at_a_time_and_differ() -> None:
    past = daily(20).as_of(20 * DAY_MS)
    futures = [
        forecast_arrivals(past, HOUR_MS, "knn", Seeds(7).stream("future", place)) for place in range(8)
    ]
    assert all(np.ptp(past.submit_ms[one.source]) < HOUR_MS for one in futures if len(one))
    assert len({one.source.tobytes() for one in futures}) > 1
    again = forecast_arrivals(past, HOUR_MS, "knn", Seeds(7).stream("future", 3))
    assert _same(again, futures[3])


# ---- no knowledge of the future ------------------------------------------------------------------


def _another_future(jobs: History, now_ms: int, dice: np.random.Generator) -> History:
    """Return the same jobs before an instant; other run times of what still runs, other jobs after it."""
    before = jobs.submit_ms < now_ms
    ran_ms = now_ms - jobs.submit_ms[before]
    longer_ms = ran_ms + dice.integers(1, 10 * HOUR_MS, len(ran_ms))
    duration_ms = np.where(jobs.duration_ms[before] <= ran_ms, jobs.duration_ms[before], longer_ms)
    later = np.sort(dice.integers(now_ms, now_ms + 3 * DAY_MS, int(dice.integers(0, 400))))
    none = np.full(len(later), -1)
    columns = {
        "submit_ms": later,
        "duration_ms": dice.integers(1, DAY_MS, len(later)),
        "gpus": dice.integers(1, 9, len(later)),
    }
    return History(
        *(
            np.concatenate(
                [
                    duration_ms if field.name == "duration_ms" else getattr(jobs, field.name)[before],
                    columns.get(field.name, none),
                ]
            )
            for field in fields(History)
        )
    )


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from([HOUR_MS, DAY_MS]))
def test_another_future_changes_nothing(seed: int, horizon_ms: int) -> None:
    dice = np.random.default_rng(seed)
    jobs = daily(int(dice.integers(1, 13)), seed % 5)
    now_ms = int(dice.integers(HOUR_MS, jobs.submit_ms[-1]))
    past, other = jobs.as_of(now_ms), _another_future(jobs, now_ms, dice).as_of(now_ms)
    for method in METHODS:
        assert _same(
            forecast_arrivals(past, horizon_ms, method), forecast_arrivals(other, horizon_ms, method)
        ), method
    best, tested = best_arrivals(past, horizon_ms)
    best_other, tested_other = best_arrivals(other, horizon_ms)
    assert _same(best, best_other)
    assert tested == tested_other


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.sampled_from([HOUR_MS, DAY_MS]))
def test_past_hours_are_forecast_from_what_was_submitted_before_them(seed: int, horizon_ms: int) -> None:
    """A backtest's count for an hour is what the same forecaster said at that hour."""
    now_ms, back_h = 13 * DAY_MS, 1 + seed % 100
    jobs, horizon = daily(13, seed % 5), horizon_ms // BIN_MS
    whole, then = Record.of(jobs.as_of(now_ms)), Record.of(jobs.as_of(now_ms - back_h * HOUR_MS))
    seen = View(whole, np.array([len(then)]), horizon)
    truly = View(then, np.array([len(then)]), horizon)
    for name, method in METHODS.items():
        if name != "phase":  # whose period is the present one at all hours
            before, after = (
                expected(view.record, method(view), view.record.counts_before) for view in (truly, seen)
            )
            assert np.array_equal(before, after), name


# ---- any history ---------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 5 * DAY_MS), max_size=60),
    st.integers(1, 6 * DAY_MS),
    st.sampled_from([1, BIN_MS, HOUR_MS, 90 * MINUTE_MS, DAY_MS, 2 * DAY_MS]),
    st.sampled_from(sorted(METHODS)),
    st.booleans(),
)
def test_any_history_has_a_result(
    submits: list[int], now_ms: int, horizon_ms: int, method: str, chance: bool
) -> None:
    past = history(submits).as_of(now_ms)
    dice = Seeds(1).stream("any") if chance else None
    found = forecast_arrivals(past, horizon_ms, method, dice)
    assert np.all(np.diff(found.submit_ms) >= 0)
    assert np.all((found.submit_ms >= now_ms) & (found.submit_ms < now_ms + horizon_ms))
    assert np.all((found.source >= 0) & (found.source < len(past)))
    assert len(found) or found.reason


@pytest.mark.parametrize("method", sorted(METHODS))
def test_no_job_and_one_job(method: str) -> None:
    nothing = forecast_arrivals(empty(DAY_MS), DAY_MS, method)
    assert len(nothing) == 0
    assert "no job was submitted" in nothing.reason
    lone = forecast_arrivals(history([DAY_MS - 5]).as_of(DAY_MS), DAY_MS, method)
    assert lone.reason
    assert set(lone.source.tolist()) == {0}


def test_a_method_without_history_says_what_was_done_instead() -> None:
    past = history(regular(0, 6 * HOUR_MS)).as_of(6 * HOUR_MS)
    found = forecast_arrivals(past, HOUR_MS, "yesterday")
    assert (found.method, len(found)) == ("last-hour", 6)
    assert "yesterday" in found.reason


@pytest.mark.parametrize("horizon_ms", [0, -5])
def test_an_empty_horizon_is_refused(horizon_ms: int) -> None:
    past = daily(2).as_of(DAY_MS)
    for call in (backtest, best_arrivals):
        with pytest.raises(ConfigError, match="longer than nothing"):
            call(past, horizon_ms)
    with pytest.raises(ConfigError, match="longer than nothing"):
        forecast_arrivals(past, horizon_ms, "nearest")


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean 'nearest'"):
        forecast_arrivals(daily(2).as_of(DAY_MS), HOUR_MS, "nearst")


# ---- outages -------------------------------------------------------------------------------------


def _with_pause(first_h: int, hours: int, days: int = 12) -> Past:
    """Return a job every ten minutes but for a pause, known right after the last day."""
    submits = regular(0, days * DAY_MS)
    pause = (submits >= first_h * HOUR_MS) & (submits < (first_h + hours) * HOUR_MS)
    return history(submits[~pause]).as_of(days * DAY_MS)


def test_a_pause_of_hours_on_a_busy_cluster_is_unknown() -> None:
    record = Record.of(_with_pause(first_h=200, hours=5))
    unknown = np.flatnonzero(np.diff(record.unknown_before))
    assert unknown.tolist() == list(range(200 * 12 - 1, 205 * 12))  # from the bin after the last job's
    assert record.counts[unknown].sum() == 0


def test_pauses_that_come_every_night_are_not() -> None:
    submits = regular(0, 12 * DAY_MS)
    awake = submits % DAY_MS >= 6 * HOUR_MS
    assert Record.of(history(submits[awake]).as_of(12 * DAY_MS)).unknown_before[-1] == 0


def test_an_outage_is_not_averaged_in_and_lowers_confidence() -> None:
    whole, broken = _with_pause(0, 0), _with_pause(first_h=240, hours=12)
    assert len(forecast_arrivals(broken, HOUR_MS, "hour-of-day")) == 6
    assert len(forecast_arrivals(broken, 2 * DAY_MS, "hour-of-day")) == 288
    assert backtest(whole, HOUR_MS).reasons == ()
    assert any("outage" in reason for reason in backtest(broken, HOUR_MS).reasons)
    assert backtest(broken, HOUR_MS).hours < backtest(whole, HOUR_MS).hours


def test_in_an_outage_the_last_hour_is_not_taken_for_silence() -> None:
    past = _with_pause(first_h=11 * 24 + 19, hours=5)
    found = forecast_arrivals(past, HOUR_MS, "last-hour")
    assert (found.method, len(found)) == ("hour-of-day", 6)


def test_a_week_without_a_record_has_a_result() -> None:
    past = _with_pause(first_h=13 * 24, hours=7 * 24, days=20)
    found, tested = best_arrivals(past, DAY_MS)
    assert len(found) == 144
    assert tested.hours == 0
    assert tested.reasons


# ---- the backtest --------------------------------------------------------------------------------


def test_a_perfect_forecaster_has_no_error_and_wins_over_the_first_choice() -> None:
    """Each day is as the one before; hours differ, so that the last hour is no guide to the next."""
    day = np.concatenate(
        [regular(hour * HOUR_MS, (hour + 1) * HOUR_MS, 60_000 * (1 + hour % 5)) for hour in range(24)]
    )
    past = history(np.concatenate([day + at * DAY_MS for at in range(14)])).as_of(14 * DAY_MS)
    tested = backtest(past, HOUR_MS)
    assert tested.hours == 168
    assert tested.errors["yesterday"].count == 0
    assert tested.errors["last-hour"].count > 0.5
    assert tested.best in ("yesterday", "last-week", "hour-of-day")
    assert tested.confidence > 0.9


def test_the_first_choice_holds_while_nothing_is_better_beyond_doubt() -> None:
    past = history(regular(0, 14 * DAY_MS)).as_of(14 * DAY_MS)
    assert backtest(past, HOUR_MS).best == FIRST_CHOICE


def test_an_hour_like_none_before_lowers_confidence() -> None:
    jobs = daily(14)
    now_ms = 14 * DAY_MS
    burst = np.sort(np.concatenate([jobs.submit_ms, regular(now_ms - HOUR_MS, now_ms, 2_000)]))
    calm, strange = backtest(jobs.as_of(now_ms), HOUR_MS), backtest(history(burst).as_of(now_ms), HOUR_MS)
    assert strange.distance_percentile == 100
    assert any("like nothing" in reason for reason in strange.reasons)
    assert not any("like nothing" in reason for reason in calm.reasons)


def test_belief_falls_for_what_cannot_be_forecast() -> None:
    """The same sentences lower a backtest's confidence."""
    now_ms = 14 * DAY_MS
    jobs = daily(14)
    burst = np.sort(np.concatenate([jobs.submit_ms, regular(now_ms - HOUR_MS, now_ms, 2_000)]))
    short, few = daily(1).as_of(10 * HOUR_MS), daily(14, jobs_a_day=3).as_of(now_ms)
    outage, gone = _with_pause(first_h=240, hours=12), _with_pause(first_h=11 * 24 + 19, hours=5)
    assert belief(jobs.as_of(now_ms), HOUR_MS) == FULL
    for past, value, reason in (
        (history(burst).as_of(now_ms), 0.5, "like nothing that was seen before"),
        (short, 0.0, "past hours can be forecast again, 24 are needed"),
        (few, 0.0, "jobs are known of the last 40 days, 50 are needed"),
        (gone, 0.0, "nothing is known of the last hour: an outage"),
    ):
        found = belief(past, HOUR_MS)
        assert found.value == value
        assert any(reason in one for one in found.reasons)
    assert 0.9 < belief(outage, HOUR_MS).value < 1
    assert belief(outage, HOUR_MS).reasons == backtest(outage, HOUR_MS).reasons


def test_too_little_history_is_a_result_with_a_reason() -> None:
    for past in (empty(DAY_MS), history([5]).as_of(DAY_MS), daily(1).as_of(10 * HOUR_MS)):
        tested = backtest(past, HOUR_MS)
        assert (tested.hours, tested.best, tested.confidence) == (0, FIRST_CHOICE, 0.0)
        assert "past hours" in tested.reasons[0]


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_confidence_and_errors_keep_their_bounds(seed: int) -> None:
    dice = np.random.default_rng(seed)
    past = daily(int(dice.integers(2, 16)), seed % 7).as_of(int(dice.integers(1, 16 * DAY_MS)))
    tested: Backtest = backtest(past, int(dice.choice([HOUR_MS, DAY_MS])))
    assert 0 <= tested.confidence <= 1
    assert all(error.count >= 0 and error.service >= 0 for error in tested.errors.values())
    assert tested.best in METHODS
