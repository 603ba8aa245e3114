"""`policies`, `knobs` and `doctor`: what there is."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from trimtab import __version__
from trimtab.cli import options as o
from trimtab.cli import show
from trimtab.knobs import Value, plain_value, write
from trimtab.policies.catalog import POLICIES
from trimtab.simulate.fast import compiled_available, core_built, core_refusal, usable_cores

# A line of the installed metadata: `pooch>=1.8; extra == "traces"`.
_REQUIREMENT = re.compile(r"""(?P<name>[\w.-]+)[^;]*(;.*\bextra == ['"](?P<extra>[\w-]+)['"])?""")
_NOT_FOR_USERS = ("test", "all")


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
                "no_effect_while": {
                    other: [plain_value(value) for value in values]
                    for other, values in space.silencers(knob.name).items()
                },
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
            *_silenced(space.silencers(knob.name)),
        )


def _silenced(silencers: Mapping[str, Sequence[Value]]) -> list[str]:
    """Return the line that says beside which values of others a knob does nothing; none if there are none."""
    said = [f"{other} = {' or '.join(map(write, values))}" for other, values in silencers.items()]
    return [f"no effect while {', or '.join(said)}"] if said else []


def doctor(format: o.OutputFormat = "text", seed: o.NoSeed = 0, quiet: o.Quiet = False) -> None:
    """Say what this installation is and has: which engine runs and why, what is installed, where data is.

    Example: trimtab doctor
    """
    shared = Path(os.environ.get("TRIMTAB_SHARED", "../shared"))
    needed, extras = _requirements()
    found = {
        "trimtab": __version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "threads": usable_cores(),
        "engine": "compiled" if compiled_available() else "reference",
        "why": core_refusal() or "the compiled core is built",
        "core": core_built(),
        "packages": needed,
        "extras": extras,
        "data": {"TRIMTAB_SHARED": str(shared), "present": shared.is_dir()},
    }
    if format == "json":
        show.print_json(found)
        return
    table = Table(show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for key, value in found.items():
        table.add_row(key, Text(_listed(value)))
    show.out.print(table)


def _requirements() -> tuple[dict[str, str | None], dict[str, dict[str, str | None]]]:
    """Return versions of what Trimtab needs, and by extra of what it can use; None where not there."""
    needed: dict[str, str | None] = {}
    extras: dict[str, dict[str, str | None]] = {}
    try:
        lines = metadata.requires("trimtab") or []
    except metadata.PackageNotFoundError:  # run from its source, not installed
        lines = []
    for line in lines:
        words = _REQUIREMENT.match(line)
        assert words is not None, line
        if not words["extra"]:
            needed[words["name"]] = _version(words["name"])
        elif words["name"] != "trimtab" and words["extra"] not in _NOT_FOR_USERS:
            extras.setdefault(words["extra"], {})[words["name"]] = _version(words["name"])
    return needed, extras


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _listed(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_listed(item)}" for name, item in value.items())
    return "not there" if value is None else str(value)
