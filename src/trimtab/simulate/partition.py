"""One virtual cluster inside the engine: who runs where, who waits, and what is free for whom."""

from __future__ import annotations

from trimtab.cluster import ClusterView, FreeMap, Placement, VirtualCluster
from trimtab.job import JobList, JobState, JobView
from trimtab.simulate.index import CountIndex, GpuIndex, NodeIndex
from trimtab.simulate.queue import PendingQueue
from trimtab.simulate.state import Environment

# Places of running jobs lie far below those of pending ones: they come first in their queue.
FIRST_RUNNING_PLACE = -(1 << 60)


def runs_first(job: JobView) -> bool:
    """Whether a job has the place of a running one, not yet one at the end of a queue."""
    return job.place < FIRST_RUNNING_PLACE // 2


def queue_order(job: JobView) -> tuple[int, int, int]:
    """Return a job's place among all queues."""
    return job.level, job.place, job.id


def is_guest(job: JobView) -> bool:
    """Whether a running job's GPUs are counted as its partner's."""
    return job.partner is not None and job.partner < job.id


class Partition:
    """Everything here but `running` and the jobs' own state is derived, and can be rebuilt from them.

    Attributes:
        number: `JobView.home` of its jobs.
        index: Free GPUs by level. levels: how many the index has.
        on_node: node -> running jobs on it, by id.
        behind: Running jobs that were put at the end of their queue at this instant.
        dirty: Whether something happened since the last pass.
        review_ms: When a whole-pass policy wants to be asked again.
        lease_due_ms: When it is asked because a lease ends.
        job_ms: Integral of the number of active jobs over time, in job x ms, up to `counted_ms`.
        memory: What a whole-pass policy wrote down about it.
    """

    def __init__(
        self, number: int, vc: VirtualCluster, placement: Placement, jobs: dict[int, JobView]
    ) -> None:
        self.number = number
        self.vc = vc
        self.placement = placement
        self.queue = PendingQueue(jobs)
        self.running: dict[int, JobView] = {}
        self.behind: dict[int, JobView] = {}
        self.dirty = False
        self.review_ms: int | None = None
        self.lease_due_ms: int | None = None
        self.job_ms = self.counted_ms = self.active = 0
        self.memory: tuple[int, ...] = ()
        self._jobs = jobs
        self.rebuild(1, preemptive=False)

    def rebuild(self, levels: int, *, preemptive: bool) -> None:
        """Build the index from nothing but who runs where; the queue starts empty."""
        vc = self.vc
        counted = self.placement == "count"
        self.levels = levels
        self.preemptive = preemptive
        self.index: GpuIndex = (
            CountIndex(levels, vc.gpus) if counted else NodeIndex(levels, vc.nodes, vc.gpus_per_node)
        )
        self.on_node: list[dict[int, JobView]] = [{} for _ in range(1 if counted else vc.nodes)]
        self.queue = PendingQueue(self._jobs)
        for job in self.running.values():
            if not is_guest(job):
                self.index.add(self.top(job), levels, job.nodes, -1)
            for node, _ in job.nodes:
                self.on_node[node][job.id] = job

    def top(self, job: JobView) -> int:
        """Return the highest level that cannot have a running job's GPUs: its own if it may lose them."""
        return job.level if self.preemptive and not job.shielded else 0

    def hold(self, job: JobView) -> None:
        """Enter a job that has been given its GPUs in the index."""
        self.running[job.id] = job
        for node, _ in job.nodes:
            self.on_node[node][job.id] = job

    def drop(self, job: JobView) -> None:
        """Strike out a job whose GPUs have been given back in the index."""
        del self.running[job.id]
        self.behind.pop(job.id, None)
        for node, _ in job.nodes:
            del self.on_node[node][job.id]

    def count(self, now_ms: int, change: int) -> int:
        """Count active jobs, aggregated members each, that come or go now; return `job_ms`."""
        self.job_ms += self.active * (now_ms - self.counted_ms)
        self.counted_ms = now_ms
        self.active += change
        return self.job_ms

    def view(self, now_ms: int, completed_gpu_ms: tuple[int, ...], world: Environment) -> ClusterView:
        """Return what a policy may know, with all jobs settled to now."""
        pending: list[JobView] = []
        running: list[JobView] = []
        for job_id in sorted(self._jobs):
            job = self._jobs[job_id]
            if job.home == self.number:
                job.settle(now_ms)
                (pending if job.state is JobState.PENDING else running).append(job)
        return ClusterView(
            now_ms,
            self.vc,
            JobList(pending),
            JobList(running),
            self.free_map(),
            completed_gpu_ms,
            self.count(now_ms, 0),
            self.review_ms,
            world.speeds,
            world.pace,
            self.memory,
            world.site,
        )

    def free_map(self) -> FreeMap:
        """Return what is really free, as a map to try things on."""
        vc = self.vc
        if self.placement == "count":
            return FreeMap(
                [vc.gpus - sum(job.gpus for job in self.running.values() if not is_guest(job))],
                vc.gpus,
                self.placement,
            )
        free = [vc.gpus_per_node] * vc.nodes
        for job in self.running.values():
            for node, gpus in job.nodes:
                free[node] -= 0 if is_guest(job) else gpus
        return FreeMap(free, vc.gpus_per_node, self.placement)
