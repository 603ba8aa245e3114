"""`simulate` and `compare`: one run, and several side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from trimtab.cli import options as o
from trimtab.cli import show
from trimtab.report.compare import compare_page
from trimtab.report.page import write_page
from trimtab.simulate.mix import USUAL_MIX
from trimtab.simulate.run import NO_CURVES, World, simulate_ties
from trimtab.traces.trace import Trace


def simulate(
    source: o.Source,
    policy: o.PolicyName,
    window: o.Window = None,
    zone: o.Zone = None,
    nodes: o.Nodes = None,
    gpus_per_node: o.GpusPerNode = None,
    cores_per_node: o.CoresPerNode = None,
    memory_gib_per_node: o.MemoryPerNode = None,
    cluster: o.ClusterFile = None,
    placement: o.PlacementName = "consolidated",
    knob: o.KnobTexts = None,
    preset: o.Preset = None,
    restart_cost_s: o.RestartCost = "62",
    estimates: o.Estimates = "oracle",
    spread_speed: o.SpreadSpeed = 0.5,
    speeds: o.SpeedsName = "builtin",
    models: o.ModelsFrom = "column",
    curves: o.CurvesName = NO_CURVES,
    mix: o.MixText = USUAL_MIX,
    curve_noise: o.CurveNoise = 0.0,
    adjust_cost_s: o.AdjustCost = 0.0,
    site: o.SiteFile = "",
    thin: o.Thin = None,
    engine: o.Engine = "auto",
    tie_seeds: o.TieSeeds = 0,
    seed: o.Seed = 0,
    report: o.Report = None,
    jobs_out: o.JobsOut = None,
    timeline_out: o.TimelineOut = None,
    format: o.OutputFormat = "text",
    quiet: o.Quiet = False,
) -> None:
    """Simulate one policy on a trace.

    Example: trimtab simulate philly:jobs.csv.gz --policy tiresias --nodes 80
    """
    show.check_writable([report, jobs_out, timeline_out])
    world = o.make_world(
        *(placement, restart_cost_s, estimates, spread_speed, seed, engine, speeds, models),
        *(curves, mix, curve_noise, adjust_cost_s, site),
    )
    name, knobs = o.read_policy(policy, knob, preset)
    machines = o.open_cluster(nodes, gpus_per_node, cluster, cores_per_node, memory_gib_per_node)
    trace = o.with_models(o.open_trace(source, window, zone, thin, seed, quiet), world, [name], quiet)
    world.check_memory(trace, machines)
    result = simulate_ties(trace, machines, name, knobs, world, tie_seeds)
    show.notice_rejected(result.timeline, quiet)
    if jobs_out is not None:
        show.write_jobs(jobs_out, [("", result.jobs)])
    if timeline_out is not None:
        show.write_timeline(timeline_out, [("", result.timeline)])
    if report is not None:
        write_page(report, compare_page([result], _first_day(trace)))
    if format == "json":
        show.print_json(result.jsonable())
        return
    show.print_metrics(_heading(len(trace), machines.gpus), [(result.title, result.metrics)], [result.spread])
    said = _said(estimates, world)
    show.out.print(f"{said}; engine: {result.engine}, {result.cpu_s:.2f} CPU-s", markup=False, soft_wrap=True)
    show.out.print(f"digest {result.timeline.digest()}", soft_wrap=True)


def compare(
    source: o.Source,
    policy: Annotated[list[str], typer.Option(help="NAME or NAME:knob=value,knob2=a/b; repeatable.")],
    window: o.Window = None,
    zone: o.Zone = None,
    nodes: o.Nodes = None,
    gpus_per_node: o.GpusPerNode = None,
    cores_per_node: o.CoresPerNode = None,
    memory_gib_per_node: o.MemoryPerNode = None,
    cluster: o.ClusterFile = None,
    placement: o.PlacementName = "consolidated",
    knob: o.KnobTexts = None,
    preset: o.Preset = None,
    restart_cost_s: o.RestartCost = "62",
    estimates: o.Estimates = "oracle",
    spread_speed: o.SpreadSpeed = 0.5,
    speeds: o.SpeedsName = "builtin",
    models: o.ModelsFrom = "column",
    curves: o.CurvesName = NO_CURVES,
    mix: o.MixText = USUAL_MIX,
    curve_noise: o.CurveNoise = 0.0,
    adjust_cost_s: o.AdjustCost = 0.0,
    site: o.SiteFile = "",
    thin: o.Thin = None,
    engine: o.Engine = "auto",
    tie_seeds: o.TieSeeds = 0,
    seed: o.Seed = 0,
    report: o.Report = None,
    jobs_out: o.JobsOut = None,
    timeline_out: o.TimelineOut = None,
    format: o.OutputFormat = "text",
    quiet: o.Quiet = False,
) -> None:
    """Simulate several policies or settings on the same jobs, side by side.

    Example: trimtab compare jobs.csv --nodes 60 --policy fifo --policy tiresias
    """
    show.check_writable([report, jobs_out, timeline_out])
    world = o.make_world(
        *(placement, restart_cost_s, estimates, spread_speed, seed, engine, speeds, models),
        *(curves, mix, curve_noise, adjust_cost_s, site),
    )
    chosen = o.read_policies(policy, knob, preset)
    machines = o.open_cluster(nodes, gpus_per_node, cluster, cores_per_node, memory_gib_per_node)
    trace = o.with_models(
        o.open_trace(source, window, zone, thin, seed, quiet), world, [name for name, _ in chosen], quiet
    )
    world.check_memory(trace, machines)
    results = []
    with show.progress(quiet) as advance:
        for place, (name, knobs) in enumerate(chosen):
            advance("simulating", place / len(chosen))
            results.append(simulate_ties(trace, machines, name, knobs, world, tie_seeds))
    show.notice_rejected(results[0].timeline, quiet)
    if jobs_out is not None:
        show.write_jobs(jobs_out, [(result.title, result.jobs) for result in results], "run")
    if timeline_out is not None:
        show.write_timeline(timeline_out, [(result.title, result.timeline) for result in results], "run")
    if report is not None:
        write_page(report, compare_page(results, _first_day(trace)))
    if format == "json":
        show.print_json({"runs": [result.jsonable() for result in results]})
        return
    columns = [(result.title, result.metrics) for result in results]
    spreads = [result.spread for result in results]
    show.print_metrics(_heading(len(trace), machines.gpus), columns, spreads)
    said = _said(estimates, world)
    show.out.print(
        f"{said}; engine: {results[0].engine}; ratios are to the first column", markup=False, soft_wrap=True
    )


def _said(estimates: str, world: World) -> str:
    """Return what all runs were told: estimates, and speeds and models where they were asked for."""
    told = {"estimates": estimates, **world.measured}
    return "; ".join(f"{name}: {value}" for name, value in told.items())


def _first_day(trace: Trace) -> str:
    return trace.show(trace.zero_ms) if trace.dated else ""


def _heading(jobs: int, gpus: int) -> str:
    return f"{jobs:,} jobs on {gpus:,} GPUs"
