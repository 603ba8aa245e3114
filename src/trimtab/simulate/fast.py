"""The compiled twin of the reference engine: the same surface, the same answers, far faster.

`FastEngine` is `Engine` with the built-in policies in C++ (`core/`), and asks policies of one's own (see
`own_policies`); `FastSituation` tries many settings on one situation. What does not fit there (numbers beyond
64 bits) is `twin_refusal`'s to say, and the reference engine's to run.
"""

from __future__ import annotations

import gc
import math
import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.cluster import Cluster
from trimtab.curve import FULL_SPEED_PPM, Share
from trimtab.errors import ConfigError
from trimtab.job import JobFacts, JobState, JobView, Nodes
from trimtab.knobs import Knobs
from trimtab.objective import Stays, Totals
from trimtab.policies.edf import Edf, due_ms
from trimtab.policies.fifo import Fifo
from trimtab.policies.lucid import Lucid
from trimtab.policies.policy import Plan, Policy, QueuePolicy, plan_of, ppm
from trimtab.policies.shortest import Qssf, Sjf, Srsf, Srtf
from trimtab.policies.slurm import Slurm
from trimtab.policies.themis import Rules, Themis
from trimtab.policies.tiresias import Tiresias
from trimtab.profile import PairSpeeds
from trimtab.simulate.deadlines import Deadlines
from trimtab.simulate.decisions import answerable
from trimtab.simulate.fast_lucid import core_pace, core_pairing, core_rules, pairing_refusal
from trimtab.simulate.native import add_claims, add_wants, is_native, native_decider
from trimtab.simulate.own_policies import Asked, add_hooks
from trimtab.simulate.state import Environment, Outcomes, Record, Snapshot
from trimtab.simulate.workload import Estimator, OracleEstimator, Workload
from trimtab.timeline import Event, Timeline

try:
    from trimtab import _core
except ImportError:
    _BUILT = False
else:
    _BUILT = True

# In the order of `EventKind` in core/log.hpp.
_KINDS = ("submit", "reject", "start", "preempt", "demote", "promote", "finish", "knobs", "resize")
_REJECT, _START, _PREEMPT, _KNOBS, _RESIZE = 1, 2, 3, 7, 8

# A job's state as the core gives and takes it, in the order of `to_tuple` in core/bindings.cpp.
_JOB_FIELDS = (
    "id",
    "home",
    "running",
    "estimate_ms",
    "level",
    "grades",
    "place",
    "since_ms",
    "held_ms",
    "graded_ms",
    "done",
    "speed_ppm",
    "overhead_ms",
    "paid_ms",
    "first_ms",
    "started_ms",
    "stopped_ms",
    "first_start_ms",
    "preemptions",
    "promotions",
    "nodes",
    "shielded",
    "lease_start_ms",
    "lease_end_ms",
    "renewal_ms",
    "submit_job_ms",
    "stamp",
    "partner",
    "until_ms",
    "share",
    "resized_ms",
    "resizes",
    "note",
    "promise_ms",
)

# A job's run time and service at full speed, and its service at its slowest, stay below these: so 64 bits
# suffice for GPU-ms x ppm, which order by remaining service compares, and for what a job attains.
_MOST_MS = 1 << 41
_MOST_GPU_MS = 1 << 42
_MOST_STRETCHED_GPU_MS = 1 << 60


def core_unwanted() -> bool:
    """Whether TRIMTAB_NO_CORE is set: at installation it leaves the core out, at run time it is not used."""
    return os.environ.get("TRIMTAB_NO_CORE", "0").lower() not in ("", "0", "false", "off", "no")


def compiled_available() -> bool:
    """Whether the compiled core was built with this installation, and nobody wants to do without it."""
    return _BUILT and not core_unwanted()


def core_refusal() -> str | None:
    """Return why the compiled core is not used in this installation, None if it is."""
    if compiled_available():
        return None
    return "TRIMTAB_NO_CORE is set" if core_unwanted() else "this installation has no compiled core"


def core_built() -> str | None:
    """Return compiler, version and options of the compiled core, None if there is none."""
    return _core.built if _BUILT else None


def _is_built_in(policy: Policy) -> bool:
    return type(policy) in _RANKS or type(policy) in (Tiresias, Themis, Lucid) or is_native(policy)


