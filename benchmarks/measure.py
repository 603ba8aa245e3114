"""The measurements, as pytest-benchmark takes them; `speed.py` runs them and makes the table."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

import forks
import latency
from cases import CASES, WHOLE, Case, Inputs
from latency import LATENCIES
from trimtab.objective import find_objective
from trimtab.simulate.engines import Simulation
from trimtab.simulate.trials import LocalTrials
from trimtab.simulate.whatif import Situation
from trimtab.simulate.workload import Workload
from trimtab.world import cpu_s, wall_s

MANY_JOBS = 200_000  # from here on, a whole call is made once
CANDIDATES, REFERENCE_CANDIDATES, BATCH = 100, 5, 2000
CORES = 2

every_case = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
cpu_time = pytest.mark.benchmark(timer=cpu_s)
wall_time = pytest.mark.benchmark(timer=wall_s)


@cpu_time
@every_case
def test_engine(benchmark: Any, case: Case, inputs: Inputs, runs: int) -> None:
    """The compiled engine alone; its state is made before."""
    _time_engine(benchmark, case, inputs.workload(case.source), "compiled", runs)


@cpu_time
@every_case
def test_reference(benchmark: Any, case: Case, inputs: Inputs) -> None:
    """The reference engine alone, once."""
    _time_engine(benchmark, case, inputs.workload(case.source), "reference", 1)


def _time_engine(benchmark: Any, case: Case, workload: Workload, engine: str, runs: int) -> None:
    def prepared() -> tuple[tuple[Simulation], dict[str, Any]]:
        return (case.simulation(workload, engine, timeline=False),), {}

    done = benchmark.pedantic(_run, setup=prepared, rounds=runs, warmup_rounds=int(runs > 1))
    benchmark.extra_info.update(jobs=len(workload), events=done.events)


def _run(simulation: Simulation) -> Simulation:
    simulation.run()
    return simulation


@cpu_time
@every_case
def test_whole(benchmark: Any, case: Case, inputs: Inputs, runs: int) -> None:
    """From a workload in Python to results and timeline."""
    workload = inputs.workload(case.source)

    def anew() -> tuple[tuple[Case, Workload], dict[str, Any]]:
        return (case, Workload(workload.facts, workload.duration_ms)), {}  # nothing remembered of it

    benchmark.pedantic(_call, setup=anew, rounds=runs if len(workload) < MANY_JOBS else 1)


def _call(case: Case, workload: Workload) -> object:
    simulation = _run(case.simulation(workload, "compiled"))
    return simulation.outcomes, simulation.timeline


def test_hooks_schedule_as_the_built_in(inputs: Inputs) -> None:
    """The two whose times are compared do the same."""
    workload = inputs.workload("window")
    hooks, built_in = (_run(CASES[name].simulation(workload, "auto")) for name in ("hooks", "by-submit"))
    assert hooks.records == built_in.records


@cpu_time
def test_fork(benchmark: Any, inputs: Inputs, runs: int) -> None:
    """Many candidates on one thread, the situation's state being in the core."""
    one = forks.situation(inputs)
    fast, tried = forks.compiled(one), forks.candidates(CANDIDATES)
    benchmark.pedantic(fast.stays, args=(tried, 1), rounds=runs, warmup_rounds=1)
    benchmark.extra_info.update(
        candidates=CANDIDATES, active=forks.counts(one), events=forks.mean_events(one, tried)
    )


@cpu_time
def test_fork_whole(benchmark: Any, inputs: Inputs, runs: int) -> None:
    """From a situation in Python to the costs of many candidates."""
    one, tried = forks.situation(inputs), forks.candidates(CANDIDATES)
    objective = find_objective("wait")
    benchmark.pedantic(lambda: LocalTrials("compiled").measure(one, tried, objective), rounds=runs)
    benchmark.extra_info.update(candidates=CANDIDATES)


@cpu_time
def test_fork_reference(benchmark: Any, inputs: Inputs) -> None:
    """A few candidates on the reference engine, once."""
    one, tried = forks.situation(inputs), forks.candidates(REFERENCE_CANDIDATES)
    benchmark.pedantic(lambda: [one.stays(knobs) for knobs in tried])
    benchmark.extra_info.update(candidates=REFERENCE_CANDIDATES)


@wall_time
@pytest.mark.parametrize("threads", [1, CORES])
def test_batch(benchmark: Any, inputs: Inputs, runs: int, threads: int) -> None:
    """Thousands of candidates at once on threads, by wall time; the costs are those of one thread."""
    one = forks.situation(inputs)
    fast, tried = forks.compiled(one), forks.candidates(BATCH if not inputs.tiny else CANDIDATES)
    before_s = cpu_s()
    benchmark.pedantic(fast.stays, args=(tried, threads), rounds=runs)
    spent_s = (cpu_s() - before_s) / runs
    same = _costs(one, 1) == _costs(one, threads)
    benchmark.extra_info.update(candidates=len(tried), same=same, cpu_s=spent_s)


def _costs(one: Situation, threads: int) -> list[float]:
    objective = find_objective("wait")
    return LocalTrials("compiled", threads).measure(one, forks.candidates(CANDIDATES), objective)


@cpu_time
@pytest.mark.parametrize("name", LATENCIES)
def test_latency(benchmark: Any, name: str, inputs: Inputs) -> None:
    """Seconds in which something happens, with a thousand jobs running and waiting; once."""
    steps = benchmark.pedantic(latency.steps_of, args=(inputs, name))
    benchmark.extra_info.update(p99_ms=1000 * steps.p99_s, active=steps.active)


@wall_time
def test_evaluate(benchmark: Any) -> None:
    """The command on a fortnight of the trace, in a process of its own, once."""
    command = [sys.executable, "-m", "trimtab", "evaluate", WHOLE, "--policy", "tiresias", "--quiet"]
    place = ["--nodes", "64", "--window", "2017-10-06..2017-10-20"]
    before_s = _children_cpu_s()
    benchmark.pedantic(lambda: subprocess.run([*command, *place], check=True, stdout=subprocess.DEVNULL))
    benchmark.extra_info.update(cpu_s=_children_cpu_s() - before_s)


def _children_cpu_s() -> float:
    spent = os.times()
    return spent.children_user + spent.children_system
