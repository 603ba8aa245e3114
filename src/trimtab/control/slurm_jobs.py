"""The jobs and nodes of a Slurm cluster as its commands show them, and the events between two looks."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import polars as pl

from trimtab.cluster import Cluster
from trimtab.control.adapter import EventKind, JobEvent, Unreachable
from trimtab.control.observed import Seen
from trimtab.control.slurm_commands import Commands, nodes_of
from trimtab.errors import ConfigError
from trimtab.job import JobFacts, Nodes
from trimtab.traces.sacct import gpus_of

JOB = (
    *("JobArrayID", "State", "SubmitTime", "EligibleTime", "StartTime", "EndTime", "TimeUsed", "TimeLimit"),
    *("Partition", "UserName", "NumNodes", "tres-alloc", "tres-per-node", "tres-per-job", "NodeList"),
    *("RestartCnt", "Account", "QOS", "Name"),
)
EVERY_JOB = ("--array", "--all", "--states=all")
NODE = ("NodeList", "Partition", "StateLong", "Gres")
EVERY_NODE = ("--all", "--Node")

_WAITS = ("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD")
_RUNS = (
    *("RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "STOPPED", "RESIZING", "SIGNALING"),
    *("STAGE_OUT",),
)
_SERVES = ("idle", "mixed", "allocated", "planned", "completing", "reserved")

_ALLOCATED = re.compile(r"\bNodes=(\S+) CPU_IDs=\S+ Mem=\S+ GRES=(\S*)")

_EVENTS_KEPT = 200_000
_EVENTS_A_SECOND = 20  # bits of an event's number below its second


@dataclass(frozen=True, slots=True)
class Row:
    """A job as squeue shows it; times in ms, None for what did not happen. Parts of one job are one row.

    Attributes:
        nodes: Names of the nodes it holds, or held last.
    """

    label: str
    state: str
    submit_ms: int
    eligible_ms: int | None
    start_ms: int | None
    end_ms: int | None
    used_ms: int
    limit_ms: int | None
    partition: str
    user: str
    name: str
    gpus: int
    nodes: tuple[str, ...]
    restarts: int
    account: str | None = None
    qos: str | None = None

    @property
    def waits(self) -> bool:
        return self.state in _WAITS

    @property
    def runs(self) -> bool:
        return self.state in _RUNS

    @property
    def began_ms(self) -> int | None:
        """When it was started last; Slurm shows a start of jobs that never ran, too."""
        return self.start_ms if not self.waits and self.nodes else None


def job_rows(commands: Commands) -> list[Row]:
    """Return the jobs that wait, run, or have ended a moment ago, in Slurm's order; an array's tasks apart.

    Raises:
        Unreachable: If squeue does not answer, or not as it should.
    """
    return rows_of(commands.table("squeue", JOB, *EVERY_JOB))


def rows_of(found: Sequence[Mapping[str, str]]) -> list[Row]:
    """Return the jobs of a table with the columns `JOB`, and perhaps others.

    Raises:
        Unreachable: If it is not known when one was submitted.
    """
    return _joined(_row(one, gpus) for one, gpus in zip(found, _gpus(found), strict=True))


def _gpus(found: Sequence[Mapping[str, str]]) -> list[int]:
    """GPUs of each job: by TRES; where TRES names none (it need not be accounted), as asked for."""
    frame = pl.DataFrame(
        {
            **{
                name: [one[name] for one in found] for name in ("tres-alloc", "tres-per-node", "tres-per-job")
            },
            "nodes": [_whole(one["NumNodes"], 1) for one in found],
        },
        schema_overrides=dict.fromkeys(("tres-alloc", "tres-per-node", "tres-per-job"), pl.String()),
    )
    asked = {
        name: gpus_of(pl.col(name).str.replace_all("gres:", "")) for name in ("tres-per-node", "tres-per-job")
    }
    counts = (gpus_of(pl.col("tres-alloc")), asked["tres-per-node"] * pl.col("nodes"), asked["tres-per-job"])
    named = [pl.when(count > 0).then(count) for count in counts]
    return frame.select(gpus=pl.coalesce(*named, pl.lit(0)))["gpus"].to_list()


def gpu_counts(texts: Sequence[str]) -> list[int]:
    """Return the GPUs that texts of GRES or TRES name, 0 where they name none."""
    frame = pl.DataFrame({"text": texts}, schema={"text": pl.String()})
    return frame.select(gpus_of(pl.col("text")).fill_null(0))["text"].to_list()


def gpus_by_node(commands: Commands, label: str) -> dict[str, int]:
    """Return the GPUs of a running job on each of its nodes, nothing where that is not told.

    Raises:
        Unreachable: If scontrol does not answer.
    """
    answer = commands.run("scontrol", "show", "job", "-d", label)
    each: dict[str, int] = {}
    for nodes, gres in _ALLOCATED.findall(answer.out):
        each.update(dict.fromkeys(nodes_of(nodes), gpu_counts([gres])[0]))
    return each


def _row(found: Mapping[str, str], gpus: int) -> Row:
    label, submit_ms = found["JobArrayID"], instant_ms(found["SubmitTime"])
    if submit_ms is None:
        raise Unreachable(
            f"squeue: says of job {label!r:.40} that it was submitted {found['SubmitTime']!r:.40}."
        )
    return Row(
        label=label,
        state=found["State"],
        submit_ms=submit_ms,
        eligible_ms=instant_ms(found["EligibleTime"]),
        start_ms=instant_ms(found["StartTime"]),
        end_ms=instant_ms(found["EndTime"]),
        used_ms=span_ms(found["TimeUsed"]) or 0,
        limit_ms=span_ms(found["TimeLimit"]),
        partition=found["Partition"].split(",")[0],
        user=found["UserName"],
        name=found["Name"],
        gpus=gpus,
        nodes=tuple(nodes_of(found["NodeList"])),
        restarts=_whole(found["RestartCnt"], 0),
        account=_name(found["Account"]),
        qos=_name(found["QOS"]),
    )


def _name(text: str) -> str | None:
    return None if text in ("", "N/A", "(null)") else text


def _joined(found: Iterable[Row]) -> list[Row]:
    """Make one row of the parts of a heterogeneous job (`12+0`, `12+1`): they start together."""
    by_label: dict[str, Row] = {}
    for row in found:
        label, plus, _ = row.label.partition("+")
        first = by_label.get(label) if plus else None
        by_label[label] = _both(first, row) if first else replace(row, label=label)
    return list(by_label.values())


def _both(one: Row, other: Row) -> Row:
    return replace(one, gpus=one.gpus + other.gpus, nodes=(*one.nodes, *other.nodes))


def instant_ms(text: str) -> int | None:
    """Return an instant of Slurm's in ms, None for one that is not known; the commands speak UTC."""
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def span_ms(text: str) -> int | None:
    """Return a length of time such as `1-02:03:04`, `2:03` or `7` (s), None for UNLIMITED and the like."""
    found = re.fullmatch(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(?:(\d{1,6}):)?(\d{1,6})", text)
    if found is None:
        return None
    days, hours, minutes, seconds = found.groups()
    if minutes is None:
        hours, minutes = None, hours
    return 1000 * (int(days or 0) * 86_400 + int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds))


