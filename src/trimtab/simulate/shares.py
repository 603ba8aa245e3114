"""How much CPU and memory jobs held over a run, read from the timeline."""

from __future__ import annotations

from trimtab.cluster import Cluster, VirtualCluster
from trimtab.curve import NOTHING, Share, total
from trimtab.job import Nodes
from trimtab.simulate.pairs import shared_stretches
from trimtab.timeline import Timeline


def held_shares(timeline: Timeline, cluster: Cluster) -> Share:
    """Return the integral of cores and MiB held by jobs over time, in core-ms and MiB-ms.

    A start or a resize tells what a job has from then on; where it does not, that is the proportional part of
    its nodes'. What comes with GPUs under two jobs counts once. Jobs that still run at the end are left out.
    """
    homes = [vc for vc in cluster.vcs for _ in range(vc.nodes)]
    held: dict[int, tuple[int, Share, Nodes]] = {}  # job -> since when, how much and where
    cores = memory = 0
    for time_ms, kind, job, nodes, detail in timeline.events:
        if job is None or kind not in ("start", "resize", "preempt", "finish"):
            continue
        since_ms, share, before = held.pop(job, (time_ms, NOTHING, ()))
        cores += (time_ms - since_ms) * share.cores
        memory += (time_ms - since_ms) * share.memory_mib
        if kind in ("start", "resize"):
            where = nodes or before
            held[job] = time_ms, told_share(detail) or proportional_share(homes, where), where
    for stretch in shared_stretches(timeline):
        share, length_ms = proportional_share(homes, stretch.nodes), stretch.until_ms - stretch.from_ms
        cores, memory = cores - length_ms * share.cores, memory - length_ms * share.memory_mib
    return Share(cores, memory)


def told_share(detail: str) -> Share | None:
    """Return the CPU and memory that an event tells, None where it tells none; see `Share.text`."""
    words = detail.split()
    if words[1::2] != ["cores", "MiB"]:
        return None
    return Share(int(words[0]), int(words[2]))


def proportional_share(homes: list[VirtualCluster], nodes: Nodes) -> Share:
    """Return what GPUs of some nodes come with."""
    return total(homes[node].proportional(gpus) for node, gpus in nodes)


def tells_shares(timeline: Timeline) -> bool:
    """Whether any job was given CPU and memory of its own."""
    return any(
        event.kind == "resize" or (event.kind == "start" and told_share(event.detail) is not None)
        for event in timeline.events
    )
