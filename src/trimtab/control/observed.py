"""A state from what any scheduler knows of its jobs: who runs where, since when, and who waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.cluster import Cluster
from trimtab.control.adapter import State
from trimtab.curve import FULL_SPEED_PPM
from trimtab.job import JobFacts, JobState, JobView, Nodes
from trimtab.knobs import Knobs
from trimtab.policies.catalog import find_policy
from trimtab.policies.policy import Plan, QueuePolicy
from trimtab.simulate.partition import FIRST_RUNNING_PLACE
from trimtab.simulate.state import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A job that waits or runs, as its scheduler shows it; times in ms on the scheduler's clock.

    Attributes:
        nodes: The GPUs it holds, none while it waits; node 0 is the first of its virtual cluster.
        held_ms: How long it has held GPUs so far. preemptions: how often it has lost them.
        first_start_ms, started_ms, stopped_ms: First start of all, last start, and when it stopped last.
        estimate_ms: What the scheduler takes for its run time.
    """

    facts: JobFacts
    nodes: Nodes = ()
    held_ms: int = 0
    preemptions: int = 0
    first_start_ms: int | None = None
    started_ms: int | None = None
    stopped_ms: int | None = None
    estimate_ms: int | None = None


def observe(policy: str, cluster: Cluster, knobs: Knobs, now_ms: int, jobs: Sequence[Seen]) -> State:
    """Return the state of a scheduler that shows these jobs, in whatever order.

    What is not shown is taken to be simple: a job has worked at full speed for as long as it has held its
    GPUs, up to its limit, its level is what it has attained, and those that wait stand in order of
    submission. Jobs of no virtual cluster of this one, or wider than theirs, can never run and are left out.
    """
    found = find_policy(policy)
    plan = found.plan(knobs) if isinstance(found, QueuePolicy) else None
    known = []
    for one in sorted(jobs, key=lambda one: one.facts.submit_ms):
        home = cluster.home(one.facts.vc)
        if home is not None and one.facts.gpus <= cluster.vcs[home].gpus:
            known.append((one, home))
    views = [_view(number, one, home, plan, now_ms) for number, (one, home) in enumerate(known)]
    pending = [job for job in views if job.state is JobState.PENDING]
    running = [job for job in views if job.state is JobState.RUNNING]
    running.sort(key=lambda job: (job.started_ms, job.id))
    for place, job in enumerate(running, FIRST_RUNNING_PLACE + 1):
        job.place = place
    for place, job in enumerate(pending, 1):
        job.place = place
    count = len(cluster.vcs)
    snapshot = Snapshot(
        now_ms=now_ms,
        knobs=knobs,
        jobs=tuple(views),
        arrived=len(views),
        places=(FIRST_RUNNING_PLACE + len(running), len(pending), -1),
        tick_anchor_ms=0,
        dirty=(True,) * count,
        reviews_ms=(None,) * count,
        completed_gpu_ms=(),
        sampled=(0, now_ms),
        estimator=None,
        job_ms=(0,) * count,
        memories=((),) * count,
    )
    return State(snapshot, tuple(job.facts.label for job in views))


def _view(number: int, seen: Seen, home: int, plan: Plan | None, now_ms: int) -> JobView:
    job = JobView(number, seen.facts, home, seen.estimate_ms)
    job.since_ms = now_ms
    job.held_ms = job.graded_ms = seen.held_ms
    limit_ms = seen.facts.limit_ms
    job.done = FULL_SPEED_PPM * (seen.held_ms if limit_ms is None else min(seen.held_ms, limit_ms))
    job.preemptions = seen.preemptions
    job.first_start_ms = job.first_ms = seen.first_start_ms
    job.stopped_ms = seen.facts.submit_ms if seen.stopped_ms is None else seen.stopped_ms
    if seen.nodes:
        job.state, job.nodes = JobState.RUNNING, seen.nodes
        job.started_ms = now_ms - seen.held_ms if seen.started_ms is None else seen.started_ms
        if seen.first_start_ms is None:
            job.first_start_ms = job.first_ms = job.started_ms
    if plan is not None:
        job.grades = plan.grades
        job.level = plan.level(job)
        job.shielded = job.started_ms is not None and job.started_ms + plan.min_run_ms > now_ms
    return job
