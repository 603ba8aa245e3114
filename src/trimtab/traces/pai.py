"""Alibaba PAI 2020 (Weng et al., NSDI'22; clusterdata gpu-v2020): task and job tables, and a shared sample.

The public tables have no header line and count GPUs and CPUs in per cent of one per instance, memory in
GiB per instance, times in seconds from an undisclosed origin. Here a task is a job: instances x GPUs of
one, where a part of a GPU counts as a whole one unless `fractions="reject"`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import polars as pl

from trimtab.errors import ConfigError, InputError
from trimtab.traces.columns import (
    Sift,
    Table,
    finish,
    fraction_note,
    number,
    number_ms,
    read_table,
    start_sift,
    whole,
)
from trimtab.traces.files import Stored, read
from trimtab.traces.trace import Trace

TASK_COLUMNS = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
JOB_COLUMNS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
SAMPLE_COLUMNS = ("job_id", "arrival_s", "service_sec", "gpu_count")
TASK_FILES = ("pai_task_table.csv", "pai_task_table.csv.gz", "pai_task_table.tar.gz")
Fractions = Literal["up", "reject"]

_ORIGIN_NOTE = (
    "Times are seconds from an undisclosed origin; read as Unix time in UTC+8 they give the true hour"
    " and weekday, but no true date, so they stay offsets."
)
_PARTS = "asks for a part of a GPU (fractions = reject)"


def load(path: str | Path, *, zone: str | None = None, fractions: Fractions = "up") -> Trace:
    """Load a PAI trace; it has offsets, no dates, so `zone` changes nothing.

    Args:
        path: `pai_task_table` (arrival = task start; the table has no submit time); `pai_job_table` with
            the task table beside it (arrival = job start, users known); `pai_job_no_estimate_100K.csv`
            or its kin; or the shared sample.
        zone: Not used.
        fractions: `up` rounds a part of a GPU up to a whole one, `reject` leaves such rows out.

    Raises:
        InputError: If the file is none of these or no job is left.
        ConfigError: If `fractions` is neither.
    """
    del zone
    if fractions not in ("up", "reject"):
        raise ConfigError(f"fractions = {fractions!r} is neither 'up' nor 'reject'; nothing was loaded.")
    stored = read(path)
    source = f"pai:{path}"
    table = read_pai(stored, source)
    if table.has("arrival_s") and table.has("service_sec"):
        return _load_sample(table, fractions)
    if table.has("plan_gpu"):
        return _load_tasks(table, None, fractions)
    if table.has("num_gpu") and table.has("duration"):
        return _load_jobs(table, fractions)
    if table.has("inst_id") and table.has("user"):
        return _load_tasks(_tasks_beside(stored, source), table, fractions)
    table.name("plan_gpu")
    raise InputError(f"{source}: is none of the PAI tables that have jobs; nothing was loaded.")


def read_pai(stored: Stored, source: str) -> Table:
    """Read a PAI table, naming its columns by their number where there is no header line."""
    return read_table(stored, source, header=headerless(stored.data[:4096]))


def headerless(head: bytes) -> tuple[str, ...] | None:
    """Return the columns of a task or job table by its first line; None where that is a header or unknown."""
    fields = [field.strip() for field in head.split(b"\n", 1)[0].decode(errors="replace").split(",")]
    for columns, times in ((TASK_COLUMNS, (2, 4, 5, 8)), (JOB_COLUMNS, (4, 5))):
        if len(fields) == len(columns) and all(_number_or_empty(fields[at]) for at in times):
            return columns
    return None


def _number_or_empty(text: str) -> bool:
    try:
        return not text or float(text) >= 0
    except ValueError:
        return False


def _load_sample(table: Table, fractions: Fractions) -> Trace:
    job, arrival, service, gpus = (table.name(name) for name in SAMPLE_COLUMNS)
    rows = {
        "job_id": table.get(job),
        "submit_ms": number_ms(table.get(arrival)),
        "duration_ms": number_ms(table.get(service)),
        "gpus": whole(table.get(gpus)),
        "asked": number(table.get(gpus)),
    }
    sift = start_sift(table, rows)
    sift.leave_out("no run time, or not a number", pl.col("duration_ms").is_null())
    notes = [
        "Times stay offsets; arrival_s = 0 is about Monday 00:47 China time.",
        "Rows are tasks of a random sample; the arrival is the task's start, and a part of a GPU was"
        " rounded up to a whole one by the sample's maker.",
        *_fractions(sift, fractions),
    ]
    names = {"submit_ms": arrival, "duration_ms": service, "gpus": gpus}
    return finish(sift, table.source, table.sha256, mapping=names, notes=notes)


def _load_jobs(table: Table, fractions: Fractions) -> Trace:
    names = {
        "job_id": table.name("job_id"),
        "submit_ms": table.name("submit_time"),
        "duration_ms": table.name("duration"),
        "gpus": table.name("num_gpu"),
    }
    instances = number(table.get("num_inst")).fill_null(1)
    each = number(table.get("num_gpu"))
    rows = {
        "job_id": table.get("job_id"),
        "submit_ms": number_ms(table.get("submit_time")),
        "duration_ms": number_ms(table.get("duration")),
        "asked": each,
        "gpus": _gang(instances, each),
        "user": table.get("user"),
        "state": table.get("status"),
        "cpus": number(table.get("num_cpu")) * instances,
    }
    sift = start_sift(table, rows)
    sift.leave_out("no run time, or not a number", pl.col("duration_ms").is_null())
    notes = ["GPUs are instances x GPUs of one.", _ORIGIN_NOTE, *_fractions(sift, fractions)]
    names |= {"cpus": "num_cpu"} if table.has("num_cpu") else {}
    return finish(sift, table.source, table.sha256, mapping=names, notes=notes)


def _load_tasks(tasks: Table, jobs: Table | None, fractions: Fractions) -> Trace:
    for name in ("job_name", "task_name", "inst_num", "status", "start_time", "end_time"):
        tasks.name(name)
    instances = number(tasks.get("inst_num")).fill_null(1)
    plan = tasks.get("plan_gpu")
    each = pl.when(plan.is_null()).then(0.0).otherwise(number(plan) / 100)  # empty: a task without GPUs
    rows = {
        "job": tasks.get("job_name"),
        "name": tasks.get("task_name"),
        "job_id": pl.concat_str(tasks.get("job_name"), tasks.get("task_name"), separator="-"),
        "state": tasks.get("status"),
        "start_ms": number_ms(tasks.get("start_time")),
        "end_ms": number_ms(tasks.get("end_time")),
        "asked": each,
        "gpus": _gang(instances, each),
        "cpus": number(tasks.get("plan_cpu")) / 100 * instances,
        "memory_gib": number(tasks.get("plan_mem")) * instances,
    }
    sift = start_sift(tasks, rows)
    sift.leave_out("no job name or task name", pl.col("job").is_null() | pl.col("name").is_null())
    notes = [
        "A row is a task: tasks of one job are separate; GPUs are instances x GPUs of one.",
        _ORIGIN_NOTE,
    ]
    if jobs is None:
        sift.rows = sift.rows.with_columns(submit_ms=pl.col("start_ms"))
        notes.append("The arrival is the task's start: the task table has no submit time and no user.")
    else:
        known = jobs.text.select(
            job=jobs.get("job_name"), user=jobs.get("user"), submit_ms=number_ms(jobs.get("start_time"))
        ).unique("job", keep="first", maintain_order=True)
        sift.rows = sift.rows.join(known, on="job", how="left", maintain_order="left")
        notes.append(f"Submit times and users are the job table's; tasks come from {tasks.source}.")
    # An end of 0 stands for a task that had not ended when the table was written.
    ended = (pl.col("end_ms") > 0) & ~pl.col("state").is_in(["Running", "Waiting"])
    sift.rows = sift.rows.with_columns(end_ms=pl.when(ended.fill_null(False)).then("end_ms"))
    sift.rows = sift.rows.with_columns(duration_ms=pl.col("end_ms") - pl.col("start_ms"))
    notes += _fractions(sift, fractions)
    names = {"gpus": "plan_gpu", "cpus": "plan_cpu", "memory_gib": "plan_mem", "state": "status"}
    return finish(sift, tasks.source, tasks.sha256, mapping=names, notes=notes)


def _tasks_beside(stored: Stored, source: str) -> Table:
    for name in TASK_FILES:
        beside = stored.path.with_name(name)
        if beside.exists():
            return read_pai(read(beside), f"pai:{beside}")
    raise InputError(
        f"{source}: a job table has no GPU counts; put pai_task_table.csv beside it, nothing was loaded."
    )


def _gang(instances: pl.Expr, each: pl.Expr) -> pl.Expr:
    gang = (each - 1e-9).ceil() * instances.ceil()
    return pl.when(gang.abs() < 1e15).then(gang).cast(pl.Int64)


def _fractions(sift: Sift, fractions: Fractions) -> list[str]:
    if fractions == "reject":
        sift.leave_out(_PARTS, (pl.col("asked") - pl.col("asked").round()).abs() > 1e-9)
    return fraction_note(sift, "asked")
