"""The loop with real searches beside the engine: it scores what came, and knows nothing of what will come."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from histories import CLUSTER, WORLD, history
from hostile import Line, Memory
from trimtab.control.advising import Searches, Searching, holding
from trimtab.control.guardrails import Guardrails
from trimtab.control.loop import Loop
from trimtab.control.orders import Orders, Plant
from trimtab.control.safety import Safety
from trimtab.control.scoring import Shadow, what_came
from trimtab.control.simulated import Simulated
from trimtab.job import JobFacts
from trimtab.objective import find_objective
from trimtab.policies.catalog import find_policy
from trimtab.search.generation import PLUS, Forecasting
from trimtab.search.spaces import search_space
from trimtab.search.tuner import Tuning
from trimtab.simulate.trials import LocalTrials
from trimtab.simulate.workload import Workload

HOUR_MS = 3_600_000
TIRESIAS = find_policy("tiresias")
KNOBS = TIRESIAS.space.defaults
SHORT = Forecasting(
    arrivals="last-hour", remaining="kaplan-meier", futures=2, arrivals_ms=6 * HOUR_MS, run_on_ms=6 * HOUR_MS
)


def _searching(line: str) -> Searching:
    tuning = Tuning(objective=find_objective("wait"), budget=6)
    how = SHORT if line == "trimtab" else PLUS
    return Searching(line=line, tuning=tuning, rails=Guardrails(gain_min=1.0, dwell_ms=0), forecasting=how)


def _walked(workload: Workload, line: str, mode: Any, until_ms: int) -> tuple[list[Line], Simulated, Loop]:
    """Run the loop up to an instant in simulated time; return its journal."""
    environment = WORLD.environment(workload)
    scheduler = Simulated(workload, CLUSTER, "tiresias", KNOBS, environment, start_ms=8 * HOUR_MS)
    plant = Plant(
        "tiresias", search_space(TIRESIAS, KNOBS, "consolidated"), WORLD.environment(Workload([], []))
    )
    journal, clock = Memory(), [8 * HOUR_MS]
    orders = Orders(
        mode=mode,
        rails=Guardrails(gain_min=1.0, dwell_ms=600_000),
        safety=Safety(history_min_ms=0),
        background_ms=1_200_000,
    )
    searches = Searches(_searching(line), LocalTrials())
    loop = Loop(scheduler, journal, plant, orders, searches, lambda: clock[0], "r")
    loop.start({})
    while clock[0] < until_ms:
        clock[0] = min(max(loop.tick(), clock[0] + 1), until_ms)
        scheduler.advance(clock[0])
    return journal.lines, scheduler, loop


@lru_cache
def _workload(seed: int) -> Workload:
    return WORLD.workload(history(seed))


def _plain(lines: list[Line]) -> list[Any]:
    """Return what was decided, clocks left out."""
    found = []
    for line in lines:
        body = dict(line.body)
        if "round" in body:
            body["round"] = {k: v for k, v in body["round"].items() if k not in ("search_s", "seconds")}
        found.append((line.kind, line.key, body))
    return found


@pytest.mark.parametrize("line", ["trimtab", "trimtab-plus"])
def test_what_is_shadowed_is_scored_on_what_came(line: str) -> None:
    lines, scheduler, _ = _walked(_workload(4), line, "shadow", 20 * HOUR_MS)
    shadowed = [one for one in lines if one.kind == "verdict" and one.body["decision"] == "shadow"]
    trials = [one.body for one in lines if one.kind == "trial"]
    assert shadowed
    assert trials
    assert all(one["realised"] is not None and not one["made"] for one in trials)
    assert scheduler.in_force().knobs == KNOBS


def test_changes_are_made_and_scored() -> None:
    lines, scheduler, loop = _walked(_workload(4), "trimtab", "auto", 20 * HOUR_MS)
    assert any(one.body["made"] for one in lines if one.kind == "trial")
    assert scheduler.in_force().knobs == loop.standing.knobs != KNOBS


@pytest.mark.parametrize("line", ["trimtab", "trimtab-plus"])
@pytest.mark.parametrize("at_hour", [11, 15])
def test_another_future_changes_nothing_before_it(line: str, at_hour: int) -> None:
    """Other arrivals from an instant on, other endings after it: the journal up to it is the same."""
    at_ms, workload = at_hour * HOUR_MS, _workload(4)
    before, scheduler, _ = _walked(workload, line, "auto", at_ms)
    ended = {event.label for event in scheduler.events(0, 100_000) if event.kind == "finish"}
    facts, runs_ms = [], []
    for one, run_ms in zip(workload.facts, workload.duration_ms, strict=True):
        if one.submit_ms < at_ms:
            facts.append(one)
            runs_ms.append(run_ms if one.label in ended else 5 * run_ms + 20 * HOUR_MS)
    later = [JobFacts(f"x{n}", at_ms + n * 60_000, 2) for n in range(40)]
    other = Workload([*facts, *later], [*runs_ms, *([600_000] * len(later))])
    after, _, _ = _walked(other, line, "auto", at_ms)
    assert sum(kind == "verdict" for kind, _, _ in _plain(before)) > 6
    assert _plain(after) == _plain(before)


def test_what_came_is_what_the_scheduler_ran() -> None:
    """Tried with the setting that really ran, what came gives back when each job ended."""
    workload, now_ms, then_ms = _workload(4), 9 * HOUR_MS, 15 * HOUR_MS
    environment = WORLD.environment(workload)
    scheduler = Simulated(workload, CLUSTER, "tiresias", KNOBS, environment)
    _, _, loop = _walked(workload, "trimtab", "observe", now_ms)
    scheduler.advance(now_ms)
    register = loop.register
    register.hear(scheduler.events(0, 100_000))
    state = scheduler.state()
    register.see(state)
    plant = WORLD.environment(Workload([], []))
    space = search_space(TIRESIAS, KNOBS, "consolidated")
    scene = register.sight(state, CLUSTER).scene(KNOBS, "tiresias", plant, space)
    scheduler.advance(then_ms)
    register.hear(scheduler.events(0, 100_000))
    past, facts = register.past(scheduler.state())
    situation = what_came(scene, past, facts)
    run_ms = {one.label: ms for one, ms in zip(workload.facts, workload.duration_ms, strict=True)}
    ended = {one.label for one, is_over in zip(facts, past.completed, strict=True) if is_over}
    assert len(ended) > 20
    for one, ms in zip(situation.workload.facts, situation.workload.duration_ms, strict=True):
        assert ms == run_ms[one.label] if one.label in ended else ms >= then_ms - now_ms
    arrived = {one.label for one in workload.facts if now_ms <= one.submit_ms < then_ms}
    assert arrived == {one.label for one in situation.workload.facts[len(scene.snapshot.jobs) :]}
    gain = Searches(_searching("trimtab"), LocalTrials()).realised(
        Shadow(scene, KNOBS, 1.2, made=False, key="k"), past, facts
    )
    assert gain == 1.0  # the same setting


def test_what_may_not_move_is_not_searched() -> None:
    space = search_space(TIRESIAS, KNOBS, "consolidated")
    running = TIRESIAS.space.project(
        {"num_queues": 3, "queue_thresholds": (100, 9000), "in_queue_order": "start"}
    )
    held = holding(space, frozenset({"in_queue_order", "num_queues", "queue_thresholds"}), running)
    dice = np.random.default_rng(1)
    for _ in range(20):
        point = {axis.name: axis.decode(float(dice.random())) for axis in space.axes}
        knobs = held.knobs(point)
        moved = {name for name in knobs if knobs[name] != running[name]}
        assert moved <= {"promote_knob", "starve_mode"}
    assert holding(space, frozenset(), running) is space
