"""The indexed walk: the same decisions as `policies.policy.walk`, looking only at jobs that matter.

Three observations make it fast. What is free for a job only shrinks along the walk, so when a width
fails, that width and all wider ones are done for this pass. Running jobs keep their GPUs unless a job
placed over the map stands on one of their nodes, so only those are visited. And pending jobs are asked
class by class, first come first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import Any, NamedTuple

from trimtab.job import JobView, Nodes
from trimtab.policies.policy import Key, Plan, order_of
from trimtab.simulate.partition import Partition

Order = tuple[int, Key, int]  # level, key inside it, id

_NEVER = 1 << 62
_NOTHING: dict[int, int] = {}


class Walk:
    """One walk over one virtual cluster; `run` changes its index and returns what is to be done."""

    def __init__(
        self, part: Partition, jobs: dict[int, JobView], plan: Plan, now_ms: int, relaxed: bool
    ) -> None:
        self.part = part
        self.jobs = jobs
        self.plan = plan
        self.now_ms = now_ms
        self.relaxed = relaxed
        self.lost: list[JobView] = []
        self.places: dict[int, Nodes] = {}
        # Items are (level, key, id, class); class is None for a running job that must be looked at.
        self.items: list[Any] = list(part.queue.heads())
        self.listed: set[int] = set()
        self._by_level: dict[int, _Ranks] = {}
        # Smallest width that failed, for gangs that may be spread and for those that may not.
        self.failed = {False: _NEVER, True: _NEVER}

    def run(self) -> tuple[list[JobView], dict[int, Nodes]]:
        """Return the running jobs that lose their GPUs and the places of those that get some, in order."""
        items = self.items
        heapify(items)
        while items:
            level, key, job_id, job_class = heappop(items)
            job = self.jobs[job_id]
            if job_class is None:
                if self._keeps(job, (level, key, job_id)):
                    continue
                self._lose(job)
            alone = self._alone(job)
            if job.gpus >= self.failed[alone]:
                continue
            if not self._place(job, (level, key, job_id), alone):
                self._fail(job.gpus, alone)
            elif job_class is not None and (head := self.part.queue.after_head(job_class)) is not None:
                heappush(items, head)
        return self.lost, self.places

    def _alone(self, job: JobView) -> bool:
        consolidate = self.plan.consolidate
        return not self.relaxed or (consolidate is not None and bool(consolidate(job)))

    def _fail(self, gpus: int, alone: bool) -> None:
        """Close a width and all wider ones; where spreading failed, consolidating would have, too."""
        width = 0 if self.plan.strict else gpus
        self.failed[True] = min(self.failed[True], width)
        if not alone or self.plan.strict:
            self.failed[False] = min(self.failed[False], width)

    def _place(self, job: JobView, order: Order, alone: bool) -> bool:
        part = self.part
        nodes = self._find(part.levels - 1, job.gpus, _NOTHING, alone)
        over = nodes is None
        if over and self.plan.preemptive:
            nodes = self._find_over(job, order, alone)
        if nodes is None:
            return False
        part.index.add(job.level if self.plan.preemptive else 0, part.levels, nodes, -1)
        self.places[job.id] = nodes
        if over:
            self._doubt(nodes, order)
        return True

    def _find(self, level: int, gpus: int, extra: dict[int, int], alone: bool) -> Nodes | None:
        index = self.part.index
        nodes = index.find(level, gpus, extra)
        return index.find_spread(level, gpus, extra) if nodes is None and not alone else nodes

    def _find_over(self, job: JobView, order: Order, alone: bool) -> Nodes | None:
        """Find a place over the map: what is free at the job's level, and what later jobs of it hold."""
        later, held = self._later(job, order)
        if self.part.index.total(job.level) + held < job.gpus:
            return None
        if not held and job.level == self.part.levels - 1:
            return None
        extra: dict[int, int] = {}
        for other in later:
            for node, gpus in other.nodes:
                extra[node] = extra.get(node, 0) + gpus
        return self._find(job.level, job.gpus, extra, alone)

    def _later(self, job: JobView, order: Order) -> tuple[Sequence[JobView], int]:
        """Return the running jobs of the job's own level that come later in the walk, and their GPUs.

        Where the engine keeps the order, only those put behind at this instant come after a pending job.
        """
        if self.plan.key is None and not job.nodes:
            late = [
                other
                for other in self.part.behind.values()
                if other.level == job.level and not other.shielded and self._order(other) > order
            ]
            return late, sum(other.gpus for other in late)
        ranks = self._ranks(job.level)
        first = bisect_right(ranks.orders, order)
        return ranks.jobs[first:], ranks.held[first]

    def _doubt(self, nodes: Nodes, order: Order) -> None:
        """List the running jobs that may not keep their GPUs now that a job stands on these nodes.

        On a node, a job keeps its GPUs if what later jobs of its level hold there covers what the level
        is short of; so those in doubt are the last ones, up to the first that is covered.
        """
        index = self.part.index
        for node, _ in nodes:
            for level in range(order[0], self.part.levels):
                short = -index.spare(level, node)
                if short <= 0:
                    continue
                ranks = self._ranks_on(node, level)
                for place in range(len(ranks.jobs) - 1, -1, -1):
                    if ranks.held[place + 1] >= short or ranks.orders[place] <= order:
                        break
                    if ranks.jobs[place].id not in self.listed:
                        self.listed.add(ranks.jobs[place].id)
                        heappush(self.items, (*ranks.orders[place], None))

    def _keeps(self, job: JobView, order: Order) -> bool:
        """Whether a running job's own GPUs are still free in the map at its place in the walk."""
        index = self.part.index
        for node, _ in job.nodes:
            spare = index.spare(job.level, node)
            if spare < 0:
                ranks = self._ranks_on(node, job.level)
                if spare + ranks.held[bisect_right(ranks.orders, order)] < 0:
                    return False
        return True

    def _lose(self, job: JobView) -> None:
        self.part.index.add(job.level, self.part.levels, job.nodes, 1)
        self.lost.append(job)

    def _order(self, job: JobView) -> Order:
        return order_of(job, self.now_ms, self.plan)

    def _ranks(self, level: int) -> _Ranks:
        """Return the preemptible running jobs of a level in walk order, made once a walk."""
        if level not in self._by_level:
            jobs = [job for job in self.part.running.values() if job.level == level and not job.shielded]
            self._by_level[level] = _ranked([(self._order(job), job, job.gpus) for job in jobs])
        return self._by_level[level]

    def _ranks_on(self, node: int, level: int) -> _Ranks:
        """Return the same for one node."""
        if self.part.placement == "count":
            return self._ranks(level)
        return _ranked(
            [
                (self._order(job), job, gpus)
                for job in self.part.on_node[node].values()
                if job.level == level and not job.shielded
                for at, gpus in job.nodes
                if at == node
            ]
        )


class _Ranks(NamedTuple):
    """Running jobs in walk order; `held[i]` is what the jobs from the i-th on hold, held[-1] = 0."""

    orders: list[Order]
    jobs: list[JobView]
    held: list[int]


def _ranked(items: list[tuple[Order, JobView, int]]) -> _Ranks:
    items.sort(key=itemgetter(0))
    held = [0]
    for _, _, gpus in reversed(items):
        held.append(held[-1] + gpus)
    held.reverse()
    return _Ranks([order for order, _, _ in items], [job for _, job, _ in items], held)
