"""`trimtab serve` beside a real Slurm: it watches, says what it would do, does it, goes back on command."""

from __future__ import annotations

import time
from pathlib import Path

from serving import running
from slurm_lab import WEIGHTS, Lab, beside

_OTHERS = (
    *("bf_interval", "bf_window", "bf_max_job_user", "bf_continue", "PriorityWeightAge"),
    *("PriorityWeightJobSize", "PriorityMaxAge", "PriorityFavorSmall"),
)


def test_observe_shadow_change_and_back(accounted_lab: Lab, tmp_path: Path) -> None:
    lab = accounted_lab
    lab.clear()
    for seconds in (1, 2, 3):
        lab.submit(gpus=8, seconds=seconds)
    lab.wait(lambda: lab.run("squeue", "-h") == "", "short jobs to end")
    for _ in range(4):
        lab.submit("-N1", "--gpus-per-node=8", gpus=0)
    lab.wait(lambda: len(lab.run("squeue", "-h", "-t", "R").splitlines()) == 4, "jobs to run")
    lab.submit("-N4", "--gpus-per-node=8", gpus=0)
    for _ in range(12):
        lab.submit()
    lab.wait(lambda: len(lab.run("squeue", "-h", "-t", "PD").splitlines()) == 13, "jobs to wait")
    before = lab.owned.read_bytes()

    with running(tmp_path, "observe", beside(lab, WEIGHTS, _OTHERS)) as server:
        found = server.wait(lambda status: status["last_round"] is not None)
        assert found["mode"] == "observe"
        weight = found["in_force"]["PriorityWeightPartition"]
        assert lab.partition_factors() == {weight // 10}

        server.switch("shadow")
        found = server.wait(lambda status: (status["last_round"] or {}).get("decision") == "shadow", 120)
        assert lab.owned.read_bytes() == before

        server.switch("auto")
        found = server.wait(lambda status: status["in_force"]["PriorityWeightPartition"] > 2000, 240)
        wide = found["in_force"]["PriorityWeightPartition"]
        assert (
            lab.partition_factors() == {wide // 10}
            or abs(next(iter(lab.partition_factors())) - wide / 10) <= 1
        )
        assert f"PriorityWeightPartition = {wide}" in lab.run("scontrol", "show", "config")

        done = server.command("rollback")
        assert done.returncode == 0, done.stderr
        server.wait(lambda status: status["in_force"]["PriorityWeightPartition"] == weight, 240)
        assert lab.partition_factors() == {weight // 10}
        server.command("pause")
        time.sleep(1)
    assert lab.controller() is not None
    assert [
        line for line in lab.owned.read_text().splitlines() if line.startswith("PriorityWeightPartition")
    ] == [f"PriorityWeightPartition={weight}"]
