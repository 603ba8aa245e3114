"""Deadlines drawn for a trace: bounds, shares, loads, what depends on what, and the published ones beside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import ks_2samp, kstest

from trimtab.errors import ConfigError, UnknownName
from trimtab.job import Service
from trimtab.simulate.workload import Workload, services_of
from trimtab.traces import chronus, table
from trimtab.traces.deadlines import (
    CLASS_MIXES,
    RULES,
    load_of,
    scaled_to_load,
    thinned_by_job,
    with_deadlines,
)
from trimtab.traces.loader import load
from trimtab.traces.trace import Provenance, Trace
from trimtab.world import Seeds

MINUTE_MS = 60_000
SEEDS = Seeds(5)


def trace_of(minutes: list[int], gpus: int = 1) -> Trace:
    """Jobs a minute apart that run so many minutes."""
    jobs = pl.DataFrame(
        {
            "job_id": [f"j{number}" for number in range(len(minutes))],
            "submit_ms": [number * MINUTE_MS for number in range(len(minutes))],
            "duration_ms": [one * MINUTE_MS for one in minutes],
            "gpus": [gpus] * len(minutes),
        }
    )
    return Trace.build(jobs, Provenance("test", "", len(minutes)))


def first_ms(trace: Trace) -> np.ndarray:
    """The first deadline of each job, all of which have one."""
    return trace.jobs["deadline_ms"].str.split("/").list.first().cast(pl.Int64).to_numpy()


@pytest.mark.parametrize(("rule", "low", "high"), [("tight", 1.05, 1.3), ("loose", 1.5, 3.0)])
def test_a_factor_times_the_run_time(rule: str, low: float, high: float) -> None:
    trace = with_deadlines(trace_of([100] * 2000), rule, "SLO", SEEDS)
    factors = first_ms(trace) / (100 * MINUTE_MS)
    assert kstest(factors, "uniform", (low, high - low)).pvalue > 0.01


@given(st.sampled_from(sorted(RULES)), st.integers(1, 40_000_000_000), st.integers(0, 99))
def test_the_rules_bounds(rule: str, duration_ms: int, seed: int) -> None:
    one = RULES[rule]
    found = one.draw_ms(duration_ms, Seeds(seed).stream("x"))
    assert one.low * duration_ms <= found <= one.high * duration_ms + one.extra_ms + 1
    assert found <= one.most_ms or one.low * duration_ms >= one.most_ms


def test_chronus_own_deadlines_come_out(shared: Path) -> None:
    """The rule on the run times of the published traces, beside the deadlines that these have."""
    for file in ("SLO", "MIX1"):
        trace = chronus.load(shared / "data" / "chronus" / f"trace_job_Philly_{file}.csv.gz")
        trace = trace.select(trace.jobs["deadline_ms"].is_not_null().to_numpy())
        run_ms = trace.column("duration_ms")
        slack, drawn = (
            first_ms(one) - run_ms for one in (trace, with_deadlines(trace, "chronus", "SLO", SEEDS))
        )
        long = run_ms >= 2_000 * MINUTE_MS
        assert ks_2samp(slack[~long], drawn[~long]).statistic < 0.03  # whole minutes there
        assert ks_2samp(slack[long], drawn[long]).statistic < 0.07
        assert drawn[long].mean() == pytest.approx(slack[long].mean(), rel=0.06)


# ---- classes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "shares"), [("SLO", (1, 0, 0)), ("mix1", (0.7, 0, 0.3)), ("1/2/1", (0.25, 0.5, 0.25))]
)
def test_shares_of_classes(classes: str, shares: tuple[float, float, float]) -> None:
    trace = with_deadlines(trace_of([60] * 4000), "chronus", classes, SEEDS)
    names = trace.labels("service_class")
    for name, share in zip(("strict", "soft", "best"), shares, strict=True):
        assert names.count(name) / 4000 == pytest.approx(share, abs=0.03)
    assert (trace.labels("deadline_ms").count(None) > 0) == (shares[2] > 0)


def test_soft_jobs_have_four_deadlines() -> None:
    """Short jobs: steps of 20 to 60 min. Longer ones: from the run time, then twice and five times."""
    short = _offsets(with_deadlines(trace_of([400] * 1500), "chronus", "0/1/0", SEEDS))
    steps = np.diff(short, axis=1, prepend=0)
    assert set(steps.ravel().tolist()) == {20, 30, 40, 50, 60}
    assert np.allclose(short.mean(axis=0), (40, 80, 120), atol=3)
    long = _offsets(with_deadlines(trace_of([1350] * 1500), "chronus", "0/1/0", SEEDS))
    assert (long[:, 1:] == long[:, :1] * (2, 5)).all()
    assert np.allclose(long.mean(axis=0), (184, 368, 920), rtol=0.03)
    assert set((long % 10).ravel().tolist()) == {0}
    for minutes, only in ((481, {60, 70, 80}), (4300, {430, 440, 450, 460, 470, 480})):
        found = _offsets(with_deadlines(trace_of([minutes] * 1500), "chronus", "0/1/0", SEEDS))
        assert set(found[:, 0].tolist()) == only


def _offsets(trace: Trace) -> NDArray[np.float64]:
    """How many minutes the later deadlines are after the first, shape (jobs, 3)."""
    assert set(trace.labels("deadline_value")) == {"10/8/5/2"}
    found = np.array([[int(part) for part in text.split("/")] for text in trace.jobs["deadline_ms"]])
    offsets: NDArray[np.float64] = (found[:, 1:] - found[:, :1]) / MINUTE_MS
    return offsets


@given(st.permutations(range(8)), st.integers(0, 50))
def test_what_a_job_draws_is_its_own(order: list[int], seed: int) -> None:
    """Other jobs, their order, the mix of classes and the load do not move a job's first deadline."""
    whole = trace_of([10, 20, 600, 40, 50, 3000, 70, 80])
    drawn = dict(
        zip(whole.jobs["job_id"], first_ms(with_deadlines(whole, "chronus", "SLO", Seeds(seed))), strict=True)
    )
    part = replace(whole, jobs=whole.jobs[order[:5]])
    soft = with_deadlines(part, "chronus", "0/1/0", Seeds(seed))
    assert dict(zip(soft.jobs["job_id"], first_ms(soft), strict=True)) == {
        label: drawn[label] for label in part.jobs["job_id"]
    }


