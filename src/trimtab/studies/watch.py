"""What is known at each instant of an evaluation: the trace before it, and what its cluster has done."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trimtab.curve import FULL_SPEED_PPM
from trimtab.forecast.history import MEMORY_MS, NEVER_MS, History, Past
from trimtab.simulate.engines import Simulation
from trimtab.simulate.run import World
from trimtab.simulate.state import NONE_MS, Snapshot
from trimtab.traces.trace import Trace


class Watch:
    """The jobs of a trace up to the end of an evaluation's window, seen as its cluster gets to know them.

    Jobs from before the window ran as the trace has it up to its start; what became of those that still ran
    then is never told, since the cluster begins empty. Jobs of the window run as the simulated cluster lets
    them: what has completed there is known, and of any other one only what it has run.

    Attributes:
        facts: What was submitted, by row. first_row: the row of the window's first job.
    """

    def __init__(self, trace: Trace, start_ms: int, end_ms: int, world: World) -> None:
        submit_ms = trace.column("submit_ms") - trace.zero_ms
        seen = trace.select((submit_ms >= start_ms - MEMORY_MS) & (submit_ms < end_ms))
        seen = replace(seen, zero_ms=trace.zero_ms)
        self._history = History.of(seen)
        self.facts = world.workload(seen).facts
        self._before = self._history.as_of(start_ms)
        self.first_row = len(self._before)

    def past(self, engine: Simulation, snapshot: Snapshot, now_ms: int) -> Past:
        """Return what is known at an instant up to which the cluster has run."""
        told = self._history.as_of(now_ms)
        here = slice(self.first_row, self.first_row + snapshot.arrived)
        completed_ms = engine.outcomes.finish_ms[: snapshot.arrived]
        completed = completed_ms != NONE_MS
        ran_ms = np.where(completed, self._history.duration_ms[here], 0)
        for job in snapshot.jobs:
            ran_ms[job.id] = job.done // FULL_SPEED_PPM
        return replace(
            told,
            finish_ms=np.concatenate([self._before.finish_ms, np.where(completed, completed_ms, NEVER_MS)]),
            ran_ms=np.concatenate([self._before.ran_ms, ran_ms]),
        )
