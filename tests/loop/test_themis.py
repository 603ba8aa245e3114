"""Tuning Themis for fairness: every line, on both engines, without a look at the future."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from histories import (
    CLUSTER,
    END_MS,
    HOUR_MS,
    START_MS,
    WINDOW,
    another_future,
    decisions,
    history,
    outcome,
    plan,
    table,
    walk,
)
from trimtab.cluster import Cluster
from trimtab.objective import find_objective
from trimtab.policies.catalog import find_policy
from trimtab.report.evaluate import evaluate_page
from trimtab.search.fidelity import Bench, calibrate, probes_of
from trimtab.search.spaces import search_space
from trimtab.search.tuner import Tuning
from trimtab.simulate.run import World, simulate
from trimtab.simulate.trials import LocalTrials
from trimtab.simulate.whatif import Situation
from trimtab.simulate.workload import Workload
from trimtab.studies.lines import LINES
from trimtab.world import Seeds

LEARNT = World(restart_cost_s=30.0, estimates="predicted")
FAIR = plan(tuning=Tuning(objective=find_objective("rho"), budget=5))


def test_the_engines_evaluate_alike() -> None:
    found = [
        outcome(walk(history(3, 60), "selftune", policy="themis", how=FAIR, world=world, trials=trials))
        for world, trials in (
            (replace(LEARNT, engine="reference"), LocalTrials("reference")),
            (LEARNT, LocalTrials("auto")),
        )
    ]
    assert found[0] == found[1]


def test_every_line_runs() -> None:
    found = walk(history(3), *LINES, policy="themis", how=FAIR, world=LEARNT)
    lines = {line.name: line for line in found.lines}
    assert set(lines) == set(LINES)
    assert any(line.switches for line in lines.values())
    assert all(line.metrics["rho_le_1_share"] is not None for line in lines.values())
    assert lines["oracle"].metrics["finished"] == lines["fixed"].metrics["finished"]
    page = evaluate_page(found)
    assert "Tuned for</dt><dd>the share of jobs with ρ ≤ 1" in page
    assert page.index(">ρ ≤ 1</th>") < page.index(">Wait, mean</th>")


def test_a_setting_that_never_changes_gives_the_plain_simulation() -> None:
    trace, knobs = history(4), find_policy("themis").space.defaults
    one = simulate(trace.window(WINDOW), CLUSTER, "themis", knobs, LEARNT)
    for line in walk(trace, "fixed", policy="themis", how=FAIR, world=LEARNT).lines:
        assert line.timeline.digest() == one.timeline.digest()
        assert line.metrics == one.metrics


@pytest.mark.parametrize(
    ("line", "count"), [("fixed-week", 16), ("selftune", 16), ("trimtab", 8), ("trimtab-plus", 8)]
)
def test_the_future_does_not_reach_back(line: str, count: int) -> None:
    trace, dice = history(2), np.random.default_rng(5)
    run = partial(walk, policy="themis", how=FAIR, world=LEARNT)
    before = run(trace, line).lines[0]
    for place, at_ms in enumerate(dice.integers(START_MS, END_MS, count).tolist()):
        at_ms = at_ms // HOUR_MS * HOUR_MS if place % 4 == 0 else at_ms  # when rounds are held, too
        after = run(another_future(trace, before, at_ms, dice), line).lines[0]
        assert decisions(after, at_ms) == decisions(before, at_ms), f"{line} at {at_ms} ms"


def test_jobs_are_not_merged_where_each_has_to_fare_well() -> None:
    policy, cluster = find_policy("themis"), Cluster.pool(5, 8)
    workload = Workload.of(history(8, 600), 500_000)
    situation = Situation.empty(workload, cluster, "themis", World().environment(workload))
    space = search_space(policy, policy.space.defaults, "consolidated")
    probes = probes_of(space, space.base, (), Seeds(1))
    for name, individual in (("rho", True), ("wait", False)):
        objective = find_objective(name)
        full = Bench(situation, partial(LocalTrials().measure, situation, objective=objective))
        found = calibrate(full, LocalTrials(), objective, space.base, probes, 80)
        assert (not found.rungs) == individual, found.reason


def test_the_search_leaves_definitions_alone() -> None:
    policy = find_policy("themis")
    base = policy.space.project({"ideal_model": "paper", "lease_update": "now"})
    for placement, varied in (("consolidated", 4), ("relaxed", 5)):
        space = search_space(policy, base, placement)
        assert len(space.axes) == varied
        point = space.to_point(base)
        assert space.knobs(point) == base
        ends = {axis.name: axis.decode(1.0) for axis in space.axes}
        assert dict(space.knobs(ends)) == {
            **base,
            "lease": 3600,
            "fairness_f": 0.95,
            "auction_delay": 300,
            "hidden_payment": True,
            "placement_threshold": 1 if placement == "relaxed" else 0,
        }


@pytest.mark.parametrize(
    ("gpus", "says"), [(1, "none that finished under fixed has any run time"), (99, "no job finished")]
)
def test_where_rho_is_not_defined_the_page_says_why(gpus: int, says: str) -> None:
    rows = [{"job_id": "a", "submit_ms": START_MS, "duration_ms": 0, "gpus": gpus}]
    found = walk(table(rows), "fixed", "selftune", policy="themis", how=FAIR, world=LEARNT)
    assert [line.metrics["rho_le_1_share"] for line in found.lines] == [None, None]
    assert says in evaluate_page(found)
