"""The indexed walk: the same decisions as `policies.policy.walk`, looking only at jobs that matter.

Three observations make it fast. What is free for a job only shrinks along the walk, so when a width
fails, that width and all wider ones are done for this pass. Running jobs keep their GPUs unless a job
placed over the map stands on one of their nodes, so only those are visited. And pending jobs are asked
class by class, first come first.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

from trimtab.job import JobView, Nodes
from trimtab.policies.policy import Plan, order_of
from trimtab.simulate.partition import Partition

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
        self.visited: set[int] = set()
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
            else:
                alone = job_class[2]
            if job.gpus >= self.failed[alone]:
                continue
            if not self._place(job, (level, key, job_id), alone):
                self._fail(job.gpus, alone)
            elif job_class is not None and (head := self.part.queue.after_head(job_class)) is not None:
                heappush(items, head)
        return self.lost, self.places

    def _alone(self, job: JobView) -> bool:
        return not self.relaxed or self.plan.consolidate is None or self.plan.consolidate(job)

    def _fail(self, gpus: int, alone: bool) -> None:
        """Close a width and all wider ones; where spreading failed, consolidating would have, too."""
        width = 0 if self.plan.strict else gpus
        self.failed[True] = min(self.failed[True], width)
        if not alone or self.plan.strict:
            self.failed[False] = min(self.failed[False], width)

    def _place(self, job: JobView, order: tuple[Any, ...], alone: bool) -> bool:
        index, levels = self.part.index, self.part.levels
        nodes = self._find(levels - 1, job.gpus, _NOTHING, alone)
        if nodes is None and self.plan.preemptive:
            nodes = self._place_over(job, order, alone)
        if nodes is None:
            return False
        index.add(job.level if self.plan.preemptive else 0, levels, nodes, -1)
        self.places[job.id] = nodes
        return True

    def _place_over(self, job: JobView, order: tuple[Any, ...], alone: bool) -> Nodes | None:
        """Place a job where jobs after it in the walk run, and put those on the list to be looked at."""
        part = self.part
        extra = self._held_later(job, order)
        if not extra and job.level == part.levels - 1:
            return None
        nodes = self._find(job.level, job.gpus, extra, alone)
        if nodes is None:
            return None
        for node, _ in nodes:
            for other in part.on_node[node].values():
                if other.id not in self.visited and not other.shielded:
                    place = order_of(other, self.now_ms, self.plan)
                    if place > order:
                        self.visited.add(other.id)
                        heappush(self.items, (*place, None))
        return nodes

    def _find(self, level: int, gpus: int, extra: dict[int, int], alone: bool) -> Nodes | None:
        index = self.part.index
        nodes = index.find(level, gpus, extra)
        return index.find_spread(level, gpus, extra) if nodes is None and not alone else nodes

    def _held_later(self, job: JobView, order: tuple[Any, ...]) -> dict[int, int]:
        """Return node -> GPUs held by running jobs of the job's own level that come later in the walk.

        Where the engine keeps the order, only those put behind at this instant come after a pending job.
        """
        waited = not job.nodes
        candidates = self.part.behind if waited and self.plan.key is None else self.part.running
        extra: dict[int, int] = {}
        for other in candidates.values():
            if (
                other.level == job.level
                and not other.shielded
                and order_of(other, self.now_ms, self.plan) > order
            ):
                for node, gpus in other.nodes:
                    extra[node] = extra.get(node, 0) + gpus
        return extra

    def _keeps(self, job: JobView, order: tuple[Any, ...]) -> bool:
        """Whether a running job's own GPUs are still free in the map at its place in the walk."""
        part = self.part
        for node, _ in job.nodes:
            spare = part.index.spare(job.level, node)
            if spare < 0:
                spare += self._held_later_on(node, job.level, order)
            if spare < 0:
                return False
        return True

    def _held_later_on(self, node: int, level: int, order: tuple[Any, ...]) -> int:
        return sum(
            gpus
            for other in self.part.on_node[node].values()
            if other.level == level and not other.shielded and order_of(other, self.now_ms, self.plan) > order
            for at, gpus in other.nodes
            if at == node
        )

    def _lose(self, job: JobView) -> None:
        self.part.index.add(job.level, self.part.levels, job.nodes, 1)
        self.lost.append(job)
