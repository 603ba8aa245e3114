"""Guardrails as a table: every refusal without a cluster, each with its reason."""

from __future__ import annotations

import math

import pytest

from trimtab.control.guardrails import Apply, Guardrails, Keep, Tenure, judge
from trimtab.forecast.backtest import Belief
from trimtab.knobs import Knobs

A, B = Knobs({"num_queues": 2}), Knobs({"num_queues": 3})
DWELL_MS = 1_800_000
RAILS = Guardrails(gain_min=1.1, dwell_ms=DWELL_MS)
ANY_GAIN = Guardrails(gain_min=1.0, dwell_ms=0)

# running for (ms), best, gain, rails, cost -> what is said; a change says so with "reaches".
CASES = [
    (DWELL_MS, B, 1.5, RAILS, 60.0, "gain 1.500 reaches 1.1"),
    (DWELL_MS, B, 1.1, RAILS, 60.0, "gain 1.100 reaches 1.1"),
    (DWELL_MS, B, math.nextafter(1.1, 0), RAILS, 60.0, "gain 1.100 is under 1.1"),
    (DWELL_MS, B, 1.0, RAILS, 60.0, "gain 1.000 is under 1.1"),
    (DWELL_MS, B, 0.2, RAILS, 60.0, "gain 0.200 is under 1.1"),
    (DWELL_MS - 1, B, 9.0, RAILS, 60.0, "running for 1800 s, dwell is 1800 s"),
    (0, B, 9.0, RAILS, 60.0, "running for 0 s, dwell is 1800 s"),
    (0, B, 1.001, ANY_GAIN, 60.0, "gain 1.001 reaches 1"),
    (0, B, 1.0, ANY_GAIN, 60.0, "gain 1.000 is under 1"),
    (0, B, 0.999, Guardrails(gain_min=0.5, dwell_ms=0), 60.0, "gain 0.999 is under 1"),
    (DWELL_MS, A, 1.0, RAILS, 60.0, "no setting was better than the running one"),
    (DWELL_MS, A, 7.0, RAILS, 60.0, "no setting was better than the running one"),
    (DWELL_MS, B, math.nan, RAILS, 60.0, "gain of nan, which is no number to act on"),
    (DWELL_MS, B, math.inf, RAILS, 60.0, "the running setting makes jobs thrash; this one reaches an end"),
    (DWELL_MS - 1, B, math.inf, RAILS, 60.0, "dwell is 1800 s"),
    (DWELL_MS, B, -math.inf, RAILS, 60.0, "gain of -inf, which is no number to act on"),
    (DWELL_MS, B, 1.5, RAILS, 0.0, "costs nothing: there is nothing to gain"),
    (DWELL_MS, B, 1.5, RAILS, math.inf, "gain 1.500 reaches 1.1"),
]


@pytest.mark.parametrize(("running_ms", "best", "gain", "rails", "cost", "says"), CASES)
def test_judge(running_ms: int, best: Knobs, gain: float, rails: Guardrails, cost: float, says: str) -> None:
    verdict = judge(A, Tenure(running_ms), best, gain, rails, cost)
    assert says in verdict.reason
    assert isinstance(verdict, Apply if "reaches" in says else Keep)
    if isinstance(verdict, Apply):
        assert verdict.knobs == best


def test_equal_settings_need_not_be_one_object() -> None:
    assert isinstance(judge(A, Tenure(DWELL_MS), Knobs(dict(A)), 2.0, RAILS), Keep)


TWO = {"num_queues": 2, "min_run": 0}
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("left", "says"),
    [
        ([], "reaches"),
        (
            [({"num_queues": 3, "min_run": 60}, 3 * HOUR_MS)],
            "back at 3, left 10800 s ago",
        ),
        ([({"num_queues": 3, "min_run": 60}, 3 * HOUR_MS + 1)], "reaches"),
        ([({"num_queues": 4, "min_run": 0}, HOUR_MS)], "reaches"),  # min_run has not moved since
        ([({"num_queues": 4, "min_run": 0}, HOUR_MS), ({"num_queues": 3}, 2 * HOUR_MS)], "left 7200 s ago"),
    ],
)
def test_no_knob_goes_back_soon(left: list[tuple[dict[str, int], int]], says: str) -> None:
    rails = Guardrails(gain_min=1.1, return_ms=3 * HOUR_MS)
    tenure = Tenure(DWELL_MS, tuple((Knobs(knobs), ago_ms) for knobs, ago_ms in left))
    verdict = judge(Knobs(TWO), tenure, Knobs({**TWO, "num_queues": 3}), 2.0, rails)
    assert says in verdict.reason
    assert isinstance(verdict, Apply if says == "reaches" else Keep)


def test_a_forecast_that_is_not_believed_changes_nothing() -> None:
    rails = Guardrails(gain_min=1.1, belief_min=0.6)
    doubtful = Belief(0.5, ("the last hour is like nothing that was seen before",))
    verdict = judge(A, Tenure(DWELL_MS), B, 2.0, rails, belief=doubtful)
    assert isinstance(verdict, Keep)
    assert "not to be relied on: the last hour is like nothing" in verdict.reason
    assert isinstance(judge(A, Tenure(DWELL_MS), B, 2.0, rails, belief=Belief(0.6)), Apply)


def test_what_cannot_be_simulated_is_compared_with_nothing() -> None:
    verdict = judge(A, Tenure(DWELL_MS), A, 1.0, RAILS, math.nan)
    assert isinstance(verdict, Keep)
    assert "could not be simulated" in verdict.reason


def test_from_thrashing_every_way_out_is_taken() -> None:
    tenure = Tenure(DWELL_MS, ((B, HOUR_MS),))
    assert isinstance(judge(A, tenure, B, math.inf, Guardrails(return_ms=3 * HOUR_MS)), Apply)


def test_a_threshold_that_is_no_number_changes_nothing() -> None:
    assert isinstance(judge(A, Tenure(DWELL_MS), B, 2.0, Guardrails(gain_min=math.inf)), Keep)
