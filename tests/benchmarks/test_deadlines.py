"""The table of tuned deadline schedulers: it runs, and every line has its figures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab.simulate.fast import compiled_available

DEADLINES = Path(__file__).resolve().parents[2] / "benchmarks" / "deadlines.py"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}


def _deadlines(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DEADLINES), "--workers", "1", *options]
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
