"""One run from a trace to its numbers, and the same run under random orders of simultaneous jobs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from trimtab import __version__
from trimtab.cluster import Cluster, Placement
from trimtab.errors import ConfigError, InputError
from trimtab.forecast.durations import HistoryEstimator
from trimtab.forecast.throughput import Throughput
from trimtab.knobs import Knobs
from trimtab.policies.catalog import find_policy
from trimtab.simulate.engines import engine_name, make_engine
from trimtab.simulate.metrics import Metrics, jobs_table, metrics_of
from trimtab.simulate.pairs import shared_gpu_s
from trimtab.simulate.speed import BUILTIN, SpeedTable
from trimtab.simulate.speed_files import open_speeds
from trimtab.simulate.state import Environment, flat_restart
from trimtab.simulate.workload import Estimator, OracleEstimator, Workload
from trimtab.timeline import Timeline
from trimtab.traces.trace import Provenance, Trace
from trimtab.world import Seeds, cpu_s

ESTIMATES = ("oracle", "predicted", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What all policies of one comparison share: not a knob of any of them.

    Attributes:
        placement: count, consolidated or relaxed.
        restart_cost_s: Flat seconds a preempted job pays to resume, or `chronus`: 60 x 0.5 x (1 + log2 g).
        estimates: Where run-time estimates come from: the truth, the jobs completed so far, nowhere.
        spread_speed: Speed of a gang that is not consolidated (relaxed placement), where `speeds` has none.
        speeds: Where measured speeds come from, see `open_speeds`; with the file's sha256, if that matters.
        models: How jobs get their models: column or draw.
        seed: Root of every random stream.
        engine: auto, compiled or reference; the results are the same.
    """

    placement: Placement = "consolidated"
    restart_cost_s: float | str = 62.0
    estimates: str = "oracle"
    spread_speed: float = 0.5
    seed: int = 0
    engine: str = "auto"
    speeds: str = BUILTIN.source
    speeds_sha256: str = ""
    models: str = "column"

    def speed_table(self) -> SpeedTable:
        """Return the measured speeds.

        Raises:
            InputError: If the file cannot be used, or is not the one it was.
        """
        table = open_speeds(self.speeds)
        if self.speeds_sha256 not in ("", table.sha256):
            raise InputError(f"speeds {self.speeds}: has changed since; nothing was run.")
        return table

    @property
    def measured(self) -> dict[str, str]:
        """Return `speeds` and `models` as far as they were asked for."""
        said = {"speeds": self.speeds, "models": self.models}
        usual = {"speeds": BUILTIN.source, "models": "column"}
        return {name: value for name, value in said.items() if value != usual[name]}

    @property
    def spread_ppm(self) -> int:
        return round(self.spread_speed * 1_000_000)

    def restart_ms(self) -> Callable[[int], int]:
        """Return the restart cost by gang width."""
        if isinstance(self.restart_cost_s, str):
            return chronus_restart_ms
        return flat_restart(round(self.restart_cost_s * 1000))

    def environment(self, workload: Workload) -> Environment:
        """Return the engine's environment for a workload."""
        estimator: Estimator | None = None
        if self.estimates == "oracle":
            estimator = OracleEstimator(workload.duration_ms)
        elif self.estimates == "predicted":
            estimator = HistoryEstimator()
        return Environment(
            placement=self.placement,
            restart_ms=self.restart_ms(),
            estimator=estimator,
            speeds=self.speed_table(),
            pace=Throughput.of([facts.submit_ms for facts in workload.facts]),
        )


def chronus_restart_ms(gpus: int) -> int:
    """Return Chronus's restart cost, 60 s x 0.5 x (1 + log2 g), rounded up to the millisecond."""
    return math.ceil(30_000 * (1 + math.log2(gpus)))


