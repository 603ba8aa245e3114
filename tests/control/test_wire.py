"""What goes over the wire comes out as it went in; what cannot be is refused; messages are the .proto's."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

import scenario
import scheduler_process
from trimtab.cluster import Cluster
from trimtab.control import scheduler_pb2 as pb
from trimtab.control import wire
from trimtab.control.adapter import Change, Identity, JobEvent, State
from trimtab.control.observed import Seen, observe
from trimtab.curve import Curve
from trimtab.job import JobFacts, JobState, JobView, Service
from trimtab.knobs import Knobs
from trimtab.policies.catalog import POLICIES, find_policy
from trimtab.profile import Profile
from trimtab.simulate.engine import Engine
from trimtab.simulate.state import Environment, Snapshot
from trimtab.simulate.workload import OracleEstimator, Workload

ROOT = Path(__file__).resolve().parents[2]


def fields(snapshot: Snapshot) -> dict[str, object]:
    """Return everything a snapshot says, to be compared."""
    jobs = [{name: getattr(job, name) for name in JobView.__slots__} for job in snapshot.jobs]
    return {name: getattr(snapshot, name) for name in Snapshot.__dataclass_fields__} | {"jobs": jobs}


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_state_survives_the_wire_whole(policy: str) -> None:
    scheduler = scheduler_process.scheduler(policy)
    space = find_policy(policy).space
    for _ in range(5):
        scheduler.advance(scheduler.now_ms() + 97_000)
        state = scheduler.state()
        raw = wire.pack_state(state).SerializeToString()
        found = wire.read_state(pb.State.FromString(raw), scheduler.identity(), space)
        assert found.labels == state.labels
        assert fields(found.snapshot) == fields(state.snapshot)
        assert state.labels


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_knobs_survive_the_wire(policy: str) -> None:
    space = find_policy(policy).space
    found = wire.read_knobs(wire.pack_knobs(space.defaults), space)
    assert found == space.defaults
    assert list(found) == list(space.defaults)


texts = st.one_of(st.none(), st.text(max_size=8))
ppm = st.integers(0, 2_000_000)


@st.composite
def facts(draw: st.DrawFn) -> JobFacts:
    deadlines = tuple(sorted(draw(st.lists(st.integers(0, 10**9), max_size=3))))
    kind = draw(st.sampled_from(("strict", "soft"))) if deadlines else "best"
    axis = st.lists(st.integers(1, 10**6), min_size=1, max_size=3, unique=True).map(sorted).map(tuple)
    cores, sizes = draw(axis), draw(axis)
    rows = tuple(tuple(draw(ppm) for _ in cores) for _ in sizes)
    util = st.one_of(st.none(), st.floats(0, 100))
    profile = st.builds(
        Profile, texts, util, util, st.one_of(st.none(), st.integers(0, 10**6)), st.booleans()
    )
    return JobFacts(
        draw(st.text(min_size=1, max_size=12)),
        draw(st.integers(-(10**12), 10**12)),
        draw(st.integers(1, 10_000)),
        *(draw(texts), draw(texts), draw(texts)),
        *(draw(ppm), draw(ppm)),
        profile=draw(st.one_of(st.none(), profile)),
        service=Service(kind, deadlines, tuple(draw(ppm) for _ in deadlines)),
        curve=draw(st.one_of(st.none(), st.just(Curve(cores, sizes, rows, draw(ppm))))),
        limit_ms=draw(st.one_of(st.none(), st.integers(1, 10**12))),
        account=draw(texts),
        qos=draw(texts),
    )


@given(facts())
def test_what_was_submitted_survives_the_wire(one: JobFacts) -> None:
    raw = wire.pack_event(JobEvent(3, "submit", one.submit_ms, one.label, one)).SerializeToString()
    assert wire.read_event(pb.JobEvent.FromString(raw)).facts == one


@pytest.mark.parametrize("pooled", [True, False])
def test_an_identity_survives_the_wire(pooled: bool) -> None:
    parts = Cluster.partitioned([("a", 2, 4), ("b", 1, 8, 96, 1_000_000)])
    one = Identity("x", "fifo", Cluster.pool(3, 8, 16) if pooled else parts, writes=True)
    assert wire.read_identity(wire.pack_identity(one, 5)) == one


def _change(**knobs: str) -> pb.ApplyKnobsRequest:
    return pb.ApplyKnobsRequest(key="k", expected_version=1, knobs=knobs)


TIRESIAS = wire.pack_knobs(find_policy("tiresias").space.defaults)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (pb.ApplyKnobsRequest(knobs=TIRESIAS), "key"),
        (pb.ApplyKnobsRequest(key="a b", knobs=TIRESIAS), "key"),
        (pb.ApplyKnobsRequest(key="k" * 201, knobs=TIRESIAS), "key"),
        (_change(), "num_queues: is not named"),
        (_change(**{**TIRESIAS, "x": "1"}), "no such knob"),
        (_change(**{**TIRESIAS, "num_queues": "two"}), "num_queues"),
        (_change(**{**TIRESIAS, "num_queues": "9"}), "num_queues"),
        (_change(**{**TIRESIAS, "num_queues": "1"}), "queue_thresholds"),
        (_change(**{**TIRESIAS, "promote_knob": "nan"}), "promote_knob"),
    ],
)
def test_a_change_that_cannot_be_is_not_read(message: pb.ApplyKnobsRequest, why: str) -> None:
    space = find_policy("tiresias").space
    assert wire.read_change(_change(**TIRESIAS), space) == Change("k", space.defaults, 1)
    with pytest.raises(wire.Unreadable, match=why):
        wire.read_change(message, space)


def _spoilt_states() -> list[pb.State]:
    """Return states each of which says one thing that cannot be."""
    good = wire.pack_state(scheduler_process.scheduler("tiresias").state())
    running = next(place for place, job in enumerate(good.jobs) if job.nodes)
    found = []
    for spoil in (
        lambda state: state.knobs.clear(),
        lambda state: setattr(state.jobs[running].nodes[0], "gpus", 99),
        lambda state: setattr(state.jobs[running].nodes[0], "node", 2),
        lambda state: setattr(state.jobs[running].nodes[0], "node", -1),
        lambda state: setattr(state.jobs[0].facts, "gpus", 0),
        lambda state: setattr(state.jobs[0].facts, "label", ""),
        lambda state: setattr(state.jobs[0].engine, "home", 1),
        lambda state: setattr(state.jobs[0].engine, "level", -1),
        lambda state: state.engine.vcs.add(),
        lambda state: state.engine.places.pop(),
        lambda state: state.engine.crossing.append(10**9),
        lambda state: setattr(state.engine, "sampled", 10**9),
        lambda state: state.jobs[0].facts.service.deadlines_ms.append(1),
        lambda state: state.jobs[0].facts.curve.cores.append(1),
    ):
        state = pb.State()
        state.CopyFrom(good)
        spoil(state)
        found.append(state)
    return found


@pytest.mark.parametrize("place", range(14))
def test_a_state_that_cannot_be_is_not_read(place: int) -> None:
    identity = scheduler_process.scheduler("tiresias").identity()
    with pytest.raises(wire.Unreadable):
        wire.read_state(_spoilt_states()[place], identity, find_policy("tiresias").space)


@pytest.mark.parametrize(
    "message",
    [
        pb.JobEvent(number=1, kind=0, label="a"),
        pb.JobEvent(number=1, kind=6, label="a"),
        pb.JobEvent(number=0, kind=2, label="a"),
        pb.JobEvent(number=1, kind=2, label=""),
        pb.JobEvent(number=1, kind=1, label="a"),
        pb.JobEvent(number=1, kind=2, label="a", facts=pb.JobFacts(label="a", gpus=1)),
    ],
)
def test_an_event_that_cannot_be_is_not_read(message: pb.JobEvent) -> None:
    with pytest.raises(wire.Unreadable):
        wire.read_event(message)


@given(st.binary(max_size=300))
def test_noise_is_refused_or_read_and_never_worse(raw: bytes) -> None:
    identity = Identity("x", "fifo", Cluster.pool(1, 8), writes=True)
    space = find_policy("fifo").space
    for kind, read in (
        (pb.State, lambda message: wire.read_state(message, identity, space)),
        (pb.ApplyKnobsRequest, lambda message: wire.read_change(message, space)),
        (pb.JobEvent, wire.read_event),
        (pb.Identity, wire.read_identity),
    ):
        try:
            read(kind.FromString(raw))
        except (DecodeError, wire.Unreadable):
            continue


# What any scheduler knows ------------------------------------------------------------------------------

JOBS = """
job submit_s duration_s gpus
a   0        100        3
b   10       50         4
c   20       30         1
d   60       10         2
"""


def seen(state: State) -> list[Seen]:
    """Return what a scheduler without our engine would know of a state's jobs."""
    return [
        Seen(
            facts=job.facts,
            nodes=job.nodes,
            held_ms=job.held_ms,
            preemptions=job.preemptions,
            first_start_ms=job.first_start_ms,
            started_ms=job.started_ms,
            stopped_ms=job.stopped_ms,
        )
        for job in reversed(state.snapshot.jobs)
    ]


