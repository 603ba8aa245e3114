"""What goes over the wire, from ours to messages of `scheduler.proto` and back; needs `trimtab[grpc]`.

What comes in is believed in nothing: `Unreadable` says what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from trimtab.cluster import Cluster
from trimtab.control import scheduler_pb2 as pb
from trimtab.control.adapter import (
    Change,
    EventKind,
    Identity,
    InForce,
    JobEvent,
    Receipt,
    Refused,
    State,
    refuse_illegal,
)
from trimtab.control.observed import Seen, observe
from trimtab.curve import Curve, Share
from trimtab.errors import ConfigError, TrimtabError
from trimtab.job import BEST_EFFORT, JobFacts, JobState, JobView, Nodes, Service, ServiceClass
from trimtab.knobs import Knobs, Space, write
from trimtab.profile import Profile
from trimtab.simulate.state import Snapshot

_KINDS: tuple[EventKind, ...] = get_args(EventKind)

# Attributes of a `JobView` that have a field of the same name: of the job, and of what the engine adds.
_SEEN = ("held_ms", "preemptions", "first_start_ms", "started_ms", "stopped_ms", "estimate_ms")
_ENGINE_JOB = (
    *("id", "home", "level", "place", "since_ms", "graded_ms", "done", "speed_ppm", "overhead_ms", "paid_ms"),
    *("first_ms", "promotions", "shielded", "lease_start_ms", "lease_end_ms", "renewal_ms", "submit_job_ms"),
    *("partner", "until_ms", "resized_ms", "resizes", "promise_ms", "stamp"),
)
_FACTS = ("vc", "user", "name", "skew_ppm", "spread_ppm", "limit_ms", "account", "qos")
_KEY = re.compile(r"[!-~]{1,200}")
_PROFILE = ("model", "gpu_util", "gmem_util", "gmem_mib")


class Unreadable(TrimtabError):
    """A message says something that cannot be."""


def _put(message: Any, source: object, names: Sequence[str]) -> None:
    """Copy attributes into fields of the same names; None stays unset."""
    for name in names:
        value = getattr(source, name)
        if value is not None:
            setattr(message, name, value)


def _got(message: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return the fields that are set, and those that always are."""
    optional = {field.name for field in message.DESCRIPTOR.fields if field.has_presence}
    return {name: getattr(message, name) for name in names if name not in optional or message.HasField(name)}


# ---- identity, settings, changes ---------------------------------------------------------------------


def pack_identity(identity: Identity, now_ms: int) -> pb.Identity:
    """Return the message of an identity."""
    names = ("name", "nodes", "gpus_per_node", "cores_per_node", "memory_mib_per_node")
    message = pb.Identity(
        name=identity.name,
        policy=identity.policy,
        writes=identity.writes,
        pooled=identity.cluster.pooled,
        now_ms=now_ms,
    )
    for vc in identity.cluster.vcs:
        _put(message.vcs.add(), vc, names)
    return message


def read_identity(message: pb.Identity) -> Identity:
    """Return an identity.

    Raises:
        Unreadable: If there can be no such cluster.
    """
    sizes = [
        (vc.name, vc.nodes, vc.gpus_per_node, vc.cores_per_node, vc.memory_mib_per_node) for vc in message.vcs
    ]
    try:
        if message.pooled and len(sizes) == 1:
            cluster = Cluster(Cluster.partitioned(sizes).vcs, pooled=True)
        else:
            cluster = Cluster.partitioned(sizes)
    except ConfigError as error:
        raise Unreadable(str(error)) from None
    return Identity(message.name, message.policy, cluster, message.writes)


def pack_knobs(knobs: Knobs) -> dict[str, str]:
    """Return each knob's value as `--knob` takes it."""
    return {name: write(value) for name, value in knobs.items()}


