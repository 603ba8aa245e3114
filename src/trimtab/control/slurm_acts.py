"""What a policy decides, as commands to Slurm: who is released and where, who is requeued, what is noted.

What Slurm does not do is not asked of it, and said: it changes no CPU or memory of a running job, puts no two
jobs on one GPU, and a job that may not be requeued keeps its GPUs. Who was to start there then waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from trimtab.cluster import ClusterView, FreeMap
from trimtab.control.slurm_queue import Mine, Queue, part_of, room_of
from trimtab.control.slurm_ticket import Record, write_comment
from trimtab.control.slurm_view import Scene, Taking, began_ms, ran_ms, speed_ppm
from trimtab.curve import Share
from trimtab.job import JobView, Nodes
from trimtab.policies.policy import Decision, Lease, Note, Preempt, Resize, Start
from trimtab.simulate.decisions import check_decisions


@dataclass(frozen=True, slots=True)
class Act:
    """Something to be done to one of our jobs: commands of scontrol, one after another.

    Attributes:
        nodes: Names of the nodes it takes, or gives back (`gives`).
    """

    label: str
    says: str
    commands: tuple[tuple[str, ...], ...]
    nodes: tuple[str, ...] = ()
    gives: bool = False


@dataclass
class Acts:
    """What follows from a policy's decisions.

    Attributes:
        acts: In the order in which they are done. remarks: what is not done, and why.
        memory: What is to be remembered of the virtual cluster, None for what is remembered already.
    """

    acts: list[Act] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    memory: tuple[int, ...] | None = None


def take_back(job: Mine, why: str) -> Act:
    """Hold a job again that was released and did not start."""
    return Act(job.label, f"job {job.label}: held again, {why}", (("uhold", job.label),))


def acts_of(queue: Queue, scene: Scene, decisions: Sequence[Decision], taking: Taking) -> Acts:
    """Return what is to be done.

    Raises:
        ConfigError: If a policy decides what is not possible by what it was shown.
    """
    return _Making(queue, scene, taking).make(decisions)


class _Making:
    """The acts of one virtual cluster, on the way."""

    def __init__(self, queue: Queue, scene: Scene, taking: Taking) -> None:
        self.queue, self.scene, self.taking = queue, scene, taking
        self.view: ClusterView = scene.view
        self.found = Acts()
        self.records: dict[int, Record] = {}
        self.free = FreeMap(scene.free, self.view.vc.gpus_per_node, taking.placement)
        waiting = [job for job in scene.mine.values() if job.phase == "released"]
        self.rooms = room_of(queue, scene.names, waiting)
        self.plan = taking.plan

    def make(self, decisions: Sequence[Decision]) -> Acts:
        self._lift()
        possible = self._possible(decisions)
        verdict = check_decisions(
            *(possible, self.view.pending.find, self.view.running.find, self.free),
            *(self.taking.policy, self.view.now_ms, self.plan.gives_shares),
        )
        self.found.memory = verdict.memory
        for lease in verdict.leases:
            self._write(lease.job_id, lease=(lease.start_ms, lease.end_ms, lease.renewal_ms))
        for note in verdict.notes:
            self._write(note.job_id, note=note.note, promise=note.promise_ms)
        requeues = [self._requeue(job_id) for job_id in verdict.lost]
        starts = []
        for job_id, nodes in verdict.places.items():
            if (act := self._start(job_id, nodes, verdict.shares.get(job_id))) is not None:
                starts.append(act)
        done = {act.label for act in (*requeues, *starts)}
        notes = [self._noted(job_id) for job_id in sorted(self.records) if self._label(job_id) not in done]
        self.found.acts += [*notes, *requeues, *starts]
        return self.found

    # ---- what can be done --------------------------------------------------------------------------

    def _possible(self, decisions: Sequence[Decision]) -> list[Decision]:
        """Return the decisions that Slurm can carry out; of the others it is said why it cannot."""
        lost = {one.job_id for one in decisions if isinstance(one, Preempt) and self._may_lose(one.job_id)}
        kept = [one.job_id for one in decisions if isinstance(one, Preempt) and one.job_id not in lost]
        room = FreeMap(self.free.free, self.free.gpus_per_node, self.free.placement)
        for job_id in lost:
            job = self.view.running.find(job_id)
            room.give(job.nodes if job is not None else ())
        found: list[Decision] = [Preempt(job_id) for job_id in sorted(lost)]
        for one in decisions:
            if isinstance(one, Start):
                found += self._possible_start(one, room, lost, bool(kept))
            elif isinstance(one, Lease | Note):
                found += [one] if one.job_id in self.scene.mine else []
            elif isinstance(one, Resize):
                self._say(one.job_id, "CPU and memory of a running job are not changed by Slurm")
            elif not isinstance(one, Preempt):
                found.append(one)
        started = {one.job_id for one in found if isinstance(one, Start)}
        return [one for one in found if not isinstance(one, Lease) or self._keeps(one, lost, started)]

    def _keeps(self, lease: Lease, lost: Iterable[int], started: Iterable[int]) -> bool:
        runs = self.view.running.find(lease.job_id) is not None and lease.job_id not in lost
        return runs or lease.job_id in started

    def _may_lose(self, job_id: int) -> bool:
        job = self.view.running.find(job_id)
        if job is None or not job.shielded:
            return True  # if it does not run, the policy is told so
        self._say(job_id, "it may not be requeued now: it keeps its GPUs")
        return False

    def _possible_start(self, start: Start, room: FreeMap, lost: set[int], is_short: bool) -> list[Decision]:
        """Return a start if it can be made; who loses GPUs must have left them before it starts elsewhere."""
        if start.job_id in lost:
            return []
        if start.beside is not None or start.until_ms is not None:
            self._say(start.job_id, "Slurm gives no GPU to two jobs, nor for a while: it waits")
            return []
        job = self.view.pending.find(start.job_id)
        if job is None:
            return [] if self.view.running.find(start.job_id) is not None and is_short else [start]
        nodes = room.place(job.gpus) if start.nodes is None else start.nodes
        if nodes is None or not room.may_take(nodes, job.gpus):
            if not is_short:
                return [start]
            self._say(start.job_id, "the GPUs it was to get are not given back: it waits")
            return []
        room.take(nodes)
        return [replace(start, nodes=nodes)]

    # ---- one job -----------------------------------------------------------------------------------

    def _job(self, job_id: int) -> JobView:
        job = self.view.pending.find(job_id) or self.view.running.find(job_id)
        assert job is not None
        return job

    def _label(self, job_id: int) -> str:
        return self.scene.mine[job_id].label

    def _say(self, job_id: int, why: str) -> None:
        job = self.view.pending.find(job_id) or self.view.running.find(job_id)
        if job is not None:
            self.found.remarks.append(f"job {job.facts.label}: {why}")

    def _record(self, job_id: int) -> Record:
        return self.records.get(job_id, self.scene.mine[job_id].record)

    def _write(self, job_id: int, **values: object) -> None:
        self.records[job_id] = replace(self._record(job_id), **values)  # type: ignore[arg-type]

    def _comment(self, job_id: int, record: Record) -> str:
        mine = self.scene.mine[job_id]
        known = replace(record, submit=mine.submit_ms) if record.submit is None else record
        return f"Comment={write_comment(mine.ticket, known)}"

    def _lift(self) -> None:
        for job_id in self.scene.lifted:
            self._write(job_id, forgiven=self._job(job_id).held_ms)

    def _noted(self, job_id: int) -> Act:
        label = self._label(job_id)
        word = self._comment(job_id, self._record(job_id))
        return Act(label, f"job {label}: noted {word[8:]}", (("update", f"jobid={label}", word),))

    def _requeue(self, job_id: int) -> Act:
        mine, queue = self.scene.mine[job_id], self.queue
        start_ms = began_ms(queue, mine)
        assert start_ms is not None
        speed = speed_ppm(queue, self.taking, mine)
        record = self._record(job_id).stop(start_ms, ran_ms(queue, mine), speed)
        for node, gpus in mine.nodes:
            name = self.scene.names[node]
            self.rooms[name] = self.rooms[name].plus(part_of(mine.asks, gpus, mine.row.gpus))
        # Without `Incomplete` a job that has ended in the meantime would run once more.
        return Act(
            mine.label,
            f"job {mine.label}: requeued from {_named(self.scene, mine.nodes)}",
            (
                ("update", f"jobid={mine.label}", self._comment(job_id, record)),
                ("requeuehold", "Incomplete", mine.label),
            ),
            tuple(self.scene.names[node] for node, _ in mine.nodes),
            gives=True,
        )

    def _start(self, job_id: int, nodes: Nodes, share: Share | None) -> Act | None:
        mine, vc = self.scene.mine[job_id], self.view.vc
        names = tuple(self.scene.names[node] for node, _ in nodes)
        given = None
        if self.plan.gives_shares and len(nodes) == 1:
            wanted = share or vc.proportional(mine.row.gpus)
            given = wanted.within(self.rooms[names[0]])
            least = Share(min(wanted.cores, mine.row.gpus), max(1, self._job(job_id).facts.footprint_mib))
            if not least.fits(given):
                self._wait(job_id, names[0], least)
                return None
            self.rooms[names[0]] = self.rooms[names[0]].less(given)
        else:
            of = mine.row.gpus
            parts = {name: part_of(mine.asks, gpus, of) for name, (_, gpus) in zip(names, nodes, strict=True)}
            short = next((name for name, part in parts.items() if not part.fits(self.rooms[name])), None)
            if short is not None:
                self._wait(job_id, short, parts[short])
                return None
            for name, part in parts.items():
                self.rooms[name] = self.rooms[name].less(part)
        return self._release(job_id, names, given)

    def _wait(self, job_id: int, name: str, needed: Share) -> None:
        left = Share(max(0, self.rooms[name].cores), max(0, self.rooms[name].memory_mib))
        self._say(job_id, f"node {name} has {left.text()} left, it needs {needed.text()}: it waits")

    def _release(self, job_id: int, names: tuple[str, ...], given: Share | None) -> Act:
        mine = self.scene.mine[job_id]
        share = () if given is None else (given.cores, given.memory_mib)
        words = [f"jobid={mine.label}", f"ReqNodeList={','.join(names)}", f"NumNodes={len(names)}"]
        if given is not None:
            words += [f"NumCPUs={given.cores}", f"MinCPUsNode={given.cores}"]
            words += [f"MinMemoryNode={given.memory_mib}"]
        if mine.row.restarts:
            words.append("StartTime=now")  # a requeued job would wait two minutes
        words.append(self._comment(job_id, replace(self._record(job_id), share=share)))
        with_share = "" if given is None else f" with {given.text()}"
        return Act(
            mine.label,
            f"job {mine.label}: released to {','.join(names)}{with_share}",
            (("update", *words), ("release", mine.label)),
            names,
        )


def _named(scene: Scene, nodes: Nodes) -> str:
    return ",".join(scene.names[node] for node, _ in nodes)
