"""What holds for every schedule, whatever the policy and its knobs."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import replay
import strategies as some
from trimtab.cluster import ClusterView
from trimtab.curve import FULL_SPEED_PPM
from trimtab.errors import ConfigError
from trimtab.job import JobFacts
from trimtab.knobs import Knobs
from trimtab.policies import tiresias
from trimtab.policies.catalog import POLICIES
from trimtab.policies.tiresias import Tiresias
from trimtab.simulate.engine import Engine
from trimtab.simulate.state import Snapshot
from trimtab.simulate.workload import Workload
from trimtab.timeline import Event


def examples(number: int) -> settings:
    """Return settings that draw the same examples each time and keep no database.

    TRIMTAB_EXAMPLES multiplies their number, for a longer look.
    """
    return settings(
        max_examples=number * int(os.environ.get("TRIMTAB_EXAMPLES", "1")),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def events(engine: Engine) -> list[Event]:
    assert engine.timeline is not None
    return engine.timeline.events


# ---- two ways to one schedule ------------------------------------------------------------------------


@examples(200)
@given(some.cases(updates_max=2))
def test_the_index_decides_as_the_book_says(case):
    """The indexed walk and the policy's own `decide` give the same events in the same order."""
    indexed, plain = case.done(), case.done(by_the_book=True)
    assert events(indexed) == events(plain)
    assert indexed.records == plain.records


def test_the_comparison_finds_a_demotion_that_comes_late(monkeypatch):
    """The test of the test: demoted one millisecond late, a job's timeline is another one, and the ledger
    says what is wrong with it."""
    workload = Workload([JobFacts("long", 0, 4), JobFacts("short", 10_000, 4)], [100_000, 20_000])
    case = some.plain_case(workload, "tiresias", {"queue_thresholds": (100,)})
    right = events(case.done(by_the_book=True))
    assert events(case.done()) == right
    in_time = tiresias.graded_change_ms

    def late(job):
        due_ms = in_time(job)
        return None if due_ms is None else due_ms + 1

    monkeypatch.setattr(tiresias, "graded_change_ms", late)
    assert events(case.done()) != right
    with pytest.raises(AssertionError, match="it sinks too late"):
        _follow(replay.TiresiasLedger(case), case.done())


# ---- what every timeline keeps -----------------------------------------------------------------------


@examples(200)
@given(some.cases(updates_max=3))
def test_every_job_gets_what_it_came_for_and_no_node_is_overfull(case):
    """Gangs are whole, nodes within capacity, each job's work exact to the millisecond, with restart cost
    and slow spread stretches; JCT = time waited + time held; rejected only what is wider than its cluster."""
    replay.check(case, case.done())


@examples(150)
@given(some.cases(["tiresias"]))
def test_tiresias_sinks_and_promotes_to_the_millisecond(case):
    """A job sinks at the first ms at which its GPU-ms reach a threshold, and is promoted at the first ms at
    which it has waited long enough."""
    _follow(replay.TiresiasLedger(case), case.done())


def _follow(ledger: replay.Ledger, engine: Engine) -> None:
    for event in events(engine):
        ledger.enter(event)


@examples(100)
@given(some.cases([name for name in POLICIES if name != "slurm"], placements=["count"]))
def test_no_gpus_idle_that_a_waiting_job_could_use(case):
    """After a pass of a policy that skips, what is free is less than the narrowest waiting job needs. Slurm
    keeps places for who comes first, and lets a job wait for the next pass."""
    case = replace(case, knobs=_with(case, backfill="skip", quantum=0, auction_delay=0, fill_every=0))
    engine = case.done()
    ledger = replay.ledger_of(case)
    told = events(engine)
    for event, after in pairwise([*told, None]):
        ledger.enter(event)
        if after is not None and after.time_ms == event.time_ms:
            continue
        for vc in case.cluster.vcs:
            idle = vc.gpus - ledger.used[vc.first_node]
            widths = [
                account.width
                for job_id, account in enumerate(ledger.accounts)
                if account.state == "pending" and ledger.home(job_id) is vc
            ]
            assert idle < min(widths, default=idle + 1), event.time_ms


