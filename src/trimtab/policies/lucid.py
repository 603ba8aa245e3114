"""Lucid: profile first, then run for good, two jobs to a GPU where that costs little [Hu et al., ASPLOS'23].

A job with few GPUs first runs in a small partition, the profiler, for a short time; many jobs end there. What
goes on is started again, from scratch, by predicted GPU time, and may share its GPUs with one running job.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from trimtab.cluster import ClusterView, FreeMap, VirtualCluster
from trimtab.curve import FULL_SPEED_PPM
from trimtab.job import JobView
from trimtab.knobs import Knob, Knobs, Space, Value
from trimtab.policies.policy import BACKFILL, Decision, Plan, Start, WholePass, ppm
from trimtab.profile import CUTS, Profile

MEMORY_MIB = 24_576  # of the GPU that Lucid measured on
MORE_WHEN_WAITING = 10  # jobs for the profiler: above, one more node joins
LESS_WHEN_WAITING = 5  # below, it leaves
FORECAST_BINS = 5  # of ten minutes, over which a forecast is a mean

_NOTHING_KNOWN = Profile()


def _settle(values: dict[str, Any]) -> dict[str, Value]:
    """Put the cuts in order, and give knobs that make no difference their default; memory is a fact."""
    values["medium_below"] = max(values["medium_below"], values["jumbo_below"])
    if values["prof_nodes"] == 0:
        values.update(t_prof=200, prof_factor=4, prof_autoscale=False)
    if values["gsc"] == 0:
        values.update(
            jumbo_below=CUTS[0],
            medium_below=CUTS[1],
            prio_ratio=2.0,
            share_off_below=2.0,
            pack_preference="free_first",
            partner="best",
        )
    return values


SPACE = Space(
    knobs=(
        Knob(
            name="prof_nodes",
            kind="int",
            default=2,
            low=0,
            high=8,
            unit="nodes",
            trades="more: short jobs return sooner, long ones have fewer GPUs; 0: no profiler",
            takes_effect="next pass",
            in_flight="nobody is moved: nodes come when they are idle, and leave when their profiles end",
        ),
        Knob(
            name="t_prof",
            kind="int",
            default=200,
            low=20,
            high=1200,
            unit="s",
            trades="longer: more jobs end in the profiler, the others lose more work",
            takes_effect="new placements",
            in_flight="running profiles keep the deadline they started with",
        ),
        Knob(
            name="prof_factor",
            kind="int",
            default=4,
            low=1,
            high=8,
            trades="larger: wider gangs are profiled, up to prof_nodes x prof_factor GPUs",
            takes_effect="next pass",
            in_flight="jobs that wait for the profiler and are too wide go to the main queue at once",
        ),
        Knob(
            name="prof_autoscale",
            kind="bool",
            default=False,
            trades="on: one more profiler node joins above 10 waiting jobs and stays while 5 wait",
            takes_effect="next pass",
            in_flight="as prof_nodes",
        ),
        Knob(
            name="gsc",
            kind="int",
            default=2,
            low=0,
            high=4,
            trades="largest sum of the scores (0 tiny, 1 medium, 2 jumbo) of a pair: larger: less waiting, "
            "slower pairs; 0: no sharing",
            takes_effect="new placements",
            in_flight="pairs stay",
        ),
        Knob(
            name="jumbo_below",
            kind="fraction",
            default=CUTS[0],
            low=0.5,
            high=1,
            trades="mean speed beside others below which a job is jumbo; lower: more pairs",
            takes_effect="new placements",
            in_flight="scores of all jobs are taken anew; pairs stay",
        ),
        Knob(
            name="medium_below",
            kind="fraction",
            default=CUTS[1],
            low=0.5,
            high=1,
            trades="the same for medium, at least jumbo_below",
            takes_effect="new placements",
            in_flight="as jumbo_below",
        ),
        Knob(
            name="prio_ratio",
            kind="fraction",
            default=2.0,
            low=1,
            high=math.inf,
            trades="a newcomer's GPU time at most so many times that of its partner: larger: more pairs, "
            "short jobs are slowed down by long ones",
            takes_effect="new placements",
            in_flight="pairs stay",
        ),
        Knob(
            name="share_off_below",
            kind="fraction",
            default=2.0,
            low=0,
            high=50,
            unit="jobs/10min",
            trades="no sharing while the forecast is not above this; higher: faster jobs in quiet hours, "
            "longer queues; 0: always sharing",
            takes_effect="new placements",
            in_flight="pairs stay",
        ),
        Knob(
            name="pack_preference",
            kind="choice",
            default="free_first",
            choices=("free_first", "pack_first", "forecast"),
            trades="pack_first keeps GPUs free for later; free_first slows nobody down without need; "
            "forecast: pack_first when more jobs are forecast for 50 minutes than GPUs are free",
            takes_effect="new placements",
            in_flight="pairs stay",
        ),
        Knob(
            name="partner",
            kind="choice",
            default="best",
            choices=("best", "first"),
            trades="best: the pair that keeps most speed; first: the one that runs longest",
            takes_effect="new placements",
            in_flight="pairs stay",
        ),
        Knob(
            name="mem_limit",
            kind="int",
            default=MEMORY_MIB,
            low=1024,
            high=1_048_576,
            unit="MiB",
            trades="memory of a GPU, above what both jobs of a pair use; a fact, not to be tuned",
            takes_effect="new placements",
            in_flight="pairs stay",
        ),
        Knob(
            name="backfill",
            kind="choice",
            default="skip",
            choices=BACKFILL.choices,
            trades=BACKFILL.trades,
            takes_effect=BACKFILL.takes_effect,
            in_flight=BACKFILL.in_flight,
        ),
        Knob(
            name="estimate_period",
            kind="int",
            default=604_800,
            low=3600,
            high=2_592_000,
            unit="s",
            trades="shorter: fresher estimates, more training",
            takes_effect="next arrival",
            in_flight="jobs that wait are estimated anew at the next training",
        ),
    ),
    settle=_settle,
)


@dataclass(frozen=True, slots=True)
class Layout:
    """Which nodes profile. It follows from who runs where, so a node changes sides when it is idle.

    Attributes:
        profiler: Open to jobs that are to be profiled. main: open to all others.
        limit: GPUs up to which a job that has never run is profiled.
    """

    profiler: frozenset[int]
    main: frozenset[int]
    limit: int

    @classmethod
    def of(cls, view: ClusterView, knobs: Knobs) -> Layout:
        """Return the present layout: first nodes that profile already, then idle ones, each last to first."""
        profiling = {node for job in view.running if job.until_ms is not None for node, _ in job.nodes}
        held = {node for job in view.running if job.until_ms is None for node, _ in job.nodes}
        wanted = _room(view, knobs.integer("prof_nodes"))
        width = min(knobs.integer("prof_factor"), view.vc.gpus_per_node)
        more = wanted
        if knobs["prof_autoscale"] and wanted and _room(view, wanted + 1) > wanted:
            waiting = sum(_is_new(job) and job.gpus <= wanted * width for job in view.pending)
            is_larger = len(profiling) > wanted
            more += waiting > MORE_WHEN_WAITING or (is_larger and waiting >= LESS_WHEN_WAITING)
        able = sorted(set(range(view.vc.nodes)) - held, key=lambda node: (node not in profiling, -node))
        chosen = frozenset(able[:more])
        main = frozenset(range(view.vc.nodes)) - chosen - profiling
        return cls(chosen, main, min(len(chosen), wanted) * width)

    def is_profiled(self, job: JobView) -> bool:
        """Whether a waiting job goes to the profiler: it has never run, and is narrow enough."""
        return _is_new(job) and job.gpus <= self.limit


def _room(view: ClusterView, nodes: int) -> int:
    """Return how many of so many nodes may profile: every waiting gang must fit on the others."""
    size = view.vc.gpus_per_node
    widest = max((job.gpus for job in view.pending), default=0)
    return max(0, min(nodes, view.vc.nodes - 1, view.vc.nodes - -(-widest // size)))


def _is_new(job: JobView) -> bool:
    return job.first_start_ms is None


def _only(free: FreeMap, nodes: Iterable[int]) -> FreeMap:
    """Return a map on which nothing is free but on these nodes."""
    kept = set(nodes)
    gpus = [has if node in kept else 0 for node, has in enumerate(free.free)]
    return FreeMap(gpus, free.gpus_per_node, free.placement)


def priority(job: JobView) -> int:
    """Return a job's place in the main queue, lowest first: predicted GPU-ms of one member."""
    assert job.estimate_ms is not None
    return job.estimate_ms * job.member_gpus


