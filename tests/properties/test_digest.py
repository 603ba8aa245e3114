"""The same input gives the same bytes: in one process, in others, under any hash seed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

from strategies import NEED_NODES, Case, RestartCost
from trimtab.cluster import Cluster
from trimtab.job import JobFacts
from trimtab.policies.catalog import POLICIES, find_policy
from trimtab.simulate.workload import Workload

_TESTS = Path(__file__).resolve().parents[1]


def digests() -> list[str]:
    """Return the digest of one busy run of each policy and placement."""
    drawn = random.Random(7)
    sizes = [("x", 2, 4), ("y", 1, 8)]
    facts, durations, now_ms = [], [], 0
    for i in range(60):
        now_ms += drawn.choice([0, 0, 3_000, 20_000])
        facts.append(JobFacts(f"j{i}", now_ms, drawn.choice([1, 1, 2, 3, 8]), drawn.choice("xy")))
        durations.append(drawn.randrange(1, 120_000))
    found = []
    for name in POLICIES:
        for placement in (
            ("consolidated", "relaxed") if name in NEED_NODES else ("count", "consolidated", "relaxed")
        ):
            case = Case(
                workload=Workload(facts, durations),
                cluster=Cluster.partitioned(sizes),
                policy_name=name,
                knobs=find_policy(name).space.project({"queue_thresholds": (60, 200), "num_queues": 3})
                if name == "tiresias"
                else find_policy(name).space.defaults,
                placement=placement,
                restart=RestartCost(1_001, 337),
                cold_start_ms=0,
                estimates_ms=tuple(durations),
                completed_gpu_ms=(),
            )
            timeline = case.done().timeline
            assert timeline is not None
            found.append(timeline.digest())
    return found


def test_the_digest_is_the_same_everywhere():
    """Twice here, and in a process of its own under three hash seeds."""
    here = digests()
    assert digests() == here
    assert len(set(here)) > len(here) // 2
    for seed in ("0", "1", "4711"):
        program = f"import sys; sys.path[:0] = {[str(_TESTS), str(Path(__file__).parent)]!r}\n"
        program += "import test_digest; print(*test_digest.digests())"
        paths = os.pathsep.join(path for path in sys.path if path)
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == here
