"""Hypothesis strategies for whole simulations: small odd clusters, odd jobs, any policy, legal knobs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import reject
from hypothesis import strategies as st

from trimtab.cluster import PLACEMENTS, Cluster, Pace, Placement
from trimtab.errors import ConfigError
from trimtab.job import JobFacts, Service
from trimtab.knobs import Knob, Knobs, Space
from trimtab.policies.catalog import POLICIES, find_policy
from trimtab.policies.policy import Policy
from trimtab.profile import CUTS, Cuts, PairSpeeds, Profile
from trimtab.simulate.engine import Engine
from trimtab.simulate.state import Environment
from trimtab.simulate.workload import Estimator, OracleEstimator, Workload
from trimtab.site import PLAIN_SITE, Site

# Run times and gaps that meet on instants, thresholds and ends of safe times, and some that do not.
_SPANS_MS = (0, 1, 999, 7_000, 10_000, 15_000, 20_000, 30_000, 60_000, 61_003, 120_000, 250_001, 3_600_000)
_PROFILES = st.one_of(
    st.none(),
    st.builds(
        Profile, model=st.sampled_from("01123"), gmem_mib=st.sampled_from([None, 0, 9_000, 15_576, 15_577])
    ),
)
_PACES = st.lists(st.sampled_from([0, 1_999_999, 2_000_000, 2_000_001, 40_000_000]), min_size=1, max_size=4)
# Policies that are not for placement count.
NEED_NODES = ("lucid", "sensascale", "sensascale-plus", "synergy")
_GAPS_MS = (0, 0, 0, 0, 1, 5_000, 7_000, 10_000, 15_000, 30_000, 90_000, 600_000)


@dataclass(frozen=True)
class RestartCost:
    """A fixed cost and one per GPU: not the same for all gangs."""

    fixed_ms: int
    gpu_ms: int

    def __call__(self, gpus: int) -> int:
        return self.fixed_ms + self.gpu_ms * gpus


@dataclass
class LearningEstimator:
    """The mean of what had completed when it was last retrained: estimates that depend on the past."""

    seen_ms: int = 0
    count: int = 0
    mean_ms: int = 30_000
    trained_ms: int = 0

    def observe(self, facts: JobFacts, duration_ms: int, now_ms: int) -> None:
        self.seen_ms += duration_ms
        self.count += 1

    def retrain(self, now_ms: int, period_ms: int) -> bool:
        if now_ms - self.trained_ms < period_ms:
            return False
        self.trained_ms = now_ms
        self.mean_ms = self.seen_ms // max(self.count, 1) + 1
        return True

    def estimate_ms(self, job_id: int, facts: JobFacts, now_ms: int, history_weight: float) -> int:
        return max(1, self.mean_ms * (1 + job_id % 3) + round(1000 * history_weight))

    def fork(self) -> LearningEstimator:
        return replace(self)


@dataclass(frozen=True)
class Pairs:
    """Speeds of pairs from a small table by model; the mean speed of a model is 1, .9 or .8.

    A job without a model shares with nobody.
    """

    table_ppm: tuple[int, ...]

    def speeds_ppm(self, one: Profile, other: Profile) -> tuple[int, int]:
        at = 3 * _number(one) + _number(other)
        return self.table_ppm[at % len(self.table_ppm)], self.table_ppm[(at + 1) % len(self.table_ppm)]

    def score(self, profile: Profile, cuts: Cuts = CUTS) -> int:
        mean = (1.0, 0.9, 0.8)[_number(profile) % 3]
        return 2 if mean < cuts[0] else 1 if mean < cuts[1] else 0

    def fits(self, one: Profile, other: Profile) -> bool:
        known = one.model is not None and other.model is not None
        return known and (_number(one), _number(other)) not in ((0, 3), (3, 0))


def _number(profile: Profile) -> int:
    return int(profile.model or "2")


_PAIRS = st.lists(st.sampled_from([1_000_000, 900_000, 700_001, 333_333]), min_size=1, max_size=5).map(
    lambda speeds: Pairs(tuple(speeds))
)


@dataclass(frozen=True)
class Steps:
    """A forecast of submissions by periods of ten minutes; the last holds for ever."""

    first_ms: int
    jobs_ppm: tuple[int, ...]

    def at(self, now_ms: int) -> int:
        return self.jobs_ppm[min(max((now_ms - self.first_ms) // 600_000, 0), len(self.jobs_ppm) - 1)]

    def next_ms(self, now_ms: int) -> int | None:
        step = max((now_ms - self.first_ms) // 600_000, 0) + 1
        return self.first_ms + 600_000 * step if step < len(self.jobs_ppm) else None

    def supposing(self, now_ms: int, coming_ms: Sequence[int]) -> Steps:
        return self


@dataclass(frozen=True)
class Case:
    """One simulation, ready to be run in several ways."""

    workload: Workload
    cluster: Cluster
    policy_name: str
    knobs: Knobs
    placement: Placement
    restart: RestartCost
    cold_start_ms: int
    estimates_ms: tuple[int, ...] | None  # None: learnt from completions
    completed_gpu_ms: tuple[int, ...]
    updates: tuple[tuple[int, Knobs], ...] = ()
    speeds: PairSpeeds | None = None
    pace: Pace | None = None
    site: Site = PLAIN_SITE

    @property
    def policy(self) -> Policy:
        return find_policy(self.policy_name)

    @property
    def environment(self) -> Environment:
        told = self.estimates_ms
        estimator: Estimator = LearningEstimator() if told is None else OracleEstimator(told)
        return Environment(
            placement=self.placement,
            restart_ms=self.restart,
            cold_start_ms=self.cold_start_ms,
            estimator=estimator,
            completed_gpu_ms=self.completed_gpu_ms,
            speeds=self.speeds,
            pace=self.pace,
            site=self.site,
        )

    def engine(self, *, by_the_book: bool = False, policy: Policy | None = None) -> Engine:
        """Return an engine that has not run, its updates entered."""
        engine = Engine(
            self.workload,
            self.cluster,
            policy or self.policy,
            self.knobs,
            self.environment,
            timeline=True,
            by_the_book=by_the_book,
        )
        for time_ms, knobs in self.updates:
            engine.update(time_ms, knobs)
        return engine

    def done(self, **ways: Any) -> Engine:
        """Return an engine that has run to the end; a case without an end is no example."""
        engine = self.engine(**ways)
        try:
            engine.run()
        except ConfigError as error:
            if "take turns" in str(error):
                reject()
            raise
        return engine


def values(knob: Knob) -> st.SearchStrategy[Any]:
    """Return legal values of a knob, small ones often: jobs here are short."""
    match knob.kind:
        case "choice":
            return st.sampled_from(knob.choices)
        case "bool":
            return st.booleans()
        case "list":
            low = int(knob.low)
            one = st.one_of(st.sampled_from([low, 2 * low, 3600]), st.integers(low, 60 * low))
            return st.lists(one, max_size=3).map(lambda items: tuple(sorted(set(items))))
        case "int":
            low, high = int(knob.low), int(min(knob.high, knob.low + 600))
            near = st.sampled_from(sorted({low, min(high, low + 7), min(high, low + 60), high}))
            return st.one_of(near, st.integers(low, high))
        case "fraction":
            low = float(knob.low)
            some = [low, min(knob.high, low + 0.333_333), min(knob.high, 1.0), min(knob.high, 2.5), knob.high]
            return st.sampled_from(some)


def settings(space: Space) -> st.SearchStrategy[Knobs]:
    """Return legal, canonical settings of a space."""
    drawn = st.fixed_dictionaries({}, optional={knob.name: values(knob) for knob in space.knobs})
    if "gsc" in space.by_name:  # else hardly any jobs share GPUs
        drawn = st.builds(
            lambda some, more: {**some, **more}, drawn, st.sampled_from([{}, _EAGER, _EAGER_ALONE])
        )
    return drawn.map(space.project)


_EAGER = {"gsc": 4, "prio_ratio": math.inf, "share_off_below": 0.0, "pack_preference": "pack_first"}
_EAGER_ALONE = {**_EAGER, "prof_nodes": 0}


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Return one pool, or two or three virtual clusters with nodes of different sizes."""
    size = st.tuples(st.integers(1, 4), st.integers(1, 8))
    if draw(st.booleans()) or draw(st.booleans()):
        return Cluster.pool(*draw(size))
    sizes = draw(st.lists(size, min_size=2, max_size=3))
    return Cluster.partitioned([(f"vc{i}", nodes, gpus) for i, (nodes, gpus) in enumerate(sizes)])