def test_the_seed_matters() -> None:
    trace = trace_of([100] * 50)
    one, same, other = (with_deadlines(trace, "chronus", "MIX2", Seeds(seed)).jobs for seed in (1, 1, 2))
    assert one.equals(same)
    assert not one.equals(other)


def test_refusals() -> None:
    trace = trace_of([10, 10])
    with pytest.raises(UnknownName, match="unknown deadline rule 'chrono'; did you mean 'chronus'"):
        with_deadlines(trace, "chrono", "SLO", SEEDS)
    for classes in ("70/30", "0/0/0", "a/b/c", "MIX3", "-1/0/1", ""):
        with pytest.raises(ConfigError, match="must be weights of strict, soft and best-effort jobs"):
            with_deadlines(trace, "chronus", classes, SEEDS)
    assert set(CLASS_MIXES) == {"SLO", "MIX1", "MIX2"}


# ---- load ----------------------------------------------------------------------------------------


def test_load_by_hand() -> None:
    """Three jobs of 10 min on 2 GPUs within 2 min: 60 GPU-min over 4 x 2; at load 1 within 15 min."""
    trace = trace_of([10, 10, 10], gpus=2)
    assert load_of(trace, 4) == 7.5
    moved = scaled_to_load(trace, 1.0, 4)
    assert moved.column("submit_ms").tolist() == [0, 450_000, 900_000]
    assert load_of(moved, 4) == 1.0


@given(st.floats(0.05, 5), st.integers(1, 64))
def test_a_load_is_reached(target: float, gpus: int) -> None:
    trace = trace_of(list(range(100, 140)))
    moved = scaled_to_load(trace, target, gpus)
    assert load_of(moved, gpus) == pytest.approx(target, rel=1e-4)
    assert moved.jobs.drop("submit_ms").equals(trace.jobs.drop("submit_ms"))
    assert moved.jobs["submit_ms"].is_sorted()


def test_loads_that_there_are_not() -> None:
    trace = trace_of([10, 10])
    for target in (0.0, -1.0, 1e9, float("nan")):
        with pytest.raises(ConfigError, match="load = "):
            scaled_to_load(trace, target, 4)
    with pytest.raises(ConfigError, match="all jobs come at one instant"):
        load_of(trace_of([10]), 4)


