"""The futures of an evaluation's lines that need no forecast: the truth, and the last hour again."""

from __future__ import annotations

from trimtab.curve import FULL_SPEED_PPM
from trimtab.job import JobView
from trimtab.search.futures import Future, situation_of, snapshot_at
from trimtab.simulate.engines import Simulation
from trimtab.simulate.state import Environment, Snapshot
from trimtab.simulate.whatif import Situation
from trimtab.simulate.workload import Workload

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
    """Return a situation with the true future: real run times, and the arrivals of the next `arrivals_ms`."""
    snapshot = snapshot_at(engine, now_ms)
    future = true_future(snapshot, truth, arrivals_ms)
    return situation_of(snapshot, future, engine.cluster, policy, environment, run_on_ms)


def true_future(snapshot: Snapshot, truth: Workload, arrivals_ms: int) -> Future:
    """Return what will happen: real run times, and the real arrivals of the next `arrivals_ms`."""
    last = snapshot.arrived
    while last < len(truth) and truth.facts[last].submit_ms < snapshot.now_ms + arrivals_ms:
        last += 1
    coming = range(snapshot.arrived, last)
    return Future(
        [truth.duration_ms[job.id] for job in snapshot.jobs],
        [truth.facts[job] for job in coming],
        [truth.duration_ms[job] for job in coming],
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
    snapshot = snapshot_at(engine, now_ms)
    active = {job.id: job for job in snapshot.jobs}
    first = snapshot.arrived
    while first > 0 and truth.facts[first - 1].submit_ms >= snapshot.now_ms - interval_ms:
        first -= 1
    rejected = engine.outcomes.rejected[first : snapshot.arrived].tolist()
    recent = [job for job, out in enumerate(rejected, first) if not out]
    future = Future(
        [_guess_ms(job) for job in snapshot.jobs],
        [truth.facts[job].submitted(truth.facts[job].submit_ms + interval_ms) for job in recent],
        [_guess_ms(active[job]) if job in active else truth.duration_ms[job] for job in recent],
    )
    return situation_of(snapshot, future, engine.cluster, policy, environment, interval_ms)


def _guess_ms(job: JobView) -> int:
    """Return a run time for a job that has not completed: what is done, and as much again as it ran."""
    return -(-job.done // FULL_SPEED_PPM) + max(job.held_ms, _SHORTEST_GUESS_MS)
