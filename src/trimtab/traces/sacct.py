"""Slurm's accounting: `sacct -P` text with its header line, `sacct --json`, a csv of its database columns.

Columns are picked by name. Needed: JobIDRaw or JobID, Submit, and one that counts GPUs (AllocTRES, ReqTRES,
AllocGRES, ReqGRES). Steps are left out. The rows of one id are one job: runs are added up, the first submit
counts. Parts of a heterogeneous job are one gang. A pending array is as many arrivals as it has tasks. What
never ran, waits or still runs is an arrival without a run time. Use `sacct -X -a -D -P` (-D shows requeues).
"""

from __future__ import annotations

import re
from datetime import tzinfo
from pathlib import Path

import polars as pl

from trimtab.errors import InputError
from trimtab.traces import slurm_json
from trimtab.traces.columns import (
    Sift,
    Table,
    cleaned,
    ends_ms,
    finish,
    instants_ms,
    number,
    number_ms,
    read_table,
    start_sift,
    zone_of,
)
from trimtab.traces.files import Stored, read
from trimtab.traces.trace import Trace

ARRAY_TASKS_MAX = 4_000_001  # Slurm's own limit of MaxArraySize
_TRES = ("AllocTRES", "ReqTRES")
_GRES = ("AllocGRES", "ReqGRES")
_UNFINISHED = (
    "PENDING",
    "RUNNING",
    "SUSPENDED",
    "COMPLETING",
    "CONFIGURING",
    "STOPPED",
    "RESIZING",
    "SIGNALING",
)
_FREE_TEXT = ("jobname", "comment", "admincomment", "workdir", "submitline", "wckey", "constraints")
_ARRAY = re.compile(r"^(\d+)_\[([0-9,:%-]+)\]$")
_STATES = {
    "0": "PENDING", "1": "RUNNING", "2": "SUSPENDED", "3": "COMPLETED", "4": "CANCELLED", "5": "FAILED",
    "6": "TIMEOUT", "7": "NODE_FAIL", "8": "PREEMPTED", "9": "BOOT_FAIL", "10": "DEADLINE",
    "11": "OUT_OF_MEMORY",
}  # fmt: skip


def looks_like(first_line: str) -> bool:
    """Whether a line is the header of `sacct -P`."""
    fields = {field.strip().lower() for field in first_line.split("|")}
    return len(fields) > 1 and bool(fields & {"jobid", "jobidraw"})


def load(path: str | Path, *, zone: str | None = None) -> Trace:
    """Load a Slurm history, dated; its dates carry no zone and are read in `zone` (default UTC).

    Raises:
        InputError: If the file is no `sacct -P` output, lacks a needed column, or no job is left.
        UnknownName: If there is no such zone.
    """
    stored = read(path)
    source = f"sacct:{path}"
    if stored.data.lstrip()[:1] == b"{":
        return settle_rows(slurm_json.table_of(stored, source), [], zone_of(zone), slurm_json.NOTE)
    first = stored.text().lstrip("\n").split("\n", 1)[0]
    if "|" not in first and {"id_job", "tres_alloc"} <= {name.strip().lower() for name in first.split(",")}:
        return _load_database(read_table(stored, source), zone)
    return load_text(stored, source, zone)


def load_text(stored: Stored, source: str, zone: str | None = None) -> Trace:
    """Return the trace of `sacct -P` text.

    Raises:
        InputError: If it has no header, lacks a needed column, or no job is left.
        UnknownName: If there is no such zone.
    """
    where = zone_of(zone)
    table, ragged, repaired = _split(stored, source)
    notes = [f"Dates carry no zone and were read as {where}."]
    if repaired:
        notes.append(f"{repaired} rows hold a | in {table.name('JobName')}: taken as part of the name.")
    return settle_rows(table, ragged, where, *notes)


