"""Slurm's job completion file (jobcomp/filetxt): a line of `Key=Value` for each job that has ended.

It is there without any database. A job's name and folder may hold anything, so keys are looked for from both
ends of a line. Only Tres says how many GPUs a job had, and only where AccountingStorageTRES has gres/gpu.
"""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import polars as pl

from trimtab.errors import InputError
from trimtab.traces.columns import Table, zone_of
from trimtab.traces.files import read
from trimtab.traces.sacct import settle_rows
from trimtab.traces.trace import Trace

_LINE = re.compile(
    r"^JobId=(?P<raw>\d+) UserId=(?P<user>[^ (]*)\(\d+\) .*?Name=(?P<name>.*?) JobState=(?P<state>[A-Z_]+)"
    r" Partition=(?P<partition>\S*) TimeLimit=(?P<limit>\S+) StartTime=(?P<start>\S+) EndTime=(?P<end>\S+)"
    r" NodeList=\S* NodeCnt=(?P<nodes>\d+) (?P<rest>.*)$"
)
_REST = {
    "AllocTRES": re.compile(r".* Tres=(\S+)"),
    "Submit": re.compile(r".* SubmitTime=(\S+)"),
    "Account": re.compile(r".* Account=(\S+)"),
    "QOS": re.compile(r".* QOS=(\S+)"),
    "array": re.compile(r".* ArrayJobId=(\d+)"),
    "task": re.compile(r".* ArrayTaskId=(\d+)"),
}
_COLUMNS = (
    *("JobID", "JobIDRaw", "JobName", "User", "Partition", "State", "Submit", "Start", "End", "Timelimit"),
    *("AllocTRES", "NNodes", "ElapsedRaw", "Account", "QOS"),
)


def looks_like(head: str) -> bool:
    """Whether a text begins like such a file."""
    return head.startswith("JobId=") and " JobState=" in head.split("\n", 1)[0]


def load(path: str | Path, *, zone: str | None = None) -> Trace:
    """Load a job completion file, dated; its dates carry no zone and are read in `zone` (default UTC).

    Raises:
        InputError: If it is none, or no job is left.
        UnknownName: If there is no such zone.
    """
    where, stored, source = zone_of(zone), read(path), f"jobcomp:{path}"
    lines = [line for line in stored.text().split("\n") if line.strip()]
    if not looks_like(lines[0]):
        raise InputError(
            f"{source}: line 1 is not `JobId=… JobState=…`: {lines[0][:80]!r}; nothing was loaded."
        )
    rows = [_row(line) for line in lines]
    text = pl.DataFrame(rows, schema=dict.fromkeys(_COLUMNS, pl.String()), orient="row")
    notes = [f"Dates carry no zone and were read as {where}."]
    if not any("gres/gpu" in row["AllocTRES"] for row in rows):
        notes.append("No line says how many GPUs a job had: AccountingStorageTRES lacks gres/gpu.")
    return settle_rows(Table(source, stored.sha256, text), [], where, *notes)


def _row(line: str) -> dict[str, str]:
    """Return a line as a row; one that cannot be read has no id, and its text in place of a name."""
    found = _LINE.match(line)
    if found is None:
        return {**dict.fromkeys(_COLUMNS, ""), "JobName": line}
    ends = {name: form.match(" " + found["rest"]) for name, form in _REST.items()}
    rest = {name: one[1] if one else "" for name, one in ends.items()}
    ran = found["nodes"] != "0"  # Slurm writes a start for what was cancelled while it waited
    is_task = rest["array"] not in ("", "0") and rest["task"]
    return {
        "JobID": f"{rest['array']}_{rest['task']}" if is_task else found["raw"],
        "JobIDRaw": found["raw"],
        "JobName": found["name"],
        "User": found["user"],
        "Partition": found["partition"],
        "State": "REQUEUED" if found["state"] == "PENDING" else found["state"],
        "Submit": rest["Submit"],
        "Start": found["start"] if ran else "",
        "End": found["end"],
        "ElapsedRaw": _seconds(found["start"], found["end"]) if ran else "0",
        "Timelimit": found["limit"],
        "AllocTRES": rest["AllocTRES"],
        "NNodes": found["nodes"],
        "Account": rest["Account"],
        "QOS": rest["QOS"],
    }


def _seconds(start: str, end: str) -> str:
    """Return how long a run was, nothing if that is not known."""
    try:
        return str(round((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()))
    except ValueError:
        return ""
