"""Small random job histories for walk-forward tests, and the same histories with another future."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from trimtab.cluster import Cluster
from trimtab.control.guardrails import Guardrails
from trimtab.objective import find_objective
from trimtab.policies.catalog import find_policy
from trimtab.report.lines import Evaluation, Line
from trimtab.search.tuner import Tuning
from trimtab.simulate.run import World
from trimtab.simulate.trials import LocalTrials, Trials
from trimtab.studies.evaluate import evaluate
from trimtab.studies.lines import Plan
from trimtab.traces.trace import Provenance, Trace

HOUR_MS = 3_600_000
CLUSTER = Cluster.pool(2, 4)
WINDOW = "12h..22h"
START_MS, END_MS = 12 * HOUR_MS, 22 * HOUR_MS
WORLD = World(restart_cost_s=30.0)


def table(rows: list[dict[str, Any]]) -> Trace:
    """Return a trace of rows with `job_id, submit_ms, duration_ms, gpus`."""
    kinds = {"job_id": pl.String, "submit_ms": pl.Int64, "duration_ms": pl.Int64, "gpus": pl.Int64}
    return Trace.build(pl.DataFrame(rows, schema=kinds), Provenance("table:small", "0" * 64, len(rows)))


def history(seed: int, jobs: int = 130) -> Trace:
    """Return a day of jobs in which short and long ones compete, some submitted at the same instant."""
    dice = np.random.default_rng(seed)
    submit_ms = np.sort(dice.integers(0, 24 * HOUR_MS, jobs)) // 120_000 * 120_000
    rows = [_job(f"j{place}", int(at), dice) for place, at in enumerate(submit_ms)]
    return table(rows)


def days(count: int, seed: int) -> Trace:
    """Return days of 300 jobs, one after another: enough for models of run times and of settings."""
    rows = [
        {**job, "job_id": f"{day} {job['job_id']}", "submit_ms": job["submit_ms"] + 24 * day * HOUR_MS}
        for day in range(count)
        for job in history(10 * seed + day, 300).jobs.iter_rows(named=True)
    ]
    return table(rows)


def _job(name: str, submit_ms: int, dice: np.random.Generator) -> dict[str, Any]:
    duration_ms = int(np.exp(dice.normal(np.log(900_000), 1.6)))
    return {
        "job_id": name,
        "submit_ms": submit_ms,
        "duration_ms": min(duration_ms, 12 * HOUR_MS),
        "gpus": int(dice.choice([1, 1, 1, 2, 4, 8])),
    }


def plan(budget: int = 5, **changes: Any) -> Plan:
    """Return hourly searches that look six hours ahead and run on for twelve."""
    tuning = Tuning(objective=find_objective("wait"), budget=budget)
    found = Plan(
        tuning=tuning,
        rails=Guardrails(gain_min=1.0),
        arrivals_ms=6 * HOUR_MS,
        run_on_ms=12 * HOUR_MS,
        belief_min=0.0,  # the histories are shorter than a day
    )
    return replace(found, **changes)


def walk(
    trace: Trace,
    *lines: str,
    how: Plan | None = None,
    world: World = WORLD,
    policy: str = "tiresias",
    trials: Trials | None = None,
    window: str = WINDOW,
    cluster: Cluster = CLUSTER,
    ablate: Sequence[str] = (),
) -> Evaluation:
    """Evaluate lines on a small cluster, by default in this process."""
    base, trials = find_policy(policy).space.defaults, trials or LocalTrials()
    return evaluate(trace, window, cluster, policy, base, world, how or plan(), lines, trials, ablate=ablate)


def decisions(line: Line, until_ms: int) -> tuple[Any, ...]:
    """Return all that a line had decided up to and including an instant, clocks left out.

    That is where it started, its rounds, and the events before the instant: those at it happen after.
    """
    rounds = [
        {key: value for key, value in one.jsonable().items() if key != "search_s"}
        for one in line.rounds
        if one.time_s * 1000 <= until_ms
    ]
    events = [
        (event.time_ms, event.kind, event.job, event.nodes, event.detail)
        for event in line.timeline.events
        if event.time_ms < until_ms
    ]
    return line.start_knobs, rounds, events


def outcome(found: Evaluation) -> list[Any]:
    """Return all of an evaluation but what clocks say."""
    lines = []
    for line in found.lines:
        plain = {key: value for key, value in line.jsonable().items() if key != "seconds"}
        plain["hours"] = [{**hour, "search_s": None} for hour in plain["hours"]]
        lines.append(plain)
    return lines


def another_future(
    trace: Trace,
    line: Line,
    at_ms: int,
    dice: np.random.Generator,
    start_ms: int = START_MS,
    end_ms: int = END_MS,
) -> Trace:
    """Return the same past with another future: other arrivals from an instant on, other endings after it.

    Of the jobs there, those that the line had not started may run for any time; those it had started and
    not finished run for longer. Jobs from before the window that were still running when it began, too.
    """
    fate = {row["job_id"]: row for row in line.jobs.iter_rows(named=True)}
    rows = []
    for job in trace.jobs.iter_rows(named=True):
        if job["submit_ms"] >= at_ms:
            continue
        seen = fate.get(job["job_id"])
        longer_ms = int(job["duration_ms"] * dice.uniform(1, 5)) + int(dice.integers(0, 1000))
        if seen is None:
            unfinished = job["submit_ms"] + job["duration_ms"] > start_ms
            rows.append({**job, "duration_ms": longer_ms} if unfinished else job)
        elif seen["start_s"] is None or seen["start_s"] * 1000 >= at_ms:
            rows.append({**job, "duration_ms": int(dice.integers(1, 10 * HOUR_MS))})
        elif seen["finish_s"] * 1000 >= at_ms:
            rows.append({**job, "duration_ms": longer_ms})
        else:
            rows.append(job)
    if dice.random() < 0.5:
        later = np.sort(dice.integers(at_ms, end_ms + 4 * HOUR_MS, int(dice.integers(1, 80))))
        rows += [_job(f"new{place}", int(at), dice) for place, at in enumerate(later)]
    elif not any(start_ms <= job["submit_ms"] < end_ms for job in rows):
        rows.append(_job("alone", max(at_ms, start_ms), dice))  # a window must hold a job
    return table(rows)
