"""`admit`: what a job could be promised before it is submitted."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trimtab.cli import options as o
from trimtab.cli import show
from trimtab.errors import ConfigError
from trimtab.simulate.mix import USUAL_MIX
from trimtab.simulate.run import NO_CURVES
from trimtab.studies.admission import Asked, Wish, ask_at
from trimtab.traces.spans import duration_ms


def admit(
    source: o.Source,
    at: Annotated[str, typer.Option(help="When it would be submitted: a date, or an offset such as 7d.")],
    gpus: Annotated[int, typer.Option(help="GPUs of the job.")],
    run_time: Annotated[str, typer.Option(help="How long it runs on them: 90s, 30m, 1h or 2d.")],
    deadline: Annotated[
        str | None, typer.Option(help="By when it is wanted, counted from its submission: 5h.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="What it trains, of those that --curves tells of.")
    ] = None,
    vc: Annotated[str | None, typer.Option(help="Its virtual cluster, with --cluster.")] = None,
    policy: o.PolicyName = "sensascale-plus",
    window: o.Window = None,
    zone: o.Zone = None,
    nodes: o.Nodes = None,
    gpus_per_node: o.GpusPerNode = None,
    cores_per_node: o.CoresPerNode = None,
    memory_gib_per_node: o.MemoryPerNode = None,
    cluster: o.ClusterFile = None,
    placement: o.PlacementName = "consolidated",
    knob: o.KnobTexts = None,
    restart_cost_s: o.RestartCost = "62",
    estimates: o.Estimates = "oracle",
    spread_speed: o.SpreadSpeed = 0.5,
    models: o.ModelsFrom = "column",
    curves: o.CurvesName = NO_CURVES,
    mix: o.MixText = USUAL_MIX,
    curve_noise: o.CurveNoise = 0.0,
    adjust_cost_s: o.AdjustCost = 0.0,
    thin: o.Thin = None,
    engine: o.Engine = "auto",
    seed: o.Seed = 0,
    format: o.OutputFormat = "text",
    quiet: o.Quiet = False,
) -> None:
    """Say which deadline a job could be promised if it came now, and what would help to meet another.

    Example: trimtab admit jobs.csv --at 7d --gpus 8 --run-time 3h --deadline 5h --nodes 64
    """
    world = o.make_world(
        *(placement, restart_cost_s, estimates, spread_speed, seed, engine),
        models=models,
        curves=curves,
        mix=mix,
        curve_noise=curve_noise,
        adjust_cost_s=adjust_cost_s,
    )
    wish = Wish(
        gpus,
        _time_ms("run-time", run_time),
        None if deadline is None else _time_ms("deadline", deadline),
        vc,
        model,
    )
    name, knobs = o.read_policy(policy, knob)
    machines = o.open_cluster(nodes, gpus_per_node, cluster, cores_per_node, memory_gib_per_node)
    trace = o.with_models(o.open_trace(source, window, zone, thin, seed, quiet), world, [name], quiet)
    asked = ask_at(trace, trace.instant_ms(at), machines, name, knobs, world, wish)
    if format == "json":
        show.print_json(asked.jsonable())
    else:
        _print_asked(asked)


def _time_ms(name: str, text: str) -> int:
    time_ms = duration_ms(name, text)
    if time_ms < 1:
        raise ConfigError(f"{name} = {text!r}: it must be longer than nothing; nothing was run.")
    return time_ms


def _print_asked(asked: Asked) -> None:
    wish, answer = asked.wish, asked.answer
    lines = [
        f"{asked.running} jobs running, {asked.pending} pending",
        f"{wish.gpus} GPUs for {_span(wish.run_ms / 1000)}: planned to start "
        f"{_span(asked.after_s(answer.start_ms))} after submission",
        f"earliest deadline that can be promised: {_span(asked.after_s(answer.deadline_ms))}",
    ]
    if wish.deadline_ms is not None:
        given = answer.promise_ms is not None
        verdict = "can be promised" if given else "cannot be promised; what would help, cheapest first:"
        lines.append(f"deadline {_span(wish.deadline_ms / 1000)}: {verdict}")
    for line in [*lines, *(f"  {_said(change)}" for change in asked.changes)]:
        show.out.print(line, markup=False, soft_wrap=True)


def _said(change: dict[str, Any]) -> str:
    """Return a change as one reads it."""
    match change["change"]:
        case "share":
            return f"{change['cores']} cores and {change['memory_gib']:g} GiB"
        case "gpus":
            return f"{change['gpus']} GPUs, if it then takes {_span(change['run_time_s'])}"
        case _:
            return f"a deadline of {_span(change['deadline_s'])}"


def _span(time_s: float) -> str:
    """Return a length of time as h:mm:ss, fractions of a second as they are."""
    whole_s, rest_ms = divmod(round(1000 * time_s), 1000)
    minutes, seconds = divmod(whole_s, 60)
    text = f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
    return f"{text}.{rest_ms:03}" if rest_ms else text
