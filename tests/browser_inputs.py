"""Inputs of the pages: small simulated runs, and an evaluation put together by hand from them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from graphs import graph_of
from trimtab.cluster import Cluster
from trimtab.control.guardrails import Apply, Keep
from trimtab.control.rounds import Round
from trimtab.knobs import Knobs
from trimtab.policies.catalog import find_policy
from trimtab.report.ladder import StudySummary
from trimtab.report.lines import Evaluation, Line
from trimtab.simulate.run import RunResult, World, simulate, simulate_ties
from trimtab.studies.deadline_grid import Grid
from trimtab.studies.deadline_results import summary_of
from trimtab.studies.deadlines import Entry, Study, run_study
from trimtab.traces.deadlines import with_deadlines
from trimtab.traces.synthetic import generate
from trimtab.traces.trace import Trace
from trimtab.world import Seeds

SPEC = "philly?days=2&load=0.3&seed=3"
CLUSTER = Cluster.pool(9, 8)
SETTINGS = {"objective": "wait", "interval": "1h", "budget": 80, "threshold": 1.1, "dwell": "30m", "seed": 7}
MEANINGS = {
    "fixed": "the policy's defaults, never changed",
    "fixed-week": "chosen once, by replaying the seven days before the window",
    "selftune": "hourly, each setting judged on the hour that has just passed",
    "trimtab": "hourly, one forecast hour, one future",
    "oracle": "hourly, with the true arrivals and run times",
}
GRAPH = graph_of(("a", "queue_s"), ("b", "restart_s"), joint=[("queue_s", "restart_s")])
THRESHOLDS = {"fixed": "3600", "fixed-week": "900", "selftune": "1800", "trimtab": "600", "oracle": "300"}


@lru_cache
def history(spec: str = SPEC) -> Trace:
    return generate(spec)


@lru_cache
def run(policy: str, text: str = "", spec: str = SPEC, ties: int = 0) -> RunResult:
    knobs = find_policy(policy).space.parse(dict(part.split("=") for part in text.split(",") if part))
    world = World(seed=7)
    if ties:
        return simulate_ties(history(spec), CLUSTER, policy, knobs, world, ties)
    return simulate(history(spec), CLUSTER, policy, knobs, world)


def runs(ties: int = 0, spec: str = SPEC) -> list[RunResult]:
    chosen = (("fifo", ""), ("srtf", ""), ("tiresias", ""), ("tiresias", "queue_thresholds=600"))
    return [run(policy, text, spec, ties) for policy, text in chosen]


@lru_cache
def runs_with_deadlines() -> list[RunResult]:
    """Return two runs over jobs of which most have a deadline."""
    trace = with_deadlines(history("philly?days=1&load=0.6&seed=3"), "chronus", "50/40/10", Seeds(0))
    spaces = {policy: find_policy(policy).space.defaults for policy in ("fifo", "srtf")}
    return [simulate(trace, CLUSTER, policy, knobs, World(seed=7)) for policy, knobs in spaces.items()]


def study(folder: Path) -> StudySummary:
    """Return what a small study of deadlines found; its cells go to a folder."""
    grid = Grid(
        policies={"in order": "fifo", "short first": "srtf"},
        thin_policies={},
        baselines=("in order",),
        loads=(1.2, 0.8),
        classes=("SLO", "MIX2"),
        mixes=("20/70/10",),
        nodes=("4x12x250",),
        gpus=16,
        thin=0.1,
        seeds=2,
    )
    entries = {
        label: Entry(policy, find_policy(policy).space.defaults) for label, policy in grid.policies.items()
    }
    source = "synthetic:philly?days=1&load=0.4&seed=3"
    asked = Study(source, history(source.removeprefix("synthetic:")).provenance.sha256, grid, entries)
    return summary_of(asked, run_study(asked, folder, 1))


def evaluation(spec: str = SPEC) -> Evaluation:
    lines = tuple(_line(name, spec) for name in MEANINGS)
    trace = history(spec)
    return Evaluation(
        provenance=trace.provenance,
        kept=len(trace),
        window="2024-01-01..2024-01-03",
        first_day="2024-01-01 00:00 UTC",
        cluster=CLUSTER,
        policy="tiresias",
        settings=SETTINGS,
        lines=lines,
    )


def _line(name: str, spec: str) -> Line:
    result = run("tiresias", f"queue_thresholds={THRESHOLDS[name]}", spec)
    hours = int(float(result.jobs["submit_s"].max()) // 3600)  # type: ignore[arg-type]
    return Line(
        name=name,
        meaning=MEANINGS[name],
        metrics=result.metrics,
        start_knobs=result.knobs,
        rounds=() if name.startswith("fixed") else tuple(_rounds(result.knobs, hours)),
        segments=_segments(result),
        seconds={"wall": 12.5, "cpu": 80.0},
        jobs=result.jobs,
        timeline=result.timeline,
        graph=GRAPH if name == "trimtab" else None,
    )


def _rounds(start: Knobs, hours: int) -> list[Round]:
    """Return made-up rounds that change two thresholds, the number of queues and a choice."""
    space, found, before = find_policy("tiresias").space, [], start
    for hour in range(hours):
        low = 300 * 2 ** (hour * 7 % 9)
        texts = {"queue_thresholds": f"{low}/{low * 12}" if hour % 3 else str(low)}
        texts |= {"regrade": ("immediate", "lazy", "new_only")[hour // 8 % 3]}
        texts |= {"promote_knob": "inf" if hour % 11 < 6 else "4"}
        gain = 1 + (hour * 37 % 50) / 100
        best = space.parse(texts, start)
        switch = gain > 1.1 and hour % 2 == 0 and best != before
        reason = f"gain {gain:.3f} reaches 1.1" if switch else f"gain {gain:.3f} is under 1.1"
        found.append(
            Round(
                time_s=3600.0 * hour,
                knobs_before=before,
                best=best,
                verdict=Apply(best, reason) if switch else Keep(reason),
                gain=gain,
                cost_running=600.0 * gain,
                cost_best=600.0,
                trials=80,
                pending=hour % 30,
                running=80,
                arrivals=40,
                search_s=4.2,
            )
        )
        before = found[-1].knobs_after
    return found


def _segments(result: RunResult) -> dict[str, dict[str, float]]:
    jobs = result.jobs
    parts = {"one GPU": jobs.filter(jobs["gpus"] == 1), "gangs": jobs.filter(jobs["gpus"] > 1)}
    return {
        name: {"jobs": part.height, "wait_s_mean": float(part["wait_s"].mean())}  # type: ignore[arg-type]
        for name, part in parts.items()
    }


def renamed(result: RunResult, source: str) -> RunResult:
    """Return a run whose trace claims to be called `source`."""
    return replace(result, provenance=replace(result.provenance, source=source))
