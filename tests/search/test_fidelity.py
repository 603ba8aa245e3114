"""Merged jobs are searched where they rank settings as all jobs do, and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pytest

from histories import HOUR_MS, another_future, history, outcome, plan, walk
from trimtab.cluster import Cluster
from trimtab.forecast.aggregate import LADDER
from trimtab.knobs import Knobs
from trimtab.objective import Measured, Objective, find_objective
from trimtab.policies.catalog import find_policy
from trimtab.report.lines import Line
from trimtab.search.causal_search import Rules
from trimtab.search.fidelity import (
    FINALISTS,
    Bench,
    Fidelity,
    accepted,
    calibrate,
    coarsened,
    probes_of,
    rank_correlation,
)
from trimtab.search.generation import Forecasting
from trimtab.search.spaces import search_space
from trimtab.search.tuner import Search
from trimtab.simulate.run import World
from trimtab.simulate.trials import LocalTrials, Trials
from trimtab.simulate.whatif import Situation
from trimtab.simulate.workload import OracleEstimator, Workload
from trimtab.studies.lines import Plan
from trimtab.world import Seeds

WAIT = find_objective("wait")
CLUSTER = Cluster.pool(5, 8)
POLICY = find_policy("tiresias")
SPACE = search_space(POLICY, POLICY.space.defaults, "consolidated")
RUNNING = SPACE.base
PROBES = probes_of(SPACE, RUNNING, (), Seeds(1))


@lru_cache
def situation(policy: str = "tiresias") -> Situation:
    """A day of 600 jobs on an empty cluster, to the end."""
    workload = Workload.of(history(8, 600), 500_000)
    return Situation.empty(workload, CLUSTER, policy, World().environment(workload))


def bench(measure: Callable[[Sequence[Knobs]], list[Measured]] | None = None) -> Bench:
    one = situation()
    return Bench(one, measure or partial(LocalTrials().measure, one, objective=WAIT))


def calibrated(trials: Trials, full: Bench, settings: int = 80) -> Fidelity:
    return calibrate(full, trials, WAIT, RUNNING, PROBES, settings)


def measured(cost: float) -> Measured:
    return Measured(cost, 0.0, cost, 0.0, 0.0, 0.0)


class Misleading:
    """Tells of merged jobs the opposite of the truth, the first so many times the truth itself."""

    def __init__(self, truthful: int = 0) -> None:
        self.truthful, self.honest = truthful, LocalTrials()
        self.full: set[float] = set()
        self._told = 0
        self._last: Situation | None = None

    def measure(self, one: Situation, candidates: Sequence[Knobs], objective: Objective) -> list[Measured]:
        found = self.honest.measure(one, candidates, objective)
        if all(facts.members == 1 for facts in one.workload.facts):
            self.full |= {each.cost for each in found}
            return found
        self._told = self._told + 1 if one is self._last else 1
        self._last = one
        return found if self._told <= self.truthful else [measured(1e9 / (1 + each.cost)) for each in found]


@pytest.mark.parametrize("policy", ["tiresias", "srtf"])
@pytest.mark.parametrize("how", LADDER)
def test_service_is_the_same_to_the_millisecond_in_the_simulation(how: Any, policy: str) -> None:
    """Run to the end, merged jobs do exactly the work of all jobs, and are as many."""
    one, knobs = situation(policy), find_policy(policy).space.defaults
    merged = coarsened(one, how)
    assert len(merged.workload) < len(one.workload)
    groups = [facts for facts in merged.workload.facts if facts.members > 1]
    assert max(facts.gpus for facts in groups) <= 4  # half a node
    full_stays, merged_stays = one.stays(knobs), merged.stays(knobs)
    assert full_stays is not None
    assert merged_stays is not None
    assert merged_stays.totals.jobs == full_stays.totals.jobs == 600
    assert merged_stays.totals.run_ms == full_stays.totals.run_ms
    services = [
        sum(facts.gpus * ms for facts, ms in zip(each.workload.facts, each.workload.duration_ms, strict=True))
        for each in (one, merged)
    ]
    assert services[0] == services[1]
    estimator = merged.environment.estimator
    assert isinstance(estimator, OracleEstimator)
    assert estimator.duration_ms == merged.workload.duration_ms


def test_the_coarsest_faithful_merging_is_taken() -> None:
    full = bench()
    found = calibrated(LocalTrials(), full)
    assert found.merged
    assert found.rungs[-1].how == LADDER[0]
    assert found.bench is not full
    assert found.rungs[-1].rank >= 0.95
    assert found.reason.startswith(f"merged: {found.rungs[-1].jobs} of 600 jobs")
    assert set(full.known) == set(PROBES)
    assert found.simulations == len(PROBES)


def test_where_it_would_mislead_all_jobs_are_simulated() -> None:
    """Merged jobs turn every order around: no rung is believed, and the reason is kept."""
    found = calibrated(Misleading(), bench())
    assert not found.merged
    assert found.bench is found.full
    assert found.rungs
    assert all(rung.rank < -0.9 and rung.regret > 0.1 for rung in found.rungs)
    assert found.reason == "all jobs: no merging ranks settings as they do"


def test_a_good_order_with_a_bad_best_is_not_believed() -> None:
    """Only the two best probes are exchanged: the ranks agree, but the winner would cost a tenth more."""
    costs = dict(zip(PROBES, (200.0, 110.0, 300.0, 400.0, 500.0, 600.0, 700.0, 100.0), strict=True))
    swapped = {**costs, PROBES[1]: 100.0, PROBES[7]: 110.0}

    class Swapping:
        def measure(
            self, one: Situation, candidates: Sequence[Knobs], objective: Objective
        ) -> list[Measured]:
            return [measured(swapped[knobs]) for knobs in candidates]

    found = calibrated(Swapping(), bench(lambda candidates: [measured(costs[knobs]) for knobs in candidates]))
    assert not found.merged
    assert found.rungs[0].rank == pytest.approx(1 - 6 * 2 / (8 * 63))
    assert found.rungs[0].rank > 0.95
    assert found.rungs[0].regret == pytest.approx(111 / 101 - 1)


@pytest.mark.parametrize("settings", [1, 8, 12])
def test_a_search_too_small_to_save_work_simulates_nothing_beforehand(settings: int) -> None:
    full = bench()
    found = calibrated(LocalTrials(), full, settings)
    assert (found.merged, found.rungs, list(full.known)) == (False, (), [RUNNING])
    assert found.reason == "all jobs: merging would save nothing"


def test_no_merging_saves_nothing_in_all() -> None:
    """Whatever is taken, probes, search and finalists simulate fewer jobs than the search on all of them."""
    for settings in range(10, 80, 5):
        found = calibrated(LocalTrials(), bench(), settings)
        if found.merged:
            simulated = len(PROBES) * (600 + sum(rung.jobs for rung in found.rungs[:-1]))
            assert simulated + settings * found.rungs[-1].jobs + FINALISTS * 600 < settings * 600


def test_where_nothing_can_be_gained_nothing_is_compared() -> None:
    full = bench(lambda candidates: [measured(0.0) for _ in candidates])
    found = calibrated(LocalTrials(), full)
    assert (found.rungs, list(full.known)) == ((), [RUNNING])
    assert found.reason == "all jobs: the running setting costs nothing"


def test_probes_that_cost_the_same_or_nothing_known_are_no_proof() -> None:
    for cost in (5.0, math.inf):
        assert not calibrated(LocalTrials(), bench(lambda some, c=cost: [measured(c) for _ in some])).merged

    def one_fails(candidates: Sequence[Knobs]) -> list[Measured]:
        if PROBES[2] in candidates:
            raise ValueError("no")
        return [measured(float(PROBES.index(knobs) + 1)) for knobs in candidates]

    found = calibrated(LocalTrials(), bench(one_fails))
    assert not found.merged
    assert math.isnan(found.rungs[0].rank)
    assert found.jsonable()["rungs"][0]["rank_correlation"] is None


def test_rank_correlation_by_hand() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 30, 20, 40]) == pytest.approx(0.8)
    assert rank_correlation([1, 2, math.inf], [3, 4, 5]) == pytest.approx(1.0)
    assert rank_correlation([1, 1, 2], [1, 1, 2]) == pytest.approx(1.0)
    assert math.isnan(rank_correlation([1, 1], [1, 2]))
    assert math.isnan(rank_correlation([1, math.nan, 2], [1, 2, 3]))


def test_a_bench_simulates_a_setting_once() -> None:
    asked: list[Knobs] = []

    def measure(candidates: Sequence[Knobs]) -> list[Measured]:
        asked.extend(candidates)
        return [measured(float(len(asked))) for _ in candidates]

    one = bench(measure)
    first = one.costs([PROBES[0], PROBES[1], PROBES[0]])
    assert first == [2.0, 2.0, 2.0]
    assert one.costs(PROBES[:3]) == [2.0, 2.0, 3.0]
    assert asked == PROBES[:3]


def test_a_merged_winner_that_is_worse_on_all_jobs_is_refused() -> None:
    """The search calls B three times as good as the running setting; on all jobs it is worse than it."""
    running, b, c = PROBES[:3]
    found = Search(running, WAIT, costs={running: 300.0, b: 100.0, c: 200.0})
    true = {running: 300.0, b: 350.0, c: 290.0}
    final = accepted(found, bench(lambda candidates: [measured(true[knobs]) for knobs in candidates]))
    assert final.costs == true
    assert final.best == c
    assert final.gain == 301 / 291


# ---- in the line ------------------------------------------------------------------------------------

WIDE_NODES = Cluster.pool(2, 16)
FORECAST = Forecasting(
    arrivals="nearest",
    remaining="kaplan-meier",
    futures=1,
    arrivals_ms=6 * HOUR_MS,
    run_on_ms=8 * HOUR_MS,
)


def how(**changes: Any) -> Plan:
    return plan(
        budget=40,
        interval_ms=3 * HOUR_MS,
        paper=FORECAST,
        rules=Rules(learning=False),  # what is tested here needs no causal model
        paper_background_ms=None,
        paper_gain_min=1.0,
        **changes,
    )


def line(trials: Trials | None = None, **changes: Any) -> Line:
    return walk(history(3, 800), "trimtab", cluster=WIDE_NODES, how=how(**changes), trials=trials).lines[0]


def test_the_verdict_is_of_all_jobs_even_where_merged_jobs_mislead() -> None:
    """Merged jobs tell the truth of the probes and lie afterwards; no lie reaches a verdict."""
    trials = Misleading(truthful=1)
    found = line(trials)
    merged = [one for one in found.rounds if one.record["fidelity"]["merged"]]
    assert merged
    for one in merged:
        finals = [trial for trial in one.record["finalists"] if trial["fate"] == "simulated"]
        assert one.cost_best == min(trial["cost"] for trial in finals)
        assert one.cost_best in trials.full
        assert one.cost_running == finals[0]["cost"]
        assert one.gain == WAIT.gain(one.cost_running, one.cost_best)
        claimed = min(trial["cost"] for trial in one.record["trials"])
        assert one.cost_best != claimed


def test_every_round_says_at_what_fidelity_and_counts_all_simulations() -> None:
    counts: list[int] = []

    class Counting(LocalTrials):
        def measure(
            self, one: Situation, candidates: Sequence[Knobs], objective: Objective
        ) -> list[Measured]:
            counts.append(len(candidates))
            return super().measure(one, candidates, objective)

    found = line(Counting())
    week = 40  # the search of the week before the window
    assert sum(one.trials for one in found.rounds) == sum(counts) - week
    for one in found.rounds:
        fidelity = one.record["fidelity"]
        assert fidelity["merged"] == fidelity["reason"].startswith("merged:")
        assert fidelity["merged"] == (fidelity["jobs"][1] < fidelity["jobs"][0])
        assert bool(one.record["finalists"]) == fidelity["merged"]


def test_switched_off_every_search_is_on_all_jobs() -> None:
    found = line(aggregate=False)
    assert {one.record["fidelity"]["reason"] for one in found.rounds} == {"all jobs: merging is switched off"}
    assert all(one.trials <= 40 for one in found.rounds)


def test_the_same_twice() -> None:
    first, again = (walk(history(3, 800), "trimtab", cluster=WIDE_NODES, how=how()) for _ in range(2))
    assert outcome(first) == outcome(again)
    fidelities = [[one.record["fidelity"] for one in each.lines[0].rounds] for each in (first, again)]
    assert fidelities[0] == fidelities[1]
    assert any(one["merged"] for one in fidelities[0])


def test_the_future_does_not_reach_into_the_calibration() -> None:
    trace, before = history(3, 800), line()
    merged = 0
    for place, at_ms in enumerate((15 * HOUR_MS, 18 * HOUR_MS, 18 * HOUR_MS + 1, 21 * HOUR_MS)):
        other = another_future(trace, before, at_ms, np.random.default_rng(place))
        after = walk(other, "trimtab", cluster=WIDE_NODES, how=how()).lines[0]
        for one, same in zip(before.rounds, after.rounds, strict=True):
            if one.time_s * 1000 <= at_ms:
                for name in ("fidelity", "finalists", "trials", "futures"):
                    assert one.record[name] == same.record[name], f"{name} at {one.time_s} s"
                merged += one.record["fidelity"]["merged"]
    assert merged > 4
