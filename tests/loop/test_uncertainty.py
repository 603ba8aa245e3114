"""Several runs of one evaluation: estimates, paired ratios and intervals, exact where that can be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from histories import WORLD, history, plan, walk
from trimtab.report.evaluate import evaluate_page
from trimtab.studies.uncertainty import bootstrap, daily_differences, estimate, statistics_of
from trimtab.world import Seeds


def _jobs(waits: list[float | None], days: list[float]) -> pl.DataFrame:
    return pl.DataFrame({"submit_s": [86_400 * day for day in days], "wait_s": waits})


def test_estimates() -> None:
    found = estimate([1.0, 2.0, 6.0])
    assert (found.mean, found.low, found.high) == (3.0, 1.0, 6.0)
    assert found.deviation == pytest.approx(7**0.5)
    assert estimate([5.0]).deviation is None


def test_jobs_are_paired_and_added_up_by_day() -> None:
    days = [7.1, 7.9, 8.0, 10.5, 10.6]
    mine = _jobs([10.0, 20.0, 5.0, 7.0, None], days)
    other = _jobs([4.0, 30.0, 5.0, 1.0, None], days)
    sums_s, counts = daily_differences(mine, other)
    assert sums_s.tolist() == [-4.0, 0.0, 0.0, 6.0]
    assert counts.tolist() == [2, 1, 0, 1]


def test_an_interval_is_that_of_days_drawn_again() -> None:
    """Of two days, a quarter of the draws are one day twice: the ends are the means of the two days."""
    assert bootstrap(np.array([10.0, -60.0]), np.array([10.0, 20.0]), np.random.default_rng(0)) == (-3.0, 1.0)
    assert bootstrap(np.array([10.0]), np.array([10.0]), np.random.default_rng(0)) is None
    many = np.random.default_rng(1).normal(5.0, 2.0, 400)
    low, high = bootstrap(many, np.ones(400), np.random.default_rng(0)) or (0.0, 0.0)
    assert many.mean() - low == pytest.approx(1.96 * many.std() / 20, rel=0.1)
    assert high - many.mean() == pytest.approx(1.96 * many.std() / 20, rel=0.1)


def test_runs_are_compared_seed_by_seed() -> None:
    trace = history(2)
    worlds, how = (replace(WORLD, seed=0), replace(WORLD, seed=7)), plan(budget=15)
    runs = [walk(trace, "fixed", "fixed-week", "oracle", world=world, how=how) for world in worlds]
    found = statistics_of(runs, Seeds(0))
    assert found.runs == 2
    assert found.waits["fixed"].deviation == 0.0
    assert found.waits["oracle"].deviation != 0.0
    pairs = [(one.line, one.reference) for one in found.contrasts]
    assert pairs == [
        ("fixed", "fixed-week"),
        ("fixed-week", "fixed"),
        ("oracle", "fixed"),
        ("oracle", "fixed-week"),
    ]
    waits = [{line.name: line.metrics["wait_s_mean"] or 0.0 for line in run.lines} for run in runs]
    last = found.contrasts[-1]
    assert last.ratio is not None
    assert last.ratio.mean == pytest.approx(np.mean([one["oracle"] / one["fixed-week"] for one in waits]))
    assert last.difference_s == pytest.approx(np.mean([one["oracle"] - one["fixed-week"] for one in waits]))
    assert (last.days, last.interval_s) == (1, None)
    assert statistics_of(runs, Seeds(0)) == found
    page = evaluate_page(replace(runs[0], statistics=found))
    assert "Over seeds" in page
    assert "Over seeds" not in evaluate_page(runs[0])
