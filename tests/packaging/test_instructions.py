"""The check of instruction counts is checked: a core slower than its record fails."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab.simulate.fast import core_built

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "instructions.py"


def _ran(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """The counts of one case, just recorded."""
    if core_built() is None or not shutil.which("valgrind"):
        reason = "instructions are counted in the compiled core under valgrind"
        if os.environ.get("TRIMTAB_NO_SKIP"):
            pytest.fail(reason)
        pytest.skip(reason)
    path = tmp_path / "records.json"
    ran = _ran("--record", "--records", str(path), "--case", "FIFO")
    assert ran.returncode == 0, ran.stderr
    return path


def test_equal_counts_pass_and_a_made_up_faster_past_does_not(recorded: Path) -> None:
    words = ("--records", str(recorded), "--case", "FIFO")
    again = _ran(*words)
    assert again.returncode == 0, again.stderr
    assert "1.000" in again.stdout
    records = json.loads(recorded.read_text())
    for counts in records.values():
        counts["FIFO"] /= 1.06
    recorded.write_text(json.dumps(records))
    slower = _ran(*words)
    assert slower.returncode == 1
    assert slower.stderr.startswith("instructions: FIFO: above the record")
    assert slower.stderr.count("\n") == 1
    recorded.write_text("{}")
    assert _ran(*words).returncode == 1
