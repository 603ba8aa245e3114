"""Walk-forward evaluation: its state is carried over, its result is one thing however it is computed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from histories import CLUSTER, END_MS, HOUR_MS, START_MS, WINDOW, WORLD, history, outcome, plan, table, walk
from trimtab.cluster import Cluster
from trimtab.control.guardrails import Guardrails
from trimtab.errors import ConfigError, InputError, UnknownName
from trimtab.policies.catalog import find_policy
from trimtab.report.lines import Line
from trimtab.search.tuner import Tuning
from trimtab.simulate.engine import Engine
from trimtab.simulate.run import World, simulate
from trimtab.simulate.trials import LocalTrials, open_trials
from trimtab.simulate.workload import Workload
from trimtab.studies.futures import last_hour_again, oracle_future
from trimtab.studies.lines import LINES
from trimtab.studies.tune import tune_at
from trimtab.traces.trace import Trace

LEARNT = World(restart_cost_s=30.0, estimates="predicted")


@pytest.mark.parametrize("policy", ["tiresias", "srtf", "qssf"])
def test_settings_that_never_change_give_the_plain_simulation(policy: str) -> None:
    """`fixed`, and selftune with a budget of its own setting only, are one run of the window's jobs."""
    trace, knobs = history(4), find_policy(policy).space.defaults
    plain = simulate(trace.window(WINDOW), CLUSTER, policy, knobs, WORLD)
    for line in walk(trace, "fixed", "selftune", policy=policy, how=plan(budget=1)).lines:
        assert line.timeline.digest() == plain.timeline.digest()
        assert line.metrics == plain.metrics


@pytest.mark.parametrize("seed", [1, 2, 5])
@pytest.mark.parametrize(("policy", "world"), [("tiresias", WORLD), ("qssf", LEARNT), ("srtf", WORLD)])
def test_a_line_is_its_switches_as_hot_updates(policy: str, world: World, seed: int) -> None:
    """State is carried over: one uninterrupted engine, told the same settings at the same instants."""
    trace = history(seed)
    found = walk(trace, "selftune", "oracle", policy=policy, world=world)
    for line in found.lines:
        workload = Workload.of(trace.window(WINDOW), world.spread_ppm)
        environment = world.environment(workload)
        engine = Engine(workload, CLUSTER, find_policy(policy), line.start_knobs, environment, timeline=True)
        for one in line.rounds:
            if one.switched:
                engine.update(round(one.time_s * 1000), one.knobs_after)
        engine.run()
        assert engine.timeline is not None
        assert engine.timeline.digest() == line.timeline.digest()


@pytest.mark.parametrize("policy", ["tiresias", "srtf"])
def test_the_engines_evaluate_alike(policy: str) -> None:
    """Searches, switches and every event of every line are the same on both engines."""
    found = [
        outcome(walk(history(3), *LINES, policy=policy, world=replace(WORLD, engine=kind), trials=trials))
        for kind, trials in (("reference", LocalTrials("reference")), ("auto", LocalTrials("auto")))
    ]
    assert any(line["switches"] for line in found[0])
    assert found[0] == found[1]


def test_switches_happen_and_are_booked() -> None:
    line = walk(history(1), "selftune").lines[0]
    assert line.switches > 0
    times = [one.time_s * 1000 for one in line.rounds]
    assert times == list(range(START_MS, END_MS, HOUR_MS))
    told = [event.time_ms for event in line.timeline.events if event.kind == "knobs"]
    assert told == [one.time_s * 1000 for one in line.rounds if one.switched]
    for earlier, later in zip(line.rounds, line.rounds[1:], strict=False):
        assert later.knobs_before == earlier.knobs_after
    assert all(one.trials <= 5 for one in line.rounds)


_SCRIPT = """
import json
from histories import history, outcome, walk
print(json.dumps(outcome(walk(history(2), "fixed-week", "selftune", "oracle"))))
"""