@dataclass(frozen=True, slots=True)
class RunResult:
    """One simulation: its settings, its numbers, each job's fate and every event.

    `spread` gives mean, lowest and highest of each metric over the tie orders, where there were several.
    """

    engine: str
    provenance: Provenance
    kept: int
    unrun: int
    set_aside: Mapping[str, int]
    cluster: Cluster
    policy: str
    knobs: Knobs
    world: World
    cpu_s: float
    events: int
    metrics: Metrics
    jobs: pl.DataFrame
    timeline: Timeline
    spread: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The policy and the knobs that differ from its defaults."""
        defaults = find_policy(self.policy).space.defaults
        changed = {name: value for name, value in self.knobs.items() if defaults[name] != value}
        name = find_policy(self.policy).name
        return f"{name}:{Knobs(changed).text()}" if changed else name

    def jsonable(self) -> dict[str, Any]:
        """Return the object that `simulate --format json` prints."""
        found: dict[str, Any] = {
            "trimtab": __version__,
            "engine": self.engine,
            "trace": {
                "source": self.provenance.source,
                "rows": self.provenance.rows,
                "kept": self.kept,
                "left_out": self.provenance.left_out_counts(),
                "unrun": self.unrun,
                "set_aside": dict(self.set_aside),
                "sha256": self.provenance.sha256,
            },
            "cluster": self.cluster.jsonable(),
            "policy": self.policy,
            "knobs": self.knobs.jsonable(),
            "placement": self.world.placement,
            "restart_cost_s": self.world.restart_cost_s,
            "estimates": self.world.estimates,
            "speeds": self.world.speeds,
            "models": self.world.models,
            "seed": self.world.seed,
            "cpu_s": self.cpu_s,
            "events": self.events,
            "metrics": self.metrics,
            "digest": self.timeline.digest(),
        }
        if self.spread:
            found["spread"] = self.spread
        return found


def simulate(trace: Trace, cluster: Cluster, policy: str, knobs: Knobs, world: World) -> RunResult:
    """Simulate a trace on a cluster under one policy, jobs of one instant in source order.

    Raises:
        ConfigError: If the policy needs estimates and there are none.
    """
    return _run(trace, Workload.of(trace, world.spread_ppm), cluster, policy, knobs, world)


def simulate_ties(
    trace: Trace, cluster: Cluster, policy: str, knobs: Knobs, world: World, tie_seeds: int
) -> RunResult:
    """Simulate in source order, then `tie_seeds` times with simultaneous jobs in random order.

    Order within one instant moves results by several per cent on bursty traces; the spread says how much.
    """
    if tie_seeds < 0:
        raise ConfigError(f"tie-seeds = {tie_seeds}: it must be 0 or more; nothing was run.")
    result = simulate(trace, cluster, policy, knobs, world)
    runs = [result.metrics]
    for seed in range(tie_seeds):
        order = Seeds(world.seed).stream("ties", seed).permutation(len(trace)).tolist()
        workload = Workload.of(trace, world.spread_ppm, order)
        runs.append(_run(trace, workload, cluster, policy, knobs, world).metrics)
    return replace(result, spread=spread_of(runs)) if tie_seeds else result


def spread_of(runs: list[Metrics]) -> dict[str, dict[str, float]]:
    """Return mean, min and max of each metric over several runs; metrics that do not apply are left out."""
    found = {}
    for name in runs[0]:
        values = [value for run in runs if (value := run[name]) is not None]
        if values:
            found[name] = {"mean": float(np.mean(values)), "min": min(values), "max": max(values)}
    return found


def _run(
    trace: Trace, workload: Workload, cluster: Cluster, policy: str, knobs: Knobs, world: World
) -> RunResult:
    before = cpu_s()
    engine = make_engine(
        world.engine,
        workload,
        cluster,
        find_policy(policy),
        knobs,
        world.environment(workload),
        timeline=True,
    )
    engine.run()
    spent = cpu_s() - before
    table = jobs_table(workload, engine.outcomes, trace)
    assert engine.timeline is not None
    return RunResult(
        engine=engine_name(engine),
        provenance=trace.provenance,
        kept=len(trace),
        unrun=trace.unrun.height,
        set_aside=trace.set_aside,
        cluster=cluster,
        policy=policy,
        knobs=knobs,
        world=world,
        cpu_s=spent,
        events=engine.events,
        metrics=metrics_of(table, cluster, shared_gpu_s(engine.timeline)),
        jobs=table,
        timeline=engine.timeline,
    )
