"""Rows of what was measured: how settings and situations become numbers, and what they add up to."""

from __future__ import annotations

import math

import numpy as np
import pytest

from histories import CLUSTER, HOUR_MS, WORLD, history
from trimtab.objective import Measured, find_objective
from trimtab.policies.catalog import find_policy
from trimtab.search.model import add_up
from trimtab.search.sampler import design
from trimtab.search.samples import FEATURES, MEDIATORS, Encoding, Samples, Summary
from trimtab.search.spaces import search_space
from trimtab.simulate.engines import make_engine
from trimtab.simulate.trials import LocalTrials
from trimtab.simulate.whatif import Situation
from trimtab.simulate.workload import Workload
from trimtab.studies.futures import oracle_future
from trimtab.world import Seeds

POLICY = find_policy("tiresias")
SPACE = search_space(POLICY, POLICY.space.defaults, "consolidated")


def situation(hour: int, seed: int = 1, run_on_h: int = 4) -> Situation:
    """Return a busy cluster at an hour, with its true future cut off while jobs still run."""
    workload = Workload.of(history(seed), WORLD.spread_ppm)
    environment = WORLD.environment(workload)
    engine = make_engine("auto", workload, CLUSTER, POLICY, SPACE.base, environment)
    engine.run(hour * HOUR_MS)
    return oracle_future(
        engine, hour * HOUR_MS, workload, "tiresias", environment, 2 * HOUR_MS, run_on_h * HOUR_MS
    )


def test_an_axis_that_makes_no_difference_is_not_a_number() -> None:
    encoding = Encoding(SPACE)
    order = ["in_queue_order=sim_tail", "in_queue_order=start", "in_queue_order=submit"]
    assert encoding.columns == (
        "num_queues",
        "base_threshold",
        "threshold_ratio",
        "starve",
        "starve_limit",
        *order,
    )
    inert = {
        queues: {
            name
            for name, value in zip(
                encoding.columns, encoding.row(SPACE.space.project({"num_queues": queues})), strict=True
            )
            if math.isnan(value)
        }
        for queues in (1, 2, 3)
    }
    assert inert[1] == {"base_threshold", "threshold_ratio", "starve", "starve_limit"}
    assert inert[2] == {"threshold_ratio", "starve_limit"}
    assert inert[3] == {"starve_limit"}
    starving = SPACE.space.project({"num_queues": 2, "promote_knob": 8.0, "in_queue_order": "start"})
    row = dict(zip(encoding.columns, encoding.row(starving), strict=True))
    assert 0 < row["starve_limit"] < 1
    assert [row[name] for name in order] == [0, 1, 0]
    assert encoding.gates == {"num_queues", "starve"}


@pytest.mark.parametrize("hour", [14, 17, 20])
@pytest.mark.parametrize("objective", ["wait", "jct"])
def test_measured_parts_add_up_to_the_cost(objective: str, hour: int) -> None:
    """With what is known beforehand, and although the window ends while jobs wait and run."""
    one = situation(hour)
    samples = Samples(Encoding(SPACE))
    number = samples.open(Summary.of(one))
    settings = [SPACE.knobs(point) for point in design(SPACE, 12, Seeds(hour))]
    for knobs, measured in zip(
        settings, LocalTrials().measure(one, settings, find_objective(objective)), strict=True
    ):
        samples.add(number, knobs, measured, designed=True)
    table = samples.table(1)
    parts = dict(zip(MEDIATORS, table.mediators.T, strict=True))
    assert np.ptp(table.cost) > 0
    assert parts["unrun_s"].max() > 0
    assert add_up(objective, parts, table.run_s, table.age_s) == pytest.approx(table.cost, abs=0.01)


def test_a_summary_does_not_depend_on_the_settings_and_sees_the_load() -> None:
    quiet, busy = (Summary.of(situation(14, seed=seed)) for seed in (1, 2))
    assert len(quiet.features) == len(FEATURES)
    assert np.isfinite(quiet.features).all()
    assert not np.array_equal(quiet.features, busy.features)


def test_trials_without_numbers_are_not_rows() -> None:
    samples = Samples(Encoding(SPACE))
    number = samples.open(Summary(np.zeros(len(FEATURES)), 10.0, 0.0))
    for bad in (math.inf, math.nan):
        assert not samples.add(number, SPACE.base, Measured(*[bad] * 6), designed=True)
    assert samples.add(number, SPACE.base, Measured(3.0, 10.0, 2.0, 1.0, 0.0, 0.5), designed=False)
    assert len(samples) == len(samples.table(1)) == 1


def test_a_table_holds_the_last_situations_in_order() -> None:
    samples = Samples(Encoding(SPACE))
    for hour in range(4):
        number = samples.open(Summary(np.full(len(FEATURES), float(hour)), 10.0, hour))
        samples.add(number, SPACE.base, Measured(hour, 9.0, hour, 0.0, 0.0, 0.0), designed=hour % 2 == 0)
    table = samples.table(2)
    assert table.situation.tolist() == [2, 3]
    assert table.cost.tolist() == [2, 3]
    assert table.age_s.tolist() == [2, 3]
    assert table.designed.tolist() == [True, False]
    assert table.mediators[:, MEDIATORS.index("unrun_s")].tolist() == [1, 1]
    assert len(samples.table(99)) == 4
    assert table.take(np.array([1])).situation.tolist() == [3]
