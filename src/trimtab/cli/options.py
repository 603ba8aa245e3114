"""Options that several verbs share, and what they become."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer

from trimtab.cluster import PLACEMENTS, Cluster
from trimtab.control.guardrails import Guardrails
from trimtab.errors import ConfigError, UnknownName
from trimtab.knobs import Knobs
from trimtab.objective import find_objective
from trimtab.policies.catalog import find_policy
from trimtab.search.sampler import SAMPLERS
from trimtab.search.tuner import Tuning
from trimtab.simulate.run import ESTIMATES, World
from trimtab.simulate.whatif import EXECUTORS
from trimtab.studies.evaluate import Plan
from trimtab.traces.loader import load
from trimtab.traces.trace import Trace
from trimtab.world import Seeds

Format = Literal["text", "json"]

Source = Annotated[str, typer.Argument(help="FORMAT:PATH, synthetic:PRESET?days=14, or a bare path.")]
Window = Annotated[str | None, typer.Option(help="START..END, half-open: dates, or offsets such as 7d..21d.")]
Zone = Annotated[str | None, typer.Option(help="Time zone of dates without one.")]
Nodes = Annotated[int | None, typer.Option(help="Nodes of one pool.")]
GpusPerNode = Annotated[int, typer.Option(help="GPUs of a node.")]
ClusterFile = Annotated[Path | None, typer.Option("--cluster", help="TOML file with [[vc]] tables.")]
PlacementName = Annotated[str, typer.Option("--placement", help=" | ".join(PLACEMENTS))]
RestartCost = Annotated[str, typer.Option("--restart-cost-s", help="Seconds to resume, or `chronus`.")]
Estimates = Annotated[str, typer.Option(help=" | ".join(ESTIMATES))]
SpreadSpeed = Annotated[float, typer.Option(help="Speed of a gang that is not consolidated (relaxed).")]
Thin = Annotated[float | None, typer.Option(help="Keep this share of the jobs, seeded; changes the load.")]
Seed = Annotated[int, typer.Option(help="Root of all random streams.")]
TieSeeds = Annotated[
    int, typer.Option(help="Repeat with simultaneous jobs in random order; report the spread.")
]
KnobTexts = Annotated[list[str] | None, typer.Option("--knob", help="NAME=VALUE, repeatable.")]
OutputFormat = Annotated[Format, typer.Option("--format", help="text | json")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress and no notices.")]
Report = Annotated[Path | None, typer.Option(help="Write one self-contained html page.")]
Executor = Annotated[str, typer.Option(help=" | ".join(EXECUTORS))]
Workers = Annotated[int | None, typer.Option(help="Processes; default: one a core.")]
PolicyName = Annotated[str, typer.Option("--policy", help="A policy, or path/to/file.py::Name.")]
ObjectiveName = Annotated[str, typer.Option("--objective", help="wait | jct | jct_p99")]
ArrivalsHorizon = Annotated[str, typer.Option(help="How far arrivals are taken into a candidate's future.")]
RunOn = Annotated[str, typer.Option(help="How long a candidate's simulation runs on.")]
Budget = Annotated[int, typer.Option(help="Simulations a search.")]
Threshold = Annotated[float, typer.Option(help="Least gain that a forecasting line switches for.")]
Dwell = Annotated[str, typer.Option(help="Least time a setting stays.")]
SamplerName = Annotated[str, typer.Option("--sampler", help=" | ".join(SAMPLERS))]

_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(name: str, text: str) -> int:
    """Read `90s`, `30m`, `1h`, `2d`, or plain seconds.

    Raises:
        ConfigError: If the text is none of these.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if found is None:
        raise ConfigError(
            f"{name} = {text!r}: it must be a time such as 90s, 30m, 1h or 2d; nothing was run."
        )
    return round(float(found[1]) * _UNITS_MS[found[2] or "s"])


def open_trace(source: str, window: str | None, zone: str | None, thin: float | None, seed: int) -> Trace:
    """Load a trace, cut it to the window and thin it."""
    trace = load(source, zone=zone)
    if window is not None:
        trace = trace.window(window)
    return thinned(trace, thin, seed)


def thinned(trace: Trace, share: float | None, seed: int) -> Trace:
    """Keep a seeded share of the jobs.

    Raises:
        ConfigError: If the share is not in (0, 1], or leaves no job.
    """
    if share is None:
        return trace
    if not 0 < share <= 1:
        raise ConfigError(f"thin = {share:g}: it must be above 0 and at most 1; nothing was run.")
    keep = Seeds(seed).stream("thin").random(len(trace)) < share
    if not keep.any():
        raise ConfigError(f"thin = {share:g} leaves none of {len(trace)} jobs; nothing was run.")
    return trace.select(keep)


