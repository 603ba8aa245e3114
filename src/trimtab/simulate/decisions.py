"""A user's policy answers for itself: its decisions are checked before anything is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import index

from trimtab.cluster import ClusterView, FreeMap
from trimtab.errors import ConfigError, TrimtabError
from trimtab.job import JobView, Nodes
from trimtab.policies.policy import Decision, Lease, Policy, Preempt, Start
from trimtab.timeline import seconds

Find = Callable[[int], JobView | None]

_LATEST_MS = 1 << 60


@contextmanager
def answerable(policy: Policy, now_ms: Callable[[], int]) -> Iterator[None]:
    """Report what a user's own policy raises as its refusal to go on; ours has bugs, not excuses."""
    try:
        yield
    except TrimtabError:
        raise
    except Exception as error:
        if type(policy).__module__.startswith("trimtab."):
            raise
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(
            f"policy {policy.name} fails at {seconds(now_ms())} s ({said}); the run ends here."
        ) from error


def check_decisions(
    decisions: Iterable[Decision], pending: Find, running: Find, free: FreeMap, policy: str, now_ms: int
) -> tuple[list[int], dict[int, Nodes], list[Lease]]:
    """Check a policy's decisions: preemptions first, leases last.

    Args:
        pending, running: Find a job of this virtual cluster by id, None if it is not there.
        free: The GPUs that are free; changed on the way.
        now_ms: The present.

    Returns:
        The running jobs that lose their GPUs, the places of those that get some, in order, and the leases.

    Raises:
        ConfigError: If a decision is not possible; it names the job and the rule.
    """
    decisions = list(decisions)
    lost: list[int] = []
    places: dict[int, Nodes] = {}
    for decision in decisions:
        if isinstance(decision, Preempt):
            job = running(decision.job_id)
            if job is None or job.shielded or job.id in lost:
                waiting = job or pending(decision.job_id)
                raise _refusal(policy, decision, waiting, "it is not running, or may not be preempted now")
            lost.append(job.id)
            if job.partner is None or job.partner in lost:
                free.give(job.nodes)
        elif not isinstance(decision, Start | Lease):
            raise ConfigError(
                f"policy {policy} decides {decision!r}, which is neither Start nor Preempt nor Lease; "
                "the run ends here."
            )
    shared: set[int] = set()
    for decision in decisions:
        if isinstance(decision, Start):
            before = running(decision.job_id)
            job = before if before is not None and before.id in lost else pending(decision.job_id)
            if job is None or job.id in places:
                raise _refusal(policy, decision, job or before, "it is not pending here")
            if decision.until_ms is not None and not _is_later(decision.until_ms, now_ms):
                raise _refusal(policy, decision, job, f"until {decision.until_ms!r} ms, which is not to come")
            if decision.beside is not None:
                places[job.id] = _beside(decision, job, running, lost, places, shared, policy)
                continue
            nodes = free.place(job.gpus) if decision.nodes is None else _plain(decision.nodes)
            if nodes is None or not free.may_take(nodes, job.gpus):
                raise _refusal(policy, decision, job, "its GPUs are not free")
            free.take(nodes)
            places[job.id] = nodes
    leases = [decision for decision in decisions if isinstance(decision, Lease)]
    for lease in leases:
        job = running(lease.job_id) or pending(lease.job_id)
        if job is None or not (job.id in places or (job.nodes and job.id not in lost)):
            raise _refusal(policy, lease, job, "it does not run")
        if not _is_span(lease):
            raise _refusal(policy, lease, job, "from, until and renewal must be whole ms, in order, above 0")
    return lost, places, leases


def _is_span(lease: Lease) -> bool:
    times = lease.start_ms, lease.end_ms, lease.renewal_ms
    if any(type(time_ms) is not int or abs(time_ms) > _LATEST_MS for time_ms in times):
        return False
    return lease.start_ms <= lease.end_ms and lease.renewal_ms > 0


def lease_due_ms(view: ClusterView, from_ms: int) -> int | None:
    """Return when the first lease ends, not before an instant, if a job waits; else nobody need be asked."""
    if not len(view.pending):
        return None
    ends = (job.lease_end_ms for job in view.running)
    return min((end_ms for end_ms in ends if end_ms is not None and end_ms >= from_ms), default=None)


def _beside(
    decision: Start,
    job: JobView,
    running: Find,
    lost: list[int],
    places: dict[int, Nodes],
    shared: set[int],
    policy: str,
) -> Nodes:
    """Return the GPUs of the job beside which another one starts: one that runs, or starts just before."""
    other_id = decision.beside
    assert other_id is not None
    other = running(other_id)
    nodes = places.get(other_id)
    if nodes is None and other is not None and other.partner is None and other_id not in lost:
        nodes = other.nodes
    if nodes is None or other_id in shared or len(nodes) != 1 or nodes[0][1] != job.gpus:
        raise _refusal(policy, decision, job, f"job id {other_id!r} has no such GPUs for itself on one node")
    shared.update((other_id, job.id))
    return nodes


def _is_later(time_ms: object, now_ms: int) -> bool:
    return type(time_ms) is int and now_ms < time_ms <= _LATEST_MS


def _plain(nodes: Nodes) -> Nodes:
    """Return nodes as tuples of Python's own whole numbers, whatever they were written with."""
    return tuple((index(node), index(gpus)) for node, gpus in nodes)


def check_review(review_ms: int | None, now_ms: int, policy: str) -> int | None:
    """Return the instant of a policy's next review if it is one.

    Raises:
        ConfigError: If it is no whole number or not in the future.
    """
    if review_ms is not None and not _is_later(review_ms, now_ms):
        raise ConfigError(
            f"policy {policy}: next review at {review_ms!r} ms; it must be a whole number "
            f"above {now_ms} ms, which is now; the run ends here."
        )
    return review_ms


def _refusal(policy: str, decision: Decision, job: JobView | None, rule: str) -> ConfigError:
    verb = type(decision).__name__.lower()
    who = f"id {decision.job_id!r}" if job is None else job.facts.label
    return ConfigError(f"policy {policy} asks to {verb} job {who}: {rule}; the run ends here.")
