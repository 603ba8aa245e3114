"""SensaScale: deadlines by latest start, CPU and memory from jobs that can spare them to jobs that gain.

A reconstruction: of the paper only the abstract was at hand. It names the parts (sensitivity to CPU and
memory, complementary pairs, latest start times, safe backfill, deadline-aware adjustment, progress); how
each works, and every threshold, is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import ClassVar

from trimtab.cluster import ClusterView, FreeMap
from trimtab.curve import FULL_SPEED_PPM, Share
from trimtab.job import Nodes
from trimtab.knobs import Knobs, Space
from trimtab.policies.adjust import split
from trimtab.policies.admission import outlook_of, promises_of, unanswered
from trimtab.policies.backfill import Backfill, Blocked, Outlook
from trimtab.policies.giving_way import GivingWay
from trimtab.policies.policy import Decision, Note, Plan, Preempt, Resize, Start, WholePass
from trimtab.policies.sensascale_knobs import Rules, make_space
from trimtab.policies.units import Unit, category, make_units, need_of, spare_of
from trimtab.policies.urgency import Rank, Rated, rate

ROUNDS = 16  # of walks and splits until nothing changes any more; two or three are usual
RESERVED = 64  # most urgent units with a promise that room is kept for
ADMITTED, REFUSED = (1,), (0,)


class SensaScale(WholePass):
    """Latest start first, with complementary units, safe backfill and adjustment; no job loses its GPUs."""

    name: ClassVar[str] = "sensascale"
    space: ClassVar[Space] = make_space({})

    def settings(self, knobs: Knobs) -> Plan:
        """Return that it reads estimates, places jobs on nodes and gives CPU and memory."""
        return Plan(needs_estimates=True, needs_nodes=True, gives_shares=True)

    def decide(self, view: ClusterView, knobs: Knobs) -> list[Decision]:
        """Return starts, changed shares, and with the plus preset evictions and promises."""
        return Pass(view, Rules.of(knobs)).decisions()

    def next_review_ms(self, view: ClusterView, knobs: Knobs) -> int | None:
        """Return the next tick while somebody waits, or runs toward a deadline and may be helped."""
        rules = Rules.of(knobs)
        watched = rules.adjusting.lends and any(job.facts.service.deadlines_ms for job in view.running)
        return view.now_ms + rules.tick_ms if len(view.pending) or watched else None


class SensaScalePlus(SensaScale):
    """The same with rescue preemption, promises, and deadlines under uncertain run times."""

    name: ClassVar[str] = "sensascale-plus"
    space: ClassVar[Space] = make_space(
        {
            "order": "srtf",
            "urgent": 15.0,
            "preempt": "slack",
            "max_evictions": 30,
            "overrun": 0.25,
            "admission": True,
        }
    )


class Pass:
    """One pass: who starts, who gives way, and what everybody has afterwards."""

    def __init__(self, view: ClusterView, rules: Rules) -> None:
        self.rules, self.vc, self.now_ms = rules, view.vc, view.now_ms
        self.free = FreeMap(view.free.free, view.free.gpus_per_node, view.free.placement)
        self.waiting = [rate(job, view.vc, view.now_ms, rules.beliefs) for job in view.pending]
        self.running = [rate(job, view.vc, view.now_ms, rules.beliefs) for job in view.running]
        self.was = {job.id: job.share for job in self.running}
        self.started: dict[int, Rated] = {}
        self.lost: list[int] = []
        self.notes: list[Note] = []

    def decisions(self) -> list[Decision]:
        """Return the changes to make."""
        if self.rules.admits:
            self._admit()
        for _ in range(ROUNDS):
            has_started = Walk(self).go()
            has_changed = self._adjust()
            if not has_started and not has_changed:
                break
        return [*self.notes, *(Preempt(job_id) for job_id in self.lost), *self._resizes(), *self._starts()]

    def _starts(self) -> list[Start]:
        return [Start(job.id, job.nodes, share=self._told(job)) for job in self.started.values()]

    def _resizes(self) -> list[Resize]:
        kept = sorted((job for job in self.running if job.id not in self.started), key=lambda job: job.id)
        return [Resize(job.id, self._told(job)) for job in kept if job.share != self.was[job.id]]

    def _told(self, job: Rated) -> Share | None:
        return None if not job.on_one_node or job.share == job.part else job.share

    # ---- promises ---------------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Answer the jobs that have not been answered, in order of arrival."""
        new = unanswered(self.waiting)
        if not new:
            return
        free_gpus = sum(self.free.free)
        promises = promises_of(self.now_ms, free_gpus, self.running, self.waiting, self.rules)
        for job in new:
            promise_ms = promises.admit(job)
            self.notes.append(Note(job.id, REFUSED if promise_ms is None else ADMITTED, promise_ms))
            job.is_promised = promise_ms is not None

    # ---- shares -----------------------------------------------------------------------------------------

    def _adjust(self) -> bool:
        """Split the nodes on which something happened; return whether a share has changed."""
        how = self.rules.adjusting
        has_changes = any(job.on_one_node and job.share != job.part for job in self.running)
        if how.scope == "off" and not how.lends and not how.pools and not has_changes:
            return False
        here: dict[int, list[Rated]] = {}
        stirred = {node for node, free in enumerate(self.free.free) if free}
        room = [self.vc.node_share] * self.vc.nodes
        for job in self.running:
            if job.on_one_node:
                here.setdefault(job.nodes[0][0], []).append(job)
            if self._stirs(job):
                stirred.update(node for node, _ in job.nodes)
            if not job.on_one_node:
                for node, gpus in job.nodes:
                    room[node] = room[node].less(self.vc.proportional(gpus))
        changed = False
        for node in sorted(stirred & here.keys()):
            changed |= self._apply(here[node], split(here[node], room[node], how, self.now_ms))
        return changed

    def _stirs(self, job: Rated) -> bool:
        """Whether a job is a reason to look at its node: it is new there, or at risk."""
        if job.is_new or job.job.started_ms == self.now_ms:
            return True
        if job.deadline_ms is None or not self.rules.adjusting.lends or not job.on_one_node:
            return False
        slack_ms = job.deadline_ms - self.now_ms - job.left_ms(job.speed_now_ppm)
        return slack_ms < self.rules.adjusting.guard_of_ms(job)

    def _apply(self, jobs: Iterable[Rated], shares: dict[int, Share]) -> bool:
        changed = False
        for job in jobs:
            if shares[job.id] != job.share:
                changed = True
                job.share = shares[job.id]
                job.resized_ms = job.resized_ms if job.is_new else self.now_ms
                job.speed_now_ppm = job.speed_ppm(job.share)
        return changed


