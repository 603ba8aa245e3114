"""`slurm`: what a live Slurm would let Trimtab do, and its history as a trace."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli import options as o
from trimtab.cli import show
from trimtab.control.slurm_check import Check
from trimtab.control.slurm_check import check as look
from trimtab.control.slurm_commands import Commands

app = typer.Typer(
    help="Look at a live Slurm: what may be changed there, and its history as a trace.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Conf = Annotated[
    Path | None,
    typer.Option(help="The cluster's slurm.conf; SLURM_CONF or /etc/slurm/slurm.conf if not given."),
]
Timeout = Annotated[float, typer.Option("--timeout-s", help="How long each of Slurm's commands may take.")]

_USUAL = "/etc/slurm/slurm.conf"


def commands_for(conf: Path | None, timeout_s: float) -> Commands:
    """Return Slurm's commands for a cluster."""
    return Commands(conf or Path(os.environ.get("SLURM_CONF") or _USUAL), deadline_s=timeout_s)


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
