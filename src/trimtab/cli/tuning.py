"""`tune` and `evaluate`: one search, and a fortnight of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from trimtab import __version__
from trimtab.cli import options as o
from trimtab.cli import records, show
from trimtab.control.guardrails import Apply
from trimtab.errors import ConfigError
from trimtab.knobs import Knobs, write
from trimtab.report.evaluate import evaluate_page
from trimtab.report.lines import Evaluation, Statistics
from trimtab.report.page import write_page
from trimtab.search.generation import PAPER, PLUS
from trimtab.simulate.mix import USUAL_MIX
from trimtab.simulate.run import NO_CURVES, spread_of
from trimtab.simulate.trials import open_trials
from trimtab.studies.evaluate import evaluate as walk_forward
from trimtab.studies.lines import LINES, silent
from trimtab.studies.request import Request
from trimtab.studies.tune import Tuned, tune_at
from trimtab.studies.uncertainty import statistics_of
from trimtab.world import Seeds

# Lowest and highest over the tie orders, by line and metric.
Spreads = Sequence[show.Spread]

# By objective: heading, metric and digits of what a table of lines shows, the objective first.
_COLUMNS: dict[str, tuple[tuple[str, str, int], ...]] = {
    "wait": (("wait", "wait_s_mean", 1), ("p99", "wait_s_p99", 0), ("JCT", "jct_s_mean", 1)),
    "jct": (("JCT", "jct_s_mean", 1), ("p99", "jct_s_p99", 0), ("wait", "wait_s_mean", 1)),
    "jct_p99": (("p99 JCT", "jct_s_p99", 0), ("JCT", "jct_s_mean", 1), ("wait", "wait_s_mean", 1)),
    "rho": (("rho<=1", "rho_le_1_share", 3), ("wait", "wait_s_mean", 1), ("JCT", "jct_s_mean", 1)),
    "violations": (
        ("lost", "slo_violation_rate_weighted", 4),
        ("missed", "slo_violation_rate", 4),
        ("JCT", "jct_s_mean", 1),
    ),
}
_LEGENDS = {
    "wait": "in s; wait: mean, its ratio to the first line and its p99; JCT: mean job time",
    "jct": "in s; JCT: mean job time, its ratio to the first line and its p99; wait: mean",
    "jct_p99": "in s; p99 JCT: of job times, its ratio to the first line; JCT, wait: means",
    "rho": "rho<=1: share of jobs, its ratio to the first line; JCT, wait: means in s",
    "violations": "lost: share of deadlines' value, its ratio to the first line; missed: share of deadlines; "
    "JCT: mean in s",
}


def tune(
    source: o.Source,
    policy: o.PolicyName,
    at: Annotated[str, typer.Option(help="The time to tune for: a date, or an offset such as 7d.")],
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
    address: o.Address = None,
    format: o.OutputFormat = "text",
    quiet: o.Quiet = False,
) -> None:
    """Search better settings for a time, with the trace itself as the future.

    Example: trimtab tune jobs.csv --policy tiresias --at 7d --nodes 64
    """
    world = o.make_world(
        *(placement, restart_cost_s, estimates, spread_speed, seed, engine, speeds, models),
        *(curves, mix, curve_noise, adjust_cost_s, site),
    )
    plan = o.make_plan(objective, sampler, budget, "1h", arrivals_horizon, run_on, threshold, dwell)
    count = o.make_workers(executor, workers, address)
    name, running = o.read_policy(policy, knob, preset)
    machines = o.open_cluster(nodes, gpus_per_node, cluster, cores_per_node, memory_gib_per_node)
    trace = o.with_models(o.open_trace(source, window, zone, thin, seed, quiet), world, [name], quiet)
    o.check_objective(plan, trace)
    world.check_memory(trace, machines)
    with open_trials(executor, count, engine, address) as trials:
        tuned = tune_at(trace, trace.instant_ms(at), machines, name, running, world, plan, trials)
    if format == "json":
        show.print_json(tuned.jsonable())
    else:
        _print_tuned(tuned, policy)


def _print_tuned(tuned: Tuned, policy: str) -> None:
    found = tuned.search
    shown = list(dict.fromkeys([*found.leaders(8), found.incumbent]))
    show.out.print(f"{tuned.running} jobs running, {tuned.pending} pending, {tuned.arrivals} to come")
    show.out.print(f"{found.simulated} settings simulated: {found.stopped}")
    table = Table()
    goal = found.objective
    for heading in ("gain", f"{goal.title}, {goal.unit}", "setting"):
        table.add_column(heading, justify="left" if heading == "setting" else "right", overflow="fold")
    names = _that_differ(shown)
    for knobs in shown:
        setting = " ".join(f"{name}={write(knobs[name])}" for name in names)
        mark = "(running) " if knobs == found.incumbent else ""
        table.add_row(
            f"{found.gain_of(knobs):.3f}", f"{found.costs[knobs]:,.1f}", Text(f"{mark}{setting}".strip())
        )
    show.out.print(table)
    if isinstance(tuned.verdict, Apply):
        changed = {
            name: value for name, value in tuned.verdict.knobs.items() if found.incumbent[name] != value
        }
        before, after = (f"{found.costs[one]:,.1f}" for one in (found.incumbent, found.best))
        told = f"{goal.title} {before} -> {after} {goal.unit}"
        show.out.print(f"change: {tuned.verdict.reason}; {told}", soft_wrap=True, markup=False)
        show.out.print(f"  {policy}:{Knobs(changed).text()}", soft_wrap=True, markup=False)
    else:
        show.out.print(f"keep the running setting: {tuned.verdict.reason}", soft_wrap=True)


def _that_differ(settings: Sequence[Knobs]) -> list[str]:
    """Return the knobs in which some of the settings differ; all of them if there is one setting."""
    if len(settings) == 1:
        return list(settings[0])
    return [name for name in settings[0] if len({one[name] for one in settings}) > 1]


def evaluate(
    source: o.Source,
    policy: o.PolicyName,
    window: Annotated[str, typer.Option(help="START..END, half-open; what is before it is history.")],
    lines: Annotated[
        str, typer.Option(help="Ways of choosing the settings, of " + ", ".join(LINES))
    ] = "fixed,fixed-week,selftune,trimtab-plus,oracle",
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
    seeds: o.RunSeeds = None,
    seed: o.Seed = 0,
    objective: o.ObjectiveName = "wait",
    sampler: o.SamplerName = "bluefin",
    budget: o.Budget = 80,
    interval: Annotated[str, typer.Option(help="Time between searches.")] = "1h",
    arrivals_horizon: o.ArrivalsHorizon = "24h",
    run_on: o.RunOn = "48h",
    threshold: Annotated[float, typer.Option(help="Least gain that a tuned line switches for.")] = 1.0,
    dwell: o.Dwell = "30m",
    ablate: o.Ablate = None,
    realised: o.Realised = False,
    arrivals: o.ArrivalsMethod = PAPER.arrivals,
    futures: o.FuturesCount = PLUS.futures,
    aggregate: o.Aggregate = "on",
    background: o.Background = None,
    executor: o.Executor = "processes",
    workers: o.Workers = None,
    address: o.Address = None,
    report: o.Report = None,
    journal: o.JournalOut = None,
    graph: o.GraphOut = None,
    jobs_out: o.JobsOut = None,
    timeline_out: o.TimelineOut = None,
    format: o.OutputFormat = "text",
    quiet: o.Quiet = False,
) -> None:
    """Walk through a window hour by hour under several ways of choosing the settings.

    Example: trimtab evaluate jobs.csv --policy tiresias --window 7d..9d --nodes 64
    """
    wanted = [line.strip() for line in lines.split(",")]
    show.check_writable([report, journal, graph, jobs_out, timeline_out])
    records.check_outputs(journal, graph, wanted)
    world = o.make_world(
        *(placement, restart_cost_s, estimates, spread_speed, seed, engine, speeds, models),
        *(curves, mix, curve_noise, adjust_cost_s, site),
    )
    plan = o.make_plan(objective, sampler, budget, interval, arrivals_horizon, run_on, threshold, dwell)
    plan = replace(o.with_forecasts(plan, arrivals, futures, background, aggregate), realised=realised)
    count = o.make_workers(executor, workers, address)
    again = repeats(tie_seeds, seeds, seed)
    name, base = o.read_policy(policy, knob, preset)
    machines = o.open_cluster(nodes, gpus_per_node, cluster, cores_per_node, memory_gib_per_node)
    opened = o.open_trace(source, None, zone, thin, seed, quiet)
    trace = o.with_models(opened, world, [name], quiet)
    o.check_objective(plan, trace)
    world.check_memory(trace, machines)
    parts = ablate or []
    request = Request(
        source=source,
        zone=zone,
        thin=thin,
        sha256=trace.provenance.sha256,
        kept=len(trace),
        window=window,
        cluster=machines,
        policy=name,
        base=base,
        world=world,
        plan=plan,
        lines=tuple(wanted),
        ablate=tuple(parts),
    )
    with (
        open_trials(executor, count, engine, address) as trials,
        show.progress(quiet) as advance,
        records.open_journal(journal, request) as note,
    ):
        runs = []
        for number, (order, one) in enumerate(again):
            this = replace(world, seed=one)
            jobs = trace if one == seed else o.with_models(opened, this)
            runs.append(
                walk_forward(
                    jobs if order is None else o.shuffled_ties(jobs, seed, order),
                    *(window, machines, name, base, this, plan, wanted, trials, advance),
                    parts,
                    note if number == 0 else silent,
                )
            )
    found = runs[0]
    if seeds is not None or tie_seeds:
        found = replace(found, statistics=statistics_of(runs, Seeds(seed)))
    show.notice_rejected(found.lines[0].timeline, quiet)
    if jobs_out is not None:
        show.write_jobs(jobs_out, [(line.name, line.jobs) for line in found.lines], "line")
    if timeline_out is not None:
        show.write_timeline(timeline_out, [(line.name, line.timeline) for line in found.lines], "line")
    if report is not None:
        write_page(report, evaluate_page(found))
    if graph is not None:
        records.write_graph(graph, found)
    spreads = [spread_of([run.lines[place].metrics for run in runs]) for place in range(len(found.lines))]
    if format == "json":
        show.print_json(evaluation_json(found, spreads if len(runs) > 1 else ()))
    else:
        print_evaluation(found)


def repeats(tie_seeds: int, seeds: int | None, seed: int) -> list[tuple[int | None, int]]:
    """Return for each run the number of its order of simultaneous jobs, None for the source's, and its seed.

    Raises:
        ConfigError: If there are none, or both kinds are asked for.
    """
    if tie_seeds < 0:
        raise ConfigError(f"tie-seeds = {tie_seeds}: it must be 0 or more; nothing was run.")
    if seeds is None:
        return [(None, seed), *((number, seed) for number in range(tie_seeds))]
    if seeds < 1:
        raise ConfigError(f"seeds = {seeds}: it must be 1 or more; nothing was run.")
    if tie_seeds:
        raise ConfigError(
            "--seeds varies the order of simultaneous jobs, too: leave out --tie-seeds; nothing was run."
        )
    others = [int(Seeds(seed).stream("runs", number).integers(1 << 40)) for number in range(seeds - 1)]
    return [(None, seed), *enumerate(others)]


def evaluation_json(found: Evaluation, spreads: Spreads = ()) -> dict[str, Any]:
    """Return the object that `evaluate --format json` prints."""
    lines = [line.jsonable() for line in found.lines]
    for line, spread in zip(lines, spreads, strict=False):
        line["spread"] = spread
    return {
        "trimtab": __version__,
        "trace": {
            "source": found.provenance.source,
            "rows": found.provenance.rows,
            "kept": found.kept,
            "left_out": found.provenance.left_out_counts(),
            "sha256": found.provenance.sha256,
        },
        "window": found.window,
        "cluster": found.cluster.jsonable(),
        "policy": found.policy,
        "settings": found.settings,
        "lines": lines,
        **({"statistics": asdict(found.statistics)} if found.statistics else {}),
    }


def print_evaluation(found: Evaluation) -> None:
    """Print the lines as one table; the first is the baseline."""
    show.out.print(
        f"{found.kept:,} jobs of {found.window} on {found.cluster.gpus:,} GPUs, {found.policy}"
        f"{_measured(found)}",
        markup=False,
        soft_wrap=True,
    )
    objective = found.settings["objective"]
    goal, *others = _COLUMNS[objective]
    others.append(("preempt", "preemptions", 0))
    table = _grid(("line", goal[0], "ratio", *(heading for heading, _, _ in others), "switch", "search"))
    base = found.lines[0].metrics.get(goal[1])
    for line in found.lines:
        value = line.metrics.get(goal[1])
        table.add_row(
            line.name,
            show.number(value, goal[2]),
            f"{value / base:.2f}x" if base and value is not None else "-",
            *(show.number(line.metrics.get(metric), digits) for _, metric, digits in others),
            str(line.switches),
            f"{line.seconds['search'] + line.seconds.get('fixed_week_search', 0.0):.1f}",
        )
    _print_grid(table)
    show.out.print(_LEGENDS[objective], markup=False)
    _print_segments(found)
    _print_changes(found)
    if found.statistics is not None:
        _print_statistics(found.statistics)
    notes: dict[str, list[str]] = {}
    for line in found.lines:
        for note in line.notes:
            notes.setdefault(note, []).append(line.name)
    for note, names in notes.items():
        show.out.print(f"{', '.join(names)}: {note}", soft_wrap=True, markup=False)


def _measured(found: Evaluation) -> str:
    told = {name: found.settings[name] for name in ("speeds", "models", "site") if name in found.settings}
    return "".join(f"; {name}: {value}" for name, value in told.items())


def _grid(headings: Sequence[str], texts: int = 1) -> Table:
    """Return an empty table: columns of text, which may be broken, before columns of numbers."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for place, heading in enumerate(headings):
        named = place < texts
        table.add_column(heading, justify="left" if named else "right", no_wrap=not named)
    return table


