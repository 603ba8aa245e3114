"""One door for every source: `FORMAT:PATH`, a bare path whose format is recognised, or `synthetic:SPEC`."""

from __future__ import annotations

import csv
import inspect
from collections.abc import Callable
from pathlib import Path

from trimtab.errors import InputError, UnknownName
from trimtab.traces import chronus, helios, jobcomp, pai, philly, sacct, slurm_json, swf, synthetic, table
from trimtab.traces.files import Stored, read
from trimtab.traces.trace import Trace

Loader = Callable[..., Trace]

FORMATS: dict[str, Loader] = {
    "philly": philly.load,
    "helios": helios.load,
    "pai": pai.load,
    "chronus": chronus.load,
    "sacct": sacct.load,
    "jobcomp": jobcomp.load,
    "swf": swf.load,
    "table": table.load,
}


def load(source: str, *, zone: str | None = None, **options: object) -> Trace:
    """Load a trace.

    Args:
        source: `FORMAT:PATH`, a bare path, or `synthetic:philly?days=14&load=0.9`.
        zone: IANA zone that dates without one are read in; each format has its default, mostly UTC.
        options: What the format's own `load` takes beyond that, e.g. `fractions="reject"` for `pai`.

    Raises:
        InputError: If the file cannot be used.
        UnknownName: If there is no such format, zone or option.
    """
    name, colon, rest = source.partition(":")
    if colon and name == "synthetic":
        return synthetic.generate(rest)
    if colon and name in FORMATS:
        return _load(name, rest, zone, options)
    if colon and name.isidentifier() and not Path(source).exists():
        raise UnknownName("trace format", name, [*FORMATS, "synthetic"])
    return _load(recognise(read(source)), source, zone, options)


def recognise(stored: Stored) -> str:
    """Return the format of a file by what it starts with.

    Raises:
        InputError: If it is none of the known formats.
    """
    if stored.parquet:
        return "table"
    text = stored.text()
    head = text[:65536].lstrip()
    if slurm_json.looks_like(head):
        return "sacct"
    if head.startswith(("[", "{")):
        return "philly"
    if jobcomp.looks_like(head):
        return "jobcomp"
    if swf.looks_like(head):
        return "swf"
    lines = head.split("\n")
    if sacct.looks_like(lines[0]):
        return "sacct"
    if pai.headerless(head[:4096].encode()) is not None:
        return "pai"
    try:
        fields = {field.strip().lower() for field in next(csv.reader(lines[:1]), [])}
    except csv.Error:
        fields = set()
    for name, signature in _SIGNATURES:
        if signature <= fields:
            return name
    if {"arrival_s", "service_sec"} <= fields:
        first = lines[1] if len(lines) > 1 else ""
        if first.startswith("ali-"):
            return "pai"
        # Of the simulators' common form only Venus, whose first job is this one, has a known origin.
        return "helios" if first.startswith("363167#0,") else "table"
    if fields & set(table.NAMES["submit_ms"]) and fields & set(table.NAMES["gpus"]):
        return "table"
    raise InputError(
        f"{stored.path}: none of the known formats by its first line; name one, e.g. table:{stored.path.name}"
        f" (known: {', '.join(FORMATS)})."
    )


_SIGNATURES: tuple[tuple[str, set[str]], ...] = (
    ("chronus", {"expect_time_list", "num_gpu", "submit_time"}),
    ("pai", {"plan_gpu", "inst_num", "task_name"}),
    ("pai", {"job_name", "inst_id", "user", "start_time"}),
    ("pai", {"num_inst", "submit_time", "num_gpu", "gpu_type"}),
    ("helios", {"gpu_num", "node_num", "submit_time", "vc"}),
    ("philly", {"timestamp", "num_gpus", "gpu_time"}),
    ("sacct", {"id_job", "time_submit", "tres_alloc"}),
)


def _load(name: str, path: str, zone: str | None, options: dict[str, object]) -> Trace:
    loader = FORMATS[name]
    known = set(inspect.signature(loader).parameters) - {"path", "zone"}
    for option in options:
        if option not in known:
            raise UnknownName(f"option of {name}", option, known)
    return loader(path, zone=zone, **options)