@st.composite
def workloads(draw: st.DrawFn, cluster: Cluster, jobs_max: int = 30, crowded: bool = False) -> Workload:
    """Return jobs that often meet on one instant; some are wider than any cluster or belong to none.

    Crowded ones come within seconds, and most are narrow.
    """
    widest = max(vc.gpus for vc in cluster.vcs)
    per_node = cluster.vcs[0].gpus_per_node
    gpus = st.one_of(
        st.sampled_from([1, 1, 2, per_node, widest, widest + 1]), st.integers(1, min(widest, 12))
    )
    span = st.one_of(st.sampled_from(_SPANS_MS), st.integers(0, 200_000))
    gap = st.one_of(st.sampled_from(_GAPS_MS), st.integers(0, 20_000))
    if crowded:
        gpus = st.one_of(st.sampled_from([1, 1, 1, 1, min(2, per_node)]), gpus)
        span = st.one_of(st.sampled_from(_SPANS_MS[4:]), span)
        gap = st.one_of(st.sampled_from([0, 0, 1, 5_000]), gap)
    vc = st.sampled_from([*[one.name for one in cluster.vcs] * 4, "elsewhere"])
    skew = st.sampled_from([0, 100_000, 300_000, 300_001, 717_000, 1_000_000])
    speed = st.sampled_from([1_000_000, 800_000, 333_333, 700_001, 70_000, 1])
    rows = draw(st.lists(st.tuples(gap, gpus, span, vc, skew, speed), max_size=jobs_max))
    now_ms = draw(st.sampled_from([0, 0, 3_599_990, -5_000]))
    facts, durations = [], []
    for i, (gap_ms, width, span_ms, home, skew_ppm, spread_ppm) in enumerate(rows):
        now_ms += gap_ms
        if spread_ppm == 1:  # a million times slower: only for jobs that end before the sun does
            spread_ppm = 1 if span_ms < 100 else 999_999
        members = draw(st.sampled_from([1, 1, *(n for n in (2, 4) if width % n == 0)]))
        profile = draw(_PROFILES)
        facts.append(
            JobFacts(f"j{i}", now_ms, width, home, f"u{i % 3}", None, skew_ppm, spread_ppm, members, profile)
        )
        durations.append(span_ms)
    return Workload(facts, durations)