def test_the_result_does_not_depend_on_where_and_how_often() -> None:
    """Local and on two processes, twice in one process, and in processes with other hash seeds."""
    trace, lines = history(2), ("fixed-week", "selftune", "oracle")
    first = outcome(walk(trace, *lines))
    assert outcome(walk(trace, *lines)) == first
    for workers in (1, 2):
        with open_trials("processes", workers) as trials:
            assert outcome(walk(trace, *lines, trials=trials)) == first
    for seed in ("0", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        ran = subprocess.run(
            [sys.executable, "-c", _SCRIPT], env=environment, capture_output=True, text=True, check=True
        )
        assert json.loads(ran.stdout) == json.loads(json.dumps(first))


# ---- what a trial predicts is what happens ---------------------------------------------------------


# At (5, 20) a job attains its threshold at the very instant: it sinks there in the trial, too.
@pytest.mark.parametrize("seed", range(1, 7))
@pytest.mark.parametrize("hour", [13, 16, 20])
def test_the_running_settings_trial_on_the_true_future_comes_true(seed: int, hour: int) -> None:
    """For each job that ends within the run-on horizon: the same end, and idle = its wait after now."""
    now_ms, run_on_ms = hour * HOUR_MS, 3 * HOUR_MS
    workload = Workload.of(history(seed).window(WINDOW), WORLD.spread_ppm)
    environment, policy = WORLD.environment(workload), find_policy("tiresias")
    knobs = policy.space.parse({"queue_thresholds": "600/4000", "promote_knob": "2"})
    engine = Engine(workload, CLUSTER, policy, knobs, environment)
    engine.run(now_ms)
    situation = oracle_future(engine, now_ms, workload, "tiresias", environment, 24 * HOUR_MS, run_on_ms)
    stays = situation.stays(knobs)
    before = {job.id: job for job in engine.snapshot().jobs}
    engine.run()
    ids = {facts.label: job for job, facts in enumerate(workload.facts)}
    ended = real_ms = predicted_ms = 0
    # Nothing is rejected here, so stays are those of the situation's first jobs; the last do not arrive.
    for facts, age_ms, idle_ms in zip(
        situation.workload.facts, stays.age_ms.tolist(), stays.idle_ms.tolist(), strict=False
    ):
        job = ids[facts.label]
        finish_ms = engine.records[job].finish_ms
        assert finish_ms is not None
        if finish_ms >= now_ms + run_on_ms:
            continue
        submit_ms = workload.facts[job].submit_ms
        assert age_ms == finish_ms - submit_ms
        wait_ms = finish_ms - submit_ms - workload.duration_ms[job]
        if job in before:
            wait_ms -= now_ms - submit_ms - before[job].done // 1_000_000
        real_ms, predicted_ms, ended = real_ms + wait_ms, predicted_ms + idle_ms, ended + 1
    assert ended > 5
    assert predicted_ms == real_ms


# ---- what each line knows ---------------------------------------------------------------------------


def test_selftune_sees_its_own_guesses_even_as_estimates() -> None:
    """A policy that orders by oracle estimates is told this future's run times, not the true ones."""
    trace = history(3)
    workload = Workload.of(trace.window(WINDOW), WORLD.spread_ppm)
    environment, policy = WORLD.environment(workload), find_policy("srtf")
    engine = Engine(workload, CLUSTER, policy, policy.space.defaults, environment)
    engine.run(16 * HOUR_MS)
    situation = last_hour_again(engine, 16 * HOUR_MS, workload, "srtf", environment, HOUR_MS)
    jobs = situation.snapshot.jobs
    assert len(jobs) > 3
    assert [job.estimate_ms for job in jobs] == list(situation.workload.duration_ms[: len(jobs)])
    for job in jobs:
        done_ms = -(-job.done // 1_000_000)
        assert situation.workload.duration_ms[job.id] == done_ms + max(job.held_ms, 60_000)
    arrivals = [facts.submit_ms for facts in situation.workload.facts[len(jobs) :]]
    assert arrivals
    assert all(16 * HOUR_MS <= at < 17 * HOUR_MS for at in arrivals)


def test_lines_start_where_they_are_said_to() -> None:
    lines = {line.name: line for line in walk(history(2), *LINES).lines}
    defaults, week = find_policy("tiresias").space.defaults, lines["fixed-week"]
    assert lines["fixed"].start_knobs == lines["selftune"].start_knobs == defaults
    tuned = ("trimtab", "trimtab-plus", "oracle")
    assert all(lines[name].start_knobs == week.start_knobs != defaults for name in tuned)
    assert "tuned on" in week.notes[0]
    assert all("seconds" not in note for note in week.notes)


def test_without_history_the_week_is_the_default() -> None:
    trace = history(1).window("12h..24h")
    week = walk(trace, "fixed-week").lines[0]
    assert week.start_knobs == find_policy("tiresias").space.defaults
    assert week.notes == ("no job before the window: nothing to tune on, the default is kept",)


# ---- windows and traces at the edge -----------------------------------------------------------------


def _line(trace: Trace, name: str, **options: Any) -> Line:
    return walk(trace, name, **options).lines[0]


def test_a_window_may_be_longer_than_the_trace() -> None:
    line = _line(history(2), "oracle", window="12h..60h")
    assert len(line.rounds) == 48
    assert line.metrics["jobs"] == line.metrics["finished"]
    idle = line.rounds[-1]
    assert (idle.pending, idle.running, idle.arrivals, idle.trials) == (0, 0, 0, 1)
    assert idle.verdict.reason == "the running setting costs nothing: there is nothing to gain"


def test_an_interval_may_be_longer_than_the_window() -> None:
    for name in ("selftune", "oracle"):
        line = _line(history(2), name, how=plan(interval_ms=30 * HOUR_MS))
        assert len(line.rounds) == 1
        assert line.metrics["jobs"] == line.metrics["finished"]


@pytest.mark.parametrize("line", ["selftune", "oracle"])
def test_hours_before_the_first_arrival_are_rounds_like_any(line: str) -> None:
    """Jobs come from 14:05 on; a change at 14:00 without a dwell must find its way into the run."""
    trace = history(2).window("14h..24h")
    late = trace.select(trace.column("submit_ms") > 14 * HOUR_MS + 300_000)
    found = _line(late, line, how=plan(rails=Guardrails(dwell_ms=0)))
    assert [one.time_s * 1000 for one in found.rounds] == list(range(START_MS, END_MS, HOUR_MS))
    assert [one.arrivals == 0 for one in found.rounds[:3]] == 3 * [line == "selftune"]
    assert found.metrics["jobs"] == found.metrics["finished"]
    assert found.switches > 0


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("job", [(0, 1), (60_000, 4), (60_000, 9)], ids=["no length", "fits", "too wide"])
def test_one_single_job(line: str, job: tuple[int, int]) -> None:
    duration_ms, gpus = job
    one = {"job_id": "only", "submit_ms": START_MS + 5, "duration_ms": duration_ms, "gpus": gpus}
    found = _line(table([one]), line)
    fits = gpus <= CLUSTER.gpus
    assert found.metrics["finished"] == int(fits)
    assert found.metrics["rejected"] == int(not fits)
    assert found.metrics["wait_s_mean"] == (0.0 if fits else None)
    assert found.switches == 0
    assert set(found.segments) == ({"peak", "burst"} if fits else set())


def test_what_cannot_be_evaluated_is_refused() -> None:
    trace = history(1)
    with pytest.raises(UnknownName, match="fixed-week"):
        walk(trace, "fixed-wek")
    with pytest.raises(ConfigError, match="named twice"):
        walk(trace, "fixed", "fixed")
    with pytest.raises(InputError, match=r"the trace spans 0\.\d\dd \.\. "):
        walk(trace, "fixed", window="50h..60h")
    with pytest.raises(ConfigError, match="the limit is 100,000"):
        walk(trace, "fixed", how=plan(interval_ms=1))
    for name in ("interval_ms", "arrivals_ms", "run_on_ms"):
        with pytest.raises(ConfigError, match="longer than nothing"):
            plan(**{name: 0})


def test_quiet_hours_cost_one_simulation_and_keep_their_leaders() -> None:
    """On a cluster far too large nothing ever waits."""
    line = _line(history(1), "oracle", cluster=Cluster.pool(50, 8), how=plan(budget=20))
    assert {one.trials for one in line.rounds} == {1}
    assert line.switches == 0


def test_tuning_at_an_instant_agrees_with_the_oracles_first_round() -> None:
    """`tune` is one round: from the same state and future, the same costs."""
    trace, knobs = history(2), find_policy("tiresias").space.defaults
    how = replace(plan(), tuning=Tuning(objective=plan().tuning.objective, sampler="sobol", budget=6))
    with open_trials("local", 1) as trials:
        tuned = tune_at(trace, 15 * HOUR_MS, CLUSTER, "tiresias", knobs, WORLD, how, trials)
        again = tune_at(trace, 15 * HOUR_MS, CLUSTER, "tiresias", knobs, WORLD, how, trials)
    assert tuned.jsonable() == again.jsonable()
    assert tuned.search.simulated == 6
    workload = Workload.of(replace(trace, zero_ms=15 * HOUR_MS), WORLD.spread_ppm)
    environment = WORLD.environment(workload)
    engine = Engine(workload, CLUSTER, find_policy("tiresias"), knobs, environment)
    engine.run(0)
    situation = oracle_future(engine, 0, workload, "tiresias", environment, how.arrivals_ms, how.run_on_ms)
    for setting, cost in tuned.search.costs.items():
        assert how.tuning.objective.of(situation.stays(setting)).cost == cost
    with pytest.raises(InputError, match="no job runs, waits or arrives then; the trace spans"):
        tune_at(trace, 100 * HOUR_MS, CLUSTER, "tiresias", knobs, WORLD, how, trials)


def test_a_threshold_holds_for_every_tuned_line() -> None:
    """Any gain is taken by default; what does not reach a threshold is kept, with the gain in the reason."""
    trace = history(2)
    free = walk(trace, "oracle", how=replace(plan(), rails=Guardrails(gain_min=1.0))).lines[0]
    assert free.switches > 0
    largest = max(one.gain for one in free.rounds)
    bound = walk(trace, "oracle", how=replace(plan(), rails=Guardrails(gain_min=10 * largest))).lines[0]
    assert bound.switches == 0
    assert all("is under" in one.verdict.reason for one in bound.rounds if one.gain > 1)
