"""Deadlines by hand: who met which, what that was worth, how late, and how much CPU and memory was held."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from trimtab.cluster import Cluster
from trimtab.curve import Curve, Share
from trimtab.job import JobFacts, Service
from trimtab.knobs import Knobs
from trimtab.objective import find_objective
from trimtab.policies.catalog import find_policy
from trimtab.simulate.deadlines import GROUPS, Deadlines
from trimtab.simulate.engine import Engine
from trimtab.simulate.metrics import jobs_table, metrics_of
from trimtab.simulate.shares import held_shares
from trimtab.simulate.state import NONE_MS, Environment, Outcomes
from trimtab.simulate.whatif import Situation
from trimtab.simulate.workload import Workload
from trimtab.timeline import Timeline

NODE = Cluster.pool(1, 4)
CURVE = Curve((3,), (64_000,), ((1_000_000,),))


def strict(deadline_s: int) -> Service:
    return Service("strict", (1000 * deadline_s,), (10,))


SOFT = Service("soft", (50_000, 150_000, 300_000), (10, 8, 5))
# One after the other on all GPUs: A 0..100, B 100..150, C 150..200, D 200..210, E never.
JOBS = [
    JobFacts("A", 0, 4, service=strict(100)),
    JobFacts("B", 10_000, 4, service=SOFT),
    JobFacts("C", 20_000, 4, service=strict(170)),
    JobFacts("D", 30_000, 4),
    JobFacts("E", 40_000, 5, service=strict(1000)),
]
RUN_S = [100, 50, 50, 10, 10]


def run(jobs: list[JobFacts], run_s: list[int]) -> Engine:
    workload, fifo = Workload(jobs, [1000 * one for one in run_s]), find_policy("fifo")
    engine = Engine(workload, NODE, fifo, fifo.space.defaults, Environment(), timeline=True)
    engine.run()
    return engine


def test_violations_value_and_tardiness() -> None:
    engine = run(JOBS, RUN_S)
    table = jobs_table(engine.workload, engine.outcomes)

    assert table["service_class"].to_list() == ["strict", "soft", "strict", "best", "strict"]
    assert table["deadline_s"].to_list() == [
        "100.000", "40.000/140.000/290.000", "150.000", None, "960.000",
    ]  # fmt: skip
    assert table["deadline_met"].to_list() == [True, False, False, None, False]
    assert table["deadline_value"].to_list() == [10, 8, 0, None, 0]
    found = metrics_of(table, NODE)
    assert found["slo_jobs"] == 4
    assert found["slo_violation_rate"] == 3 / 4
    assert found["slo_violation_rate_weighted"] == pytest.approx((0 + 0.2 + 1 + 1) / 4)
    assert found["slo_violation_rate_strict"] == 2 / 3
    assert found["slo_violation_rate_soft"] == 1
    # A 0 s, B 150 - 50, C 200 - 170; E did not finish.
    assert found["tardiness_s_sum"] == 130
    assert found["tardiness_s_p95"] == pytest.approx(np.percentile([0, 100, 30], 95))
    assert found["tardiness_s_mean"] == pytest.approx(130 / 3)


def test_mean_times_of_each_group() -> None:
    engine = run(JOBS, RUN_S)
    found = metrics_of(jobs_table(engine.workload, engine.outcomes), NODE)

    assert found["jct_s_mean_strict"] == (100 + 180) / 2
    assert found["queue_s_mean_soft"] == found["first_queue_s_mean_soft"] == 90
    assert found["jct_s_mean_best"] == 180
    assert found["jct_s_mean_met"] == 100
    assert found["queue_s_mean_missed"] == (90 + 130) / 2
    assert found["first_queue_s_mean"] == (0 + 90 + 130 + 170) / 4
    assert found["first_queue_s_p50"] == found["queue_s_p50"] == (90 + 130) / 2
    assert (found["jct_s_p50_strict"], found["queue_s_p50_best"]) == (140, 170)


def test_counts_value_and_tardiness_of_each_group() -> None:
    engine = run(JOBS, RUN_S)
    found = metrics_of(jobs_table(engine.workload, engine.outcomes), NODE)

    counts = {name: found.get(f"jobs_{name}") for name in GROUPS}
    assert counts == {
        "strict": 3, "soft": 1, "best": 1, "met": 1, "missed": 3, "promised": None, "refused": None,
    }  # fmt: skip
    assert found["slo_violation_rate_weighted_soft"] == pytest.approx(0.2)
    assert found["slo_violation_rate_weighted_strict"] == pytest.approx(2 / 3)
    # A 0 s, C 30 s; E, which never finished, has none.
    assert found["tardiness_s_mean_strict"] == 15
    assert found["tardiness_s_mean_missed"] == (100 + 30) / 2
    assert not any(f"{name}_best" in found for name in ("slo_violation_rate", "tardiness_s_mean"))


def test_preemptions_and_resizes_of_each_group() -> None:
    table = table_of(preemptions=[4, 1, 0, 2, 1], resizes=[0, 6, 3, 2, 0])
    found = metrics_of(table, NODE)

    assert (found["preemptions_per_job"], found["preemptions_per_job_strict"]) == (8 / 5, 5 / 3)
    assert (found["preemptions_per_job_best"], found["resizes_per_job_best"]) == (2, 2)
    assert (found["resizes_per_job_soft"], found["resizes_per_job_missed"]) == (6, 9 / 3)


def test_who_was_promised_a_deadline_and_who_was_refused_are_told_apart() -> None:
    # A and C were promised theirs, B and E refused; D has none to be asked for.
    found = metrics_of(table_of(promise_kept=[True, None, False, None, None]), NODE)

    assert (found["jobs_promised"], found["jobs_refused"], found["promised"]) == (2, 2, 2)
    assert (found["slo_violation_rate_promised"], found["slo_violation_rate_refused"]) == (0.5, 1)
    assert (found["jct_s_mean_promised"], found["jct_s_mean_refused"]) == ((100 + 180) / 2, 140)
    assert found["slo_violation_rate_weighted_refused"] == pytest.approx((0.2 + 1) / 2)


def table_of(**columns: list[int] | list[bool | None]) -> pl.DataFrame:
    """Return what became of the jobs, with other values in some columns."""
    engine = run(JOBS, RUN_S)
    table = jobs_table(engine.workload, engine.outcomes)
    return table.with_columns(**{name: pl.Series(values) for name, values in columns.items()})


def test_without_deadlines_nothing_is_told_of_them() -> None:
    engine = run([JobFacts("A", 0, 4)], [10])
    table = jobs_table(engine.workload, engine.outcomes)

    assert "deadline_met" not in table.columns
    found = metrics_of(table, NODE)
    assert found["slo_violation_rate"] is None
    assert not any("strict" in name or "tardiness" in name or "promise" in name for name in found)


def test_promises_kept() -> None:
    ends = np.array([100, 200, 300], dtype=np.int64)
    promises = np.array([100, 199, NONE_MS], dtype=np.int64)
    none = np.zeros(3, dtype=np.int64)
    outcomes = Outcomes(none, ends, ends, none, none, none.astype(np.bool_), none, none, promises)
    workload = Workload([JobFacts(name, 0, 1) for name in "ABC"], ends.tolist())
    table = jobs_table(workload, outcomes)

    assert table["promise_kept"].to_list() == [True, False, None]
    assert table["promised_s"].to_list() == [0.1, 0.199, None]
    found = metrics_of(table, NODE)
    assert (found["promised"], found["promise_kept_rate"]) == (2, 0.5)


def test_values_count_by_the_best_one_of_each_job() -> None:
    halves = Service("soft", (10, 20), (2, 1))
    unsaid = Service("strict", (10,))
    found = Deadlines.of([JobFacts("A", 0, 1, service=one) for one in (halves, unsaid, Service())])

    assert found is not None
    ends = np.array([20, 11, 20], dtype=np.int64)
    assert found.lost_ppm(ends).tolist() == [500_000, 1_000_000, -1]


def test_the_objective_is_the_value_lost_then_the_mean_completion_time() -> None:
    fifo = find_policy("fifo")
    workload = Workload(JOBS, [1000 * one for one in RUN_S])
    stays = Situation.empty(workload, NODE, "fifo", Environment()).stays(fifo.space.defaults)
    objective = find_objective("violations")

    assert stays is not None
    assert stays.lost_ppm is not None
    # E is rejected: it is no stay. A loses nothing, B a fifth, C all; D has no deadline.
    assert stays.lost_ppm.tolist() == [0, 200_000, 1_000_000, -1]
    jct_s = (100 + 140 + 180 + 180) / 4
    assert objective.of(stays).cost == pytest.approx(40 + 0.1 * jct_s / (jct_s + 86_400))
    assert objective.gain(40.0, 20.5) == 41 / 21.5


def test_a_job_cut_off_counts_as_going_on_at_full_speed() -> None:
    jobs = [JobFacts("A", 0, 4, service=strict(100)), JobFacts("B", 0, 4, service=strict(159))]
    fifo = find_policy("fifo")
    whole = Situation.empty(Workload(jobs, [100_000, 60_000]), NODE, "fifo", Environment())
    lost = {
        until_s: replace(whole, until_ms=1000 * until_s).stays(fifo.space.defaults).lost_ppm.tolist()
        for until_s in (50, 99, 100, 130)
    }

    # B has waited until then and would begin at once.
    assert lost == {50: [0, 0], 99: [0, 0], 100: [0, 1_000_000], 130: [0, 1_000_000]}


def test_deadlines_move_along_with_a_job_that_comes_again() -> None:
    again = JOBS[1].submitted(1_000_000)

    assert (again.label, again.submit_ms, again.gpus) == ("B", 1_000_000, 4)
    assert again.service == Service("soft", (1_040_000, 1_140_000, 1_290_000), (10, 8, 5))
    assert JOBS[3].submitted(5) == JobFacts("D", 5, 4)


def timeline() -> Timeline:
    """Return a run of 100 s: A has more than its part from 50 s on, B less than its own for 30 s."""
    made = Timeline(["A", "B"], [2, 1])
    made.add(0, "start", 0, ((0, 2),))
    made.add(20_000, "start", 1, ((0, 1),), "2 cores 10000 MiB")
    made.add(50_000, "resize", 0, ((0, 2),), "8 cores 200000 MiB")
    made.add(50_000, "preempt", 1, ((0, 1),))
    made.add(100_000, "finish", 0)
    return made


def test_held_cpu_and_memory() -> None:
    cores = 50 * 6 + 30 * 2 + 50 * 8
    memory_mib = 50 * 128_000 + 30 * 10_000 + 50 * 200_000

    assert held_shares(timeline(), NODE) == Share(1000 * cores, 1000 * memory_mib)


def test_what_comes_with_gpus_of_two_jobs_is_held_once() -> None:
    made = Timeline(["A", "B"], [2, 2])
    made.add(0, "start", 0, ((0, 2),))
    made.add(10, "start", 1, ((0, 2),), "beside A")
    made.add(30, "finish", 0)
    made.add(50, "finish", 1)

    assert held_shares(made, NODE) == Share(50 * 6, 50 * 128_000)


def test_cpu_utilisation_of_a_run_that_fills_half_the_node() -> None:
    engine = run([JobFacts("A", 0, 2, curve=CURVE)], [100])
    assert engine.timeline is not None
    held = held_shares(engine.timeline, NODE)
    found = metrics_of(jobs_table(engine.workload, engine.outcomes), NODE, held=held)

    assert (found["cpu_utilisation"], found["memory_utilisation"]) == (0.5, 0.5)
    assert found["resizes_per_job"] == 0


def test_knobs_of_fifo_are_what_the_hand_computation_assumes() -> None:
    assert find_policy("fifo").space.defaults == Knobs({"backfill": "strict"})
