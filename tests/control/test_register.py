"""What is known of a live scheduler's jobs: the same as an evaluation knows, whatever events go through."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import lru_cache

import numpy as np
import pytest

from histories import CLUSTER, WORLD, history
from trimtab.control.adapter import JobEvent, State
from trimtab.control.register import Register, Torn, check_held
from trimtab.control.simulated import Simulated
from trimtab.forecast.history import MEMORY_MS, NEVER_MS, Past
from trimtab.job import JobFacts
from trimtab.knobs import Knobs
from trimtab.policies.catalog import find_policy
from trimtab.search.scene import Scene
from trimtab.search.spaces import search_space
from trimtab.simulate.engines import make_engine
from trimtab.simulate.workload import Workload
from trimtab.studies.watch import Watch

HOUR_MS = 3_600_000
TIRESIAS = find_policy("tiresias")
KNOBS = TIRESIAS.space.defaults
INSTANTS = [hour * HOUR_MS for hour in (3, 9, 14, 20)]


@lru_cache
def _workload(seed: int) -> Workload:
    return WORLD.workload(history(seed))


def _scheduler(workload: Workload) -> Simulated:
    return Simulated(workload, CLUSTER, "tiresias", KNOBS, WORLD.environment(workload))


def _known(
    workload: Workload, now_ms: int, order: np.random.Generator | None = None
) -> tuple[Register, State]:
    scheduler, register = _scheduler(workload), Register()
    for at_ms in range(HOUR_MS, now_ms + 1, HOUR_MS):
        scheduler.advance(at_ms)
        events = list(scheduler.events(register.after, 100_000))
        if order is not None:
            events = [events[place] for place in order.permutation(len(events)).tolist()] + events[:3]
        register.hear(events)
        register.see(scheduler.state())
    return register, scheduler.state()


def _columns(past: Past) -> dict[str, list[int]]:
    return {field.name: np.atleast_1d(getattr(past, field.name)).tolist() for field in fields(past)}


@pytest.mark.parametrize("now_ms", INSTANTS)
def test_as_much_is_known_as_in_an_evaluation(now_ms: int) -> None:
    trace, workload = history(4), _workload(4)
    register, state = _known(workload, now_ms)
    engine = make_engine("auto", workload, CLUSTER, TIRESIAS, KNOBS, WORLD.environment(workload))
    engine.run(now_ms)
    watched = Watch(trace, 0, 24 * HOUR_MS, WORLD).past(engine, engine.snapshot(), now_ms)
    past, facts = register.past(state)
    assert _columns(past) == _columns(watched)
    assert [one.label for one in facts] == [one.label for one in workload.facts[: len(past)]]
    assert past.completed.any()
    assert not past.completed.all()


@pytest.mark.parametrize("now_ms", INSTANTS)
def test_order_and_repetition_of_events_do_not_matter(now_ms: int) -> None:
    plain, state = _known(_workload(4), now_ms)
    shuffled, same = _known(_workload(4), now_ms, np.random.default_rng(1))
    past, facts = plain.past(state)
    other, others = shuffled.past(same)
    rows = {one.label: row for row, one in enumerate(others)}
    order = [rows[one.label] for one in facts]
    for name in ("submit_ms", "gpus", "finish_ms", "ran_ms"):
        assert getattr(past, name).tolist() == getattr(other, name)[order].tolist(), name


def test_nothing_later_is_known() -> None:
    """Another future from an instant on: all that is known at it stays bit for bit the same."""
    now_ms, workload = 14 * HOUR_MS, _workload(4)
    before, state = _known(workload, now_ms)
    scheduler = _scheduler(workload)
    scheduler.advance(now_ms)
    ended = {event.label for event in scheduler.events(0, 100_000) if event.kind == "finish"}
    facts, runs_ms = [], []
    for one, run_ms in zip(workload.facts, workload.duration_ms, strict=True):
        if one.submit_ms < now_ms:
            facts.append(one)
            runs_ms.append(run_ms if one.label in ended else run_ms + 24 * HOUR_MS)
    facts.append(JobFacts("another", now_ms + 5, 1))
    after, other = _known(Workload(facts, [*runs_ms, 1000]), now_ms)
    assert _columns(before.past(state)[0]) == _columns(after.past(other)[0])
    # Events that are newer than the state change nothing of what is known at it.
    late = Register()
    late.hear(before_events := list(_scheduler_at(workload, 20 * HOUR_MS).events(0, 100_000)))
    assert any(event.time_ms > now_ms for event in before_events)
    late.see(state)
    past, known = late.past(state)[0], before.past(state)[0]
    assert past.finish_ms.tolist() == known.finish_ms.tolist()
    assert past.ran_ms.tolist() == known.ran_ms.tolist()


def _scheduler_at(workload: Workload, now_ms: int) -> Simulated:
    scheduler = _scheduler(workload)
    scheduler.advance(now_ms)
    return scheduler


def _scene(register: Register, state: State, knobs: Knobs = KNOBS) -> Scene:
    space = search_space(TIRESIAS, KNOBS, WORLD.placement)
    environment = replace(WORLD.environment(Workload([], [])), estimator=None)
    return register.sight(state, CLUSTER).scene(knobs, "tiresias", environment, space)


def test_a_scene_goes_by_what_was_read_back() -> None:
    register, state = _known(_workload(4), 9 * HOUR_MS)
    other = TIRESIAS.space.project({"num_queues": 4})
    scene = _scene(register, state, other)
    assert scene.running == other
    assert [scene.facts[row].label for row in scene.active_rows] == [
        job.facts.label for job in scene.snapshot.jobs
    ]
    assert set(state.labels) == {job.facts.label for job in scene.snapshot.jobs}
    assert all(job.estimate_ms is None for job in scene.snapshot.jobs)
    assert scene.snapshot.estimator is None


def test_old_jobs_are_forgotten_and_their_labels_numbers_go_with_them() -> None:
    register, number = Register(), 0
    for day in range(80):
        for place in range(20):
            facts = JobFacts(f"{day}-{place}", day * 24 * HOUR_MS + place, 1, user=f"u{day}", name=f"n{day}")
            for kind, at_ms in (
                ("submit", facts.submit_ms),
                ("start", facts.submit_ms),
                ("finish", facts.submit_ms + 60_000),
            ):
                number += 1
                register.hear(
                    [JobEvent(number, kind, at_ms, facts.label, facts if kind == "submit" else None, 60_000)]
                )
        register.forget((day + 1) * 24 * HOUR_MS)
    assert len(register) == 20 * (MEMORY_MS // (24 * HOUR_MS))
    assert len(register._numbers) < 10_000


def _torn(state: State, keep: float, twice: bool = False) -> State:
    count = round(keep * len(state.labels))
    jobs, labels = state.snapshot.jobs[:count], state.labels[:count]
    if twice:
        jobs, labels = (*jobs, jobs[0]), (*labels, labels[0])
    return State(replace(state.snapshot, jobs=jobs), labels)


def test_a_torn_state_is_refused_and_believed_the_second_time() -> None:
    register, state = _known(_workload(2), 14 * HOUR_MS)
    assert len(state.labels) > 5
    with pytest.raises(Torn, match="names a job twice"):
        register.see(_torn(state, 1.0, twice=True))
    half = _torn(state, 0.5)
    with pytest.raises(Torn, match=r"lacks \d+ jobs that ought to be there"):
        register.see(half)
    register.see(half)  # again: they are gone, and nobody knows what they ran
    past, facts = register.past(half)
    gone = {label for label in state.labels if label not in half.labels}
    assert {
        one.label for one, end in zip(facts, past.finish_ms.tolist(), strict=True) if end == NEVER_MS
    } >= gone & {one.label for one in facts}
    register.see(state)  # and back again
    assert len(_scene(register, state).snapshot.jobs) == len(state.labels)


def test_a_node_that_holds_too_much_is_seen() -> None:
    _, state = _known(_workload(2), 14 * HOUR_MS)
    check_held(state, CLUSTER, WORLD.placement)
    twice = [job.copy() for job in state.snapshot.jobs for _ in range(3)]
    for place, job in enumerate(twice):
        job.id = place
    with pytest.raises(Torn, match=r"GPUs in use on node \d of "):
        check_held(State(replace(state.snapshot, jobs=tuple(twice)), ()), CLUSTER, WORLD.placement)


def test_run_times_are_added_up_where_nobody_tells_them() -> None:
    register, facts = Register(), JobFacts("a", 0, 1)
    register.hear(
        [
            JobEvent(4, "start", 50_000, "a"),
            JobEvent(1, "submit", 0, "a", facts),
            JobEvent(5, "finish", 90_000, "a"),
            JobEvent(2, "start", 10_000, "a"),
            JobEvent(3, "preempt", 30_000, "a"),
        ]
    )
    _, state = _known(_workload(2), HOUR_MS)
    empty = State(replace(state.snapshot, jobs=(), now_ms=100_000), ())
    assert register.past(empty)[0].ran_ms.tolist() == [60_000]
    assert register.past(State(replace(empty.snapshot, now_ms=60_000), ()))[0].ran_ms.tolist() == [30_000]
