"""Asking before submitting: what a job could be promised if it were submitted at an instant of a trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab import __version__
from trimtab.cluster import Cluster, ClusterView
from trimtab.errors import ConfigError, UnknownName
from trimtab.job import BEST_EFFORT, JobFacts, JobView, Service
from trimtab.knobs import Knobs
from trimtab.policies.admission import Answer, admission
from trimtab.policies.catalog import find_policy
from trimtab.policies.policy import Decision
from trimtab.policies.sensascale import SensaScale
from trimtab.simulate.engine import Engine
from trimtab.simulate.engines import make_engine
from trimtab.simulate.mix import check_footprint
from trimtab.simulate.run import World
from trimtab.simulate.workload import Workload
from trimtab.traces.trace import Trace

_LABEL = "the job asked about"


@dataclass(frozen=True, slots=True)
class Wish:
    """A job that might be submitted.

    Attributes:
        run_ms: How long it runs on its GPUs with their part of CPU and memory.
        deadline_ms: By when it is wanted, counted from its submission; None for no deadline.
        vc: Its virtual cluster. model: what it trains, where CPU and memory matter.
    """

    gpus: int
    run_ms: int
    deadline_ms: int | None = None
    vc: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A wish and the answer to it; `pending` and `running` count the jobs beside it."""

    wish: Wish
    at_ms: int
    answer: Answer
    pending: int
    running: int

    def after_s(self, time_ms: int) -> float:
        """Return an instant of the answer in seconds after the submission."""
        return (time_ms - self.at_ms) / 1000

    @property
    def changes(self) -> list[dict[str, Any]]:
        """What would meet the deadline where it cannot be promised, cheapest first; a later one always does.

        CPU and memory cost no GPU time, fewer GPUs a longer run, a later deadline what the wish was about.
        """
        answer, found = self.answer, list[dict[str, Any]]()
        if self.wish.deadline_ms is None or answer.promise_ms is not None:
            return found
        if answer.share is not None:
            memory_gib = answer.share.memory_mib / 1024
            found.append({"change": "share", "cores": answer.share.cores, "memory_gib": memory_gib})
        if answer.gpus is not None:
            run_s = self.wish.run_ms * self.wish.gpus / answer.gpus / 1000
            found.append({"change": "gpus", "gpus": answer.gpus, "run_time_s": run_s})
        found.append({"change": "deadline", "deadline_s": self.after_s(answer.deadline_ms)})
        return found

    def jsonable(self) -> dict[str, Any]:
        """Return the object `admit --format json` prints; times are seconds after the submission."""
        answer, wish = self.answer, self.wish
        start_by_ms = answer.start_by_ms
        return {
            "trimtab": __version__,
            "job": {
                "gpus": wish.gpus,
                "run_time_s": wish.run_ms / 1000,
                "deadline_s": None if wish.deadline_ms is None else wish.deadline_ms / 1000,
                "vc": wish.vc,
                "model": wish.model,
            },
            "situation": {"pending": self.pending, "running": self.running},
            "promised": None if wish.deadline_ms is None else answer.promise_ms is not None,
            "start_s": self.after_s(answer.start_ms),
            "earliest_deadline_s": self.after_s(answer.deadline_ms),
            "start_by_s": None if start_by_ms is None else self.after_s(start_by_ms),
            "changes": self.changes,
        }


def ask_at(
    trace: Trace, at_ms: int, cluster: Cluster, policy: str, knobs: Knobs, world: World, wish: Wish
) -> Asked:
    """Return what a job could be promised that comes at an instant, last of all that come then.

    The cluster's state is what the trace's jobs from its start on leave behind under the policy.

    Raises:
        ConfigError: If the policy promises nothing, or the job could never run.
        InputError: If the job, or one of the trace, needs more memory than a node has.
    """
    _refuse_silent(policy, knobs)
    _refuse_misfit(cluster, wish)
    world.check_memory(trace, cluster)
    jobs = world.workload(trace)
    before = int(np.searchsorted(trace.column("submit_ms"), at_ms, side="right"))
    facts = _facts(wish, at_ms - trace.zero_ms, world, cluster)
    workload = Workload(
        [*jobs.facts[:before], facts],
        [*jobs.duration_ms[:before], wish.run_ms],
        [*jobs.curves[:before], facts.curve] if jobs.curves else (),
    )
    return ask(workload, cluster, policy, knobs, world, wish)