class Walk:
    """One walk over all units that wait, most urgent first."""

    def __init__(self, scene: Pass) -> None:
        self.scene, self.rules, self.now_ms, self.free = scene, scene.rules, scene.now_ms, scene.free
        self.net: dict[tuple[int, tuple[int, str]], int] = {}
        for job in scene.running:
            self._enter(job)
        self.backfill = Backfill(self.rules.backfill, self.rules.reserve_ppm, self._outlook())
        self.giving_way = self._giving_way()
        self.blocked = 0
        self.has_started = False

    def _outlook(self) -> Outlook:
        return outlook_of(self.now_ms, sum(self.free.free), self.scene.running)

    # ---- order ------------------------------------------------------------------------------------------

    def _key(self, job: Rated) -> tuple[int, int, int]:
        rules = self.rules
        if rules.order == "fifo":
            return 0, job.id, job.id
        if rules.order == "srtf":
            return self._key_by_time_left(job)
        if job.deadline_ms is not None:
            by_start = job.latest_ms(job.best_ppm if rules.reference == "best" else FULL_SPEED_PPM)
            key = job.deadline_ms if rules.order == "edf" else by_start
            assert key is not None
            return int(job.rank), key, job.id
        match rules.be_order:
            case "srsf":
                return int(job.rank), job.gpus * job.left_ms(FULL_SPEED_PPM), job.id
            case "las":
                return int(job.rank), job.gpus * job.job.held_ms, job.id
            case _:
                return int(job.rank), job.id, job.id

    def _key_by_time_left(self, job: Rated) -> tuple[int, int, int]:
        """Return a key with which those who must start soon go first, all others with hope by time left.

        Beside promises only those who have one must.
        """
        latest_ms = job.latest_ms() if job.is_promised or not self.rules.admits else None
        if latest_ms is not None and latest_ms <= self.now_ms + self.rules.urgent_ms:
            return int(Rank.DEADLINE), latest_ms, job.id
        return max(int(job.rank), Rank.BEST_EFFORT), job.left_ms(FULL_SPEED_PPM), job.id

    def _queue(self) -> list[tuple[tuple[int, int, int], Unit]]:
        keys = {job.id: self._key(job) for job in self.scene.waiting}
        jobs = sorted(self.scene.waiting, key=lambda job: keys[job.id])
        units = make_units(jobs, self.rules.pairing, self.now_ms)
        queue = [(min(keys[job.id] for job in unit.jobs), unit) for unit in units]
        if self.rules.reference == "unit":
            queue = sorted(((self._unit_key(key, unit), unit) for key, unit in queue), key=lambda one: one[0])
        return queue

    def _unit_key(self, key: tuple[int, int, int], unit: Unit) -> tuple[int, int, int]:
        latest_ms = unit.latest_ms(unit.lefts_ms())
        return key if latest_ms is None else (key[0], latest_ms, key[2])

    # ---- the walk ---------------------------------------------------------------------------------------

    def go(self) -> bool:
        """Start what may start; return whether something has."""
        waits_before = False
        queue = self._queue()
        if self.rules.admits and self.rules.order != "srtf":
            self._reserve(unit for _, unit in queue)
        for key, unit in queue:
            if not self.rules.rescues and not any(self.free.free):
                break
            if key[0] == Rank.HOPELESS and self.rules.drops and waits_before:
                break
            waits_before |= not self._visit(key, unit)
        self.scene.waiting = [job for job in self.scene.waiting if not job.nodes]
        return self.has_started

    def _reserve(self, units: Iterable[Unit]) -> None:
        """Keep room for those who wait with a promise, in the order in which promises were made."""
        promised = list(islice(filter(_is_promised, units), RESERVED))
        for unit in sorted(promised, key=lambda unit: unit.jobs[0].id):
            self.backfill.block(self._blocked(unit))

    def _visit(self, key: tuple[int, int, int], unit: Unit) -> bool:
        """Start a unit, or let it wait; return whether all of it has started."""
        waiting = self._blocked(unit)
        found = self._places(unit, key[0])
        if found and (self._is_urgent(key) or self.backfill.is_safe(self.now_ms, waiting)):
            self.backfill.unblock(waiting.job_id)
            self._start(unit, found)
            return len(found) == len(unit.jobs)
        if not found and self.rules.rescues and any(self._displace(job) for job in unit.jobs):
            self.backfill.unblock(waiting.job_id)
            return len(unit.jobs) == 1
        self._block(key, waiting)
        return False

    def _is_urgent(self, key: tuple[int, int, int]) -> bool:
        """Whether a unit starts whoever else waits; by latest start nobody does beside promises."""
        if key[0] > Rank.DEADLINE or self.rules.order == "srtf":
            return key[0] == Rank.DEADLINE
        knows_urgent = self.rules.order == "lst" and not self.rules.admits
        return knows_urgent and key[1] <= self.now_ms + self.rules.urgent_ms

    def _block(self, key: tuple[int, int, int], unit: Blocked) -> None:
        waits = self.rules.order == "fifo" or key[0] <= Rank.DEADLINE
        if waits and not unit.is_promised and self.blocked < self.rules.depth:
            self.blocked += 1
            self.backfill.block(unit)

    def _blocked(self, unit: Unit) -> Blocked:
        lefts_ms = unit.lefts_ms()
        return Blocked(
            gpus=unit.gpus,
            length_ms=max(1, *lefts_ms),
            latest_ms=unit.latest_ms(lefts_ms),
            job_id=unit.jobs[0].id,
            is_promised=self.rules.admits and _is_promised(unit),
        )

    def _start(self, unit: Unit, found: Sequence[tuple[Rated, Nodes]]) -> None:
        shares = dict(zip((job.id for job in unit.jobs), unit.shares(), strict=True))
        for job, nodes in found:
            job.nodes, job.is_new = nodes, True
            job.share = shares[job.id] if len(found) == len(unit.jobs) else job.part
            job.speed_now_ppm = job.speed_ppm(job.share)
            self.free.take(nodes)
            self.scene.started[job.id] = job
            self.scene.running.append(job)
            self._enter(job)
            self.backfill.start(self.now_ms, job.left_ms(job.speed_now_ppm), job.gpus)
        self.has_started = True

    # ---- places -----------------------------------------------------------------------------------------

    def _enter(self, job: Rated, times: int = 1) -> None:
        """Count what a running job can spare, or needs, on its node."""
        if job.on_one_node and job.traits.label != "neutral":
            place = job.nodes[0][0], category(job, self.rules.adjusting.scope)
            cores = -need_of(job).cores if job.traits.label == "sensitive" else spare_of(job).cores
            self.net[place] = self.net.get(place, 0) + times * cores

    def _places(self, unit: Unit, rank: int) -> list[tuple[Rated, Nodes]]:
        """Return where the jobs of a unit would start; of a pair that fits nowhere, who must not wait."""
        if len(unit.jobs) == 2:
            fits = [(free, node) for node, free in enumerate(self.free.free) if free >= unit.gpus]
            if fits:
                return [(job, ((min(fits)[1], job.gpus),)) for job in unit.jobs]
        for job in unit.jobs:
            if len(unit.jobs) == 1 or rank >= Rank.BEST_EFFORT or self._must_start(job):
                nodes = self._place(job)
                if nodes is not None:
                    return [(job, nodes)]
        return []

    def _must_start(self, job: Rated) -> bool:
        latest_ms = job.latest_ms()
        return latest_ms is not None and self.now_ms >= latest_ms - self.rules.adjusting.guard_of_ms(job)

    def _place(self, job: Rated) -> Nodes | None:
        """Return the node where it is worth most beside who runs there, best fit among equals."""
        scope = self.rules.adjusting.scope
        if scope == "off" or not job.on_one_node or job.traits.label == "neutral":
            return self.free.place(job.gpus)
        mine = category(job, scope)
        sign, cores = (
            (1, need_of(job).cores) if job.traits.label == "sensitive" else (-1, spare_of(job).cores)
        )
        fits = [
            (-min(cores, max(0, sign * self.net.get((node, mine), 0))), free, node)
            for node, free in enumerate(self.free.free)
            if free >= job.gpus
        ]
        return ((min(fits)[2], job.gpus),) if fits else self.free.place(job.gpus)

    # ---- who gives way ------------------------------------------------------------------------------------

    def _giving_way(self) -> GivingWay:
        return GivingWay(self.rules, self.scene.vc, self.now_ms, self.free, self.scene.running)

    def _displace(self, job: Rated) -> bool:
        """Start a job that fits nowhere in the place of others, if some may give way."""
        found = self.giving_way.find(job)
        if found is None:
            return False
        for victim in found.victims:
            self._evict(victim)
        self.backfill.outlook = self._outlook()
        self._start(Unit((job,)), [(job, found.nodes)])
        self.giving_way = self._giving_way()
        return True

    def _evict(self, job: Rated) -> None:
        self._enter(job, -1)
        self.free.give(job.nodes)
        self.scene.running.remove(job)
        self.scene.waiting.append(job)
        self.scene.lost.append(job.id)
        job.nodes, job.share, job.speed_now_ppm, job.measured = (), job.part, FULL_SPEED_PPM, None
        job.evictions += 1


def _is_promised(unit: Unit) -> bool:
    return any(job.is_promised for job in unit.jobs)
