"""A Slurm cluster as a policy sees it: the same view as in simulation, made of what Slurm shows.

Jobs of others run, may not be preempted, and are taken to end at their limit. A job that was released counts
as running from now on; one that may not be requeued is shielded, as one is that has just started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trimtab.cluster import ClusterView, FreeMap, Placement
from trimtab.control.adapter import State
from trimtab.control.observed import Seen, observe
from trimtab.control.slurm_jobs import Row, facts_of
from trimtab.control.slurm_queue import Mine, Other, Queue
from trimtab.curve import FULL_SPEED_PPM, Share
from trimtab.job import JobFacts, JobList, JobState, JobView, Service
from trimtab.knobs import Knobs
from trimtab.policies.catalog import find_policy
from trimtab.policies.policy import Plan, QueuePolicy, plan_of
from trimtab.simulate.curves import CurveTable

# What a job without an estimate and without a limit is taken to run, from its start.
UNLIMITED_MS = 30 * 86_400_000


@dataclass(frozen=True, slots=True)
class Taking:
    """What jobs are taken for.

    Attributes:
        curves: Speed by CPU and memory of the models that tickets name.
        progress_ppm: Job -> how much of its work is done, where the job itself says so.
    """

    policy: str
    knobs: Knobs
    placement: Placement = "consolidated"
    curves: CurveTable = field(default_factory=lambda: CurveTable("none"))
    progress_ppm: Mapping[str, int] = field(default_factory=dict)

    @property
    def plan(self) -> Plan:
        """What the policy's knobs amount to."""
        policy = find_policy(self.policy)
        return policy.plan(self.knobs) if isinstance(policy, QueuePolicy) else plan_of(policy, self.knobs)


@dataclass(frozen=True, slots=True)
class Scene:
    """One virtual cluster at one instant.

    Attributes:
        free: The GPUs that are free; the view's own map is the policy's to try things on.
        names: Its nodes, in the order of the view's. mine: our jobs by their id in the view.
        lifted: Jobs that have waited too long, and go to the first queue now.
    """

    view: ClusterView
    free: tuple[int, ...]
    names: tuple[str, ...]
    mine: Mapping[int, Mine]
    lifted: tuple[int, ...]


def scenes_of(
    queue: Queue,
    taking: Taking,
    memories: Mapping[str, tuple[int, ...]],
    reviews_ms: Mapping[str, int],
) -> list[Scene]:
    """Return what a policy may know of each virtual cluster.

    Args:
        memories: What it wrote down of each. reviews_ms: when it wants to be asked again: one that has come
            due since is made as of then.
    """
    state, known, lifted = _state(queue, taking)
    cluster = queue.layout.cluster
    scenes = []
    for home, vc in enumerate(cluster.vcs):
        here = [job for job in state.snapshot.jobs if job.home == home]
        due_ms = reviews_ms.get(vc.name)
        is_due = due_ms is not None and due_ms <= queue.now_ms
        view = ClusterView(
            now_ms=due_ms if is_due and due_ms is not None else queue.now_ms,
            vc=vc,
            pending=JobList(job for job in here if job.state is JobState.PENDING),
            running=JobList(job for job in here if job.state is JobState.RUNNING),
            free=_free(queue, home, taking.placement),
            review_ms=due_ms,
            memory=memories.get(vc.name, ()),
        )
        names = sorted((place, name) for name, (at, place) in queue.layout.places.items() if at == home)
        mine = {job.id: known[job.facts.label] for job in here if job.facts.label in known}
        scenes.append(
            Scene(
                view,
                tuple(view.free.free),
                tuple(name for _, name in names),
                mine,
                tuple(job_id for job_id in lifted if job_id in mine),
            )
        )
    return scenes


def state_of(queue: Queue, taking: Taking) -> State:
    """Return the jobs that wait and run as whoever tunes the dispatcher sees them."""
    return _state(queue, taking)[0]


def _state(queue: Queue, taking: Taking) -> tuple[State, dict[str, Mine], list[int]]:
    """Return the state, our jobs in it by their labels, and the ids of those that are lifted now."""
    cluster, plan = queue.layout.cluster, taking.plan
    known = {job.label: job for job in queue.mine if job.phase in ("held", "released", "running")}
    others = {job.row.label: job for job in queue.others if job.nodes}
    seen = [_seen(queue, taking, job) for job in known.values()]
    seen += [_seen_other(queue, job) for job in others.values()]
    state = observe(taking.policy, cluster, taking.knobs, queue.now_ms, seen)
    lifted = []
    for job in state.snapshot.jobs:
        label = job.facts.label
        if label in known:
            _settle(job, known[label], taking, plan, queue)
            if _is_starving(job, plan, queue.now_ms):
                job.level = job.graded_ms = 0
                lifted.append(job.id)
        else:
            job.share, job.shielded = _alone(others[label].holds, job), True
    return state, known, lifted


def too_wide(queue: Queue) -> list[Mine]:
    """Return our jobs that wait and can never run here: no virtual cluster of theirs has so many GPUs."""
    cluster, found = queue.layout.cluster, []
    for job in queue.mine:
        home = cluster.home(queue.layout.home_of(job.row))
        if job.phase == "held" and (home is None or job.row.gpus > cluster.vcs[home].gpus):
            found.append(job)
    return found


