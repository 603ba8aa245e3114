"""The lines of an evaluation: ways of choosing the settings, and what each of them may know."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from trimtab.cluster import Cluster
from trimtab.control.advisor import SURE, Advisor, BackgroundAdvisor, CausalAdvisor, PoolingAdvisor, record_of
from trimtab.control.guardrails import Guardrails, Tenure, guards, judge
from trimtab.control.rounds import Round
from trimtab.errors import ConfigError
from trimtab.job import JobState
from trimtab.knobs import Knobs
from trimtab.policies.catalog import find_policy
from trimtab.search.causal import Graph
from trimtab.search.causal_search import PAPER as PAPER_RULES
from trimtab.search.causal_search import Rules
from trimtab.search.evidence import Pooling
from trimtab.search.futures import snapshot_at
from trimtab.search.generation import PAPER, PLUS, Forecasting, Generation, digest_of
from trimtab.search.scene import Scene
from trimtab.search.space import SearchSpace
from trimtab.search.spaces import search_space
from trimtab.search.tuner import Search, Tuning, search
from trimtab.simulate.engines import Simulation
from trimtab.simulate.run import World
from trimtab.simulate.state import Environment
from trimtab.simulate.trials import Trials
from trimtab.simulate.whatif import Situation
from trimtab.simulate.workload import Workload
from trimtab.studies.futures import last_hour_again, oracle_future
from trimtab.studies.watch import Watch
from trimtab.traces.trace import DAY_MS, LONGEST_MS, Trace
from trimtab.world import Seeds, wall_s

LINES = {
    "fixed": "the policy's default settings, never changed",
    "fixed-week": "tuned once, on the seven days before the window replayed from an empty cluster",
    "selftune": "tuned every hour on the last hour's jobs",
    "trimtab": "tuned every hour on one forecast hour with a causal model, as AutoSched's paper has it",
    "trimtab-plus": "tuned every hour by what several forecast futures an hour say over many hours",
    "oracle": "tuned every hour knowing the true future: what perfect forecasts would give this search",
}

# Lines that begin with the setting tuned on the week before; the others begin with the default.
FROM_WEEK = ("fixed-week", "trimtab", "trimtab-plus", "oracle")

# Settings that did best at the last search are the first to be tried at the next.
_LEADERS = 4

_HOUR_MS = 3_600_000
_BACKGROUND_MIN_MS = 60_000
BUDGET_MAX = 1_000_000

POOLING = Pooling()

Progress = Callable[[str, float], None]

# Is told what happens, record by record, as a journal holds it.
Note = Callable[[Mapping[str, Any]], None]


def silent(record: Mapping[str, Any]) -> None:
    """Write nothing down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How an evaluation is done; times in ms.

    Attributes:
        tuning: Objective, sampler and budget of each search.
        rails: Gain threshold and dwell of selftune and oracle; 1 takes any gain.
        interval_ms: Time between searches.
        arrivals_ms: How far into the future arrivals are taken (oracle).
        run_on_ms: How long a candidate's simulation runs on (oracle); the next hour alone is myopic.
        paper, plus: What the lines trimtab and trimtab-plus forecast.
        paper_gain_min: The gain that trimtab changes for.
        belief_min: The least belief in a forecast from the last hour that is acted on: not where that hour is
            like nothing seen before, in an outage, or with a history of less than a day.
        aggregate: Whether trimtab may search on merged jobs.
        paper_background_ms, plus_background_ms: Time between the light rounds that the two make between
            searches; None for none.
        return_ms: Time for which trimtab-plus lets no knob go back to a value that it left.
        sure: Standard errors that trimtab-plus takes off a gain before it believes it.
        rules: How trimtab uses its causal model.
        realised: Whether every change is tried on the true future afterwards; no line gets to know it.
    """

    tuning: Tuning
    rails: Guardrails
    interval_ms: int = _HOUR_MS
    arrivals_ms: int = DAY_MS
    run_on_ms: int = 2 * DAY_MS
    paper: Forecasting = PAPER
    plus: Forecasting = PLUS
    paper_gain_min: float = 1.1
    belief_min: float = 0.6
    aggregate: bool = True
    paper_background_ms: int | None = 300_000
    plus_background_ms: int | None = None
    pooling: Pooling = POOLING
    return_ms: int = 3 * _HOUR_MS
    sure: float = SURE
    rules: Rules = PAPER_RULES
    realised: bool = False

    def __post_init__(self) -> None:
        for option, time_ms in (
            ("interval", self.interval_ms),
            ("arrivals-horizon", self.arrivals_ms),
            ("run-on", self.run_on_ms),
        ):
            if time_ms > LONGEST_MS:
                raise ConfigError(f"{option} = {time_ms} ms: at most {LONGEST_MS} ms; nothing was run.")
            if time_ms <= 0:
                raise ConfigError(f"{option} must be longer than nothing; nothing was run.")
        if self.tuning.budget > BUDGET_MAX:
            raise ConfigError(
                f"budget = {self.tuning.budget}: at most {BUDGET_MAX:,} simulations; nothing was run."
            )
        for background_ms in (self.paper_background_ms, self.plus_background_ms):
            if background_ms is not None and background_ms < _BACKGROUND_MIN_MS:
                raise ConfigError(
                    f"background = {background_ms / 1000:g} s: it must be at least "
                    f"{_BACKGROUND_MIN_MS / 1000:g} s, or off; nothing was run."
                )


@dataclass(frozen=True)
class Stage:
    """What all lines of an evaluation share.

    Attributes:
        whole: The trace with what is before the window. trace: The window's jobs.
    """

    whole: Trace
    trace: Trace
    workload: Workload
    cluster: Cluster
    policy: str
    base: Knobs
    world: World
    plan: Plan
    trials: Trials
    start_ms: int
    end_ms: int
    progress: Progress
    note: Note

    @property
    def hours(self) -> range:
        """The instants of the main rounds."""
        return range(self.start_ms, self.end_ms, self.plan.interval_ms)

    def between(self, background_ms: int) -> Iterator[int]:
        """Yield the instants at which so much time has passed since a main round, or a multiple of it."""
        for main_ms in self.hours:
            next_ms = min(main_ms + self.plan.interval_ms, self.end_ms)
            yield from range(main_ms + background_ms, next_ms, background_ms)

    @property
    def environment(self) -> Environment:
        return self.world.environment(self.workload)

    @property
    def space(self) -> SearchSpace:
        has_pairs = bool(self.world.speed_table().pairs)
        return search_space(
            find_policy(self.policy), self.base, self.world.placement, self.cluster, has_pairs
        )

    def search(
        self, situation: Situation, running: Knobs, name: Sequence[object], first: Sequence[Knobs]
    ) -> Search:
        """Search one situation with the evaluation's tuning."""
        tuning = self.plan.tuning
        return search(
            lambda knobs: [one.cost for one in self.trials.measure(situation, knobs, tuning.objective)],
            self.space,
            running,
            tuning,
            Seeds(self.world.seed + _number(name)),
            first,
        )


