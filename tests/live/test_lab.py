"""The lab is a Slurm that works: nodes, GPUs, jobs, priorities, and nothing left behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import slurm_lab
from slurm_lab import Lab


def test_a_job_gets_its_gpus_and_ends(lab: Lab) -> None:
    lab.clear()
    job = lab.submit(gpus=3, seconds=1)
    lab.wait(lambda: "JobState=COMPLETED" in lab.run("scontrol", "show", "job", job), "a job to end")
    assert "TresPerJob=gres:gpu:3" in lab.run("scontrol", "show", "job", job)


def test_a_controller_that_was_killed_comes_back_with_its_jobs(lab: Lab) -> None:
    lab.clear()
    job = lab.submit(gpus=8)
    lab.wait(lambda: "RUNNING" in lab.run("squeue", "-h", "-j", job, "-o", "%T"), "a job to run")
    lab.saved()
    lab.kill_controller()
    assert not lab.answers()
    lab.start()
    assert lab.run("squeue", "-h", "-j", job, "-o", "%T").strip() == "RUNNING"


def test_accounting_has_ages_and_history(accounted_lab: Lab) -> None:
    accounted_lab.clear()
    job = accounted_lab.submit(gpus=1, seconds=1)
    told = ("sacct", "-n", "-X", "-P", "-j", job, "-o", "State,AllocTRES")
    accounted_lab.wait(lambda: "COMPLETED" in accounted_lab.run(*told), "sacct to tell of a job")
    assert "gres/gpu=1" in accounted_lab.run(*told)


@pytest.mark.usefixtures("lab")
def test_nothing_is_left_of_a_lab() -> None:
    one = Lab()
    one.start()
    folder = str(one.folder)
    one.remove()
    assert not Path(folder).exists()
    listed = subprocess.run(["ps", "-eo", "stat=,args="], capture_output=True, text=True, check=True).stdout
    left = [line for line in listed.splitlines() if folder in line and not line.startswith("Z")]
    assert left == []


def test_who_has_no_slurm_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "munge slurmctld slurmd slurm-client" in (slurm_lab.missing() or "") or slurm_lab.os.geteuid() != 0