def _with(case: some.Case, **values: object) -> Knobs:
    space = case.policy.space
    return space.project({**case.knobs, **{name: v for name, v in values.items() if name in space.by_name}})


# ---- passes ------------------------------------------------------------------------------------------


@examples(150)
@given(some.cases(updates_max=2))
def test_a_second_walk_changes_nothing(case):
    """Asked again right after a pass, a policy has nothing to do. (Not so if unpaid restart cost counts as
    remaining time: a job moved in the pass has just become longer. And an auction that is put off has to be
    asked for.)"""
    plainly = {"rem_counts_overhead": False, "auction_delay": 0}
    case = replace(
        case,
        knobs=_with(case, **plainly),
        updates=tuple((at, _with(replace(case, knobs=k), **plainly)) for at, k in case.updates),
    )
    again: list[tuple[int, list[object]]] = []

    class Asked(type(case.policy)):  # type: ignore[misc]
        def next_review_ms(self, view: ClusterView, knobs: Knobs) -> int | None:
            decisions = self.decide(view, knobs)
            if decisions:
                again.append((view.now_ms, decisions))
            return super().next_review_ms(view, knobs)

    case.done(by_the_book=True, policy=Asked())
    assert not again


@examples(100)
@given(some.cases(["tiresias"]))
def test_sim_tail_is_a_list_per_queue(case):
    """The engine's order against the plainest way to say it: newcomers, demoted and promoted jobs go to the
    end of a queue's list; after a pass those running come first, each part in its order."""
    case = replace(
        case, knobs=_with(case, in_queue_order="sim_tail", priority="las"), cluster=case.cluster.pool(2, 4)
    )
    queues: dict[int, list[int]] = {}
    read = 0
    wrong: list[object] = []

    class Listed(Tiresias):
        def decide(self, view: ClusterView, knobs: Knobs) -> list[object]:  # type: ignore[override]
            nonlocal read
            jobs = {job.id: job for job in (*view.pending, *view.running)}
            told = events(engine)
            for event in told[read:]:
                if event.kind in ("finish", "demote", "promote"):
                    for queue in queues.values():
                        if event.job in queue:
                            queue.remove(event.job)
                if event.kind in ("submit", "promote", "demote") and event.job in jobs:
                    level = jobs[event.job].level if event.kind == "demote" else 0
                    queues.setdefault(level, []).append(event.job)
            read = len(told)
            expected = [job_id for level in sorted(queues) for job_id in queues[level]]
            found = sorted(jobs.values(), key=lambda job: (job.level, job.place))
            if [job.id for job in found] != expected:
                wrong.append((view.now_ms, expected, [job.id for job in found]))
            return super().decide(view, knobs)

        def next_review_ms(self, view: ClusterView, knobs: Knobs) -> None:
            running = {job.id for job in view.running}
            for queue in queues.values():
                queue.sort(key=lambda job_id: job_id not in running)

    engine = case.engine(by_the_book=True, policy=Listed())
    engine.run()
    assert not wrong


# ---- time, forks and updates -------------------------------------------------------------------------


@examples(150)
@given(some.cases(updates_max=3), st.data())
def test_a_resumed_run_equals_the_uninterrupted_one(case, data):
    """A snapshot at any instant, even one taken of a run that was itself resumed, goes on to the same
    events and records; with hot updates before and after it; and taking it disturbs nobody."""
    whole = case.done()
    times = sorted(
        data.draw(st.lists(_moments(whole), min_size=1, max_size=2, unique=True), label="snapshots at")
    )
    engine = case.engine()
    for time_ms in times:
        engine.run(time_ms)
        snapshot = engine.snapshot()
        assert _state(engine.snapshot()) == _state(snapshot)
        engine.run()
        assert _after(engine, time_ms) == _after(whole, time_ms)
        engine = _resumed(case, snapshot)
    engine.run()
    assert _after(engine, times[-1]) == _after(whole, times[-1])
    active = {job.id for job in snapshot.jobs}
    for job_id, (resumed, uninterrupted) in enumerate(zip(engine.records, whole.records, strict=True)):
        if job_id in active or job_id >= snapshot.arrived:
            assert resumed == uninterrupted


