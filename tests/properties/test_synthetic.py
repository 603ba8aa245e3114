"""The synthetic presets look like the traces they are named after, and the same spec gives the same bytes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from trimtab.errors import ConfigError, UnknownName
from trimtab.traces import statistics
from trimtab.traces.presets import PRESETS
from trimtab.traces.synthetic import ORIGIN_MS, generate
from trimtab.traces.trace import DAY_MS, Trace

SEEDS = range(5)
DAYS = {"philly": 28, "helios": 56, "pai": 42}  # as long as the measured traces

# Statistics of the real traces, in the order and the units of trimtab.traces.statistics.
JOBS_A_DAY = {"philly": 1_611, "helios": 636, "pai": 912}
RUN_TIME_SHARES = {
    "philly": (20.8, 31.2, 24.8, 10.7, 5.3, 7.2),
    "helios": (55.7, 17.7, 6.4, 3.3, 3.8, 13.1),
    "pai": (38.4, 26.1, 8.8, 10.1, 7.7, 8.9),
}
GPU_TIME_SHARES = {
    "philly": (0.1, 1.1, 2.0, 1.8, 2.1, 93.0),
    "helios": (0.5, 1.2, 0.9, 1.5, 2.5, 93.3),
    "pai": (0.3, 3.1, 4.1, 8.2, 12.5, 71.7),
}
GANG_SHARES = {
    "philly": (95.5, 3.2, 1.1, 0.1, 0.0),
    "helios": (55.6, 12.1, 21.3, 5.0, 6.0),
    "pai": (76.8, 6.1, 3.3, 6.3, 7.6),
}
QUANTILES_S = {
    "philly": (67, 1_633, 10_633, 184_459),
    "helios": (10, 205, 25_861, 172_800),
    "pai": (42, 626, 12_815, 65_507),
}
GPU_HOURS = {"philly": 390_000, "helios": 716_000, "pai": 446_000}
DISPERSION = {"philly": 47.3, "helios": 20.9, "pai": 2.7}
AUTOCORRELATION = {
    "philly": (0.56, 0.11, 0.06, 0.02),
    "helios": (0.11, 0.05, 0.04, 0.04),
    "pai": (0.24, 0.08, 0.12, 0.13),
}


@pytest.fixture(scope="module", params=sorted(DAYS))
def preset(request):
    return request.param


@pytest.fixture(scope="module")
def traces(preset):
    return [generate(f"{preset}?days={DAYS[preset]}&seed={seed}") for seed in SEEDS]


def mean_over(traces: list[Trace], statistic) -> np.ndarray:
    return np.mean([statistic(trace) for trace in traces], axis=0)


def counts(trace: Trace, days: int, bin_ms: int = statistics.BIN_MS) -> np.ndarray:
    return statistics.arrival_counts(trace.column("submit_ms"), ORIGIN_MS, ORIGIN_MS + days * DAY_MS, bin_ms)


def digest(trace: Trace) -> str:
    return hashlib.sha256(trace.jobs.write_csv().encode()).hexdigest()


# The table


def test_jobs_a_day(preset, traces):
    assert mean_over(traces, len) / DAYS[preset] == pytest.approx(JOBS_A_DAY[preset], rel=0.05)


def test_run_time_classes(preset, traces):
    found = mean_over(traces, lambda trace: statistics.run_time_shares(trace.column("duration_ms")))
    assert found == pytest.approx(RUN_TIME_SHARES[preset], abs=3)


def test_gpu_time_by_run_time_class(preset, traces):
    def shares(trace: Trace) -> np.ndarray:
        gpus, duration_ms = trace.column("gpus"), trace.column("duration_ms")
        return statistics.run_time_shares(duration_ms, statistics.gpu_time_ms(gpus, duration_ms))

    assert mean_over(traces, shares) == pytest.approx(GPU_TIME_SHARES[preset], abs=6)


def test_gpu_hours_asked_for(preset, traces):
    """Not in the table, but what a simulated cluster is loaded with."""

    def gpu_hours(trace: Trace) -> float:
        gpu_ms = statistics.gpu_time_ms(trace.column("gpus"), trace.column("duration_ms"))
        return float(gpu_ms.sum()) / statistics.HOUR_MS

    assert mean_over(traces, gpu_hours) == pytest.approx(GPU_HOURS[preset], rel=0.15)


def test_gang_mix(preset, traces):
    found = mean_over(traces, lambda trace: statistics.gang_shares(trace.column("gpus")))
    assert found == pytest.approx(GANG_SHARES[preset], abs=3)


def test_run_time_quantiles(preset, traces):
    found = mean_over(traces, lambda trace: statistics.run_time_quantiles_s(trace.column("duration_ms")))
    assert np.abs(np.log(found / QUANTILES_S[preset])).max() <= np.log(1.3), found


def test_dispersion_of_arrivals(preset, traces):
    found = mean_over(traces, lambda trace: statistics.dispersion(counts(trace, DAYS[preset])))
    assert 0.5 <= found / DISPERSION[preset] <= 2


def test_autocorrelation_of_arrivals(preset, traces):
    def series(trace: Trace) -> list[float]:
        arrivals = counts(trace, DAYS[preset])
        return [statistics.autocorrelation(arrivals, lag) for lag in statistics.LAGS_BINS]

    assert mean_over(traces, series) == pytest.approx(AUTOCORRELATION[preset], abs=0.1)


# Structure


@pytest.mark.parametrize("name", ["philly", "helios"])
def test_busiest_minutes_belong_to_one_user_and_one_kind_of_job(name):
    """Real bursts are sweeps: hundreds of jobs within five minutes, near-identical, of one user."""
    trace = generate(f"{name}?days={DAYS[name]}")
    submit_ms = trace.column("submit_ms")
    jobs_count, first_ms = statistics.busiest(submit_ms)
    burst = trace.select(submit_ms // statistics.BIN_MS == first_ms // statistics.BIN_MS)
    assert jobs_count == len(burst) > 100
    for label in ("vc", "user", "name"):
        assert statistics.repeats(burst.labels(label)).top_share > 80
    sweep = burst.jobs.filter(burst.jobs["name"] == burst.jobs["name"].mode()[0])
    assert sweep["gpus"].n_unique() == 1
    assert sweep["duration_ms"].log().std() < 0.5 * trace.jobs["duration_ms"].log().std()


def test_philly_has_one_dominant_virtual_cluster():
    """About half of the real jobs come from one virtual cluster."""
    assert 30 < statistics.repeats(generate("philly").labels("vc")).top_share < 60


def test_kinds_have_one_user_and_one_width(traces):
    kinds = traces[0].jobs.group_by("name").n_unique()
    assert kinds.select("user", "vc", "gpus").max().row(0) == (1, 1, 1)


def test_most_pai_tasks_repeat_a_kind():
    """About 60 % of tasks belong to a kind that is seen more than ten times."""
    often = [statistics.repeats(generate(f"pai?days=42&seed={seed}").labels("name")) for seed in SEEDS]
    assert np.mean([repeats.often_share for repeats in often]) == pytest.approx(60, abs=6)


def test_pai_weekends_are_a_quarter_lower():
    """Days 5 and 6 of each week are Saturday and Sunday: the origin is a Monday."""
    days = np.sum([counts(generate(f"pai?days=42&seed={seed}"), 42, DAY_MS) for seed in SEEDS], axis=0)
    week = days.reshape(6, 7).sum(axis=0)
    assert week[5:].mean() / week[:5].mean() == pytest.approx(0.75, abs=0.07)


def test_helios_day_goes_nine_to_one():
    """Low around 6 h, high around 16 to 17 h."""
    hours = np.sum(
        [counts(generate(f"helios?days=56&seed={seed}"), 56, statistics.HOUR_MS) for seed in SEEDS], axis=0
    )
    day = hours.reshape(56, 24).sum(axis=0)
    assert int(np.argmin(day)) in (5, 6, 7)
    assert 6 < day[15:18].mean() / day[5:8].mean() < 12
    assert day[15:18].mean() > 1.5 * day.mean()


def test_no_helios_or_pai_job_exceeds_two_days(preset, traces):
    longest_s = max(int(trace.column("duration_ms").max()) for trace in traces) // 1000
    assert longest_s > 2_000_000 if preset == "philly" else longest_s == 172_800


def test_final_states(traces):
    shares = {
        state: 100 * count / len(traces[0]) for state, count in traces[0].jobs["state"].value_counts().rows()
    }
    assert shares == pytest.approx({"completed": 62, "cancelled": 22, "failed": 16}, abs=0.1)


# Options


def test_load_changes_how_many_jobs_arrive_and_nothing_about_them():
    usual, busy = generate("pai?days=14"), generate("pai?days=14&load=1.5")
    assert len(busy) == round(1.5 * 14 * 912)
    found, expected = (statistics.run_time_shares(trace.column("duration_ms")) for trace in (busy, usual))
    assert found == pytest.approx(expected, abs=0.5)


def test_users_and_virtual_clusters_as_asked():
    trace = generate("philly?users=50&vcs=8")
    assert statistics.repeats(trace.labels("user")).distinct == 50
    assert statistics.repeats(trace.labels("vc")).distinct == 8
    assert statistics.repeats(generate("philly?days=2&users=1").labels("vc")).distinct == 1


def test_provenance_names_every_option_however_it_was_asked_for():
    short, long = generate("philly"), generate("synthetic:philly?vcs=14&users=320&seed=0&load=1.0&days=28")
    assert short.provenance.source == "synthetic:philly?days=28&load=1&seed=0&users=320&vcs=14"
    assert short.provenance == long.provenance
    assert digest(short) == digest(long)
    assert short.provenance.rows == len(short)


@given(
    name=st.sampled_from(sorted(PRESETS)),
    days=st.floats(0.001, 5),
    load=st.floats(0.001, 3),
    seed=st.integers(0, 2**63 - 1),
    users=st.integers(1, 40),
)
@hypothesis_settings(max_examples=40, deadline=None)
def test_any_spec_gives_a_sound_trace(name, days, load, seed, users):
    trace = generate(f"{name}?days={days}&load={load}&seed={seed}&users={users}")
    submit_ms, duration_ms, gpus = (trace.column(item) for item in ("submit_ms", "duration_ms", "gpus"))
    assert len(trace) == max(1, round(PRESETS[name].jobs_a_day * load * days))
    assert submit_ms.min() >= ORIGIN_MS
    assert submit_ms.max() < ORIGIN_MS + days * DAY_MS
    assert (np.diff(submit_ms) >= 0).all()
    assert not (submit_ms % 1000).any()
    assert not (duration_ms % 1000).any()
    assert duration_ms.min() >= 1000
    assert gpus.min() >= 1
    assert trace.jobs["job_id"].n_unique() == len(trace)
    assert trace.jobs.null_count().sum_horizontal()[0] == 0


# Determinism

_PRINT_DIGEST = """
import hashlib, sys
from trimtab.traces.synthetic import generate
print(hashlib.sha256(generate(sys.argv[1]).jobs.write_csv().encode()).hexdigest())
"""


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_another_process_generates_the_same_bytes(hash_seed):
    spec = "helios?days=7&seed=3"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", _PRINT_DIGEST, spec],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == digest(generate(spec))


# A change here is a change of every synthetic trace people have used: say so in the changelog.
GOLDEN = [
    ("philly", "6fd87747e0f7bb5d"),
    ("helios", "ceb983fc045294e8"),
    ("pai", "81f047d19b9b644b"),
]


@pytest.mark.parametrize(("name", "expected"), GOLDEN)
def test_every_machine_generates_the_same_bytes(name, expected):
    """So it came out with numpy 1.26 and 2.4, with AVX-512 and without, where exp differs in its last bit."""
    jobs = generate(f"{name}?days=7&seed=7").jobs
    numbers = jobs.select("submit_ms", "duration_ms", "gpus").to_numpy().astype("<i8")
    labels = "\n".join(",".join(row) for row in jobs.select("job_id", "vc", "user", "name", "state").rows())
    assert hashlib.sha256(numbers.tobytes("C") + labels.encode()).hexdigest()[:16] == expected


def test_another_seed_is_another_trace():
    assert digest(generate("pai?days=2&seed=1")) != digest(generate("pai?days=2&seed=2"))


# Refusals


@pytest.mark.parametrize(
    ("spec", "nearest"),
    [
        ("phily", "philly"),
        ("synthetic:helois?days=2", "helios"),
        ("pai?dais=2", "days"),
        ("pai?user=2", "users"),
    ],
)
def test_an_unknown_name_gets_the_nearest_known_one(spec, nearest):
    with pytest.raises(UnknownName, match=f"did you mean '{nearest}'"):
        generate(spec)


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        ("", "known: helios, pai, philly"),
        ("philly?days", "not NAME=VALUE"),
        ("philly?days=0", "above 0"),
        ("philly?days=-3", "above 0"),
        ("philly?days=nan", "above 0"),
        ("philly?load=inf", "at most 1000"),
        ("philly?load=much", "above 0"),
        ("philly?seed=1.5", "whole number"),
        ("philly?seed=-1", "whole number"),
        ("philly?users=0", "whole number from 1"),
        ("philly?vcs=0", "whole number from 1"),
        ("philly?users=4&vcs=5", "more than the 4 users"),
        ("philly?days=1&days=2", "twice"),
        ("philly?days=3000&load=900", "the limit is"),
    ],
)
def test_a_bad_value_is_refused_in_one_line(spec, rule):
    with pytest.raises(ConfigError, match=rule) as refusal:
        generate(spec)
    assert "\n" not in str(refusal.value)
