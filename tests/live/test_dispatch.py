"""Our own policies start the jobs of a real Slurm: deadlines are met, knobs are hot, a kill does no harm."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from slurm_lab import Lab
from trimtab.control.adapter import Change
from trimtab.control.dispatch_settings import read_dispatch
from trimtab.control.dispatched import Dispatched
from trimtab.control.slurm_commands import Commands
from trimtab.control.slurm_jobs import job_rows
from trimtab.control.slurm_submit import make_ticket, sbatch_line, submit
from trimtab.knobs import Knobs
from trimtab.world import epoch_ms


class Running:
    """A dispatcher in a process of its own, and the file of its settings."""

    def __init__(self, lab: Lab, folder: Path, policy: str, knobs: str = "") -> None:
        self.lab, self.path, self.log = lab, folder / "dispatch.toml", folder / "log"
        self.policy = policy
        self.write(knobs)
        self.process: subprocess.Popen[bytes] | None = None

    def write(self, knobs: str) -> None:
        text = f'policy = "{self.policy}"\nconf = "{self.lab.conf}"\ndesk = "desk"\ninterval = "1s"\n'
        self.path.write_text(f"{text}[knobs]\n{knobs}\n")

    def start(self) -> None:
        line = [sys.executable, "-m", "trimtab", "slurm", "dispatch", "--config", str(self.path)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(line, stdout=log, stderr=log)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""


@contextmanager
def dispatching(lab: Lab, folder: Path, policy: str, knobs: str = "") -> Iterator[Running]:
    """A dispatcher at work, which is killed in the end."""
    one = Running(lab, folder, policy, knobs)
    one.start()
    try:
        lab.wait(lambda: "goes by" in one.said(), "a dispatcher")
        yield one
    finally:
        one.kill()


def submitted(lab: Lab, *words: str, preemptable: bool = False, deadline: str | None = None) -> str:
    """Submit a job for the dispatcher; return its id."""
    ticket = make_ticket(epoch_ms(), None, deadline, None, "10s", preemptable, None)
    line = sbatch_line(ticket, ["--parsable", "-o", "/dev/null", *words])
    return submit(line, lab.conf).strip()


def states(lab: Lab, *jobs: str) -> list[str]:
    found = {row.label: row.state for row in job_rows(Commands(lab.conf))}
    return [found[job] for job in jobs]


_WIDE = ("--nodes=1", "--gpus-per-node=8")
_DEADLINE_S = 21


def _late(lab: Lab, jobs: list[str], began_ms: int) -> int:
    """Wait for jobs to end; return how many did so after the deadline."""
    lab.wait(lambda: set(states(lab, *jobs)) == {"COMPLETED"}, "urgent jobs to end")
    ends_ms = {row.label: row.end_ms for row in job_rows(Commands(lab.conf))}
    return sum((ends_ms[job] or 0) > began_ms + 1000 * _DEADLINE_S for job in jobs)


def test_sensascale_meets_deadlines_that_the_usual_order_misses(lab: Lab, tmp_path: Path) -> None:
    """Twice as many patient jobs as there are nodes come first; then urgent ones, one for each node."""
    lab.clear()
    began_ms = epoch_ms()
    for _ in range(8):
        lab.submit(*_WIDE, gpus=0, seconds=10)
    usual = [lab.submit(*_WIDE, gpus=0, seconds=2) for _ in range(4)]
    assert _late(lab, usual, began_ms) == 4

    lab.clear()
    with dispatching(lab, tmp_path, "sensascale"):
        began_ms = epoch_ms()
        for _ in range(8):
            submitted(lab, *_WIDE, "--wrap=sleep 10")
        urgent = [submitted(lab, *_WIDE, "--wrap=sleep 2", deadline=f"{_DEADLINE_S}s") for _ in range(4)]
        assert _late(lab, urgent, began_ms) == 0
    lab.clear()


def test_tiresias_goes_by_other_knobs_at_once(lab: Lab, tmp_path: Path) -> None:
    lab.clear()
    foreign = lab.submit("--hold", "--comment=mine", gpus=1)
    with dispatching(lab, tmp_path, "tiresias") as one:
        long = submitted(lab, "--nodes=4", "--gpus-per-node=8", "--wrap=sleep 600", preemptable=True)
        lab.wait(lambda: states(lab, long) == ["RUNNING"], "the long job")
        short = submitted(lab, *_WIDE, "--wrap=sleep 1")
        lab.wait(
            lambda: lab.run("squeue", "-h", "-j", long, "-O", "TimeUsed").strip() > "0:04", "some seconds"
        )
        assert states(lab, long, short) == ["RUNNING", "PENDING"]
        adapter = Dispatched(Commands(lab.conf), read_dispatch(one.path))
        now = adapter.in_force()
        change = Change("lower", Knobs({**now.knobs, "queue_thresholds": (60,)}), now.version)
        receipt = adapter.apply(change)
        lab.wait(lambda: states(lab, short) == ["COMPLETED"], "the short job")
        assert "queue_thresholds=60," in one.said()
        assert (adapter.in_force().knobs, adapter.in_force().version) == (change.knobs, receipt.version)
        lab.wait(lambda: states(lab, long) == ["RUNNING"], "the long job again")
        assert "Restarts=1" in lab.run("scontrol", "show", "job", long)
    assert states(lab, foreign) == ["PENDING"]
    assert "Comment=mine" in lab.run("scontrol", "show", "job", foreign)
    lab.clear()


def _says_more(one: Running, before: str) -> bool:
    return len(one.said()) > len(before)


def test_killed_again_and_again_each_job_runs_once(lab: Lab, tmp_path: Path) -> None:
    lab.clear()
    lab.folder.joinpath("out").mkdir(exist_ok=True)
    mark, dice = lab.folder / "out" / "ran", np.random.default_rng(7)
    one = Running(lab, tmp_path, "tiresias", "queue_thresholds = [60]")
    jobs = [submitted(lab, *_WIDE, f"--wrap=echo $SLURM_JOB_ID >> {mark}; sleep 1") for _ in range(6)]
    try:
        for _ in range(3):
            one.start()
            lab.wait(partial(_says_more, one, one.said()), "some deed")
            time.sleep(float(dice.random()))
            one.kill()
        one.start()
        lab.wait(lambda: set(states(lab, *jobs)) == {"COMPLETED"}, "all jobs to end", 90)
    finally:
        one.kill()
    assert sorted(mark.read_text().split()) == sorted(jobs)
    lab.clear()
