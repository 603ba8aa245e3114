"""`sacct --json` and `squeue --json` of old and new releases, as a table with the columns of `sacct -P`.

Newer releases wrap numbers in {set, infinite, number} and make a list of a job's state. What is not a job, or
has no id, is a row without an id: it is counted like any other row that cannot be used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import polars as pl

from trimtab.errors import InputError
from trimtab.traces.columns import Table
from trimtab.traces.files import Stored

NOTE = "Times are Unix seconds."
_COLUMNS = (
    *("JobID", "JobIDRaw", "State", "Submit", "Start", "End", "ElapsedRaw", "TimelimitRaw", "AllocTRES"),
    *("ReqTRES", "NNodes", "User", "Partition", "JobName", "Account", "QOS"),
)
_SECONDS_MAX = 7_258_118_400  # the year 2200


def looks_like(head: str) -> bool:
    """Whether a text begins like what Slurm prints as JSON."""
    return head.startswith("{") and any(f'"{word}"' in head for word in ("meta", "jobs")) and "Slurm" in head


def table_of(stored: Stored, source: str) -> Table:
    """Return the jobs of a file as rows.

    Raises:
        InputError: If it is no JSON, or says no jobs; Slurm's own error is passed on.
    """
    try:
        found = json.loads(stored.text())
    except (json.JSONDecodeError, RecursionError) as problem:
        raise InputError(f"{source}: is no JSON ({problem}); nothing was loaded.") from None
    jobs = found.get("jobs")
    if not isinstance(jobs, list) or not jobs:
        raise InputError(f"{source}: holds no jobs{_complaint(found)}; nothing was loaded.")
    rows = [_row(job) if isinstance(job, dict) else dict.fromkeys(_COLUMNS, "") for job in jobs]
    text = pl.DataFrame(rows, schema=dict.fromkeys(_COLUMNS, pl.String()), orient="row")
    return Table(source, stored.sha256, text)


def _complaint(found: Mapping[str, Any]) -> str:
    errors = found.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else None
    said = first.get("description") or first.get("error") if isinstance(first, dict) else first
    return f" (Slurm says: {str(said)[:200]})" if said else ""


def _row(job: Mapping[str, Any]) -> dict[str, str]:
    """Return a job of `sacct`, which has times and TRES in tables, or of `squeue`, which has them flat."""
    time, tres, state = (_table(job.get(name)) for name in ("time", "tres", "state"))
    current = state.get("current") or job.get("job_state")
    nodes = (job.get("allocation_nodes"), _table(job.get("node_count")), job.get("node_count"))
    return {
        "JobID": _shown_id(job),
        "JobIDRaw": _number(job.get("job_id")),
        "State": str((current[0] if current else "") if isinstance(current, list) else current or ""),
        "Submit": _date(time.get("submission", job.get("submit_time"))),
        "Start": _date(time.get("start", job.get("start_time"))),
        "End": _date(time.get("end", job.get("end_time"))),
        "ElapsedRaw": _number(time.get("elapsed")),
        "TimelimitRaw": _number(time.get("limit", job.get("time_limit"))),
        "AllocTRES": _tres(tres.get("allocated", job.get("tres_alloc_str"))),
        "ReqTRES": _tres(tres.get("requested", job.get("tres_req_str"))),
        "NNodes": next((number for number in map(_number, nodes) if number not in ("", "0")), ""),
        "User": str(job.get("user") or job.get("user_name") or ""),
        "Partition": str(job.get("partition") or ""),
        "JobName": str(job.get("name") or ""),
        "Account": str(job.get("account") or ""),
        "QOS": str(job.get("qos") or ""),
    }


def _shown_id(job: Mapping[str, Any]) -> str:
    """Return `12`, `12_3` for a task, `12_[3-5]` for tasks that wait, `12+1` for a part of a gang."""
    array, het = _table(job.get("array")), _table(job.get("het"))
    of_array = _number(array.get("job_id", job.get("array_job_id")))
    task = _number(array.get("task_id", job.get("array_task_id")))
    tasks = array.get("task") or job.get("array_task_string")
    of_gang = _number(het.get("job_id", job.get("het_job_id")))
    part = _number(het.get("job_offset", job.get("het_job_offset")))
    if of_array not in ("", "0") and isinstance(tasks, str) and tasks and not task:
        return f"{of_array}_[{tasks}]"
    if of_array not in ("", "0") and task:
        return f"{of_array}_{task}"
    return f"{of_gang}+{part}" if of_gang not in ("", "0") and part else _number(job.get("job_id"))


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> str:
    """Return a whole number as text, nothing for one that is not set or has no end."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def _date(value: object) -> str:
    seconds = _number(value)
    if not seconds or not 0 < int(seconds) < _SECONDS_MAX:
        return ""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _tres(value: object) -> str:
    """Return TRES as text has them: a list of {type, name, count}, memory in MiB, or the text itself."""
    if isinstance(value, str):
        return value
    found = []
    for one in value if isinstance(value, list) else ():
        kind, name = _table(one).get("type"), _table(one).get("name")
        if (count := _number(_table(one).get("count"))) and kind:
            found.append(f"{kind}{f'/{name}' if name else ''}={count}{'M' if kind == 'mem' else ''}")
    return ",".join(found)