def ask(workload: Workload, cluster: Cluster, policy: str, knobs: Knobs, world: World, wish: Wish) -> Asked:
    """Return what the last job of a workload, the one wished for, could be promised when it comes."""
    environment = world.environment(workload)
    engine = make_engine(world.engine, workload, cluster, find_policy(policy), knobs, environment)
    now_ms = workload.facts[-1].submit_ms
    engine.run(now_ms)
    listener = _Listener(len(workload) - 1, wish.run_ms)
    twin = Engine.resume(engine.snapshot(), workload, cluster, listener, environment)
    twin.run(now_ms + 1)
    assert listener.answer is not None
    return Asked(wish, now_ms, listener.answer, listener.pending, listener.running)


class _Listener(SensaScale):
    """SensaScale that is asked, at the first pass in which a job waits, what it could promise the job."""

    def __init__(self, job_id: int, run_ms: int) -> None:
        self.job_id, self.run_ms = job_id, run_ms
        self.answer: Answer | None = None
        self.pending = self.running = 0

    def decide(self, view: ClusterView, knobs: Knobs) -> list[Decision]:
        job = view.pending.find(self.job_id)
        if self.answer is None and job is not None:
            self.answer = admission(view, self._as_told(job), knobs)
            self.pending, self.running = len(view.pending) - 1, len(view.running)
        return super().decide(view, knobs)

    def _as_told(self, job: JobView) -> JobView:
        """Return the job with the run time its user tells, whatever estimates say of others."""
        told = job.copy()
        told.estimate_ms = self.run_ms
        return told


def _facts(wish: Wish, submit_ms: int, world: World, cluster: Cluster) -> JobFacts:
    """Return what a scheduler would be told.

    Raises:
        ConfigError: If there is a model, but no curves; UnknownName if these have no such model.
        InputError: If it needs more memory on a node than a node has.
    """
    table = world.curve_table()
    if wish.model is not None and table is None:
        raise ConfigError(f"model {wish.model}: it goes with --curves; nothing was run.")
    if wish.model is not None and table is not None and wish.model not in table.curves:
        raise UnknownName("model", wish.model, table.curves)
    if table is not None:
        check_footprint(_LABEL, wish.vc, wish.model, wish.gpus, table, cluster, world.placement)
    service = BEST_EFFORT
    if wish.deadline_ms is not None:
        service = Service("strict", (submit_ms + wish.deadline_ms,))
    curve = None if table is None else table.curve(wish.model, wish.gpus)
    return JobFacts(_LABEL, submit_ms, wish.gpus, wish.vc, service=service, curve=curve)


def _refuse_silent(policy: str, knobs: Knobs) -> None:
    found = find_policy(policy)
    if not isinstance(found, SensaScale):
        raise ConfigError(
            f"policy {policy}: only sensascale and sensascale-plus can be asked; nothing was run."
        )
    if not knobs["admission"]:
        raise ConfigError(f"policy {policy}: with admission=off it promises nothing; nothing was run.")


def _refuse_misfit(cluster: Cluster, wish: Wish) -> None:
    home = cluster.home(wish.vc)
    if home is None:
        if wish.vc is None:
            raise ConfigError("a cluster of virtual clusters: name the job's with --vc; nothing was run.")
        raise UnknownName("virtual cluster", wish.vc, [vc.name for vc in cluster.vcs])
    most = cluster.vcs[home].gpus
    if not 1 <= wish.gpus <= most:
        raise ConfigError(f"gpus = {wish.gpus:,}: it must be 1 .. {most:,}; nothing was run.")