def simulated(policy: str, workload: Workload, until_ms: int) -> Engine:
    environment = Environment(estimator=OracleEstimator(workload.duration_ms))
    knobs = find_policy(policy).space.defaults
    engine = Engine(workload, Cluster.pool(1, 4), find_policy(policy), knobs, environment, timeline=True)
    engine.run(until_ms)
    return engine


@pytest.mark.parametrize("until_s", [5, 25, 70, 101])
@pytest.mark.parametrize("policy", ["fifo", "tiresias"])
def test_what_any_scheduler_knows_is_enough_to_go_on(policy: str, until_s: int) -> None:
    """The engine goes on from it as it would have gone on by itself."""
    workload = scenario.jobs(JOBS)
    engine = simulated(policy, workload, 1000 * until_s)
    snapshot = engine.snapshot()
    state = State(snapshot, tuple(job.facts.label for job in snapshot.jobs))
    identity = Identity("x", policy, engine.cluster, writes=True)
    message = pb.State(now_ms=snapshot.now_ms, knobs=wire.pack_knobs(snapshot.knobs))
    for one in wire.pack_state(
        observe(policy, engine.cluster, snapshot.knobs, snapshot.now_ms, seen(state))
    ).jobs:
        one.ClearField("engine")
        message.jobs.add().CopyFrom(one)
    told = wire.read_state(message, identity, find_policy(policy).space)
    assert told.labels == state.labels

    rest = [*(workload.facts.index(job.facts) for job in told.snapshot.jobs), *range(snapshot.arrived, 4)]
    future = Workload([workload.facts[one] for one in rest], [workload.duration_ms[one] for one in rest])
    environment = Environment(estimator=OracleEstimator(future.duration_ms))
    again = Engine.resume(
        told.snapshot, future, engine.cluster, find_policy(policy), environment, timeline=True
    )
    again.run()
    before = len(engine.timeline.text().splitlines()) if engine.timeline else 0
    engine.run()
    assert engine.timeline is not None
    assert again.timeline is not None
    assert again.timeline.text().splitlines() == engine.timeline.text().splitlines()[before:]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_goes_on_from_what_any_scheduler_knows(policy: str) -> None:
    scheduler = scheduler_process.scheduler(policy)
    scheduler.advance(1_865_000)  # in the middle of a round, for those that have rounds
    state, identity = scheduler.state(), scheduler.identity()
    told = observe(policy, identity.cluster, state.snapshot.knobs, state.snapshot.now_ms, seen(state))
    assert told.labels == state.labels
    assert {job.state for job in told.snapshot.jobs} >= {JobState.RUNNING}
    jobs = [job.facts for job in told.snapshot.jobs]
    durations = [job.done // 1_000_000 + 60_000 for job in told.snapshot.jobs]
    for job, duration_ms in zip(told.snapshot.jobs, durations, strict=True):
        job.estimate_ms = duration_ms
    environment = Environment(estimator=OracleEstimator(durations))
    engine = Engine.resume(
        told.snapshot, Workload(jobs, durations), identity.cluster, find_policy(policy), environment
    )
    engine.run()
    assert engine.outcomes.finished.all()


def test_what_a_scheduler_shows_becomes_a_queue() -> None:
    """Running jobs stand first, who started first before the others; then those that wait, by submission."""
    jobs = [
        Seen(facts=JobFacts("late", 40, 8)),
        Seen(facts=JobFacts("second", 10, 2), nodes=((1, 2),), held_ms=50, started_ms=50),
        Seen(facts=JobFacts("first", 30, 3), nodes=((0, 3),), held_ms=60, started_ms=40, first_start_ms=31),
        Seen(facts=JobFacts("early", 20, 8), held_ms=5, preemptions=1, stopped_ms=60),
    ]
    defaults = find_policy("tiresias").space.defaults
    state = observe("tiresias", Cluster.pool(2, 8), defaults, 100, jobs)
    assert state.labels == ("second", "early", "first", "late")
    by_place = sorted(state.snapshot.jobs, key=lambda job: job.place)
    assert [job.facts.label for job in by_place] == ["first", "second", "early", "late"]
    first, second, early, late = by_place
    assert (first.done, first.graded_ms, first.first_start_ms) == (60_000_000, 60, 31)
    assert (second.first_start_ms, second.nodes) == (50, ((1, 2),))
    assert (early.state, early.stopped_ms, early.preemptions) == (JobState.PENDING, 60, 1)
    assert (late.stopped_ms, late.first_start_ms, late.grades) == (40, None, (3_600_000,))


@pytest.mark.parametrize("policy", ["fifo", "slurm"])
def test_a_job_that_has_held_its_gpus_beyond_its_limit_ends_at_once(policy: str) -> None:
    """It was requeued, or its scheduler is lenient; whatever a future gives it, it has had its limit."""
    facts = JobFacts("late", 0, 4, limit_ms=60_000)
    jobs = [Seen(facts=facts, nodes=((0, 4),), held_ms=90_000, started_ms=10_000)]
    cluster, knobs = Cluster.pool(1, 4), find_policy(policy).space.defaults
    state = observe(policy, cluster, knobs, 100_000, jobs)
    future = Workload([facts], [500_000])
    engine = Engine.resume(state.snapshot, future, cluster, find_policy(policy), Environment())
    engine.run()
    assert engine.records[0].finish_ms == 100_000


def test_jobs_that_can_never_run_are_no_part_of_a_state() -> None:
    cluster = Cluster.partitioned([("a", 1, 4)])
    jobs = [
        Seen(facts=JobFacts("fits", 0, 4, "a")),
        Seen(facts=JobFacts("wide", 0, 5, "a")),
        Seen(facts=JobFacts("astray", 0, 1, "b")),
    ]
    assert observe("fifo", cluster, Knobs({"backfill": "skip"}), 10, jobs).labels == ("fits",)


def test_the_messages_are_those_of_the_proto(tmp_path: Path) -> None:
    if find_spec("grpc_tools") is None:
        pytest.skip("grpcio-tools is not installed")
    out = tmp_path / "set"
    words = ["-m", "grpc_tools.protoc", "-I", "proto", f"--descriptor_set_out={out}"]
    subprocess.run([sys.executable, *words, "proto/trimtab/v1/scheduler.proto"], cwd=ROOT, check=True)
    written = FileDescriptorSet.FromString(out.read_bytes()).file[0]
    for message in written.message_type:
        _forget_json_names(message)
    assert written == FileDescriptorProto.FromString(pb.DESCRIPTOR.serialized_pb)


def _forget_json_names(message: DescriptorProto) -> None:
    """Take out what protoc adds to a set of descriptors only."""
    for field in message.field:
        field.ClearField("json_name")
    for inner in message.nested_type:
        _forget_json_names(inner)