@st.composite
def cases(
    draw: st.DrawFn,
    policies: Sequence[str] = tuple(POLICIES),
    *,
    placements: Sequence[Placement] = PLACEMENTS,
    updates_max: int = 0,
    jobs_max: int = 30,
    told: bool | None = None,
) -> Case:
    """Return a whole simulation.

    Args:
        policies: Names to choose from.
        placements: Placement rules to choose from.
        updates_max: How many hot updates at most.
        jobs_max: How many jobs at most.
        told: Whether estimates are given, or learnt from completions; None for either.
    """
    # Tiresias and Lucid have most of the state, so they are drawn often.
    placed = [one for one in policies if one not in NEED_NODES or set(placements) != {"count"}]
    often = [one for one in ("tiresias", "lucid") if one in placed]
    name = draw(st.sampled_from([*placed, *(often * 3)]))
    placements = [one for one in placements if name not in NEED_NODES or one != "count"]
    cluster = draw(clusters())
    workload = draw(workloads(cluster, jobs_max, crowded=name in NEED_NODES))
    space = find_policy(name).space
    first_ms = workload.facts[0].submit_ms if len(workload) else 0
    moments = st.one_of(
        st.integers(0, 900_000), st.sampled_from(_GAPS_MS), st.sampled_from([0, *_times(workload, first_ms)])
    )
    updates = draw(st.lists(st.tuples(moments, settings(space)), max_size=updates_max))
    guess = st.one_of(st.none(), st.sampled_from([1, 10_000, 3_600_000]))
    guesses = draw(st.lists(guess, min_size=len(workload), max_size=len(workload)))
    estimates = tuple(
        max(1, truth if guess_ms is None else guess_ms)
        for truth, guess_ms in zip(workload.duration_ms, guesses, strict=True)
    )
    is_told = draw(st.booleans()) if told is None else told
    return Case(
        workload=workload,
        cluster=cluster,
        policy_name=name,
        knobs=draw(settings(space)),
        placement=draw(st.sampled_from(placements)),
        restart=draw(st.sampled_from([RestartCost(0, 0), RestartCost(62_000, 0), RestartCost(1_001, 337)])),
        cold_start_ms=draw(st.sampled_from([0, 0, 1_501])),
        estimates_ms=estimates if is_told else None,
        completed_gpu_ms=tuple(draw(st.lists(st.integers(0, 300_000), max_size=5))),
        updates=tuple(sorted(((first_ms + at, knobs) for at, knobs in updates), key=lambda one: one[0])),
        speeds=draw(_PAIRS) if name == "lucid" and draw(st.integers(0, 9)) else None,
        pace=Steps(first_ms, tuple(draw(_PACES))) if name == "lucid" and draw(st.booleans()) else None,
    )


