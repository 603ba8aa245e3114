"""What Slurm shows to whoever starts jobs there: the jobs that are ours to start, those of others, the nodes.

Ours are those whose comment is a ticket. Where one stands follows from Slurm alone: it is held (its priority
is 0) by its submission or a requeue, or was released to nodes that it names, or runs. A job that an operator
holds, that depends on another, or that somebody else released, is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trimtab.cluster import Cluster
from trimtab.control.adapter import Unreachable
from trimtab.control.slurm_commands import Commands, nodes_of
from trimtab.control.slurm_jobs import (
    EVERY_JOB,
    EVERY_NODE,
    JOB,
    NODE,
    Layout,
    Row,
    gpus_by_node,
    layout_of,
    rows_of,
    serves,
)
from trimtab.control.slurm_ticket import Foreign, Record, Ticket, read_comment
from trimtab.curve import NOTHING, Share
from trimtab.job import Nodes
from trimtab.world import epoch_ms

Phase = Literal["held", "released", "running", "leaving", "kept", "over"]

_JOB = (*JOB, "PriorityLong", "Reason", "Dependency", "ReqNodes", "Comment")
_NODE = (*NODE, "CPUsState", "Memory", "AllocMem")

# Why a job is held that a policy may start; other reasons are an operator's, or Slurm's own.
_FREE_TO_START = ("JobHeldUser", "job requeued in held state")
_UNITS_MIB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2, "": 1}


@dataclass(frozen=True, slots=True)
class Mine:
    """A job that is ours to start.

    Attributes:
        phase: Where it stands; who is `leaving` (requeued) or `over` still clears its nodes.
        pinned: Nodes it was released to. nodes: GPUs that it holds, as nodes of its virtual cluster.
        asks: CPU and memory it holds, or asks for while it waits.
    """

    row: Row
    ticket: Ticket
    record: Record
    phase: Phase
    pinned: tuple[str, ...]
    nodes: Nodes
    asks: Share

    @property
    def label(self) -> str:
        return self.row.label

    @property
    def submit_ms(self) -> int:
        """When it was submitted at first: a requeue submits it anew."""
        return self.row.submit_ms if self.record.submit is None else self.record.submit

    @property
    def number(self) -> tuple[int, ...]:
        """Its place among jobs of one second."""
        return tuple(map(int, re.findall(r"\d+", self.label)))


@dataclass(frozen=True, slots=True)
class Other:
    """A job of somebody else that holds GPUs."""

    row: Row
    nodes: Nodes
    holds: Share


@dataclass(frozen=True, slots=True)
class Machine:
    """A node: its CPU and memory, what of them is free, and whether it takes jobs."""

    share: Share
    free: Share
    serves: bool


@dataclass(frozen=True)
class Queue:
    """What Slurm showed at an instant.

    Attributes:
        ended: Jobs with GPUs that have ended a moment ago, whosever they are.
        odd: Jobs whose comment begins like ours and is none, with what is wrong.
    """

    now_ms: int
    layout: Layout
    mine: tuple[Mine, ...]
    others: tuple[Other, ...]
    machines: Mapping[str, Machine]
    ended: tuple[Row, ...]
    odd: Mapping[str, str]


def read_queue(commands: Commands) -> Queue:
    """Return what Slurm shows now.

    Raises:
        Unreachable: If a command does not answer, or not as it should.
        ConfigError: If nodes of one pool have different numbers of GPUs.
    """
    found = commands.table("squeue", _JOB, *EVERY_JOB)
    nodes = commands.table("sinfo", _NODE, *EVERY_NODE)
    now_ms = epoch_ms()
    rows = {row.label: row for row in rows_of(found)}
    busy = {node for row in rows.values() if row.runs and row.gpus for node in row.nodes}
    machines = {one["NodeList"]: _machine(one) for one in nodes}
    layout = _with_care(layout_of(nodes, busy), machines)
    mine: list[Mine] = []
    others: list[Other] = []
    odd: dict[str, str] = {}
    for one in found:
        row = rows.get(one["JobArrayID"])
        if row is None or row.gpus == 0 or not (row.waits or row.runs):
            continue
        try:
            told = read_comment(one["Comment"])
        except Foreign as problem:
            odd[row.label], told = str(problem), None
        if told is not None:
            mine.append(_mine(commands, layout, row, one, told, now_ms))
        elif row.began_ms is not None:
            others.append(Other(row, _held(commands, layout, row), _asked(one["tres-alloc"])))
    mine.sort(key=lambda job: (job.submit_ms, job.number))
    ended = tuple(row for row in rows.values() if row.gpus and not row.waits and not row.runs)
    return Queue(now_ms, layout, tuple(mine), tuple(others), machines, ended, odd)


def _mine(
    commands: Commands,
    layout: Layout,
    row: Row,
    found: Mapping[str, str],
    told: tuple[Ticket, Record],
    now_ms: int,
) -> Mine:
    pinned = tuple(nodes_of(found["ReqNodes"])) if found["ReqNodes"] not in ("(null)", "N/A") else ()
    phase = _phase(row, found, bool(pinned) and told[1].submit is not None, now_ms)
    places = _held(commands, layout, row) if phase in ("running", "leaving", "over") else ()
    if phase == "released":
        places = layout.held(row.gpus, pinned, {})
    return Mine(row, *told, phase, pinned, places, _asked(found["tres-alloc"]))


def _phase(row: Row, found: Mapping[str, str], is_pinned: bool, now_ms: int) -> Phase:
    if row.runs:
        is_requeued = row.state == "COMPLETING" and found["Reason"] in _FREE_TO_START
        return "leaving" if is_requeued else "over" if row.state == "COMPLETING" else "running"
    if found["PriorityLong"] != "0":
        return "released" if is_pinned else "kept"
    waits_for_a_time = row.restarts == 0 and row.eligible_ms is not None and row.eligible_ms > now_ms
    depends = found["Dependency"] not in ("", "(null)", "N/A")
    return "held" if found["Reason"] in _FREE_TO_START and not waits_for_a_time and not depends else "kept"


def _held(commands: Commands, layout: Layout, row: Row) -> Nodes:
    if row.began_ms is None or not row.nodes:
        return ()
    each = gpus_by_node(commands, row.label) if row.gpus % len(row.nodes) else {}
    return layout.held(row.gpus, row.nodes, each)


def _asked(text: str) -> Share:
    """Return the CPU and memory of a TRES text such as `cpu=7,mem=9000M,node=1`; nothing for what is none."""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    memory = re.fullmatch(r"([\d.]{1,20})([KMGT]?)", parts.get("mem", ""))
    cores = parts.get("cpu", "")
    mib = 0 if memory is None else round(float(memory[1]) * _UNITS_MIB[memory[2]])
    return Share(int(cores) if cores.isdecimal() else 0, mib)


# ---- nodes -------------------------------------------------------------------------------------------


def _machine(found: Mapping[str, str]) -> Machine:
    """Return a node.

    Raises:
        Unreachable: If its CPU and memory are not told as they should be.
    """
    cores = re.fullmatch(r"(\d+)/(\d+)/(\d+)/(\d+)", found["CPUsState"])
    memory, taken = found["Memory"], found["AllocMem"]
    if cores is None or not memory.isdecimal() or not taken.isdecimal():
        raise Unreachable(f"sinfo: says of node {found['NodeList']!r:.40} what cannot be read.")
    whole = Share(int(cores[4]), int(memory))
    free = Share(int(cores[2]), int(memory) - int(taken))
    return Machine(whole, free, serves(found["StateLong"]))


def _with_care(layout: Layout, machines: Mapping[str, Machine]) -> Layout:
    """Return the same nodes with their CPU and memory: of a pool, those of the smallest."""
    sizes: dict[int, list[Share]] = {}
    for name, (home, _) in layout.places.items():
        sizes.setdefault(home, []).append(machines[name].share)
    vcs = tuple(
        replace(
            vc,
            cores_per_node=min(share.cores for share in sizes[home]),
            memory_mib_per_node=min(share.memory_mib for share in sizes[home]),
        )
        for home, vc in enumerate(layout.cluster.vcs)
    )
    return replace(layout, cluster=Cluster(vcs, layout.cluster.pooled))


def room_of(queue: Queue, names: Sequence[str], released: Iterable[Mine]) -> dict[str, Share]:
    """Return the CPU and memory of nodes that are free and not waited for by a job that was released."""
    rooms = {name: queue.machines[name].free if queue.machines[name].serves else NOTHING for name in names}
    for job in released:
        for name in job.pinned:
            if name in rooms:
                rooms[name] = rooms[name].less(part_of(job.asks, 1, len(job.pinned)))
    return rooms


def part_of(share: Share, gpus: int, of: int) -> Share:
    """Return what so many of a job's GPUs come with if all come with the same, rounded up."""
    return Share(-(-share.cores * gpus // of), -(-share.memory_mib * gpus // of))