def settle_rows(table: Table, ragged: list[int], where: tzinfo, *told: str) -> Trace:
    """Return the trace of a table with the columns of `sacct -P`.

    Args:
        ragged: Rows that had another number of fields. told: what else is worth saying.

    Raises:
        InputError: If a needed column is not there, or no job is left.
    """
    job = table.name("JobIDRaw") if table.has("JobIDRaw") else table.name("JobID")
    shown = table.name("JobID") if table.has("JobID") else job
    table.name("Submit")
    if not any(table.has(name) for name in (*_TRES, *_GRES)):
        table.name("AllocTRES")
    start_ms = instants_ms(table.get("Start"), where)
    nodes = _first_number(table, "NNodes", "AllocNodes", "ReqNodes").fill_null(1)
    cpus = pl.coalesce(_tres_number(table, "cpu"), _first_number(table, "AllocCPUS", "NCPUS", "ReqCPUS"))
    columns = {
        "raw": table.get(job),
        "shown": table.get(shown),
        "state": table.get("State").str.to_uppercase().str.extract(r"^([A-Z_]+)"),
        "submit_ms": instants_ms(table.get("Submit"), where),
        "start_ms": start_ms,
        "end_ms": ends_ms(table.get("End"), where, start_ms),
        "elapsed_ms": pl.coalesce(number_ms(table.get("ElapsedRaw")), elapsed_ms(table.get("Elapsed"))),
        "gpus": _gpus(table, nodes),
        "held": table.get("AllocTRES").is_not_null() if table.has("AllocTRES") else pl.lit(True),
        "cpus": cpus,
        "memory_gib": pl.coalesce(
            _tres_memory_gib(table), requested_memory_gib(table.get("ReqMem"), nodes, cpus)
        ),
        "limit_ms": pl.coalesce(
            number_ms(table.get("TimelimitRaw"), 60_000), limit_ms(table.get("Timelimit"))
        ),
        "user": table.get("User"),
        "vc": table.get("Partition"),
        "name": table.get("JobName"),
        "account": table.get("Account"),
        "qos": table.get("QOS"),
    }
    sift = start_sift(table, columns, separator="|")
    if ragged:
        sift.leave_out("wrong number of fields", pl.col("row").is_in(ragged))
    mapping = {"job_id": job, "vc": "Partition", "gpus": next(n for n in (*_TRES, *_GRES) if table.has(n))}
    return _settle(sift, table, mapping, list(told), where)


def _settle(sift: Sift, table: Table, mapping: dict[str, str], notes: list[str], where: tzinfo) -> Trace:
    """Turn rows of runs into jobs: steps out, snapshots and requeues joined, arrays expanded."""
    sift.leave_out("no job id", pl.col("raw").is_null())
    step = pl.col("shown").str.contains(r"^[0-9_\[\],:%+-]+\.") | pl.col("raw").str.contains(r"^[0-9_+]+\.")
    sift.leave_out("job step", step)
    strange = ~pl.col("shown").fill_null(pl.col("raw")).str.contains(r"^\d+(_(\d+|\[.*\])|\+\d+)?$")
    sift.leave_out("job id not readable", strange)
    sift.leave_out("no submit time, or not readable", pl.col("submit_ms").is_null())
    sift.leave_out("run time is negative", pl.col("elapsed_ms") < 0)
    # Slurm writes Start before Submit, 1970 or the moment of cancelling for what never ran.
    cancelled = (pl.col("state") == "CANCELLED").fill_null(False)
    # What it refused at once has FAILED, a start, and nothing that it held.
    began = (pl.col("start_ms") >= pl.col("submit_ms")) & ~cancelled & pl.col("held")
    started = began | (pl.col("elapsed_ms") > 0)
    bare = pl.col("elapsed_ms").is_null() & pl.col("end_ms").is_not_null() & pl.col("start_ms").is_not_null()
    sift.rows = sift.rows.with_columns(
        started=started.fill_null(False) & (pl.col("state").fill_null("") != "PENDING"),
        elapsed_ms=pl.when(bare).then(pl.col("end_ms") - pl.col("start_ms")).otherwise("elapsed_ms"),
        start_ms=pl.when(pl.col("start_ms") >= pl.col("submit_ms")).then("start_ms"),
        base=pl.coalesce(pl.col("shown").str.extract(r"^(\d+)\+"), pl.col("raw")),
        part=pl.col("shown").str.extract(r"\+(\d+)$").fill_null("0"),
    )
    sift.leave_out("ends before it starts", pl.col("started") & (pl.col("elapsed_ms") < 0))
    sift.rows = sift.rows.with_columns(key=pl.col("start_ms").fill_null(-1))
    last = pl.col("row") == pl.col("row").max().over("base", "part", "key")
    again = "the same run again, from an earlier snapshot"
    sift.leave_out(again, ~last)
    expanded = _expand_arrays(sift)
    parts, requeued = _join_runs(sift.rows)
    gangs = parts.group_by("base", maintain_order=True).agg(
        pl.col("row").min(),
        pl.col("job_id").first(),
        pl.col("submit_ms").min(),
        pl.when(pl.col("duration_ms").null_count() == 0)
        .then(pl.col("duration_ms").max())
        .alias("duration_ms"),
        *(pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum()).alias(name) for name in _ADDED),
        *(pl.col(name).first() for name in (*_SAID, "limit_ms")),
        pl.col("start_ms").min(),
        pl.col("end_ms").max(),
        pl.len().alias("members"),
    )
    joined = sift.rows.height - gangs.height
    several = gangs.filter(pl.col("members") > 1).height
    sift.rows = gangs.sort("row", maintain_order=True)
    if requeued:
        notes.append(
            f"{requeued} jobs ran more than once (requeues): one job each, runs and their limits added up."
        )
    if several:
        notes.append(f"{several} heterogeneous jobs: the parts' GPUs are one gang.")
    if expanded:
        notes.append(f"Pending arrays stand for {expanded} further arrivals.")
    return finish(
        sift,
        table.source,
        table.sha256,
        mapping=mapping,
        notes=notes,
        dated=True,
        zone=where,
        joined=joined,
        expanded=expanded,
    )


