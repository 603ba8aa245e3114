"""The futures that a line of an evaluation plans with: what it may know at an instant, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trimtab.job import FULL_SPEED_PPM, JobFacts, JobView
from trimtab.simulate.engines import Simulation
from trimtab.simulate.state import Environment, Snapshot
from trimtab.simulate.whatif import Situation
from trimtab.simulate.workload import OracleEstimator, Workload

_SHORTEST_GUESS_MS = 60_000


def oracle_future(
    engine: Simulation,
    now_ms: int,
    truth: Workload,
    policy: str,
    environment: Environment,
    arrivals_ms: int,
    run_on_ms: int,
) -> Situation:
    """Return the true future: real run times, and the real arrivals of the next `arrivals_ms`."""
    snapshot = _snapshot(engine, now_ms)
    last = snapshot.arrived
    while last < len(truth) and truth.facts[last].submit_ms < snapshot.now_ms + arrivals_ms:
        last += 1
    coming = range(snapshot.arrived, last)
    return _situation(
        engine,
        snapshot,
        [truth.duration_ms[job.id] for job in snapshot.jobs],
        [truth.facts[job] for job in coming],
        [truth.duration_ms[job] for job in coming],
        policy,
        environment,
        run_on_ms,
    )


def last_hour_again(
    engine: Simulation,
    now_ms: int,
    truth: Workload,
    policy: str,
    environment: Environment,
    interval_ms: int,
) -> Situation:
    """Return the SelfTune line's future: the last interval's submissions once more, scored over one interval.

    Only what has happened is used. A job that has completed is known to its run time; one that has not is
    taken to run on for as long as it has run so far, at least a minute.
    """
    snapshot = _snapshot(engine, now_ms)
    active = {job.id: job for job in snapshot.jobs}
    first = snapshot.arrived
    while first > 0 and truth.facts[first - 1].submit_ms >= snapshot.now_ms - interval_ms:
        first -= 1
    rejected = engine.outcomes.rejected[first : snapshot.arrived].tolist()
    recent = [job for job, out in enumerate(rejected, first) if not out]
    return _situation(
        engine,
        snapshot,
        [_guess_ms(job) for job in snapshot.jobs],
        [truth.facts[job]._replace(submit_ms=truth.facts[job].submit_ms + interval_ms) for job in recent],
        [_guess_ms(active[job]) if job in active else truth.duration_ms[job] for job in recent],
        policy,
        environment,
        interval_ms,
    )


def _snapshot(engine: Simulation, now_ms: int) -> Snapshot:
    """Return the state at an instant up to which the engine has run.

    An engine's clock begins at its first arrival; before that, the state is the same and the time is told.
    """
    snapshot = engine.snapshot()
    return replace(snapshot, now_ms=now_ms) if now_ms < snapshot.now_ms else snapshot


def _guess_ms(job: JobView) -> int:
    """Return a run time for a job that has not completed: what is done, and as much again as it ran."""
    return -(-job.done // FULL_SPEED_PPM) + max(job.held_ms, _SHORTEST_GUESS_MS)


def _situation(
    engine: Simulation,
    snapshot: Snapshot,
    active_ms: Sequence[int],
    coming: Sequence[JobFacts],
    coming_ms: Sequence[int],
    policy: str,
    environment: Environment,
    run_on_ms: int,
) -> Situation:
    """Put active jobs and arrivals into one workload, ids anew but in the same order."""
    jobs = []
    for place, job in enumerate(snapshot.jobs):
        twin = job.copy()
        twin.id = place
        if isinstance(environment.estimator, OracleEstimator):
            twin.estimate_ms = active_ms[place]
        jobs.append(twin)
    workload = Workload([*(job.facts for job in jobs), *coming], [*active_ms, *coming_ms])
    places = {job.id: place for place, job in enumerate(snapshot.jobs)}
    crossing = tuple(places[job_id] for job_id in snapshot.crossing)
    moved = replace(snapshot, jobs=tuple(jobs), arrived=len(jobs), crossing=crossing)
    if isinstance(environment.estimator, OracleEstimator):
        # This future's own run times, by its own ids, as for the active jobs: the truth must not come along.
        environment = replace(environment, estimator=OracleEstimator(workload.duration_ms))
        moved = replace(moved, estimator=None)
    return Situation(moved, workload, engine.cluster, policy, environment, snapshot.now_ms + run_on_ms)
