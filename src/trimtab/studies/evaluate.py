"""Walk-forward evaluation: the same fortnight under several ways of choosing the settings.

Each line runs the whole window on one simulated cluster whose state is carried over from hour to hour.
At the start of an hour, a tuned line looks at what it may know, searches, and may change the knobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from trimtab.cluster import Cluster
from trimtab.control.guardrails import Apply, Tenure
from trimtab.control.rounds import Round
from trimtab.errors import ConfigError
from trimtab.knobs import Knobs
from trimtab.policies.catalog import find_policy
from trimtab.report.lines import Evaluation, Line
from trimtab.simulate.engines import Simulation, make_engine
from trimtab.simulate.metrics import jobs_table, metrics_of
from trimtab.simulate.pairs import shared_gpu_s
from trimtab.simulate.run import World
from trimtab.simulate.trials import Trials
from trimtab.simulate.whatif import Situation
from trimtab.studies.ablations import Variant, variants
from trimtab.studies.lines import (
    FROM_WEEK,
    Chooser,
    Forecasted,
    Note,
    Plan,
    Progress,
    Stage,
    Week,
    choosing,
    silent,
    true_situation,
)
from trimtab.studies.segments import segments_of
from trimtab.studies.switching import switching_of
from trimtab.traces.trace import DAY_MS, Trace
from trimtab.world import cpu_s, wall_s

# Eleven years of hours: a longer window is a slip of the pen.
_SEARCHES_MAX = 100_000


def evaluate(
    trace: Trace,
    window: str,
    cluster: Cluster,
    policy: str,
    base: Knobs,
    world: World,
    plan: Plan,
    lines: Sequence[str],
    trials: Trials,
    progress: Progress = lambda text, share: None,
    ablate: Sequence[str] = (),
    note: Note = silent,
) -> Evaluation:
    """Evaluate lines on the jobs submitted in a window; what the trace holds before it is history.

    Args:
        ablate: Parts, each of which is left out of every line that has it, in a line of its own.
        note: Is told what happens as it happens: a `start`, rounds and an `end` of each line.

    Raises:
        UnknownName: If a line or part does not exist.
        InputError: If the window holds no job.
        ConfigError: If a window or a plan is not possible.
    """
    wanted = variants(lines, ablate, plan)
    stage = stage_of(trace, window, cluster, policy, base, world, plan, trials, progress, note)
    week: Week | None = None
    found = []
    for one in wanted:
        if one.line in FROM_WEEK and week is None:
            week = tune_week(stage)
        found.append(_run_line(replace(stage, plan=one.plan), one, week))
    segments = segments_of(found, plan.interval_ms)
    return Evaluation(
        provenance=trace.provenance,
        kept=len(stage.trace),
        window=window,
        first_day=stage.trace.show(stage.trace.zero_ms),
        cluster=cluster,
        policy=policy,
        settings=_settings(world, plan),
        lines=tuple(replace(line, segments=parts) for line, parts in zip(found, segments, strict=True)),
    )


def stage_of(
    trace: Trace,
    window: str,
    cluster: Cluster,
    policy: str,
    base: Knobs,
    world: World,
    plan: Plan,
    trials: Trials,
    progress: Progress,
    note: Note,
) -> Stage:
    """Return what all lines of an evaluation share.

    Raises:
        InputError: If the window holds no job.
        ConfigError: If a window or a plan is not possible.
    """
    inside = trace.window(window)
    start_ms, end_ms = (bound - inside.zero_ms for bound in trace.window_ms(window))
    searches = -(-(end_ms - start_ms) // plan.interval_ms)
    if searches > _SEARCHES_MAX:
        raise ConfigError(
            f"window {window} has {searches:,} intervals, the limit is {_SEARCHES_MAX:,}; nothing was run."
        )
    workload = world.workload(inside)
    return Stage(
        trace, inside, workload, cluster, policy, base, world, plan, trials, start_ms, end_ms, progress, note
    )


def _settings(world: World, plan: Plan) -> dict[str, Any]:
    return {
        "objective": plan.tuning.objective.name,
        "sampler": plan.tuning.sampler,
        "budget": plan.tuning.budget,
        "interval_s": plan.interval_ms / 1000,
        "arrivals_horizon_s": plan.arrivals_ms / 1000,
        "run_on_s": plan.run_on_ms / 1000,
        "threshold": plan.rails.gain_min,
        "aggregate": plan.aggregate,
        "background_s": _background_s(plan.paper_background_ms),
        "plus_background_s": _background_s(plan.plus_background_ms),
        "dwell_s": plan.rails.dwell_ms / 1000,
        "placement": world.placement,
        "restart_cost_s": world.restart_cost_s,
        "estimates": world.estimates,
        **world.measured,
        "seed": world.seed,
    }


def _background_s(every_ms: int | None) -> float | str:
    return "off" if every_ms is None else every_ms / 1000


# ---- fixed-week ----------------------------------------------------------------------------------


def _week_before(trace: Trace, inside: Trace, start_ms: int) -> Trace | None:
    """Return the jobs of the seven days before the window, or None if there are none."""
    submit = trace.column("submit_ms") - inside.zero_ms
    keep = (submit >= start_ms - 7 * DAY_MS) & (submit < start_ms)
    return replace(trace.select(keep), zero_ms=inside.zero_ms) if keep.any() else None


def tune_week(stage: Stage) -> Week:
    """Return what a search on the week before the window found.

    Its run times are known only as far as the window's start: a job of that week still running then is
    replayed with what it had run since its submission.
    """
    history = _week_before(stage.whole, stage.trace, stage.start_ms)
    if history is None:
        return Week(stage.base, {}, "no job before the window: nothing to tune on, the default is kept")
    began = wall_s()
    stage.progress("tuning on the week before", 0.0)
    known = stage.world.workload(_as_of(history, stage.start_ms))
    known = replace(known, curves=())  # how fast jobs really are with how much CPU and memory is not known
    environment = stage.world.environment(known)
    situation = Situation.empty(known, stage.cluster, stage.policy, environment)
    found = stage.search(situation, stage.base, ["fixed-week"], [])
    unit = stage.plan.tuning.objective.unit
    note = (
        f"tuned on {len(known)} jobs of the seven days before the window, {found.simulated} simulations: "
        f"cost {found.costs[found.best]:.1f} {unit} against {found.costs[stage.base]:.1f} {unit} of the "
        "default"
    )
    return Week(found.best, found.costs, note, wall_s() - began)


def _as_of(history: Trace, now_ms: int) -> Trace:
    """Return the history with run times cut to what can have been seen by an instant."""
    longest = pl.lit(now_ms + history.zero_ms) - pl.col("submit_ms")
    return replace(history, jobs=history.jobs.with_columns(pl.min_horizontal("duration_ms", longest)))


# ---- one line ------------------------------------------------------------------------------------


def _run_line(stage: Stage, variant: Variant, week: Week | None) -> Line:
    line = variant.line
    began, cpu_before = wall_s(), cpu_s()
    start = start_knobs(stage, line, week)
    notes: tuple[str, ...] = ()
    seconds: dict[str, float] = {}
    if line in FROM_WEEK and week is not None:
        notes, seconds = (week.note,), {"fixed_week_search": week.search_s}
    stage.note({"kind": "start", "line": variant.name, "knobs": start.jsonable(), "notes": list(notes)})
    engine = new_cluster(stage, start)
    chooser = choosing(stage, line, week)
    rounds = () if chooser is None else walk(stage, variant.name, chooser, engine)
    engine.run()
    table = jobs_table(stage.workload, engine.outcomes, stage.trace)
    assert engine.timeline is not None
    searches = [one.search_s for one in rounds if one.search == "main"] or [0.0]
    seconds |= {
        "wall": wall_s() - began,
        "cpu": cpu_s() - cpu_before,
        "search": sum(one.search_s for one in rounds),
        "search_p50": float(np.percentile(searches, 50)),
        "search_p95": float(np.percentile(searches, 95)),
    }
    timeline = engine.timeline
    metrics = metrics_of(table, stage.cluster, shared_gpu_s(timeline))
    graph = chooser.graph if isinstance(chooser, Forecasted) else None
    drawn = graph.jsonable() if graph else None
    end = {"metrics": metrics, "digest": timeline.digest(), "graph": drawn, "seconds": seconds}
    stage.note({"kind": "end", "line": variant.name, **end})
    return Line(
        name=variant.name,
        meaning=variant.meaning,
        metrics=metrics,
        start_knobs=start,
        rounds=rounds,
        segments={},  # once all lines have run
        switching=switching_of(rounds, stage.plan.rails.dwell_ms / 1000),
        seconds=seconds,
        jobs=table,
        timeline=timeline,
        notes=notes,
        graph=graph,
    )


def start_knobs(stage: Stage, line: str, week: Week | None) -> Knobs:
    """Return the settings that a line starts with."""
    return week.knobs if line in FROM_WEEK and week is not None else stage.base


def new_cluster(stage: Stage, start: Knobs) -> Simulation:
    """Return the empty cluster that a line runs on."""
    policy, environment = find_policy(stage.policy), stage.environment
    engine = stage.world.engine
    return make_engine(engine, stage.workload, stage.cluster, policy, start, environment, timeline=True)


def walk(stage: Stage, line: str, chooser: Chooser, engine: Simulation) -> tuple[Round, ...]:
    """Run the window, searching whenever the line wants to: hourly at least; the last setting stays."""
    rounds: list[Round] = []
    left: list[tuple[Knobs, int]] = []
    since_ms = stage.start_ms
    for count, now_ms in enumerate(chooser.instants):
        stage.progress(line, count / len(chooser.instants))
        engine.run(now_ms)
        before = tuple((knobs, now_ms - left_ms) for knobs, left_ms in reversed(left))
        one = chooser.choose(engine, now_ms, Tenure(now_ms - since_ms, before))
        if isinstance(one.verdict, Apply):
            if stage.plan.realised:
                one = replace(one, realised_gain=_realised_gain(stage, engine, now_ms, one.knobs_after))
            left.append((engine.knobs, now_ms))
            # Its clock begins with its first job: a change before that is made then.
            engine.update(max(now_ms, engine.now_ms), one.knobs_after)
            since_ms = now_ms
        rounds.append(one)
        stage.note({"kind": "round", "line": line, **one.recorded()})
    stage.progress(line, 1.0)
    return tuple(rounds)


def _realised_gain(stage: Stage, engine: Simulation, now_ms: int, knobs: Knobs) -> float:
    """Return the gain that a change at an instant has over none, on what will really happen."""
    situation, objective = true_situation(stage, engine, now_ms), stage.plan.tuning.objective
    kept, changed = stage.trials.measure(situation, [engine.knobs, knobs], objective)
    return objective.gain(kept.cost, changed.cost)
