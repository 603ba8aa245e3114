"""Who gives way to whom: a job that fits nowhere may take the place of running jobs that lose less by it.

With `rescue` these are best effort and hopeless, and only what would be late takes their place. With `slack`
a job with much work left gives way to one with little, as long as its own deadline stands if it waits until
that one has ended [after SRTF; that nobody is made late by it is ours].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trimtab.cluster import FreeMap, VirtualCluster
from trimtab.curve import FULL_SPEED_PPM
from trimtab.job import Nodes
from trimtab.policies.sensascale_knobs import Rules
from trimtab.policies.urgency import Rank, Rated


class Place(NamedTuple):
    """Where a job would start, and who would have to go there."""

    nodes: Nodes
    victims: tuple[Rated, ...]


class Offer(NamedTuple):
    """A node on which enough GPUs can come free: how many are taken from others, and who these are.

    Attributes:
        work: Work they have left, negative, in GPU-ms; 0 where only jobs without a deadline give way.
    """

    gpus: int
    work: int
    node: int
    victims: tuple[Rated, ...]


class GivingWay:
    """What running jobs would give up; made anew after each eviction."""

    def __init__(
        self, rules: Rules, vc: VirtualCluster, now_ms: int, free: FreeMap, running: Iterable[Rated]
    ) -> None:
        """Sort those who may lose their GPUs by node, who goes first in front."""
        self.rules, self.vc, self.now_ms, self.free = rules, vc, now_ms, free
        self.able: dict[int, list[Rated]] = {}
        for job in sorted(filter(self._may_lose, running), key=self._turn, reverse=True):
            self.able.setdefault(job.nodes[0][0], []).append(job)
        self.refused: dict[bool, list[tuple[int, int]]] = {False: [], True: []}

    def find(self, job: Rated) -> Place | None:
        """Return where a job that waits may take the place of others, None for nowhere.

        Who was refused refuses whoever is as wide and has as much work left.
        """
        latest_ms = job.latest_ms()
        is_late = latest_ms is not None and latest_ms <= self.now_ms + self.rules.tick_ms
        if not self.rules.displaces and (not is_late or job.gpus > self.vc.gpus_per_node):
            return None
        if job.rank is Rank.HOPELESS:
            return None
        refused = self.refused[is_late]
        left_ms = job.left_ms(FULL_SPEED_PPM)
        if any(gpus <= job.gpus and shortest_ms <= left_ms for gpus, shortest_ms in refused):
            return None
        found = self._place(job, is_late)
        if found is None:
            refused.append((job.gpus, left_ms))
        return found

    def _place(self, job: Rated, is_late: bool) -> Place | None:
        """Return the cheapest nodes: whole ones for a gang wider than a node, and one for the rest."""
        size = self.vc.gpus_per_node
        whole, rest = divmod(job.gpus, size) if job.gpus > size else (0, job.gpus)
        chosen = sorted(self._offers(job, is_late, size, ()), key=_cost)[:whole] if whole else []
        if len(chosen) < whole:
            return None
        nodes = sorted(offer.node for offer in chosen)
        parts = [(node, size) for node in nodes]
        if rest:
            last = min(self._offers(job, is_late, rest, nodes), key=_cost, default=None)
            if last is None:
                return None
            chosen.append(last)
            parts.append((last.node, rest))
        return Place(tuple(parts), tuple(victim for offer in chosen for victim in offer.victims))

    def _offers(self, job: Rated, is_late: bool, gpus: int, taken: Sequence[int]) -> Iterable[Offer]:
        for node, free in enumerate(self.free.free):
            if node in taken:
                continue
            able = self.able.get(node, []) if free < gpus else []
            victims = fewest([one for one in able if self._gives_way(one, job, is_late)], gpus - free)
            if victims is not None:
                work = sum(one.gpus * one.left_ms(FULL_SPEED_PPM) for one in victims)
                taken_gpus = sum(one.gpus for one in victims)
                yield Offer(taken_gpus, -work if self.rules.displaces else 0, node, tuple(victims))

    # ---- who ----------------------------------------------------------------------------------------------

    def _turn(self, job: Rated) -> tuple[int, int, int]:
        """Return who goes first: without hope, without a deadline, with most work left or started last."""
        left_ms = job.left_ms(FULL_SPEED_PPM) if self.rules.displaces else job.job.started_ms or 0
        return int(job.rank), left_ms, job.id

    def _may_lose(self, job: Rated) -> bool:
        """Whether a job may lose its GPUs to anybody; never in the instant in which it has started."""
        has_light_claim = job.rank >= Rank.BEST_EFFORT and job.job.promise_ms is None
        return (
            (has_light_claim or self.rules.displaces)
            and job.on_one_node
            and not job.job.shielded
            and not job.is_new
            and job.job.started_ms != self.now_ms
            and job.evictions < self.rules.max_evictions
        )

    def _gives_way(self, victim: Rated, job: Rated, is_late: bool) -> bool:
        if not self.rules.displaces:
            return True
        job_ms, victim_ms = job.left_ms(FULL_SPEED_PPM), victim.left_ms(FULL_SPEED_PPM)
        outlasts = job_ms * self.rules.outlast_ppm // FULL_SPEED_PPM <= victim_ms
        if victim.rank >= Rank.BEST_EFFORT:
            return outlasts or (is_late and victim.job.promise_ms is None)
        return (is_late or outlasts) and self._can_wait(victim, job_ms)

    def _can_wait(self, victim: Rated, time_ms: int) -> bool:
        """Whether a job that waits for so long still keeps its guard, and is not pressed at once."""
        latest_ms = victim.latest_ms()
        assert latest_ms is not None
        guard_ms = self.rules.adjusting.guard_of_ms(victim)
        return latest_ms - guard_ms >= self.now_ms + max(time_ms, self.rules.urgent_ms)


def _cost(offer: Offer) -> tuple[int, int, int]:
    return offer[:3]


def fewest(able: Sequence[Rated], gpus: int) -> list[Rated] | None:
    """Return who gives way so that so many GPUs come free, None if they are too few; nobody without need."""
    chosen: list[Rated] = []
    for job in able:
        if gpus > 0:
            chosen.append(job)
            gpus -= job.gpus
    for job in sorted(chosen, key=lambda job: (-job.gpus, job.id)):
        if job.gpus <= -gpus:
            chosen.remove(job)
            gpus += job.gpus
    return None if gpus > 0 else chosen