@examples(100)
@given(some.cases(), st.data())
def test_a_fork_may_go_another_way_and_the_original_goes_on(case, data):
    """A fork under other knobs keeps every promise, and leaves no trace in the run it came from."""
    whole = case.done()
    time_ms = data.draw(_moments(whole))
    engine = case.engine()
    engine.run(time_ms)
    fork = _resumed(case, engine.snapshot())
    other = data.draw(some.settings(case.policy.space))
    fork.update(time_ms, other)
    try:
        fork.run()
    except ConfigError:
        assume(False)  # under these knobs it never ends
    engine.run()
    assert events(engine) == events(whole)
    spliced = [event for event in events(whole) if event.time_ms < time_ms] + events(fork)
    ledger = replay.ledger_of(replace(case, updates=((time_ms, other),)))
    for event in spliced:
        ledger.enter(event)
    assert all(account.state in ("finished", "rejected") for account in ledger.accounts)


@examples(100)
@given(some.cases(updates_max=2), st.sampled_from([5_000, 4_999, 60_000]))
def test_the_same_knobs_again_change_nothing(case, period_ms):
    """Re-applying what is in force, every few seconds, is a no-op event by event."""
    plain = case.done()
    engine = case.engine()
    if len(case.workload):
        first_ms = case.workload.facts[0].submit_ms
        for time_ms in range(first_ms, first_ms + 400 * period_ms, period_ms):
            before = [knobs for at, knobs in case.updates if at <= time_ms]
            engine.update(time_ms, before[-1] if before else case.knobs)
        for finish_ms in {record.finish_ms for record in plain.records if record.finish_ms is not None}:
            before = [knobs for at, knobs in case.updates if at <= finish_ms]
            engine.update(finish_ms, before[-1] if before else case.knobs)
    engine.run()
    assert events(engine) == events(plain)
    assert engine.records == plain.records


@pytest.mark.parametrize("policy", ["themis", "chronus", "sensascale-plus"])
@examples(100)
@given(data=st.data())
def test_nothing_that_is_due_is_overtaken(policy, data):
    """However often knobs change among reviews and ends of leases, no instant goes past one due before it."""
    case = data.draw(some.cases([policy]))
    first_ms = case.workload.facts[0].submit_ms if len(case.workload) else 0
    moments = st.integers(first_ms, first_ms + 600_000)
    updates = st.lists(st.tuples(moments, some.settings(case.policy.space)), min_size=12, max_size=24)
    instant = Engine._instant

    def watched(engine: Engine, now_ms: int) -> None:
        instant(engine, now_ms)
        assert not engine._heap or min(engine._heap)[0] >= now_ms

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "_instant", watched)
        replace(case, updates=tuple(sorted(data.draw(updates), key=lambda one: one[0]))).done()


@examples(60)
@given(some.cases(updates_max=2), st.data())
def test_stopping_and_going_on_changes_nothing(case, data):
    """`run(until)` again and again is `run()`; an instant is not begun before it is reached."""
    whole = case.done()
    engine = case.engine()
    for time_ms in sorted(data.draw(st.lists(_moments(whole), max_size=5))):
        engine.run(time_ms)
        assert all(event.time_ms < time_ms for event in events(engine))
    engine.run()
    assert events(engine) == events(whole)