def _number(name: Sequence[object]) -> int:
    """Return a number that differs by line and hour, so that each search has streams of its own."""
    return int(Seeds(0).stream("search", *name).integers(1 << 40))


@dataclass(frozen=True)
class Week:
    """What a search on the week before the window found.

    Attributes:
        knobs: The best setting. costs: What each setting tried costs, in s, the week replayed.
        note: What it rests on, for people. search_s: The seconds it took.
    """

    knobs: Knobs
    costs: Mapping[Knobs, float]
    note: str
    search_s: float = 0.0


class Chooser(Protocol):
    """Chooses settings, round after round."""

    @property
    def instants(self) -> Sequence[int]:
        """When it wants to be asked, ascending, ms."""
        ...

    def choose(self, engine: Simulation, now_ms: int, tenure: Tenure) -> Round:
        """Return the record of one round, for a cluster that has run up to an instant."""
        ...


def choosing(stage: Stage, line: str, week: Week | None) -> Chooser | None:
    """Return how a line chooses its settings; None if it never changes them."""
    if line == "selftune":
        return Retuning(stage, line, _last_hour)
    if line == "oracle":
        return Retuning(stage, line, true_situation)
    if line in ("trimtab", "trimtab-plus"):
        return _forecasted(stage, line, week)
    return None


# ---- lines without a forecast --------------------------------------------------------------------


def _last_hour(stage: Stage, engine: Simulation, now_ms: int) -> Situation:
    plan = stage.plan
    return last_hour_again(engine, now_ms, stage.workload, stage.policy, stage.environment, plan.interval_ms)


def true_situation(stage: Stage, engine: Simulation, now_ms: int) -> Situation:
    """Return what will really happen from an instant on, as far as the plan looks."""
    plan = stage.plan
    return oracle_future(
        engine, now_ms, stage.workload, stage.policy, stage.environment, plan.arrivals_ms, plan.run_on_ms
    )


