"""The real traces, where they are: row counts, totals and figures published beside them."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from trimtab.traces import chronus, helios, pai, philly, statistics, table
from trimtab.traces.describe import describe
from trimtab.traces.loader import load
from trimtab.traces.trace import Trace

PHILLY = "philly/philly_until_2017-10-31.csv.gz"
VENUS = "helios/venus_gpu_jobs_until_2020-08-09.csv.gz"
PAI = "pai/pai_gpu_tasks_sample_days_0_45.csv.gz"
SLO = "chronus/trace_job_Philly_SLO.csv.gz"
MIX1 = "chronus/trace_job_Philly_MIX1.csv.gz"


@pytest.mark.parametrize(
    ("file", "name", "rows", "gpu_hours", "largest", "first", "last"),
    [
        (PHILLY, "philly", 52_849, 642_409, 32, "2017-09-04 10:30:41", "2017-10-31 23:52:11"),
        (VENUS, "helios", 83_006, 1_683_892, 160, "2020-03-18 04:01:39", "2020-08-09 23:51:53"),
        (PAI, "pai", 40_466, 468_508, 400, "0.19d", "46.00d"),
        (SLO, "chronus", 30_940, 368_511, 32, "0.00d", "13.99d"),
        (MIX1, "chronus", 30_940, 371_328, 32, "0.00d", "13.99d"),
    ],
)
def test_counts_and_totals(
    shared: Path, file: str, name: str, rows: int, gpu_hours: int, largest: int, first: str, last: str
) -> None:
    path = shared / "data" / file
    trace = load(str(path))
    assert trace.provenance.source == f"{name}:{path}"
    assert trace.provenance.rows == rows
    assert trace.provenance.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert len(trace) + sum(trace.provenance.left_out_counts().values()) == rows
    found = describe(trace)
    assert round(found.gpu_hours) == gpu_hours
    assert (found.largest_gang, found.first, found.last) == (largest, first, last)


def test_only_chronus_leaves_rows_out(shared: Path) -> None:
    for file in (PHILLY, VENUS, PAI):
        assert load(str(shared / "data" / file)).provenance.left_out == ()
    counts = {file: load(str(shared / "data" / file)).provenance.left_out_counts() for file in (SLO, MIX1)}
    assert counts == {SLO: {"asks for no GPU": 205}, MIX1: {"asks for no GPU": 184}}


def test_loading_is_quick(shared: Path) -> None:
    path = shared / "data" / PHILLY
    philly.load(path)
    begin = time.perf_counter()
    philly.load(path)
    assert time.perf_counter() - begin < 1.0


def test_the_standard_windows(shared: Path) -> None:
    """The job counts of the standard cases."""
    assert len(philly.load(shared / "data" / PHILLY).window("2017-09-22..2017-10-06")) == 13_085
    assert len(philly.load(shared / "data" / PHILLY).window("2017-10-06..2017-10-20")) == 22_697
    assert len(helios.load(shared / "data" / VENUS).window("2020-07-26..2020-08-09")) == 8_855
    assert len(pai.load(shared / "data" / PAI).window("32d..46d")) == 13_347


def test_philly_window_equals_the_enumerated_one(shared: Path) -> None:
    """The two-week file beside the expected results lists the same jobs in the same order."""
    window = philly.load(shared / "data" / PHILLY).window("2017-09-22..2017-10-06")
    listed = table.load(shared / "peers" / "philly_2w.csv.gz")
    submit_ms = window.column("submit_ms")
    assert np.array_equal(submit_ms - submit_ms[0], listed.column("submit_ms"))
    assert np.array_equal(window.column("duration_ms"), listed.column("duration_ms"))
    assert np.array_equal(window.column("gpus"), listed.column("gpus"))
    assert window.labels("vc") == listed.labels("vc")


def test_venus_arrivals_equal_an_independent_count(shared: Path) -> None:
    """Jobs and GPUs per 10 minutes, published by another project, in every bin."""
    trace = helios.load(shared / "data" / VENUS)
    bins = pl.read_csv(shared / "data" / "helios" / "venus_cluster_throughput_until_2020-08-09.csv.gz")
    start_ms = trace.instant_ms("2020-04-01")
    submit_ms, gpus = trace.column("submit_ms"), trace.column("gpus")
    inside = submit_ms >= start_ms
    at = (submit_ms[inside] - start_ms) // 600_000
    assert np.array_equal(np.bincount(at, minlength=bins.height), bins["submit_gpu_job"].to_numpy())
    asked = np.bincount(at, weights=gpus[inside], minlength=bins.height)
    assert np.array_equal(asked, bins["submit_gpu_num"].to_numpy())


@pytest.mark.parametrize(
    ("file", "window", "jobs_a_day", "dispersion", "autocorrelation"),
    [
        (PHILLY, "2017-10-03..2017-10-31", 1611, 47.3, [0.56, 0.11, 0.06, 0.02]),
        (VENUS, "2020-06-01..2020-07-27", 636, 20.9, [0.11, 0.05, 0.04, 0.04]),
        (PAI, "4d..46d", 912, 2.7, [0.24, 0.08, 0.12, 0.13]),
    ],
)
def test_published_statistics(
    shared: Path, file: str, window: str, jobs_a_day: int, dispersion: float, autocorrelation: list[float]
) -> None:
    """What the synthetic generator is held to, measured here with the same functions."""
    whole = load(str(shared / "data" / file))
    part = whole.window(window)
    start_ms, end_ms = whole.window_ms(window)
    counts = statistics.arrival_counts(part.column("submit_ms"), start_ms, end_ms)
    assert round(len(part) / ((end_ms - start_ms) / 86_400_000)) == jobs_a_day
    assert round(statistics.dispersion(counts), 1) == dispersion
    found = [round(statistics.autocorrelation(counts, lag), 2) for lag in statistics.LAGS_BINS]
    assert found == autocorrelation


def test_chronus_deadlines(shared: Path) -> None:
    """1.1 to 5 times the run time in SLO; 30 % of MIX1 are best effort."""
    slo = chronus.load(shared / "data" / SLO)
    deadline_ms = slo.jobs["deadline_ms"].cast(pl.Int64).to_numpy()
    ratio = deadline_ms / slo.column("duration_ms")
    assert 1.05 < ratio.min() < 1.15
    assert ratio.max() < 5.1
    mix1 = chronus.load(shared / "data" / MIX1)
    assert mix1.jobs["deadline_ms"].null_count() / len(mix1) == pytest.approx(0.30, abs=0.01)


def test_supercloud(shared: Path) -> None:
    trace = load(str(shared / "data" / "mit_supercloud" / "slurm-log-queueing-clean.csv.gz"))
    assert trace.provenance.rows == 9_628
    assert len(trace) == 2_401
    assert round(describe(trace).gpu_hours) == 43_847


def test_venus_cap_and_philly_holes_are_warned_of(shared: Path) -> None:
    venus = describe(load(str(shared / "data" / VENUS))).warnings
    assert any("run exactly 48 h" in text for text in venus)
    found = describe(load(str(shared / "data" / PHILLY)))
    assert found.duplicates == 37
    assert any("have no arrival" in text for text in found.warnings)
    assert any("bursts" in text for text in found.warnings)


@pytest.mark.parametrize("suffix", [".csv.gz", ".parquet"])
def test_round_trip_of_a_dated_trace(shared: Path, tmp_path: Path, suffix: str) -> None:
    trace: Trace = helios.load(shared / "data" / VENUS)
    table.save(trace, tmp_path / f"out{suffix}")
    again = table.load(tmp_path / f"out{suffix}", zone="Asia/Shanghai")
    assert again.jobs.equals(trace.jobs)
    assert again.zero_ms == trace.zero_ms
