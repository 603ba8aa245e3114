"""The settings file of `trimtab slurm dispatch`: one TOML file, read whole or refused whole.

Its knobs are read again before each decision; all else holds until a restart. Paths are taken from the file's
own folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from trimtab.cluster import Placement
from trimtab.control.settings_table import Table, one_of, span, text, toml_file, without_end
from trimtab.errors import ConfigError, TrimtabError
from trimtab.knobs import Knobs, write
from trimtab.policies.catalog import find_policy
from trimtab.simulate.curve_files import open_curves
from trimtab.simulate.curves import BUILTIN_CURVES, CurveTable

_PLACEMENTS = ("consolidated", "relaxed")
# Policies that cannot drive Slurm, and why.
_CANNOT = {
    "slurm": "it is a model of Slurm's own order, which Slurm goes by itself",
    "lucid": "it puts two jobs on one GPU, which Slurm does not",
    "themis": "it counts the jobs that were there over time, which Slurm does not tell",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchSettings:
    """A settings file.

    Attributes:
        conf: slurm.conf, None for the usual one. desk: the folder that knobs are told through.
        knobs: The setting it asks for.
        interval_ms: How often is decided. patience_ms: how long a job that was released may take to start.
        timeout_s: How long each of Slurm's commands may take.
        curves: Speed by CPU and memory of the models that tickets name.
        progress: A folder where jobs say how far they are, in files named by their ids; None for none.
    """

    path: Path
    policy: str
    knobs: Knobs
    conf: Path | None
    desk: Path
    interval_ms: int
    patience_ms: int
    timeout_s: float
    placement: Placement
    curves: CurveTable
    progress: Path | None


def read_dispatch(path: Path, policy: str | None = None) -> DispatchSettings:
    """Read a settings file.

    Args:
        policy: In place of the one that the file names.

    Raises:
        ConfigError: If it cannot be read, or anything in it is not possible; the message names file and key.
    """
    _, values = toml_file(path)
    try:
        return _settings(path, Table(values, ""), policy)
    except TrimtabError as problem:
        line = without_end(ConfigError(str(problem)))
        raise ConfigError(f"{path}: {line}; nothing was changed.") from None


def _settings(path: Path, file: Table, policy: str | None) -> DispatchSettings:
    named = file.take("policy", text, "")
    name = policy or named
    if not name:
        raise ConfigError("policy is missing: name one here, or with --policy")
    found = find_policy(name)
    if name in _CANNOT:
        raise ConfigError(f"policy {name} cannot drive Slurm: {_CANNOT[name]}")
    knobs = file.table("knobs").each(_knob_text)
    if named and policy and policy != named:
        knobs = {}  # they are those of another policy
    curves = file.take("curves", text, "")
    progress, conf = file.take("progress", text, None), file.take("conf", text, None)
    settings = DispatchSettings(
        path=path,
        policy=name,
        knobs=found.space.parse(knobs),
        conf=None if conf is None else path.parent / conf,
        desk=path.parent / file.take("desk", text),
        interval_ms=file.take("interval", span, 5000),
        patience_ms=file.take("patience", span, 90_000),
        timeout_s=file.take("timeout", span, 20_000) / 1000,
        placement=cast(Placement, file.take("placement", one_of("placement", _PLACEMENTS), "consolidated")),
        curves=_curves(path, curves),
        progress=None if progress is None else path.parent / progress,
    )
    file.done()
    return settings


def _curves(path: Path, name: str) -> CurveTable:
    if not name:
        return CurveTable("none")
    return open_curves(name if name == BUILTIN_CURVES.source else str(path.parent / name))


def _knob_text(name: str, value: Any) -> str:
    """Return a knob's value as the command line takes it; lists are of whole numbers."""
    if isinstance(value, list) and all(type(one) is int for one in value):
        return write(tuple(value))
    if not isinstance(value, bool | int | float | str):
        raise ConfigError(f"{name} = {value!r:.60}: it must be a number, a text, true, false or a list")
    return write(value)
