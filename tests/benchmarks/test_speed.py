"""The benchmark command runs, and every row it promises is there with a figure or a reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trimtab.simulate.fast import compiled_available

SPEED = Path(__file__).resolve().parents[2] / "benchmarks" / "speed.py"
# A worker of pytest-xdist would tell the measurements to switch themselves off.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


def _speed(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SPEED), *options], env=ENVIRONMENT, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    if not compiled_available():
        pytest.skip("the compiled core is not built in this installation")
    done = _speed("--tiny", "--runs", "1", "--no-reference", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_every_row_has_a_figure_or_a_reason(measured: dict[str, Any]) -> None:
    rows = measured["rows"]
    names = [row["name"] for row in rows]
    assert len(names) == len(set(names))
    assert {"tiresias", "fifo", "srtf", "srsf", "hooks-ratio", "fork", "batch-2", "whole"} <= set(names)
    assert {"growth-ratio", "growth-memory", "wide-ratio"} <= set(names)
    for row in rows:
        assert row["note"] if row["engine"] is None else row["engine"]["median"] > 0, row


def test_threads_change_no_cost(measured: dict[str, Any]) -> None:
    assert next(row for row in measured["rows"] if row["name"] == "batch-costs")["met"] is True


def test_the_head_names_machine_compiler_and_commit(measured: dict[str, Any]) -> None:
    told = measured["machine"]
    assert all(told[name] for name in ("cpu", "cores", "memory_gib", "compiler", "commit"))


def test_a_bad_number_of_runs_is_one_line() -> None:
    done = _speed("--runs", "0")
    assert done.returncode == 2
    assert "--runs 0: it must be at least 1" in done.stderr
    assert "Traceback" not in done.stderr
