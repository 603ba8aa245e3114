"""The canonical table, csv or Parquet, in and out: times in seconds from any origin, or ISO dates.

Columns are `job_id, submit_s, duration_s, gpus` and, where known, the rest of `trace.SCHEMA` with seconds
in place of milliseconds. Common public names are accepted; which was taken for which is in the
provenance. A row without a run time is an arrival only.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Mapping
from datetime import tzinfo
from pathlib import Path

import polars as pl

from trimtab.errors import ConfigError, InputError
from trimtab.traces.chronus import forget_unclear_wishes, joined_ms, leave_out_impossible
from trimtab.traces.columns import (
    Sift,
    Table,
    ends_ms,
    finish,
    fraction_note,
    instants_ms,
    mapping_of,
    number,
    number_ms,
    read_table,
    start_sift,
    whole,
    zone_of,
)
from trimtab.traces.files import Stored, read, write
from trimtab.traces.trace import SCHEMA, Trace

# Our column -> what tables call it, the canonical name first.
NAMES: Mapping[str, tuple[str, ...]] = {
    "job_id": ("job_id", "jobid", "job", "id"),
    "submit_ms": ("submit_s", "submit_time", "submit", "arrival_s", "arrival_time", "timestamp"),
    "duration_ms": (
        "duration_s",
        "duration",
        "run_time_s",
        "run_time",
        "runtime",
        "service_sec",
        "service_s",
    ),
    "gpus": ("gpus", "num_gpus", "num_gpu", "gpu_num", "gpu_count", "n_gpus", "num_replicas"),
    "vc": ("vc", "cluster", "virtual_cluster", "partition", "queue_name"),
    "user": ("user", "user_id", "uid"),
    "name": ("name", "job_name"),
    "state": ("state", "status"),
    "start_ms": ("start_s", "start_time", "start"),
    "end_ms": ("end_s", "end_time", "end", "finish_s", "finish_time"),
    "cpus": ("cpus", "cpu_num", "num_cpus", "num_cpu"),
    "memory_gib": ("memory_gib",),
    "limit_ms": ("limit_s", "time_limit_s"),
    "account": ("account",),
    "qos": ("qos",),
    "model": ("model", "model_name", "application"),
    "dataset": ("dataset",),
    "batchsize": ("batchsize", "batch_size"),
    "amp": ("amp",),
    "deadline_ms": ("deadline_s",),
    "deadline_value": ("deadline_value",),
    "service_class": ("service_class",),
    "gpu_util": ("gpu_util",),
    "gmem_util": ("gmem_util",),
    "gmem_mib": ("gmem_mib", "gmem"),
    "sharescore": ("sharescore",),
    "spread_speed": ("spread_speed",),
}
_INSTANTS = ("submit_ms", "start_ms", "end_ms")
_LENGTHS = ("duration_ms", "limit_ms")
# What can be, of columns that a job may do without: anything else is taken as not known.
_RANGES: Mapping[str, tuple[float, float]] = {
    "cpus": (0, 1e6),
    "memory_gib": (0, 1e9),
    "batchsize": (1, 1e9),
    "amp": (0, 1),
    "gpu_util": (0, 100),
    "gmem_util": (0, 100),
    "gmem_mib": (0, 1e9),
    "spread_speed": (1e-6, 1),
}
SUFFIXES = (".csv", ".csv.gz", ".parquet")


def load(path: str | Path, *, zone: str | None = None) -> Trace:
    """Load a table; it is dated if its submit times are ISO dates, read in `zone` (default UTC).

    Raises:
        InputError: If the file is no table, a needed column is missing or no job is left.
        UnknownName: If there is no such zone.
    """
    stored = read(path)
    source = f"table:{path}"
    where = zone_of(zone)
    table = _parquet(stored, source) if stored.parquet else read_table(stored, source)
    found = _columns(table)
    dated = _dated(table.get(found["submit_ms"]), table)
    rows = {ours: _expression(ours, table.get(theirs), dated, where) for ours, theirs in found.items()}
    if dated and "end_ms" in found and "start_ms" in found:
        rows["end_ms"] = ends_ms(table.get(found["end_ms"]), where, rows["start_ms"])
    rows["asked"] = number(table.get(found["gpus"]))
    rows["written"] = table.get(found["duration_ms"]) if "duration_ms" in found else pl.lit(None, pl.String)
    if "deadline_ms" in found:
        rows["deadline_text"] = table.get(found["deadline_ms"])
    notes = []
    if "job_id" not in found:
        rows["job_id"] = pl.int_range(pl.len()).cast(pl.String)
        notes.append("job_id is the row's number in the file, from 0.")
    sift = start_sift(table, rows)
    if "deadline_ms" in found:
        leave_out_impossible(sift, "deadline_text")
        notes += _silent_deadlines(table, found["deadline_ms"])
    if "duration_ms" in found:
        unreadable = pl.col("written").is_not_null() & pl.col("duration_ms").is_null()
        sift.leave_out("run time is not a number", unreadable)
    else:
        sift.leave_out("ends before it starts", pl.col("end_ms") < pl.col("start_ms"))
        sift.rows = sift.rows.with_columns(duration_ms=pl.col("end_ms") - pl.col("start_ms"))
    if dated:
        notes.append(f"Dates without a zone were read as {where}.")
    notes += fraction_note(sift, "asked")
    notes += [*_forget_the_impossible(sift, table, found), *forget_unclear_wishes(sift)]
    used = set(found.values())
    unused = [column for column in table.text.columns if column and column not in used]
    if unused:
        notes.append(f"Columns not used: {', '.join(unused)}.")
    mapping = mapping_of({_outside(ours): theirs for ours, theirs in found.items()})
    return finish(sift, source, stored.sha256, mapping=mapping, notes=notes, dated=dated, zone=where)


def save(trace: Trace, path: str | Path) -> None:
    """Write a trace as a table that `load` reads back equal: csv, csv.gz or Parquet by the file's name.

    Dated traces get ISO dates with the zone's offset. Arrivals without a run are written with an empty
    run time. The file appears whole or not at all.

    Raises:
        ConfigError: If the name ends in none of the three.
        OutputError: If it cannot be written.
    """
    name = Path(path).name.lower()
    suffix = next((suffix for suffix in SUFFIXES if name.endswith(suffix)), None)
    if suffix is None:
        raise ConfigError(
            f"{path}: a table's name ends in one of {', '.join(SUFFIXES)}; nothing was written."
        )
    frame = outside_frame(trace)
    out = io.BytesIO()
    if suffix == ".parquet":
        frame.write_parquet(out)
        data = out.getvalue()
    else:
        frame.write_csv(out)
        # A fixed time stamp and no name: the same trace gives the same bytes.
        data = gzip.compress(out.getvalue(), mtime=0) if suffix == ".csv.gz" else out.getvalue()
    write(path, data)


def outside_frame(trace: Trace) -> pl.DataFrame:
    """Return the trace as tables show it: seconds or ISO dates, rows without a run included."""
    rows = pl.concat([trace.jobs, trace.unrun], how="diagonal").sort("submit_ms", maintain_order=True)
    columns = [name for name in SCHEMA if name in rows.columns]
    zone = getattr(trace.zone, "key", None) or "UTC"
    shown = []
    for name in columns:
        column = pl.col(name)
        if name in _INSTANTS and trace.dated:
            moment = (
                pl.from_epoch(column, time_unit="ms").dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
            )
            shown.append(moment.dt.to_string("%Y-%m-%dT%H:%M:%S%.3f%:z").alias(_outside(name)))
        elif name in _INSTANTS or name in _LENGTHS:
            shown.append(_seconds(column).alias(_outside(name)))
        elif name == "deadline_ms":
            parts = column.str.split("/").list.eval(_seconds(pl.element().cast(pl.Int64)).cast(pl.String))
            shown.append(parts.list.join("/").alias(_outside(name)))
        else:
            shown.append(column)
    return rows.select(shown)


def _seconds(ms: pl.Expr) -> pl.Expr:
    return ms.cast(pl.Float64) / 1000


def _outside(name: str) -> str:
    return f"{name[:-3]}_s" if name.endswith("_ms") else name


def _columns(table: Table) -> dict[str, str]:
    found: dict[str, str] = {}
    for ours, theirs in NAMES.items():
        taken = set(found.values())
        names = [name for name in theirs if table.has(name) and table.name(name) not in taken]
        if names:
            found[ours] = table.name(names[0])
    for ours in ("submit_ms", "gpus"):
        if ours not in found:
            table.name(*NAMES[ours])
    if "duration_ms" not in found and not {"start_ms", "end_ms"} <= found.keys():
        table.name(*NAMES["duration_ms"])
    return found


def _dated(text: pl.Expr, table: Table) -> bool:
    counts = table.text.head(1000).select(
        dates=instants_ms(text, zone_of(None)).is_not_null().sum(), numbers=number(text).is_not_null().sum()
    )
    return int(counts["dates"][0]) > int(counts["numbers"][0])


def _expression(ours: str, text: pl.Expr, dated: bool, zone: tzinfo) -> pl.Expr:
    if ours in _INSTANTS:
        return instants_ms(text, zone) if dated else number_ms(text)
    if ours in _LENGTHS:
        return number_ms(text)
    if ours == "deadline_ms":
        return joined_ms(text, "/", 1000.0)
    if SCHEMA[ours] == pl.Int64():
        return whole(text)
    return number(text) if SCHEMA[ours] == pl.Float64() else text


def _silent_deadlines(table: Table, column: str) -> list[str]:
    """Say how many deadlines are a word such as NaN: a job without one leaves its field empty."""
    words = (pl.col(column).str.strip_chars() != "") & table.get(column).is_null()
    count = table.text.filter(words).height
    return [f"{column} is NaN or another word for nothing in {count:,} rows: taken as none."] if count else []


def _forget_the_impossible(sift: Sift, table: Table, found: Mapping[str, str]) -> list[str]:
    """Take what is no number, or one outside of `_RANGES`, as not known, and say how many there were.

    Args:
        sift: The rows; changed. table: as they were written. found: our columns -> the table's.
    """
    notes = []
    for name, (low, high) in _RANGES.items():
        if name not in found:
            continue
        written = table.text.select(table.get(found[name])).to_series().gather(sift.rows["row"])
        fine = sift.rows[name].is_between(low, high).fill_null(False)
        wrong = int((written.is_not_null() & ~fine).sum())
        if wrong:
            sift.rows = sift.rows.with_columns(pl.when(fine).then(pl.col(name)))
            rule = f"{name} is no number from {low:g} to {high:g}"
            notes.append(f"{rule} in {wrong:,} rows: taken as not known.")
    return notes


def _parquet(stored: Stored, source: str) -> Table:
    try:
        frame = pl.read_parquet(io.BytesIO(stored.data))
        text = frame.select(
            pl.col(name).dt.to_string("%Y-%m-%dT%H:%M:%S%.3f" + ("%:z" if _zoned(kind) else ""))
            if isinstance(kind, pl.Datetime)
            else pl.col(name).cast(pl.String)
            for name, kind in frame.schema.items()
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as problem:
        reason = str(problem).split("\n", 1)[0]
        raise InputError(f"{source}: the Parquet file is damaged ({reason}); nothing was loaded.") from None
    if text.is_empty():
        raise InputError(f"{source}: has columns and no row; nothing was loaded.")
    return Table(source, stored.sha256, text)


def _zoned(kind: pl.DataType) -> bool:
    return getattr(kind, "time_zone", None) is not None
