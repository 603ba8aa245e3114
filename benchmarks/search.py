"""How close do searches of 40 simulations come to the best of 2,000 random settings? On hours of real traces.

    PYTHONPATH=src python benchmarks/search.py --situations 3 --seeds 10

Each hour has its true future: what is measured is search, not forecasting. Searches begin at a bad setting
(the worst of 20 random ones) and at a good one (the best of 64 over earlier hours). Those that learn from
earlier hours have 50 settings on each of 24. Regret is the cost of what was found over that of the best
random one, less one: below 0 where the search found better.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from model import BUSY_S, CASES, HOUR_MS, POLICY, situations
from trimtab.knobs import Knobs
from trimtab.objective import Measured, find_objective
from trimtab.policies.catalog import find_policy
from trimtab.search.causal_search import PAPER, CausalSearch, Lessons, Rules, causal_search
from trimtab.search.sampler import design, random_points
from trimtab.search.samples import Encoding, Samples, Summary
from trimtab.search.spaces import search_space
from trimtab.search.tuner import Search, Tuning, search
from trimtab.simulate.trials import LocalTrials
from trimtab.simulate.whatif import Situation
from trimtab.world import Seeds, cpu_s
from verdicts import Target, Verdict

BUDGET = 40
HOURS = 36
PAST = 24
SETTINGS = 50
COMMON = 64
JUDGED = ("bluefin", "surrogate", "causal paper", "causal surrogate")
WAIT = find_objective("wait")
SPACE = search_space(find_policy(POLICY), find_policy(POLICY).space.defaults, "consolidated")
TRIALS = LocalTrials()


@dataclass
class Hour:
    """A situation to be searched, and what was measured on it so far: simulations are not repeated."""

    situation: Situation
    summary: Summary
    best_of_random: float = 0.0
    known: dict[Knobs, Measured] = field(default_factory=dict)

    def measure(self, settings: Sequence[Knobs]) -> list[Measured]:
        fresh = [knobs for knobs in settings if knobs not in self.known]
        self.known.update(zip(fresh, TRIALS.measure(self.situation, fresh, WAIT), strict=True))
        return [self.known[knobs] for knobs in settings]

    def costs(self, settings: Sequence[Knobs]) -> list[float]:
        return [one.cost for one in self.measure(settings)]


@dataclass
class Case:
    """Hours to search, a setting that did well before them, and the rows of the hours before."""

    hours: list[Hour]
    good: Knobs
    past: list[tuple[Summary, Sequence[Knobs], Sequence[Measured]]]

    def lessons(self) -> Lessons:
        """Return what searches on the earlier hours would have left behind."""
        samples = Samples(Encoding(SPACE))
        for summary, settings, measured in self.past:
            number = samples.open(summary)
            for knobs, one in zip(settings, measured, strict=True):
                samples.add(number, knobs, one, designed=True)
        return Lessons(samples)


def case_of(name: str, hours: int, truth: int, settings: int = SETTINGS) -> Case:
    """Measure a case: the earlier hours with a few settings, some of the later busy ones thoroughly."""
    common = [SPACE.base, *(SPACE.knobs(one) for one in design(SPACE, min(COMMON, 2 * settings), Seeds(0)))]
    past: list[tuple[Summary, Sequence[Knobs], Sequence[Measured]]] = []
    total, later = np.zeros(len(common)), []
    for place, situation in enumerate(situations(CASES[name], HOURS, 24 * HOUR_MS, 48 * HOUR_MS)):
        hour = Hour(situation, Summary.of(situation))
        if place < PAST:
            total += np.log1p(hour.costs(common))
            some = [SPACE.base, *(SPACE.knobs(one) for one in design(SPACE, settings, Seeds(place)))]
            past.append((hour.summary, some, hour.measure(some)))
        elif hour.costs([SPACE.base])[0] >= BUSY_S:
            later.append(hour)
    chosen = [later[place] for place in np.linspace(0, len(later) - 1, hours).round().astype(int)]
    for hour in chosen:
        points = islice(random_points(SPACE, Seeds(0).stream("truth")), truth)
        hour.best_of_random = min(hour.costs([SPACE.knobs(point) for point in points]))
    return Case(chosen, common[int(np.argmin(total))], past)


Method = Callable[[Case, Hour, Knobs, Seeds], Search]


def plain(sampler: str) -> Method:
    """Return the search that most lines use."""
    tuning = Tuning(objective=WAIT, sampler=sampler, budget=BUDGET)
    return lambda case, hour, start, seeds: search(hour.costs, SPACE, start, tuning, seeds)


def causal(sampler: str, rules: Rules) -> Method:
    """Return the causal search after a day of hours."""
    tuning = Tuning(objective=WAIT, sampler=sampler, budget=BUDGET)
    return lambda case, hour, start, seeds: causal_search(
        hour.measure, hour.summary, SPACE, start, tuning, seeds, case.lessons(), 0, rules
    )


METHODS: Mapping[str, Method] = {
    **{name: plain(name) for name in ("random", "sobol", "bluefin", "bluefin_oppertune", "tpe", "cma")},
    "surrogate": plain("surrogate"),
    "causal paper": causal("bluefin", PAPER),
    "causal fair": causal("bluefin", Rules()),
    "causal surrogate": causal("surrogate", Rules()),
}


def bad_start(hour: Hour, seed: int) -> Knobs:
    """Return the worst of 20 random settings that have a cost."""
    points = islice(random_points(SPACE, Seeds(seed).stream("start")), 20)
    finite = [knobs for knobs in map(SPACE.knobs, points) if np.isfinite(hour.costs([knobs])[0])]
    return max(finite, key=lambda knobs: hour.costs([knobs])[0])


def row(case: Case, method: str, start: str, seeds: int) -> dict[str, Any]:
    """Return one line of the table: a method from one kind of start, over hours and seeds."""
    regrets, avoided, seconds, rejected = [], [], [], []
    for hour in case.hours:
        for seed in range(seeds):
            begin = bad_start(hour, seed) if start == "bad" else case.good
            began = cpu_s()
            found = METHODS[method](case, hour, begin, Seeds(seed))
            seconds.append(cpu_s() - began)
            regrets.append((found.costs[found.best] + 1) / (hour.best_of_random + 1) - 1)
            if isinstance(found, CausalSearch):
                left_out = found.count("rejected")
                avoided.append(left_out)
                rejected.append(left_out / max(1, left_out + found.count("explored") + found.simulated))
    told = {
        "mean_regret": float(np.mean(regrets)),
        "median_regret": float(np.median(regrets)),
        "deviation": float(np.std(regrets)),
        "least": min(regrets),
        "most": max(regrets),
        "cpu_s": float(np.mean(seconds)),
    }
    if avoided:
        told |= {"simulations_avoided": float(np.mean(avoided)), "share_rejected": float(np.mean(rejected))}
    return {"method": method, "start": start, **{name: round(value, 4) for name, value in told.items()}}


def verdicts(
    cases: Sequence[str], hours: int, truth: int, seeds: int, settings: int = SETTINGS
) -> Iterator[Verdict]:
    """Yield the mean regret of the judged methods in %, beside that of random settings."""
    for name in cases:
        case = case_of(name, hours, truth, settings)
        for start in ("bad", "good"):
            baseline = 100 * row(case, "random", start, seeds)["mean_regret"]
            for method in JUDGED:
                told = row(case, method, start, seeds)
                yield Verdict(
                    what=f"regret of {method}, {start} start, baseline random",
                    case=name,
                    measured=100 * told["mean_regret"],
                    unit="%",
                    target=Target(high=0.5),
                    baseline=baseline,
                    spread=(100 * told["least"], 100 * told["most"]),
                )


def main() -> None:
    """Print one object a case, start and method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--situations", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--truth", type=int, default=2000)
    parser.add_argument("--methods", default=",".join(METHODS))
    told = parser.parse_args()
    for name in CASES:
        case = case_of(name, told.situations, told.truth)
        for start in ("bad", "good"):
            for method in told.methods.split(","):
                line = row(case, method.strip(), start, told.seeds)
                print(json.dumps({"case": name, **line}), flush=True)


if __name__ == "__main__":
    main()
