"""What a simulation adds to its process's peak memory: one process, one simulation, one number.

    python benchmarks/memory.py CASE [--timeline] [--tiny]

Prints bytes a job: the peak of resident memory from making the engine to the end of its run, less what was
resident before it, over the jobs. Jobs and run times as Python has them are there before. Linux only.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
from pathlib import Path

from cases import CASES, Inputs
from trimtab.simulate.fast import Columns

_RESET_PEAK = "5"


def available() -> bool:
    """Whether this system tells a process's peak memory and lets it begin anew."""
    return Path("/proc/self/clear_refs").exists()


def measured(case: str, timeline: bool, tiny: bool, runs: int) -> list[float]:
    """Return the bytes a job of a case, each from a fresh process."""
    options = [*(["--timeline"] if timeline else []), *(["--tiny"] if tiny else [])]
    command = [sys.executable, __file__, case, *options]
    return [
        float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(runs)
    ]


def growth_bytes_a_job(case: str, timeline: bool, tiny: bool) -> float:
    """Return what one simulation adds to this process's peak, in bytes a job."""
    inputs = Inputs(tiny)
    workload = inputs.workload(CASES[case].source)
    Columns.of(workload)
    gc.collect()
    before = _resident_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    simulation = CASES[case].simulation(workload, "compiled", timeline)
    simulation.run()
    return (_resident_bytes("VmHWM") - before) / len(workload)


def _resident_bytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def main() -> None:
    """Print the number."""
    options = argparse.ArgumentParser(description="Bytes a job that a simulation adds to its process.")
    options.add_argument("case", choices=list(CASES))
    options.add_argument("--timeline", action="store_true")
    options.add_argument("--tiny", action="store_true")
    given = options.parse_args()
    print(growth_bytes_a_job(given.case, given.timeline, given.tiny))


if __name__ == "__main__":
    main()
