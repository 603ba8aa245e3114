"""Pending jobs of one virtual cluster, so that a pass looks only at the first of each class.

Jobs of one class (level, width, may it be spread) fit or fail alike, so once the first fails the rest
of the class need not be asked in that pass. Entries are not removed when a job moves on: its stamp has
changed by then, which makes them stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush

from trimtab.job import JobView
from trimtab.policies.policy import Key

JobClass = tuple[int, int, bool]  # level, GPUs, must be consolidated
Item = tuple[int, Key, int, JobClass]  # level, key, id, class: the walk's order


class PendingQueue:
    """Heaps of (key, id, stamp), one a class. `jobs` are the active jobs by id."""

    def __init__(self, jobs: Mapping[int, JobView]) -> None:
        self._jobs = jobs
        self._heaps: dict[JobClass, list[tuple[Key, int, int]]] = {}

    def push(self, job: JobView, key: Key, job_class: JobClass) -> None:
        """Add a job that has become pending, or whose class or key has changed."""
        heap = self._heaps.get(job_class)
        if heap is None:
            heap = self._heaps[job_class] = []
        heappush(heap, (key, job.id, job.stamp))

    def heads(self) -> list[Item]:
        """Return the first job of each class."""
        found = [self.head(job_class) for job_class in list(self._heaps)]
        return [item for item in found if item is not None]

    def head(self, job_class: JobClass) -> Item | None:
        """Return the first job of a class, or None if it is empty."""
        heap = self._heaps[job_class]
        jobs = self._jobs
        while heap:
            key, job_id, stamp = heap[0]
            job = jobs.get(job_id)
            if job is not None and job.stamp == stamp:
                return job_class[0], key, job_id, job_class
            heappop(heap)
        del self._heaps[job_class]
        return None

    def after_head(self, job_class: JobClass) -> Item | None:
        """Take the first job of a class out and return the next, or None."""
        heappop(self._heaps[job_class])
        return self.head(job_class)