def _print_grid(table: Table) -> None:
    """Print a table, with less room between its columns where names would be cut."""
    free = show.out.options.update(max_width=1_000)
    table.collapse_padding = Measurement.get(show.out, free, table).maximum > show.out.width
    show.out.print(table)


def _print_segments(found: Evaluation) -> None:
    names = list(dict.fromkeys(name for line in found.lines for name in line.segments))
    table = _grid(["mean wait", *(name.replace("-job-dominated", " jobs") for name in names)])
    for line in found.lines:
        table.add_row(line.name, *(_segment(line.segments.get(name, {})) for name in names))
    if names:
        _print_grid(table)
    if "after-change" in names:
        show.out.print(f"after-change: in brackets the same jobs under {found.lines[0].name}", markup=False)


def _segment(waits: Mapping[str, float]) -> str:
    text, reference_s = show.number(waits.get("wait_s_mean"), 0), waits.get("reference_wait_s_mean")
    return text if reference_s is None else f"{text} ({show.number(reference_s, 0)})"


def _print_changes(found: Evaluation) -> None:
    for line in found.lines:
        stay_s, undone = line.switching.get("dwell_s_mean"), line.switching.get("flapping_share")
        if stay_s is None or undone is None:
            continue
        stay = f"{line.name}: a setting stayed {stay_s / 3600:.1f} h"
        text = f"{stay}, {100 * undone:.0f} % of changes were partly undone within 3 h"
        part = line.switching["realised_over_predicted"]
        show.out.print(text if part is None else f"{text}, {part:.2f} of the gain came true", soft_wrap=True)


