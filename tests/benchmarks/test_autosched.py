"""The table of forecasts, models, searches and closed loops: every section runs, every row has a figure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trimtab.simulate.fast import compiled_available

AUTOSCHED = Path(__file__).resolve().parents[2] / "benchmarks" / "autosched.py"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
LINES = "fixed,fixed-week,selftune,trimtab-plus,oracle,trimtab"


def _autosched(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    if not compiled_available():
        pytest.skip("the compiled core is not built in this installation")
    command = [sys.executable, str(AUTOSCHED), "--quick", "--workers", "1", *options]
    return subprocess.run(command, env={**ENVIRONMENT, **environment}, capture_output=True, text=True)


def _rows(*options: str) -> list[dict[str, Any]]:
    done = _autosched("--format", "json", *options)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert all(told["machine"][name] for name in ("cpu", "cores", "compiler", "commit"))
    return list(told["rows"])


def _told(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    by_what = {row["what"]: row for row in rows}
    assert len(by_what) == len(rows)
    assert all(row["measured"] is not None or row["note"] for row in rows)
    return by_what


@pytest.fixture(scope="module")
def closed_loop() -> dict[str, dict[str, Any]]:
    return _told(_rows("--only", "gain", "--only", "loop", "--seeds", "2", "--lines", LINES))


def test_ratios_are_those_of_the_waits(closed_loop: dict[str, dict[str, Any]]) -> None:
    plus = closed_loop["mean wait, trimtab-plus, baseline fixed"]
    fixed = closed_loop["mean wait, fixed"]
    ratio = closed_loop["trimtab-plus, times as good as fixed"]
    assert plus["baseline"] == fixed["measured"]
    assert ratio["measured"] == pytest.approx(fixed["measured"] / plus["measured"], rel=0.05)
    assert ratio["met"] is (ratio["measured"] >= 1.5)
    assert ratio["spread"][0] <= ratio["measured"] <= ratio["spread"][1]


def test_runs_differ_and_the_first_is_the_source_order(closed_loop: dict[str, dict[str, Any]]) -> None:
    low, high = closed_loop["mean wait, fixed"]["spread"]
    assert low < high
    assert closed_loop["mean wait, fixed, one run"]["measured"] in (low, high)


def test_the_gap_is_shared_between_fixed_week_and_oracle(closed_loop: dict[str, dict[str, Any]]) -> None:
    week, plus, oracle = (
        closed_loop[f"mean wait, {line}, baseline fixed"]["measured"]
        for line in ("fixed-week", "trimtab-plus", "oracle")
    )
    gap = closed_loop["trimtab-plus, gap fixed-week to oracle closed"]
    assert oracle < week
    assert gap["measured"] == pytest.approx(100 * (week - plus) / (week - oracle), abs=1e-6)


def test_decisions_are_timed_by_stage(closed_loop: dict[str, dict[str, Any]]) -> None:
    for line, most in (("trimtab-plus", "<= 2"), ("trimtab", "<= 30")):
        whole = closed_loop[f"{line}, decision p95"]
        assert whole["target"] == most
        for stage in ("forecast", "search"):
            assert 0 < closed_loop[f"{line}, decision p95, its {stage}"]["measured"] <= whole["measured"]


def test_the_causal_model_is_compared_at_equal_cost() -> None:
    rows = _told(_rows("--only", "causal", "--seeds", "1"))
    told, blind, timed = (
        {what: rows[f"mean {what}, trimtab{how}"] for what in ("wait", "search", "simulations")}
        for how in ("", " without the causal model", " without the causal model, as many seconds")
    )
    assert blind["simulations"]["measured"] == blind["simulations"]["baseline"]
    assert timed["simulations"]["measured"] > blind["simulations"]["measured"]
    assert all(other["wait"]["baseline"] == told["wait"]["measured"] for other in (blind, timed))


def test_rows_without_their_lines_are_left_out() -> None:
    rows = _told(_rows("--only", "loop", "--seeds", "1", "--lines", "fixed,oracle"))
    assert list(rows) == ["mean wait, fixed", "mean wait, oracle, baseline fixed"]


@pytest.mark.parametrize(
    ("section", "what"),
    [
        ("remaining", "remaining time, ECE, baseline kaplan-meier"),
        ("model", "model, 1,000 predictions"),
        ("aggregation", "merged jobs: error of the mean JCT"),
        ("search", "regret of bluefin, bad start, baseline random"),
    ],
)
def test_sections_on_real_traces(section: str, what: str, shared: Path) -> None:
    assert _told(_rows("--only", section))[what]["measured"] >= 0


def test_forecasts_as_text() -> None:
    done = _autosched("--only", "forecast")
    assert done.returncode == 0, done.stderr
    assert "QUICK" in done.stdout
    heading = next(line for line in done.stdout.splitlines() if line.startswith("what"))
    assert heading.split() == ["what", "case", "target", "measured", "baseline", "spread", "met"]
    assert "period at the start" in done.stdout
    assert "targets met" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seeds", "0"], "--seeds 0: it must be at least 1"),
        (["--lines", "fixed,best"], "--lines best: known are fixed"),
        (["--cases", "philly-b,mars"], "--cases mars: known are philly-b"),
        (["--only", "model"], "has no data/"),
    ],
)
def test_bad_input_is_one_line(options: list[str], message: str, tmp_path: Path) -> None:
    done = _autosched(*options, TRIMTAB_SHARED=str(tmp_path))
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[-1]
    assert not done.stdout
