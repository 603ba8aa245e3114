"""`study`: many simulations that together answer one question."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from trimtab.cli import options as o
from trimtab.cli import show
from trimtab.errors import ConfigError
from trimtab.report.ladder import AQT_ALL, JCT, VIOLATIONS, Duel, StudySummary, ladder_page
from trimtab.report.page import write_page
from trimtab.report.tables import PREEMPTIONS_A_JOB, RESIZES_A_JOB
from trimtab.studies.deadline_grid import Grid
from trimtab.studies.deadline_results import cells_csv, summary_of
from trimtab.studies.deadlines import Study, entries_of, run_study
from trimtab.traces.loader import load

app = typer.Typer(
    help="Simulate a grid of cases and compare policies over all of it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


@app.callback()
def _verbs() -> None:
    """Keep the name of the study a word of the command line, as long as there is one."""


@app.command()
def deadlines(
    source: o.Source,
    grid: Annotated[Path | None, typer.Option(help="TOML file: what differs from the usual grid.")] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="In place of the grid's policies, repeatable; the first is the baseline."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="In place of the grid's number of seeds.")] = None,
    thin: o.Thin = None,
    out: Annotated[Path, typer.Option(help="Folder of cells and results; made if missing, resumed.")] = Path(
        "trimtab-deadlines"
    ),
    report: Annotated[
        Path | None, typer.Option(help="Where the page goes; report.html of the folder unless given.")
    ] = None,
    workers: o.Workers = None,
    engine: o.Engine = "auto",
    seed: o.Seed = 0,
    format: o.OutputFormat = "text",
    quiet: o.Quiet = False,
) -> None:
    """Compare policies on jobs with deadlines, over loads, mixes, nodes and seeds.

    Example: trimtab study deadlines chronus:jobs.csv --policy fifo --policy srtf
    """
    wanted = _grid(grid, policy, seeds, thin)
    count = o.make_workers("processes", workers, None)
    o.make_world(
        "consolidated", str(wanted.restart_cost_s), "oracle", 0.5, seed, engine, curves=wanted.curves
    )
    entries = entries_of(wanted, lambda text: o.read_policy(text, None))
    page = report or out / "report.html"
    trace = load(source)
    show.notice_trace(trace, quiet)
    study = Study(source, trace.provenance.sha256, wanted, entries, seed, engine)
    if out.is_dir() or report is not None:
        show.check_writable([page])
    with show.progress(quiet) as advance:
        done = run_study(study, out, count, advance)
    found = summary_of(study, done)
    show.write_text(out / "cells.csv", cells_csv(done))
    show.write_text(out / "summary.json", show.json_text(found.jsonable()))
    write_page(page, ladder_page(found))
    if format == "json":
        show.print_json({"report": str(page), **found.jsonable()})
        return
    _print(found)
    show.out.print(f"report: {page}", soft_wrap=True, markup=False)


def _grid(file: Path | None, policies: list[str] | None, seeds: int | None, thin: float | None) -> Grid:
    """Return the grid that is asked for, once it can be run.

    Raises:
        InputError: If the file cannot be read.
        ConfigError: If the grid is not possible.
    """
    found = Grid() if file is None else Grid.read(file)
    if policies:
        if len(set(policies)) < len(policies):
            raise ConfigError("a policy is given twice; nothing was run.")
        named = {text: text for text in policies}
        found = replace(found, policies=named, thin_policies={}, baselines=(policies[0],))
    found = replace(found, seeds=found.seeds if seeds is None else seeds)
    found = replace(found, thin=found.thin if thin is None else thin)
    found.check()
    return found


def _print(found: StudySummary) -> None:
    show.out.print(f"{found.cells:,} cells over {found.source}", markup=False, soft_wrap=True)
    table = _table("policy", *(title for _, title, _ in _OF_PART), "preempted", "resized")
    for name in found.policies:
        row = found.means[name]
        often = (show.number(row.get(one.name), 2) for one in (PREEMPTIONS_A_JOB, RESIZES_A_JOB))
        times = (shown(row.get(measure.name)) for measure, _, shown in _OF_PART)
        table.add_row(Text(name), *times, *often)
    show.out.print(table)
    _print_variations(found)
    for baseline in dict.fromkeys(one.baseline for one in found.duels):
        show.out.print(
            f"against {baseline}: points of value lost, their 95 %, changes; cases better/tied/worse"
        )
        duels = _table("policy", "points", "95 %", "value lost", "JCT", "queue", "cases")
        for one in found.duels:
            if one.baseline == baseline:
                duels.add_row(Text(one.policy), *_against(one))
        show.out.print(duels)
    for duel in found.duels:
        for case in duel.worst[:1]:
            rates = f"{_percent(case.policy)} against {_percent(case.baseline)} of {duel.baseline}"
            text = f"{duel.policy} does worst at {case.case}: {rates}"
            show.out.print(text, soft_wrap=True, markup=False)
    for name, reason in found.failed:
        show.out.print(f"! {name}: {reason}", soft_wrap=True, markup=False)


def _print_variations(found: StudySummary) -> None:
    """Print what is made of the grid's centre by its variations, a table a measure; nothing without any."""
    names = list(dict.fromkeys(name for row in found.variations.values() for name in row))
    for measure, title, shown in _OF_PART if len(names) > 1 else ():
        table = _table(title, *(re.sub(" (off|to) ", r"\n\1 ", name) for name in names))
        for policy in found.policies:
            row = found.variations[policy]
            table.add_row(Text(policy), *(shown(row[name].get(measure.name)) for name in names))
        show.out.print(table)


def _table(*headings: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=bool(place))
    return table


def _against(duel: Duel) -> list[str]:
    lost = duel.measures[VIOLATIONS.name]
    around = "-" if lost.interval is None else "..".join(f"{100 * one:.2f}" for one in lost.interval)
    changes = [duel.measures.get(one.name) for one in (VIOLATIONS, JCT, AQT_ALL)]
    shown = ["-" if one is None or one.change is None else f"{100 * one.change:+.0f} %" for one in changes]
    return [f"{100 * lost.difference:+.2f}", around, *shown, f"{lost.better}/{lost.tied}/{lost.worse}"]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"


def _hours(time_s: float | None) -> str:
    return "-" if time_s is None else f"{time_s / 3600:.2f}"


_OF_PART = (
    (VIOLATIONS, "value lost", _percent),
    (JCT, "JCT, h", _hours),
    (AQT_ALL, "queue, h", _hours),
)
