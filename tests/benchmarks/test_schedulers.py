"""The table of Themis and Lucid tuned hour by hour: it runs, and its rows agree with each other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab.simulate.fast import compiled_available

SCHEDULERS = Path(__file__).resolve().parents[2] / "benchmarks" / "schedulers.py"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}


def _schedulers(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    if not compiled_available():
        pytest.skip("the compiled core is not built in this installation")
    command = [sys.executable, str(SCHEDULERS), "--workers", "1", *options]
    return subprocess.run(command, env={**ENVIRONMENT, **environment}, capture_output=True, text=True)


def test_each_line_has_its_mean_and_gains_are_their_ratios(shared: Path) -> None:
    done = _schedulers("--quick", "--policy", "lucid", "--ablate", TRIMTAB_SHARED=str(shared))
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("lucid")]
    cells = [row.split(", mean JCT, ")[1].split("one-day") for row in rows if ", mean JCT, " in row]
    seconds = {line.strip(): float(values.split()[0].replace(",", "")) for line, values in cells}
    assert list(seconds) == [
        *("fixed", "fixed-week", "selftune", "trimtab", "trimtab-plus", "oracle"),
        "trimtab without the causal model",
        "trimtab without the causal model, as many seconds",
        "trimtab-plus without guardrails",
    ]
    assert "\nestimates: oracle\n" in done.stdout
    gain = next(row for row in rows if "fixed over trimtab-plus" in row)
    assert f"{seconds['fixed'] / seconds['trimtab-plus']:.3g} x" in gain


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cases", "mars"], "--cases mars: known are philly-b"),
        (["--seeds", "0"], "--seeds 0: it must be at least 1"),
        (["--budget", "0"], "--budget 0: it must be at least 1"),
        (["--estimates", "none"], "invalid choice: 'none' (choose from 'oracle', 'predicted')"),
        ([], "there is no "),
    ],
)
def test_bad_input_is_one_line(options: list[str], message: str, tmp_path: Path) -> None:
    done = _schedulers(*options, TRIMTAB_SHARED=str(tmp_path))
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[-1]
    assert not done.stdout
