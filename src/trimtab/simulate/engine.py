"""The reference engine: the specification of every schedule, event by event, in whole milliseconds.

At one instant, in this order: completions by id; policy timers (ends of a limited time, level changes,
promotions, ends of a job's safe time, quantum ticks) by kind, then id; knob updates; arrivals by id; then
one scheduling pass in each virtual cluster where something happened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from heapq import heappop, heappush
from types import MappingProxyType

from trimtab.cluster import Cluster, ClusterView
from trimtab.curve import FULL_SPEED_PPM, Share
from trimtab.errors import ConfigError, InvariantError, Thrashing
from trimtab.job import JobState, JobView, Move, Nodes
from trimtab.knobs import Knobs
from trimtab.policies.policy import Plan, Policy, QueuePolicy, Remember, is_key, plan_of
from trimtab.simulate.decisions import answerable, check_review, lease_due_ms
from trimtab.simulate.partition import FIRST_RUNNING_PLACE, Partition, queue_order, runs_first
from trimtab.simulate.queue import JobClass
from trimtab.simulate.sharing import carry_out, expire, give_back, how, speed_ppm
from trimtab.simulate.state import Environment, Outcomes, Record, Snapshot, Update
from trimtab.simulate.walk import Walk
from trimtab.simulate.workload import Workload
from trimtab.timeline import Timeline

# Kinds of timed events, in the order they are handled at one instant.
_FINISH, _EXPIRE, _CHANGE, _PROMOTE, _UNSHIELD, _REVIEW, _LEASE, _TICK = range(8)

# A whole-pass policy may let jobs wait in an empty cluster through so many reviews, not for ever.
_IDLE_PASSES_MAX = 10_000


class Engine:
    """One simulation. `run` may be called again and again; knobs may change between or at an instant."""

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        policy: Policy,
        knobs: Knobs,
        environment: Environment,
        *,
        timeline: bool = False,
        by_the_book: bool = False,
    ) -> None:
        """Prepare a run from an empty cluster.

        Args:
            timeline: Whether to keep the list of events.
            by_the_book: Decide with the policy's own `decide` even where the engine has an index.
        """
        self.workload = workload
        self.cluster = cluster
        self.policy = policy
        self.environment = environment
        self.records = [Record() for _ in range(len(workload))]
        facts = workload.facts
        self.timeline = Timeline([f.label for f in facts], [f.gpus for f in facts]) if timeline else None
        self.now_ms = facts[0].submit_ms if facts else 0
        self.events = 0
        self.preemptions = 0
        self.preemptions_max: int | None = None  # a run with more of them ends in `Thrashing`
        self.held_gpu_ms = 0
        self._indexed = isinstance(policy, QueuePolicy) and not by_the_book
        self._jobs: dict[int, JobView] = {}
        self._heap: list[tuple[int, int, int, int]] = []
        self._updates: list[Update] = []
        self._arrived = 0
        self._used_gpus = 0
        self._relaxed = environment.placement == "relaxed"
        self.held_before_gpu_ms = 0  # by active jobs of a snapshot, before it was taken
        self._estimator = environment.estimator
        self._completed = list(environment.completed_gpu_ms)
        self._sampled = len(self._completed), self.now_ms
        self._running_place = FIRST_RUNNING_PLACE
        self._tail_place, self._front_place = 0, -1
        self._tick_anchor_ms = 0
        self._wasted_starts, self._progress = 0, (0, 0)
        self._idle_passes = 0
        self._parts = [
            Partition(home, vc, environment.placement, self._jobs) for home, vc in enumerate(cluster.vcs)
        ]
        self._tick_ms: int | None = None
        self._adopt(knobs)
        self._rebuild()

    @classmethod
    def resume(
        cls,
        snapshot: Snapshot,
        workload: Workload,
        cluster: Cluster,
        policy: Policy,
        environment: Environment,
        *,
        timeline: bool = False,
        by_the_book: bool = False,
    ) -> Engine:
        """Continue from a snapshot; the workload tells how long its active jobs run and who arrives."""
        snapshot.refuse_others(workload)
        engine = cls(
            workload, cluster, policy, snapshot.knobs, environment, timeline=timeline, by_the_book=by_the_book
        )
        engine._restore(snapshot)
        return engine

    # ---- running ---------------------------------------------------------------------------------

    def run(self, until_ms: int | None = None) -> None:
        """Run until nothing is left to happen, or up to (not including) an instant."""
        with self._answerable():
            while (now_ms := self._next_ms()) is not None and (until_ms is None or now_ms < until_ms):
                self._instant(now_ms)
        if until_ms is not None:
            self._clock(max(until_ms, self.now_ms))
        elif self.records:
            self._check_end()

    def update(self, time_ms: int, knobs: Knobs) -> None:
        """Change the knobs at an instant that has not been simulated yet; projected, legal knobs only."""
        if time_ms < self.now_ms:
            raise ConfigError(f"knob update at {time_ms} ms: the simulation is already at {self.now_ms} ms")
        self._updates.append(Update(time_ms, knobs))
        self._updates.sort(key=lambda update: update.time_ms)

    def snapshot(self) -> Snapshot:
        """Return the state at `now_ms`; the run may go on from it elsewhere, unchanged."""
        for job in self._jobs.values():
            job.settle(self.now_ms)
        return Snapshot(
            now_ms=self.now_ms,
            knobs=self.knobs,
            jobs=tuple(self._jobs[job_id].copy() for job_id in sorted(self._jobs)),
            arrived=self._arrived,
            places=(self._running_place, self._tail_place, self._front_place),
            tick_anchor_ms=self._tick_anchor_ms,
            dirty=tuple(part.dirty for part in self._parts),
            reviews_ms=tuple(part.review_ms for part in self._parts),
            job_ms=tuple(part.count(self.now_ms, 0) for part in self._parts),
            memories=tuple(part.memory for part in self._parts),
            completed_gpu_ms=tuple(self._completed),
            sampled=self._sampled,
            estimator=self._estimator.fork() if self._estimator else None,
            crossing=tuple(
                sorted(
                    job_id
                    for time_ms, kind, job_id, stamp in self._heap
                    if (time_ms, kind) == (self.now_ms, _CHANGE)
                    and job_id in self._jobs
                    and self._jobs[job_id].stamp == stamp
                )
            ),
        )

    def active(self, job_id: int) -> JobView | None:
        """Return a job that is pending or running now, None otherwise; read it only."""
        return self._jobs.get(job_id)

    @property
    def outcomes(self) -> Outcomes:
        """What became of the jobs so far, as columns."""
        return Outcomes.of(self.records)

    def _answerable(self) -> AbstractContextManager[None]:
        return answerable(self.policy, lambda: self.now_ms)

    def _next_ms(self) -> int | None:
        """Return the next instant at which something happens; a review of nothing is not something."""
        heap, jobs = self._heap, self._jobs
        if not jobs and not self._more_comes():
            return None
        while heap:
            _, kind, job_id, stamp = heap[0]
            if kind >= _REVIEW or ((job := jobs.get(job_id)) is not None and job.stamp == stamp):
                break
            heappop(heap)
        times = [heap[0][0]] if heap else []
        if self._arrived < len(self.workload):
            times.append(self.workload.facts[self._arrived].submit_ms)
        if self._updates:
            times.append(self._updates[0].time_ms)
        if self.plan.refresh_ms and self._jobs:
            times.append(self._sampled[1] - self._sampled[1] % self.plan.refresh_ms + self.plan.refresh_ms)
        return max(min(times), self.now_ms) if times else None

    def _more_comes(self) -> bool:
        """Whether jobs or knobs are still to come from outside."""
        return self._arrived < len(self.workload) or bool(self._updates)

    def _instant(self, now_ms: int) -> None:
        self._clock(now_ms)
        heap, jobs = self._heap, self._jobs
        while heap and heap[0][0] <= now_ms:
            _, kind, job_id, stamp = heappop(heap)
            if kind >= _REVIEW:
                self._wake(kind, job_id)
            elif (job := jobs.get(job_id)) is not None and job.stamp == stamp:
                self.events += 1
                _HANDLERS[kind](self, job)
        while self._updates and self._updates[0].time_ms <= now_ms:
            self._change_knobs(self._updates.pop(0).knobs)
        facts = self.workload.facts
        while self._arrived < len(facts) and facts[self._arrived].submit_ms <= now_ms:
            self._arrive(self._arrived)
        if self.plan.refresh_ms:
            self._refresh_sample()
        for part in self._parts:
            if part.dirty and self._on_tick():
                self._pass(part)

    def _clock(self, now_ms: int) -> None:
        self.held_gpu_ms += self._used_gpus * (now_ms - self.now_ms)
        self.now_ms = now_ms

    # ---- events ----------------------------------------------------------------------------------

    def _arrive(self, job_id: int) -> None:
        self._arrived += 1
        self.events += 1
        facts = self.workload.facts[job_id]
        self._note("submit", job_id)
        home = self.cluster.home(facts.vc)
        if home is None or facts.gpus > self.cluster.vcs[home].gpus:
            self.records[job_id].rejected = True
            reason = (
                "no such virtual cluster"
                if home is None
                else f"wider than {self.cluster.vcs[home].gpus} GPUs"
            )
            self._note("reject", job_id, detail=reason)
            return
        job = JobView(job_id, facts, home, self._estimate_ms(job_id))
        job.since_ms = job.stopped_ms = self.now_ms
        job.overhead_ms = self.environment.cold_start_ms
        job.grades = self.plan.grades
        job.level = self._level(job)
        job.place = self._next_tail()
        job.submit_job_ms = self._parts[home].count(self.now_ms, facts.members)
        self._jobs[job_id] = job
        self._enqueue(job)

    def _finish(self, job: JobView) -> None:
        job.settle(self.now_ms)
        work = self.workload.duration_ms[job.id] * FULL_SPEED_PPM
        if job.done < work or job.done - work >= max(job.speed_ppm, FULL_SPEED_PPM) or job.overhead_ms:
            raise InvariantError(f"job {job.id} ends with work {job.done} of {work} done")
        job.done = work
        self._release(job)
        job_ms = self._parts[job.home].count(self.now_ms, -job.facts.members)
        job.move(Move.FINISH)
        del self._jobs[job.id]
        record = self._record(job)
        record.finish_ms, record.life_job_ms = self.now_ms, job_ms - job.submit_job_ms
        self._completed.append(job.member_gpus * self.workload.duration_ms[job.id])
        if self._estimator is not None:
            self._estimator.observe(job.facts, self.workload.duration_ms[job.id], self.now_ms)
        self._note("finish", job.id)

    def _change_level(self, job: JobView) -> None:
        job.settle(self.now_ms)
        level = self._level(job)
        if level != job.level:
            self._note("demote" if level > job.level else "promote", job.id)
            if self.plan.preemptive and not job.shielded:
                top, bottom, sign = (job.level, level, 1) if level > job.level else (level, job.level, -1)
                self._parts[job.home].index.add(top, bottom, job.nodes, sign)
            self._move(job, level)
        self._parts[job.home].dirty = True
        self._schedule(job)

    def _promote(self, job: JobView) -> None:
        self._lift(job)
        self._enqueue(job)

    def _unshield(self, job: JobView) -> None:
        part = self._parts[job.home]
        job.shielded = False
        part.index.add(0, job.level, job.nodes, 1)
        part.dirty = True
        job.settle(self.now_ms)
        self._schedule(job)

    def _wake(self, kind: int, home: int) -> None:
        """A review, or the end of a lease, makes a pass due; a tick only brings the instant."""
        part = self._parts[home]
        due_ms = {_REVIEW: part.review_ms, _LEASE: part.lease_due_ms}.get(kind)
        part.dirty = part.dirty or due_ms == self.now_ms

    # ---- knobs -----------------------------------------------------------------------------------

    def _adopt(self, knobs: Knobs) -> None:
        self.knobs = knobs
        sample = tuple(self._completed[: self._sampled[0]])
        if isinstance(self.policy, QueuePolicy):
            with self._answerable():
                self.plan = self.policy.plan(knobs, sample)
        else:
            self.plan = plan_of(self.policy, knobs)
        if self.plan.needs_nodes and self.environment.placement == "count":
            raise ConfigError(f"policy {self.policy.name} needs nodes, not placement count; nothing was run.")
        if self.plan.needs_estimates and self.environment.estimator is None:
            raise ConfigError(
                f"policy {self.policy.name} orders by estimates, and there are none; nothing was run."
            )

    def _change_knobs(self, knobs: Knobs) -> None:
        if knobs == self.knobs:
            return
        self.events += 1
        before = self.plan
        self._adopt(knobs)
        self._note("knobs", None, detail=knobs.text())
        self._move_anchor(before.quantum_ms)
        for job_id in sorted(self._jobs):
            self._regrade(self._jobs[job_id], before)
        self._rebuild()

    def _regrade(self, job: JobView, before: Plan) -> None:
        """Bring a job that is already there under the new plan."""
        plan = self.plan
        job.settle(self.now_ms)
        graded_anew = plan.regrade == "immediate" and (
            job.grades != plan.grades or plan.level is not before.level
        )
        if plan.regrade != "new_only":
            job.grades = plan.grades
        level = min(job.level, len(job.grades))
        if graded_anew:
            level_before, job.level = job.level, 0
            level, job.level = self._level(job), level_before
        if level != job.level:
            self._move(job, level)
        safe_ms = -1 if job.started_ms is None else job.started_ms + plan.min_run_ms
        job.shielded = job.state is JobState.RUNNING and safe_ms > self.now_ms
        due_ms = self._starved_ms(job)
        if due_ms is not None and due_ms <= self.now_ms:
            self._lift(job)

    def _move_anchor(self, before_ms: int) -> None:
        """Let a new quantum count on from the last tick: next tick = max(now, last tick + new)."""
        quantum_ms = self.plan.quantum_ms
        if quantum_ms and before_ms and quantum_ms != before_ms:
            last_ms = self.now_ms - (self.now_ms - self._tick_anchor_ms) % before_ms
            self._tick_anchor_ms = max(self.now_ms, last_ms + quantum_ms)

    def _rebuild(self) -> None:
        """Build every queue and index from the jobs' own state; nothing derived outlives a change."""
        self._heap = sorted(entry for entry in self._heap if entry[1] in (_REVIEW, _LEASE))
        self._tick_ms = None
        grades = max((len(job.grades) for job in self._jobs.values()), default=0)
        levels = max(self.plan.levels, grades + 1) if self.plan.preemptive else 1
        for part in self._parts:
            part.rebuild(levels, preemptive=self.plan.preemptive)
            part.dirty = True
        for job_id in sorted(self._jobs):
            job = self._jobs[job_id]
            if job.state is JobState.PENDING:
                self._enqueue(job)
            else:
                job.settle(self.now_ms)
                self._schedule(job)

    def _refresh_sample(self) -> None:
        """Take the services of the jobs completed so far into the plan, once a refresh period."""
        period_ms = self.plan.refresh_ms
        if self.now_ms // period_ms > self._sampled[1] // period_ms:
            self._sampled = len(self._completed), self.now_ms
            self._adopt(self.knobs)
            self._rebuild()

    # ---- queue and levels ------------------------------------------------------------------------

    def _enqueue(self, job: JobView) -> None:
        """Enter a pending job in its queue, and the time at which it will be starving."""
        part, plan = self._parts[job.home], self.plan
        if self._indexed:
            key = job.place if plan.key is None else plan.key(job, self.now_ms)
            if not is_key(key):
                raise ConfigError(
                    f"policy {self.policy.name}: the key of job {job.facts.label} is not a number; "
                    "the run ends here."
                )
            part.queue.push(job, key, self._class_of(job))
        due_ms = self._starved_ms(job)
        if due_ms is not None:
            heappush(self._heap, (due_ms, _PROMOTE, job.id, job.stamp))
        part.dirty = True

    def _class_of(self, job: JobView) -> JobClass:
        plan = self.plan
        if plan.strict:
            return job.level, 0, True
        alone = not self._relaxed or (plan.consolidate is not None and bool(plan.consolidate(job)))
        return job.level, job.gpus, alone

    def _starved_ms(self, job: JobView) -> int | None:
        """Return when a pending job that has run and sunk is lifted to the first queue."""
        starve_ms = self.plan.starve_ms
        if starve_ms is None or job.level == 0 or job.graded_ms == 0 or job.state is not JobState.PENDING:
            return None
        limit_ms = starve_ms(job)
        if limit_ms is None:
            return None
        if not isinstance(limit_ms, int) or limit_ms < 0:
            raise ConfigError(
                f"policy {self.policy.name}: starve_ms = {limit_ms!r} of job {job.facts.label}; "
                "it must be a whole number of at least 0; the run ends here."
            )
        return job.stopped_ms + limit_ms

    def _schedule(self, job: JobView) -> None:
        """Enter the next thing that will happen to a running job, settled to now; older entries go stale."""
        job.stamp += 1
        left = self.workload.duration_ms[job.id] * FULL_SPEED_PPM - job.done
        due_ms, kind = self.now_ms + job.overhead_ms - (-left // job.speed_ppm), _FINISH
        change_ms = self.plan.next_change_ms(job)
        if change_ms is not None:
            if not isinstance(change_ms, int) or change_ms <= 0:
                raise ConfigError(
                    f"policy {self.policy.name}: next_change_ms = {change_ms!r} of job {job.facts.label}; "
                    "it must be a whole number above 0; the run ends here."
                )
            if self.now_ms + change_ms < due_ms:
                due_ms, kind = self.now_ms + change_ms, _CHANGE
        if job.until_ms is not None and job.until_ms < due_ms:
            due_ms, kind = job.until_ms, _EXPIRE
        heappush(self._heap, (due_ms, kind, job.id, job.stamp))
        if job.shielded and job.started_ms is not None:
            heappush(self._heap, (job.started_ms + self.plan.min_run_ms, _UNSHIELD, job.id, job.stamp))

    def _move(self, job: JobView, level: int) -> None:
        """Put a job at the end of another queue; one that waits and moves up loses its seniority there."""
        if job.state is JobState.RUNNING:
            self._parts[job.home].behind[job.id] = job
        elif level < job.level:
            job.first_ms = None
        job.level = level
        job.place = self._next_tail()

    def _lift(self, job: JobView) -> None:
        """Promote a starving job: first queue, service forgotten for grading, progress kept."""
        job.stamp += 1
        self._move(job, 0)
        job.graded_ms = 0
        job.first_ms = None
        job.promotions += 1
        job.stopped_ms = self.now_ms
        self._note("promote", job.id)

    def _next_tail(self) -> int:
        self._tail_place += 1
        return self._tail_place

    def _level(self, job: JobView) -> int:
        """Return the level the plan gives a job, one of those its grades make."""
        level = self.plan.level(job)
        if not isinstance(level, int) or not 0 <= level <= len(job.grades):
            raise ConfigError(
                f"policy {self.policy.name}: level {level!r} of job {job.facts.label}; "
                f"it must be 0 .. {len(job.grades)}; the run ends here."
            )
        return level

    def _estimate_ms(self, job_id: int) -> int | None:
        if self._estimator is None:
            return None
        plan = self.plan
        if self._estimator.retrain(self.now_ms, plan.retrain_ms) and plan.rescore:
            for job in self._jobs.values():
                if job.state is JobState.PENDING and job.done == 0:
                    job.estimate_ms = self._ask(job.id)
            self._rebuild()
        return self._ask(job_id)

    def _ask(self, job_id: int) -> int:
        assert self._estimator is not None
        facts = self.workload.facts[job_id]
        return self._estimator.estimate_ms(job_id, facts, self.now_ms, self.plan.history_weight)

    # ---- the pass --------------------------------------------------------------------------------

    def _on_tick(self) -> bool:
        """Whether a pass may happen now; if not, the next tick is entered."""
        quantum_ms = self.plan.quantum_ms
        if not quantum_ms:
            return True
        wait_ms = (self._tick_anchor_ms - self.now_ms) % quantum_ms
        if self.now_ms < self._tick_anchor_ms:
            wait_ms = self._tick_anchor_ms - self.now_ms
        if wait_ms == 0:
            return True
        if self._tick_ms is None or self._tick_ms <= self.now_ms:
            self._tick_ms = self.now_ms + wait_ms
            heappush(self._heap, (self._tick_ms, _TICK, 0, 0))
        return False

    def _pass(self, part: Partition) -> None:
        part.dirty = False
        if self._indexed:
            self._commit(part, *Walk(part, self._jobs, self.plan, self.now_ms, self._relaxed).run())
            return
        self._idle_passes = self._idle_passes + 1 if self._decide(part) and not part.running else 0
        if self._idle_passes > _IDLE_PASSES_MAX and not self._more_comes():
            self._check_end()
        view = self._view(part)
        review_ms = self.policy.next_review_ms(view, self.knobs)
        check_review(review_ms, self.now_ms, self.policy.name)
        self._await(part, review_ms, lease_due_ms(view, self.now_ms + 1))

    def _await(self, part: Partition, review_ms: int | None, lease_ms: int | None) -> None:
        """Enter when a whole-pass policy is asked again: as it wishes, and when a lease ends."""
        if review_ms is not None and review_ms != part.review_ms:
            heappush(self._heap, (review_ms, _REVIEW, part.number, 0))
        if lease_ms is not None and lease_ms != part.lease_due_ms:
            heappush(self._heap, (lease_ms, _LEASE, part.number, 0))
        part.review_ms, part.lease_due_ms = review_ms, lease_ms

    def _decide(self, part: Partition) -> bool:
        """Ask a whole-pass policy and do what it says; return whether that is nothing but remembering."""
        view = self._view(part)
        decisions = list(self.policy.decide(view, self.knobs))
        carry_out(self, part, view, decisions)
        return all(isinstance(one, Remember) for one in decisions)

    def _view(self, part: Partition) -> ClusterView:
        return part.view(self.now_ms, tuple(self._completed[: self._sampled[0]]), self.environment)

    def _commit(
        self,
        part: Partition,
        lost: list[JobView],
        places: dict[int, Nodes],
        shares: Mapping[int, Share] = MappingProxyType({}),
    ) -> None:
        """Preempt, then start, in walk order; then each queue stands as running jobs first, pending after."""
        if not lost and not places and not part.behind:
            return
        moved = {job.id for job in lost if job.id in places}
        settlers = [self._jobs[job_id] for job_id in places if job_id not in moved or job_id in part.behind]
        dropped = [job for job in lost if job.id not in moved]
        settlers += [job for job in part.behind.values() if job.id not in places and job not in dropped]
        for job in lost:
            self._stop(part, job)
        for job_id, nodes in places.items():
            self._start(part, self._jobs[job_id], nodes, shares.get(job_id))
        for job in sorted(settlers, key=queue_order):
            self._running_place += 1
            job.place = self._running_place
        for job in sorted(dropped, key=queue_order, reverse=True):
            if runs_first(job):
                job.place = self._front_place
                self._front_place -= 1
        for job in dropped:
            self._enqueue(job)
        part.behind.clear()
        part.dirty = False

    def _start(self, part: Partition, job: JobView, nodes: Nodes, share: Share | None) -> None:
        now_ms = self.now_ms
        job.move(Move.START)
        job.nodes, job.share = nodes, share
        job.since_ms = job.started_ms = now_ms
        if job.first_ms is None:
            job.first_ms = now_ms
        if job.first_start_ms is None:
            job.first_start_ms = now_ms
        job.speed_ppm = speed_ppm(self, part, job)
        if part.preemptive and self.plan.min_run_ms:
            job.shielded = True
            part.index.add(0, job.level, nodes, -1)
        part.hold(job)
        self._used_gpus += job.gpus
        for node, _ in nodes:
            if part.index.spare(part.levels - 1, node) < 0:
                raise InvariantError(f"node {node} holds more GPUs than it has after job {job.id} started")
        self._note("start", job.id, self._global(part, nodes), how(self, job))
        self._schedule(job)

    def _stop(self, part: Partition, job: JobView) -> None:
        job.settle(self.now_ms)
        self._note("preempt", job.id, self._global(part, job.nodes))
        part.drop(job)
        self._used_gpus -= job.gpus
        job.nodes, job.shielded, job.until_ms, job.share = (), False, None, None
        job.grant(None, None, None)
        job.preemptions += 1
        self.preemptions += 1
        if self.preemptions_max is not None and self.preemptions > self.preemptions_max:
            raise Thrashing(f"more than {self.preemptions_max} preemptions under {self.knobs.text()}")
        job.stopped_ms = self.now_ms
        if job.overhead_ms:
            self._wasted_starts += 1
            if self._wasted_starts > 1000 + 100 * len(self._jobs):
                self._check_progress()
        job.overhead_ms = self.environment.restart_ms(job.member_gpus)
        job.move(Move.PREEMPT)

    def _check_progress(self) -> None:
        """Refuse to go on for ever: with little service a queue and promotion, restarts may eat it all.

        Called after so many starts that ended before their restart cost was paid that, without
        promotions, every job would have come to rest at the bottom of its queues.
        """
        for job in self._jobs.values():
            job.settle(self.now_ms)
        progress = len(self._completed), sum(job.done for job in self._jobs.values())
        if progress == self._progress and not self._more_comes():
            raise Thrashing(
                f"policy {self.policy.name} under {self.knobs.text()}: {len(self._jobs)} jobs take turns and "
                "none runs long enough to pay for its restart; the run ends here."
            )
        self._progress = progress
        self._wasted_starts = 0

    def _release(self, job: JobView) -> None:
        part = self._parts[job.home]
        give_back(self, part, job)
        part.drop(job)
        part.dirty = True
        self._used_gpus -= job.gpus

    # ---- accounts --------------------------------------------------------------------------------

    def _record(self, job: JobView) -> Record:
        record = self.records[job.id]
        record.first_start_ms = job.first_start_ms
        record.held_ms = job.held_ms
        record.paid_ms = job.paid_ms
        record.preemptions = job.preemptions
        record.resizes = job.resizes
        record.promise_ms = job.promise_ms
        return record

    def _note(self, kind: str, job_id: int | None, nodes: Nodes = (), detail: str = "") -> None:
        if self.timeline is not None:
            self.timeline.add(self.now_ms, kind, job_id, nodes, detail)

    def _global(self, part: Partition, nodes: Nodes) -> Nodes:
        first = part.vc.first_node
        return nodes if first == 0 or self.timeline is None else tuple((first + node, n) for node, n in nodes)

    def _restore(self, snapshot: Snapshot) -> None:
        self.now_ms = snapshot.now_ms
        self._arrived = snapshot.arrived
        self._running_place, self._tail_place, self._front_place = snapshot.places
        self._tick_anchor_ms = snapshot.tick_anchor_ms
        self._estimator = snapshot.estimator.fork() if snapshot.estimator else self._estimator
        self._completed = list(snapshot.completed_gpu_ms)
        self._sampled = snapshot.sampled
        for job in snapshot.jobs:
            twin = self._jobs[job.id] = job.copy()
            if twin.state is JobState.RUNNING:
                part = self._parts[twin.home]
                part.running[twin.id] = twin
                if not runs_first(twin):
                    part.behind[twin.id] = twin
                self._used_gpus += twin.gpus
        self.held_before_gpu_ms = sum(job.gpus * job.held_ms for job in snapshot.jobs)
        self._adopt(snapshot.knobs)
        self._rebuild()
        for job_id in snapshot.crossing:
            heappush(self._heap, (self.now_ms, _CHANGE, job_id, self._jobs[job_id].stamp))
        for home, part in enumerate(self._parts):
            part.dirty = snapshot.dirty[home]
            part.job_ms, part.counted_ms = snapshot.job_ms[home], self.now_ms
            part.memory = snapshot.memories[home]
            part.active = sum(job.facts.members for job in snapshot.jobs if job.home == home)
            due_ms = None if self._indexed else lease_due_ms(self._view(part), self.now_ms)
            self._await(part, snapshot.reviews_ms[home], due_ms)
        if any(snapshot.dirty) and self._on_tick():
            heappush(self._heap, (self.now_ms, _TICK, 0, 0))

    def _check_end(self) -> None:
        """Everything that arrived has left, and the GPU time held equals the sum over the jobs."""
        if self._jobs:
            stuck = next(iter(self._jobs.values()))
            raise ConfigError(
                f"policy {self.policy.name} leaves {len(self._jobs)} jobs waiting for ever, "
                f"job {stuck.facts.label} with {stuck.gpus} GPUs among them; the run ends here."
            )
        held = sum(
            record.held_ms * facts.gpus
            for record, facts in zip(self.records, self.workload.facts, strict=True)
        )
        if held != self.held_gpu_ms + self.held_before_gpu_ms:
            raise InvariantError(f"GPU time held {self.held_gpu_ms} ms, by the jobs' own count {held} ms")


_HANDLERS: dict[int, Callable[[Engine, JobView], None]] = {
    _FINISH: Engine._finish,
    _EXPIRE: expire,
    _CHANGE: Engine._change_level,
    _PROMOTE: Engine._promote,
    _UNSHIELD: Engine._unshield,
}
