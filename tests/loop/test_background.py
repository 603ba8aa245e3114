"""Between main searches: the same futures as of now, a few settings, and changes only for a clear gain."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from histories import (
    CLUSTER,
    END_MS,
    HOUR_MS,
    START_MS,
    WINDOW,
    WORLD,
    another_future,
    decisions,
    history,
    outcome,
    plan,
    walk,
)
from trimtab.cluster import Cluster
from trimtab.errors import ConfigError
from trimtab.forecast import backtest
from trimtab.policies.catalog import find_policy
from trimtab.report.lines import Line
from trimtab.search.causal_search import Rules
from trimtab.search.futures import snapshot_at
from trimtab.search.generation import Forecasting, Generation
from trimtab.search.scene import Scene
from trimtab.search.spaces import search_space
from trimtab.simulate.engine import Engine
from trimtab.simulate.workload import Workload
from trimtab.studies import lines as module
from trimtab.studies.watch import Watch
from trimtab.world import Seeds

MINUTE_MS = 60_000
FORECASTING = ("trimtab", "trimtab-plus")


def every(minutes: int | None, interval_ms: int = HOUR_MS) -> module.Plan:
    background_ms = None if minutes is None else minutes * MINUTE_MS
    return plan(
        budget=20,
        rules=Rules(learning=False),  # what is tested here needs no causal model
        interval_ms=interval_ms,
        paper_background_ms=background_ms,
        plus_background_ms=background_ms,
    )


def line(name: str, how: module.Plan, seed: int = 1, cluster: Cluster = CLUSTER) -> Line:
    return walk(history(seed, 300), name, how=how, cluster=cluster).lines[0]


def times_of(found: Line, kind: str) -> list[int]:
    return [round(one.time_s * 1000) for one in found.rounds if one.search == kind]


@pytest.mark.parametrize("name", FORECASTING)
def test_light_rounds_lie_between_main_ones(name: str) -> None:
    found = line(name, every(5))
    hours = range(START_MS, END_MS, HOUR_MS)
    assert times_of(found, "main") == list(hours)
    five = 5 * MINUTE_MS
    assert times_of(found, "background") == [at for at in range(START_MS, END_MS, five) if at not in hours]
    assert {one.jsonable()["search"] for one in found.rounds} == {"main", "background"}
    off = line(name, every(None))
    assert times_of(off, "main") == list(hours)
    assert times_of(off, "background") == []


def test_each_interval_begins_its_own_count() -> None:
    found = line("trimtab", every(5, interval_ms=12 * MINUTE_MS))
    minutes = [(at - START_MS) // MINUTE_MS for at in times_of(found, "background")]
    assert minutes[:6] == [5, 10, 17, 22, 29, 34]
    assert times_of(line("trimtab", every(60)), "background") == []


def test_the_paper_looks_every_five_minutes_and_plus_does_not() -> None:
    assert plan().paper_background_ms == 5 * MINUTE_MS
    assert plan().plus_background_ms is None
    with pytest.raises(ConfigError, match=r"background = 59\.999 s: it must be at least 60 s, or off"):
        plan(paper_background_ms=59_999)


@pytest.mark.parametrize("name", FORECASTING)
def test_light_rounds_are_small_and_change_for_a_clear_gain_only(name: str) -> None:
    changed = 0
    for seed in (1, 2):
        found = line(name, every(5), seed)
        light = [one for one in found.rounds if one.search == "background"]
        assert all(one.trials <= 10 for one in light)
        assert any(one.trials >= 5 for one in light)
        assert all(one.gain >= 1.1 for one in light if one.switched)
        changed += sum(one.switched for one in light)
        switched = [one.time_s for one in found.rounds if one.switched]
        assert all(later - earlier >= 1800 for earlier, later in pairwise(switched))
        dwelling = [one for one in light if "dwell is" in one.verdict.reason]
        assert dwelling
        assert all(one.trials == 0 for one in dwelling)
        refused = [one for one in light if 1 < one.gain < 1.1 and "is under 1.1" in one.verdict.reason]
        assert not any(one.switched for one in refused)
    assert changed


@pytest.mark.parametrize("name", FORECASTING)
def test_where_no_job_waits_nothing_is_tried(name: str) -> None:
    found = line(name, every(5), cluster=Cluster.pool(80, 8))
    light = [one for one in found.rounds if one.search == "background"]
    assert {(one.trials, one.pending, one.verdict.reason) for one in light} == {
        (0, 0, "no job waits: nothing was tried")
    }
    assert {(one.jsonable()["cost_running"], one.jsonable()["cost_best"]) for one in light} == {(None, None)}


@pytest.mark.parametrize("name", FORECASTING)
def test_the_same_twice(name: str) -> None:
    first, again = (walk(history(2, 300), name, how=every(5)) for _ in range(2))
    records = [
        [one.record for one in each.lines[0].rounds if one.search == "background"] for each in (first, again)
    ]
    for earlier, later in zip(*records, strict=True):
        assert {**earlier, "seconds": None} == {**later, "seconds": None}
    assert outcome(first) == outcome(again)


@pytest.mark.parametrize("name", FORECASTING)
def test_the_future_does_not_reach_back(name: str) -> None:
    trace, how = history(1, 300), every(5)
    before = walk(trace, name, how=how).lines[0]
    dice = np.random.default_rng(7)
    for at_ms in [*dice.integers(START_MS, END_MS, 4).tolist(), START_MS + 25 * MINUTE_MS]:
        other = another_future(trace, before, at_ms, dice)
        assert decisions(walk(other, name, how=how).lines[0], at_ms) == decisions(before, at_ms)


# ---- the futures again --------------------------------------------------------------------------------

HOW = Forecasting(
    arrivals="nearest", remaining="lindy", futures=2, arrivals_ms=2 * HOUR_MS, run_on_ms=3 * HOUR_MS
)


def scenes(*times_ms: int) -> list[Scene]:
    """A run of the window under the default settings, seen at several instants."""
    trace = history(1, 300)
    inside, policy = trace.window(WINDOW), find_policy("tiresias")
    workload = Workload.of(inside, WORLD.spread_ppm)
    environment = WORLD.environment(workload)
    engine = Engine(workload, CLUSTER, policy, policy.space.defaults, environment)
    watch = Watch(replace(trace, zero_ms=inside.zero_ms), START_MS, END_MS, WORLD)
    space = search_space(policy, policy.space.defaults, "consolidated")
    found = []
    for now_ms in times_ms:
        engine.run(now_ms)
        snapshot = snapshot_at(engine, now_ms)
        past = watch.past(engine, snapshot, now_ms)
        found.append(
            Scene(snapshot, past, watch.facts, watch.first_row, CLUSTER, "tiresias", environment, space)
        )
    return found


def test_arrivals_are_kept_and_those_past_are_dropped() -> None:
    main, later = scenes(16 * HOUR_MS, 16 * HOUR_MS + 40 * MINUTE_MS)
    generation = Generation(HOW, Seeds(0))
    first, again = generation.situations(main, 2), generation.again(later, 2)
    assert len(again) == 2
    for one, same in zip(first, again, strict=True):
        coming, kept = (each.workload.facts[len(each.snapshot.jobs) :] for each in (one, same))
        assert list(kept) == [facts for facts in coming if facts.submit_ms >= later.now_ms]
        assert 0 < len(kept) < len(coming)
        assert same.until_ms == later.now_ms + HOW.run_on_ms
    assert len(generation.again(later, 1)) == 1


def test_what_jobs_have_left_is_forecast_from_what_is_known_now() -> None:
    """Lindy: as much again as a job has run by now, not as it had at the main round."""
    main, later = scenes(16 * HOUR_MS, 16 * HOUR_MS + 40 * MINUTE_MS)
    generation = Generation(HOW, Seeds(0))
    generation.situations(main, 1)
    one = generation.again(later, 1)[0]
    jobs = [job for job in one.snapshot.jobs if job.done]
    assert jobs
    for job in jobs:
        assert abs(one.workload.duration_ms[job.id] - 2 * job.done // 1_000_000) <= 2


@pytest.mark.parametrize("choice", ["last-hour", "yesterday"])
def test_backtested_arrivals_are_those_of_the_method_that_the_backtest_names(
    choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With so little history it names the first choice."""
    monkeypatch.setattr(backtest, "FIRST_CHOICE", choice)
    (scene,) = scenes(16 * HOUR_MS)
    found, same = (
        Generation(replace(HOW, arrivals=method), Seeds(0)).situations(scene, 1)[0].workload
        for method in ("backtested", choice)
    )
    assert found.facts == same.facts
    assert len(found) > len(scene.snapshot.jobs)
