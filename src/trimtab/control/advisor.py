"""From a scene to a verdict: what is forecast, what is tried, and whether its best is worth a change."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trimtab.control.guardrails import Guardrails, Keep, Tenure, guards, judge
from trimtab.control.rounds import Round
from trimtab.forecast.backtest import Belief
from trimtab.job import JobState
from trimtab.knobs import Knobs
from trimtab.objective import Measured, Objective
from trimtab.search.causal import Graph
from trimtab.search.causal_search import Experience, Lessons, Rules, causal_search
from trimtab.search.evidence import Evidence, Pooling
from trimtab.search.fidelity import Bench, Fidelity, accepted, calibrate, probes_of
from trimtab.search.futures import forecast_of
from trimtab.search.generation import Generation, digest_of
from trimtab.search.sampler import design, make_sampler
from trimtab.search.samples import Summary
from trimtab.search.scene import Scene
from trimtab.search.space import SearchSpace
from trimtab.search.tuner import ENUMERATE_BELOW, Search, Trial, Tuning, attempt, climb, try_incumbent
from trimtab.simulate.trials import Trials
from trimtab.simulate.whatif import Situation
from trimtab.traces.trace import DAY_MS
from trimtab.world import Seeds, wall_s

# Settings that did best at the last search are the first to be tried at the next.
_LEADERS = 4

# Rounds between main rounds: their name in records, simulations of all futures together, and least gain.
BACKGROUND = "background"
_BACKGROUND_TRIALS = 10
_BACKGROUND_GAIN_MIN = 1.1


class Advisor(Protocol):
    """Says, round after round, whether to change the settings; remembers what it learned."""

    @property
    def leaders(self) -> Sequence[Knobs]:
        """The settings that did best so far, best first."""
        ...

    def advise(self, scene: Scene, tenure: Tenure) -> Round:
        """Return the record of one round, verdict included.

        Args:
            scene: The scheduler now.
            tenure: How its settings stand.
        """
        ...


# Standard errors that trimtab-plus takes off a gain before it is believed.
SURE = 0.25


class PoolingAdvisor:
    """Tries a field of settings on several futures an hour, and changes for what many hours say is better.

    All settings meet the same futures (common random numbers), and every hour meets the same settings: what
    one of them seems to gain is then no luck of the few hours in which it was tried. Once a day the last week
    is replayed, for what a day ahead does not show: jobs that wait for days. The field is what runs at first,
    the best half of what is known beforehand, and points scattered over the space. A setting that runs later
    and is not of the field is tried beside it.

    Args:
        generation: Makes the futures.
        trials: Tries settings on one.
        tuning: Objective, and how many settings the field has.
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
        self._field: list[Knobs] = []
        self._looked_back_ms: int | None = None
        self._prior = prior or {}

    @property
    def leaders(self) -> Sequence[Knobs]:
        scores = self._evidence.scores()
        return sorted(scores, key=scores.__getitem__)[:_LEADERS]

    def advise(self, scene: Scene, tenure: Tenure) -> Round:
        most = self._generation.how.futures
        futures = Futures.of(self._generation, scene, most, self._trials, self._tuning.objective)
        found, looked_back = self._tried(scene, futures), {}
        if not found.idle:
            looked_back = self._look_back(scene)
            self._evidence.add(futures.logs(), self._field)
        scores = self._evidence.scores()
        allowed = [
            knobs for knobs in found.costs if not tenure.undoes(scene.running, knobs, self._rails.return_ms)
        ]
        best = min(allowed, key=lambda knobs: (scores.get(knobs, math.inf), knobs != scene.running))
        gain = self._evidence.gain(scene.running, best, 0.0)
        lower = self._evidence.gain(scene.running, best, self._sure)
        record = {"gain_lower": lower, "last_week": looked_back, **record_of(found, scene.space)}
        one = _round(scene, tenure, futures, found, best, (gain, lower), self._rails, record)
        return replace(one, trials=one.trials + len(looked_back))

    def _tried(self, scene: Scene, futures: Futures) -> Search:
        """Try the running setting, and the field if there is anything to gain."""
        found = Search(scene.running, self._tuning.objective)
        if not try_incumbent(found, futures.costs):
            return found
        if not self._field:
            self._field = self._chosen_field(scene)
        attempt(found, futures.costs, [(knobs, "field") for knobs in self._field], len(self._field) + 1)
        found.stopped = "field tried"
        return found

    def _look_back(self, scene: Scene) -> dict[str, float]:
        """Once a day, try the field on the last week as it came: what a setting does to many days.

        Returns:
            What each setting cost, for the journal; nothing if it is not yet time.
        """
        if self._looked_back_ms is not None and scene.now_ms < self._looked_back_ms + DAY_MS:
            return {}
        week = self._generation.week_again(scene)
        if week is None:
            self._looked_back_ms = scene.now_ms
            return {}
        objective = self._tuning.objective
        found = Search(self._field[0], objective)
        attempt(
            found,
            lambda settings: [one.cost for one in self._trials.measure(week, settings, objective)],
            [(knobs, "last week") for knobs in self._field],
            len(self._field),
        )
        logs = {knobs: math.log1p(cost) for knobs, cost in found.costs.items()}
        self._evidence.add(logs, self._field, self._pooling.week)
        self._looked_back_ms = scene.now_ms
        return {knobs.text(): cost for knobs, cost in found.costs.items()}

    def _chosen_field(self, scene: Scene) -> list[Knobs]:
        """Return the settings to be tried from now on."""
        size = self._tuning.budget
        known = sorted(self._prior, key=self._prior.__getitem__)[: size // 2]
        points = design(scene.space, size, self._seeds, scene.running)
        scattered = (scene.space.knobs(point) for point in points)
        return list(dict.fromkeys([scene.running, *known, *scattered]))[:size]


class CausalAdvisor:
    """The paper's: one future of one hour, searched with a causal model that learns from hour to hour.

    Where that is faithful and saves work, the search simulates merged jobs, and what it finds is accepted by
    what it gives on all jobs. The budget is the search's alone; what calibration and finalists simulate comes
    on top and is counted in the round.

    Args:
        generation: Makes the future.
        trials: Tries settings on it.
        tuning: Sampler, objective, and settings tried a round.
        rails: What a change must reach.
        seeds: Random streams.
        rules: How the causal model is used.
        aggregate: Whether jobs may be merged.
    """

    def __init__(
        self,
        generation: Generation,
        trials: Trials,
        tuning: Tuning,
        rails: Guardrails,
        seeds: Seeds,
        rules: Rules | None = None,
        aggregate: bool = True,
    ) -> None:
        self._generation, self._trials, self._tuning = generation, trials, tuning
        self._rails, self._seeds, self._rules = rails, seeds, rules
        self._aggregate = aggregate
        self._experience = Experience()
        self._lessons: Lessons | None = None
        self._leaders: Sequence[Knobs] = ()

    @property
    def graph(self) -> Graph | None:
        """The causal graph learned last; None as long as there is none."""
        return self._lessons.graph if self._lessons else None

    @property
    def leaders(self) -> Sequence[Knobs]:
        return self._leaders

    def advise(self, scene: Scene, tenure: Tenure) -> Round:
        futures = Futures.of(self._generation, scene, 1, self._trials, self._tuning.objective)
        self._lessons = self._experience.of(scene.policy, self._tuning.objective.name, scene.space)
        seeds, began_s = _seeds(self._seeds, scene), wall_s()
        fidelity = self._fidelity(scene, futures, seeds)
        calibrate_s = wall_s() - began_s
        found = causal_search(
            fidelity.bench.measure,
            Summary.of(fidelity.bench.situation),
            scene.space,
            scene.running,
            self._tuning,
            seeds,
            self._lessons,
            scene.now_ms // DAY_MS,
            self._rules,
            self._leaders,
        )
        final = accepted(found, fidelity.full) if fidelity.merged else found
        if not final.idle:
            self._leaders = final.leaders(_LEADERS)
        record = {
            **record_of(found, scene.space),
            "events": [event.jsonable() for event in found.events],
            "graph": _version(self.graph),
            "fidelity": fidelity.jsonable(),
            "finalists": record_of(final, scene.space)["trials"] if fidelity.merged else [],
        }
        gains = final.gain, final.gain
        one = _round(scene, tenure, futures, final, final.best, gains, self._rails, record)
        seconds = {**one.record["seconds"], "calibrate": calibrate_s, "learn": found.learn_s}
        trials = futures.simulations + fidelity.simulations
        return replace(one, trials=trials, record={**one.record, "seconds": seconds})

    def _fidelity(self, scene: Scene, futures: Futures, seeds: Seeds) -> Fidelity:
        full = Bench(futures.situations[0], futures.measure)
        if not self._aggregate:
            return Fidelity(full, (), "all jobs: merging is switched off")
        probes = probes_of(scene.space, scene.running, self._leaders, seeds)
        everything, settings = scene.space.enumerate(ENUMERATE_BELOW), self._tuning.budget
        if everything is not None:
            settings = min(settings, len(everything))
        return calibrate(full, self._trials, self._tuning.objective, scene.running, probes, settings)


class BackgroundAdvisor:
    """Looks again between main rounds: the last futures as of now, and a few settings around the leaders.

    It learns nothing for later rounds: what a few minutes say of a setting is said again in full at the hour.

    Args:
        generation: The one that made the futures of the main rounds.
        trials: Tries settings on them.
        tuning: Sampler and objective; the budget is this advisor's own.
        rails: What a change must reach; a gain below 1.1 is never enough here.
        seeds: Random streams.
    """

    def __init__(
        self, generation: Generation, trials: Trials, tuning: Tuning, rails: Guardrails, seeds: Seeds
    ) -> None:
        self._generation, self._trials, self._tuning = generation, trials, tuning
        self._rails = replace(rails, gain_min=max(rails.gain_min, _BACKGROUND_GAIN_MIN))
        self._seeds = seeds

    def advise(self, scene: Scene, tenure: Tenure, leaders: Sequence[Knobs]) -> Round:
        """Return the record of a round; where nothing can come of it, nothing is forecast or simulated."""
        if not scene.count(JobState.PENDING):
            return _unsearched(scene, "no job waits: nothing was tried")
        if tenure.running_for_ms < self._rails.dwell_ms:
            dwell_s = self._rails.dwell_ms / 1000
            running_s = tenure.running_for_ms / 1000
            reason = f"running for {running_s:g} s, dwell is {dwell_s:g} s: nothing was tried"
            return _unsearched(scene, reason)
        futures = Futures.of(
            self._generation, scene, _BACKGROUND_TRIALS // 2, self._trials, self._tuning.objective, again=True
        )
        if not futures.situations:
            return _unsearched(scene, "no main round has made futures yet: nothing was tried")
        found = self._tried(scene, futures, leaders)
        gains = found.gain, found.gain
        record = record_of(found, scene.space)
        one = _round(scene, tenure, futures, found, found.best, gains, self._rails, record)
        return replace(one, search=BACKGROUND)

    def _tried(self, scene: Scene, futures: Futures, leaders: Sequence[Knobs]) -> Search:
        found = Search(scene.running, self._tuning.objective)
        count = _BACKGROUND_TRIALS // len(futures.situations)
        if not try_incumbent(found, futures.costs):
            return found
        attempt(found, futures.costs, [(knobs, "earlier leader") for knobs in leaders], count)
        sampler = make_sampler(self._tuning.sampler, scene.space, found.best, _seeds(self._seeds, scene))
        climb(found, futures.costs, scene.space, sampler, count)
        return found


def _unsearched(scene: Scene, reason: str) -> Round:
    """Return a background round in which nothing was tried."""
    return Round(
        time_s=scene.now_ms / 1000,
        knobs_before=scene.running,
        best=scene.running,
        verdict=Keep(reason),
        gain=1.0,
        cost_running=math.nan,
        cost_best=math.nan,
        trials=0,
        pending=scene.count(JobState.PENDING),
        running=scene.count(JobState.RUNNING),
        arrivals=0,
        search_s=0.0,
        search=BACKGROUND,
        record={"trials": []},
    )


def _seeds(seeds: Seeds, scene: Scene) -> Seeds:
    """Return the streams of one round."""
    return Seeds(int(seeds.stream("round", scene.now_ms).integers(1 << 40)))


def _round(
    scene: Scene,
    tenure: Tenure,
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
        verdict=judge(running, tenure, best, gains[1], rails, found.costs[running], futures.belief),
        gain=gains[0],
        cost_running=found.costs[running],
        cost_best=found.costs[best],
        trials=futures.simulations,
        pending=scene.count(JobState.PENDING),
        running=scene.count(JobState.RUNNING),
        arrivals=futures.arrivals,
        search_s=search_s,
        forecast=forecast_of(futures.situations, scene.now_ms, futures.arrivals_ms),
        record={
            "futures": digest_of(futures.situations),
            "remaining_model": futures.model_version,
            "guards": guards(tenure, gains[1], rails, futures.belief),
            "measured": futures.jsonable(),
            "seconds": {
                "forecast": futures.forecast_s,
                "search": search_s - futures.forecast_s,
                "simulate": futures.simulate_s,
            },
            **record,
        },
    )


@dataclass
class Futures:
    """The futures of one round, and what settings gave on each of them, or on futures of their own."""

    situations: Sequence[Situation]
    trials: Trials
    objective: Objective
    belief: Belief
    began_s: float  # when they began to be made
    forecast_s: float  # how long it took
    model_version: int | None = None  # of the model that drew remaining times
    own: Callable[[int], Sequence[Situation]] | None = None  # those that the n-th setting meets instead
    arrivals_ms: int = 0  # how far into the future they say who comes

    @classmethod
    def of(
        cls,
        generation: Generation,
        scene: Scene,
        most: int,
        trials: Trials,
        objective: Objective,
        again: bool = False,
    ) -> Futures:
        """Make at most so many futures of a scene, or the last ones again as of now."""
        began_s = wall_s()
        make = generation.again if again else generation.situations
        situations = make(scene, most)
        forecast_s = wall_s() - began_s
        own = None if generation.how.common else lambda place: generation.situations(scene, most, place)
        return cls(
            situations,
            trials,
            objective,
            generation.belief,
            began_s,
            forecast_s,
            generation.model_version,
            own,
            generation.how.arrivals_ms,
        )

    def __post_init__(self) -> None:
        self._measured: dict[Knobs, list[Measured]] = {}
        self.simulate_s = 0.0

    @property
    def simulations(self) -> int:
        return sum(len(row) for row in self._measured.values())

    @property
    def arrivals(self) -> int:
        """Jobs to come, the most in one future."""
        return max((len(one.workload) - len(one.snapshot.jobs) for one in self.situations), default=0)

    def measure(self, candidates: Sequence[Knobs]) -> list[Measured]:
        """Return what each candidate gives, means over the futures."""
        began_s = wall_s()
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
        self.simulate_s += wall_s() - began_s
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
