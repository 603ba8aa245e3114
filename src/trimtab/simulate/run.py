"""One run from a trace to its numbers, and the same run under random orders of simultaneous jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from trimtab import __version__
from trimtab.cluster import Cluster, Placement
from trimtab.errors import ConfigError, InputError, UnknownName
from trimtab.forecast.durations import HistoryEstimator
from trimtab.forecast.throughput import Throughput
from trimtab.knobs import Knobs
from trimtab.policies.catalog import find_policy
from trimtab.policies.chronus import resume_ms
from trimtab.policies.lease_milp import recorded
from trimtab.simulate.curve_files import open_curves
from trimtab.simulate.curves import CurveTable
from trimtab.simulate.engines import engine_name, make_engine
from trimtab.simulate.metrics import Metrics, jobs_table, metrics_of
from trimtab.simulate.mix import USUAL_MIX, check_footprints
from trimtab.simulate.pairs import shared_gpu_s
from trimtab.simulate.shares import held_shares, tells_shares
from trimtab.simulate.speed import BUILTIN, SpeedTable
from trimtab.simulate.speed_files import open_speeds
from trimtab.simulate.state import Environment, flat_restart
from trimtab.simulate.workload import Estimator, NoisyEstimator, OracleEstimator, Workload
from trimtab.site import PLAIN_SITE, Site
from trimtab.timeline import Timeline
from trimtab.traces.files import read
from trimtab.traces.trace import Provenance, Trace
from trimtab.world import Seeds, cpu_s

ESTIMATES = ("oracle", "predicted", "none")
_NOISY = "noisy:"
NOISE_MAX = 1.0

NO_CURVES = "off"
CURVE_NOISE_MAX = 0.9
COST_S_MAX = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What all policies of one comparison share: not a knob of any of them.

    Attributes:
        placement: count, consolidated or relaxed.
        restart_cost_s: Flat seconds a preempted job pays to resume, or `chronus`: 60 x 0.5 x (1 + log2 g).
        estimates: Where run-time estimates come from: the truth, the jobs completed so far, nowhere, or as
            `noisy:SD` the truth times a random factor of that standard deviation.
        spread_speed: Speed of a gang that is not consolidated (relaxed placement), where `speeds` has none.
        speeds: Where measured speeds come from, see `open_speeds`; with the file's sha256, if that matters.
        models: How jobs get their models: column or draw.
        curves: Where speed by CPU and memory comes from, see `open_curves`, or `off`; with the sha256.
        mix: Which models jobs draw that have no curve, see `groups_of`.
        curve_noise: By how much the curves that schedulers know may be off.
        adjust_cost_s: Seconds a job makes no progress when its CPU and memory are changed while it runs.
        site: The file that says what partitions, qualities of service and accounts are worth, empty for
            none; with the sha256.
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
    curves: str = NO_CURVES
    curves_sha256: str = ""
    mix: str = USUAL_MIX
    curve_noise: float = 0.0
    adjust_cost_s: float = 0.0
    site: str = ""
    site_sha256: str = ""

    def speed_table(self) -> SpeedTable:
        """Return the measured speeds.

        Raises:
            InputError: If the file cannot be used, or is not the one it was.
        """
        table = open_speeds(self.speeds)
        if self.speeds_sha256 not in ("", table.sha256):
            raise InputError(f"speeds {self.speeds}: has changed since; nothing was run.")
        return table

    def curve_table(self) -> CurveTable | None:
        """Return the curves that schedulers know, None where CPU and memory do not matter.

        Raises:
            InputError: If the file cannot be used, or is not the one it was.
        """
        if self.curves == NO_CURVES:
            return None
        table = open_curves(self.curves)
        if self.curves_sha256 not in ("", table.sha256):
            raise InputError(f"curves {self.curves}: has changed since; nothing was run.")
        return table

    def check_memory(self, trace: Trace, cluster: Cluster) -> None:
        """Refuse jobs that need more memory than a node has, as far as curves say what they need.

        Raises:
            InputError: If there is one, or the file of curves cannot be used.
        """
        table = self.curve_table()
        if table is not None:
            check_footprints(trace, table, cluster, self.placement)

    def site_rules(self) -> Site:
        """Return what partitions, qualities of service and accounts are worth.

        Raises:
            ConfigError: If the file cannot be used.
            InputError: If it is not the one it was.
        """
        if not self.site:
            return PLAIN_SITE
        if self.site_sha256 not in ("", read(self.site).sha256):
            raise InputError(f"site {self.site}: has changed since; nothing was run.")
        return Site.from_toml(self.site)

    def workload(self, trace: Trace, seed_order: Sequence[int] | None = None) -> Workload:
        """Return a trace's jobs as schedulers know them and as they really run; see `Workload.of`.

        Raises:
            InputError: If the file of curves cannot be used.
        """
        table = self.curve_table()
        truth = table.perturbed(self.curve_noise, Seeds(self.seed)) if table and self.curve_noise else None
        return Workload.of(trace, self.spread_ppm, seed_order, table, truth, self.site_rules())

    @property
    def measured(self) -> dict[str, str]:
        """Return `speeds`, `models` and `site` as far as they were asked for."""
        said = {"speeds": self.speeds, "models": self.models, "site": self.site}
        usual = {"speeds": BUILTIN.source, "models": "column", "site": ""}
        return {name: value for name, value in said.items() if value != usual[name]}

    @property
    def spread_ppm(self) -> int:
        return round(self.spread_speed * 1_000_000)

    def restart_ms(self) -> Callable[[int], int]:
        """Return the restart cost by gang width."""
        if isinstance(self.restart_cost_s, str):
            return resume_ms
        return flat_restart(round(self.restart_cost_s * 1000))

    def environment(self, workload: Workload) -> Environment:
        """Return the engine's environment for a workload."""
        estimator: Estimator | None = None
        if self.estimates == "oracle":
            estimator = OracleEstimator(workload.duration_ms)
        elif self.estimates == "predicted":
            estimator = HistoryEstimator()
        elif (sd := noise_of(self.estimates)) is not None:
            estimator = NoisyEstimator.of(workload, sd, Seeds(self.seed))
        return Environment(
            placement=self.placement,
            restart_ms=self.restart_ms(),
            adjust_ms=round(self.adjust_cost_s * 1000),
            estimator=estimator,
            speeds=self.speed_table(),
            pace=Throughput.of([facts.submit_ms for facts in workload.facts]),
            site=self.site_rules(),
        )