def _moments(whole: Engine) -> st.SearchStrategy[int]:
    """Return instants of a run: those of its events, those beside them, and any other."""
    times = sorted({event.time_ms for event in events(whole)}) or [0]
    near = st.builds(lambda time_ms, off: time_ms + off, st.sampled_from(times), st.integers(-1, 1))
    return st.one_of(near, st.integers(times[0], times[-1])).map(lambda one: max(one, times[0]))


def _after(engine: Engine, time_ms: int) -> list[Event]:
    return [event for event in events(engine) if event.time_ms >= time_ms]


def _resumed(case: some.Case, snapshot: Snapshot) -> Engine:
    engine = Engine.resume(
        snapshot, case.workload, case.cluster, case.policy, case.environment, timeline=True
    )
    for time_ms, knobs in case.updates:
        if time_ms >= snapshot.now_ms:
            engine.update(time_ms, knobs)
    return engine


def _state(snapshot: Snapshot) -> tuple[object, ...]:
    jobs = [[getattr(job, name) for name in job.__slots__] for job in snapshot.jobs]
    return jobs, replace(snapshot, jobs=(), estimator=None)


# ---- leakage -----------------------------------------------------------------------------------------


@examples(150)
@given(some.cases(told=False, updates_max=1), st.data())
def test_nothing_before_t_depends_on_what_is_unknown_at_t(case, data):
    """Other durations for every job that has not completed, and other jobs from t on: all events before t
    stay. Estimates, where a policy reads them, are learnt from completions."""
    whole = case.done()
    time_ms = data.draw(_moments(whole))
    engine = case.engine()
    engine.run(time_ms)
    done = {job.id: -(-job.done // FULL_SPEED_PPM) for job in engine.snapshot().jobs}
    durations = list(case.workload.duration_ms)
    for job_id, done_ms in done.items():
        durations[job_id] = done_ms + data.draw(st.integers(1, 100_000))
    other = _another_future(case, durations, time_ms, data)
    assert _before(other.done(), time_ms) == _before(whole, time_ms)


@examples(100)
@given(some.cases(told=True, updates_max=1), st.data())
def test_an_oracle_knows_nothing_of_jobs_to_come(case, data):
    """With estimates given, other jobs from t on still change nothing before t."""
    whole = case.done()
    time_ms = data.draw(_moments(whole))
    other = _another_future(case, list(case.workload.duration_ms), time_ms, data)
    assert _before(other.done(), time_ms) == _before(whole, time_ms)


def _another_future(case: some.Case, durations: list[int], time_ms: int, data: st.DataObject) -> some.Case:
    """Return the case with the jobs from `time_ms` on replaced by others, perhaps none."""
    facts = [one for one in case.workload.facts if one.submit_ms < time_ms]
    known = len(facts)
    assume(known)  # the clock starts with the first job
    estimates = None if case.estimates_ms is None else [*case.estimates_ms[:known]]
    durations = durations[:known]
    gaps = st.tuples(st.integers(0, 60_000), st.integers(1, 9), st.integers(0, 60_000))
    at_ms = time_ms
    for gap_ms, gpus, duration_ms in data.draw(st.lists(gaps, max_size=4)):
        at_ms += gap_ms
        facts.append(JobFacts("new", at_ms, gpus, case.cluster.vcs[0].name))
        durations.append(duration_ms)
        if estimates is not None:
            estimates.append(duration_ms + 1)
    return replace(
        case,
        workload=Workload(facts, durations),
        estimates_ms=None if estimates is None else tuple(estimates),
    )


def _before(engine: Engine, time_ms: int) -> list[Event]:
    return [event for event in events(engine) if event.time_ms < time_ms]


# ---- what does not end -------------------------------------------------------------------------------


@pytest.mark.parametrize("by_the_book", [False, True])
def test_jobs_that_take_turns_for_ever_are_a_refusal(by_the_book):
    """Two jobs of 4 GPUs sink after 15 s, are promoted after .25 x 15 s of waiting, and pay 62 s for each
    restart: neither ever works again."""
    workload = Workload([JobFacts("a", 0, 4), JobFacts("b", 0, 4)], [100_000, 100_000])
    case = some.plain_case(workload, "tiresias", {"queue_thresholds": (60,), "promote_knob": 0.25})
    engine = replace(case, restart=some.RestartCost(62_000, 0)).engine(by_the_book=by_the_book)
    with pytest.raises(ConfigError, match="2 jobs take turns and none runs long enough"):
        engine.run()
    replace(case, restart=some.RestartCost(14_000, 0)).done()


# ---- what the properties found, kept as cases --------------------------------------------------------


def _after_a_fork(knobs: dict[str, object], time_ms: int) -> tuple[list[Event], list[Event]]:
    workload = Workload([JobFacts("a", 0, 2), JobFacts("b", 500, 4)], [60_000, 10_000])
    case = some.plain_case(workload, "tiresias", knobs)
    engine = case.engine()
    engine.run(time_ms)
    fork = _resumed(case, engine.snapshot())
    fork.run()
    return _after(fork, time_ms), _after(case.done(), time_ms)


def test_a_fork_at_the_instant_of_a_demotion_demotes():
    """2 GPUs attain 60 GPU-s at 30 s. A snapshot of that instant holds a job that has reached its threshold
    and has not sunk; "only future crossings count" must not let it stay."""
    forked, whole = _after_a_fork({"queue_thresholds": (60,)}, 30_000)
    assert forked == whole
    assert [event.kind for event in forked][:3] == ["demote", "preempt", "start"]


def test_a_fork_on_a_tick_passes():
    """b waits for a tick every 7 s, and a ends at 60; a snapshot at 63 must not miss the tick there."""
    forked, whole = _after_a_fork({"queue_thresholds": (), "quantum": 7}, 63_000)
    assert forked == whole
    assert forked[0].kind == "start"


def test_jobs_may_keep_more_queues_than_there_are_now():
    """Under new_only a job keeps the thresholds it arrived with, so it may sink below the new last queue."""
    workload = Workload([JobFacts("a", 0, 4)], [100_000])
    case = some.plain_case(workload, "tiresias", {"queue_thresholds": (60, 120, 240)})
    fewer = case.policy.space.project({"queue_thresholds": (60,), "regrade": "new_only"})
    told = events(replace(case, updates=((1_000, fewer),)).done())
    assert [event.time_ms for event in told if event.kind == "demote"] == [15_000, 30_000, 60_000]


def test_a_sample_is_taken_on_the_hour_and_running_jobs_go_on():
    """Gittins takes a new sample at each full hour; a job that runs across it keeps its work."""
    workload = Workload([JobFacts("a", 0, 1), JobFacts("b", 0, 1)], [3_600_000, 7_200_000])
    case = some.plain_case(workload, "tiresias", {"priority": "gittins", "queue_thresholds": ()})
    assert [record.finish_ms for record in case.done().records] == [3_600_000, 7_200_000]


def test_an_auction_that_was_asked_for_is_held_though_knobs_change():
    """b waits for 4 GPUs, a holds 2. From 1 s on auctions are put off by a minute, so b asks for one at 61 s,
    and a's lease is cut to 67 s. From 10 s on leases are long again; a ends at 53 s, before either. The
    auction must not be lost behind the end of the lease that was."""
    workload = Workload([JobFacts("a", 0, 2), JobFacts("b", 0, 4)], [53_000, 1_000])
    case = some.plain_case(workload, "themis", {})
    short, long = (
        case.policy.space.project({"lease": lease, "lease_update": "now", "auction_delay": 60})
        for lease in (67, 1200)
    )
    case = replace(case, updates=((1_000, short), (10_000, long)))
    assert [record.finish_ms for record in case.done().records] == [53_000, 62_000]
