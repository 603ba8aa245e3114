"""Options that several verbs share, and what they become."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, cast

import numpy as np
import typer

from trimtab.cli import show
from trimtab.cluster import PLACEMENTS, Cluster, check_size, cores_of, memory_mib_of
from trimtab.control.guardrails import Guardrails
from trimtab.errors import ConfigError, UnknownName
from trimtab.knobs import Knobs
from trimtab.objective import find_objective
from trimtab.policies.catalog import PRESETS, find_policy
from trimtab.policies.lucid import Lucid
from trimtab.policies.policy import Policy
from trimtab.search.generation import ARRIVALS
from trimtab.search.sampler import SAMPLERS
from trimtab.search.tuner import Tuning
from trimtab.simulate.curve_files import open_curves
from trimtab.simulate.engines import ENGINES
from trimtab.simulate.executors import CLUSTERS, EXECUTORS
from trimtab.simulate.fast import compiled_available
from trimtab.simulate.mix import USUAL_MIX, check_mix, mix_note, with_curve_models
from trimtab.simulate.models import MODELS, assign_models, notes_of
from trimtab.simulate.run import COST_S_MAX, CURVE_NOISE_MAX, ESTIMATES, NO_CURVES, World, noise_of
from trimtab.simulate.speed import BUILTIN
from trimtab.simulate.speed_files import open_speeds
from trimtab.site import Site
from trimtab.studies.ablations import ABLATIONS
from trimtab.studies.lines import Plan
from trimtab.traces.files import read
from trimtab.traces.loader import load
from trimtab.traces.spans import duration_ms
from trimtab.traces.trace import Trace
from trimtab.world import Seeds

Format = Literal["text", "json"]

Source = Annotated[str, typer.Argument(help="FORMAT:PATH, synthetic:PRESET?days=14, or a bare path.")]
Window = Annotated[str | None, typer.Option(help="START..END, half-open: dates, or offsets such as 7d..21d.")]
Zone = Annotated[str | None, typer.Option(help="Time zone of dates without one.")]
Nodes = Annotated[int | None, typer.Option(help="Nodes of one pool.")]
GpusPerNode = Annotated[int | None, typer.Option(help="GPUs of a node of the pool; 8 unless given.")]
ClusterFile = Annotated[
    Path | None, typer.Option("--cluster", help="TOML file of virtual clusters: [[vc]] tables.")
]
PlacementName = Annotated[str, typer.Option("--placement", help=" | ".join(PLACEMENTS))]
RestartCost = Annotated[str, typer.Option("--restart-cost-s", help="Seconds to resume, or `chronus`.")]
Estimates = Annotated[str, typer.Option(help=" | ".join((*ESTIMATES, "noisy:SD")))]
SpreadSpeed = Annotated[float, typer.Option(help="Speed of a gang that is not consolidated (relaxed).")]
SpeedsName = Annotated[
    str,
    typer.Option(
        "--speeds", help="Speeds of jobs that share or are spread: builtin | pairs.csv | FILE.json@GPU"
    ),
]
ModelsFrom = Annotated[
    str, typer.Option("--models", help="What a job trains: as columns say, or drawn: " + " | ".join(MODELS))
]
CurvesName = Annotated[
    str,
    typer.Option("--curves", help="Speed by CPU and memory: off | builtin | curves.csv | FILE.json@SERVER"),
]
MixText = Annotated[
    str,
    typer.Option(
        "--mix",
        help="Models drawn for jobs without a curve: image/language/speech weights, or the sensitive share.",
    ),
]
CurveNoise = Annotated[
    float, typer.Option(help="How far true curves are off those that schedulers know: 0.2 for 20 %.")
]
AdjustCost = Annotated[
    float, typer.Option("--adjust-cost-s", help="Seconds a change of CPU and memory costs a running job.")
]
SiteFile = Annotated[
    str, typer.Option("--site", help="TOML: what partitions, qualities of service and accounts are worth.")
]
CoresPerNode = Annotated[
    int | None,
    typer.Option("--cores-per-node", "--cpus-per-node", help="CPU cores of a node; 3 a GPU unless given."),
]
MemoryPerNode = Annotated[
    float | None,
    typer.Option("--memory-gib-per-node", help="Memory of a node; 62.5 GiB a GPU unless given."),
]
Thin = Annotated[float | None, typer.Option(help="Keep this share of the jobs, seeded; changes the load.")]
Seed = Annotated[int, typer.Option(help="Root of all random streams.")]
TieSeeds = Annotated[
    int, typer.Option(help="Repeat with simultaneous jobs in random order; report the spread.")
]
RunSeeds = Annotated[
    int | None,
    typer.Option("--seeds", help="Run with so many seeds and tie orders; report spread and intervals."),
]
Ablate = Annotated[
    list[str] | None,
    typer.Option(help="Add lines without a part, repeatable: " + " | ".join(ABLATIONS)),
]
Realised = Annotated[
    bool, typer.Option("--realised", help="Try each change on the true future: what of its gain came true.")
]
KnobTexts = Annotated[list[str] | None, typer.Option("--knob", help="NAME=VALUE, repeatable.")]
Preset = Annotated[
    str | None, typer.Option(help="Published settings instead of the defaults: philly (of lucid).")
]
OutputFormat = Annotated[Format, typer.Option("--format", help="text | json")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress and no notices.")]
Engine = Annotated[str, typer.Option("--engine", help=" | ".join(ENGINES))]
JobsOut = Annotated[Path | None, typer.Option(help="Write one line a job.")]
TimelineOut = Annotated[Path | None, typer.Option(help="Write every event, in order.")]
NoSeed = Annotated[int, typer.Option("--seed", help="Taken by every verb; nothing is random in this one.")]
JournalOut = Annotated[Path | None, typer.Option("--journal", help="Write every round down, for replay.")]
GraphOut = Annotated[Path | None, typer.Option("--graph", help="Write the causal graph of trimtab as JSON.")]
Report = Annotated[Path | None, typer.Option(help="Write one self-contained html page.")]
Executor = Annotated[str, typer.Option(help=" | ".join(EXECUTORS))]
Workers = Annotated[int | None, typer.Option(help="Processes to start; default: one a core.")]
Address = Annotated[str | None, typer.Option(help="HOST:PORT of a Dask or Ray cluster to join instead.")]
PolicyName = Annotated[str, typer.Option("--policy", help="A policy, or path/to/file.py::Name.")]
ObjectiveName = Annotated[
    str,
    typer.Option(
        "--objective",
        help="The cost to be made small: wait | jct | jct_p99, in s; rho: % of jobs with rho > 1; "
        "violations: % of deadlines' value lost. "
        "A gain is the running setting's cost over another's, 1 added to both.",
    ),
]
ArrivalsHorizon = Annotated[str, typer.Option(help="How far arrivals are taken into a candidate's future.")]
RunOn = Annotated[str, typer.Option(help="How long a candidate's simulation runs on.")]
Budget = Annotated[int, typer.Option(help="Simulations a search.")]
Threshold = Annotated[float, typer.Option(help="Least gain that is worth a change.")]
Dwell = Annotated[str, typer.Option(help="Least time a setting stays.")]
Aggregate = Annotated[
    Literal["on", "off"], typer.Option(help="Whether trimtab may search on merged jobs: on | off")
]
ArrivalsMethod = Annotated[
    str, typer.Option("--arrivals", help="How trimtab forecasts who comes: " + " | ".join(ARRIVALS))
]
FuturesCount = Annotated[
    int, typer.Option("--futures", help="Futures that trimtab-plus tries every setting on.")
]
Background = Annotated[
    str | None,
    typer.Option(
        help="Time between light searches inside an interval, or off; unless given, 5m for trimtab, off for "
        "trimtab-plus."
    ),
]
SamplerName = Annotated[str, typer.Option("--sampler", help=" | ".join(SAMPLERS))]

WORKERS_MAX = 512
_GPUS_PER_NODE = 8
_SEED_MAX = 2**63 - 1


def open_trace(
    source: str, window: str | None, zone: str | None, thin: float | None, seed: int, quiet: bool = True
) -> Trace:
    """Load a trace, cut it to the window and thin it; say on stderr what was left out."""
    trace = load(source, zone=zone)
    show.notice_trace(trace, quiet)
    if window is not None:
        trace = trace.window(window)
    kept = thinned(trace, thin, seed)
    if kept is not trace:
        show.notice(_thinning(trace, kept), quiet)
    return kept


def thinned(trace: Trace, share: float | None, seed: int) -> Trace:
    """Keep a seeded share of the jobs.

    Raises:
        ConfigError: If the share is not in (0, 1], or leaves no job.
    """
    if share is None:
        return trace
    if not 0 < share <= 1:
        raise ConfigError(f"thin = {share:g}: it must be above 0 and at most 1; nothing was run.")
    keep = Seeds(checked_seed(seed)).stream("thin").random(len(trace)) < share
    if not keep.any():
        raise ConfigError(f"thin = {share:g} leaves none of {len(trace)} jobs; nothing was run.")
    return trace.select(keep, "thinned")


def _thinning(trace: Trace, kept: Trace) -> str:
    """Return what thinning did to the load."""
    before, after = (
        float((one.column("gpus") * one.column("duration_ms")).sum()) / 3_600_000 for one in (trace, kept)
    )
    share = after / before if before else 1.0
    jobs = f"{len(kept):,} of {len(trace):,} jobs kept"
    return f"thinned: {jobs}, {after:,.0f} of {before:,.0f} GPU-hours ({share:.3f} of the load)"


def shuffled_ties(trace: Trace, seed: int, number: int) -> Trace:
    """Return the trace with jobs of one instant in a random order, the `number`-th of its seed."""
    order = Seeds(seed).stream("ties", number).permutation(len(trace))
    place = np.empty(len(trace), dtype=np.int64)
    place[order] = np.arange(len(trace))
    rows = np.lexsort((place, trace.column("submit_ms")))
    return dataclasses.replace(trace, jobs=trace.jobs[rows.tolist()])


def open_cluster(
    nodes: int | None,
    gpus_per_node: int | None,
    file: Path | None,
    cores_per_node: int | None = None,
    memory_gib_per_node: float | None = None,
) -> Cluster:
    """Return one pool from `--nodes`, or the virtual clusters of `--cluster`.

    Raises:
        ConfigError: If neither or both are given, or the cluster is larger than can be simulated.
    """
    if (nodes is None) == (file is None):
        raise ConfigError(
            "give either --nodes (one pool) or --cluster FILE (virtual clusters); nothing was run."
        )
    if nodes is not None:
        width = _GPUS_PER_NODE if gpus_per_node is None else gpus_per_node
        cluster = _pool(nodes, width, cores_per_node, memory_gib_per_node)
    elif (gpus_per_node, cores_per_node, memory_gib_per_node) != (None, None, None):
        raise ConfigError(
            "--gpus-per-node, --cores-per-node and --memory-gib-per-node go with --nodes; a cluster file "
            "says it itself; nothing was run."
        )
    else:
        cluster = Cluster.from_toml(cast(Path, file))
    check_size(cluster)
    return cluster


def _pool(nodes: int, gpus_per_node: int, cores: int | None, memory_gib: float | None) -> Cluster:
    """Return one pool, with the usual CPU and memory where nothing else is said."""
    Cluster.pool(nodes, gpus_per_node)  # a node without GPUs is refused for that
    memory_mib = memory_mib_of("memory-gib-per-node", memory_gib, gpus_per_node)
    return Cluster.pool(nodes, gpus_per_node, cores_of("cores-per-node", cores, gpus_per_node), memory_mib)


def make_world(
    placement: str,
    restart_cost_s: str,
    estimates: str,
    spread_speed: float,
    seed: int,
    engine: str,
    speeds: str = BUILTIN.source,
    models: str = "column",
    curves: str = NO_CURVES,
    mix: str = USUAL_MIX,
    curve_noise: float = 0.0,
    adjust_cost_s: float = 0.0,
    site: str = "",
) -> World:
    """Check what all policies of a comparison share.

    Raises:
        UnknownName: If a name is not known.
        ConfigError: If a number is out of range.
        InputError: If the file of speeds or of curves cannot be used.
    """
    if site:
        Site.from_toml(site)
    if placement not in PLACEMENTS:
        raise UnknownName("placement", placement, PLACEMENTS)
    noise_of(estimates)
    if not 1e-6 <= spread_speed <= 1:
        raise ConfigError(f"spread-speed = {spread_speed:g}: it must be 0.000001 .. 1; nothing was run.")
    if engine not in ENGINES:
        raise UnknownName("engine", engine, ENGINES)
    if engine == "compiled" and not compiled_available():
        raise ConfigError(
            "engine compiled: this installation has none; use auto or reference; nothing was run."
        )
    if models not in MODELS:
        raise UnknownName("way to find models", models, MODELS)
    cost = _restart_cost_s(restart_cost_s)
    if not 0 <= adjust_cost_s <= COST_S_MAX:
        raise ConfigError(
            f"adjust-cost-s = {adjust_cost_s:.10g}: it must be 0 .. {COST_S_MAX:,.0f} s; nothing was run."
        )
    return World(
        placement=placement,
        restart_cost_s=cost,
        estimates=estimates,
        spread_speed=spread_speed,
        seed=checked_seed(seed),
        engine=engine,
        speeds=speeds,
        speeds_sha256=open_speeds(speeds).sha256,
        models=models,
        curves=curves,
        curves_sha256=_checked_curves(curves, mix, curve_noise),
        mix=mix,
        curve_noise=curve_noise,
        adjust_cost_s=adjust_cost_s,
        site=site,
        site_sha256=read(site).sha256 if site else "",
    )


def _checked_curves(curves: str, mix: str, noise: float) -> str:
    """Return the sha256 of the curves, once all that is said of them fits together."""
    check_mix(mix)
    if not 0 <= noise <= CURVE_NOISE_MAX:
        raise ConfigError(f"curve-noise = {noise:g}: it must be 0 .. {CURVE_NOISE_MAX:g}; nothing was run.")
    if curves != NO_CURVES:
        return open_curves(curves).sha256
    if noise or mix != USUAL_MIX:
        raise ConfigError("--mix and --curve-noise go with --curves; nothing was run.")
    return ""


def with_models(trace: Trace, world: World, policies: Collection[str] = (), quiet: bool = True) -> Trace:
    """Give the jobs the models and spread speeds of a world; say on stderr how many are known.

    Raises:
        InputError: If of no job anything is known, or a file of speeds or curves is not the one it was.
    """
    if (world.speeds, world.models) != (BUILTIN.source, "column") or Lucid.name in policies:
        table = world.speed_table()  # else it knows no model, and nobody shares GPUs
        found = assign_models(trace, table, world.models, Seeds(world.seed))
        for note in notes_of(found, table):
            show.notice(note, quiet)
        trace = found.trace
    curves = world.curve_table()
    if curves is not None:
        mixed = with_curve_models(trace, curves, world.models, world.mix, Seeds(world.seed))
        show.notice(mix_note(mixed, curves, world.mix), quiet)
        trace = mixed.trace
    return trace


def checked_seed(seed: int) -> int:
    """Return a root of random streams.

    Raises:
        ConfigError: If it is out of range.
    """
    if not 0 <= seed <= _SEED_MAX:
        raise ConfigError(f"seed = {seed}: it must be 0 .. {_SEED_MAX}; nothing was run.")
    return seed


def _restart_cost_s(text: str) -> float | str:
    if text == "chronus":
        return text
    try:
        cost = float(text)
    except ValueError:
        cost = -1.0
    if not 0 <= cost <= COST_S_MAX:
        raise ConfigError(
            f"restart-cost-s = {text!r}: it must be 0 .. {COST_S_MAX:,.0f} s, or `chronus`; nothing was run."
        )
    return cost


def open_policy(name: str) -> Policy:
    """Return a policy by name, or a user's own from `file.py::Name`.

    Raises:
        ConfigError: If there is none of that name, or it cannot be made.
    """
    if name.endswith(".py"):
        raise ConfigError(
            f"policy {name!r} is a file: write {name}::Name, the policy's class; nothing was run."
        )
    return find_policy(name)


def read_policy(name: str, knobs: list[str] | None, preset: str | None = None) -> tuple[str, Knobs]:
    """Read `policy` or `policy:knob=value,...` with the knobs of `--knob NAME=VALUE` besides."""
    name, own = _split_policy(name)
    policy, published = open_policy(name), _preset(preset, [name]).get(name, {})
    given = _pairs([*(own.split(",") if own else []), *(knobs or [])])
    return name, policy.space.parse({**published, **given})


def read_policies(
    texts: Sequence[str], knobs: list[str] | None, preset: str | None
) -> list[tuple[str, Knobs]]:
    """Read several `policy` or `policy:knob=value,knob=a/b`; a policy may be `file.py::Name`.

    Knobs of `--knob` and presets hold for every policy that has them.

    Raises:
        ConfigError: If none has them.
    """
    named = [_split_policy(text) for text in texts]
    published, shared = _preset(preset, [name for name, _ in named]), _pairs(knobs or [])
    found = []
    for name, own in named:
        space = open_policy(name).space
        mine = {key: value for key, value in shared.items() if key in space.by_name}
        given = _pairs(own.split(",")) if own else {}
        found.append((name, space.parse({**published.get(name, {}), **mine, **given})))
    unused = shared.keys() - {key for _, one in found for key in one}
    if unused:
        raise ConfigError(f"knob {min(unused)} belongs to none of the policies; nothing was run.")
    return found


def _preset(preset: str | None, policies: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    """Return the knobs of a preset by policy, none if none is asked for.

    Raises:
        UnknownName: If there is no such preset.
        ConfigError: If none of the policies has it.
    """
    if preset is None:
        return {}
    if preset not in PRESETS:
        raise UnknownName("preset", preset, PRESETS)
    found = PRESETS[preset]
    if not found.keys() & set(policies):
        raise ConfigError(f"preset {preset}: only {' or '.join(found)} has it; nothing was run.")
    return found


def _split_policy(text: str) -> tuple[str, str]:
    """Split at the first colon that is not part of `::`."""
    found = re.fullmatch(r"((?:[^:]|::)+)(?::([^:].*))?", text)
    if found is None:
        raise ConfigError(f"policy {text!r} is not NAME or NAME:knob=value,...; nothing was run.")
    return found[1], found[2] or ""


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"knob {text!r} is not NAME=VALUE; nothing was run.")
    return name.strip(), value.strip()


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in map(_pair, texts):
        if name in found:
            raise ConfigError(f"knob {name} is given twice; nothing was run.")
        found[name] = value
    return found


def make_plan(
    objective: str,
    sampler: str,
    budget: int,
    interval: str,
    arrivals_horizon: str,
    run_on: str,
    threshold: float,
    dwell: str,
) -> Plan:
    """Check how searches are done.

    Raises:
        UnknownName: If the objective or the sampler is not known.
        ConfigError: If a number is out of range.
    """
    if sampler not in SAMPLERS:
        raise UnknownName("sampler", sampler, SAMPLERS)
    if not 1 <= threshold < math.inf:
        raise ConfigError(f"threshold = {threshold:g}: it must be at least 1, and finite; nothing was run.")
    if budget < 1:
        raise ConfigError(f"budget = {budget}: it must be at least 1 simulation; nothing was run.")
    return Plan(
        tuning=Tuning(objective=find_objective(objective), sampler=sampler, budget=budget),
        rails=Guardrails(gain_min=threshold, dwell_ms=duration_ms("dwell", dwell)),
        interval_ms=duration_ms("interval", interval),
        arrivals_ms=duration_ms("arrivals-horizon", arrivals_horizon),
        run_on_ms=duration_ms("run-on", run_on),
    )


def check_objective(plan: Plan, trace: Trace) -> None:
    """Refuse to look for fewer violations where no job has a deadline.

    Raises:
        ConfigError: If that is asked for.
    """
    if plan.tuning.objective.name == "violations" and not any(trace.labels("deadline_ms")):
        raise ConfigError(
            f"objective violations: no job of {trace.provenance.source} has a deadline; nothing was run."
        )


def with_forecasts(plan: Plan, arrivals: str, futures: int, text: str | None, aggregate: str) -> Plan:
    """Return the plan with what was said of forecasts, light rounds and merged jobs; None says nothing.

    Raises:
        UnknownName: If there is no such forecaster.
        ConfigError: If there are no futures or too many, or the time is none, or too short.
    """
    if arrivals not in ARRIVALS:
        raise UnknownName("arrival forecaster", arrivals, ARRIVALS)
    paper = dataclasses.replace(plan.paper, arrivals=arrivals)
    plus = dataclasses.replace(plan.plus, futures=futures)
    plan = dataclasses.replace(plan, paper=paper, plus=plus, aggregate=aggregate == "on")
    if text is None:
        return plan
    every_ms = None if text == "off" else duration_ms("background", text)
    return dataclasses.replace(plan, paper_background_ms=every_ms, plus_background_ms=every_ms)


def make_workers(executor: str, workers: int | None, address: str | None) -> int:
    """Return the number of workers to start.

    Raises:
        UnknownName: If the executor is not known.
        ConfigError: If there are too many for any machine, or an address does not go with the rest.
    """
    if executor not in EXECUTORS:
        raise UnknownName("executor", executor, EXECUTORS)
    if address is not None and executor not in CLUSTERS:
        raise ConfigError(f"--address goes with --executor {' or '.join(CLUSTERS)}; nothing was run.")
    if address is not None and workers is not None:
        raise ConfigError(
            "--workers starts workers, --address joins those of a cluster; give one; nothing was run."
        )
    if workers is not None and not 1 <= workers <= WORKERS_MAX:
        raise ConfigError(f"workers = {workers:,}: it must be 1 .. {WORKERS_MAX}; nothing was run.")
    return workers if workers is not None else os.cpu_count() or 1