class Lucid(WholePass):
    """Profiles narrow jobs, then runs shortest GPU time first; two jobs may share their GPUs."""

    name: ClassVar[str] = "lucid"
    space: ClassVar[Space] = SPACE

    def settings(self, knobs: Knobs) -> Plan:
        """Return how often estimates are made anew."""
        return Plan(
            needs_estimates=True,
            needs_nodes=True,
            retrain_ms=knobs.integer("estimate_period") * 1000,
            rescore=True,
        )

    def decide(self, view: ClusterView, knobs: Knobs) -> list[Decision]:
        """Return what to start in the profiler, then for good."""
        layout = Layout.of(view, knobs)
        new = [job for job in view.pending if layout.is_profiled(job)]
        queue = [job for job in view.pending if not layout.is_profiled(job)]
        profiles = _profile(_only(view.free, layout.profiler), new, view.now_ms + _t_prof_ms(knobs))
        return [*profiles, *Binder(view, knobs, _only(view.free, layout.main)).starts(queue)]

    def next_review_ms(self, view: ClusterView, knobs: Knobs) -> int | None:
        """Return when the forecast changes next, if jobs wait and something depends on it."""
        depends = knobs.fraction("share_off_below") > 0 or knobs.choice("pack_preference") == "forecast"
        if (
            view.pace is None
            or view.speeds is None
            or not knobs["gsc"]
            or not depends
            or not len(view.pending)
        ):
            return None
        return view.pace.next_ms(view.now_ms)


