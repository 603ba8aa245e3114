"""`trace`: list, describe, convert, generate and fetch job histories, and give them deadlines."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from trimtab.cli import options as o
from trimtab.cli import show
from trimtab.errors import ConfigError, OutputError
from trimtab.report.page import write_page
from trimtab.report.trace import trace_page
from trimtab.traces import deadlines as rules
from trimtab.traces.catalog import CATALOG
from trimtab.traces.catalog import fetch as download
from trimtab.traces.describe import Description
from trimtab.traces.describe import describe as describe_trace
from trimtab.traces.loader import load
from trimtab.traces.table import save
from trimtab.traces.trace import Trace
from trimtab.world import Seeds

app = typer.Typer(
    help="List, describe, convert, generate and fetch job histories; give them deadlines.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


@app.command("list")
def list_traces(format: o.OutputFormat = "text", seed: o.NoSeed = 0, quiet: o.Quiet = False) -> None:
    """List the public traces that `trace fetch` knows.

    Example: trimtab trace list
    """
    if format == "json":
        show.print_json({"traces": [dataclasses.asdict(item) for item in CATALOG]})
        return
    for item in CATALOG:
        show.print_entry(
            f"{item.name}: {item.title}",
            f"licence: {item.licence}; cite {item.cite}",
            f"known holes: {'; '.join(item.holes)}",
        )


@app.command()
def describe(
    source: o.Source,
    window: o.Window = None,
    zone: o.Zone = None,
    gpus: Annotated[int | None, typer.Option(help="GPUs of the cluster that load is stated for.")] = None,
    report: o.Report = None,
    format: o.OutputFormat = "text",
    seed: o.NoSeed = 0,
    quiet: o.Quiet = False,
) -> None:
    """Say what a trace holds and what is wrong with it.

    Example: trimtab trace describe philly:jobs.csv.gz --report trace.html
    """
    show.check_writable([report])
    if gpus is not None and gpus < 1:
        raise ConfigError(f"gpus = {gpus}: it must be at least 1; nothing was read.")
    found = describe_trace(o.open_trace(source, window, zone, None, 0), gpus)
    if report is not None:
        write_page(report, trace_page(found))
    if format == "json":
        show.print_json(found.jsonable())
    else:
        _print_description(found)


def _print_description(found: Description) -> None:
    show.out.print(
        f"{found.source}\n{found.first} .. {found.last} ({found.span_days:.1f} days), zone {found.zone}"
    )
    show.out.print(f"rows {found.rows:,}, kept {found.kept:,}, arrivals without a run {found.unrun:,}")
    for item in found.left_out:
        show.out.print(
            f"  left out {item.count:,}: {item.reason} (e.g. {item.example})", soft_wrap=True, markup=False
        )
    load_text = "" if found.load is None else f", load {found.load:.2f} on {found.cluster_gpus:,} GPUs"
    rate = "" if found.jobs_a_day is None else f", {found.jobs_a_day:,.0f} jobs a day"
    show.out.print(f"{found.gpu_hours:,.0f} GPU-hours, largest gang {found.largest_gang}{rate}{load_text}")
    for title, classes in (("GPUs of a gang", found.gangs), ("run time", found.run_times)):
        table = Table(title=title, title_justify="left")
        for heading in ("class", "% of jobs", "% of GPU time"):
            table.add_column(heading, justify="right")
        for part in classes:
            table.add_row(part.name, f"{part.jobs:.1f}", f"{part.gpu_time:.1f}")
        show.out.print(table)
    for text in (*found.notes, *found.warnings):
        show.out.print(f"! {text}", soft_wrap=True, markup=False)


@app.command()
def convert(
    source: o.Source,
    out: Annotated[Path, typer.Argument(help="Table to write: .csv, .csv.gz or .parquet.")],
    window: o.Window = None,
    zone: o.Zone = None,
    thin: o.Thin = None,
    seed: o.Seed = 0,
    format: o.OutputFormat = "text",
    quiet: o.Quiet = False,
) -> None:
    """Write a trace as the canonical table.

    Example: trimtab trace convert sacct:jobs.txt jobs.parquet
    """
    _check_out(source, out)
    trace = o.open_trace(source, window, zone, thin, seed, quiet)
    save(trace, out)
    say_written(trace, out, format, quiet)


@app.command()
def generate(
    spec: Annotated[str, typer.Argument(help="PRESET?days=14&load=0.9&seed=3; presets philly, helios, pai.")],
    out: Annotated[Path, typer.Argument(help="Table to write: .csv, .csv.gz or .parquet.")],
    seed: Annotated[int | None, typer.Option(help="The spec's seed, if that names none.")] = None,
    format: o.OutputFormat = "text",
    quiet: o.Quiet = False,
) -> None:
    """Write a synthetic trace, calibrated to published statistics.

    Example: trimtab trace generate "philly?days=14&seed=3" jobs.csv.gz
    """
    show.check_writable([out])
    text = spec.removeprefix("synthetic:")
    if seed is not None:
        text += f"{'&' if '?' in text else '?'}seed={seed}"
    trace = load(f"synthetic:{text}")
    save(trace, out)
    say_written(trace, out, format, quiet)


@app.command()
def deadlines(
    source: o.Source,
    out: Annotated[Path, typer.Argument(help="Table to write: .csv, .csv.gz or .parquet.")],
    rule: Annotated[str, typer.Option(help=" | ".join(rules.RULES))] = "chronus",
    classes: Annotated[
        str,
        typer.Option(help=f"Weights of strict/soft/best-effort jobs, or {' | '.join(rules.CLASS_MIXES)}."),
    ] = "MIX1",
    load: Annotated[float | None, typer.Option(help="Stretch or shrink time to this load.")] = None,
    gpus: Annotated[int | None, typer.Option(help="GPUs of the cluster that load is stated for.")] = None,
    window: o.Window = None,
    zone: o.Zone = None,
    thin: Annotated[float | None, typer.Option(help="Keep this share of the jobs, drawn job by job.")] = None,
    seed: o.Seed = 0,
    format: o.OutputFormat = "text",
    quiet: o.Quiet = False,
) -> None:
    """Write a trace with deadlines drawn by a rule, thinned and brought to a load if asked.

    Example: trimtab trace deadlines philly:jobs.csv.gz slo.csv.gz --classes 30/60/10 --load 0.9 --gpus 96
    """
    _check_out(source, out)
    if load is not None and gpus is None:
        raise ConfigError("--load is that of a cluster: give its --gpus; nothing was run.")
    if gpus is not None and gpus < 1:
        raise ConfigError(f"gpus = {gpus}: it must be at least 1; nothing was run.")
    seeds = Seeds(o.checked_seed(seed))
    trace = o.open_trace(source, window, zone, None, seed, quiet)
    if thin is not None:
        trace = rules.thinned_by_job(trace, thin, seeds)
    if load is not None and gpus is not None:
        trace = rules.scaled_to_load(trace, load, gpus)
    trace = rules.with_deadlines(trace, rule, classes, seeds)
    found = None if gpus is None else rules.load_of(trace, gpus)
    save(trace, out)
    if gpus is not None:
        show.notice(f"load {found:.3f} on {gpus:,} GPUs", quiet)
    say_written(trace, out, format, quiet)


def _check_out(source: str, out: Path) -> None:
    """Refuse an output that could not be written, or that is the trace itself.

    Raises:
        OutputError: Which of these it is.
    """
    show.check_writable([out])
    named = (Path(source), Path(source.partition(":")[2]))
    if out.exists() and any(path.is_file() and path.samefile(out) for path in named):
        raise OutputError(f"{out}: is the trace that is read; nothing was written.")


def say_written(trace: Trace, out: Path, format: o.Format, quiet: bool) -> None:
    """Say what was written where."""
    if format == "json":
        show.print_json({"path": str(out), "jobs": len(trace), "unrun": trace.unrun.height})
    more = f" and {trace.unrun.height:,} arrivals without a run" if trace.unrun.height else ""
    show.notice(f"wrote {len(trace):,} jobs{more} to {out}", quiet)


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="A name of `trace list`.")],
    folder: Annotated[Path, typer.Option(help="Where to put it.")] = Path(),
    base_url: Annotated[str | None, typer.Option(help="Fetch from a mirror.")] = None,
    format: o.OutputFormat = "text",
    seed: o.NoSeed = 0,
    quiet: o.Quiet = False,
) -> None:
    """Download a public trace and verify its checksum.

    Example: trimtab trace fetch philly --folder traces
    """
    found = download(name, folder, base_url)
    show.notice(f"{'verified' if found.known else 'first download, sha256'} {found.sha256}", quiet)
    if format == "json":
        show.print_json({"path": str(found.path), "sha256": found.sha256, "known": found.known})
    else:
        print(found.path)
