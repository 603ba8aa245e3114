"""How fast the engines are: one table of CPU seconds, medians over several runs, and the ratio between them.

    python benchmarks/speed.py [--runs 5] [--reference-runs 1]

Reads the real traces in the folder named by TRIMTAB_SHARED (default ../shared). Times the engine call alone,
index building and timeline included. Ratios within one run are what counts; absolute times are the machine's.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

from trimtab.cluster import Cluster
from trimtab.policies.catalog import find_policy
from trimtab.simulate.engines import make_engine
from trimtab.simulate.state import Environment, flat_restart
from trimtab.simulate.workload import OracleEstimator, Workload
from trimtab.traces.loader import load
from trimtab.world import cpu_s

SHARED = Path(os.environ.get("TRIMTAB_SHARED") or Path(__file__).resolve().parents[2] / "shared")
TWO_WEEKS = f"table:{SHARED / 'peers' / 'philly_2w.csv.gz'}"
WHOLE = f"philly:{SHARED / 'data' / 'philly' / 'philly_until_2017-10-31.csv.gz'}"


@dataclass(frozen=True)
class Case:
    """One row: a trace, a policy and a cluster of 8-GPU nodes."""

    name: str
    source: str
    policy: str
    nodes: int


CASES = (
    Case("FIFO strict, two weeks, 100 x 8", TWO_WEEKS, "fifo", 100),
    Case("Tiresias, two weeks, 100 x 8", TWO_WEEKS, "tiresias", 100),
    Case("Tiresias, two weeks, 80 x 8", TWO_WEEKS, "tiresias", 80),
    Case("SRTF, two weeks, 80 x 8", TWO_WEEKS, "srtf", 80),
    Case("SRSF, two weeks, 80 x 8", TWO_WEEKS, "srsf", 80),
    Case("Tiresias, whole trace, 100 x 8", WHOLE, "tiresias", 100),
)


def timed(case: Case, engine: str, runs: int) -> float:
    """Return the median CPU seconds of a case on an engine."""
    workload = Workload.of(load(case.source), spread_ppm=500_000)
    policy = find_policy(case.policy)
    estimator = OracleEstimator(workload.duration_ms)
    environment = Environment(restart_ms=flat_restart(62_000), estimator=estimator)
    spent = []
    for _ in range(runs):
        before = cpu_s()
        made = make_engine(
            engine,
            workload,
            Cluster.pool(case.nodes, 8),
            policy,
            policy.space.defaults,
            environment,
            timeline=True,
        )
        made.run()
        spent.append(cpu_s() - before)
    return statistics.median(spent)


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--reference-runs", type=int, default=1)
    given = options.parse_args()
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    print(f"{platform.machine()}, {os.cpu_count()} cores, commit {head.stdout.strip() or 'unknown'}")
    print(f"CPU ms, median of {given.runs} compiled and {given.reference_runs} reference runs")
    print(f"{'':34}{'compiled':>10}{'reference':>11}{'ratio':>7}{'jobs/s':>12}")
    for case in CASES:
        jobs = len(load(case.source))
        fast = timed(case, "compiled", given.runs)
        slow = timed(case, "reference", given.reference_runs)
        print(f"{case.name:34}{fast * 1000:10.1f}{slow * 1000:11.0f}{slow / fast:7.0f}{jobs / fast:12,.0f}")


if __name__ == "__main__":
    main()
