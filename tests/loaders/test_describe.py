"""The statistics on numbers small enough to check by hand, and the description built from them."""

from __future__ import annotations

import json
import math

import numpy as np
import polars as pl
import pytest

from trimtab.traces import statistics
from trimtab.traces.describe import describe
from trimtab.traces.loader import load
from trimtab.traces.trace import LeftOut, Provenance, Trace

HOUR_MS = 3_600_000


def trace_of(submit_s: list[int], duration_s: list[int], gpus: list[int], **more: object) -> Trace:
    jobs = pl.DataFrame(
        {
            "job_id": [str(at) for at in range(len(submit_s))],
            "submit_ms": [1000 * at for at in submit_s],
            "duration_ms": [1000 * at for at in duration_s],
            "gpus": gpus,
            **more,
        }
    )
    return Trace.build(jobs, Provenance("table:t.csv", "0", len(submit_s)))


def test_classes_are_half_open() -> None:
    edges = np.array([0, 299_999, 300_000, 1_800_000, 3_600_000, 7_200_000, 14_400_000, 10**12])
    assert statistics.run_time_shares(edges).tolist() == [25.0, 12.5, 12.5, 12.5, 12.5, 25.0]
    assert statistics.gang_shares(np.array([1, 2, 4, 5, 8, 9, 16, 17])).tolist() == [12.5, 25, 25, 25, 12.5]
    weights = np.array([1.0, 3.0])
    assert statistics.gang_shares(np.array([1, 32]), weights).tolist() == [25.0, 0, 0, 0, 75.0]


def test_arrivals_are_counted_in_half_open_bins() -> None:
    submit_ms = np.array([0, 299_999, 300_000, 900_000])
    assert statistics.arrival_counts(submit_ms, 0, 900_000).tolist() == [2, 1, 0]
    assert statistics.arrival_counts(submit_ms, 300_000, 900_001).tolist() == [1, 0, 1]


def test_dispersion_and_autocorrelation() -> None:
    """Counts 0 4 0 4: mean 2, variance 4; a lag of 1 is a mirror, a lag of 2 the same."""
    counts = np.array([0, 4, 0, 4])
    assert statistics.dispersion(counts) == 2.0
    assert statistics.autocorrelation(counts, 1) == -1.0
    assert statistics.autocorrelation(counts, 2) == 1.0


def test_nothing_divides_by_zero() -> None:
    none = np.array([], dtype=np.int64)
    assert statistics.gang_shares(none).tolist() == [0.0] * 5
    assert math.isnan(statistics.dispersion(none))
    assert math.isnan(statistics.autocorrelation(np.array([3, 3]), 1))
    assert math.isnan(statistics.autocorrelation(np.array([3]), 288))
    assert np.isnan(statistics.run_time_quantiles_s(none)).all()
    assert statistics.same_second_share(none) == 0.0
    assert math.isnan(statistics.load(none, none, 0, 8))
    assert statistics.repeats([None]) == statistics.Repeats(0, 0.0, 0.0)
    assert statistics.busiest(none) == (0, 0)


def test_repeats_counts_members_and_those_seen_often() -> None:
    found = statistics.repeats(["a"] * 11 + ["b"] * 9 + [None])
    assert found == statistics.Repeats(2, 55.0, 55.0)


def test_load_is_gpu_time_over_capacity() -> None:
    """Two jobs of 1 h on 4 and 2 GPUs against 8 GPUs for one hour: 6 / 8."""
    hour = np.array([HOUR_MS, HOUR_MS])
    assert statistics.load(np.array([4, 2]), hour, HOUR_MS, 8) == 0.75


def test_description_of_three_jobs() -> None:
    """1 + 2 x 2 + 8 x 0.5 GPU-hours in 24 hours; two jobs share a second."""
    trace = trace_of([0, 0, 86_400], [3600, 7200, 1800], [1, 2, 8], user=["a", "b", "a"])
    found = describe(trace, gpus=9)
    assert found.gpu_hours == 9.0
    assert found.load == pytest.approx(9 / (9 * 24))
    assert found.jobs_a_day == 3.0
    assert found.largest_gang == 8
    assert found.same_second_share == pytest.approx(200 / 3)
    assert found.arrivals_by_hour[0] == 3
    assert found.arrivals_by_weekday is None
    assert found.users == statistics.Repeats(2, pytest.approx(200 / 3), 0.0)
    assert found.vcs is None
    assert found.busiest_5min == 2
    assert found.run_time_s["p50"] == 3600.0
    assert found.last == "1.00d"


def test_one_job_has_no_rate_and_the_json_no_nan() -> None:
    found = describe(trace_of([5], [0], [1]), gpus=8)
    assert found.jobs_a_day is None
    assert found.load is None
    assert found.arrivals_dispersion is not None
    text = json.dumps(found.jsonable(), allow_nan=False)
    assert json.loads(text)["arrivals_autocorrelation"]["168h"] is None


def test_hours_are_the_traces_own() -> None:
    jobs = pl.DataFrame({"job_id": ["a"], "submit_ms": [1_591_699_261_000], "duration_ms": [1], "gpus": [1]})
    for zone, hour, day in (
        ("UTC", 10, "Tue"),
        ("Asia/Shanghai", 18, "Tue"),
        ("America/Los_Angeles", 3, "Tue"),
    ):
        from trimtab.traces.columns import zone_of

        trace = Trace.build(jobs, Provenance("t", "0", 1), dated=True, zone=zone_of(zone))
        found = describe(trace)
        assert found.arrivals_by_hour[hour] == 1
        assert found.arrivals_by_weekday is not None
        assert found.arrivals_by_weekday[day] == 1


def test_warnings() -> None:
    day = 86_400
    capped = trace_of([day * at for at in range(10)], [172_800] * 6 + [60] * 4, [1] * 10)
    assert any("6 jobs (60.0 %) run exactly 48 h" in text for text in describe(capped).warnings)
    hole = trace_of([0, day, 5 * day, 6 * day], [1, 2, 3, 4], [1, 1, 1, 99])
    found = describe(hole, gpus=8).warnings
    assert any("3 days of 7 have no arrival" in text for text in found)
    assert any("1 jobs ask for more than the cluster's 8 GPUs" in text for text in found)
    burst = trace_of([0] * 200 + [day], [*range(1, 202)], [1] * 201)
    assert any("bursts" in text and "largest 200 jobs" in text for text in describe(burst).warnings)
    twins = trace_of([0, 0, 1], [5, 5, 5], [1, 1, 1])
    assert any("1 jobs equal an earlier one" in text for text in describe(twins).warnings)
    slow = trace_of([0, 1], [10**6, 10**6], [1, 1])
    assert any("are the source's times seconds?" in text for text in describe(slow).warnings)
    lossy = Trace.build(twins.jobs, Provenance("t", "0", 5, (LeftOut("asks for no GPU", 2, "x"),)))
    assert "2 of 5 rows were left out." in describe(lossy).warnings


def test_a_synthetic_trace_can_be_described() -> None:
    found = describe(load("synthetic:philly?days=3"), gpus=640)
    assert found.kept > 3000
    assert found.load is not None
    json.dumps(found.jsonable(), allow_nan=False)