_ADDED = ("gpus", "cpus", "memory_gib")
_SAID = ("state", "user", "vc", "name", "account", "qos")


def _join_runs(rows: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Join the rows of one id and part: the first submit, the sum of runs, the last row's state and size."""
    # A row that waits with the submit time of a run is an earlier snapshot of it; a requeue submits anew.
    rows = rows.sort("submit_ms", "start_ms", "row", nulls_last=False, maintain_order=True)
    run_ms = pl.when(pl.col("started")).then(pl.col("elapsed_ms"))
    over = ~pl.col("state").last().fill_null("").is_in(_UNFINISHED) & pl.col("started").any()
    # A row that waits again after a requeue has no GPUs allocated yet; its request counts either way.
    parts = rows.group_by("base", "part", maintain_order=True).agg(
        pl.col("row").min(),
        pl.col("shown").first().fill_null(pl.col("raw").first()).alias("job_id"),
        pl.col("submit_ms").min(),
        pl.when(over).then(run_ms.sum()).alias("duration_ms"),
        *(pl.col(name).last() for name in ("gpus", *_ADDED[1:], *_SAID)),
        pl.col("limit_ms").last() * pl.col("started").sum().clip(1),  # each run may last so long
        pl.col("start_ms").min(),
        pl.when(over).then(pl.col("end_ms").max()).alias("end_ms"),
        pl.col("started").sum().alias("times"),
    )
    return parts, parts.filter(pl.col("times") > 1).height


def _expand_arrays(sift: Sift) -> int:
    """Replace each pending array row by one row a task; return how many rows that added."""
    pending = pl.col("shown").str.contains("[", literal=True).fill_null(False)
    arrays = sift.rows.filter(pending).select("row", "shown").rows()
    if not arrays:
        return 0
    unreadable: list[int] = []
    tasks: dict[str, list[object]] = {"row": [], "task": []}
    for row, shown in arrays:
        found = _ARRAY.match(shown)
        indices = array_tasks(found[2]) if found else None
        if indices is None or len(tasks["row"]) + len(indices) > ARRAY_TASKS_MAX:
            unreadable.append(row)
            continue
        for index in indices:
            tasks["row"].append(row)
            tasks["task"].append(f"{found[1] if found else ''}_{index}")
    sift.leave_out("pending array's list of tasks not readable or too long", pl.col("row").is_in(unreadable))
    frame = pl.DataFrame(tasks, schema={"row": sift.rows.schema["row"], "task": pl.String()})
    before = sift.rows.height
    rows = sift.rows.join(frame, on="row", how="left", maintain_order="left_right")
    is_task = pl.col("task").is_not_null()
    sift.rows = rows.with_columns(
        shown=pl.coalesce("task", "shown"),
        base=pl.when(is_task).then("task").otherwise("base"),
        raw=pl.when(is_task).then("task").otherwise("raw"),
        started=pl.col("started") & ~is_task,
    ).drop("task")
    return sift.rows.height - before


def array_tasks(text: str) -> list[int] | None:
    """Return the tasks of an array list such as `1,5-100:5%10`; None if it is unreadable or too long."""
    tasks: list[int] = []
    for part in text.split("%", 1)[0].split(","):
        found = re.fullmatch(r"(\d{1,10})(?:-(\d{1,10}))?(?::(\d{1,10}))?", part)
        if not found:
            return None
        first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        if step == 0 or last < first or len(tasks) + (last - first) // step >= ARRAY_TASKS_MAX:
            return None
        tasks.extend(range(first, last + 1, step))
    return tasks


def elapsed_ms(text: pl.Expr) -> pl.Expr:
    """Parse `2-01:24:56`, `01:09:48`, `35:45.742` (minutes and seconds) to milliseconds."""
    form = r"^(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d{1,2}(?:\.\d{1,9})?)$"
    days, hours, minutes, seconds = (number(text.str.extract(form, group)) for group in range(1, 5))
    total_s = days.fill_null(0) * 86_400 + hours.fill_null(0) * 3600 + minutes * 60 + seconds
    return (total_s * 1000).round().cast(pl.Int64)


def limit_ms(text: pl.Expr) -> pl.Expr:
    """Parse a time limit as Slurm takes it; null for UNLIMITED, Partition_Limit and the like.

    `30` is minutes, `30:00` minutes and seconds, `1:30:00` hours first, `2-12[:30[:00]]` days first.
    """
    plain = number(text.str.extract(r"^(\d{1,9})$", 1)) * 60_000
    after_days = r"^(\d{1,6})-(\d{1,4})(?::(\d{1,4}))?(?::(\d{1,4}))?$"
    days, hours, minutes, seconds = (number(text.str.extract(after_days, group)) for group in range(1, 5))
    dayed = (days * 86_400 + hours * 3600 + minutes.fill_null(0) * 60 + seconds.fill_null(0)) * 1000
    return pl.coalesce(plain.round().cast(pl.Int64), dayed.round().cast(pl.Int64), elapsed_ms(text))


def gpus_of(text: pl.Expr) -> pl.Expr:
    """Count GPUs in TRES (`gres/gpu=8,gres/gpu:a100=8` is 8) or GRES text (`gpu:a100:4(S:0-1)` is 4).

    The untyped entry is the total where there is one, otherwise types add up. Shards and the like are no
    GPUs. 0 where none is named, null where there is no text.
    """
    untyped = text.str.extract(r"(?:^|,)(?:gres[/:])?gpu[=:](\d{1,9})(?:\(|,|$)").cast(pl.Int64, strict=False)
    typed = (
        text.str.extract_all(r"(?:^|,)(?:gres[/:])?gpu:[^=:,()]*[^=:,()\d][^=:,()]*[=:]\d{1,9}")
        .list.eval(pl.element().str.extract(r"(\d+)$").cast(pl.Int64, strict=False))
        .list.sum()
    )
    bare = text.str.contains(r"(?:^|,)gpu(?:\(|,|$)").cast(pl.Int64)
    return pl.when(text.is_not_null()).then(untyped.fill_null(pl.when(typed > 0).then(typed).otherwise(bare)))


def requested_memory_gib(text: pl.Expr, nodes: pl.Expr, cpus: pl.Expr) -> pl.Expr:
    """Parse ReqMem: `4000Mc` per core, `4Gn` per node, `2T` for the job, in GiB; zero is none."""
    form = r"^(\d+(?:\.\d+)?)([KMGTPE]?)([nc]?)$"
    per_core, per_node = text.str.ends_with("c"), text.str.ends_with("n")
    times = pl.when(per_core).then(cpus.fill_null(1)).when(per_node).then(nodes).otherwise(1)
    value = _gib(text.str.extract(form, 1), text.str.extract(form, 2)) * times
    return pl.when(value > 0).then(value)


def _gib(value: pl.Expr, unit: pl.Expr) -> pl.Expr:
    scale = {"K": 2.0**-20, "": 2.0**-10, "M": 2.0**-10, "G": 1.0, "T": 2.0**10, "P": 2.0**20, "E": 2.0**30}
    return number(value) * unit.replace_strict(scale, default=None, return_dtype=pl.Float64)


def _gpus(table: Table, nodes: pl.Expr) -> pl.Expr:
    """GPUs allocated, else asked for; GRES columns count per node and serve where TRES names no GPU."""
    tres = [gpus_of(table.get(name)) for name in _TRES]
    gres = [gpus_of(table.get(name)) * nodes.cast(pl.Int64) for name in _GRES]
    named = [pl.when(count > 0).then(count) for count in (*tres, *gres)]
    return pl.coalesce(*named, pl.lit(0, dtype=pl.Int64))


def _tres_number(table: Table, kind: str) -> pl.Expr:
    form = rf"(?:^|,){kind}=(\d+(?:\.\d+)?)"
    return pl.coalesce(*(number(table.get(name).str.extract(form)) for name in _TRES))


def _tres_memory_gib(table: Table) -> pl.Expr:
    form = r"(?:^|,)mem=(\d+(?:\.\d+)?)([KMGTPE]?)"
    return pl.coalesce(
        *(_gib(table.get(name).str.extract(form, 1), table.get(name).str.extract(form, 2)) for name in _TRES)
    )


def _first_number(table: Table, *names: str) -> pl.Expr:
    return pl.coalesce(*(number(table.get(name)) for name in names))


def _split(stored: Stored, source: str) -> tuple[Table, list[int], int]:
    """Split `sacct -P` text; return the table, rows with a wrong number of fields, how many were mended.

    sacct quotes nothing, so a `|` in a job's name splits it; where the name is the only free text, it can
    be put together again.
    """
    lines = [line for line in stored.text().split("\n") if line.strip()]
    header = [field.strip() for field in lines[0].split("|")]
    if not looks_like(lines[0]):
        raise InputError(
            f"{source}: line 1 is not the header of `sacct -P` (JobID|…): {lines[0][:80]!r}; nothing loaded."
        )
    if len(lines) == 1:
        raise InputError(f"{source}: has a header and no row; nothing was loaded.")
    trailing = header[-1] == ""  # `sacct -p` ends each line with a separator
    names = header[:-1] if trailing else header
    if len(set(names)) != len(names):
        raise InputError(f"{source}: a column is named twice in its header; nothing was loaded.")
    free = [at for at, name in enumerate(names) if name.lower() in _FREE_TEXT]
    at_name = free[0] if len(free) == 1 and names[free[0]].lower() == "jobname" else None
    ragged: list[int] = []
    repaired = 0
    rows: list[list[str]] = []
    for row, line in enumerate(lines[1:]):
        fields = line.split("|")
        fields = fields[:-1] if trailing and len(fields) > len(names) and not fields[-1] else fields
        surplus = len(fields) - len(names)
        if surplus > 0 and at_name is not None:
            fields[at_name : at_name + surplus + 1] = ["|".join(fields[at_name : at_name + surplus + 1])]
            repaired += 1
        elif surplus:
            ragged.append(row)
            fields = [*fields, *[""] * -surplus] if surplus < 0 else fields[: len(names)]
        rows.append(fields)
    text = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String()), orient="row")
    return Table(source, stored.sha256, text), ragged, repaired


