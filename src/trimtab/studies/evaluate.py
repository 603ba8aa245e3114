"""Walk-forward evaluation: the same fortnight under several ways of choosing the settings.

Each line runs the whole window on one simulated cluster whose state is carried over from hour to hour.
At the start of an hour, a tuned line looks at what it may know, searches, and may change the knobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from trimtab.cluster import Cluster
from trimtab.control.guardrails import Apply, Guardrails, judge
from trimtab.control.rounds import Round
from trimtab.errors import ConfigError, UnknownName
from trimtab.job import JobState
from trimtab.knobs import Knobs
from trimtab.policies.catalog import find_policy
from trimtab.report.lines import Evaluation, Line
from trimtab.search.spaces import search_space
from trimtab.search.tuner import Search, Tuning, search
from trimtab.simulate.engines import Simulation, make_engine
from trimtab.simulate.metrics import jobs_table, metrics_of
from trimtab.simulate.run import World
from trimtab.simulate.state import Environment
from trimtab.simulate.trials import Trials
from trimtab.simulate.whatif import Situation
from trimtab.simulate.workload import Workload
from trimtab.studies.futures import last_hour_again, oracle_future
from trimtab.traces.trace import DAY_MS, Trace
from trimtab.world import Seeds, cpu_s, wall_s

LINES = {
    "fixed": "the policy's default settings, never changed",
    "fixed-week": "tuned once, on the seven days before the window replayed from an empty cluster",
    "selftune": "tuned every hour on the last hour's jobs",
    "oracle": "tuned every hour knowing the true future: what perfect forecasts would give this search",
}

# Settings that did best at the last search are the first to be tried at the next.
_LEADERS = 4

# Eleven years of hours: a longer window is a slip of the pen.
_SEARCHES_MAX = 100_000

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How an evaluation is done; times in ms.

    Attributes:
        tuning: Objective, sampler and budget of each search.
        rails: Gain threshold and dwell of the tuned lines; 1 takes any gain, as selftune and oracle do.
        interval_ms: Time between searches.
        arrivals_ms: How far into the future arrivals are taken (oracle).
        run_on_ms: How long a candidate's simulation runs on; scoring the next hour alone is myopic.
    """

    tuning: Tuning
    rails: Guardrails
    interval_ms: int = 3_600_000
    arrivals_ms: int = DAY_MS
    run_on_ms: int = 2 * DAY_MS

    def __post_init__(self) -> None:
        for name in ("interval_ms", "arrivals_ms", "run_on_ms"):
            if getattr(self, name) <= 0:
                option = name.removesuffix("_ms").replace("_", "-")
                raise ConfigError(f"{option} must be longer than nothing; nothing was run.")


@dataclass(frozen=True)
class Stage:
    """What all lines of an evaluation share."""

    trace: Trace
    workload: Workload
    cluster: Cluster
    policy: str
    base: Knobs
    world: World
    plan: Plan
    trials: Trials
    start_ms: int
    end_ms: int
    progress: Progress

    @property
    def environment(self) -> Environment:
        return self.world.environment(self.workload)

    def search(
        self, situation: Situation, running: Knobs, name: Sequence[object], first: Sequence[Knobs]
    ) -> Search:
        """Search one situation with the evaluation's tuning."""
        space = search_space(find_policy(self.policy), self.base, self.world.placement)
        tuning = self.plan.tuning
        return search(
            lambda knobs: [one.cost for one in self.trials.measure(situation, knobs, tuning.objective)],
            space,
            running,
            tuning,
            Seeds(self.world.seed + _number(name)),
            first,
        )


