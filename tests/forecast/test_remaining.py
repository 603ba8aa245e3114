"""Remaining service: nothing later is used, cold starts have answers, and the same draws anywhere."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.errors import InvariantError, UnknownName
from trimtab.forecast.history import NEVER_MS, Past
from trimtab.forecast.remaining import MODES, SNAPSHOTS_MIN, LocalPredictor
from trimtab.forecast.snapshots import (
    CLASSES,
    EDGES_MS,
    MATURE_MS,
    Features,
    Snapshots,
    classes,
    mature,
)
from trimtab.forecast.survival import RunTimes
from trimtab.world import Seeds

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
JOBS = 900


class Truth:
    """Six days of jobs that run from submission on; run times depend on user and gang."""

    def __init__(self, seed: int) -> None:
        dice = Seeds(seed).stream("truth")
        self.submit_ms = np.sort(dice.integers(0, 6 * DAY_MS, JOBS))
        self.user = dice.integers(-1, 4, JOBS)
        self.vc = dice.integers(0, 2, JOBS)
        self.gpus = 1 << dice.integers(0, 4, JOBS)
        hours = dice.lognormal(0, 1, JOBS) * (1 + np.maximum(0, self.user)) ** 1.5
        self.duration_ms = 1 + (hours * HOUR_MS).astype(np.int64)

    def as_of(self, now_ms: int) -> Past:
        seen = self.submit_ms < now_ms
        finish_ms = (self.submit_ms + self.duration_ms)[seen]
        return Past(
            now_ms,
            self.submit_ms[seen],
            self.gpus[seen],
            self.vc[seen],
            self.user[seen],
            np.full(int(seen.sum()), -1),
            np.where(finish_ms <= now_ms, finish_ms, NEVER_MS),
            np.minimum(self.duration_ms[seen], now_ms - self.submit_ms[seen]),
        )


def active(past: Past) -> np.ndarray:
    return np.flatnonzero(~past.completed)


def answers(mode: str, past: Past) -> tuple[bytes, bytes]:
    predictor = LocalPredictor(mode, Seeds(3))
    predictor.refresh(past)
    rows = active(past)
    uniforms = Seeds(4).stream("uniforms").random((3, len(rows), 2))
    drawn = predictor.remaining_ms(past, rows, uniforms)
    return drawn.tobytes(), predictor.probabilities(past, rows).tobytes()


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=10)
@given(seed=st.integers(0, 99), hour=st.integers(60, 140))
def test_another_future_changes_nothing(mode: str, seed: int, hour: int) -> None:
    now_ms, truth, other = hour * HOUR_MS, Truth(seed), Truth(seed)
    dice = Seeds(seed).stream("other future")
    later = other.submit_ms >= now_ms
    for column in (other.gpus, other.user, other.duration_ms):
        column[later] = dice.permutation(column[later])
    runs = ~later & (other.submit_ms + other.duration_ms > now_ms)
    other.duration_ms[runs] = now_ms - other.submit_ms[runs] + dice.integers(1, DAY_MS, int(runs.sum()))
    assert answers(mode, truth.as_of(now_ms)) == answers(mode, other.as_of(now_ms))


@settings(max_examples=20)
@given(seed=st.integers(0, 99), hour=st.integers(30, 100), more=st.integers(1, 40))
def test_a_snapshot_is_told_the_same_then_and_later(seed: int, hour: int, more: int) -> None:
    """Features of the running jobs at an instant, from what was known then and from what is known later."""
    truth, at_ms = Truth(seed), hour * HOUR_MS
    then, later = truth.as_of(at_ms), truth.as_of(at_ms + more * HOUR_MS)
    rows = active(then)
    snapshots = Snapshots(rows, np.full(len(rows), at_ms), then.ran_ms[rows])
    np.testing.assert_array_equal(Features(then).of(snapshots), Features(later).of(snapshots))


@settings(max_examples=20)
@given(seed=st.integers(0, 99), hour=st.integers(24, 140), phase_ms=st.integers(0, 1_799_999))
def test_mature_snapshots_are_every_running_job_with_its_true_class(
    seed: int, hour: int, phase_ms: int
) -> None:
    truth, now_ms = Truth(seed), hour * HOUR_MS
    found = mature(truth.as_of(now_ms), phase_ms)
    expected = {
        (job, at_ms)
        for at_ms in range(now_ms - MATURE_MS - phase_ms, 0, -HOUR_MS // 2)
        for job in np.flatnonzero(
            (truth.submit_ms < at_ms) & (at_ms < truth.submit_ms + truth.duration_ms)
        ).tolist()
    }
    assert set(zip(found.rows.tolist(), found.at_ms.tolist(), strict=True)) == expected
    assert len(found) == len(expected)
    left_ms = truth.submit_ms[found.rows] + truth.duration_ms[found.rows] - found.at_ms
    np.testing.assert_array_equal(classes(truth.as_of(now_ms), found), np.digitize(left_ms, EDGES_MS))


def test_nothing_completed_is_lindy() -> None:
    past = Truth(0).as_of(5 * DAY_MS)
    past = replace(past, finish_ms=np.full_like(past.finish_ms, NEVER_MS))
    assert answers("xgboost", past)[0] == answers("lindy", past)[0]


def test_without_three_days_of_snapshots_curves_answer() -> None:
    past = Truth(0).as_of(3 * DAY_MS)
    assert len(mature(past, 0)) > SNAPSHOTS_MIN
    assert answers("xgboost", past) == answers("kaplan-meier", past)
    predictor = LocalPredictor("xgboost", Seeds(3))
    predictor.refresh(past)
    assert predictor.card is None
    predictor.refresh(Truth(0).as_of(5 * DAY_MS))
    assert predictor.card is not None
    assert predictor.card.cutoff_ms <= 5 * DAY_MS - MATURE_MS


def test_no_jobs_at_all() -> None:
    past = Truth(0).as_of(0)
    for mode in MODES:
        assert answers(mode, past) == (b"", b"")


def test_a_fresh_object_answers_like_one_that_saw_every_hour() -> None:
    truth = Truth(1)
    old, fresh = LocalPredictor("xgboost", Seeds(3)), LocalPredictor("xgboost", Seeds(3))
    for hour in range(100, 131):
        old.refresh(truth.as_of(hour * HOUR_MS))
    fresh.refresh(truth.as_of(124 * HOUR_MS))  # 4 h on day 5
    now = truth.as_of(130 * HOUR_MS)
    fresh.refresh(now)
    uniforms = Seeds(0).stream("u").random((2, len(active(now)), 2))
    assert old.card == fresh.card
    assert old.remaining_ms(now, active(now), uniforms).tobytes() == (
        fresh.remaining_ms(now, active(now), uniforms).tobytes()
    )


def test_draws_follow_the_probabilities() -> None:
    past = Truth(2).as_of(5 * DAY_MS)
    predictor = LocalPredictor("xgboost", Seeds(3))
    predictor.refresh(past)
    rows = active(past)
    drawn = predictor.remaining_ms(past, rows, Seeds(0).stream("u").random((4000, len(rows), 2)))
    kinds = np.digitize(drawn, EDGES_MS)
    share = (kinds[..., None] == np.arange(CLASSES)).mean(axis=0)
    np.testing.assert_allclose(share, predictor.probabilities(past, rows), atol=0.04)


def test_the_paper_takes_the_likeliest_class() -> None:
    past = Truth(2).as_of(5 * DAY_MS)
    predictor = LocalPredictor("paper", Seeds(3))
    predictor.refresh(past)
    rows = active(past)
    kinds = np.digitize(
        predictor.remaining_ms(past, rows, Seeds(0).stream("u").random((9, len(rows), 2))), EDGES_MS
    )
    assert (kinds == predictor.probabilities(past, rows).argmax(axis=1)).all()


def test_a_job_draws_the_same_whoever_else_is_asked() -> None:
    past = Truth(2).as_of(5 * DAY_MS)
    predictor = LocalPredictor("xgboost", Seeds(3))
    predictor.refresh(past)
    rows = active(past)
    uniforms = Seeds(0).stream("u").random((5, len(rows), 2))
    all_of_them = predictor.remaining_ms(past, rows, uniforms)
    backwards = predictor.remaining_ms(past, rows[::-2], uniforms[:, ::-2])
    np.testing.assert_array_equal(all_of_them[:, ::-2], backwards)


def test_pending_jobs_draw_a_whole_run_time() -> None:
    past = Truth(2).as_of(5 * DAY_MS)
    rows = active(past)[:4]
    past.ran_ms[rows] = 0
    predictor = LocalPredictor("xgboost", Seeds(3))
    predictor.refresh(past)
    uniforms = Seeds(0).stream("u").random((50, len(rows), 2))
    whole = RunTimes.of(past).remaining_ms(past, rows, uniforms[..., 1])
    np.testing.assert_array_equal(predictor.remaining_ms(past, rows, uniforms), whole)


def test_the_model_finds_what_tells_jobs_apart() -> None:
    truth = Truth(5)
    past = truth.as_of(5 * DAY_MS)
    rows = active(past)
    left_ms = truth.duration_ms[rows] - past.ran_ms[rows]
    kind = np.digitize(left_ms, EDGES_MS)
    predictor = LocalPredictor("xgboost", Seeds(3))
    predictor.refresh(past)
    share = predictor.probabilities(past, rows)
    base = np.bincount(classes(past, mature(past, 0)), minlength=CLASSES) + 1.0
    base /= base.sum()
    nth = np.arange(len(rows))
    assert np.log(share[nth, kind]).mean() > np.log(base[kind]).mean()


def test_unknown_columns_are_nan_and_no_obstacle() -> None:
    past = Truth(0).as_of(5 * DAY_MS)
    blank = replace(past, user=np.full(len(past), -1), vc=np.full(len(past), -1))
    rows = active(blank)
    table = Features(blank).of(Snapshots(rows, np.full(len(rows), blank.now_ms), blank.ran_ms[rows]))
    full = Features(past).of(Snapshots(rows, np.full(len(rows), past.now_ms), past.ran_ms[rows]))
    assert np.isnan(table).all(axis=0).sum() >= 30
    assert np.isnan(full[:, 16:26]).all()  # by user and name; there are no names
    assert not np.isnan(full[:, 26:56]).all(axis=0).any()
    drawn, share = answers("xgboost", blank)
    assert (np.frombuffer(drawn, dtype=np.int64) >= 1).all()
    np.testing.assert_allclose(np.frombuffer(share).reshape(-1, CLASSES).sum(axis=1), 1.0)


def test_jobs_from_long_ago_that_still_run_are_answered() -> None:
    past = Truth(0).as_of(5 * DAY_MS)
    stayed = {item.name: getattr(past, item.name).copy() for item in fields(past) if item.name != "now_ms"}
    stayed["submit_ms"][0], stayed["finish_ms"][0] = -80 * DAY_MS, NEVER_MS
    stayed["ran_ms"][0] = 85 * DAY_MS
    drawn, _ = answers("xgboost", Past(past.now_ms, **stayed))
    assert (np.frombuffer(drawn, dtype=np.int64) >= 1).all()


def test_refusals() -> None:
    with pytest.raises(UnknownName, match="did you mean 'xgboost'"):
        LocalPredictor("xgbost", Seeds(0))
    past = Truth(0).as_of(HOUR_MS)
    with pytest.raises(InvariantError, match="refresh it first"):
        LocalPredictor("lindy", Seeds(0)).probabilities(past, active(past))