def _load_database(table: Table, zone: str | None) -> Trace:
    """Load a csv of Slurm's job table, as MIT SuperCloud's: Unix seconds, TRES by number."""
    where = zone_of(zone)
    for name in ("id_job", "time_submit", "time_start", "time_end", "state"):
        table.name(name)
    # 1 = CPUs, 2 = MiB of memory; from 1001 on they are gres, there the GPU types.
    tres = cleaned(pl.col(table.name("tres_alloc")))
    asked = table.get("tres_req")
    gpus = pl.coalesce(*(pl.when(count > 0).then(count) for count in map(_gres_by_number, (tres, asked))), 0)
    submit_ms, start_ms, end_ms = (
        number_ms(table.get(f"time_{name}")) for name in ("submit", "start", "end")
    )
    state = table.get("state").replace_strict(_STATES, default=None, return_dtype=pl.String)
    ran = (start_ms >= submit_ms) & (end_ms >= start_ms) & (start_ms > 0) & ~state.is_in(_UNFINISHED)
    columns = {
        "job_id": table.get("id_job"),
        "submit_ms": pl.when(submit_ms.is_between(1, 7_258_118_400_000)).then(submit_ms),
        "start_ms": pl.when(ran).then(start_ms),
        "end_ms": pl.when(ran).then(end_ms),
        "duration_ms": pl.when(ran).then(end_ms - start_ms),
        "gpus": gpus,
        "cpus": number(tres.str.extract(r"(?:^|,)1=(\d+)")),
        "memory_gib": number(tres.str.extract(r"(?:^|,)2=(\d+)")) / 1024,
        "limit_ms": pl.when(number(table.get("timelimit")) < 4_294_967_294).then(
            number_ms(table.get("timelimit"), 60_000)
        ),
        "user": table.get("id_user"),
        "vc": table.get("partition"),
        "state": state,
    }
    sift = start_sift(table, columns)
    notes = [
        "Times are Unix seconds; TRES 1001 and above were counted as GPUs.",
        "Rows were not joined by id.",
    ]
    mapping = {"job_id": "id_job", "submit_ms": "time_submit", "gpus": "tres_alloc", "vc": "partition"}
    return finish(sift, table.source, table.sha256, mapping=mapping, notes=notes, dated=True, zone=where)


def _gres_by_number(text: pl.Expr) -> pl.Expr:
    items = text.str.extract_all(r"(?:^|,)1\d{3}=\d{1,9}")
    return items.list.eval(pl.element().str.extract(r"=(\d+)$").cast(pl.Int64, strict=False)).list.sum()
