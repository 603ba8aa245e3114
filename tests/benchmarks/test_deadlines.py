"""The table of tuned deadline schedulers: it runs, and every line has its figures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab.simulate.fast import compiled_available

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
DEADLINES, TABLES = BENCHMARKS / "deadlines.py", BENCHMARKS / "deadline_tables.py"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}


def _deadlines(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return _ran(DEADLINES, "--workers", "1", *options, **environment)


def _ran(program: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(program), *options]
    return subprocess.run(command, env={**ENVIRONMENT, **environment}, capture_output=True, text=True)


def test_each_policy_has_its_loss_before_and_after(shared: Path) -> None:
    if not compiled_available():
        pytest.skip("the compiled core is not built in this installation")
    done = _deadlines("--policy", "chronus", "--seeds", "1", "--budget", "3", TRIMTAB_SHARED=str(shared))
    assert done.returncode == 0, done.stderr
    assert [line.split("  ")[0] for line in done.stdout.splitlines() if line.startswith("chronus")] == [
        "chronus, value lost, default",
        "chronus, value lost, tuned on the first week",
        "chronus, mean JCT, default",
        "chronus, mean JCT, tuned on the first week",
    ]


def test_a_bad_number_or_missing_data_is_one_line(tmp_path: Path) -> None:
    assert "--seeds 0: it must be at least 1" in _deadlines("--seeds", "0").stderr
    assert "there is no " in _deadlines(TRIMTAB_SHARED=str(tmp_path)).stderr
    assert "--kept 2: it must be above 0" in _ran(TABLES, "--kept", "2").stderr
    assert "there is no " in _ran(TABLES, TRIMTAB_SHARED=str(tmp_path)).stderr


def test_the_tables_of_the_concept_pages_have_all_their_rows(shared: Path) -> None:
    if not compiled_available():
        pytest.skip("the compiled core is not built in this installation")
    options = ("--seeds", "1", "--kept", "0.01", "--selector", "greedy")
    done = _ran(TABLES, *options, TRIMTAB_SHARED=str(shared))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for name in ("arrival, easy backfill", "+ sharing on nodes", "+ rescues", "+ promises"):
        assert [line.split("  ")[0] for line in lines].count(name) == 2  # on both traces
    # What the page on Chronus says of its jobs: late, mean JCT and queue, preemptions a job.
    assert [line.split()[3:8] for line in lines if line.split()[:2] == ["SLO", "128"]] == [
        ["greedy", "5.9", "%", "493", "207"],
    ]
