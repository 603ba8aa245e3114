"""Trimtab beside public simulators: the same jobs, one run, one machine, CPU seconds and what came out.

    python benchmarks/peers.py --tiresias CHECKOUT --python2 PY --lucid CHECKOUT [--python3 PY] [--runs 5]

A checkout is a clone of github.com/SymbioticLab/Tiresias or github.com/S-Lab-System-Group/Lucid. Tiresias
wants a Python 2.7 with numpy, Lucid a Python 3 with pandas. A peer without a checkout is left out, and the
table says so. Lucid runs in a scratch copy: an import of tkinter that it never uses is answered by an empty
module, and its Philly window is widened to take two weeks.

The jobs are the two weeks of Philly in the folder named by TRIMTAB_SHARED (default ../shared), the cluster
is 100 nodes of 8 GPUs. Each simulator is a fresh process that reads a csv and writes one; its cost is the
user and system time of that process and its children. Peers run once, Trimtab --runs times, half of them
before the peer and half after, and the median counts. Exits with 1 if a result that must be equal is not.

Then follows Lucid itself, on the same jobs with profiles: what a copy of the artifact gave in which a
partner's speed is restored, ours by its rules, and what each of our own rules makes of it, one more in each
line; see `lucid_rules.py`. That takes no checkout.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import lucid_rules
from trimtab.errors import TrimtabError

SHARED = Path(os.environ.get("TRIMTAB_SHARED") or Path(__file__).resolve().parents[2] / "shared")
JOBS = SHARED / "peers" / "philly_2w.csv.gz"
NODES, GPUS_PER_NODE = 100, 8

Row = dict[str, str]


@dataclass(frozen=True)
class Case:
    """One line of the table: what the peer is asked for and what we are.

    Attributes:
        schedule: The peer's name of its policy.
        options: Ours, as `trimtab simulate` takes them.
        differs: Why the two do not agree to the second; empty where they must.
    """

    peer: str
    name: str
    schedule: str
    options: str
    differs: str = ""


_LUCID_PREEMPTS = (
    "Lucid preempts by GPU count alone, ours also to free whole nodes; Lucid adds 40 s (60 s above 8 GPUs) to"
    " the work of who is preempted, ours 40 s when it resumes; Lucid ends jobs a second late"
)

CASES = (
    Case("tiresias", "FIFO, count", "fifo", "--policy fifo --placement count --restart-cost-s 0"),
    Case("tiresias", "SRTF, count", "shortest", "--policy srtf --placement count --restart-cost-s 0"),
    Case(
        "tiresias",
        "Tiresias, count",
        "dlas-gpu",
        "--policy tiresias --placement count --restart-cost-s 0"
        " --knob queue_thresholds=3250/7200 --knob in_queue_order=sim_tail",
        "Tiresias finds the next demotion of a gang from seconds divided by GPUs and so demotes it late",
    ),
    Case("lucid", "FIFO, best fit", "fifo", "--policy fifo --placement consolidated"),
    Case("lucid", "SJF, best fit", "sjf", "--policy sjf --placement consolidated"),
    Case(
        "lucid",
        "SRTF, best fit",
        "srtf",
        "--policy srtf --placement consolidated --restart-cost-s 40",
        _LUCID_PREEMPTS,
    ),
    Case(
        "lucid",
        "Tiresias, best fit",
        "tiresias",
        "--policy tiresias --placement consolidated --restart-cost-s 40"
        " --knob queue_thresholds=18000 --knob in_queue_order=submit --knob quantum=60",
        _LUCID_PREEMPTS,
    ),
)


class Failed(Exception):
    """A simulator could not be run; the message is one line."""


class Outcome(NamedTuple):
    """When each job ended, s, in the order in which the simulator took the jobs; and all preemptions."""

    ends: dict[str, int]
    preemptions: int


class Cost(NamedTuple):
    """CPU seconds of a whole process and, of ours, of the engine in it."""

    process_s: float
    engine_s: float


def cpu_of(command: Sequence[str], folder: Path, **environment: str) -> tuple[float, str]:
    """Run a command to its end and return its CPU seconds, children included, and what it printed.

    Raises:
        Failed: If it cannot be started or does not succeed.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(
            command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise Failed(f"{error.filename}: {error.strerror}") from error
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise Failed(f"{' '.join(command[:3])} ended with {done.returncode}: {last}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a csv, plain or gzip.

    Raises:
        Failed: If it is not there.
    """
    if not path.is_file():
        raise Failed(f"{path} is not there")
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        return list(csv.DictReader(lines))


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write rows as csv; the first one's keys are the columns."""
    with path.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def outcome(rows: Sequence[Row], end: str, preemptions: str) -> Outcome:
    """Return the outcome in a table of jobs, given the names of two of its columns."""
    ends = {row["job_id"]: int(float(row[end])) for row in rows}
    return Outcome(ends, sum(int(row[preemptions]) for row in rows))


class TiresiasPeer:
    """The Tiresias simulator."""

    title = "Tiresias simulator"
    script = Path("simulator", "run_sim.py")

    def __init__(self, checkout: Path, python: str, jobs: Sequence[Row], scratch: Path) -> None:
        self.folder = (checkout / self.script).resolve().parent
        self.python = python
        self.scratch = scratch
        extra = {"iterations": "100", "model_name": "resnet50", "interval": "0"}
        write_rows(
            scratch / "jobs.csv",
            [
                {
                    "job_id": job["job_id"],
                    "num_gpu": job["num_gpus"],
                    "submit_time": job["submit_time"],
                    "duration": job["duration"],
                    **extra,
                }
                for job in jobs
            ],
        )
        spec = {
            "num_switch": 1,
            "num_node_p_switch": NODES,
            "num_gpu_p_node": GPUS_PER_NODE,
            "num_cpu_p_node": 128,
            "mem_p_node": 512,
        }
        write_rows(scratch / "cluster.csv", [{name: str(value) for name, value in spec.items()}])

    def run(self, schedule: str) -> tuple[float, Outcome]:
        """Return the CPU seconds and the outcome of one schedule; ties are in the order of the file."""
        log = self.scratch / schedule
        command = [self.python, "run_sim.py", f"--schedule={schedule}", "--scheme=count", f"--log_path={log}"]
        command += [
            f"--trace_file={self.scratch / 'jobs.csv'}",
            f"--cluster_spec={self.scratch / 'cluster.csv'}",
        ]
        spent, _ = cpu_of(command, self.folder)
        rows = sorted(read_rows(log / "job.csv"), key=lambda row: int(row["job_id"]))
        return spent, outcome(rows, "end_time", "preempt")


class LucidPeer:
    """The simulator in Lucid's artifact."""

    title = "Lucid artifact"
    script = Path("simulation", "simulator.py")

    def __init__(self, checkout: Path, python: str, jobs: Sequence[Row], scratch: Path) -> None:
        self.folder = scratch / "simulation"
        self.python = python
        shutil.copytree((checkout / self.script).parent, self.folder)
        edit(self.folder / "utils.py", "2017-10-07", "2017-10-20")
        (self.folder / "tkinter").mkdir()
        (self.folder / "tkinter" / "__init__.py").touch()
        (self.folder / "tkinter" / "messagebox.py").write_text("NO = None\n")
        trace = self.folder / "philly"
        trace.mkdir()
        write_rows(trace / "vc_config.csv", [{"vc": "philly", "num": str(NODES)}])
        write_rows(trace / "cluster_full_log.csv", [self.log_row(job) for job in jobs])
        guesses = self.folder / "estimator" / "lgb"
        guesses.mkdir(exist_ok=True)
        write_rows(
            guesses / "Philly_lgb.csv",
            [{"job_id": job["job_id"], "priority": job["duration"]} for job in jobs],
        )

    @staticmethod
    def log_row(job: Row) -> Row:
        """Return a job as the artifact reads it; no policy compared here uses the model's columns."""
        submitted = datetime(2017, 10, 1) + timedelta(seconds=int(job["submit_time"]))
        model = {"dataset": "none", "model": "none", "batchsize": "1", "amp": "0", "speed": "1"}
        use = {"gpu_util": "50", "gmem_util": "50", "gmem": "8000"}
        return {
            "job_id": job["job_id"],
            "user": "u",
            "vc": "philly",
            "gpu_num": job["num_gpus"],
            "state": "Pass",
            "submit_time": submitted.isoformat(" "),
            "duration": job["duration"],
            **model,
            **use,
        }

    def run(self, schedule: str) -> tuple[float, Outcome]:
        """Return the CPU seconds and the outcome of one schedule; ties are in the order it made of them."""
        options = ["-e", "Philly", "-t", "./philly", "-l", "./log", "-p", "consolidate", "-j", "1"]
        spent, _ = cpu_of([self.python, "simulator.py", "-s", schedule, *options], self.folder, TZ="UTC")
        written = self.folder / "log" / "Philly" / "philly" / f"{schedule}_consolidate_philly_log.csv"
        return spent, outcome(read_rows(written), "end_time", "ckpt_times")


Peer = TiresiasPeer | LucidPeer


def edit(path: Path, old: str, new: str) -> None:
    """Replace a text in a file of a scratch copy.

    Raises:
        Failed: If the text is not in it.
    """
    text = path.read_text()
    if old not in text:
        raise Failed(f"{path.name} of the checkout has no {old}; is it the version this was written for?")
    path.write_text(text.replace(old, new))


def trimtab(case: Case, table: Path) -> tuple[Cost, Outcome]:
    """Run ours in a fresh process, which writes a line a job as the peers do."""
    written = table.with_name("ours.csv")
    command = [sys.executable, "-m", "trimtab", "simulate", f"table:{table}", "--nodes", str(NODES)]
    command += [*case.options.split(), "--quiet", "--format", "json", "--jobs-out", str(written)]
    spent, said = cpu_of(command, table.parent)
    return Cost(spent, json.loads(said)["cpu_s"]), outcome(read_rows(written), "finish_s", "preemptions")


def mean_jct_s(ends: dict[str, int], jobs: Sequence[Row]) -> float:
    """Return the mean time from submission to completion."""
    return statistics.fmean(ends[job["job_id"]] - int(job["submit_time"]) for job in jobs)


def compared(case: Case, peer: Peer, jobs: Sequence[Row], runs: int, scratch: Path) -> bool:
    """Run one case, print its line and say whether what must be equal is.

    The order of jobs of one second is no rule of a policy, so ours takes them as the peer did; in the runs
    before the peer's it is the order of the file, which costs the same.
    """
    table = scratch / "ours_in.csv"
    write_rows(table, jobs)
    costs = [trimtab(case, table)[0] for _ in range(runs // 2)]
    peer_s, theirs = peer.run(case.schedule)
    by_id = {job["job_id"]: job for job in jobs}
    write_rows(table, [by_id[name] for name in theirs.ends])
    after = [trimtab(case, table) for _ in range(runs - runs // 2)]
    process_s, engine_s = map(statistics.median, zip(*costs, *(cost for cost, _ in after), strict=True))
    ours = after[0][1]
    differ = sum(ours.ends[name] != end for name, end in theirs.ends.items())
    print(
        f"{peer.title:19}{case.name:20}{peer_s:8.1f}{process_s:8.2f}{peer_s / process_s:6.0f}x"
        f"{engine_s * 1000:9.1f}{peer_s / engine_s:9,.0f}x"
        f"{mean_jct_s(theirs.ends, jobs):12,.2f}{mean_jct_s(ours.ends, jobs):11,.2f}"
        f"{theirs.preemptions:8,}{ours.preemptions:7,}{differ:8,}",
        flush=True,
    )
    return bool(case.differs) or (differ == 0 and theirs.preemptions == ours.preemptions)


def parsed() -> argparse.Namespace:
    """Return the command line's options."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--tiresias", type=Path, metavar="CHECKOUT")
    options.add_argument("--python2", default="python2.7", metavar="PY")
    options.add_argument("--lucid", type=Path, metavar="CHECKOUT")
    options.add_argument("--python3", default=sys.executable, metavar="PY")
    options.add_argument("--runs", type=int, default=5, help="runs of Trimtab, 2 or more")
    given = options.parse_args()
    if given.runs < 2:
        options.error(f"--runs {given.runs}: 2 or more, some before the peer and some after")
    return given


def print_head(runs: int) -> None:
    """Print where and how the numbers below are measured."""
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    print(f"{platform.machine()}, {os.cpu_count()} cores, commit {head.stdout.strip() or 'unknown'}")
    print(
        f"CPU seconds of whole processes: peers once, Trimtab the median of {runs}; engine: its share of ours"
    )
    print(f"two weeks of Philly, {NODES} nodes of {GPUS_PER_NODE} GPUs; ends: jobs that end at another time")
    print(f"{'':39}{'CPU s':>16}{'':7}{'engine':>9}{'':10}{'mean JCT, s':>23}{'preemptions':>15}{'ends':>8}")
    print(
        f"{'peer':19}{'policy':20}{'peer':>8}{'ours':>8}{'ratio':>7}{'ms':>9}{'ratio':>10}"
        f"{'peer':>12}{'ours':>11}{'peer':>8}{'ours':>7}{'differ':>8}"
    )


def print_lucid() -> None:
    """Print Lucid by its authors' rules and, each rule added to those before, by ours.

    Raises:
        Failed: If the jobs or the measured pairs are not there.
    """
    try:
        philly = lucid_rules.Philly.read(SHARED)
    except (OSError, TrimtabError) as problem:
        raise Failed(f"Lucid by its authors' rules: {problem}") from problem
    alone_s = statistics.fmean(int(job["duration"]) for job in philly.jobs)
    print(
        f"\n{'Lucid, the same jobs profiled':50}{'mean JCT, s':>13}{'wait':>8}{'in profiler':>13}{'pairs':>7}"
    )
    for name, jct_s, profiled, pairs in (lucid_rules.THEIRS, *philly.steps()):
        print(f"{name:50}{jct_s:13,.2f}{jct_s - alone_s:8,.0f}{profiled:13,}{pairs:7,}")


def measured(given: argparse.Namespace, scratch: Path) -> int:
    """Print the table and return the exit code."""
    jobs = read_rows(JOBS)
    wanted: dict[str, tuple[type[Peer], Path | None, str]] = {
        "tiresias": (TiresiasPeer, given.tiresias, given.python2),
        "lucid": (LucidPeer, given.lucid, given.python3),
    }
    print_head(given.runs)
    wrong = []
    for key, (kind, checkout, python) in wanted.items():
        cases = [case for case in CASES if case.peer == key]
        if checkout is None:
            print(f"{kind.title:19}left out: no --{key} CHECKOUT")
            continue
        if not (checkout / kind.script).is_file():
            raise Failed(f"--{key} {checkout}: no {kind.script} in it")
        (scratch / key).mkdir()
        peer = kind(checkout, python, jobs, scratch / key)
        wrong += [case for case in cases if not compared(case, peer, jobs, given.runs, scratch)]
        for reason in dict.fromkeys(case.differs for case in cases if case.differs):
            names = ", ".join(case.name for case in cases if case.differs == reason)
            print(f"{'':19}{names} may differ: {reason}")
    for case in wrong:
        print(f"{case.peer} {case.name}: must be equal and is not")
    print_lucid()
    return 1 if wrong else 0


def main() -> int:
    """Measure what is asked for."""
    given = parsed()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            return measured(given, Path(scratch))
        except Failed as refusal:
            print(f"peers: {refusal}; the rest was not run", file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