def read_knobs(texts: Mapping[str, str], space: Space) -> Knobs:
    """Return a setting.

    Raises:
        Unreadable: If it does not name every knob with a legal value.
    """
    try:
        named = [knob for knob in space.knobs if knob.name in texts]
        knobs = Knobs({knob.name: knob.parse(texts[knob.name]) for knob in named})
        refuse_illegal(space, Knobs({**dict.fromkeys(texts, ""), **knobs}))
    except (ConfigError, Refused) as error:
        raise Unreadable(str(error)) from None
    return knobs


def pack_in_force(in_force: InForce) -> pb.InForce:
    """Return the message of the setting in force."""
    return pb.InForce(knobs=pack_knobs(in_force.knobs), version=in_force.version, as_of_ms=in_force.as_of_ms)


def read_in_force(message: pb.InForce, space: Space) -> InForce:
    """Return the setting in force.

    Raises:
        Unreadable: If it is no setting of this space.
    """
    return InForce(read_knobs(message.knobs, space), message.version, message.as_of_ms)


def pack_change(change: Change) -> pb.ApplyKnobsRequest:
    """Return the message of a change."""
    return pb.ApplyKnobsRequest(
        key=change.key, expected_version=change.expected, knobs=pack_knobs(change.knobs)
    )


def read_change(message: pb.ApplyKnobsRequest, space: Space) -> Change:
    """Return a change.

    Raises:
        Unreadable: If its key is none, or it is no setting of this space.
    """
    if not _KEY.fullmatch(message.key):
        raise Unreadable("the key of a change must be 1 .. 200 characters, none blank or beyond ASCII.")
    return Change(message.key, read_knobs(message.knobs, space), message.expected_version)


def pack_receipt(receipt: Receipt) -> pb.Receipt:
    """Return the message of a receipt."""
    return pb.Receipt(key=receipt.key, version=receipt.version)


def read_receipt(message: pb.Receipt, change: Change) -> Receipt:
    """Return the receipt of a change.

    Raises:
        Unreadable: If it is of another one.
    """
    if message.key != change.key:
        raise Unreadable(f"the receipt is of change {message.key!r:.80}, not of {change.key}.")
    return Receipt(message.key, message.version)


# ---- jobs --------------------------------------------------------------------------------------------


def pack_facts(facts: JobFacts) -> pb.JobFacts:
    """Return the message of what was submitted."""
    message = pb.JobFacts(label=facts.label, submit_ms=facts.submit_ms, gpus=facts.gpus)
    _put(message, facts, _FACTS)
    if facts.profile is not None:
        message.profile.amp = facts.profile.amp
        _put(message.profile, facts.profile, _PROFILE)
    if facts.service != BEST_EFFORT:
        service = facts.service
        message.service.CopyFrom(
            pb.Service(kind=service.kind, deadlines_ms=service.deadlines_ms, values=service.values)
        )
    if facts.curve is not None:
        curve = facts.curve
        speeds = [speed for row in curve.speeds_ppm for speed in row]
        message.curve.CopyFrom(
            pb.Curve(
                cores=curve.cores,
                memory_mib=curve.memory_mib,
                speeds_ppm=speeds,
                footprint_mib=curve.footprint_mib,
            )
        )
    return message


def read_facts(message: pb.JobFacts) -> JobFacts:
    """Return what was submitted.

    Raises:
        Unreadable: If there can be no such job.
    """
    if not message.label:
        raise Unreadable("a job without a label.")
    if message.gpus < 1:
        raise Unreadable(f"job {message.label!r:.80} has {message.gpus} GPUs.")
    given: dict[str, Any] = _got(message, _FACTS)
    if given.get("limit_ms", 1) < 1:
        raise Unreadable(f"job {message.label!r:.80} has a limit of {given['limit_ms']} ms.")
    if message.HasField("profile"):
        given["profile"] = Profile(**_got(message.profile, _PROFILE), amp=message.profile.amp)
    if message.HasField("service"):
        given["service"] = _service(message.label, message.service)
    if message.HasField("curve"):
        given["curve"] = _curve(message.label, message.curve)
    return JobFacts(message.label, message.submit_ms, message.gpus, **given)


