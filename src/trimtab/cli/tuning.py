"""`tune` and `evaluate`: one search, and a fortnight of them."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from trimtab.cli import options as o
from trimtab.cli import show
from trimtab.control.guardrails import Apply
from trimtab.report.evaluate import evaluate_page
from trimtab.report.lines import Evaluation
from trimtab.report.page import write_page
from trimtab.simulate.whatif import open_trials
from trimtab.studies.evaluate import LINES
from trimtab.studies.evaluate import evaluate as walk_forward
from trimtab.studies.tune import Tuned, tune_at
from trimtab.traces.loader import load


def tune(
    source: o.Source,
    policy: o.PolicyName,
    at: Annotated[str, typer.Option(help="The time to tune for: a date, or an offset such as 7d.")],
    zone: o.Zone = None,
    nodes: o.Nodes = None,
    gpus_per_node: o.GpusPerNode = 8,
    cluster: o.ClusterFile = None,
    placement: o.PlacementName = "consolidated",
    knob: o.KnobTexts = None,
    restart_cost_s: o.RestartCost = "62",
    estimates: o.Estimates = "oracle",
    spread_speed: o.SpreadSpeed = 0.5,
    thin: o.Thin = None,
    seed: o.Seed = 0,
    objective: o.ObjectiveName = "wait",
    sampler: o.SamplerName = "bluefin",
    budget: o.Budget = 80,
    arrivals_horizon: o.ArrivalsHorizon = "24h",
    run_on: o.RunOn = "48h",
    threshold: o.Threshold = 1.1,
    dwell: o.Dwell = "30m",
    executor: o.Executor = "processes",
    workers: o.Workers = None,
    format: o.OutputFormat = "text",
    quiet: o.Quiet = False,
) -> None:
    """Search better settings for the window that starts at a time, with the trace itself as the future.

    Example: trimtab tune philly:jobs.csv.gz --policy tiresias --at 2017-10-12T09:00 --nodes 64
    """
    world = o.make_world(placement, restart_cost_s, estimates, spread_speed, seed)
    plan = o.make_plan(objective, sampler, budget, "1h", arrivals_horizon, run_on, threshold, dwell)
    count = o.make_workers(executor, workers)
    name, running = o.read_policy(policy, knob)
    machines = o.open_cluster(nodes, gpus_per_node, cluster)
    trace = o.thinned(load(source, zone=zone), thin, seed)
    show.notice_trace(trace, quiet)
    with open_trials(executor, count) as trials:
        tuned = tune_at(trace, trace.instant_ms(at), machines, name, running, world, plan, trials)
    if format == "json":
        show.print_json(tuned.jsonable())
    else:
        _print_tuned(tuned)


def _print_tuned(tuned: Tuned) -> None:
    found = tuned.search
    table = Table(
        title=f"{tuned.running} jobs running, {tuned.pending} pending, {tuned.arrivals} to come; "
        f"{found.simulated} settings simulated, {found.stopped}",
        title_justify="left",
    )
    for heading in ("gain", "cost, s", "setting"):
        table.add_column(heading, justify="left" if heading == "setting" else "right", overflow="fold")
    for knobs in dict.fromkeys([*found.leaders(8), found.incumbent]):
        mark = "  (running)" if knobs == found.incumbent else ""
        table.add_row(f"{found.gain_of(knobs):.3f}", f"{found.costs[knobs]:,.1f}", knobs.text() + mark)
    show.out.print(table)
    action = (
        f"change to {tuned.verdict.knobs.text()}" if isinstance(tuned.verdict, Apply) else "keep the setting"
    )
    show.out.print(f"{action}: {tuned.verdict.reason}", soft_wrap=True)


def evaluate(
    source: o.Source,
    policy: o.PolicyName,
    window: Annotated[str, typer.Option(help="START..END, half-open; what is before it is history.")],
    lines: Annotated[str, typer.Option(help="Of " + ",".join(LINES))] = "fixed,fixed-week,selftune,oracle",
    zone: o.Zone = None,
    nodes: o.Nodes = None,
    gpus_per_node: o.GpusPerNode = 8,
    cluster: o.ClusterFile = None,
    placement: o.PlacementName = "consolidated",
    knob: o.KnobTexts = None,
    restart_cost_s: o.RestartCost = "62",
    estimates: o.Estimates = "oracle",
    spread_speed: o.SpreadSpeed = 0.5,
    thin: o.Thin = None,
    seed: o.Seed = 0,
    objective: o.ObjectiveName = "wait",
    sampler: o.SamplerName = "bluefin",
    budget: o.Budget = 80,
    interval: Annotated[str, typer.Option(help="Time between searches.")] = "1h",
    arrivals_horizon: o.ArrivalsHorizon = "24h",
    run_on: o.RunOn = "48h",
    threshold: o.Threshold = 1.1,
    dwell: o.Dwell = "30m",
    executor: o.Executor = "processes",
    workers: o.Workers = None,
    report: o.Report = None,
    format: o.OutputFormat = "text",
    quiet: o.Quiet = False,
) -> None:
    """Walk through a window hour by hour under several ways of choosing the settings.

    Example: trimtab evaluate philly:jobs.csv.gz --window 2017-10-06..2017-10-20 --nodes 64 --policy tiresias
    """
    show.check_writable([report])
    world = o.make_world(placement, restart_cost_s, estimates, spread_speed, seed)
    plan = o.make_plan(objective, sampler, budget, interval, arrivals_horizon, run_on, threshold, dwell)
    count = o.make_workers(executor, workers)
    name, base = o.read_policy(policy, knob)
    machines = o.open_cluster(nodes, gpus_per_node, cluster)
    trace = o.thinned(load(source, zone=zone), thin, seed)
    show.notice_trace(trace, quiet)
    wanted = [line.strip() for line in lines.split(",")]
    with open_trials(executor, count) as trials, show.progress(quiet) as advance:
        found = walk_forward(trace, window, machines, name, base, world, plan, wanted, trials, advance)
    if report is not None:
        write_page(report, evaluate_page(found))
    if format == "json":
        show.print_json({"lines": [line.jsonable() for line in found.lines], "settings": found.settings})
    else:
        print_evaluation(found)


def print_evaluation(found: Evaluation) -> None:
    """Print the lines as one table; the first is the baseline."""
    table = Table(
        title=f"{found.kept:,} jobs of {found.window} on {found.cluster.gpus:,} GPUs, {found.policy}",
        title_justify="left",
    )
    for heading in (
        "line",
        "mean wait, s",
        "p99 wait, s",
        "mean JCT, s",
        "preemptions",
        "switches",
        "search s",
    ):
        table.add_column(heading, justify="left" if heading == "line" else "right")
    base = found.lines[0].metrics["wait_s_mean"]
    for line in found.lines:
        wait = line.metrics["wait_s_mean"]
        ratio = f" ({wait / base:.2f}x)" if base and wait is not None and line is not found.lines[0] else ""
        table.add_row(
            line.name,
            show.number(wait, 1) + ratio,
            show.number(line.metrics["wait_s_p99"], 0),
            show.number(line.metrics["jct_s_mean"], 1),
            show.number(line.metrics["preemptions"], 0),
            str(line.switches),
            f"{line.seconds['search'] + line.seconds.get('fixed_week_search', 0.0):.1f}",
        )
    show.out.print(table)
    for line in found.lines:
        for note in line.notes:
            show.out.print(f"{line.name}: {note}", soft_wrap=True)
