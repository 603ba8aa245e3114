"""A real Slurm tuned from end to end: a bad setting, a better one found, in force, and taken back."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from serving import running
from slurm_jobs import ShortJob, history, play, replayed, settle
from slurm_lab import Lab, beside
from trimtab.policies.catalog import find_policy
from trimtab.studies.fidelity import Fidelity

# Wide jobs go before all others: those of one GPU wait until the last of 16 has found its nodes.
BAD = {"PriorityWeightJobSize": "50000", "PriorityFavorSmall": "NO"}


@dataclass(frozen=True)
class Tuned:
    """What came of it; waits are means in s.

    Attributes:
        imported: Jobs of the history that `trimtab slurm import` wrote.
        shadowed: Why serve would have made a change. wanted, back: in force after it, and in the end.
        wide_before, wide_after: What size adds to the priority of a job of all GPUs beyond a small one's.
    """

    imported: int
    untuned_s: float
    tuned_s: float
    fidelity: Fidelity
    shadowed: str
    before: Mapping[str, Any]
    wanted: Mapping[str, Any]
    back: Mapping[str, Any]
    wide_before: float
    wide_after: float


def tune(lab: Lab, jobs: Sequence[ShortJob], folder: Path) -> Tuned:
    """Play jobs under a bad setting, let `trimtab serve` find and make another, play them again, go back."""
    text = beside(lab, "slurm", _fixed(), 'past = "3h"\nrestart_cost_s = 0')
    with lab.as_set():
        _set_badly(lab)
        settle(lab)
        with running(folder, "shadow", text) as server:  # its first setting must stay for a while: it dwells
            untuned = history(lab, play(lab, jobs))
            told = replayed(lab, untuned)
            imported = _import(lab, folder)
            wide, small = _queue(lab)
            factor_before = _of_size(lab, wide) - _of_size(lab, small)
            shadow = server.wait(lambda status: _decision(status) == "shadow", 120)
            before = dict(shadow["in_force"])
            server.switch("auto")
            found = server.wait(lambda status: status["in_force"] != before, 240)
            factor_after = _of_size(lab, wide) - _of_size(lab, small)
            assert server.command("pause").returncode == 0
            settle(lab)
            tuned = history(lab, play(lab, jobs))
            assert server.command("resume").returncode == 0
            done = server.command("rollback")
            assert done.returncode == 0, done.stderr
            back = server.wait(lambda status: status["in_force"] == before, 120)
            server.command("pause")
            time.sleep(1)
        return Tuned(
            imported,
            _wait_s(untuned.jobs),
            _wait_s(tuned.jobs),
            told,
            str(shadow["last_round"]["reason"]),
            before,
            dict(found["in_force"]),
            dict(back["in_force"]),
            factor_before,
            factor_after,
        )


def _set_badly(lab: Lab) -> None:
    kept = [line for line in lab.owned.read_text().splitlines() if line.partition("=")[0] not in BAD]
    lab.owned.write_text("\n".join([*kept, *(f"{key}={value}" for key, value in BAD.items()), ""]))
    lab.run("scontrol", "reconfigure")


def _fixed() -> list[str]:
    return [knob.name for knob in find_policy("slurm").space.knobs if knob.name not in BAD]


def _import(lab: Lab, folder: Path) -> int:
    out = folder / "history.csv"
    line = [sys.executable, "-m", "trimtab", "slurm", "import", "--conf", str(lab.conf), "--since", "3h"]
    done = subprocess.run([*line, "--out", str(out)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return len(pl.read_csv(out))


def _queue(lab: Lab) -> tuple[str, str]:
    """Let jobs wait behind a full cluster; return one of all GPUs and a small one."""
    lab.clear()
    for _ in range(4):
        lab.submit("-N1", "-c64", "--gpus-per-node=8", gpus=0)
    lab.wait(lambda: len(lab.run("squeue", "-h", "-t", "R").splitlines()) == 4, "jobs to run")
    wide = lab.submit("-N4", "--ntasks-per-node=1", "-c64", "--gpus-per-node=8", gpus=0)
    small = [lab.submit("-N1", "-c8", "--gpus-per-node=1", gpus=0) for _ in range(12)]
    lab.wait(lambda: len(lab.run("sprio", "-h").splitlines()) == 13, "jobs to wait")
    return wide, small[0]


def _of_size(lab: Lab, job: str) -> float:
    return float(lab.run("sprio", "-h", "-j", job, "-o", "%J"))


def _decision(status: Mapping[str, Any]) -> str:
    return str((status["last_round"] or {}).get("decision"))


def _wait_s(jobs: pl.DataFrame) -> float:
    """Return the mean wait of all but the job that held the GPUs until they were there."""
    return float((jobs["start_ms"] - jobs["submit_ms"])[1:].to_numpy().mean()) / 1000
