"""How long a scheduler takes to decide with a thousand jobs running and waiting, step by step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cases import CASES, Inputs
from trimtab.simulate.engines import Simulation
from trimtab.world import cpu_s

LATENCIES = ("chronus", "sensascale", "sensascale-plus")

ACTIVE, STEPS = 1000, 2000
STEP_MS, HOUR_MS = 1_000, 3_600_000


@dataclass(frozen=True)
class Steps:
    """The 99th percentile of a step's CPU time, and how many jobs were there at first and at last."""

    p99_s: float
    active: tuple[int, int]


def steps_of(inputs: Inputs, name: str) -> Steps:
    """Run until a thousand jobs are there, then time the seconds in which something happens."""
    workload = inputs.workload("deadlines")
    engine = CASES[name].simulation(workload, "compiled", timeline=False)
    last_ms = workload.facts[-1].submit_ms
    most = min(ACTIVE, len(workload) // 4)
    while _active(engine) < most and engine.now_ms < last_ms:
        engine.run(engine.now_ms + HOUR_MS)
    before, spent_s = _active(engine), [0.0]
    while len(spent_s) <= STEPS and engine.now_ms < last_ms:
        events, began_s = engine.events, cpu_s()
        engine.run(engine.now_ms + STEP_MS)
        if engine.events > events:
            spent_s.append(cpu_s() - began_s)
    return Steps(float(np.percentile(spent_s, 99)), (before, _active(engine)))


def _active(engine: Simulation) -> int:
    return len(engine.snapshot().jobs)