def _service(label: str, message: pb.Service) -> Service:
    deadlines, values = tuple(message.deadlines_ms), tuple(message.values)
    kind, is_matched = message.kind, len(values) == len(deadlines)
    if kind not in ("strict", "soft", "best") or not is_matched or (kind == "best") == bool(deadlines):
        raise Unreadable(f"job {label!r:.80}: its deadlines cannot be read.")
    if list(deadlines) != sorted(deadlines):
        raise Unreadable(f"job {label!r:.80}: its deadlines are not in order.")
    return Service(cast(ServiceClass, kind), deadlines, values)


def _curve(label: str, message: pb.Curve) -> Curve:
    cores, sizes, speeds = tuple(message.cores), tuple(message.memory_mib), tuple(message.speeds_ppm)
    ascending = all(list(axis) == sorted(set(axis)) and axis and axis[0] > 0 for axis in (cores, sizes))
    if not ascending or len(speeds) != len(cores) * len(sizes) or min(speeds) < 0:
        raise Unreadable(f"job {label!r:.80}: its curve cannot be read.")
    rows = tuple(speeds[first : first + len(cores)] for first in range(0, len(speeds), len(cores)))
    return Curve(cores, sizes, rows, message.footprint_mib)


def _pack_nodes(message: Any, nodes: Nodes) -> None:
    for node, gpus in nodes:
        message.add(node=node, gpus=gpus)


def _read_nodes(message: pb.Job, cluster: Cluster) -> Nodes:
    """Return the GPUs a job holds; they must be there, and as many as it asked for."""
    nodes = tuple((one.node, one.gpus) for one in message.nodes)
    facts = message.facts
    home = cluster.home(facts.vc if facts.HasField("vc") else None)
    vc = None if home is None else cluster.vcs[home]
    if nodes and (
        vc is None
        or sum(gpus for _, gpus in nodes) != facts.gpus
        or len({node for node, _ in nodes}) < len(nodes)
        or not all(0 <= node < vc.nodes and 0 < gpus <= vc.gpus for node, gpus in nodes)
    ):
        raise Unreadable(f"job {facts.label!r:.80}: it cannot hold the GPUs it is said to hold.")
    return nodes


# ---- states ------------------------------------------------------------------------------------------


def pack_state(state: State) -> pb.State:
    """Return the message of a state, with all that the engine knows."""
    snapshot = state.snapshot
    message = pb.State(now_ms=snapshot.now_ms, knobs=pack_knobs(snapshot.knobs))
    for label, job in zip(state.labels, snapshot.jobs, strict=True):
        one = message.jobs.add()
        one.facts.CopyFrom(pack_facts(job.facts))
        one.facts.label = label
        _pack_nodes(one.nodes, job.nodes)
        _put(one, job, _SEEN)
        _put(one.engine, job, _ENGINE_JOB)
        one.engine.grades.extend(job.grades)
        one.engine.note.extend(job.note)
        if job.share is not None:
            one.engine.share_cores, one.engine.share_memory_mib = job.share
    engine = message.engine
    engine.arrived, engine.tick_anchor_ms = snapshot.arrived, snapshot.tick_anchor_ms
    engine.sampled, engine.sampled_ms = snapshot.sampled
    engine.places.extend(snapshot.places)
    engine.completed_gpu_ms.extend(snapshot.completed_gpu_ms)
    engine.crossing.extend(snapshot.crossing)
    columns = snapshot.dirty, snapshot.reviews_ms, snapshot.job_ms, snapshot.memories
    for dirty, review_ms, job_ms, memory in zip(*columns, strict=True):
        engine.vcs.add(dirty=dirty, review_ms=review_ms, job_ms=job_ms, memory=memory)
    return message