def _whole(text: str, otherwise: int) -> int:
    return int(text) if text.isdecimal() else otherwise


# ---- nodes -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Where the GPUs of a cluster are.

    Attributes:
        homes: Partition -> virtual cluster. places: node -> its virtual cluster's index and its own there.
        away: Nodes with GPUs that are not in service.
    """

    cluster: Cluster
    homes: Mapping[str, str]
    places: Mapping[str, tuple[int, int]]
    away: tuple[str, ...]

    def home_of(self, row: Row) -> str:
        """Return a job's virtual cluster."""
        return self.homes.get(row.partition, row.partition)

    def held(self, gpus: int, names: Sequence[str], each: Mapping[str, int]) -> Nodes:
        """Return the GPUs a job holds as nodes of its virtual cluster.

        Args:
            each: GPUs by node where they are known; else they are the same on all, the first having one more.
        """
        known = [name for name in names if name in self.places]
        if sum(each.get(name, 0) for name in known) != gpus:
            whole, rest = divmod(gpus, max(1, len(known)))
            each = {name: whole + (place < rest) for place, name in enumerate(known)}
        return tuple(sorted((self.places[name][1], each[name]) for name in known if each.get(name)))


def read_layout(commands: Commands, jobs: Iterable[Row]) -> Layout:
    """Return where the GPUs are that jobs can have, or have: see `layout_of`.

    Raises:
        ConfigError: If nodes of one pool have different numbers of GPUs. Unreachable: if sinfo does not
            answer, not as it should, or with no node that serves.
    """
    busy = {node for row in jobs if row.runs and row.gpus for node in row.nodes}
    return layout_of(commands.table("sinfo", NODE, *EVERY_NODE), busy)


