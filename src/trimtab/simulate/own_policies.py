"""Policies of one's own on the compiled core: the questions it puts to them, and how the answers are read.

A queue policy hands over its plan with those of its functions that are its own; a whole-pass policy is asked
at each pass. Both see the core's jobs, which tell the same as a `JobView`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING

from trimtab.cluster import Cluster, ClusterView, FreeMap
from trimtab.job import JobFacts, Nodes
from trimtab.knobs import Knobs
from trimtab.policies.policy import (
    Plan,
    Policy,
    QueuePolicy,
    Remember,
    Start,
    by_arrival,
    graded_change_ms,
    graded_level,
    plan_of,
)
from trimtab.simulate.decisions import check_decisions, check_review, check_shares
from trimtab.simulate.state import Environment

if TYPE_CHECKING:
    from trimtab import _core

# What the core is told of a whole pass: whether nothing is done, who loses GPUs, who gets which, for whom
# that ends at an instant or is beside another job; leases; CPU and memory of those that start, then of those
# that run (-1 cores: the proportional part); notes.
Told = tuple[
    bool,
    list[int],
    list[tuple[int, Nodes]],
    list[tuple[int, int | None, int | None]],
    list[tuple[int, int, int, int]],
    list[tuple[int, int, int]],
    list[tuple[int, int, int]],
    list[tuple[int, tuple[int, ...], int | None]],
    tuple[int, ...] | None,
]


def add_hooks(made: _core.Plan, policy: QueuePolicy, told: Plan, facts: Sequence[JobFacts]) -> None:
    """Put into a core's plan what a policy's own plan says beyond plain settings."""
    from trimtab import _core

    if told.key is None:
        made.rank = _core.Rank.place
    elif told.key is by_arrival:
        made.rank = _core.Rank.arrival
    else:
        made.rank = _core.Rank.hook
    made.hooks_level = told.level is not graded_level
    made.hooks_change = told.next_change_ms is not graded_change_ms
    made.hooks_consolidate = told.consolidate is not None
    if told.starve_ms is not None:
        made.starve = _core.Starve.hook
    _core.add_hooks(made, policy.name, facts, told)


class Asked:
    """A whole-pass policy as the core asks it."""

    def __init__(
        self,
        policy: Policy,
        cluster: Cluster,
        world: Environment,
        completed_gpu_ms: tuple[int, ...],
        knobs_of: Callable[[int], Knobs],
    ) -> None:
        self._policy = policy
        self._cluster = cluster
        self._world = world
        self._completed_gpu_ms = completed_gpu_ms
        self._knobs_of = knobs_of

    def decide(
        self,
        now_ms: int,
        home: int,
        knobs: int,
        pending: _core.JobHandles,
        running: _core.JobHandles,
        free: list[int],
        job_ms: int,
        review_ms: int | None,
        memory: tuple[int, ...],
    ) -> Told:
        """Return the policy's decisions, checked."""
        view = self._view(now_ms, home, pending, running, free, job_ms, review_ms, memory)
        chosen = self._knobs_of(knobs)
        decisions = list(self._policy.decide(view, chosen))
        if not decisions:
            return True, [], [], [], [], [], [], [], None
        free_map = self._free_map(home, free)
        name, may_share = self._policy.name, plan_of(self._policy, chosen).gives_shares
        verdict = check_decisions(
            decisions, pending.find, running.find, free_map, name, now_ms, may_share=may_share
        )
        if may_share:
            check_shares(verdict, running, self._cluster.vcs[home], name)
        terms = [
            (one.job_id, one.until_ms, one.beside)
            for one in decisions
            if isinstance(one, Start) and (one.until_ms is not None or one.beside is not None)
        ]
        return (
            all(isinstance(one, Remember) for one in decisions),
            verdict.lost,
            list(verdict.places.items()),
            terms,
            [astuple(lease) for lease in verdict.leases],
            [(job_id, *share) for job_id, share in verdict.shares.items()],
            [(one.job_id, *(one.share or (-1, 0))) for one in verdict.resizes],
            [(one.job_id, one.note, one.promise_ms) for one in verdict.notes],
            verdict.memory,
        )

    def next_review_ms(
        self,
        now_ms: int,
        home: int,
        knobs: int,
        pending: _core.JobHandles,
        running: _core.JobHandles,
        free: list[int],
        job_ms: int,
        review_ms: int | None,
        memory: tuple[int, ...],
    ) -> int | None:
        """Return when the policy wants to be asked again, checked."""
        view = self._view(now_ms, home, pending, running, free, job_ms, review_ms, memory)
        next_ms = self._policy.next_review_ms(view, self._knobs_of(knobs))
        return check_review(next_ms, now_ms, self._policy.name)

    def _view(
        self,
        now_ms: int,
        home: int,
        pending: _core.JobHandles,
        running: _core.JobHandles,
        free: list[int],
        job_ms: int,
        review_ms: int | None,
        memory: tuple[int, ...],
    ) -> ClusterView:
        vc = self._cluster.vcs[home]
        free_map, world = self._free_map(home, free), self._world
        told = self._completed_gpu_ms, job_ms, review_ms, world.speeds, world.pace, memory, world.site
        return ClusterView(now_ms, vc, pending, running, free_map, *told)

    def _free_map(self, home: int, free: list[int]) -> FreeMap:
        vc = self._cluster.vcs[home]
        size = vc.gpus if self._world.placement == "count" else vc.gpus_per_node
        return FreeMap(free, size, self._world.placement)
