"""From a scheduler's state and one possible future to a situation in which settings can be tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trimtab.cluster import Cluster
from trimtab.forecast.history import Integers
from trimtab.forecast.period import HOUR_MS
from trimtab.job import JobFacts
from trimtab.simulate.engines import Simulation
from trimtab.simulate.state import Environment, Snapshot
from trimtab.simulate.whatif import Situation
from trimtab.simulate.workload import OracleEstimator, Workload

_HOURS_MAX = 24  # that a forecast is told of


@dataclass(frozen=True)
class Future:
    """What may come.

    Attributes:
        active_ms: Run times of the snapshot's jobs in id order, work done so far included, in ms.
        coming: The arrivals, by submit time, none before the snapshot's instant.
        coming_ms: Their run times, in ms.
    """

    active_ms: Sequence[int]
    coming: Sequence[JobFacts]
    coming_ms: Sequence[int]


def snapshot_at(engine: Simulation, now_ms: int) -> Snapshot:
    """Return the state at an instant up to which the engine has run.

    An engine's clock begins at its first arrival; before that, the state is the same and the time is told.
    """
    snapshot = engine.snapshot()
    return replace(snapshot, now_ms=now_ms) if now_ms < snapshot.now_ms else snapshot


def supposed(environment: Environment, workload: Workload, now_ms: int | None = None) -> Environment:
    """Return an environment that knows of the future what is supposed, and nothing else.

    Its oracle, if it has one, knows a workload's run times; its forecast of submissions those of the workload
    from an instant on, where one is given.
    """
    if environment.pace is not None and now_ms is not None:
        coming_ms = [facts.submit_ms for facts in workload.facts if facts.submit_ms >= now_ms]
        environment = replace(environment, pace=environment.pace.supposing(now_ms, coming_ms))
    if isinstance(environment.estimator, OracleEstimator):
        # Those that are supposed, by the workload's own ids: the truth must not come along.
        return replace(environment, estimator=environment.estimator.supposing(workload))
    return environment


def situation_of(
    snapshot: Snapshot,
    future: Future,
    cluster: Cluster,
    policy: str,
    environment: Environment,
    run_on_ms: int,
) -> Situation:
    """Put active jobs and arrivals into one workload, ids anew but in the same order."""
    jobs = []
    places = {job.id: place for place, job in enumerate(snapshot.jobs)}
    for place, job in enumerate(snapshot.jobs):
        twin = job.copy()
        twin.id = place
        twin.partner = None if job.partner is None else places[job.partner]
        if type(environment.estimator) is OracleEstimator:
            twin.estimate_ms = future.active_ms[place]
        jobs.append(twin)
    workload = Workload(
        [*(job.facts for job in jobs), *future.coming], [*future.active_ms, *future.coming_ms]
    )
    crossing = tuple(places[job_id] for job_id in snapshot.crossing)
    moved = replace(snapshot, jobs=tuple(jobs), arrived=len(jobs), crossing=crossing)
    if isinstance(environment.estimator, OracleEstimator):
        moved = replace(moved, estimator=None)
    environment = supposed(environment, workload, snapshot.now_ms)
    return Situation(moved, workload, cluster, policy, environment, snapshot.now_ms + run_on_ms)


def _hours_of(submit_ms: Integers, gpu_ms: Integers, from_ms: int, hours: int) -> tuple[list[int], list[int]]:
    """Return the jobs submitted in each hour from an instant on, and the GPU time they ask for, in GPU-ms.

    Args:
        submit_ms, gpu_ms: Of jobs submitted at that instant or later, shape (jobs,).
    """
    place = (submit_ms - from_ms) // HOUR_MS
    is_within = (place >= 0) & (place < hours)
    counts, work = np.zeros(hours, dtype=np.int64), np.zeros(hours, dtype=np.int64)
    np.add.at(counts, place[is_within], 1)
    np.add.at(work, place[is_within], gpu_ms[is_within])
    return counts.tolist(), work.tolist()


def forecast_of(situations: Sequence[Situation], now_ms: int, arrivals_ms: int) -> dict[str, Any]:
    """Return who is expected to come, hour by hour, one row for each future; a day at most."""
    hours = min(_HOURS_MAX, -(-arrivals_ms // HOUR_MS))
    rows = []
    for one in situations:
        facts, active = one.workload.facts, len(one.snapshot.jobs)
        submit_ms = np.array([job.submit_ms for job in facts[active:]], dtype=np.int64)
        gpus = np.array([job.gpus for job in facts[active:]], dtype=np.int64)
        run_ms = np.array(one.workload.duration_ms[active:], dtype=np.int64)
        rows.append(_hours_of(submit_ms, gpus * run_ms, now_ms, hours))
    return {
        "from_ms": now_ms,
        "hours": hours,
        "arrivals": [counts for counts, _ in rows],
        "gpu_ms": [work for _, work in rows],
    }