def began_ms(queue: Queue, job: Mine) -> int | None:
    """Return when the run began that a job is in, None for one that has none."""
    return None if job.phase != "running" or job.row.began_ms is None else min(job.row.began_ms, queue.now_ms)


def speed_ppm(queue: Queue, taking: Taking, job: Mine) -> int:
    """Return how fast a job is with the CPU and memory it has."""
    curve = taking.curves.curve(job.ticket.model, job.row.gpus)
    home = queue.layout.cluster.home(queue.layout.home_of(job.row))
    if curve is None or home is None or len(job.nodes) != 1 or not job.asks.cores:
        return FULL_SPEED_PPM
    return queue.layout.cluster.vcs[home].speed_ppm(curve, job.row.gpus, job.asks)


def ran_ms(queue: Queue, job: Mine) -> int:
    """Return how long the run has held its GPUs that a job is in, none for one that has none."""
    start_ms = began_ms(queue, job)
    return 0 if start_ms is None else max(0, min(job.row.used_ms, queue.now_ms - start_ms))


# ---- jobs --------------------------------------------------------------------------------------------


def _facts(queue: Queue, row: Row, submit_ms: int) -> JobFacts:
    return facts_of(row, queue.layout, min(submit_ms, queue.now_ms))


def _seen(queue: Queue, taking: Taking, job: Mine) -> Seen:
    start_ms, record = began_ms(queue, job), job.record
    before_ms, _ = record.before(start_ms)
    facts = _facts(queue, job.row, job.submit_ms)._replace(
        service=job.ticket.service, curve=taking.curves.curve(job.ticket.model, job.row.gpus)
    )
    started_ms = queue.now_ms if job.phase == "released" else start_ms
    return Seen(
        facts=facts,
        nodes=job.nodes,
        held_ms=before_ms + ran_ms(queue, job),
        preemptions=record.losses,
        first_start_ms=start_ms if record.first is None else record.first,
        started_ms=started_ms,
        stopped_ms=record.stopped,
        estimate_ms=job.ticket.estimate_ms or job.row.limit_ms or UNLIMITED_MS,
    )


def _seen_other(queue: Queue, job: Other) -> Seen:
    used_ms = job.row.used_ms
    return Seen(
        facts=_facts(queue, job.row, job.row.submit_ms)._replace(service=Service()),
        nodes=job.nodes,
        held_ms=used_ms,
        started_ms=job.row.began_ms,
        estimate_ms=job.row.limit_ms or used_ms + UNLIMITED_MS,
    )


def _settle(job: JobView, mine: Mine, taking: Taking, plan: Plan, queue: Queue) -> None:
    """Give a view of one of our jobs what its ticket, its record and the job itself tell."""
    record = mine.record
    start_ms = began_ms(queue, mine)
    job.graded_ms = max(0, job.held_ms - record.forgiven)
    job.level = plan.level(job)
    job.speed_ppm = speed_ppm(queue, taking, mine)
    _, before_ms = record.before(start_ms)
    job.done = before_ms * FULL_SPEED_PPM + ran_ms(queue, mine) * job.speed_ppm
    told_ppm = taking.progress_ppm.get(job.facts.label)
    if told_ppm is not None and job.estimate_ms is not None:
        job.done = told_ppm * job.estimate_ms
    job.note, job.promise_ms = record.note, record.promise
    if job.state is JobState.RUNNING:
        job.share = _alone(mine.asks, job)
        job.shielded |= mine.phase == "released" or not mine.ticket.preemptable
        if record.lease:
            job.grant(*record.lease)


def _alone(share: tuple[int, int], job: JobView) -> Share | None:
    """Return the CPU and memory of a job on one node; over several they are not told apart."""
    return Share(*share) if len(job.nodes) == 1 and share[0] > 0 else None


def _is_starving(job: JobView, plan: Plan, now_ms: int) -> bool:
    """Whether a job that has run and sunk has waited so long that it is lifted to the first queue."""
    if plan.starve_ms is None or job.level == 0 or job.graded_ms == 0 or job.state is not JobState.PENDING:
        return False
    limit_ms = plan.starve_ms(job)
    return limit_ms is not None and job.stopped_ms + limit_ms <= now_ms


def _free(queue: Queue, home: int, placement: Placement) -> FreeMap:
    """Return the free GPUs of nodes that take jobs: held by nobody, and nobody was released to them."""
    vc = queue.layout.cluster.vcs[home]
    free = [0] * vc.nodes
    for name, (at, place) in queue.layout.places.items():
        if at == home and queue.machines[name].serves:
            free[place] = vc.gpus_per_node
    jobs: list[Mine | Other] = [*queue.mine, *queue.others]
    held = [part for job in jobs if _of(queue, job) == home for part in job.nodes]
    for place, gpus in held:
        free[place] = max(0, free[place] - gpus)
    return FreeMap(free, vc.gpus_per_node, placement)


def _of(queue: Queue, job: Mine | Other) -> int | None:
    return queue.layout.cluster.home(queue.layout.home_of(job.row))
