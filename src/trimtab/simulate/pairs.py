"""When two jobs were on the same GPUs, read from the timeline: such GPUs are held twice and in use once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trimtab.job import Nodes
from trimtab.timeline import Timeline

_BESIDE = "beside "


class Shared(NamedTuple):
    """So many GPUs of some nodes under two jobs, from an instant to another."""

    from_ms: int
    until_ms: int
    gpus: int
    nodes: Nodes


def shared_stretches(timeline: Timeline) -> Iterator[Shared]:
    """Yield the stretches in which GPUs had two jobs, by their ends; pairs that go on are left out."""
    running: dict[tuple[str, Nodes], int] = {}
    pairs: dict[int, tuple[int, int, Nodes]] = {}  # job -> its partner, since when and where
    for time_ms, kind, job, nodes, detail in timeline.events:
        if job is None:
            continue
        if kind == "start":
            running[timeline.labels[job], nodes] = job
            if detail.startswith(_BESIDE):
                other = running[detail.removeprefix(_BESIDE), nodes]
                pairs[job], pairs[other] = (other, time_ms, nodes), (job, time_ms, nodes)
        elif kind in ("finish", "preempt") and job in pairs:
            other, from_ms, where = pairs.pop(job)
            del pairs[other]
            yield Shared(from_ms, time_ms, timeline.gpus[job], where)


def shared_gpu_s(timeline: Timeline) -> float:
    """Return the GPU-seconds that were held by two jobs at once."""
    return sum((one.until_ms - one.from_ms) * one.gpus for one in shared_stretches(timeline)) / 1000