def open_cluster(nodes: int | None, gpus_per_node: int, file: Path | None) -> Cluster:
    """Return one pool from `--nodes`, or the virtual clusters of `--cluster`.

    Raises:
        ConfigError: If neither or both are given.
    """
    if (nodes is None) == (file is None):
        raise ConfigError(
            "give either --nodes (one pool) or --cluster FILE (virtual clusters); nothing was run."
        )
    if file is not None:
        return Cluster.from_toml(file)
    return Cluster.pool(cast(int, nodes), gpus_per_node)


def make_world(placement: str, restart_cost_s: str, estimates: str, spread_speed: float, seed: int) -> World:
    """Check what all policies of a comparison share.

    Raises:
        UnknownName: If a name is not known.
        ConfigError: If a number is out of range.
    """
    if placement not in PLACEMENTS:
        raise UnknownName("placement", placement, PLACEMENTS)
    if estimates not in ESTIMATES:
        raise UnknownName("kind of estimates", estimates, ESTIMATES)
    if not 0 < spread_speed <= 1:
        raise ConfigError(
            f"spread-speed = {spread_speed:g}: it must be above 0 and at most 1; nothing was run."
        )
    cost = _restart_cost_s(restart_cost_s)
    return World(
        placement=placement,
        restart_cost_s=cost,
        estimates=estimates,
        spread_speed=spread_speed,
        seed=seed,
    )


def _restart_cost_s(text: str) -> float | str:
    if text == "chronus":
        return text
    try:
        cost = float(text)
    except ValueError:
        cost = -1.0
    if not 0 <= cost < 1e9:
        raise ConfigError(
            f"restart-cost-s = {text!r}: it must be seconds from 0 on, or `chronus`; nothing was run."
        )
    return cost


def read_policy(name: str, knobs: list[str] | None) -> tuple[str, Knobs]:
    """Read a policy with the knobs of `--knob NAME=VALUE`."""
    return name, find_policy(name).space.parse(dict(_pair(text) for text in knobs or []))


def read_policy_text(text: str, knobs: list[str] | None) -> tuple[str, Knobs]:
    """Read `policy` or `policy:knob=value,knob=a/b`; the policy may be `file.py::Name`.

    Knobs of `--knob` hold for every policy that has them.
    """
    name, _, own = _split_policy(text)
    policy = find_policy(name)
    shared = {key: value for key, value in map(_pair, knobs or []) if key in policy.space.by_name}
    given = dict(_pair(part) for part in own.split(",")) if own else {}
    return name, policy.space.parse({**shared, **given})


def _split_policy(text: str) -> tuple[str, str, str]:
    """Split at the first colon that is not part of `::`, and not a drive letter's."""
    found = re.fullmatch(r"((?:[^:]|::)+)(?::([^:].*))?", text)
    if found is None:
        raise ConfigError(f"policy {text!r} is not NAME or NAME:knob=value,...; nothing was run.")
    return found[1], ":", found[2] or ""


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"knob {text!r} is not NAME=VALUE; nothing was run.")
    return name.strip(), value.strip()


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
    if not threshold >= 1:
        raise ConfigError(f"threshold = {threshold:g}: it must be at least 1; nothing was run.")
    if budget < 1:
        raise ConfigError(f"budget = {budget}: it must be at least 1 simulation; nothing was run.")
    return Plan(
        tuning=Tuning(objective=find_objective(objective), sampler=sampler, budget=budget),
        rails=Guardrails(gain_min=threshold, dwell_ms=duration_ms("dwell", dwell)),
        interval_ms=duration_ms("interval", interval),
        arrivals_ms=duration_ms("arrivals-horizon", arrivals_horizon),
        run_on_ms=duration_ms("run-on", run_on),
    )


def make_workers(executor: str, workers: int | None) -> int:
    """Return the number of workers.

    Raises:
        UnknownName: If the executor is not known.
    """
    if executor not in EXECUTORS:
        raise UnknownName("executor", executor, EXECUTORS)
    return workers if workers is not None else os.cpu_count() or 1


def printable(value: Any) -> Any:
    """Return a value for JSON: a number that is not finite becomes null."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, dict):
        return {str(key): printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [printable(item) for item in value]
    return value
