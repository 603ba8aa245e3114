"""From a scene to a verdict: what is forecast, what is tried, and whether its best is worth a change."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trimtab.control.guardrails import Guardrails, guards, judge
from trimtab.control.rounds import Round
from trimtab.job import JobState
from trimtab.knobs import Knobs
from trimtab.objective import Measured, Objective
from trimtab.search.causal import Graph
from trimtab.search.causal_search import Experience, Lessons, Rules, causal_search
from trimtab.search.evidence import Evidence, Pooling
from trimtab.search.generation import Generation, digest_of
from trimtab.search.sampler import design, make_sampler
from trimtab.search.samples import Summary
from trimtab.search.scene import Scene
from trimtab.search.space import SearchSpace
from trimtab.search.tuner import Search, Trial, Tuning, attempt, climb
from trimtab.simulate.trials import Trials
from trimtab.simulate.whatif import Situation
from trimtab.traces.trace import DAY_MS
from trimtab.world import Seeds, wall_s

# Settings that did best at the last search are the first to be tried at the next.
_LEADERS = 4

# Settings that are tried every hour, for all others to be compared with.
_ANCHORS = 4


class Advisor(Protocol):
    """Says, round after round, whether to change the settings; remembers what it learned."""

    def advise(self, scene: Scene, running_for_ms: int) -> Round:
        """Return the record of one round, verdict included.

        Args:
            scene: The scheduler now.
            running_for_ms: How long its settings have been in force.
        """
        ...


class PoolingAdvisor:
    """Tries settings on several futures an hour, and changes for what many hours together say is better.

    All settings meet the same futures (common random numbers). An hour tries the running setting, anchors
    that stay for ever, those that have done best so far, and new ones around the best with what is left.

    Args:
        generation: Makes the futures.
        trials: Tries settings on one.
        tuning: Sampler, objective, and simulations an hour, all futures together.
        rails: What a change must reach.
        pooling: How hours are weighed against each other.
        sure: Standard errors that are taken off a gain before it is believed.
        seeds: Random streams.
        prior: What is known beforehand: log costs of settings, all tried on one situation.
    """

    def __init__(
        self,
        generation: Generation,
        trials: Trials,
        tuning: Tuning,
        rails: Guardrails,
        pooling: Pooling,
        sure: float,
        seeds: Seeds,
        prior: Mapping[Knobs, float] | None = None,
    ) -> None:
        self._generation, self._trials, self._tuning = generation, trials, tuning
        self._rails, self._sure, self._seeds = rails, sure, seeds
        self._evidence, self._pooling = Evidence(pooling), pooling
        self._anchors: list[Knobs] = []
        self._prior = prior or {}

    def advise(self, scene: Scene, running_for_ms: int) -> Round:
        most = max(1, self._tuning.budget // (_ANCHORS + 1))  # else there is nothing to compare
        futures = Futures.of(self._generation, scene, most, self._trials, self._tuning.objective)
        found = self._tried(scene, futures)
        if not found.idle:
            self._evidence.add(futures.logs(), self._anchors)
        scores = self._evidence.scores()
        best = min(found.costs, key=lambda knobs: (scores.get(knobs, 0.0), knobs != scene.running))
        gain = self._evidence.gain(scene.running, best, 0.0)
        lower = self._evidence.gain(scene.running, best, self._sure)
        record = {"gain_lower": lower, **record_of(found, scene.space)}
        return _round(scene, running_for_ms, futures, found, best, (gain, lower), self._rails, record)

    def _tried(self, scene: Scene, futures: Futures) -> Search:
        """Try this hour's settings."""
        found = Search(scene.running, self._tuning.objective)
        count = max(1, self._tuning.budget // len(futures.situations))
        seeds = _seeds(self._seeds, scene)
        attempt(found, futures.costs, [(scene.running, "incumbent")], count)
        if found.idle:
            found.stopped = "nothing to gain"
            return found
        if not self._anchors:
            self._anchors = self._chosen_anchors(scene)
        scores = self._evidence.scores()
        leaders = sorted(scores, key=scores.__getitem__)[: count * 2 // 5]
        known = [(knobs, "anchor") for knobs in self._anchors] + [
            (knobs, "earlier leader") for knobs in leaders
        ]
        attempt(found, futures.costs, known, count)
        sampler = make_sampler(self._tuning.sampler, scene.space, (leaders or [scene.running])[0], seeds)
        climb(found, futures.costs, scene.space, sampler, count)
        return found

    def _chosen_anchors(self, scene: Scene) -> list[Knobs]:
        """Return the first settings anything is compared with: what runs, and the best known beforehand."""
        if self._prior:
            best = sorted(self._prior, key=self._prior.__getitem__)[: _ANCHORS - 1]
            anchors = list(dict.fromkeys([scene.running, *best]))
            if all(one in self._prior for one in anchors):
                self._evidence.add(self._prior, anchors, self._pooling.prior)
            return anchors
        points = design(scene.space, _ANCHORS - 1, self._seeds, scene.running)
        return list(dict.fromkeys([scene.running, *(scene.space.knobs(point) for point in points)]))


class CausalAdvisor:
    """The paper's: one future of one hour, searched with a causal model that learns from hour to hour.

    Args:
        generation: Makes the future.
        trials: Tries settings on it.
        tuning: Sampler, objective, and settings tried a round.
        rails: What a change must reach.
        seeds: Random streams.
        rules: How the causal model is used.
    """

    def __init__(
        self,
        generation: Generation,
        trials: Trials,
        tuning: Tuning,
        rails: Guardrails,
        seeds: Seeds,
        rules: Rules | None = None,
    ) -> None:
        self._generation, self._trials, self._tuning = generation, trials, tuning
        self._rails, self._seeds, self._rules = rails, seeds, rules
        self._experience = Experience()
        self._lessons: Lessons | None = None
        self._leaders: Sequence[Knobs] = ()

    @property
    def graph(self) -> Graph | None:
        """The causal graph learned last; None as long as there is none."""
        return self._lessons.graph if self._lessons else None

    def advise(self, scene: Scene, running_for_ms: int) -> Round:
        futures = Futures.of(self._generation, scene, 1, self._trials, self._tuning.objective)
        self._lessons = self._experience.of(scene.policy, self._tuning.objective.name, scene.space)
        found = causal_search(
            futures.measure,
            Summary.of(futures.situations[0]),
            scene.space,
            scene.running,
            self._tuning,
            _seeds(self._seeds, scene),
            self._lessons,
            scene.now_ms // DAY_MS,
            self._rules,
            self._leaders,
        )
        if not found.idle:
            self._leaders = found.leaders(_LEADERS)
        events = [event.jsonable() for event in found.events]
        record = {**record_of(found, scene.space), "events": events, "graph": _version(self.graph)}
        gains = found.gain, found.gain
        return _round(scene, running_for_ms, futures, found, found.best, gains, self._rails, record)


def _seeds(seeds: Seeds, scene: Scene) -> Seeds:
    """Return the streams of one round."""
    return Seeds(int(seeds.stream("round", scene.now_ms).integers(1 << 40)))


def _round(
    scene: Scene,
    running_for_ms: int,
    futures: Futures,
    found: Search,
    best: Knobs,
    gains: tuple[float, float],
    rails: Guardrails,
    record: Mapping[str, Any],
) -> Round:
    """Judge the best setting by the second of its gains, expected and lower bound, and write it down."""
    running = scene.running
    search_s = wall_s() - futures.began_s
    return Round(
        time_s=scene.now_ms / 1000,
        knobs_before=running,
        best=best,
        verdict=judge(running, running_for_ms, best, gains[1], rails, found.costs[running]),
        gain=gains[0],
        cost_running=found.costs[running],
        cost_best=found.costs[best],
        trials=futures.simulations,
        pending=scene.count(JobState.PENDING),
        running=scene.count(JobState.RUNNING),
        arrivals=futures.arrivals,
        search_s=search_s,
        record={
            "futures": digest_of(futures.situations),
            "remaining_model": futures.model_version,
            "guards": guards(running_for_ms, gains[1], rails),
            "measured": futures.jsonable(),
            "seconds": {"forecast": futures.forecast_s, "search": search_s - futures.forecast_s},
            **record,
        },
    )


@dataclass
class Futures:
    """The futures of one round, and what settings gave on each of them, or on futures of their own."""

    situations: Sequence[Situation]
    trials: Trials
    objective: Objective
    began_s: float  # when they began to be made
    forecast_s: float  # how long it took
    model_version: int | None = None  # of the model that drew remaining times
    own: Callable[[int], Sequence[Situation]] | None = None  # those that the n-th setting meets instead

    @classmethod
    def of(
        cls, generation: Generation, scene: Scene, most: int, trials: Trials, objective: Objective
    ) -> Futures:
        """Make at most so many futures of a scene."""
        began_s = wall_s()
        situations = generation.situations(scene, most)
        forecast_s = wall_s() - began_s
        own = None if generation.how.common else lambda place: generation.situations(scene, most, place)
        return cls(situations, trials, objective, began_s, forecast_s, generation.model_version, own)

    def __post_init__(self) -> None:
        self._measured: dict[Knobs, list[Measured]] = {}

    @property
    def simulations(self) -> int:
        return sum(len(row) for row in self._measured.values())

    @property
    def arrivals(self) -> int:
        """Jobs to come, the most in one future."""
        return max((len(one.workload) - len(one.snapshot.jobs) for one in self.situations), default=0)

    def measure(self, candidates: Sequence[Knobs]) -> list[Measured]:
        """Return what each candidate gives, means over the futures."""
        if self.own is None:
            rows = [self.trials.measure(one, candidates, self.objective) for one in self.situations]
            columns = [list(column) for column in zip(*rows, strict=True)]
        else:
            places = range(len(self._measured), len(self._measured) + len(candidates))
            columns = [
                [self.trials.measure(future, [knobs], self.objective)[0] for future in self.own(place)]
                for place, knobs in zip(places, candidates, strict=True)
            ]
        self._measured.update(zip(candidates, columns, strict=True))
        return [Measured(*np.mean(column, axis=0).tolist()) for column in columns]

    def costs(self, candidates: Sequence[Knobs]) -> list[float]:
        """Return each candidate's cost: the geometric mean over the futures of cost + 1 s, less 1 s."""
        self.measure(candidates)
        return [math.expm1(float(np.mean(self._logs(knobs)))) for knobs in candidates]

    def logs(self) -> dict[Knobs, float]:
        """Return the mean log cost of every setting tried."""
        return {knobs: float(np.mean(self._logs(knobs))) for knobs in self._measured}

    def jsonable(self) -> dict[str, list[list[float]]]:
        """Return what every setting gave on each future, as lists of `Measured`'s values, by its text."""
        return {knobs.text(): [list(one) for one in row] for knobs, row in self._measured.items()}

    def _logs(self, knobs: Knobs) -> NDArray[np.float64]:
        return np.array([math.log1p(one.cost) for one in self._measured[knobs]])


def record_of(found: Search, space: SearchSpace) -> dict[str, Any]:
    """Return all a search did, for the journal."""
    return {"stopped": found.stopped, "trials": [_trial(trial, space) for trial in found.trials]}


def _trial(trial: Trial, space: SearchSpace) -> dict[str, Any]:
    """Return a trial with the point it was proposed as, and what projection made of its values."""
    if trial.point is None:
        return trial.jsonable()
    return {
        **trial.jsonable(),
        "point": dict(trial.point),
        "projected": space.moved(trial.point, trial.knobs),
    }


def _version(graph: Graph | None) -> str | None:
    return graph.data_sha256[:12] if graph else None
