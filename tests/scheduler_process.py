"""A simulated scheduler, also as a process that answers over gRPC: `scheduler_process.py POLICY`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from trimtab.cluster import Cluster
from trimtab.control.simulated import Simulated
from trimtab.job import JobFacts
from trimtab.policies.catalog import find_policy
from trimtab.simulate.state import Environment
from trimtab.simulate.workload import OracleEstimator, Workload

READ, WRITE = "a-token-that-reads", "a-token-that-writes"
SPEEDUP = 500


def workload(count: int = 3000) -> Workload:
    """Return jobs of some minutes, one every twenty seconds."""
    rng = np.random.default_rng(5)
    facts = [
        JobFacts(f"job-{n}", 20_000 * n, int(rng.integers(1, 5)), user=f"u{n % 7}") for n in range(count)
    ]
    return Workload(facts, rng.integers(1_000, 180_000, count).tolist())


def scheduler(policy: str, speedup: float | None = None) -> Simulated:
    """Return one that has run for half an hour."""
    jobs = workload()
    environment = Environment(estimator=OracleEstimator(jobs.duration_ms))
    knobs = find_policy(policy).space.defaults
    cluster = Cluster.pool(2, 4)
    return Simulated(jobs, cluster, policy, knobs, environment, start_ms=1_800_000, speedup=speedup)


@contextmanager
def running(policy: str) -> Iterator[int]:
    """Run one, and yield its port."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__)), policy], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    from trimtab.control.authority import Tokens
    from trimtab.control.grpc_server import serve

    server = serve(scheduler(sys.argv[1], SPEEDUP), "127.0.0.1:0", Tokens(READ, WRITE))
    print(server.port, flush=True)
    server.wait()
