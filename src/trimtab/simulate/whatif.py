"""What would other settings do from here? A state, one future for it, and how long its jobs stay then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trimtab.cluster import Cluster
from trimtab.curve import FULL_SPEED_PPM
from trimtab.errors import Thrashing
from trimtab.job import JobFacts, JobView
from trimtab.knobs import Knobs
from trimtab.objective import Stays, Totals
from trimtab.policies.catalog import find_policy
from trimtab.policies.fairness import Crowding
from trimtab.simulate.deadlines import Deadlines
from trimtab.simulate.engine import Engine
from trimtab.simulate.state import Environment, Record, Snapshot
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
        after = engine.snapshot()
        ends = {job.id: _Account.of(job, after) for job in after.jobs}
        begins = {job.id: _Account.of(job, self.snapshot) for job in self.snapshot.jobs}
        ids, lefts_ms, sums = [], [], np.zeros(5, dtype=np.int64)
        ages, idles, members, fair = [], [], [], []
        for job_id, facts in enumerate(self.workload.facts):
            end = ends.get(job_id) or self._finished(engine.records[job_id], job_id)
            if end is None:
                continue  # was rejected, or has not arrived
            begin = begins.get(job_id, _Account(facts.submit_ms))
            run_ms = (end.done - begin.done) // FULL_SPEED_PPM
            stay_ms = end.at_ms - max(begin.at_ms, self.snapshot.now_ms)
            queue_ms = stay_ms - (end.held_ms - begin.held_ms)
            paid_ms, stops = end.paid_ms - begin.paid_ms, end.preemptions - begin.preemptions
            left_ms = max(0, self.workload.duration_ms[job_id] - end.done // FULL_SPEED_PPM)
            ids.append(job_id)
            lefts_ms.append(left_ms)
            ages.append(end.at_ms - facts.submit_ms)
            idles.append(stay_ms - run_ms)
            members.append(facts.members)
            fair.append(self._is_fair(facts, self.workload.duration_ms[job_id], end, left_ms))
            sums += facts.members * np.array((1, run_ms, queue_ms, paid_ms, stops))
        columns = np.array(ages, dtype=np.int64), np.array(idles, dtype=np.int64)
        counts, fairs = np.array(members, dtype=np.int32), np.array(fair, dtype=np.bool_)
        deadlines = Deadlines.of(self.workload.facts)
        known = np.array(ids, dtype=np.int64), columns[0], np.array(lefts_ms, dtype=np.int64)
        lost_ppm = None if deadlines is None else deadlines.lost_of(*known)
        return Stays(*columns, counts, fairs, Totals(*sums.tolist()), lost_ppm)

    def _is_fair(self, facts: JobFacts, run_ms: int, end: _Account, left_ms: int) -> bool:
        """Whether a job takes no longer than alone on its share, if what is left of it runs at full speed."""
        age_ms, home = end.at_ms - facts.submit_ms, self.cluster.home(facts.vc)
        assert home is not None
        gpus = facts.gpus // facts.members
        crowding = Crowding.of(age_ms, end.life_job_ms, gpus, self.cluster.vcs[home].gpus)
        return crowding.is_fair(age_ms + left_ms, run_ms)

    def _finished(self, record: Record, job_id: int) -> _Account | None:
        if record.finish_ms is None:
            return None
        work = self.workload.duration_ms[job_id] * FULL_SPEED_PPM
        held_ms, paid_ms, stops = record.held_ms, record.paid_ms, record.preemptions
        return _Account(record.finish_ms, work, held_ms, paid_ms, stops, record.life_job_ms)


class _Account(NamedTuple):
    """What a job has done and got by an instant."""

    at_ms: int
    done: int = 0
    held_ms: int = 0
    paid_ms: int = 0
    preemptions: int = 0
    life_job_ms: int = 0

    @classmethod
    def of(cls, job: JobView, snapshot: Snapshot) -> _Account:
        life_job_ms = snapshot.job_ms[job.home] - job.submit_job_ms
        return cls(job.since_ms, job.done, job.held_ms, job.paid_ms, job.preemptions, life_job_ms)