def _print_statistics(statistics: Statistics) -> None:
    """Print mean waits over the runs, and how lines compare with those that they have to beat."""
    waits = _grid(["line", "wait", "deviation", "least", "most"])
    for name, wait in statistics.waits.items():
        values = (wait.mean, wait.deviation, wait.low, wait.high)
        waits.add_row(name, *(show.number(value, 1) for value in values))
    runs = f"{statistics.runs} seed or order of simultaneous jobs"
    if statistics.runs > 1:
        runs = f"{statistics.runs} seeds or orders of simultaneous jobs"
    show.out.print(f"over {runs}:")
    show.out.print(waits)
    table = _grid(["line", "against", "ratio", "lowest..highest", "difference", "95 %"], 2)
    for one in statistics.contrasts:
        ratio, span, interval = one.ratio, "-", "-"
        if ratio is not None:
            span = f"{ratio.low:.3f}..{ratio.high:.3f}"
        if one.interval_s is not None:
            interval = "..".join(show.number(bound, 0) for bound in one.interval_s)
        mean, difference = ratio.mean if ratio else None, show.number(one.difference_s, 1)
        table.add_row(one.line, one.reference, show.number(mean, 3), span, difference, interval)
    show.out.print(table)
    show.out.print("difference: of mean wait in s, job by job; its interval: days drawn again")