def _number(name: Sequence[object]) -> int:
    """Return a number that differs by line and hour, so that each search has streams of its own."""
    return int(Seeds(0).stream("search", *name).integers(1 << 40))


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
) -> Evaluation:
    """Evaluate lines on the jobs submitted in a window; what the trace holds before it is history.

    Raises:
        UnknownName: If a line does not exist.
        InputError: If the window holds no job.
        ConfigError: If a window or a plan is not possible.
    """
    for line in lines:
        if line not in LINES:
            raise UnknownName("line", line, LINES)
        if lines.count(line) > 1:
            raise ConfigError(f"line {line} is named twice; nothing was run.")
    inside = trace.window(window)
    start_ms, end_ms = (bound - inside.zero_ms for bound in trace.window_ms(window))
    searches = -(-(end_ms - start_ms) // plan.interval_ms)
    if searches > _SEARCHES_MAX:
        raise ConfigError(
            f"window {window} has {searches:,} intervals, the limit is {_SEARCHES_MAX:,}; nothing was run."
        )
    workload = Workload.of(inside, world.spread_ppm)
    stage = Stage(inside, workload, cluster, policy, base, world, plan, trials, start_ms, end_ms, progress)
    history = _week_before(trace, inside, start_ms)
    week: tuple[Knobs, str, float] | None = None
    found = []
    for line in lines:
        if line in ("fixed-week", "oracle") and week is None:
            week = _tune_week(stage, history)
        found.append(_run_line(stage, line, week))
    return Evaluation(
        provenance=trace.provenance,
        kept=len(inside),
        window=window,
        first_day=inside.show(inside.zero_ms),
        cluster=cluster,
        policy=policy,
        settings=_settings(world, plan),
        lines=tuple(found),
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
        "dwell_s": plan.rails.dwell_ms / 1000,
        "placement": world.placement,
        "restart_cost_s": world.restart_cost_s,
        "estimates": world.estimates,
        "seed": world.seed,
    }


# ---- fixed-week ----------------------------------------------------------------------------------


def _week_before(trace: Trace, inside: Trace, start_ms: int) -> Trace | None:
    """Return the jobs of the seven days before the window, or None if there are none."""
    submit = trace.column("submit_ms") - inside.zero_ms
    keep = (submit >= start_ms - 7 * DAY_MS) & (submit < start_ms)
    return replace(trace.select(keep), zero_ms=inside.zero_ms) if keep.any() else None


def _tune_week(stage: Stage, history: Trace | None) -> tuple[Knobs, str, float]:
    """Return the setting tuned on the week before the window, what it rests on, and the seconds it took.

    Its run times are known only as far as the window's start: a job of that week still running then is
    replayed with what it had run since its submission.
    """
    if history is None:
        return stage.base, "no job before the window: nothing to tune on, the default is kept", 0.0
    began = wall_s()
    stage.progress("tuning on the week before", 0.0)
    known = Workload.of(_as_of(history, stage.start_ms), stage.world.spread_ppm)
    environment = stage.world.environment(known)
    situation = Situation.empty(known, stage.cluster, stage.policy, environment)
    found = stage.search(situation, stage.base, ["fixed-week"], [])
    note = (
        f"tuned on {len(known)} jobs of the seven days before the window, {found.simulated} simulations: "
        f"cost {found.costs[found.best]:.1f} s against {found.costs[stage.base]:.1f} s of the default"
    )
    return found.best, note, wall_s() - began


def _as_of(history: Trace, now_ms: int) -> Trace:
    """Return the history with run times cut to what can have been seen by an instant."""
    longest = pl.lit(now_ms + history.zero_ms) - pl.col("submit_ms")
    return replace(history, jobs=history.jobs.with_columns(pl.min_horizontal("duration_ms", longest)))


# ---- one line ------------------------------------------------------------------------------------


def _run_line(stage: Stage, line: str, week: tuple[Knobs, str, float] | None) -> Line:
    began, cpu_before = wall_s(), cpu_s()
    start = stage.base
    notes: tuple[str, ...] = ()
    seconds: dict[str, float] = {}
    if line in ("fixed-week", "oracle") and week is not None:
        start, note, tuned_s = week
        notes, seconds = (note,), {"fixed_week_search": tuned_s}
    engine = make_engine(
        stage.world.engine,
        stage.workload,
        stage.cluster,
        find_policy(stage.policy),
        start,
        stage.environment,
        timeline=True,
    )
    rounds = _walk(stage, line, engine) if line in ("selftune", "oracle") else ()
    engine.run()
    table = jobs_table(stage.workload, engine.outcomes, stage.trace)
    assert engine.timeline is not None
    searches = [one.search_s for one in rounds] or [0.0]
    seconds |= {
        "wall": wall_s() - began,
        "cpu": cpu_s() - cpu_before,
        "search": sum(searches),
        "search_p50": float(np.percentile(searches, 50)),
        "search_p95": float(np.percentile(searches, 95)),
    }
    return Line(
        name=line,
        meaning=LINES[line],
        metrics=metrics_of(table, stage.cluster),
        start_knobs=start,
        rounds=rounds,
        segments=segments_of(table, stage.plan.interval_ms),
        seconds=seconds,
        jobs=table,
        timeline=engine.timeline,
        notes=notes,
    )


def _walk(stage: Stage, line: str, engine: Simulation) -> tuple[Round, ...]:
    """Run the window hour by hour, searching at the start of each hour; the last setting stays."""
    rounds: list[Round] = []
    leaders: list[Knobs] = []
    since_ms = stage.start_ms
    times = range(stage.start_ms, stage.end_ms, stage.plan.interval_ms)
    for count, now_ms in enumerate(times):
        stage.progress(line, count / len(times))
        engine.run(now_ms)
        situation = _future(stage, line, engine, now_ms)
        one, leaders = _round(stage, [line, count], engine, situation, now_ms - since_ms, leaders)
        if isinstance(one.verdict, Apply):
            # Its clock begins with its first job: a change before that is made then.
            engine.update(max(now_ms, engine.now_ms), one.verdict.knobs)
            since_ms = now_ms
        rounds.append(one)
    stage.progress(line, 1.0)
    return tuple(rounds)


def _future(stage: Stage, line: str, engine: Simulation, now_ms: int) -> Situation:
    plan = stage.plan
    if line == "selftune":
        return last_hour_again(
            engine, now_ms, stage.workload, stage.policy, stage.environment, plan.interval_ms
        )
    return oracle_future(
        engine, now_ms, stage.workload, stage.policy, stage.environment, plan.arrivals_ms, plan.run_on_ms
    )


def _round(
    stage: Stage,
    name: list[object],
    engine: Simulation,
    situation: Situation,
    running_for_ms: int,
    leaders: list[Knobs],
) -> tuple[Round, list[Knobs]]:
    """Search one situation and judge the result; return the record and the settings that did best."""
    began = wall_s()
    found = stage.search(situation, engine.knobs, name, leaders)
    verdict = judge(
        engine.knobs, running_for_ms, found.best, found.gain, stage.plan.rails, found.costs[engine.knobs]
    )
    states = [job.state for job in situation.snapshot.jobs]
    one = Round(
        time_s=situation.snapshot.now_ms / 1000,
        knobs_before=engine.knobs,
        verdict=verdict,
        gain=found.gain,
        cost_running=found.costs[engine.knobs],
        cost_best=found.costs[found.best],
        trials=found.simulated,
        pending=states.count(JobState.PENDING),
        running=states.count(JobState.RUNNING),
        arrivals=len(situation.workload) - len(states),
        search_s=wall_s() - began,
    )
    return one, leaders if found.idle else found.leaders(_LEADERS)


def segments_of(table: pl.DataFrame, interval_ms: int) -> dict[str, dict[str, float]]:
    """Return mean wait by the kind of hour a job was submitted in.

    Hours with at least one submission are ranked by how many jobs they brought: the lower third is the
    trough, the upper third the peak, the top twentieth bursts (which are peak, too).
    """
    hours = (pl.col("submit_s") * 1000 // interval_ms).alias("hour")
    jobs = table.filter(~pl.col("rejected")).with_columns(hours)
    jobs = jobs.with_columns(pl.len().over("hour").alias("crowd"))
    if jobs.is_empty():
        return {}
    crowds = np.sort(jobs.group_by("hour").len()["len"].to_numpy())
    low, high, burst = (
        int(crowds[min(len(crowds) - 1, int(len(crowds) * part))]) for part in (1 / 3, 2 / 3, 0.95)
    )
    crowd = pl.col("crowd")
    parts = {
        "trough": crowd < low,
        "middle": (crowd >= low) & (crowd < high),
        "peak": crowd >= high,
        "burst": crowd >= burst,
    }
    found = {}
    for name, rule in parts.items():
        some = jobs.filter(rule & pl.col("wait_s").is_not_null())
        if some.height:
            waits = some["wait_s"].to_numpy()
            p99 = float(np.percentile(waits, 99))
            found[name] = {"jobs": some.height, "wait_s_mean": float(waits.mean()), "wait_s_p99": p99}
    return found
