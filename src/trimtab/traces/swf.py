"""Standard Workload Format: `;` header lines, then 18 blank-separated numbers a job, -1 = unknown.

Times are seconds from `UnixStartTime` (dated if it is given). SWF knows processors, not GPUs: they are
taken as GPUs, or `processors_per_gpu` of them as one. `TimeZone` is an offset in seconds, `TimeZoneString`
a name; they only decide how dates are shown.
"""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, timedelta, timezone, tzinfo
from pathlib import Path

import polars as pl

from trimtab.errors import ConfigError, InputError, UnknownName
from trimtab.traces.columns import Sift, finish, number, number_ms, zone_of
from trimtab.traces.files import read
from trimtab.traces.trace import Trace

FIELDS = (
    "job",
    "submit",
    "wait",
    "run",
    "processors",
    "cpu_used",
    "memory_used",
    "processors_asked",
    "limit",
    "memory_asked",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding",
    "think",
)
_STATES = {"0": "FAILED", "1": "COMPLETED", "5": "CANCELLED"}
_PARTIAL = ("2", "3", "4")
_UNIX_START_MAX = 7_258_118_400  # the year 2200


def looks_like(head: str) -> bool:
    """Whether a text starts as SWF: a `;` line, or a line of 18 numbers."""
    first = head.split("\n", 1)[0].split()
    return head.startswith(";") or (len(first) == len(FIELDS) and all(map(_is_number, first)))


def load(path: str | Path, *, zone: str | None = None, processors_per_gpu: int = 1) -> Trace:
    """Load an SWF file.

    Args:
        path: The file.
        zone: The zone dates are shown in, in place of the header's.
        processors_per_gpu: How many processors stand for one GPU; a part of a GPU is rounded up.

    Raises:
        InputError: If the file is no SWF or no job is left.
        UnknownName: If there is no such zone.
        ConfigError: If `processors_per_gpu` is not at least 1.
    """
    if processors_per_gpu < 1:
        raise ConfigError(f"processors_per_gpu = {processors_per_gpu} is not at least 1; nothing was loaded.")
    stored = read(path)
    source = f"swf:{path}"
    header, rows = _parts(stored.text(), source)
    start_s = _start_s(header)
    where = zone_of(zone) if zone else _zone(header)
    text = pl.DataFrame(rows, schema=dict.fromkeys(FIELDS, pl.String()), orient="row")
    sift = Sift(text, text.select(**_columns(start_s, processors_per_gpu)).with_row_index("row"), " ")
    sift.leave_out("a partial run of a job that is listed whole", pl.col("status").is_in(_PARTIAL))
    notes = [
        f"{processors_per_gpu} processors count as one GPU."
        if processors_per_gpu > 1
        else "SWF has processors only: each counts as one GPU.",
        *_remarks(sift.rows, header),
    ]
    if start_s is None:
        notes.append("The header has no UnixStartTime: times stay offsets.")
    mapping = {"gpus": "processors", "user": "user", "vc": "queue", "limit_ms": "requested time"}
    return finish(
        sift, source, stored.sha256, mapping=mapping, notes=notes, dated=start_s is not None, zone=where
    )


def _columns(start_s: int | None, per_gpu: int) -> dict[str, pl.Expr]:
    def known(name: str) -> pl.Expr:
        value = number(pl.col(name))
        return pl.when(value >= 0).then(value)

    def label(name: str) -> pl.Expr:
        return pl.when(known(name).is_not_null()).then(pl.col(name))

    submit_ms = number_ms(pl.col("submit"))
    if start_s is not None:
        submit_ms = submit_ms + start_s * 1000
        submit_ms = pl.when(submit_ms.is_between(0, _UNIX_START_MAX * 1000)).then(submit_ms)
    processors = pl.coalesce(
        pl.when(known("processors") > 0).then(known("processors")),
        known("processors_asked"),
        known("processors"),
    )
    gpus = (processors / per_gpu - 1e-9).ceil()
    run_ms = number_ms(pl.col("run"))
    ran_ms = pl.when(run_ms != -1000).then(run_ms)
    start_ms = submit_ms + number_ms(known("wait").cast(pl.String))
    return {
        "job_id": pl.col("job"),
        "status": pl.col("status"),
        "submit_ms": submit_ms,
        "duration_ms": ran_ms,
        "gpus": pl.when(gpus < 1e15).then(gpus).cast(pl.Int64),
        "start_ms": pl.when(ran_ms.is_not_null()).then(start_ms),
        "end_ms": start_ms + ran_ms,
        "limit_ms": number_ms(pl.when(known("limit") > 0).then(pl.col("limit"))),
        "user": label("user"),
        "vc": label("queue"),
        "name": label("executable"),
        "state": pl.col("status").replace_strict(_STATES, default=None, return_dtype=pl.String),
    }


def _remarks(rows: pl.DataFrame, header: dict[str, str]) -> list[str]:
    notes = []
    most = header.get("MaxProcs", "")
    if most.isdecimal() and int(most) > 0:
        over = rows.filter(pl.col("gpus") > int(most)).height
        notes += [f"{over} jobs ask for more than MaxProcs = {most}: kept."] if over else []
    late = rows.filter(pl.col("duration_ms") > pl.col("limit_ms")).height
    return notes + (
        [f"{late} jobs ran longer than they asked for: kept, but they end at their limits."] if late else []
    )


def _parts(text: str, source: str) -> tuple[dict[str, str], list[list[str]]]:
    header: dict[str, str] = {}
    rows: list[list[str]] = []
    for at, line in enumerate(text.split("\n"), 1):
        bare = line.strip()
        if bare.startswith(";"):
            found = re.match(r";\s*(\w+)\s*:\s*(.*)", bare)
            if found:
                header.setdefault(found[1], found[2].strip())
        elif bare:
            fields = bare.split()
            if len(fields) != len(FIELDS):
                raise InputError(
                    f"{source}: line {at} has {len(fields)} fields, SWF has {len(FIELDS)}; nothing loaded."
                )
            rows.append(fields)
    if not rows:
        raise InputError(f"{source}: has no job line; nothing was loaded.")
    return header, rows


def _start_s(header: dict[str, str]) -> int | None:
    found = re.match(r"\d{1,12}", header.get("UnixStartTime", ""))
    start_s = int(found[0]) if found else 0
    return start_s if 0 < start_s < _UNIX_START_MAX else None


def _zone(header: dict[str, str]) -> tzinfo:
    with contextlib.suppress(UnknownName):  # free text in some archives' files
        if name := header.get("TimeZoneString"):
            return zone_of(name)
    found = re.match(r"[+-]?\d{1,6}", header.get("TimeZone", ""))
    offset_s = int(found[0]) if found else 0
    return timezone(timedelta(seconds=offset_s)) if 0 < abs(offset_s) < 86_400 else UTC


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
