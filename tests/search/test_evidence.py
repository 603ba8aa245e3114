"""Evidence over hours: what it says can be checked by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.knobs import Knobs
from trimtab.search.evidence import Evidence, Pooling

A, B, C = (Knobs({"x": value}) for value in (1, 2, 3))
EVEN = Pooling(keep=1.0, present=0.0, doubt=0.0)

Logs = dict[Knobs, float]


def evidence(how: Pooling, *hours: Logs) -> Evidence:
    found = Evidence(how)
    for hour in hours:
        found.add(hour, [A, B])
    return found


def test_a_score_is_the_mean_distance_from_the_field() -> None:
    found = evidence(EVEN, {A: 2.0, B: 4.0}, {A: 11.0, B: 11.0})
    assert found.scores() == {A: -0.5, B: 0.5}
    assert found.gain(B, A, 0.0) == pytest.approx(math.exp(1.0))


def test_older_hours_count_less() -> None:
    found = evidence(Pooling(keep=0.5, present=0.0, doubt=0.0), {A: 0.0, B: 4.0}, {A: 2.0, B: 2.0})
    assert found.scores()[A] == pytest.approx((0.5 * -2.0 + 1.0 * 0.0) / 1.5)


def test_doubt_draws_to_the_field_and_the_present_away_from_it() -> None:
    doubted = evidence(Pooling(keep=1.0, present=0.0, doubt=3.0), {A: 0.0, B: 4.0})
    assert doubted.scores()[A] == pytest.approx(-2.0 / 4)
    blended = evidence(Pooling(keep=1.0, present=0.25, doubt=0.0), {A: 0.0, B: 0.0}, {A: 0.0, B: 4.0})
    assert blended.scores()[A] == pytest.approx(0.75 * -1.0 + 0.25 * -2.0)


def test_what_is_known_beforehand_counts_for_several_hours() -> None:
    found = Evidence(EVEN)
    found.add({A: 0.0, B: 2.0, C: 9.0}, [A, B], 3.0)
    found.add({A: 2.0, B: 0.0}, [A, B])
    assert found.scores()[A] == pytest.approx((3 * -1.0 + 1.0) / 4)
    assert found.scores()[C] == 8.0


def test_only_hours_in_which_both_were_tried_compare_two_settings() -> None:
    found = evidence(EVEN, {A: 0.0, B: 0.0}, {A: 5.0, B: 5.0, C: 4.0})
    assert found.gain(A, C, 0.0) == pytest.approx(math.exp(1.0))
    assert evidence(EVEN, {A: 0.0, B: 1.0}).gain(A, C, 0.0) == 0.0


def test_a_gain_is_believed_less_the_more_its_hours_disagree() -> None:
    alike = evidence(EVEN, {A: 0.0, B: 1.0}, {A: 0.0, B: 1.0})
    unlike = evidence(EVEN, {A: 0.0, B: 3.0}, {A: 1.0, B: 0.0})
    assert alike.gain(B, A, 1.0) == alike.gain(B, A, 0.0) == pytest.approx(math.exp(1.0))
    # two differences, 3 and -1: mean 1, standard deviation 2, standard error 2 / sqrt 2
    assert unlike.gain(B, A, 1.0) == pytest.approx(math.exp(1 - math.sqrt(2)))


def test_thrashing_is_bad_but_finite_and_what_failed_is_left_out() -> None:
    found = evidence(EVEN, {A: 0.0, B: 2.0, C: math.inf}, {A: 0.0, B: 2.0, C: math.nan})
    assert found.scores() == {A: -1.0, B: 1.0, C: 2.0}
    assert evidence(EVEN, {A: math.inf, B: math.nan}).scores() == {}
    assert evidence(EVEN, {}).scores() == {}


@given(
    st.lists(st.tuples(*3 * [st.floats(0, 12)]), min_size=1, max_size=8),
    st.floats(-5, 5),
    st.sampled_from([EVEN, Pooling()]),
)
def test_how_hard_an_hour_is_does_not_matter(
    rows: list[tuple[float, float, float]], harder: float, how: Pooling
) -> None:
    hours = [dict(zip((A, B, C), row, strict=True)) for row in rows]
    shifted = [
        {knobs: log + place * harder for knobs, log in hour.items()} for place, hour in enumerate(hours)
    ]
    plain, other = evidence(how, *hours), evidence(how, *shifted)
    assert other.scores() == pytest.approx(plain.scores(), abs=1e-9)
    assert other.gain(A, B, 0.5) == pytest.approx(plain.gain(A, B, 0.5), rel=1e-9, abs=1e-9)
