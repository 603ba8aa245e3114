"""`slurm`: what a live Slurm lets Trimtab do, its history as a trace, and our own policies driving it."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli import options as o
from trimtab.cli import show
from trimtab.cli.trace import say_written
from trimtab.control import slurm_commands, slurm_submit
from trimtab.control.dispatch_settings import read_dispatch
from trimtab.control.slurm_check import Check
from trimtab.control.slurm_check import check as look
from trimtab.control.slurm_commands import Commands, read_config
from trimtab.control.slurm_dispatch import Dispatcher
from trimtab.control.slurm_file import lines_of
from trimtab.control.slurm_history import read_history
from trimtab.control.slurm_keys import is_accounted
from trimtab.control.slurm_site import read_site
from trimtab.errors import ConfigError, InputError
from trimtab.traces import jobcomp
from trimtab.traces.spans import duration_ms
from trimtab.traces.table import save
from trimtab.traces.trace import Trace
from trimtab.world import epoch_ms

app = typer.Typer(
    help="A live Slurm: what may be changed there, its history as a trace, jobs for our own policies.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)

Conf = Annotated[
    Path | None,
    typer.Option(help="The cluster's slurm.conf; SLURM_CONF or /etc/slurm/slurm.conf if not given."),
]
Timeout = Annotated[float, typer.Option("--timeout-s", help="How long each of Slurm's commands may take.")]


def commands_for(conf: Path | None, timeout_s: float) -> Commands:
    """Return Slurm's commands for a cluster.

    Raises:
        Unreachable: If its slurm.conf cannot be read: the commands themselves would wait a minute for it.
    """
    commands = slurm_commands.commands_for(conf, timeout_s)
    for _ in lines_of(commands.conf):
        pass
    return commands


@app.command()
def check(
    conf: Conf = None,
    file: Annotated[
        Path | None, typer.Option(help="The included file that changes would be written to.")
    ] = None,
    timeout_s: Timeout = 20.0,
    format: o.OutputFormat = "text",
    seed: o.NoSeed = 0,
    quiet: o.Quiet = False,
) -> None:
    """Say what a cluster would let Trimtab do; changes nothing.

    Example: trimtab slurm check --file /etc/slurm/trimtab.conf
    """
    found = look(commands_for(conf, timeout_s), file)
    if format == "json":
        show.print_json(found.jsonable())
    else:
        _print_check(found)


def _print_check(found: Check) -> None:
    show.out.print(
        f"Slurm {found.version}, {found.scheduler}, {found.priority}, {found.accounting}\n"
        f"{found.nodes:,} nodes with {found.gpus:,} GPUs in service",
        markup=False,
    )
    for one in found.keys:
        told = one.range if one.tunable else one.applies if one.applies != "reconfigure" else "set elsewhere"
        show.out.print(f"{'*' if one.tunable else ' '} {one.name} = {one.value}  ({told})", markup=False)
    for text in found.warnings:
        show.out.print(f"! {text}", soft_wrap=True, markup=False)
    for text in found.refusals:
        show.out.print(f"no change: {text}", soft_wrap=True, markup=False)
    if not found.refusals:
        tunable = sum(one.tunable for one in found.keys)
        show.out.print(f"Trimtab could change the {tunable} settings marked with *.")


@app.command("import")
def import_history(
    out: Annotated[Path, typer.Option(help="Table to write: .csv, .csv.gz or .parquet.")],
    conf: Conf = None,
    since: Annotated[str, typer.Option(help="How far back, e.g. 90d.")] = "90d",
    slice: Annotated[str, typer.Option(help="How much sacct is asked for at once.")] = "1d",
    completions: Annotated[
        Path | None, typer.Option(help="A job completion file (jobcomp/filetxt), in place of sacct.")
    ] = None,
    zone: o.Zone = None,
    timeout_s: Timeout = 120.0,
    format: o.OutputFormat = "text",
    seed: o.NoSeed = 0,
    quiet: o.Quiet = False,
) -> None:
    """Write a cluster's last months as the canonical table, without loading its controller.

    Example: trimtab slurm import --out jobs.csv.gz --since 90d
    """
    show.check_writable([out])
    if completions is not None:
        trace = jobcomp.load(completions, zone=zone)
    else:
        trace = _history(commands_for(conf, timeout_s), since, slice, zone, quiet)
    show.notice_trace(trace, quiet)
    save(trace, out)
    say_written(trace, out, format, quiet)


@app.command()
def site(
    out: Annotated[Path, typer.Option(help="Site file to write, for --site.")],
    conf: Conf = None,
    timeout_s: Timeout = 20.0,
    format: o.OutputFormat = "text",
    seed: o.NoSeed = 0,
    quiet: o.Quiet = False,
) -> None:
    """Write what a cluster's partitions, QOS and accounts are worth as a site file.

    Example: trimtab slurm site --out site.toml
    """
    show.check_writable([out])
    commands = commands_for(conf, timeout_s)
    found, notes = read_site(commands, read_config(commands))
    for note in notes:
        show.notice(note, quiet)
    out.write_text(found.text(), encoding="utf-8")
    if format == "json":
        show.print_json({"path": str(out), **found.tables()})
    counts = (
        f"{len(found.partitions):,} partitions, {len(found.qualities):,} qualities of service and "
        f"{len(found.shares):,} accounts"
    )
    show.notice(f"wrote {counts} to {out}", quiet)


def _history(commands: Commands, since: str, slice: str, zone: str | None, quiet: bool) -> Trace:
    """Return what sacct tells, or the job completion file of a cluster without accounting."""
    back_ms, slice_ms = duration_ms("--since", since), duration_ms("--slice", slice)
    if back_ms <= 0 or slice_ms < 60_000 or back_ms // slice_ms > 100_000:
        raise ConfigError(
            f"--since {since} --slice {slice}: nothing lies in it, or too many slices; nothing ran."
        )
    config = read_config(commands)
    if not is_accounted(config):
        if config.get("jobcomptype") != "jobcomp/filetxt":
            raise InputError("this cluster has neither slurmdbd nor jobcomp/filetxt: it keeps no history.")
        return jobcomp.load(config["jobcomploc"], zone=zone)
    until_ms = epoch_ms()
    with show.progress(quiet) as tell:
        return read_history(commands, until_ms - back_ms, until_ms, slice_ms, tell)


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def submit(
    words: Annotated[
        list[str], typer.Argument(metavar="SBATCH...", help="Options, script and arguments as of sbatch.")
    ],
    deadline: Annotated[
        str | None,
        typer.Option(help="By when it is wanted: 2h from now, or 2026-11-30T18:00:00Z; several joined by /."),
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--class", help="strict, soft or best; as the deadlines say if not given.")
    ] = None,
    value: Annotated[str | None, typer.Option(help="What each deadline is worth, joined by /: 10/5.")] = None,
    estimate: Annotated[
        str | None, typer.Option(help="How long it runs: 90s, 30m, 1h or 2d; its time limit if not given.")
    ] = None,
    preemptable: Annotated[
        bool, typer.Option("--preemptable", help="It may be requeued: it goes on from where it was.")
    ] = False,
    model: Annotated[
        str | None, typer.Option(help="What it trains, of those that the dispatcher's curves tell of.")
    ] = None,
    conf: Annotated[Path | None, typer.Option(help="The cluster's slurm.conf, if not the usual one.")] = None,
    format: o.OutputFormat = "text",
    seed: o.NoSeed = 0,
    quiet: o.Quiet = False,
) -> None:
    """Submit a job held, for `trimtab slurm dispatch` to start; options of sbatch follow those named here.

    Example: trimtab slurm submit --deadline 2h --estimate 40m --gpus=4 train.sh --epochs 90
    """
    ticket = slurm_submit.make_ticket(epoch_ms(), kind, deadline, value, estimate, preemptable, model)
    line = slurm_submit.sbatch_line(ticket, words)
    said = slurm_submit.submit(line, conf)
    if format == "json":
        show.print_json({"said": said, "comment": line[2].partition("=")[2]})
    else:
        show.out.print(said, markup=False, soft_wrap=True)


@app.command()
def dispatch(
    config: Annotated[Path, typer.Option(help="The dispatcher's settings file.")] = Path("dispatch.toml"),
    policy: Annotated[
        str | None, typer.Option(help="In place of the one that the file names: tiresias, sensascale, ...")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Decide once, act, and end.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Decide once, say what would be done, and do nothing.")
    ] = False,
    format: o.OutputFormat = "text",
    seed: o.NoSeed = 0,
    quiet: o.Quiet = False,
) -> None:
    """Start the jobs of `trimtab slurm submit` as one of our policies decides, until stopped.

    Example: trimtab slurm dispatch --policy tiresias --config dispatch.toml
    """
    settings = read_dispatch(config, policy)
    one_look = once or dry_run
    is_json = format == "json"

    def tell(text: str) -> None:
        if one_look and is_json:
            show.notice(text, quiet)
        else:
            print(json.dumps({"ms": epoch_ms(), "says": text}) if is_json else text, flush=True)

    dispatcher = Dispatcher(commands_for(settings.conf, settings.timeout_s), settings, tell, policy)
    if not one_look:
        dispatcher.run(threading.Event())
        return
    step = dispatcher.once(dry_run)
    if is_json:
        acts = [{"job": act.label, "says": act.says, "commands": act.commands} for act in step.acts]
        show.print_json({"dry": dry_run, "acts": acts, "remarks": step.remarks})
    elif dry_run:
        for text in [*(f"would do: {act.says}" for act in step.acts), *step.remarks]:
            print(text)
        if not step.acts:
            print("nothing to do")