def noise_of(estimates: str) -> float | None:
    """Return the standard deviation of `noisy:SD`, None for any of `ESTIMATES`.

    Raises:
        UnknownName: If it is neither.
        ConfigError: If the standard deviation is out of range.
    """
    if estimates in ESTIMATES:
        return None
    if not estimates.startswith(_NOISY):
        raise UnknownName("kind of estimates", estimates, (*ESTIMATES, f"{_NOISY}0.3"))
    try:
        sd = float(estimates.removeprefix(_NOISY))
    except ValueError:
        sd = -1.0
    if not 0 <= sd <= NOISE_MAX:
        raise ConfigError(
            f"estimates {estimates!r}: the standard deviation must be 0 .. {NOISE_MAX:g}, e.g. {_NOISY}0.3; "
            "nothing was run."
        )
    return sd


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
            "curves": self.world.curves,
            "mix": self.world.mix if self.world.curves != NO_CURVES else None,
            "curve_noise": self.world.curve_noise,
            "adjust_cost_s": self.world.adjust_cost_s,
            "site": self.world.site or None,
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
    return _run(trace, world.workload(trace), cluster, policy, knobs, world)


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
        workload = world.workload(trace, order)
        runs.append(_run(trace, workload, cluster, policy, knobs, world).metrics)
    return replace(result, spread=spread_of(runs)) if tie_seeds else result


def spread_of(runs: list[Metrics]) -> dict[str, dict[str, float]]:
    """Return mean, min and max of each metric over several runs; metrics that do not apply are left out."""
    found = {}
    for name in runs[0]:
        values = [value for run in runs if (value := run.get(name)) is not None]
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
    with recorded() as solves:
        engine.run()
    spent = cpu_s() - before
    table = jobs_table(workload, engine.outcomes, trace)
    timeline = engine.timeline
    assert timeline is not None
    sensitive = any(facts.curve is not None for facts in workload.facts) or tells_shares(timeline)
    held = held_shares(timeline, cluster) if sensitive else None
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
        metrics={**metrics_of(table, cluster, shared_gpu_s(timeline), held), **solves.metrics()},
        jobs=table,
        timeline=timeline,
    )
