"""What would other settings do from here? A state, one future for it, and how long its jobs stay then."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab.cluster import Cluster
from trimtab.errors import Thrashing
from trimtab.job import FULL_SPEED_PPM
from trimtab.knobs import Knobs
from trimtab.objective import Stays
from trimtab.policies.catalog import find_policy
from trimtab.simulate.engine import Engine
from trimtab.simulate.state import Environment, Snapshot
from trimtab.simulate.workload import Workload

_PREEMPTIONS_A_JOB_MAX = 50


@dataclass(frozen=True)
class Situation:
    """A scheduler's state at an instant, and one future for it.

    Attributes:
        snapshot: The state; its active jobs are the first of the workload, in id order.
        workload: The active jobs with the run times this future gives them, then its arrivals.
        until_ms: Where the simulation stops (the run-on horizon), None to drain.
    """

    snapshot: Snapshot
    workload: Workload
    cluster: Cluster
    policy: str
    environment: Environment
    until_ms: int | None

    @classmethod
    def empty(cls, workload: Workload, cluster: Cluster, policy: str, environment: Environment) -> Situation:
        """Return a situation that starts from an empty cluster and runs until all is done."""
        engine = Engine(
            workload, cluster, find_policy(policy), find_policy(policy).space.defaults, environment
        )
        return cls(engine.snapshot(), workload, cluster, policy, environment, None)

    @property
    def preemptions_max(self) -> int:
        """More preemptions than this are thrashing; the settings are not worth simulating further."""
        return 1000 + _PREEMPTIONS_A_JOB_MAX * len(self.workload)

    def stays(self, knobs: Knobs) -> Stays | None:
        """Return how long each job stays if these knobs hold from now on, None if they make jobs thrash."""
        engine = Engine.resume(
            self.snapshot, self.workload, self.cluster, find_policy(self.policy), self.environment
        )
        engine.update(self.snapshot.now_ms, knobs)
        engine.preemptions_max = self.preemptions_max
        try:
            engine.run(self.until_ms)
        except Thrashing:
            return None
        done_before = {job.id: job.done for job in self.snapshot.jobs}
        ages, idles = [], []
        for job_id, facts in enumerate(self.workload.facts):
            end_ms = self._end_ms(engine, job_id)
            if end_ms is not None:
                ages.append(end_ms - facts.submit_ms)
                idles.append(self._idle_ms(engine, job_id, end_ms, done_before.get(job_id, 0)))
        return Stays(np.array(ages, dtype=np.int64), np.array(idles, dtype=np.int64))

    def _end_ms(self, engine: Engine, job_id: int) -> int | None:
        """Return when a job's stay ends, None for one that was rejected or has not arrived."""
        record = engine.records[job_id]
        if record.finish_ms is not None:
            return record.finish_ms
        return engine.now_ms if engine.active(job_id) is not None else None

    def _idle_ms(self, engine: Engine, job_id: int, end_ms: int, done_before: int) -> int:
        job = engine.active(job_id)
        done = self.workload.duration_ms[job_id] * FULL_SPEED_PPM if job is None else job.done_by(end_ms)
        began_ms = max(self.workload.facts[job_id].submit_ms, self.snapshot.now_ms)
        return end_ms - began_ms - (done - done_before) // FULL_SPEED_PPM
