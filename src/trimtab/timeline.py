"""The timeline: what happened, in order. Simulation and live control write the same events."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from trimtab.job import Nodes

COLUMNS = ("time_s", "event", "job_id", "gpus", "nodes", "detail")


class Event(NamedTuple):
    """One thing that happened. `job` is the dense id, None for an event of the whole cluster."""

    time_ms: int
    kind: str  # submit reject start preempt demote promote finish knobs resize
    job: int | None = None
    nodes: Nodes = ()
    detail: str = ""


@dataclass
class Timeline:
    """An append-only list of events; `labels` and `gpus` are those of the jobs, by dense id."""

    labels: Sequence[str]
    gpus: Sequence[int]
    events: list[Event] = field(default_factory=list)

    def add(
        self, time_ms: int, kind: str, job: int | None = None, nodes: Nodes = (), detail: str = ""
    ) -> None:
        self.events.append(Event(time_ms, kind, job, nodes, detail))

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the csv rows: seconds with three digits, nodes as `node:gpus+node:gpus`."""
        shown = cache(_shown)  # few are distinct
        for time_ms, kind, job, nodes, detail in self.events:
            label, gpus = ("", "") if job is None else (self.labels[job], str(self.gpus[job]))
            yield seconds(time_ms), kind, label, gpus, shown(nodes), detail

    def csv(self) -> str:
        """Return the timeline as `--timeline-out` writes it."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(self.rows())
        return out.getvalue()

    def digest(self) -> str:
        """Return the SHA-256 of `csv()`."""
        return hashlib.sha256(self.csv().encode()).hexdigest()

    def text(self) -> str:
        """Return time, event and job as aligned lines, for people and golden tests."""
        return "".join(
            f"{event.time_ms / 1000:6g} {event.kind:<7} {'' if event.job is None else self.labels[event.job]}"
            f"{event.detail if event.job is None else ''}\n"
            for event in self.events
        )


def _shown(nodes: Nodes) -> str:
    return "+".join(f"{node}:{count}" for node, count in nodes)


def seconds(time_ms: int) -> str:
    """Return milliseconds as exact decimal seconds with three digits."""
    sign = "-" if time_ms < 0 else ""
    whole, rest = divmod(abs(time_ms), 1000)
    return f"{sign}{whole}.{rest:03d}"