@dataclass
class Retuning:
    """Searches one future that it is given, and changes for any gain that reaches the plan's threshold."""

    stage: Stage
    line: str
    future: Callable[[Stage, Simulation, int], Situation]
    leaders: list[Knobs] = field(default_factory=list)

    @property
    def instants(self) -> Sequence[int]:
        return self.stage.hours

    def choose(self, engine: Simulation, now_ms: int, tenure: Tenure) -> Round:
        began = wall_s()
        stage, running = self.stage, engine.knobs
        situation = self.future(stage, engine, now_ms)
        count = (now_ms - stage.start_ms) // stage.plan.interval_ms
        found = stage.search(situation, running, [self.line, count], self.leaders)
        if not found.idle:
            self.leaders = found.leaders(_LEADERS)
        verdict = judge(running, tenure, found.best, found.gain, stage.plan.rails, found.costs[running])
        states = [job.state for job in situation.snapshot.jobs]
        record = {
            "futures": digest_of([situation]),
            "guards": guards(tenure, found.gain, stage.plan.rails),
            **record_of(found, stage.space),
        }
        return Round(
            time_s=situation.snapshot.now_ms / 1000,
            knobs_before=running,
            best=found.best,
            verdict=verdict,
            gain=found.gain,
            cost_running=found.costs[running],
            cost_best=found.costs[found.best],
            trials=found.simulated,
            pending=states.count(JobState.PENDING),
            running=states.count(JobState.RUNNING),
            arrivals=len(situation.workload) - len(states),
            search_s=wall_s() - began,
            record=record,
        )


# ---- forecast lines ------------------------------------------------------------------------------


def _forecasted(stage: Stage, line: str, week: Week | None) -> Forecasted:
    plan, seeds = stage.plan, Seeds(stage.world.seed)
    how, background_ms = plan.plus, plan.plus_background_ms
    if line == "trimtab":
        how, background_ms = plan.paper, plan.paper_background_ms
    generation = Generation(how, seeds)
    rails = replace(plan.rails, belief_min=plan.belief_min)
    light = BackgroundAdvisor(generation, stage.trials, plan.tuning, rails, seeds)
    return Forecasted(stage, generation, _advisor(stage, line, week, generation), light, background_ms)


def _advisor(stage: Stage, line: str, week: Week | None, generation: Generation) -> Advisor:
    plan, seeds = stage.plan, Seeds(stage.world.seed)
    if line == "trimtab":
        rails = replace(plan.rails, gain_min=plan.paper_gain_min, belief_min=plan.belief_min)
        return CausalAdvisor(generation, stage.trials, plan.tuning, rails, seeds, plan.rules, plan.aggregate)
    costs = week.costs if week else {}
    prior = {knobs: math.log1p(cost) for knobs, cost in costs.items() if not math.isnan(cost)}
    return PoolingAdvisor(
        generation,
        stage.trials,
        plan.tuning,
        replace(plan.rails, return_ms=plan.return_ms),
        plan.pooling,
        plan.sure,
        seeds,
        prior,
    )


class Forecasted:
    """Shows an advisor what is known of the evaluation's cluster, and no more.

    Attributes:
        generation: Makes the advisor's futures.
        instants: When it wants to be asked.

    Args:
        stage: The evaluation.
        advisor: Asked every hour.
        light: Asked in between.
        background_ms: How often; None for never.
    """

    def __init__(
        self,
        stage: Stage,
        generation: Generation,
        advisor: Advisor,
        light: BackgroundAdvisor,
        background_ms: int | None,
    ) -> None:
        self.generation = generation
        self._stage, self._advisor, self._light = stage, advisor, light
        between = () if background_ms is None else stage.between(background_ms)
        self.instants: Sequence[int] = sorted([*stage.hours, *between])
        whole = replace(stage.whole, zero_ms=stage.trace.zero_ms)
        self._watch = Watch(whole, stage.start_ms, stage.end_ms, stage.world)

    @property
    def graph(self) -> Graph | None:
        """The causal graph that the line learned last, None if it learns none."""
        return self._advisor.graph if isinstance(self._advisor, CausalAdvisor) else None

    def choose(self, engine: Simulation, now_ms: int, tenure: Tenure) -> Round:
        scene = self.scene(engine, now_ms)
        if now_ms in self._stage.hours:
            return self._advisor.advise(scene, tenure)
        return self._light.advise(scene, tenure, self._advisor.leaders)

    def scene(self, engine: Simulation, now_ms: int) -> Scene:
        """Return what is known at an instant up to which the cluster has run."""
        stage = self._stage
        snapshot = snapshot_at(engine, now_ms)
        return Scene(
            snapshot=snapshot,
            past=self._watch.past(engine, snapshot, now_ms),
            facts=self._watch.facts,
            first_row=self._watch.first_row,
            cluster=stage.cluster,
            policy=stage.policy,
            environment=stage.environment,
            space=stage.space,
        )
