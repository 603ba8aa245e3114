"""A user's policy answers for itself: its decisions are checked before anything is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import index

from trimtab.cluster import ClusterView, FreeMap, VirtualCluster
from trimtab.curve import NOTHING, Share
from trimtab.errors import ConfigError, TrimtabError
from trimtab.job import JobView, Nodes
from trimtab.policies.policy import Decision, Lease, Note, Policy, Preempt, Remember, Resize, Start
from trimtab.timeline import seconds

Find = Callable[[int], JobView | None]

_LATEST_MS = 1 << 60
_MOST_NOTED = 1 << 62


@dataclass(slots=True)
class Verdict:
    """What a policy decided, checked.

    Attributes:
        lost: Running jobs that lose their GPUs.
        places: The GPUs of those that get some, in order. shares: CPU and memory where they were told.
        memory: What is to be remembered of the virtual cluster, None for what is remembered already.
    """

    lost: list[int] = field(default_factory=list)
    places: dict[int, Nodes] = field(default_factory=dict)
    shares: dict[int, Share] = field(default_factory=dict)
    resizes: list[Resize] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    memory: tuple[int, ...] | None = None


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
    decisions: Iterable[Decision],
    pending: Find,
    running: Find,
    free: FreeMap,
    policy: str,
    now_ms: int,
    may_share: bool = False,
) -> Verdict:
    """Check a policy's decisions: preemptions first, notes last. Shares must still be held against the nodes.

    Args:
        pending, running: Find a job of this virtual cluster by id, None if it is not there.
        free: The GPUs that are free; changed on the way.
        now_ms: The present.
        may_share: Whether the policy's plan says that it gives CPU and memory.

    Raises:
        ConfigError: If a decision is not possible; it names the job and the rule.
    """
    decisions = list(decisions)
    verdict = Verdict()
    lost, places = verdict.lost, verdict.places
    for decision in decisions:
        if isinstance(decision, Preempt):
            job = running(decision.job_id)
            if job is None or job.shielded or job.id in lost:
                waiting = job or pending(decision.job_id)
                raise _refusal(policy, decision, waiting, "it is not running, or may not be preempted now")
            lost.append(job.id)
            if job.partner is None or job.partner in lost:
                free.give(job.nodes)
        elif not isinstance(decision, Start | Lease | Resize | Note | Remember):
            raise ConfigError(
                f"policy {policy} decides {decision!r}, which is none of Start, Preempt, Lease, Resize, Note "
                "and Remember; the run ends here."
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
            if decision.share is not None:
                verdict.shares[job.id] = _share(policy, decision, job, nodes, decision.share, may_share)
    for decision in decisions:
        if isinstance(decision, Lease):
            verdict.leases.append(_lease(policy, decision, pending, running, verdict))
        elif isinstance(decision, Resize):
            verdict.resizes.append(_resize(policy, decision, running, verdict, may_share))
        elif isinstance(decision, Note):
            verdict.notes.append(_note(policy, decision, pending, running))
        elif isinstance(decision, Remember):
            verdict.memory = _memory(policy, decision)
    return verdict


def _lease(policy: str, lease: Lease, pending: Find, running: Find, verdict: Verdict) -> Lease:
    job = running(lease.job_id) or pending(lease.job_id)
    if job is None or not (job.id in verdict.places or (job.nodes and job.id not in verdict.lost)):
        raise _refusal(policy, lease, job, "it does not run")
    if not _is_span(lease):
        raise _refusal(policy, lease, job, "from, until and renewal must be whole ms, in order, above 0")
    return lease


def _resize(policy: str, resize: Resize, running: Find, verdict: Verdict, may_share: bool) -> Resize:
    job = running(resize.job_id)
    if job is None or job.id in verdict.lost or any(one.job_id == job.id for one in verdict.resizes):
        raise _refusal(policy, resize, job, "it does not run, or is resized twice")
    if resize.share is None:
        return resize
    return Resize(job.id, _share(policy, resize, job, job.nodes, resize.share, may_share))


def _share(
    policy: str, decision: Start | Resize, job: JobView, nodes: Nodes, share: Share, may_share: bool
) -> Share:
    """Return a job's CPU and memory as plain whole numbers, if it may have them at all."""
    if not may_share:
        raise _refusal(policy, decision, job, "its plan does not say `gives_shares`")
    cores, memory_mib = index(share[0]), index(share[1])
    least_mib = job.facts.footprint_mib
    if len(nodes) != 1 or job.partner is not None:
        raise _refusal(policy, decision, job, "only a job for itself on one node is given CPU and memory")
    if cores < 1 or memory_mib < least_mib:
        rule = f"{Share(cores, memory_mib).text()} are below 1 core and {least_mib} MiB"
        raise _refusal(policy, decision, job, rule)
    return Share(cores, memory_mib)


def _note(policy: str, note: Note, pending: Find, running: Find) -> Note:
    job = running(note.job_id) or pending(note.job_id)
    values = (*note.note, 0 if note.promise_ms is None else note.promise_ms)
    if job is None:
        raise _refusal(policy, note, job, "it is neither pending nor running here")
    if not all(map(_is_noted, values)):
        raise _refusal(policy, note, job, f"{note.note!r} and its promise must be whole numbers of 63 bits")
    return note


def _memory(policy: str, decision: Remember) -> tuple[int, ...]:
    odd = [value for value in decision.memory if not _is_noted(value)]
    if odd:
        raise ConfigError(
            f"policy {policy} asks to remember {odd[0]!r:.80}, which is no whole number of 63 bits; "
            "the run ends here."
        )
    return decision.memory


def _is_noted(value: object) -> bool:
    return type(value) is int and abs(value) <= _MOST_NOTED


def check_shares(verdict: Verdict, running: Iterable[JobView], vc: VirtualCluster, policy: str) -> None:
    """Refuse decisions after which a node would have to give more CPU or memory than it has.

    Raises:
        ConfigError: It names the node, what is asked of it and what it has.
    """
    resized = {one.job_id: one.share for one in verdict.resizes}
    asked: dict[int, Share] = {}
    held = [(job.nodes, resized.get(job.id, job.share)) for job in running if job.id not in verdict.lost] + [
        (nodes, verdict.shares.get(job_id)) for job_id, nodes in verdict.places.items()
    ]
    for nodes, share in held:
        for node, gpus in nodes:
            asked[node] = asked.get(node, NOTHING).plus(share or vc.proportional(gpus))
    for node, sum_ in asked.items():
        if not sum_.fits(vc.node_share):
            raise ConfigError(
                f"policy {policy} asks node {vc.first_node + node} for {sum_.text()}, and it has "
                f"{vc.node_share.text()}; the run ends here."
            )


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


def _refusal(
    policy: str, decision: Start | Preempt | Lease | Resize | Note, job: JobView | None, rule: str
) -> ConfigError:
    verb = type(decision).__name__.lower()
    who = f"id {decision.job_id!r}" if job is None else job.facts.label
    return ConfigError(f"policy {policy} asks to {verb} job {who}: {rule}; the run ends here.")
