"""Microsoft Philly (Jeon et al., ATC'19): the public `cluster_job_log` and the csv simulators share.

csv: `timestamp, duration, num_gpus[, gpu_time][, cluster]`, seconds. JSON: a list of jobs with their
scheduling attempts; a job's run time is the sum of its attempts', its GPUs the most any of them held.
Neither states a zone. The csv's quiet hours (13-18) fit UTC, which is the default here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from trimtab.errors import InputError
from trimtab.traces.columns import (
    Sift,
    cleaned,
    ends_ms,
    finish,
    fraction_note,
    instants_ms,
    number,
    number_ms,
    read_table,
    start_sift,
    whole,
    zone_of,
)
from trimtab.traces.files import Stored, read
from trimtab.traces.trace import Trace

COLUMNS = ("timestamp", "duration", "num_gpus")
_ZONE_NOTE = "The source states no time zone; dates were read as {}."


def load(path: str | Path, *, zone: str | None = None) -> Trace:
    """Load a Philly trace, dated; dates without a label (PST, PDT) are read in `zone` (default UTC).

    Raises:
        InputError: If the file is no Philly trace or no job is left.
        UnknownName: If there is no such zone.
    """
    stored = read(path)
    source = f"philly:{path}"
    if stored.data.lstrip()[:1] in (b"[", b"{"):
        return _load_log(stored, source, zone)
    return _load_csv(stored, source, zone)


def _load_csv(stored: Stored, source: str, zone: str | None) -> Trace:
    where = zone_of(zone)
    table = read_table(stored, source)
    submit, duration, gpus = (table.name(name) for name in COLUMNS)
    columns = {
        "job_id": pl.int_range(pl.len()).cast(pl.String),
        "submit_ms": instants_ms(table.get(submit), where),
        "duration_ms": number_ms(table.get(duration)),
        "gpus": whole(table.get(gpus)),
        "asked": number(table.get(gpus)),
    }
    mapping = {"submit_ms": submit, "duration_ms": duration, "gpus": gpus}
    if table.has("cluster"):
        columns["vc"] = table.get("cluster")
        mapping["vc"] = table.name("cluster")
    sift = start_sift(table, columns)
    sift.leave_out("no run time, or not a number", pl.col("duration_ms").is_null())
    notes = [_ZONE_NOTE.format(where), "job_id is the row's number in the file, from 0."]
    notes += fraction_note(sift, "asked")
    return finish(sift, source, stored.sha256, mapping=mapping, notes=notes, dated=True, zone=where)


def _load_log(stored: Stored, source: str, zone: str | None) -> Trace:
    where = zone_of(zone)
    try:
        jobs = json.loads(stored.text())
    except (ValueError, RecursionError) as problem:
        raise InputError(
            f"{source}: is not the JSON of a cluster_job_log ({problem}); nothing was loaded."
        ) from None
    if not isinstance(jobs, list) or not jobs:
        raise InputError(f"{source}: is not a list of jobs, as cluster_job_log is; nothing was loaded.")
    log = _Log()
    for row, job in enumerate(jobs):
        log.add(row, job)
    if not log.heads["row"]:
        raise InputError(
            f"{source}: none of its {len(jobs)} entries is a job with a jobid; nothing was loaded."
        )
    text = pl.DataFrame({"entry": [json.dumps(job)[:400] for job in jobs]}, schema={"entry": pl.String()})
    sift = Sift(text, log.rows(where))
    for row in log.strange:
        sift.count("not a job object", row)
    sift.leave_out("no attempt recorded: never ran, GPUs unknown", pl.col("attempts") == 0)
    sift.leave_out("an attempt ends before it starts", pl.col("backward"))
    unfinished = pl.col("running") | (pl.col("attempts") > 0) & (pl.col("runs") == 0)
    sift.rows = sift.rows.with_columns(
        duration_ms=pl.when(unfinished).then(None).otherwise("duration_ms"),
        end_ms=pl.when(unfinished).then(None).otherwise("end_ms"),
    )
    notes = [
        _ZONE_NOTE.format(where),
        "Several attempts are one job: run times are added up, GPUs are the most any attempt held.",
        "A job whose last attempt has no end was still running: it counts as an arrival only.",
    ]
    if log.halves:
        notes.append(f"{log.halves} attempts lack a start or an end and add no run time.")
    mapping = {"job_id": "jobid", "submit_ms": "submitted_time", "state": "status"}
    return finish(sift, source, stored.sha256, mapping=mapping, notes=notes, dated=True, zone=where)


class _Log:
    """The job log taken apart: a row a job and a row an attempt, so that dates are parsed as columns."""

    def __init__(self) -> None:
        self.heads: dict[str, list[Any]] = {
            name: []
            for name in ("row", "job_id", "submitted", "state", "vc", "user", "attempts", "gpus", "open")
        }
        self.runs: dict[str, list[Any]] = {"row": [], "start": [], "end": []}
        self.strange: list[int] = []
        self.halves = 0

    def add(self, row: int, job: Any) -> None:
        if not isinstance(job, dict) or not isinstance(job.get("attempts", []), list | None):
            self.strange.append(row)
            return
        attempts = [item for item in job.get("attempts") or [] if isinstance(item, dict)]
        ends = [_text(item.get("end_time")) for item in attempts]
        for attempt, end in zip(attempts, ends, strict=True):
            start = _text(attempt.get("start_time"))
            for name, value in (("row", row), ("start", start), ("end", end)):
                self.runs[name].append(value)
            self.halves += start is None or end is None
        values = (
            row,
            _text(job.get("jobid")),
            _text(job.get("submitted_time")),
            _text(job.get("status")),
            _text(job.get("vc")),
            _text(job.get("user")),
            len(attempts),
            max((_gpus(item.get("detail")) for item in attempts), default=0),
            bool(attempts) and ends[-1] is None,
        )
        for name, value in zip(self.heads, values, strict=True):
            self.heads[name].append(value)

    def rows(self, zone: Any) -> pl.DataFrame:
        kinds = {"row": pl.UInt32(), "attempts": pl.Int64(), "gpus": pl.Int64(), "open": pl.Boolean()}
        heads = pl.DataFrame(self.heads, schema={name: kinds.get(name, pl.String()) for name in self.heads})
        runs = pl.DataFrame(self.runs, schema={"row": pl.UInt32(), "start": pl.String(), "end": pl.String()})
        runs = runs.with_columns(start_ms=instants_ms(cleaned(pl.col("start")), zone))
        runs = runs.with_columns(end_ms=ends_ms(cleaned(pl.col("end")), zone, pl.col("start_ms")))
        run_ms = pl.col("end_ms") - pl.col("start_ms")
        sums = runs.group_by("row", maintain_order=True).agg(
            duration_ms=run_ms.sum(),
            runs=run_ms.is_not_null().sum().cast(pl.Int64),
            backward=(run_ms < 0).any(),
            start_ms=pl.col("start_ms").min(),
            end_ms=pl.col("end_ms").max(),
            last_ms=pl.col("end_ms").last(),
        )
        return heads.join(sums, on="row", how="left", maintain_order="left").with_columns(
            submit_ms=instants_ms(cleaned(pl.col("submitted")), zone),
            running=pl.col("open") | pl.col("last_ms").is_null(),
        )


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, dict | list):
        return None
    text = str(value).strip().encode("utf-8", "replace").decode()  # JSON may hold half a character
    return None if text in ("", "None", "null") else text


def _gpus(detail: Any) -> int:
    servers = [server for server in detail if isinstance(server, dict)] if isinstance(detail, list) else []
    return sum(len(server["gpus"]) for server in servers if isinstance(server.get("gpus"), list))
