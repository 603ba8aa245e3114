"""What the reference engine does for policies that decide a whole pass: starts, also beside another job.

A job on one node may be given CPU and memory of its own; it runs as fast as its curve says. Two jobs that
share GPUs run at the speeds of the pair; when one leaves, the other runs alone again. A job may be given its
GPUs for a limited time: if it has not finished by then it starts over, from nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trimtab.cluster import ClusterView, is_spread
from trimtab.curve import FULL_SPEED_PPM, Share
from trimtab.job import JobView
from trimtab.policies.policy import Decision, Start
from trimtab.profile import Profile
from trimtab.simulate.decisions import check_decisions, check_shares
from trimtab.simulate.partition import Partition

if TYPE_CHECKING:
    from trimtab.simulate.engine import Engine


def carry_out(engine: Engine, part: Partition, view: ClusterView, decisions: Sequence[Decision]) -> None:
    """Check decisions and do what they say: notes, resizes, preemptions and starts, leases."""
    may_share = engine.plan.gives_shares
    verdict = check_decisions(
        *(decisions, view.pending.find, view.running.find, part.free_map()),
        *(engine.policy.name, engine.now_ms, may_share),
    )
    if may_share:
        check_shares(verdict, part.running.values(), part.vc, engine.policy.name)
    starts = [one for one in decisions if isinstance(one, Start)]
    guests = {one.job_id for one in starts if one.beside is not None}
    for note in verdict.notes:
        engine._jobs[note.job_id].note = note.note
        engine._jobs[note.job_id].promise_ms = note.promise_ms
    if verdict.memory is not None:
        part.memory = verdict.memory
    for resize in verdict.resizes:
        _resize(engine, part, engine._jobs[resize.job_id], resize.share)
    for job_id in verdict.lost:
        give_back(engine, part, engine._jobs[job_id])
    for job_id, nodes in verdict.places.items():
        if job_id not in guests:
            level = engine._jobs[job_id].level if part.preemptive else 0
            part.index.add(level, part.levels, nodes, -1)
    for one in starts:
        engine._jobs[one.job_id].partner = one.beside
    engine._commit(part, [engine._jobs[job_id] for job_id in verdict.lost], verdict.places, verdict.shares)
    for one in starts:
        job = engine._jobs[one.job_id]
        if one.beside is not None:
            _pair(engine, job, engine._jobs[one.beside])
        if one.until_ms is not None:
            job.until_ms = one.until_ms
            engine._schedule(job)
    for lease in verdict.leases:
        engine._jobs[lease.job_id].grant(lease.start_ms, lease.end_ms, lease.renewal_ms)


def _resize(engine: Engine, part: Partition, job: JobView, share: Share | None) -> None:
    """Give a running job other CPU and memory; it pays for the change by standing still for a while."""
    job.settle(engine.now_ms)
    job.share = share
    job.resized_ms = engine.now_ms
    job.resizes += 1
    job.overhead_ms += engine.environment.adjust_ms
    job.speed_ppm = speed_ppm(engine, part, job)
    engine._note("resize", job.id, engine._global(part, job.nodes), part.vc.held(job).text())
    engine._schedule(job)


def speed_ppm(engine: Engine, part: Partition, job: JobView) -> int:
    """Return a running job's speed when it has its GPUs for itself."""
    if engine._relaxed and is_spread(job.nodes, part.vc.gpus_per_node):
        return job.facts.spread_ppm
    curve = engine.workload.curve(job.id)
    if job.share is None or curve is None:
        return FULL_SPEED_PPM
    return part.vc.speed_ppm(curve, job.gpus, job.share)


def _pair(engine: Engine, job: JobView, other: JobView) -> None:
    """Let a job that has just started and its partner run at the speeds of a pair."""
    other.settle(engine.now_ms)
    other.partner = job.id
    speeds = engine.environment.speeds
    if speeds is not None:
        profiles = [one.facts.profile or Profile() for one in (job, other)]
        job.speed_ppm, other.speed_ppm = speeds.speeds_ppm(*profiles)
    engine._schedule(job)
    engine._schedule(other)


def how(engine: Engine, job: JobView) -> str:
    """Return how a job starts, as its start is told: with whom it shares its GPUs, what else it was given."""
    if job.partner is not None:
        return f"beside {engine.workload.facts[job.partner].label}"
    return "" if job.share is None else job.share.text()


def give_back(engine: Engine, part: Partition, job: JobView) -> None:
    """Give a job's GPUs back to the index; shared ones stay with its partner, which runs alone again."""
    if job.partner is None:
        part.index.add(part.top(job), part.levels, job.nodes, 1)
        return
    other = engine._jobs[job.partner]
    job.partner = other.partner = None
    other.settle(engine.now_ms)
    other.speed_ppm = FULL_SPEED_PPM
    engine._schedule(other)


def expire(engine: Engine, job: JobView) -> None:
    """Take a job off its GPUs at the end of its time there; what it did is lost."""
    part = engine._parts[job.home]
    give_back(engine, part, job)
    engine._stop(part, job)
    job.done, job.overhead_ms = 0, engine.environment.cold_start_ms
    engine._enqueue(job)
