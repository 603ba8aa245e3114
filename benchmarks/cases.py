"""What is simulated: the real traces, repeated and widened, and the engine cases on them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from hooks import HookTiresias
from trimtab.cluster import Cluster
from trimtab.job import JobFacts
from trimtab.policies.catalog import find_policy
from trimtab.policies.policy import Policy
from trimtab.simulate.curves import BUILTIN_CURVES
from trimtab.simulate.engines import Simulation, make_engine
from trimtab.simulate.mix import USUAL_MIX, with_curve_models
from trimtab.simulate.speed import BUILTIN
from trimtab.simulate.state import Environment, flat_restart
from trimtab.simulate.workload import OracleEstimator, Workload
from trimtab.traces.deadlines import with_deadlines
from trimtab.traces.loader import load
from trimtab.traces.trace import Trace
from trimtab.world import Seeds

SHARED = Path(os.environ.get("TRIMTAB_SHARED") or Path(__file__).resolve().parents[2] / "shared")
WINDOW = f"table:{SHARED / 'peers' / 'philly_2w.csv.gz'}"
WHOLE = f"philly:{SHARED / 'data' / 'philly' / 'philly_until_2017-10-31.csv.gz'}"
PROFILED = f"table:{SHARED / 'peers' / 'philly_2w_enriched.csv.gz'}"
DEADLINES = f"chronus:{SHARED / 'data' / 'chronus' / 'trace_job_Philly_SLO.csv.gz'}"
TINY, TINY_JOBS = "synthetic:philly?days=1&seed=1", 300

GPUS_PER_NODE = 8
SPREAD_PPM = 500_000
DAY_MS = 86_400_000
ECHO_MS = 61_000  # between the copies of an arrival in a wide trace


@dataclass(frozen=True)
class Inputs:
    """The workloads by name, the one asked for last kept in memory; tiny ones stand in for tests."""

    tiny: bool = False

    def workload(self, name: str) -> Workload:
        """Return `window`, `profiled`, `whole`, `deadlines`, or one of these with `-xN` or `-wide` behind.

        `profiled` is the window with what each job uses; `deadlines` is Chronus's trace, with models drawn
        for their speed by CPU and memory. `-xN`: N times one after another; `-wide`: every arrival ten
        times, 61 s apart.
        """
        return _workload(name, self.tiny)


@lru_cache(maxsize=1)
def _workload(name: str, tiny: bool) -> Workload:
    base, _, change = name.partition("-")
    sources = {"window": WINDOW, "whole": WHOLE, "profiled": PROFILED, "deadlines": DEADLINES}
    trace = load(TINY if tiny else sources[base])
    if base == "deadlines":
        workload = _with_deadlines(trace, tiny)
    else:
        workload = Workload.of(trace, spread_ppm=SPREAD_PPM)
    if tiny:
        workload = Workload(workload.facts[:TINY_JOBS], workload.duration_ms[:TINY_JOBS])
    if change == "wide":
        return copies(workload, 10, ECHO_MS)
    return copies(workload, int(change[1:]), _period_ms(workload)) if change else workload


def _with_deadlines(trace: Trace, tiny: bool) -> Workload:
    seeds = Seeds(0)
    told = with_deadlines(trace, "chronus", "SLO", seeds) if tiny else trace
    drawn = with_curve_models(told, BUILTIN_CURVES, "draw", USUAL_MIX, seeds).trace
    return Workload.of(drawn, spread_ppm=SPREAD_PPM, curves=BUILTIN_CURVES)


def _period_ms(workload: Workload) -> int:
    """Return the days that the arrivals span, in whole days, so that the hours of the day stay."""
    span_ms = workload.facts[-1].submit_ms - workload.facts[0].submit_ms
    return (span_ms // DAY_MS + 1) * DAY_MS


def copies(workload: Workload, count: int, shift_ms: int) -> Workload:
    """Return every job `count` times, each copy `shift_ms` after the one before, in submit order."""
    jobs = [
        (submitted_at(facts, facts.submit_ms + copy * shift_ms), duration_ms)
        for copy in range(count)
        for facts, duration_ms in zip(workload.facts, workload.duration_ms, strict=True)
    ]
    jobs.sort(key=lambda job: job[0].submit_ms)
    return Workload([facts for facts, _ in jobs], [duration_ms for _, duration_ms in jobs])


def submitted_at(job: JobFacts, submit_ms: int, gpus: int | None = None) -> JobFacts:
    """Return the job as submitted at another time, with another width if one is given."""
    return job.submitted(submit_ms)._replace(gpus=job.gpus if gpus is None else gpus)


def environment_of(workload: Workload) -> Environment:
    """Return the world of all cases: consolidated gangs, 62 s to resume, true run times as estimates.

    Jobs that share a GPU have the built-in speeds.
    """
    estimator = OracleEstimator(workload.duration_ms)
    return Environment(restart_ms=flat_restart(62_000), estimator=estimator, speeds=BUILTIN)


@dataclass(frozen=True)
class Case:
    """A simulation: jobs, a policy with knobs, and a cluster of 8-GPU nodes."""

    name: str
    source: str
    policy: type[Policy]
    nodes: int
    knobs: Mapping[str, str] = field(default_factory=dict)

    def simulation(self, workload: Workload, engine: str, timeline: bool = True) -> Simulation:
        """Return the simulation on an engine, not run yet."""
        policy = self.policy()
        return make_engine(
            engine,
            workload,
            Cluster.pool(self.nodes, GPUS_PER_NODE),
            policy,
            policy.space.parse(self.knobs),
            environment_of(workload),
            timeline=timeline,
        )


def _built_in(name: str, source: str, policy: str, nodes: int, **knobs: str) -> Case:
    return Case(name, source, type(find_policy(policy)), nodes, knobs)


CASES = {
    case.name: case
    for case in (
        _built_in("tiresias", "window", "tiresias", 100),
        _built_in("fifo", "window", "fifo", 100),
        _built_in("srtf", "window", "srtf", 80),
        _built_in("srsf", "window", "srsf", 80),
        _built_in("themis", "window", "themis", 80),
        _built_in("lucid", "profiled", "lucid", 100),
        _built_in("chronus", "deadlines", "chronus", 120),
        _built_in("sensascale", "deadlines", "sensascale", 120),
        _built_in("sensascale-plus", "deadlines", "sensascale-plus", 120),
        _built_in("sensascale-x1", "deadlines", "sensascale", 160),
        _built_in("sensascale-x4", "deadlines-x4", "sensascale", 160),
        _built_in("by-submit", "window", "tiresias", 100, in_queue_order="submit"),
        Case("hooks", "window", HookTiresias, 100),
        _built_in("whole", "whole", "tiresias", 100),
        _built_in("x5", "whole-x5", "tiresias", 100),
        _built_in("x20", "whole-x20", "tiresias", 100),
        _built_in("wide", "whole-wide", "tiresias", 1000),
    )
}
