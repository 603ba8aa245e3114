"""Tuning for deadlines: every line, on both engines, without a look at the future."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from histories import END_MS, START_MS, another_future, decisions, history, outcome, plan, walk
from trimtab.objective import find_objective
from trimtab.report.evaluate import evaluate_page
from trimtab.search.tuner import Tuning
from trimtab.simulate.run import World
from trimtab.simulate.trials import LocalTrials
from trimtab.studies.lines import LINES
from trimtab.traces.deadlines import with_deadlines
from trimtab.traces.trace import Trace
from trimtab.world import Seeds

IN_TIME = plan(tuning=Tuning(objective=find_objective("violations"), budget=5))
WORLD = World(restart_cost_s=30.0)


def bound(seed: int) -> Trace:
    """Return a day of jobs of which most have a deadline."""
    return with_deadlines(history(seed), "tight", "50/30/20", Seeds(0))


def kept(trace: Trace, other: Trace) -> Trace:
    """Return another future whose jobs have the deadlines they were submitted with; new ones have none."""
    columns = trace.jobs.select("job_id", "deadline_ms", "deadline_value", "service_class")
    return replace(other, jobs=other.jobs.join(columns, on="job_id", how="left", maintain_order="left"))


def test_every_line_runs_and_the_page_tells_of_deadlines() -> None:
    found = walk(bound(3), *LINES, how=IN_TIME, world=WORLD)

    assert {line.name for line in found.lines} == set(LINES)
    assert any(line.switches for line in found.lines)
    for line in found.lines:
        assert 0 < (line.metrics["slo_violation_rate_weighted"] or 0) < 1
    page = evaluate_page(found)
    assert "the value lost by missed deadlines" in page
    assert "Deadlines missed" in page


def test_the_engines_evaluate_alike() -> None:
    found = [
        outcome(walk(bound(4), "selftune", how=IN_TIME, world=world, trials=trials))
        for world, trials in (
            (replace(WORLD, engine="reference"), LocalTrials("reference")),
            (WORLD, LocalTrials("auto")),
        )
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("line", ["selftune", "trimtab"])
def test_the_future_does_not_reach_back(line: str) -> None:
    trace, dice = bound(2), np.random.default_rng(5)
    run = partial(walk, how=IN_TIME, world=WORLD)
    before = run(trace, line).lines[0]
    for at_ms in dice.integers(START_MS, END_MS, 5).tolist():
        other = kept(trace, another_future(trace, before, at_ms, dice))
        after = run(other, line).lines[0]
        assert decisions(after, at_ms) == decisions(before, at_ms), f"{line} at {at_ms} ms"