def _times(workload: Workload, first_ms: int) -> list[int]:
    """Return moments at which something is likely to happen, after the first submission."""
    submits = [one.submit_ms - first_ms for one in workload.facts]
    ends = [at + span for at, span in zip(submits, workload.duration_ms, strict=True) if at + span < math.inf]
    return [*submits, *ends]


def plain_case(workload: Workload, policy_name: str, values: dict[str, Any]) -> Case:
    """Return a case on one node of 4 GPUs, where resuming costs nothing."""
    return Case(
        workload=workload,
        cluster=Cluster.pool(1, 4),
        policy_name=policy_name,
        knobs=find_policy(policy_name).space.project(values),
        placement="consolidated",
        restart=RestartCost(0, 0),
        cold_start_ms=0,
        estimates_ms=tuple(workload.duration_ms),
        completed_gpu_ms=(),
    )


_SLACKS_MS = (-1, 0, 1, 60_000, 299_999, 600_000, 1_200_000, 2_400_001, 7_200_000, 14_400_000)


@st.composite
def deadline_cases(draw: st.DrawFn, policies: Sequence[str], **how: Any) -> Case:
    """Return a simulation, see `cases`, of jobs that are wanted by some time, or not."""
    case = draw(cases(policies, **how))
    facts = []
    for one, span_ms in zip(case.workload.facts, case.workload.duration_ms, strict=True):
        count = draw(st.sampled_from([0, 1, 1, 2, 4]))
        slacks_ms = draw(st.lists(st.sampled_from(_SLACKS_MS), min_size=count, max_size=count, unique=True))
        service = Service(
            "best" if not count else "strict" if count == 1 else "soft",
            tuple(one.submit_ms + span_ms + slack_ms for slack_ms in sorted(slacks_ms)),
            draw(st.sampled_from([(10, 8, 5, 2)[:count], ()])),
        )
        facts.append(one._replace(service=service))
    return replace(case, workload=Workload(facts, case.workload.duration_ms))