def test_thinning_is_by_job() -> None:
    """A tenth of a half are the same jobs as of the whole."""
    whole = trace_of([10] * 3000)
    kept = thinned_by_job(whole, 0.1, SEEDS)
    assert len(kept) == pytest.approx(300, abs=50)
    assert kept.set_aside == {"thinned": 3000 - len(kept)}
    half = thinned_by_job(whole.select(np.arange(3000) < 1500), 0.1, SEEDS)
    assert half.jobs["job_id"].to_list() == [label for label in kept.jobs["job_id"] if int(label[1:]) < 1500]
    for share in (0.0, 1.5, 1e-9):
        with pytest.raises(ConfigError, match="thin = "):
            thinned_by_job(whole, share, SEEDS)


# ---- from columns to what schedulers are told ----------------------------------------------------

WISHES = """job_id,submit_s,duration_s,gpus,deadline_s,deadline_value,service_class
a,100,9,1,60,,strict
b,100,9,1,60/30/90.5,2/10/1,
c,100,9,1,60/70,,
d,100,9,1,60,7,soft
e,100,9,1,60,,best
f,100,9,1,,,strict
g,100,9,1,60,10/5,sometimes
h,100,9,1,60/70,ten/5,soft
i,100,9,1,1/2/3/4/5,,
"""
FOUND = [
    Service("strict", (160_000,), (10,)),
    Service("soft", (130_000, 160_000, 190_500), (10, 2, 1)),
    Service("soft", (160_000, 170_000), (10, 8)),
    Service("soft", (160_000,), (7,)),
    Service(),
    Service(),
    Service("strict", (160_000,), (10,)),
    Service("soft", (160_000, 170_000), (10, 8)),
    Service("soft", (101_000, 102_000, 103_000, 104_000, 105_000), (10, 8, 5, 2, 2)),
]


def test_services_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(WISHES)
    trace = table.load(tmp_path / "jobs.csv")
    assert services_of(trace) == FOUND
    assert [one.service for one in Workload.of(trace, 500_000).facts] == FOUND
    assert trace.provenance.notes[:2] == (
        "service_class is none of strict, soft, best in 1 rows: taken as not told.",
        "deadline_value is not a whole number for each deadline in 2 rows: taken as not told.",
    )


def test_services_on_the_clock_of_a_window(tmp_path: Path) -> None:
    """Second 0 of a dated trace is its first midnight, or where the window begins."""
    (tmp_path / "jobs.csv").write_text(
        "job_id,submit_s,duration_s,gpus,deadline_s\n"
        "a,2020-01-01 10:00:00,9,1,60\nb,2020-01-02 10:00:00,9,1,60\n"
    )
    trace = table.load(tmp_path / "jobs.csv")
    assert [one.deadlines_ms for one in services_of(trace)] == [(36_060_000,), (122_460_000,)]
    later = trace.window("2020-01-02..2020-01-03")
    assert [one.deadlines_ms for one in services_of(later)] == [(36_060_000,)]


def test_a_job_submitted_later_wants_it_later() -> None:
    facts = Workload.of(with_deadlines(trace_of([100]), "chronus", "0/1/0", SEEDS), 500_000).facts[0]
    moved = facts.submitted(facts.submit_ms + 5_000)
    assert moved.submitted(facts.submit_ms) == facts
    assert [b - a for a, b in zip(facts.service.deadlines_ms, moved.service.deadlines_ms, strict=True)] == [
        5_000
    ] * 4


def test_drawn_deadlines_are_read_back(tmp_path: Path) -> None:
    drawn = with_deadlines(trace_of([100, 600, 5000] * 20), "chronus", "MIX2", SEEDS)
    for name in ("jobs.csv", "jobs.parquet"):
        table.save(drawn, tmp_path / name)
        again = load(str(tmp_path / name))
        assert again.jobs.equals(drawn.jobs)
        assert services_of(again) == services_of(drawn)


def test_chronus_as_it_is(shared: Path) -> None:
    trace = load(f"chronus:{shared / 'data' / 'chronus' / 'trace_job_Philly_MIX1.csv.gz'}")
    services = [facts.service for facts in Workload.of(trace, 500_000).facts]
    kinds = [one.kind for one in services]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"strict": 21_600, "best": 9_156}
    assert {one.values for one in services} == {(), (10,)}
    submit_ms = trace.column("submit_ms").tolist()
    assert all(
        one.deadlines_ms > (at_ms,) for one, at_ms in zip(services, submit_ms, strict=True) if one.values
    )