def _may_share(policy: Policy) -> bool:
    """Whether two jobs may be on the same GPUs: under Lucid, and under what is decided in Python."""
    return type(policy) is Lucid or not (isinstance(policy, QueuePolicy) or _is_built_in(policy))


def twin_refusal(workload: Workload, environment: Environment, policy: Policy) -> str | None:
    """Return why the core cannot run this, None if it can."""
    columns = Columns.of(workload)
    told = environment.estimator
    estimates = told.duration_ms if isinstance(told, OracleEstimator) else workload.duration_ms
    fits = columns.fits
    if fits and estimates is not workload.duration_ms:
        fits = _fit(estimates, columns.gpus.tolist(), FULL_SPEED_PPM)
    if not fits:
        return "a run time is too long for 64 bits"
    return pairing_refusal(workload, environment.speeds) if _may_share(policy) else None


@dataclass(frozen=True, slots=True)
class Columns:
    """A workload as arrays, made once."""

    submit_ms: NDArray[np.int64]
    duration_ms: NDArray[np.int64]
    spread_ppm: NDArray[np.int64]
    skew_ppm: NDArray[np.int64]
    gpus: NDArray[np.int32]
    member_gpus: NDArray[np.int32]
    fits: bool  # whether the run times are short enough for the core

    @classmethod
    def of(cls, workload: Workload) -> Columns:
        """Return the columns of a workload, remembered as long as it lives."""
        found = _COLUMNS.get(id(workload))
        if found is None:
            found = _COLUMNS[id(workload)] = cls._made(workload)
            weakref.finalize(workload, _COLUMNS.pop, id(workload), None)
        return found

    @classmethod
    def _made(cls, workload: Workload) -> Columns:
        facts, durations = workload.facts, workload.duration_ms
        spread = [one.spread_ppm for one in facts]
        gpus = [one.gpus for one in facts]
        fits = _fit(durations, gpus, min(spread, default=FULL_SPEED_PPM))
        return cls(
            np.array([one.submit_ms for one in facts], dtype=np.int64),
            np.array(durations if fits else [0] * len(durations), dtype=np.int64),
            np.array(spread, dtype=np.int64),
            np.array([one.skew_ppm for one in facts], dtype=np.int64),
            np.array(gpus, dtype=np.int32),
            np.array([one.gpus // one.members for one in facts], dtype=np.int32),
            fits,
        )


def _fit(durations_ms: Sequence[int], gpus: Sequence[int], slowest_ppm: int) -> bool:
    longest_ms = max(durations_ms, default=0)
    most = max((width * span for width, span in zip(gpus, durations_ms, strict=False)), default=0)
    stretched = most * FULL_SPEED_PPM // max(1, min(slowest_ppm, FULL_SPEED_PPM))
    return longest_ms < _MOST_MS and most < _MOST_GPU_MS and stretched < _MOST_STRETCHED_GPU_MS


_COLUMNS: dict[int, Columns] = {}


# ---- plans -------------------------------------------------------------------------------------------

_RANKS: dict[type, str] = {
    Fifo: "arrival",
    Sjf: "estimate",
    Qssf: "estimated_service",
    Srtf: "remaining",
    Srsf: "remaining_service",
    Edf: "due",
}


class _Settings:
    """The settings one engine has met, numbered: equal settings have equal numbers."""

    def __init__(self, policy: Policy, workload: Workload, speeds: PairSpeeds | None) -> None:
        self.policy = policy
        self.workload = workload
        self.speeds = speeds
        self.known: list[Knobs] = []
        self._numbers: dict[Knobs, int] = {}

    def plan(self, knobs: Knobs) -> _core.Plan:
        """Return what the knobs amount to, for the core."""
        number = self._numbers.get(knobs)
        if number is None:
            number = self._numbers[knobs] = len(self.known)
            self.known.append(knobs)
        plan = self._plan(knobs)
        plan.knobs, plan.text = number, knobs.text()
        return plan

    def _plan(self, knobs: Knobs) -> _core.Plan:
        policy = self.policy
        if not isinstance(policy, QueuePolicy):
            return self._whole_pass_plan(policy, knobs)
        if _is_built_in(policy):
            plan = _built_in_plan(policy, knobs)
            if isinstance(policy, Edf):
                plan.set_due(self._due_ms)
            return plan
        plan = _core.Plan()
        plan.set_planner(_core.planner(partial(_own_plan, policy, knobs, self.workload.facts)))
        return plan

    @cached_property
    def _due_ms(self) -> NDArray[np.int64]:
        return np.array([due_ms(facts) for facts in self.workload.facts], dtype=np.int64)

    def _whole_pass_plan(self, policy: Policy, knobs: Knobs) -> _core.Plan:
        """Return the plan of a policy that is asked, or of one that the core knows."""
        plan = _settings_of(plan_of(policy, knobs))
        native = native_decider(policy, knobs)
        if native is not None:
            plan.set_native(native)
        kind: type[object] = type(policy)
        if kind is Themis:
            plan.set_auction(**asdict(Rules.of(knobs)))
        elif kind is Lucid:
            plan.set_lucid(core_rules(knobs, self.workload, self.speeds))
        return plan


def _own_plan(
    policy: QueuePolicy, knobs: Knobs, facts: Sequence[JobFacts], completed_gpu_ms: tuple[int, ...]
) -> _core.Plan:
    told = policy.plan(knobs, completed_gpu_ms)
    plan = _settings_of(told)
    add_hooks(plan, policy, told, facts)
    return plan


def _settings_of(told: Plan) -> _core.Plan:
    plan = _core.Plan()
    plan.preemptive, plan.strict = bool(told.preemptive), bool(told.strict)
    plan.grades = told.grades
    plan.regrade = getattr(_core.Regrade, told.regrade)
    plan.min_run_ms, plan.quantum_ms = told.min_run_ms, told.quantum_ms
    plan.needs_nodes = bool(told.needs_nodes)
    plan.needs_estimates, plan.history_weight = bool(told.needs_estimates), told.history_weight
    plan.retrain_ms, plan.rescore = told.retrain_ms, bool(told.rescore)
    plan.refresh_ms = told.refresh_ms
    return plan


def _built_in_plan(policy: QueuePolicy, knobs: Knobs) -> _core.Plan:
    plan = _settings_of(policy.plan(knobs))
    if isinstance(policy, Tiresias):
        _add_tiresias(plan, knobs)
    else:
        plan.rank = getattr(_core.Rank, _RANKS[type(policy)])
        plan.counts_overhead = bool(knobs.get("rem_counts_overhead", False))
    return plan


def _add_tiresias(plan: _core.Plan, knobs: Knobs) -> None:
    """Add what only Tiresias has; see `policies/tiresias.py`."""
    priority, order = knobs.choice("priority"), knobs.choice("in_queue_order")
    if priority == "srsf":
        plan.rank = _core.Rank.remaining_service
    elif priority == "gittins":
        plan.rank = _core.Rank.gittins
    elif priority == "fifo" or order == "submit":
        plan.rank = _core.Rank.arrival
    elif order == "start":
        plan.rank = _core.Rank.seniority
    else:
        plan.rank = _core.Rank.place
    plan.may_consolidate = True
    plan.pack_limit_ppm = ppm(knobs.fraction("pack_limit"))
    promote = knobs.fraction("promote_knob")
    if math.isinf(promote):
        plan.starve = _core.Starve.never
    elif knobs.choice("starve_mode") == "absolute":
        plan.starve = _core.Starve.absolute
        plan.starve_ms = min(-(-ppm(promote) * 3_600_000 // FULL_SPEED_PPM), _MOST_MS)
    else:
        plan.starve = _core.Starve.ratio
        plan.starve_ppm = min(ppm(promote), 1 << 62)


# ---- the engine --------------------------------------------------------------------------------------


class FastEngine:
    """One simulation in the core; see `Engine`, whose twin it is."""

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        policy: Policy,
        knobs: Knobs,
        environment: Environment,
        *,
        timeline: bool = False,
    ) -> None:
        """Prepare a run from an empty cluster.

        Args:
            timeline: Whether to keep the list of events.
        """
        sample = environment.completed_gpu_ms
        self._prepare(workload, cluster, policy, knobs, environment, environment.estimator, timeline, sample)

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
    ) -> FastEngine:
        """Continue from a snapshot; the workload tells how long its active jobs run and who arrives."""
        snapshot.refuse_others(workload)
        engine = cls.__new__(cls)
        estimator = snapshot.estimator.fork() if snapshot.estimator else environment.estimator
        sample = snapshot.completed_gpu_ms[: snapshot.sampled[0]]
        engine._prepare(workload, cluster, policy, snapshot.knobs, environment, estimator, timeline, sample)
        engine._core.restore(
            {
                "now_ms": snapshot.now_ms,
                "jobs": [_job_tuple(job) for job in snapshot.jobs],
                "arrived": snapshot.arrived,
                "places": snapshot.places,
                "tick_anchor_ms": snapshot.tick_anchor_ms,
                "dirty": snapshot.dirty,
                "completed_gpu_ms": snapshot.completed_gpu_ms,
                "sampled": snapshot.sampled,
                "reviews_ms": snapshot.reviews_ms,
                "job_ms": snapshot.job_ms,
                "memories": snapshot.memories,
                "crossing": snapshot.crossing,
            }
        )
        return engine

    def _prepare(
        self,
        workload: Workload,
        cluster: Cluster,
        policy: Policy,
        knobs: Knobs,
        environment: Environment,
        estimator: Estimator | None,
        timeline: bool,
        sample_gpu_ms: tuple[int, ...],
    ) -> None:
        self.workload = workload
        self.cluster = cluster
        self.policy = policy
        self.environment = environment
        self._settings = _Settings(policy, workload, environment.speeds)
        self._estimator = estimator
        self._events = self._shares = self._gifts = 0  # of the core's log, read so far
        facts = workload.facts
        self._timeline = Timeline([f.label for f in facts], [f.gpus for f in facts]) if timeline else None
        columns = Columns.of(workload)
        core_workload = _core.workload(
            columns.submit_ms,
            columns.duration_ms,
            columns.spread_ppm,
            columns.skew_ppm,
            columns.gpus,
            columns.member_gpus,
            _homes(workload, cluster),
        )
        add_wants(core_workload, workload)
        if type(policy) is Slurm:
            add_claims(core_workload, workload, environment.site)
        with self._answerable(facts[0].submit_ms if facts else 0):
            self._core = self._make_core(core_workload, knobs, timeline, sample_gpu_ms)

    def _make_core(
        self, core_workload: _core.Workload, knobs: Knobs, timeline: bool, sample_gpu_ms: tuple[int, ...]
    ) -> _core.Engine:
        cluster, environment = self.cluster, self.environment
        widest = max(vc.gpus for vc in cluster.vcs)
        return _core.engine(
            core_workload,
            [(vc.nodes, vc.gpus_per_node, vc.first_node, *vc.node_share) for vc in cluster.vcs],
            self.policy.name,
            self._settings.plan(knobs),
            environment.placement,
            [environment.restart_ms(gpus) if gpus <= widest else 0 for gpus in core_workload.widths],
            environment.cold_start_ms,
            environment.adjust_ms,
            environment.estimator is not None,
            _core_estimator(self._estimator, self.workload),
            environment.completed_gpu_ms,
            self._decider(sample_gpu_ms),
            core_pairing(self.workload, environment.speeds) if _may_share(self.policy) else None,
            core_pace(environment.pace, self.workload) if type(self.policy) is Lucid else None,
            timeline,
        )

    def _decider(self, sample_gpu_ms: tuple[int, ...]) -> _core.Decider | None:
        if isinstance(self.policy, QueuePolicy) or _is_built_in(self.policy):
            return None
        known = self._settings.known.__getitem__
        asked = Asked(self.policy, self.cluster, self.environment, sample_gpu_ms, known)
        return _core.decider(self.policy.name, self.workload.facts, asked.decide, asked.next_review_ms)

    def _answerable(self, now_ms: int | None = None) -> AbstractContextManager[None]:
        return answerable(self.policy, lambda: self.now_ms if now_ms is None else now_ms)

    # ---- running ---------------------------------------------------------------------------------

    def run(self, until_ms: int | None = None) -> None:
        """Run until nothing is left to happen, or up to (not including) an instant."""
        with self._answerable():
            self._core.run(until_ms)
        if self._core.idles or (until_ms is None and self._core.active_count):
            raise _stuck(self.policy, self.workload, self._core.active_count, self._core.first_active)

    def update(self, time_ms: int, knobs: Knobs) -> None:
        """Change the knobs at an instant that has not been simulated yet; projected, legal knobs only."""
        if time_ms < self.now_ms:
            raise ConfigError(f"knob update at {time_ms} ms: the simulation is already at {self.now_ms} ms")
        self._core.update(time_ms, self._settings.plan(knobs))

    def snapshot(self) -> Snapshot:
        """Return the state at `now_ms`; the run may go on from it elsewhere, unchanged, on either engine."""
        state = self._core.save()
        return Snapshot(
            now_ms=state["now_ms"],
            knobs=self.knobs,
            jobs=tuple(self._job_view(values) for values in state["jobs"]),
            arrived=state["arrived"],
            places=state["places"],
            tick_anchor_ms=state["tick_anchor_ms"],
            dirty=state["dirty"],
            reviews_ms=state["reviews_ms"],
            job_ms=state["job_ms"],
            memories=state["memories"],
            completed_gpu_ms=state["completed_gpu_ms"],
            sampled=state["sampled"],
            estimator=self._estimator.fork() if self._estimator else None,
            crossing=state["crossing"],
        )

    def active(self, job_id: int) -> JobView | None:
        """Return a copy of a job that is pending or running now, None otherwise."""
        values = self._core.active(job_id)
        return None if values is None else self._job_view(values)

    # ---- results ---------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return self._core.now_ms

    @property
    def events(self) -> int:
        return self._core.events

    @property
    def preemptions(self) -> int:
        return self._core.preemptions

    @property
    def preemptions_max(self) -> int | None:
        """A run with more of them ends in `Thrashing`."""
        return self._core.preemptions_max

    @preemptions_max.setter
    def preemptions_max(self, most: int | None) -> None:
        self._core.limit_preemptions(most)

    @property
    def held_gpu_ms(self) -> int:
        return self._core.held_gpu_ms

    @property
    def held_before_gpu_ms(self) -> int:
        return self._core.held_before_gpu_ms

    @property
    def knobs(self) -> Knobs:
        return self._settings.known[self._core.knobs]

    @property
    def outcomes(self) -> Outcomes:
        """What became of the jobs so far, as columns."""
        return Outcomes(*self._core.outcomes())

    @property
    def records(self) -> list[Record]:
        """What became of each job so far, made anew each time: for many jobs, `outcomes` is faster."""
        return self.outcomes.records()

    @property
    def timeline(self) -> Timeline | None:
        """The events so far, None if they are not kept."""
        if self._timeline is not None:
            with _collector_paused():
                self._read_log(self._timeline.events)
        return self._timeline

    def _read_log(self, events: list[Event]) -> None:
        """Append what the core has logged since, column by column: an event at a time takes twice as long."""
        told = self._core.log_since(self._events, self._shares, self._gifts)
        times, kinds, jobs, details, beside, nodes, gpus = told[:7]
        given = told[7:]
        ids: list[int | None] = jobs.tolist()
        texts = [""] * len(ids)
        for place in np.flatnonzero(kinds == _REJECT).tolist():
            texts[place] = self._rejection(jobs[place])
        for place in np.flatnonzero(kinds == _KNOBS).tolist():
            ids[place], texts[place] = None, self._settings.known[details[place]].text()
        for place in np.flatnonzero(beside >= 0).tolist():
            texts[place] = f"beside {self.workload.facts[beside[place]].label}"
        for entry, cores, memory_mib in zip(*(column.tolist() for column in given), strict=True):
            texts[entry - self._events] = Share(cores, memory_mib).text()
        names = [_KINDS[kind] for kind in kinds.tolist()]
        shares = tuple(zip(nodes.tolist(), gpus.tolist(), strict=True))
        places = np.flatnonzero((kinds == _START) | (kinds == _PREEMPT) | (kinds == _RESIZE))
        held: list[Nodes] = [()] * len(ids)
        for place, some in zip(places.tolist(), _runs(shares, details[places]), strict=True):
            held[place] = some
        events.extend(map(Event._make, zip(times.tolist(), names, ids, held, texts, strict=True)))
        self._events += len(ids)
        self._shares += len(shares)
        self._gifts += len(given[0])

    def _rejection(self, job_id: int) -> str:
        home = self.cluster.home(self.workload.facts[job_id].vc)
        if home is None:
            return "no such virtual cluster"
        return f"wider than {self.cluster.vcs[home].gpus} GPUs"

    def _job_view(self, values: Sequence[Any]) -> JobView:
        facts = self.workload.facts[values[0]]
        job = JobView(values[0], facts, values[1], None)
        for name, value in zip(_JOB_FIELDS, values, strict=True):
            if name == "running":
                job.state = JobState.RUNNING if value else JobState.PENDING
            elif name == "share":
                job.share = None if value is None else Share(*value)
            else:
                setattr(job, name, value)
        return job


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Make many objects without a cycle: going over them again and again takes longer than making them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _runs(shares: Nodes, lengths: NDArray[np.int32]) -> Iterator[Nodes]:
    """Yield shares in runs of these lengths; equal runs are one object: there are few."""
    known: dict[Nodes, Nodes] = {}
    end = 0
    for length in lengths.tolist():
        first, end = end, end + length
        run = shares[first:end]
        yield known.setdefault(run, run)


def _job_tuple(job: JobView) -> tuple[Any, ...]:
    running = job.state is JobState.RUNNING
    return tuple(running if name == "running" else getattr(job, name) for name in _JOB_FIELDS)


def _homes(workload: Workload, cluster: Cluster) -> NDArray[np.int32]:
    if cluster.pooled:
        return np.zeros(len(workload), dtype=np.int32)
    numbers: dict[str | None, int] = {vc.name: home for home, vc in enumerate(cluster.vcs)}
    return np.array([numbers.get(facts.vc, -1) for facts in workload.facts], dtype=np.int32)


def _core_estimator(estimator: Estimator | None, workload: Workload) -> _core.Estimator | None:
    if estimator is None:
        return None
    if isinstance(estimator, OracleEstimator):
        if estimator.duration_ms is workload.duration_ms:
            return _core.oracle(Columns.of(workload).duration_ms)
        return _core.oracle(np.array(estimator.duration_ms, dtype=np.int64))
    return _core.learner(estimator, workload.facts)


def _stuck(policy: Policy, workload: Workload, count: int, first: int) -> ConfigError:
    facts = workload.facts[first]
    return ConfigError(
        f"policy {policy.name} leaves {count} jobs waiting for ever, "
        f"job {facts.label} with {facts.gpus} GPUs among them; the run ends here."
    )


# ---- many settings on one situation ------------------------------------------------------------------


class FastSituation:
    """A situation's state in the core, from which any number of settings are tried: a copy is a fork."""

    def __init__(
        self,
        snapshot: Snapshot,
        workload: Workload,
        cluster: Cluster,
        policy: Policy,
        environment: Environment,
        until_ms: int | None,
        preemptions_max: int | None = None,
    ) -> None:
        self._engine = FastEngine.resume(snapshot, workload, cluster, policy, environment)
        self._engine.preemptions_max = preemptions_max
        self._core = _core.Situation(self._engine._core, until_ms)
        self._deadlines = Deadlines.of(workload.facts)

    @property
    def asks_python(self) -> bool:
        """Whether the policy is one's own, which Python threads cannot try at once."""
        return not _is_built_in(self._engine.policy)

    def stays(self, candidates: Sequence[Knobs], threads: int | None = None) -> list[Stays | None]:
        """Return how long each job stays under each setting, in order; None where jobs thrash.

        The same on any number of threads.
        """
        engine = self._engine
        plans = [engine._settings.plan(knobs) for knobs in candidates]
        found: list[Stays | None] = []
        with engine._answerable():
            tried = self._core.stays(plans, threads or usable_cores())
        late = self._deadlines
        for ids, ages, lefts, idles, members, fair, sums, thrashes, stuck, first in tried:
            if stuck:
                raise _stuck(engine.policy, engine.workload, stuck, first)
            if thrashes:
                found.append(None)
                continue
            lost_ppm = None if late is None else late.lost_of(ids, ages, lefts)
            found.append(Stays(ages, idles, members, fair.astype(np.bool_), Totals(*sums), lost_ppm))
        return found


def usable_cores() -> int:
    """Return how many cores this process may use; a batch takes as many threads unless told."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
