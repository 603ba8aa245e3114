"""The sweeps run, each value of a setting in a row that it makes a difference to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab.simulate.fast import compiled_available

SWEEPS = Path(__file__).resolve().parents[2] / "benchmarks" / "sweeps.py"


def test_a_row_a_value() -> None:
    if not compiled_available():
        pytest.skip("the compiled core is not built in this installation")
    options = ["--days", "1", "--budget", "20", "--sweep", "threshold", "--format", "json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(SWEEPS), *options], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    week, *rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert (week["setting"], week["changes"], week["stayed, h"]) == ("fixed-week", 0, None)
    assert [row["value"] for row in rows] == [1.0, 1.02, 1.05, 1.1, 1.2]
    assert rows[0]["changes"] > rows[-1]["changes"]
    for row in rows:
        assert row["mean wait, s"] > 0
        assert row["swing, s"] > 0
        assert (row["undone"] is None) == (row["changes"] == 0)