def layout_of(found: Sequence[Mapping[str, str]], busy: Collection[str]) -> Layout:
    """Return where the GPUs are that jobs can have: of nodes in service, and of those that jobs still hold.

    Partitions that share nodes are one pool; those that share none are virtual clusters of their own.

    Args:
        found: Nodes as sinfo shows them, one row for each partition a node is in. busy: nodes that jobs hold.

    Raises:
        ConfigError: If nodes of one pool have different numbers of GPUs. Unreachable: if no node is there.
    """
    counts = gpu_counts([one["Gres"] for one in found])
    gpus = dict(zip((one["NodeList"] for one in found), counts, strict=True))
    there = {one["NodeList"] for one in found if serves(one["StateLong"])} | set(busy)
    pools = _pools(
        [(one["Partition"].rstrip("*"), one["NodeList"]) for one in found if gpus[one["NodeList"]]]
    )
    sizes: list[tuple[str, int, int]] = []
    places: dict[str, tuple[int, int]] = {}
    homes: dict[str, str] = {}
    for names, nodes in pools:
        name, present = ",".join(names), sorted(nodes & there, key=_natural)
        homes.update(dict.fromkeys(names, name))
        if not present:
            continue
        each = {gpus[node] for node in present}
        if len(each) > 1:
            raise ConfigError(
                f"partition {name}: its nodes have {' or '.join(map(str, sorted(each)))} GPUs; those of one "
                "pool must have the same number."
            )
        places.update({node: (len(sizes), place) for place, node in enumerate(present)})
        sizes.append((name, len(present), each.pop()))
    if not sizes:
        raise Unreachable("sinfo: no node with GPUs is in service.")
    pooled = len(pools) == 1
    cluster = Cluster.pool(*sizes[0][1:]) if pooled else Cluster.partitioned(sizes)
    away = sorted({node for _, nodes in pools for node in nodes} - there, key=_natural)
    return Layout(cluster, {} if pooled else homes, places, tuple(away))


def serves(state: str) -> bool:
    """Whether a node takes jobs: `idle*` does not answer, `idle~` is asleep and wakes up."""
    base = re.match(r"[a-z_]*", state.lower())
    return base is not None and base[0] in _SERVES and "*" not in state


def _pools(found: Iterable[tuple[str, str]]) -> list[tuple[tuple[str, ...], set[str]]]:
    """Return partitions that share nodes together, with their nodes, in the order of their names."""
    nodes: dict[str, set[str]] = {}
    for partition, node in found:
        nodes.setdefault(partition, set()).add(node)
    pools: list[tuple[tuple[str, ...], set[str]]] = []
    for partition, own in nodes.items():
        apart = [one for one in pools if not one[1] & own]
        met = [one for one in pools if one[1] & own]
        names = (*(name for one, _ in met for name in one), partition)
        pools = [*apart, (names, own.union(*(one for _, one in met)))]
    return sorted((tuple(sorted(names)), own) for names, own in pools)


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sort `g10` behind `g9`."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name))