def _t_prof_ms(knobs: Knobs) -> int:
    return knobs.integer("t_prof") * 1000


def _profile(free: FreeMap, jobs: Sequence[JobView], until_ms: int) -> list[Decision]:
    """Start profiles, fewest GPUs first; the first job that does not fit stops the others."""
    starts: list[Decision] = []
    for job in sorted(jobs, key=lambda job: (job.gpus, job.id)):
        nodes = free.place(job.gpus, consolidate=True)
        if nodes is None:
            break
        free.take(nodes)
        starts.append(Start(job.id, nodes, until_ms=until_ms))
    return starts


class Binder:
    """One pass over the main queue: GPUs of its own for a job, or those of a running one."""

    def __init__(self, view: ClusterView, knobs: Knobs, free: FreeMap) -> None:
        self.knobs = knobs
        self.free = free
        self.vc: VirtualCluster = view.vc
        self.now_ms = view.now_ms
        self.speeds = view.speeds if self._shares(view) else None
        self.packs_first = self._packs_first(view)
        # Running jobs that have their GPUs for themselves, in order of their starts.
        self.single: list[tuple[int, int, JobView]] = sorted(
            (job.started_ms or 0, job.id, job)
            for job in view.running
            if job.until_ms is None and job.partner is None and len(job.nodes) == 1
        )

    def _shares(self, view: ClusterView) -> bool:
        below_ppm = ppm(self.knobs.fraction("share_off_below"))
        busy = below_ppm == 0 or view.pace is None or view.pace.at(view.now_ms) > below_ppm
        return busy and self.knobs.integer("gsc") > 0

    def _packs_first(self, view: ClusterView) -> bool:
        match self.knobs.choice("pack_preference"):
            case "forecast":
                coming_ppm = 0 if view.pace is None else FORECAST_BINS * view.pace.at(view.now_ms)
                return coming_ppm > sum(self.free.free) * FULL_SPEED_PPM
            case preference:
                return preference == "pack_first"

    def starts(self, queue: Iterable[JobView]) -> list[Decision]:
        """Go through the queue once; what does not fit is skipped, or stops a strict pass."""
        found: list[Decision] = []
        for job in sorted(queue, key=lambda job: (priority(job), job.id)):
            tries = (self._beside, self._alone) if self.packs_first else (self._alone, self._beside)
            start = tries[0](job) or tries[1](job)
            if start is not None:
                found.append(start)
            elif self.knobs.choice("backfill") == "strict":
                break
        return found

    def _alone(self, job: JobView) -> Decision | None:
        nodes = self.free.place(job.gpus)
        if nodes is None:
            return None
        self.free.take(nodes)
        if len(nodes) == 1:
            insort(self.single, (self.now_ms, job.id, job))
        return Start(job.id, nodes)

    def _beside(self, job: JobView) -> Decision | None:
        """Start a job on the GPUs of a running one with as many, by the binder's rules."""
        if self.speeds is None or job.gpus > self.vc.gpus_per_node:
            return None
        fits = [entry for entry in self.single if self._goes(job, entry[2])]
        if not fits:
            return None
        is_best = self.knobs.choice("partner") == "best"
        chosen = min(fits, key=lambda entry: -self._kept_ppm(job, entry[2])) if is_best else fits[0]
        self.single.remove(chosen)
        return Start(job.id, beside=chosen[1])

    def _goes(self, job: JobView, other: JobView) -> bool:
        assert self.speeds is not None
        if (job.gpus, job.member_gpus) != (other.gpus, other.member_gpus):
            return False
        mine, its = _profile_of(job), _profile_of(other)
        cuts = self.knobs.fraction("jumbo_below"), self.knobs.fraction("medium_below")
        ratio = self.knobs.fraction("prio_ratio")
        return (
            (mine.gmem_mib or 0) + (its.gmem_mib or 0) < self.knobs.integer("mem_limit")
            and self.speeds.score(mine, cuts) + self.speeds.score(its, cuts) <= self.knobs.integer("gsc")
            and self.speeds.fits(mine, its)
            and (math.isinf(ratio) or priority(job) * FULL_SPEED_PPM <= ppm(ratio) * priority(other))
        )

    def _kept_ppm(self, job: JobView, other: JobView) -> int:
        """Return what both speeds would be together."""
        assert self.speeds is not None
        return sum(self.speeds.speeds_ppm(_profile_of(job), _profile_of(other)))


def _profile_of(job: JobView) -> Profile:
    return job.facts.profile or _NOTHING_KNOWN