def read_state(message: pb.State, identity: Identity, space: Space) -> State:
    """Return a state; what only the engine knows is worked out where it is not told.

    Raises:
        Unreadable: If it does not fit the cluster, or itself.
    """
    knobs, cluster = read_knobs(message.knobs, space), identity.cluster
    if not message.HasField("engine"):
        seen = [_seen(job, cluster) for job in message.jobs]
        return observe(identity.policy, cluster, knobs, message.now_ms, seen)
    engine = message.engine
    if len(engine.vcs) != len(cluster.vcs) or len(engine.places) != 3:
        raise Unreadable(f"the state is of {len(engine.vcs)} virtual clusters, not {len(cluster.vcs)}.")
    jobs = tuple(_view(job, cluster) for job in message.jobs)
    ids = [job.id for job in jobs]
    if not set(engine.crossing) <= set(ids) or not 0 <= engine.sampled <= len(engine.completed_gpu_ms):
        raise Unreadable("the state speaks of jobs that it does not hold.")
    snapshot = Snapshot(
        now_ms=message.now_ms,
        knobs=knobs,
        jobs=jobs,
        arrived=engine.arrived,
        places=(engine.places[0], engine.places[1], engine.places[2]),
        tick_anchor_ms=engine.tick_anchor_ms,
        dirty=tuple(vc.dirty for vc in engine.vcs),
        reviews_ms=tuple(vc.review_ms if vc.HasField("review_ms") else None for vc in engine.vcs),
        completed_gpu_ms=tuple(engine.completed_gpu_ms),
        sampled=(engine.sampled, engine.sampled_ms),
        estimator=None,
        job_ms=tuple(vc.job_ms for vc in engine.vcs),
        memories=tuple(tuple(vc.memory) for vc in engine.vcs),
        crossing=tuple(engine.crossing),
    )
    return State(snapshot, tuple(job.facts.label for job in jobs))


def _seen(message: pb.Job, cluster: Cluster) -> Seen:
    return Seen(facts=read_facts(message.facts), nodes=_read_nodes(message, cluster), **_got(message, _SEEN))


def _view(message: pb.Job, cluster: Cluster) -> JobView:
    facts, engine = read_facts(message.facts), message.engine
    nodes = _read_nodes(message, cluster)
    if not 0 <= engine.home < len(cluster.vcs) or engine.level < 0 or engine.speed_ppm < 1:
        raise Unreadable(f"job {facts.label!r:.80}: it stands where there is no place.")
    job = JobView(engine.id, facts, engine.home, None)
    job.state = JobState.RUNNING if nodes else JobState.PENDING
    job.nodes = nodes
    for name, value in (_got(message, _SEEN) | _got(engine, _ENGINE_JOB)).items():
        setattr(job, name, value)
    job.grades, job.note = tuple(engine.grades), tuple(engine.note)
    if engine.HasField("share_cores"):
        job.share = Share(engine.share_cores, engine.share_memory_mib)
    return job


# ---- events ------------------------------------------------------------------------------------------


def pack_event(event: JobEvent) -> pb.JobEvent:
    """Return the message of an event."""
    message = pb.JobEvent(
        number=event.number,
        kind=pb.JobEvent.Kind.Value(event.kind.upper()),
        time_ms=event.time_ms,
        label=event.label,
        ran_ms=event.ran_ms,
    )
    if event.facts is not None:
        message.facts.CopyFrom(pack_facts(event.facts))
    return message


def read_event(message: pb.JobEvent) -> JobEvent:
    """Return an event.

    Raises:
        Unreadable: If it is of no kind, has no number or no job, or was not told what was submitted.
    """
    if not 1 <= message.kind <= len(_KINDS) or message.number < 1 or not message.label:
        raise Unreadable(f"event {message.number} of kind {message.kind} cannot be read.")
    kind = _KINDS[message.kind - 1]  # in the order of `JobEvent.Kind`
    facts = read_facts(message.facts) if message.HasField("facts") else None
    if (facts is not None) != (kind == "submit"):
        raise Unreadable(f"event {message.number}: what was submitted stands with `submit`, and only there.")
    ran_ms = message.ran_ms if message.HasField("ran_ms") else None
    return JobEvent(message.number, kind, message.time_ms, message.label, facts, ran_ms)