# ---- events ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Life:
    """What has been told of a job."""

    facts: JobFacts
    start_ms: int | None = None  # of the run that goes on
    first_start_ms: int | None = None
    stopped_ms: int | None = None
    earlier_ms: int = 0  # held by runs that are over
    preemptions: int = 0
    over: bool = False


@dataclass
class Jobs:
    """All jobs seen so far, and the events that the looks at them make.

    Attributes:
        left_out: Jobs with GPUs that no virtual cluster could ever hold, at the last look.
        amend: Adds what is known of a job beside what squeue shows when it is told of at first.
    """

    left_out: tuple[str, ...] = ()
    amend: Callable[[JobFacts], JobFacts] = lambda facts: facts
    _lives: dict[str, _Life] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)  # ended before the first look, and perhaps still shown
    _events: list[JobEvent] = field(default_factory=list)
    _numbers: list[int] = field(default_factory=list)

    def events(self, after: int, most: int) -> list[JobEvent]:
        """Return at most so many events with larger numbers, oldest first."""
        begin = bisect_right(self._numbers, after)
        return self._events[begin : begin + max(0, most)]

    def remember(self, past: Iterable[JobEvent], layout: Layout) -> None:
        """Take the lives of jobs that had ended before the first look, in the order of their times."""
        for event in past:
            if event.facts is not None:
                facts = event.facts._replace(vc=layout.homes.get(event.facts.vc or "", event.facts.vc))
                if not _fits(facts.gpus, facts.vc, layout):
                    continue
                self._told.add(event.label)
                event = replace(event, facts=facts)
            if event.label in self._told:
                self._tell(event)

    def look(self, found: Sequence[Row], layout: Layout, now_ms: int) -> dict[str, Row]:
        """Take what squeue shows; return the jobs that wait or run by label."""
        new: list[JobEvent] = []
        active: dict[str, Row] = {}
        misfits = []
        for row in found:
            if row.gpus == 0:
                continue
            if not (row.waits or row.runs) and row.label in self._told:
                continue
            if not _fits(row.gpus, layout.home_of(row), layout):
                misfits.append(row.label)
                continue
            if row.waits and row.label not in self._lives and not _has_come(row, now_ms):
                continue
            new += self._changes(row, layout, now_ms)
            if not self._lives[row.label].over:
                active[row.label] = row
        there = {row.label for row in found}
        new += self._gone(there, now_ms)
        self._told &= there
        for event in sorted(new, key=lambda event: event.time_ms):
            self._tell(event)
        self.left_out = tuple(misfits)
        return active

    def seen(self, row: Row, nodes: Nodes, now_ms: int) -> Seen:
        """Return a job that waits or runs as a state shows it."""
        life = self._lives[row.label]
        used_ms = min(row.used_ms, now_ms - life.start_ms) if life.start_ms is not None else 0
        return Seen(
            facts=life.facts,
            nodes=nodes,
            held_ms=life.earlier_ms + max(0, used_ms),
            preemptions=max(life.preemptions, row.restarts),
            first_start_ms=life.first_start_ms,
            started_ms=life.start_ms,
            stopped_ms=life.stopped_ms,
            estimate_ms=row.limit_ms,
        )

    def _changes(self, row: Row, layout: Layout, now_ms: int) -> list[JobEvent]:
        """Return what has happened to a job since the last look."""
        found: list[JobEvent] = []
        life = self._lives.get(row.label)
        if life is None or (life.over and (row.waits or row.runs)):  # an operator may requeue what has ended
            life = self._lives[row.label] = _Life(self.amend(facts_of(row, layout, _came_ms(row, now_ms))))
            found.append(_event("submit", life.facts.submit_ms, row.label, life.facts))
        # While its nodes are cleared it holds them; how it ended, or that it waits again, is seen later.
        if life.over or (row.state == "COMPLETING" and life.start_ms is not None):
            return found
        began_ms = None if row.began_ms is None else min(row.began_ms, now_ms)
        if life.start_ms is not None and life.start_ms != began_ms:
            found.append(self._stop(row, life, began_ms, now_ms))
        if began_ms is not None and life.start_ms is None:
            life.start_ms = began_ms
            life.first_start_ms = began_ms if life.first_start_ms is None else life.first_start_ms
            found.append(_event("start", began_ms, row.label))
        if not row.waits and not row.runs:
            found.append(_end(row, life, now_ms))
        return found

    def _stop(self, row: Row, life: _Life, began_ms: int | None, now_ms: int) -> JobEvent:
        """Return that a job lost its GPUs: a requeue submits it anew at that instant."""
        assert life.start_ms is not None
        latest_ms = now_ms if began_ms is None else began_ms
        life.stopped_ms = max(life.start_ms, min(row.submit_ms, latest_ms))
        life.earlier_ms += life.stopped_ms - life.start_ms
        life.start_ms = None
        life.preemptions += 1
        return _event("preempt", life.stopped_ms, row.label)

    def _gone(self, there: Collection[str], now_ms: int) -> list[JobEvent]:
        """Return the end of jobs that are not shown any more; what has ended is forgotten."""
        lost = []
        for label in [label for label in self._lives if label not in there]:
            life = self._lives.pop(label)
            if not life.over:
                lost.append(_event("cancel", now_ms, label))
        return lost

    def _tell(self, event: JobEvent) -> None:
        """Number an event by its second, and behind all others: so numbers go on after a restart."""
        last = self._numbers[-1] if self._numbers else 0
        number = max(last + 1, max(0, event.time_ms // 1000) << _EVENTS_A_SECOND)
        self._numbers.append(number)
        self._events.append(replace(event, number=number))
        if len(self._numbers) > 2 * _EVENTS_KEPT:
            del self._numbers[:_EVENTS_KEPT], self._events[:_EVENTS_KEPT]


def _fits(gpus: int, vc: str | None, layout: Layout) -> bool:
    home = layout.cluster.home(vc)
    return home is not None and gpus <= layout.cluster.vcs[home].gpus


def _has_come(row: Row, now_ms: int) -> bool:
    """Whether a job that waits could be started: not one that is held, depends on another or begins later."""
    return row.eligible_ms is not None and row.eligible_ms <= now_ms


def _came_ms(row: Row, now_ms: int) -> int:
    """Return since when a job counts as there: since it could be started."""
    came_ms = max(row.submit_ms, row.eligible_ms or 0) if row.restarts == 0 else row.submit_ms
    return min(came_ms, now_ms if row.began_ms is None else row.began_ms, now_ms)


def facts_of(row: Row, layout: Layout, submit_ms: int) -> JobFacts:
    """Return what a scheduler is told of a job that came at an instant."""
    return JobFacts(
        label=row.label,
        submit_ms=submit_ms,
        gpus=row.gpus,
        vc=layout.home_of(row),
        user=row.user,
        name=row.name,
        limit_ms=row.limit_ms,
        account=row.account,
        qos=row.qos,
    )


def _end(row: Row, life: _Life, now_ms: int) -> JobEvent:
    ended_ms = max(min(row.end_ms or now_ms, now_ms), life.start_ms or life.facts.submit_ms)
    life.over = True
    if life.start_ms is None or row.state in ("CANCELLED", "REVOKED"):
        return _event("cancel", ended_ms, row.label)
    return _event("finish", ended_ms, row.label, ran_ms=life.earlier_ms + ended_ms - life.start_ms)


def _event(
    kind: EventKind, time_ms: int, label: str, facts: JobFacts | None = None, ran_ms: int | None = None
) -> JobEvent:
    return JobEvent(0, kind, time_ms, label, facts, ran_ms)
