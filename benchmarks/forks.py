"""A live scheduler with a thousand active jobs, and settings to try from there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import cycle

from cases import GPUS_PER_NODE, Inputs, environment_of, submitted_at
from trimtab.cluster import Cluster
from trimtab.job import JobState
from trimtab.knobs import Knobs
from trimtab.policies.catalog import find_policy
from trimtab.simulate.engines import make_engine
from trimtab.simulate.fast import FastEngine, FastSituation
from trimtab.simulate.whatif import Situation
from trimtab.simulate.workload import Workload
from trimtab.studies.futures import oracle_future

NODES = 100
HOUR_MS = 3_600_000
# A job of the two weeks every minute, three times as long, every third one four times as wide (8 GPUs at
# most): more than the nodes can do, so that a thousand jobs are there when this many have come.
SUBMITTED, GAP_MS, LONGER = 8600, 60_000, 3
WIDER = (1, 1, 4)


@lru_cache(maxsize=1)
def situation(inputs: Inputs) -> Situation:
    """Return the state after the backlog has grown, with the next hour's 60 arrivals, scored after it."""
    workload, now_ms = _backlog(inputs.workload("window"))
    policy = find_policy("tiresias")
    running = _setting(3600)
    engine = make_engine(
        "auto", workload, Cluster.pool(NODES, GPUS_PER_NODE), policy, running, environment_of(workload)
    )
    engine.run(now_ms)
    return oracle_future(engine, now_ms, workload, "tiresias", environment_of(workload), HOUR_MS, HOUR_MS)


def _backlog(window: Workload) -> tuple[Workload, int]:
    """Return the longer and wider jobs, and the instant at which the state is looked at."""
    before = min(SUBMITTED, len(window) * 3 // 4)
    facts = [
        submitted_at(job, place * GAP_MS, min(GPUS_PER_NODE, job.gpus * times))
        for place, (job, times) in enumerate(zip(window.facts, cycle(WIDER)))
    ]
    return Workload(facts, [LONGER * span_ms for span_ms in window.duration_ms]), before * GAP_MS


def _setting(first_gpu_s: int) -> Knobs:
    space = find_policy("tiresias").space
    return space.project({"queue_thresholds": (first_gpu_s, 10 * first_gpu_s)})


def candidates(number: int) -> list[Knobs]:
    """Return settings of three queues with first thresholds from a quarter of an hour to a day."""
    return [_setting(900 + 85_500 * place // number) for place in range(number)]


def counts(one: Situation) -> tuple[int, int]:
    """Return how many jobs run and how many wait in a situation."""
    running = sum(job.state is JobState.RUNNING for job in one.snapshot.jobs)
    return running, len(one.snapshot.jobs) - running


def compiled(one: Situation) -> FastSituation:
    """Return the situation's state in the core."""
    return FastSituation(
        one.snapshot,
        one.workload,
        one.cluster,
        find_policy(one.policy),
        one.environment,
        one.until_ms,
        one.preemptions_max,
    )


def mean_events(one: Situation, tried: Sequence[Knobs]) -> float:
    """Return how many events the hour has, as a mean over settings."""
    return sum(_events(one, knobs) for knobs in tried) / len(tried)


def _events(one: Situation, knobs: Knobs) -> int:
    engine = FastEngine.resume(
        one.snapshot, one.workload, one.cluster, find_policy(one.policy), one.environment
    )
    engine.update(one.snapshot.now_ms, knobs)
    engine.run(one.until_ms)
    return engine.events
