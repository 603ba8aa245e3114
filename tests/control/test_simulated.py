"""The engine as a scheduler: when a setting is in force, what is told, and that nothing of the future is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import scenario
from trimtab.cluster import Cluster
from trimtab.control import simulated
from trimtab.control.adapter import Change, JobEvent, Refused
from trimtab.control.simulated import Simulated
from trimtab.errors import ConfigError
from trimtab.job import JobState
from trimtab.knobs import Knobs
from trimtab.policies.catalog import find_policy
from trimtab.simulate.state import Environment
from trimtab.simulate.workload import OracleEstimator, Workload

JOBS = """
job submit_s duration_s gpus
a   0        100        3
b   10       50         4
c   20       30         1
d   200      10         5
e   300      40         2
"""
STRICT, SKIP = Knobs({"backfill": "strict"}), Knobs({"backfill": "skip"})


def scheduler(workload: Workload | None = None, **more: object) -> Simulated:
    workload = scenario.jobs(JOBS) if workload is None else workload
    environment = Environment(estimator=OracleEstimator(workload.duration_ms))
    return Simulated(workload, Cluster.pool(1, 4), "fifo", STRICT, environment, **more)


def told(events: list[JobEvent]) -> list[str]:
    return [f"{event.number} {event.time_ms // 1000} {event.kind} {event.label}" for event in events]


def test_a_setting_is_written_and_in_force_as_soon_as_the_clock_moves() -> None:
    one = scheduler()
    one.advance(25_000)
    assert one.apply(Change("k", SKIP, 1)).version == 2
    assert (one.in_force().knobs, one.in_force().version) == (STRICT, 1)
    assert one.state().snapshot.knobs == STRICT
    one.advance(25_001)
    assert (one.in_force().knobs, one.in_force().version, one.in_force().as_of_ms) == (SKIP, 2, 25_001)
    assert one.state().snapshot.knobs == SKIP
    assert told(list(one.events(0, 100)))[-1] == "5 25 start c"


def test_a_change_asked_for_twice_is_made_once() -> None:
    one = scheduler()
    first = one.apply(Change("k", SKIP, 1))
    one.advance(1)
    assert one.apply(Change("k", SKIP, 1)) == first
    second = one.apply(Change("back", STRICT, 2))
    one.advance(2)
    assert one.apply(Change("k", SKIP, 1)) == first
    one.advance(3)
    assert (one.in_force().knobs, one.in_force().version) == (STRICT, second.version)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (Change("k", STRICT, 2), "another setting"),
        (Change("late", STRICT, 1), "version 2 was written last, not 1"),
        (Change("odd", Knobs({"backfill": "never"}), 2), "strict would be"),
        (Change("none", Knobs({}), 2), "is not named"),
        (Change("more", Knobs({"backfill": "skip", "x": 1}), 2), "no such knob"),
    ],
)
def test_what_is_refused_changes_nothing(change: Change, why: str) -> None:
    one = scheduler()
    one.apply(Change("k", SKIP, 1))
    with pytest.raises(Refused, match=why):
        one.apply(change)
    one.advance(1)
    assert (one.in_force().knobs, one.in_force().version) == (SKIP, 2)


def test_events_are_numbered_and_can_be_asked_for_again() -> None:
    one = scheduler()
    one.advance(101_000)
    assert told(list(one.events(0, 100))) == [
        "1 0 submit a",
        "2 0 start a",
        "3 10 submit b",
        "4 20 submit c",
        "5 100 finish a",
        "6 100 start b",
    ]
    one.advance(400_000)
    everything = one.events(0, 100)
    assert told(list(everything))[9:12] == ["10 200 submit d", "11 200 cancel d", "12 300 submit e"]
    for after in range(len(everything) + 2):
        assert one.events(after, 100) == everything[after:]
        assert one.events(after, 2) == everything[after : after + 2]
    submit, finish = everything[0], everything[4]
    assert submit.facts is not None
    assert submit.facts.gpus == 3
    assert (submit.ran_ms, finish.ran_ms) == (None, 100_000)


@pytest.mark.parametrize("policy", ["srtf", "tiresias", "fifo"])
def test_nothing_of_the_future_is_told(policy: str) -> None:
    """Two traces with the same past: other run times of what still runs, other jobs to come."""
    now_ms = 105_000
    table = scenario.jobs(JOBS)
    other = scenario.jobs(JOBS.replace("d   200", "d   170").replace("10       50", "10       51"))
    answers = []
    for workload in (table, other):
        environment = Environment(estimator=OracleEstimator(workload.duration_ms))
        defaults = find_policy(policy).space.defaults
        one = Simulated(workload, Cluster.pool(1, 4), policy, defaults, environment)
        one.advance(now_ms)
        state = one.state()
        assert state.snapshot.estimator is None
        jobs = [tuple(getattr(job, name) for name in job.__slots__) for job in state.snapshot.jobs]
        answers.append((replace(state.snapshot, jobs=()), jobs, state.labels, list(one.events(0, 99))))
    assert answers[0] == answers[1]


def test_a_state_is_a_copy() -> None:
    one = scheduler()
    one.advance(15_000)
    state = one.state()
    assert [(label, job.state) for label, job in zip(state.labels, state.snapshot.jobs, strict=True)] == [
        ("a", JobState.RUNNING),
        ("b", JobState.PENDING),
    ]
    for job in state.snapshot.jobs:
        job.nodes, job.state, job.done = (), JobState.PENDING, 0
    one.advance(400_000)
    alone = scheduler()
    alone.advance(400_000)
    assert one.events(0, 99) == alone.events(0, 99)


def test_being_asked_changes_no_schedule() -> None:
    rng = np.random.default_rng(3)
    submits = np.sort(rng.integers(0, 4_000, 60)).tolist()
    rows = [f"j{n} {at} {rng.integers(1, 900)} {rng.integers(1, 5)}" for n, at in enumerate(submits)]
    workload = scenario.jobs("job submit_s duration_s gpus\n" + "\n".join(rows))
    asked, alone = (scheduler(workload, engine=kind) for kind in ("reference", "auto"))
    for now_ms in range(0, 40_000_000, 100_000):
        asked.advance(now_ms)
        asked.state(), asked.in_force(), asked.events(0, 3)
    alone.advance(40_000_000)
    assert len(alone.events(0, 999)) == 180
    assert asked.events(0, 999) == alone.events(0, 999)


def test_wall_time_moves_the_clock_at_a_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    wall = [50.0]
    monkeypatch.setattr(simulated, "wall_s", lambda: wall[0])
    one = scheduler(speedup=100, start_ms=5_000)
    assert one.now_ms() == 5_000
    wall[0] += 1.0
    assert one.now_ms() == 105_000
    assert [event.kind for event in one.events(4, 9)] == ["finish", "start"]
    one.apply(Change("k", SKIP, 1))
    assert one.in_force().version == 1
    wall[0] += 0.00001
    assert one.in_force().version == 2
    with pytest.raises(ConfigError, match="wall time"):
        one.advance(200_000)


@pytest.mark.parametrize("speedup", [0.0, -1.0, float("inf"), float("nan")])
def test_an_impossible_speedup_is_refused(speedup: float) -> None:
    with pytest.raises(ConfigError, match="speedup"):
        scheduler(speedup=speedup)
