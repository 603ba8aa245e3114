"""SenseTime Helios (Hu et al., SC'21): the public `cluster_log.csv` and the Venus csv simulators share.

Public: `job_id, user, vc, gpu_num, cpu_num, node_num, state, submit_time, start_time, end_time, duration,
queue`, local China time, seconds. Shared: `job_id, arrival_s, service_sec, gpu_count`, seconds since the
first GPU job of Venus, 2020-03-18 04:01:39; run times are capped at 48 h there.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from trimtab.errors import ConfigError
from trimtab.traces.columns import (
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
from trimtab.traces.files import read
from trimtab.traces.trace import Trace

ZONE = "Asia/Shanghai"
VENUS_ORIGIN = "2020-03-18 04:01:39"
VENUS_COLUMNS = ("job_id", "arrival_s", "service_sec", "gpu_count")


def load(path: str | Path, *, zone: str | None = None, origin: str = VENUS_ORIGIN) -> Trace:
    """Load a Helios trace, dated; dates are read in `zone` (default Asia/Shanghai).

    Args:
        path: `cluster_log.csv` of any Helios cluster, or the shared csv of Venus.
        zone: The zone of dates without one.
        origin: What second 0 of the shared csv is, in that zone.

    Raises:
        InputError: If the file is no Helios trace or no job is left.
        UnknownName: If there is no such zone.
        ConfigError: If `origin` is no date.
    """
    stored = read(path)
    source = f"helios:{path}"
    table = read_table(stored, source)
    if table.has("arrival_s") and table.has("service_sec"):
        return _load_offsets(table, zone, origin)
    return _load_log(table, zone)


def _load_log(table: Table, zone: str | None) -> Trace:
    where = zone_of(zone, ZONE)
    needed = {"job_id": "job_id", "submit_ms": "submit_time", "gpus": "gpu_num"}
    names = {ours: table.name(theirs) for ours, theirs in needed.items()}
    if not table.has("duration"):
        table.name("start_time")
        table.name("end_time")
    rows = {
        "job_id": table.get("job_id"),
        "submit_ms": instants_ms(table.get("submit_time"), where),
        "start_ms": instants_ms(table.get("start_time"), where),
        "written_ms": number_ms(table.get("duration")),
        "gpus": whole(table.get("gpu_num")),
        "asked": number(table.get("gpu_num")),
        "vc": table.get("vc"),
        "user": table.get("user"),
        "state": table.get("state"),
        "cpus": number(table.get("cpu_num")),
        "end_ms": ends_ms(table.get("end_time"), where, instants_ms(table.get("start_time"), where)),
    }
    sift = start_sift(table, rows)
    sift.leave_out("ends before it starts", pl.col("end_ms") < pl.col("start_ms"))
    never = (
        pl.lit(table.has("start_time"))
        & pl.col("start_ms").is_null()
        & (pl.col("written_ms").fill_null(0) == 0)
    )
    ran_ms = pl.coalesce("written_ms", pl.col("end_ms") - pl.col("start_ms"))
    sift.rows = sift.rows.with_columns(duration_ms=pl.when(~never).then(ran_ms))
    sift.rows = sift.rows.with_columns(end_ms=pl.when(pl.col("duration_ms").is_not_null()).then("end_ms"))
    theirs = {"cpus": "cpu_num", "start_ms": "start_time", "end_ms": "end_time", "duration_ms": "duration"}
    names |= {ours: table.name(name) for ours, name in theirs.items() if table.has(name)}
    notes = [f"Dates without a zone were read as {where}."]
    notes += fraction_note(sift, "asked")
    return finish(
        sift, table.source, table.sha256, mapping=mapping_of(names), notes=notes, dated=True, zone=where
    )


def _load_offsets(table: Table, zone: str | None, origin: str) -> Trace:
    where = zone_of(zone, ZONE)
    job, arrival, service, gpus = (table.name(name) for name in VENUS_COLUMNS)
    origin_ms = pl.select(instants_ms(pl.lit(origin), where).alias("at"))["at"].to_list()[0]
    if origin_ms is None:
        raise ConfigError(f"origin {origin!r} is not a date like {VENUS_ORIGIN}; nothing was loaded.")
    rows = {
        "job_id": table.get(job),
        "submit_ms": number_ms(table.get(arrival)) + origin_ms,
        "duration_ms": number_ms(table.get(service)),
        "gpus": whole(table.get(gpus)),
        "asked": number(table.get(gpus)),
    }
    sift = start_sift(table, rows)
    sift.leave_out("no run time, or not a number", pl.col("duration_ms").is_null())
    sift.leave_out("date outside 1970..2200", ~pl.col("submit_ms").is_between(0, 7_258_118_400_000))
    notes = [f"arrival_s counts from {origin} {where} (the first GPU job of Venus); dates follow from it."]
    notes += fraction_note(sift, "asked")
    names = {"submit_ms": arrival, "duration_ms": service, "gpus": gpus}
    return finish(sift, table.source, table.sha256, mapping=names, notes=notes, dated=True, zone=where)
