"""A cluster's last months from `sacct`, slice by slice: what was, as a trace and as events.

sacct asks slurmdbd and not slurmctld. A slice that takes too long is halved, and after each is a pause as
long as it took, so that the database is busy half of the time at most.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from trimtab.control.adapter import JobEvent, Unreachable
from trimtab.control.slurm_commands import Commands, read_config
from trimtab.control.slurm_keys import is_accounted
from trimtab.errors import InputError
from trimtab.job import JobFacts
from trimtab.traces import sacct
from trimtab.traces.files import Stored
from trimtab.traces.trace import DAY_MS, Trace
from trimtab.world import epoch_ms, wall_s

_FIELDS = (
    "JobID,JobIDRaw,User,Partition,State,Submit,Start,End,ElapsedRaw,TimelimitRaw,AllocTRES,ReqTRES,ReqMem,"
    "NNodes,Account,QOS,JobName"
)
_SLICE_MIN_MS = 3_600_000
_PAUSE_MAX_S = 5.0

Tell = Callable[[str, float], None]


def read_history(
    commands: Commands, since_ms: int, until_ms: int, slice_ms: int, tell: Tell = lambda text, share: None
) -> Trace:
    """Return the jobs that were there in a span of time; one that was there in several slices is one job.

    Args:
        tell: Is told how far it is, for a progress bar.

    Raises:
        InputError: If no job with a GPU was there. Unreachable: if sacct does not answer, an hour at a time.
    """
    told: list[str] = []
    for end_ms, text in _slices(commands, since_ms, until_ms, slice_ms):
        first, _, rest = text.partition("\n")
        if not sacct.looks_like(first):
            raise Unreachable(f"sacct: answers without its header: {first[:80]!r}.")
        told.append(rest if told else text)
        tell("sacct", (end_ms - since_ms) / (until_ms - since_ms))
    data = "".join(told).encode()
    return sacct.load_text(Stored(Path("sacct"), hashlib.sha256(data).hexdigest(), data), "sacct")


def _slices(commands: Commands, since_ms: int, until_ms: int, slice_ms: int) -> Iterator[tuple[int, str]]:
    """Yield the end of each slice and what sacct says of it."""
    begin_ms = since_ms
    while begin_ms < until_ms:
        end_ms = min(begin_ms + slice_ms, until_ms)
        began_s = wall_s()
        try:
            text = _asked(commands, begin_ms, end_ms)
        except Unreachable:
            if slice_ms <= _SLICE_MIN_MS:
                raise
            slice_ms = max(_SLICE_MIN_MS, slice_ms // 2)
            continue
        yield end_ms, text
        begin_ms = end_ms
        if begin_ms < until_ms:
            threading.Event().wait(min(_PAUSE_MAX_S, wall_s() - began_s))


def _asked(commands: Commands, begin_ms: int, end_ms: int) -> str:
    span = ("-S", _date(begin_ms), "-E", _date(end_ms))
    return commands.ask("sacct", "-X", "-a", "-D", "-P", *span, "--format", _FIELDS)


def _date(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def past_of(commands: Commands, back_ms: int) -> list[JobEvent]:
    """Return the lives of jobs that ended within a time up to now; none where nothing tells of them.

    Raises:
        Unreachable: If Slurm does not answer.
    """
    if back_ms <= 0 or not is_accounted(read_config(commands)):
        return []
    until_ms = epoch_ms()
    try:
        return events_of(read_history(commands, until_ms - back_ms, until_ms, DAY_MS))
    except InputError:  # no job has ended yet
        return []


def events_of(trace: Trace) -> list[JobEvent]:
    """Return the lives of a trace's jobs that have run, in the order of their times; their numbers are 0."""
    found: list[JobEvent] = []
    for row in trace.jobs.iter_rows(named=True):
        label, start_ms, ran_ms = row["job_id"], row.get("start_ms"), row["duration_ms"]
        if start_ms is None:
            continue
        facts = JobFacts(
            label,
            row["submit_ms"],
            row["gpus"],
            vc=row.get("vc"),
            user=row.get("user"),
            name=row.get("name"),
            limit_ms=row.get("limit_ms"),
            account=row.get("account"),
            qos=row.get("qos"),
        )
        found += [
            JobEvent(0, "submit", row["submit_ms"], label, facts),
            JobEvent(0, "start", start_ms, label),
            JobEvent(0, "finish", start_ms + ran_ms, label, ran_ms=ran_ms),
        ]
    return sorted(found, key=lambda event: event.time_ms)
