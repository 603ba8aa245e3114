"""Synergy: GPUs by a queue's order, CPU and memory by what they are worth to a job [Mohan et al., OSDI'22].

Who runs is decided by GPUs alone, in rounds. What CPU and memory they get on their nodes is a second
decision: jobs that do not need their proportional part leave it to those that gain from more, and nobody is
ever slower than with that part. Jobs over several nodes have exactly that part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from trimtab.cluster import ClusterView, FreeMap
from trimtab.job import JobState, JobView, Nodes
from trimtab.knobs import Knob, Knobs, Space
from trimtab.policies.policy import Decision, Plan, Preempt, Resize, Start, WholePass
from trimtab.policies.shares import Ladder, Option, Room, Seat, ladder
from trimtab.policies.synergy_opt import improved, pool

SPACE = Space(
    (
        Knob(
            name="order",
            kind="choice",
            default="fifo",
            choices=("fifo", "srtf", "las"),
            trades="srtf: least waiting, needs estimates; las: the same without them; both interrupt jobs",
            takes_effect="next round",
            in_flight="srtf and las may preempt running jobs, fifo lets them end",
        ),
        Knob(
            name="allocation",
            kind="choice",
            default="tune",
            choices=("proportional", "tune", "opt"),
            trades="tune: faster jobs than proportional; opt: the most speed that there is on each node, "
            "by integer programs that take far longer to decide",
            takes_effect="next round",
            in_flight="running jobs stay on their GPUs, their CPU and memory change",
        ),
        Knob(
            name="round_s",
            kind="int",
            default=300,
            low=0,
            high=3600,
            unit="s",
            trades="longer: fewer changes, freed GPUs idle longer; 0: decide at every event",
            takes_effect="next round",
            in_flight="the next round is one new period after the last, at once if that has passed",
        ),
    )
)


class Synergy(WholePass):
    """Order fifo, srtf or las, what does not fit is skipped; CPU and memory by sensitivity."""

    name: ClassVar[str] = "synergy"
    space: ClassVar[Space] = SPACE

    def settings(self, knobs: Knobs) -> Plan:
        """Return the length of a round, and what the order and the allocation need."""
        return Plan(
            quantum_ms=knobs.integer("round_s") * 1000,
            needs_estimates=knobs.choice("order") == "srtf",
            needs_nodes=True,
            gives_shares=True,
        )

    def decide(self, view: ClusterView, knobs: Knobs) -> list[Decision]:
        """Return who loses GPUs, whose CPU and memory change, and who starts where with how much."""
        order = sorted((*view.running, *view.pending), key=_key(view.now_ms, knobs))
        interrupts = knobs.choice("order") != "fifo"
        walked = order if interrupts else sorted(order, key=lambda job: job.state is JobState.PENDING)
        allocation = knobs.choice("allocation")
        gives = allocation != "proportional"
        crew = Crew(view, gives)
        crew.walk(walked)
        rooms = divide(crew, order)
        if allocation == "opt":
            other = Crew(view, gives, pool(crew.rooms, view.vc))
            other.walk(walked)
            crew, rooms = max(
                ((one, improved(divide(one, order))) for one in (crew, other)),
                key=lambda one: speed_ppm(one[1]),
            )
        return _decisions(view, crew, rooms)

    def next_review_ms(self, view: ClusterView, knobs: Knobs) -> int | None:
        """Return the next round, where a waiting job may go before a running one because time passes."""
        round_ms = knobs.integer("round_s") * 1000
        matters = knobs.choice("order") == "las" and len(view.pending) and len(view.running)
        return view.now_ms + round_ms if round_ms and matters else None


def _key(now_ms: int, knobs: Knobs) -> Callable[[JobView], tuple[int, int]]:
    """Return the order of jobs: first come, least work left by estimate, or least GPU time attained."""
    match knobs.choice("order"):
        case "srtf":
            return lambda job: (job.remaining(now_ms), job.id)
        case "las":
            return lambda job: (job.attained_gpu_ms(), job.id)
        case _:
            return lambda job: (0, job.id)


class Crew:
    """Who runs and where, decided job by job: the first part of TUNE.

    A running job reached in the walk stays where it is if its GPUs are still there. One that waits takes GPUs
    that are really free, else those of running jobs that come later. Among nodes with GPUs enough it goes to
    one that has its best CPU and memory left, else its least, else to any; of these to the one with fewest
    free GPUs.
    """

    def __init__(
        self, view: ClusterView, gives: bool, wanted: Mapping[int, Option] = MappingProxyType({})
    ) -> None:
        """Begin with nobody on the nodes.

        Args:
            view: What there is.
            gives: Whether CPU and memory are given by worth.
            wanted: What a job asks for in place of its best, by id.
        """
        self.vc = view.vc
        self.gives = gives
        self.wanted = wanted
        self.rooms = [Room(self.vc.node_share) for _ in range(self.vc.nodes)]
        self.held: dict[int, Nodes] = {}
        self.lost: list[int] = []
        self._too_many = self.vc.gpus + 1  # GPUs for which there is no place, now and later in the walk
        self._free, self._lifted = (
            FreeMap(view.free.free, view.free.gpus_per_node, view.free.placement) for _ in range(2)
        )
        for job in view.running:
            self._lifted.give(job.nodes)

    def walk(self, jobs: Iterable[JobView]) -> None:
        """Seat jobs in the order given, those for which there are GPUs."""
        for job in jobs:
            nodes = self._kept(job)
            if nodes is None:
                if job.gpus >= self._too_many:
                    continue
                nodes = self._found(self._free, job) or self._found(self._lifted, job)
                if nodes is None:
                    self._too_many = job.gpus
                    continue
                self._free.take(nodes)
            self._lifted.take(nodes)
            self.held[job.id] = nodes
            self.seat(job, nodes, self.rooms)

    def seat(self, job: JobView, nodes: Nodes, rooms: Sequence[Room]) -> None:
        """Let a job into the rooms of its nodes; over several of them it has its proportional parts."""
        choices = self._ladder(job) if len(nodes) == 1 else None
        want = None if choices is None else self.wanted.get(job.id, choices.best)
        for node, gpus in nodes:
            rooms[node].add(Seat(job.id, gpus, choices, self.vc.proportional(gpus)), want)

    def _kept(self, job: JobView) -> Nodes | None:
        """Return the GPUs of a running job that stays; one that cannot gives them up here."""
        if job.state is JobState.PENDING:
            return None
        if self._lifted.holds(job.nodes):
            return job.nodes
        self.lost.append(job.id)
        self._free.give(job.nodes)
        return None

    def _found(self, free: FreeMap, job: JobView) -> Nodes | None:
        """Return GPUs for a job on a map; what no single node holds goes by the placement rule."""
        fits = [node for node, gpus in enumerate(free.free) if gpus >= job.gpus]
        if not fits:
            return free.place(job.gpus)
        for want in self._wants(job):
            roomy = [node for node in fits if self.rooms[node].holds(want)]
            if roomy:
                fits = roomy
                break
        return ((min(fits, key=lambda node: (free.free[node], node)), job.gpus),)

    def _wants(self, job: JobView) -> tuple[Option, ...]:
        choices = self._ladder(job)
        return () if choices is None else (self.wanted.get(job.id, choices.best), choices.lean)

    def _ladder(self, job: JobView) -> Ladder | None:
        curve = job.facts.curve
        if not self.gives or curve is None or job.gpus > self.vc.gpus_per_node:
            return None
        return ladder(curve, job.gpus, self.vc)


def divide(crew: Crew, order: Iterable[JobView]) -> list[Room]:
    """Give CPU and memory to those who run, in the policy's order: the second part of TUNE, and what is left.

    Each gets what it wants if that is there, else its least, for which others give back. What then is left
    goes where it adds most speed; that is ours, for the paper's jobs have their best or their part.
    """
    rooms = [Room(crew.vc.node_share) for _ in range(crew.vc.nodes)]
    for job in order:
        if job.id in crew.held:
            crew.seat(job, crew.held[job.id], rooms)
    for room in rooms:
        room.fill(crew.vc.node_share)
    return rooms


def speed_ppm(rooms: Iterable[Room]) -> int:
    """Return the speeds of all jobs on these nodes together."""
    return sum(seat.at.speed_ppm for room in rooms for seat in room.seats)


def _decisions(view: ClusterView, crew: Crew, rooms: Sequence[Room]) -> list[Decision]:
    """Return what changes, with shares told only where they are not the proportional ones."""
    vc = view.vc
    seats = {one.id: one for room in rooms for one in room.seats if one.ladder is not None}
    shares = {
        job_id: None if one.at.share == vc.proportional(one.gpus) else one.at.share
        for job_id, one in seats.items()
    }
    lost = set(crew.lost)
    stays = [job for job in view.running if job.id not in lost]
    running = {job.id for job in stays}
    return [
        *(Preempt(job_id) for job_id in crew.lost),
        *(Resize(job.id, shares.get(job.id)) for job in stays if shares.get(job.id) != job.share),
        *(
            Start(job_id, nodes, share=shares.get(job_id))
            for job_id, nodes in crew.held.items()
            if job_id not in running
        ),
    ]
