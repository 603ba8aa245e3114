"""`policies`, `knobs` and `doctor`: what there is."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from trimtab import __version__
from trimtab.cli import options as o
from trimtab.cli import show
from trimtab.knobs import write
from trimtab.policies.catalog import POLICIES
from trimtab.simulate.fast import compiled_available


def policies(format: o.OutputFormat = "text", seed: o.NoSeed = 0, quiet: o.Quiet = False) -> None:
    """List the policies.

    Example: trimtab policies
    """
    rows = [
        (name, (policy.__doc__ or "").splitlines()[0], list(policy.space.by_name))
        for name, policy in POLICIES.items()
    ]
    if format == "json":
        show.print_json(
            {"policies": [{"name": name, "about": about, "knobs": knobs} for name, about, knobs in rows]}
        )
        return
    for name, about, knobs in rows:
        show.print_entry(name, about, f"knobs: {', '.join(knobs)}")
    show.out.print("your own: --policy path/to/file.py::Name")


def knobs(
    policy: Annotated[str, typer.Argument(help="A policy, or path/to/file.py::Name.")],
    format: o.OutputFormat = "text",
    seed: o.NoSeed = 0,
    quiet: o.Quiet = False,
) -> None:
    """Show a policy's knobs: values, default, what they trade and what an update does.

    Example: trimtab knobs tiresias
    """
    space = o.open_policy(policy).space
    if format == "json":
        rows = [
            {
                "name": knob.name,
                "kind": knob.kind,
                "default": space.defaults.jsonable()[knob.name],
                "rule": knob.rule(),
                "trades": knob.trades,
                "takes_effect": knob.takes_effect,
                "in_flight": knob.in_flight,
            }
            for knob in space.knobs
        ]
        show.print_json({"policy": policy, "knobs": rows})
        return
    if not space.knobs:
        show.out.print(f"{policy} has no knobs", markup=False)
    for knob in space.knobs:
        show.print_entry(
            f"{knob.name} = {write(knob.default)}",
            f"values: {knob.rule()}",
            knob.trades,
            f"takes effect: {knob.takes_effect}; jobs in flight: {knob.in_flight}",
        )


def doctor(format: o.OutputFormat = "text", seed: o.NoSeed = 0, quiet: o.Quiet = False) -> None:
    """Say what this installation is and has.

    Example: trimtab doctor
    """
    shared = Path(os.environ.get("TRIMTAB_SHARED", "../shared"))
    found = {
        "trimtab": __version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "cores": os.cpu_count() or 1,
        "engine": "compiled" if compiled_available() else "reference",
        "parts": {name: importlib.util.find_spec(name) is not None for name in ("pooch", "lightgbm")},
        "data": {"TRIMTAB_SHARED": str(shared), "present": shared.is_dir()},
    }
    if format == "json":
        show.print_json(found)
        return
    table = Table(show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for key, value in found.items():
        text = (
            ", ".join(f"{name}: {item}" for name, item in value.items())
            if isinstance(value, dict)
            else str(value)
        )
        table.add_row(key, text)
    show.out.print(table)
