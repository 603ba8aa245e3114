"""Short jobs for a lab's Slurm: drawn by a seed, submitted in time, looked at when all have ended."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import polars as pl

from slurm_lab import Lab, adapter_to
from trimtab.control.slurm_commands import Commands, read_config
from trimtab.control.slurm_history import read_history
from trimtab.control.slurm_jobs import instant_ms
from trimtab.simulate.run import World
from trimtab.studies.fidelity import Fidelity, fidelity
from trimtab.traces.trace import Trace
from trimtab.world import epoch_ms

USERS = ("root", "nobody", "daemon", "games")  # two of each account of the lab
_SIZES, _OFTEN = (1, 2, 4, 8, 16), (40, 20, 20, 15, 5)
_LIMITS_MIN = (5, 10, 20, 30)
_HISTORY_MS = 3 * 3_600_000
_MINUTE_MS = 60_000


class ShortJob(NamedTuple):
    """A job: when it is submitted (s after the first), how long it sleeps, its limit and its user."""

    at_s: float
    gpus: int
    run_s: float
    limit_min: int
    user: str


def draw(count: int, seed: int, span_s: float, run_s: tuple[float, float] = (1.0, 10.0)) -> list[ShortJob]:
    """Return jobs in the order of their submission, spread evenly over a span."""
    of = random.Random(seed)
    at_s = sorted(of.uniform(0, span_s) for _ in range(count))
    return [
        ShortJob(
            one,
            of.choices(_SIZES, _OFTEN)[0],
            round(of.uniform(*run_s), 2),
            of.choice(_LIMITS_MIN),
            of.choice(USERS),
        )
        for one in at_s
    ]


def settle(lab: Lab) -> None:
    """Let a lab forget who has used what, and be idle; shares follow within a PriorityCalcPeriod."""
    lab.clear()
    lab.run(
        "sacctmgr", "-iQ", "modify", "account", "where", "account=root", "cluster=lab", "set", "RawUsage=0"
    )


class Played(NamedTuple):
    """A job that was submitted: Slurm tells whole seconds, so when and what is known here is kept."""

    id: str
    submit_ms: int
    run_s: float


def play(lab: Lab, jobs: Sequence[ShortJob], seconds: float = 1800) -> list[Played]:
    """Submit jobs behind one that holds all GPUs until they are there, and wait for the last."""
    holder = ShortJob(0.0, 32, jobs[-1].at_s + 2, 5, "root")
    began_s = time.monotonic()
    played = []
    for job in (holder, *jobs):
        time.sleep(max(0.0, job.at_s - (time.monotonic() - began_s)))
        played.append(Played(_submit(lab, job), epoch_ms(), job.run_s))
    lab.wait(lambda: not lab.run("squeue", "-h"), "all jobs to end", seconds)
    return played


def _submit(lab: Lab, job: ShortJob) -> str:
    """CPUs come with GPUs in proportion, as the model has it: Slurm counts CPUs in sizes and in shares."""
    on_node = min(8, job.gpus)
    return lab.submit(
        *(f"-N{-(-job.gpus // 8)}", "--ntasks-per-node=1", f"-c{8 * on_node}", f"--gpus-per-node={on_node}"),
        *(f"-t{job.limit_min}", f"--uid={job.user}", "-D/", "--mem=1G"),
        gpus=0,
        seconds=job.run_s,
    )


def history(lab: Lab, played: Sequence[Played]) -> Trace:
    """Return what sacct tells of jobs that have ended, submitted when they were and as long as they slept.

    To that is added what starting and ending took in the mean; a start lies in the middle of its second.
    """
    told = ("sacct", "-n", "-X", "-P", "-j", ",".join(one.id for one in played), "-o", "State")
    lab.wait(lambda: lab.run(*told).split() == ["COMPLETED"] * len(played), "sacct to tell of all jobs")
    until_ms = epoch_ms() + 1000
    found = read_history(Commands(lab.conf), until_ms - _HISTORY_MS, until_ms, _HISTORY_MS)
    known = pl.DataFrame(
        {
            "job_id": [one.id for one in played],
            "at_ms": [one.submit_ms for one in played],
            "slept_ms": [round(one.run_s * 1000) for one in played],
        }
    )
    jobs = found.jobs.join(known, on="job_id")
    more_ms = (pl.col("duration_ms") - pl.col("slept_ms")).mean().cast(pl.Int64)
    jobs = jobs.with_columns(
        submit_ms="at_ms",
        duration_ms=pl.col("slept_ms") + more_ms,
        start_ms=pl.max_horizontal(pl.col("start_ms") + 500, "at_ms"),
    )
    return replace(found, jobs=jobs.drop("at_ms", "slept_ms").sort("submit_ms"), unrun=found.unrun.clear())


def replayed(lab: Lab, trace: Trace) -> Fidelity:
    """Simulate what has happened under the settings and the site that the lab has now.

    Its intervals count from the start of slurmctld, as the simulation's do from midnight.
    """
    adapter = adapter_to(lab, "slurm")
    found = adapter.identity()
    booted_ms = instant_ms(read_config(Commands(lab.conf))["boot_time"])
    assert booted_ms is not None
    since_boot = [pl.col(name) - booted_ms % _MINUTE_MS for name in ("submit_ms", "start_ms")]
    trace = replace(trace, jobs=trace.jobs.with_columns(since_boot))
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site.toml"
        site.write_text(found.site.text(), encoding="utf-8")
        world = World(restart_cost_s=0.0, estimates="none", site=str(site))
        return fidelity(trace, found.cluster, "slurm", adapter.in_force().knobs, world)
