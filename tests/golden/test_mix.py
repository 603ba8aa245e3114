"""Models for jobs that have none with a curve, curves in workloads, and estimates that are off."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from trimtab.cluster import Cluster, Placement
from trimtab.errors import ConfigError, InputError, UnknownName
from trimtab.policies.catalog import find_policy
from trimtab.search.futures import supposed
from trimtab.simulate.curve_files import open_curves
from trimtab.simulate.curves import BUILTIN_CURVES, CurveTable
from trimtab.simulate.fast import compiled_available
from trimtab.simulate.mix import check_footprints, groups_of, mix_note, with_curve_models
from trimtab.simulate.run import World, noise_of, simulate
from trimtab.simulate.workload import NoisyEstimator, OracleEstimator, Workload
from trimtab.traces import table
from trimtab.traces.loader import load
from trimtab.traces.trace import Trace
from trimtab.world import Seeds

SEEDS = Seeds(7)


def trace_of(folder: Path, text: str) -> Trace:
    path = folder / "jobs.csv"
    path.write_text(text)
    return table.load(path)


def numbered(folder: Path, count: int) -> Trace:
    rows = "".join(f"j{number},{number},{60 + number},{1 + number % 4}\n" for number in range(count))
    return trace_of(folder, f"job_id,submit_s,duration_s,gpus\n{rows}")


# ---- models --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mix", ["20/70/10", "33/33/33", "50/0/50", "0/1/0"])
def test_shares_of_classes(tmp_path: Path, mix: str) -> None:
    found = with_curve_models(numbered(tmp_path, 4000), BUILTIN_CURVES, "column", mix, SEEDS)
    weights = [int(part) for part in mix.split("/")]
    counts = Counter(BUILTIN_CURVES.classes[str(model)] for model in found.trace.labels("model"))
    for name, weight in zip(("image", "language", "speech"), weights, strict=True):
        assert counts[name] / 4000 == pytest.approx(weight / sum(weights), abs=0.03)
    assert found.known == 0


@pytest.mark.parametrize("share", [0, 0.25, 1])
def test_the_share_that_is_sensitive(tmp_path: Path, share: float) -> None:
    trace = with_curve_models(numbered(tmp_path, 4000), BUILTIN_CURVES, "draw", str(share), SEEDS).trace
    models = [str(model) for model in trace.labels("model")]
    sensitive = sum(model in BUILTIN_CURVES.sensitive for model in models) / 4000
    assert sensitive == pytest.approx(share, abs=0.03 if 0 < share < 1 else 0)


def test_models_of_a_class_are_equally_likely(tmp_path: Path) -> None:
    trace = with_curve_models(numbered(tmp_path, 5000), BUILTIN_CURVES, "draw", "1/0/0", SEEDS).trace
    counts = Counter(trace.labels("model"))
    assert len(counts) == 5
    assert all(count == pytest.approx(1000, abs=150) for count in counts.values())


def test_a_model_with_a_curve_stays_if_columns_count(tmp_path: Path) -> None:
    """mobilenet_v2 is not mobilenet, and of a job that draws, data set and batch size are gone."""
    trace = trace_of(
        tmp_path,
        "job_id,submit_s,duration_s,gpus,model,dataset,batchsize\n"
        "a,0,9,1,alexnet,imagenet,64\nb,0,9,1,mobilenet_v2,imagenet,32\nc,0,9,1,,,\n",
    )
    found = with_curve_models(trace, BUILTIN_CURVES, "column", "0/1/0", SEEDS)
    language = BUILTIN_CURVES.of_class("language")
    models = found.trace.labels("model")
    assert models[0] == "alexnet"
    assert {models[1], models[2]} <= set(language)
    assert found.trace.labels("dataset") == ["imagenet", None, None]
    assert found.trace.jobs["batchsize"].to_list() == [64, None, None]
    said = "curves builtin: of 3 jobs 1 have a model with a curve; 2 drew one by 0/1/0."
    assert mix_note(found, BUILTIN_CURVES, "0/1/0") == said
    redrawn = with_curve_models(trace, BUILTIN_CURVES, "draw", "0/1/0", SEEDS)
    assert set(redrawn.trace.labels("model")) <= set(language)
    again = with_curve_models(found.trace, BUILTIN_CURVES, "column", "0/1/0", SEEDS)
    assert (again.trace, again.known) == (found.trace, 3)


def test_what_a_job_draws_is_its_own(tmp_path: Path) -> None:
    whole = numbered(tmp_path, 200)
    drawn = with_curve_models(whole, BUILTIN_CURVES, "column", "20/70/10", SEEDS).trace.labels("model")
    part = whole.select(np.arange(200) % 3 == 1)
    some = with_curve_models(part, BUILTIN_CURVES, "column", "20/70/10", SEEDS).trace.labels("model")
    assert some == drawn[1::3]
    other = with_curve_models(whole, BUILTIN_CURVES, "column", "20/70/10", Seeds(8)).trace.labels("model")
    assert other != drawn


def test_mixes_that_there_are_not() -> None:
    for mix in ("20/70", "0/0/0", "a/b/c", "1.5", "-1", "", "nan", "20/70/10/5", "1e-3", "9999999/0/0"):
        with pytest.raises(ConfigError, match="is neither weights of image"):
            groups_of(mix, BUILTIN_CURVES)
    nameless = CurveTable("mine.csv", curves={"net": BUILTIN_CURVES.curves["gnmt"]})
    with pytest.raises(InputError, match=r"curves mine\.csv: has no model of class image"):
        groups_of("20/70/10", nameless)
    with pytest.raises(InputError, match="has no model that is sensitive"):
        groups_of("0.5", nameless)
    assert groups_of("0", nameless) == [(0, []), (1_000_000, ["net"])]


# ---- workloads -----------------------------------------------------------------------------------


def test_curves_of_jobs_and_the_truth_behind_them(tmp_path: Path) -> None:
    text = "job_id,submit_s,duration_s,gpus,model\na,0,9,1,alexnet\nb,0,9,4,alexnet\nc,0,9,1,vgg16\n"
    trace = trace_of(tmp_path, text)
    off, on, unsure = (
        World(curves=curves, curve_noise=noise).workload(trace)
        for curves, noise in (("off", 0.0), ("builtin", 0.0), ("builtin", 0.2))
    )
    assert [one.curve for one in off.facts] == [None] * 3
    assert off.curves == on.curves == ()
    believed = [BUILTIN_CURVES.curve("alexnet", 1), BUILTIN_CURVES.curve("alexnet", 4), None]
    assert [one.curve for one in on.facts] == believed
    assert unsure.facts == on.facts
    truth = BUILTIN_CURVES.perturbed(0.2, Seeds(0))
    assert [unsure.curve(job) for job in range(3)] == [
        truth.curve("alexnet", 1),
        truth.curve("alexnet", 4),
        None,
    ]
    assert unsure.curve(0) != believed[0]
    turned = World(curves="builtin", curve_noise=0.2).workload(trace, [2, 1, 0])
    assert [one.label for one in turned.facts] == ["c", "b", "a"]
    assert [turned.curve(job) for job in (2, 1, 0)] == [unsure.curve(job) for job in range(3)]


def test_curves_change_nothing_where_shares_are_proportional(tmp_path: Path) -> None:
    """Run times are those at the proportional share, whatever is true of others."""
    trace = with_curve_models(numbered(tmp_path, 60), BUILTIN_CURVES, "draw", "20/70/10", SEEDS).trace
    knobs = find_policy("srtf").space.defaults
    digests = {
        simulate(trace, Cluster.pool(2, 8), "srtf", knobs, World(**world)).timeline.digest()
        for world in ({}, {"curves": "builtin"}, {"curves": "builtin", "curve_noise": 0.2})
    }
    assert len(digests) == 1


# ---- estimates -----------------------------------------------------------------------------------


def _estimates(trace: Trace, sd: float, seed: int = 0) -> NDArray[np.float64]:
    workload = Workload.of(trace, 500_000)
    return np.array(NoisyEstimator.of(workload, sd, Seeds(seed)).duration_ms, dtype=np.float64)


@pytest.mark.parametrize("sd", [0.3, 0.6])
def test_mean_and_deviation_of_the_noise(tmp_path: Path, sd: float) -> None:
    rows = "".join(f"j{number},{number},36000,1\n" for number in range(6000))
    trace = trace_of(tmp_path, f"job_id,submit_s,duration_s,gpus\n{rows}")
    factors = _estimates(trace, sd) / 36_000_000
    assert factors.mean() == pytest.approx(1, abs=0.03)
    assert factors.std() == pytest.approx(sd, rel=0.08)


@given(st.floats(0, 1), st.integers(0, 9))
def test_estimates_are_a_jobs_own(tmp_path_factory: pytest.TempPathFactory, sd: float, seed: int) -> None:
    """At least a minute or the run time, whole, the same in any company; none is off without noise."""
    trace = numbered(tmp_path_factory.mktemp("trace"), 40)
    told, run_ms = _estimates(trace, sd, seed), trace.column("duration_ms")
    assert (told >= np.minimum(run_ms, 60_000)).all()
    assert sd > 0 or (told == run_ms).all()
    part = trace.select(np.arange(40) % 2 == 1)
    assert (_estimates(part, sd, seed) == told[1::2]).all()


def test_texts_of_noise() -> None:
    assert [noise_of(text) for text in ("oracle", "predicted", "none", "noisy:0.3", "noisy:0")] == [
        *[None] * 3, 0.3, 0.0,
    ]  # fmt: skip
    for text in ("noisy:", "noisy:x", "noisy:-1", "noisy:2", "noisy:nan"):
        with pytest.raises(ConfigError, match=r"the standard deviation must be 0 \.\. 1"):
            noise_of(text)
    with pytest.raises(UnknownName, match="did you mean 'oracle'"):
        noise_of("oracl")


def test_both_engines_are_told_the_same_estimates(tmp_path: Path) -> None:
    """SJF by noisy estimates: another order than by the truth, the same on both engines."""
    if not compiled_available():
        pytest.skip("this installation has no compiled core")
    trace = numbered(tmp_path, 80)
    knobs = find_policy("srtf").space.defaults
    digests = {
        (engine, estimates): simulate(
            trace, Cluster.pool(1, 4), "srtf", knobs, World(engine=engine, estimates=estimates)
        ).timeline.digest()
        for engine in ("compiled", "reference")
        for estimates in ("oracle", "noisy:0.6")
    }
    assert digests["compiled", "noisy:0.6"] == digests["reference", "noisy:0.6"]
    assert digests["compiled", "noisy:0.6"] != digests["compiled", "oracle"]


def test_a_supposed_future_has_its_own_noise(tmp_path: Path) -> None:
    """What trials suppose is told with the same factors: the truth does not come along."""
    workload = Workload.of(numbered(tmp_path, 10), 500_000)
    environment = World(estimates="noisy:0.5").environment(workload)
    guessed = Workload(workload.facts[3:], [600_000] * 7)
    told = supposed(environment, guessed).estimator
    assert isinstance(told, NoisyEstimator)
    assert told == NoisyEstimator.of(guessed, 0.5, Seeds(0))
    assert type(supposed(World().environment(workload), guessed).estimator) is OracleEstimator


def test_the_cost_of_a_change_reaches_the_environment(tmp_path: Path) -> None:
    workload = Workload.of(numbered(tmp_path, 3), 500_000)
    environment = World(adjust_cost_s=12.5).environment(workload)
    assert environment.adjust_ms == 12_500


# ---- nodes ---------------------------------------------------------------------------------------


def test_nodes_with_their_own_cpu_and_memory(tmp_path: Path) -> None:
    pool = Cluster.pool(2, 16, 48, 1_024_000)
    assert pool.vcs[0].node_share == (48, 1_024_000)
    assert Cluster.pool(2, 8).vcs[0].node_share == (24, 512_000)
    (tmp_path / "c.toml").write_text(
        '[[vc]]\nname = "a"\nnodes = 1\ngpus_per_node = 8\ncores_per_node = 32\nmemory_gib_per_node = 62.5\n'
        '[[vc]]\nname = "b"\nnodes = 2\ngpus_per_node = 4\n'
    )
    shares = [(*vc.node_share, vc.first_node) for vc in Cluster.from_toml(tmp_path / "c.toml").vcs]
    assert shares == [(32, 64_000, 0), (12, 256_000, 1)]


@pytest.mark.parametrize(
    ("gpus", "footprint_gib", "placement", "is_refused"),
    [
        (1, 500, "consolidated", False),
        (1, 500.001, "consolidated", True),
        (8, 62.5, "consolidated", False),
        (8, 62.501, "consolidated", True),
        (8, 62.501, "relaxed", False),  # each GPU may be on a node of its own
        (8, 501, "relaxed", True),
        (12, 62.501, "consolidated", True),
        (99, 62.501, "consolidated", False),  # wider than the cluster: rejected for that
    ],
)
def test_a_job_that_needs_more_memory_than_a_node_has_is_refused(
    tmp_path: Path, gpus: int, footprint_gib: float, placement: Placement, is_refused: bool
) -> None:
    (tmp_path / "curves.csv").write_text(
        "model,cpus_per_gpu,memory_gib_per_gpu,speed,footprint_gib_per_gpu\n"
        f"m,1,10,1,{footprint_gib}\nm,3,10,2,{footprint_gib}\n"
    )
    (tmp_path / "jobs.csv").write_text(f"job_id,submit_s,duration_s,gpus,model\nj,0,9,{gpus},m\n")
    trace, curves = load(str(tmp_path / "jobs.csv")), open_curves(str(tmp_path / "curves.csv"))
    if is_refused:
        with pytest.raises(InputError, match=r"job j of model 'm' needs .* GiB on one node, a node has 500;"):
            check_footprints(trace, curves, Cluster.pool(2, 8), placement)
    else:
        check_footprints(trace, curves, Cluster.pool(2, 8), placement)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "cores_per_node = 7",
            "vc a: cores_per_node = 7: it must be a whole number, 1 .. 1,000 for each of 8",
        ),
        ("cores_per_node = 8.5", "vc a: cores_per_node = 8.5: it must be a whole number"),
        (
            "memory_gib_per_node = 0",
            "vc a: memory_gib_per_node = 0: it must be GiB, 1/1024 .. 1,000,000 for",
        ),
        ('memory_gib_per_node = "x"', "it must be GiB, 1/1024 .. 1,000,000 for"),
        ("memory_gib_per_node = nan", "it must be GiB, 1/1024 .. 1,000,000 for"),
        ("cpus = 3", "and at most cores_per_node and memory_gib_per_node besides"),
    ],
)
def test_nodes_that_there_are_not(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "c.toml").write_text(f'[[vc]]\nname = "a"\nnodes = 1\ngpus_per_node = 8\n{line}\n')
    with pytest.raises(ConfigError, match=said):
        Cluster.from_toml(tmp_path / "c.toml")
