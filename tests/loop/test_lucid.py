"""Lucid tuned hour by hour: every line runs, both engines agree, no line but the oracle sees the future."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from histories import (
    END_MS,
    HOUR_MS,
    START_MS,
    WORLD,
    another_future,
    decisions,
    history,
    outcome,
    plan,
    walk,
)
from trimtab.cluster import Cluster
from trimtab.simulate.models import assign_models
from trimtab.simulate.speed import BUILTIN
from trimtab.simulate.trials import LocalTrials
from trimtab.traces.trace import Trace
from trimtab.world import Seeds

LINES = ("fixed", "fixed-week", "selftune", "trimtab", "trimtab-plus", "oracle")
PREDICTED = replace(WORLD, estimates="predicted")
FOUR_NODES = Cluster.pool(4, 2)


def _modelled(trace: Trace) -> Trace:
    return assign_models(trace, BUILTIN, "draw", Seeds(0)).trace


def test_all_lines_run_and_the_engines_evaluate_alike() -> None:
    """Searches, switches and every event are the same on both engines; jobs are profiled, and some share."""
    found = [
        walk(
            _modelled(history(3, 200)),
            *LINES,
            policy="lucid",
            cluster=FOUR_NODES,
            how=plan(3),
            world=replace(WORLD, engine=kind),
            trials=LocalTrials(kind),
        )
        for kind in ("reference", "auto")
    ]
    assert outcome(found[0]) == outcome(found[1])
    assert [line.name for line in found[0].lines] == list(LINES)
    assert any(line.switches for line in found[0].lines)
    told = [event for line in found[0].lines for event in line.timeline.events]
    assert any(event.detail.startswith("beside") for event in told if event.kind == "start")
    assert any(event.kind == "preempt" for event in told)


@pytest.mark.parametrize("seed", [1, 2])
def test_no_line_but_the_oracle_sees_the_future(seed: int) -> None:
    """Other arrivals and other endings from an instant on leave everything decided before it as it was, the
    forecast that switches sharing and the estimates included."""
    dice = np.random.default_rng(seed)
    trace = _modelled(history(seed, 200))
    names = [line for line in LINES if line != "oracle"]
    whole = walk(trace, *names, policy="lucid", cluster=FOUR_NODES, how=plan(3), world=PREDICTED)
    at_ms = int(dice.integers(START_MS // HOUR_MS + 1, END_MS // HOUR_MS)) * HOUR_MS
    for line in whole.lines:
        other = _modelled(another_future(trace, line, at_ms, dice))
        again = walk(other, line.name, policy="lucid", cluster=FOUR_NODES, how=plan(3), world=PREDICTED)
        assert decisions(again.lines[0], at_ms) == decisions(line, at_ms)
