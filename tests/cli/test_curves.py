"""`--curves`, `--mix`, noisy estimates, CPU and memory of nodes, `trace deadlines`: from the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from commands import Trimtab
from trimtab.simulate.curve_files import open_curves
from trimtab.studies.request import Request

JOBS = "job_id,submit_s,duration_s,gpus\n" + "".join(
    f"j{n},{60 * n},{600 + n},{1 + n % 2}\n" for n in range(30)
)
SIMULATE = "simulate jobs.csv --policy srtf --nodes 1 --gpus-per-node 4"
CURVES = "model,cpus_per_gpu,memory_gib_per_gpu,speed\nnet,1,50,1\nnet,6,50,3\n"


@pytest.fixture
def jobs(folder: Path) -> Path:
    (folder / "jobs.csv").write_text(JOBS)
    (folder / "curves.csv").write_text(CURVES)
    return folder


def test_what_was_run_is_told(jobs: Path, trimtab: Trimtab) -> None:
    more = "--curves curves.csv --mix 1 --curve-noise 0.2 --adjust-cost-s 5 --estimates noisy:0.3"
    ran = trimtab(f"{SIMULATE} {more} --cpus-per-node 16 --memory-gib-per-node 100 --format json")
    told = ran.json()
    names = ("curves", "mix", "curve_noise", "adjust_cost_s", "estimates")
    assert [told[name] for name in names] == ["curves.csv", "1", 0.2, 5, "noisy:0.3"]
    vc = told["cluster"]["vcs"][0]
    assert (vc["cores_per_node"], vc["memory_mib_per_node"]) == (16, 102_400)
    assert "curves curves.csv: of 30 jobs 0 have a model with a curve; 30 drew one by 1.\n" in ran.err
    plain = trimtab(f"{SIMULATE} --format json").json()
    assert [plain[name] for name in names] == ["off", None, 0, 0, "oracle"]


def test_drawn_models_are_in_the_jobs(jobs: Path, trimtab: Trimtab) -> None:
    assert trimtab(f"{SIMULATE} --curves builtin --mix 0/1/0 --jobs-out out.csv --quiet").code == 0
    with (jobs / "out.csv").open() as lines:
        models = {row["model"] for row in csv.DictReader(lines)}
    assert models <= {"gnmt", "transformer", "lstm", "bert", "vae"}
    assert len(models) > 1


def test_compare_and_tune_take_them(jobs: Path, trimtab: Trimtab) -> None:
    words = (
        "jobs.csv --nodes 1 --gpus-per-node 4 --curves builtin --estimates noisy:0.5 --quiet --format json"
    )
    assert trimtab(f"compare {words} --policy srtf --policy sjf").code == 0
    assert trimtab(f"tune {words} --policy srtf --at 5s --budget 2 --executor local").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--curves nothing.csv", "nothing.csv: there is no such file"),
        ("--curves builtin --mix 20/70", "mix '20/70' is neither"),
        ("--mix 0.5", "--mix and --curve-noise go with --curves"),
        ("--curve-noise 0.2", "--mix and --curve-noise go with --curves"),
        ("--curves builtin --curve-noise 1", "curve-noise = 1: it must be 0 .. 0.9"),
        ("--curves curves.csv", "has no model of class image, but --mix 20/70/10 draws some"),
        ("--estimates noisy:two", "the standard deviation must be 0 .. 1"),
        ("--adjust-cost-s -1", "adjust-cost-s = -1: it must be 0 .. 1,000,000,000 s"),
        ("--cores-per-node 3", "cores-per-node = 3: it must be a whole number, 1 .. 1,000 for each of 4"),
        ("--cores-per-node 0", "cores-per-node = 0: it must be a whole number, 1 .. 1,000 for each"),
        (
            "--memory-gib-per-node -5",
            "memory-gib-per-node = -5.0: it must be GiB, 1/1024 .. 1,000,000 for each",
        ),
    ],
)
def test_refusals(jobs: Path, trimtab: Trimtab, words: str, said: str) -> None:
    ran = trimtab(f"{SIMULATE} --quiet {words}")
    assert ran.code == 1
    assert said in ran.err
    assert ran.err.count("\n") == 1


EVALUATE = (
    "evaluate jobs.csv --policy srtf --window 0s..1h --nodes 1 --gpus-per-node 4 --cores-per-node 20 "
    "--budget 2 --lines fixed,selftune --executor local --quiet --curves curves.csv --mix 1 --curve-noise .2 "
    "--estimates noisy:0.4 --seed 3 --journal out.jsonl"
)


def test_a_replay_draws_the_same(jobs: Path, trimtab: Trimtab) -> None:
    assert trimtab(EVALUATE).code == 0
    assert trimtab("replay out.jsonl --executor local --quiet").code == 0
    header = json.loads((jobs / "out.jsonl").read_text().splitlines()[0])
    assert Request.of(header).cluster.vcs[0].cores_per_node == 20
    (jobs / "curves.csv").write_text(CURVES.replace("3\n", "4\n"))
    open_curves.cache_clear()  # as another process would
    ran = trimtab("replay out.jsonl --executor local --quiet")
    assert ran.code == 1
    assert "curves curves.csv: has changed since" in ran.err


def test_a_journal_from_before_there_were_curves_is_read(jobs: Path, trimtab: Trimtab) -> None:
    assert trimtab(EVALUATE).code == 0
    header = json.loads((jobs / "out.jsonl").read_text().splitlines()[0])
    for name in ("curves", "curves_sha256", "mix", "curve_noise", "adjust_cost_s"):
        del header["world"][name]
    for vc in header["cluster"]["vcs"]:
        del vc["cores_per_node"], vc["memory_mib_per_node"]
    request = Request.of(header)
    assert request.world.curves == "off"
    assert request.cluster.vcs[0].cores_per_node == 12


# ---- deadlines -----------------------------------------------------------------------------------


def test_deadlines_are_written_and_read(jobs: Path, trimtab: Trimtab) -> None:
    words = "trace deadlines jobs.csv out.csv --classes 1/1/1 --load 0.5 --gpus 4 --seed 4"
    ran = trimtab(words)
    assert ran.code == 0
    assert "load 0.500 on 4 GPUs\n" in ran.err
    first = (jobs / "out.csv").read_bytes()
    assert trimtab(f"{words} --quiet").err == ""
    assert (jobs / "out.csv").read_bytes() == first
    run = f"{SIMULATE} --jobs-out run.csv --quiet".replace("jobs.csv --policy", "out.csv --policy")
    assert trimtab(run).code == 0
    with (jobs / "run.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert {row["service_class"] for row in rows} == {"strict", "soft", "best"}
    assert all((row["deadline_s"] == "") == (row["service_class"] == "best") for row in rows)


DRAWN = "trace deadlines jobs.csv out.csv --classes 1/1/1 --load 0.9 --gpus 4 --seed 4 --quiet"
CHRONUS = "--policy chronus --knob selector=milp --nodes 1 --quiet"


def test_one_run_tells_each_group_in_a_column_and_several_in_a_table(jobs: Path, trimtab: Trimtab) -> None:
    assert trimtab(DRAWN).code == 0
    alone = trimtab(f"simulate out.csv {CHRONUS}").out.splitlines()
    groups = ["strict", "soft", "best", "met", "missed", "promised", "refused"]
    headings = [line for line in alone if line.startswith("┃")]
    heads = [word for line in headings for word in line.split() if word in groups]
    metrics = trimtab(f"simulate out.csv {CHRONUS} --format json").json()["metrics"]
    assert heads == [name for name in groups if f"jobs_{name}" in metrics]
    assert {"strict", "soft", "best", "promised"} <= set(heads)
    both = trimtab("compare out.csv --policy chronus --policy fifo --nodes 1 --quiet").out
    assert [line.split()[-1] for line in both.splitlines() if line.startswith("jobs of group")] == heads
    for row in ("median JCT", "median queue", "median to first start", "p95 tardiness", "preemptions a job"):
        assert both.count(row) >= 2, row


def test_a_run_tells_what_became_of_its_programs(jobs: Path, trimtab: Trimtab) -> None:
    assert trimtab(DRAWN).code == 0
    metrics = trimtab(f"simulate out.csv {CHRONUS} --format json").json()["metrics"]
    assert metrics["solves"] > 0
    assert (metrics["solves_limited"], metrics["solves_failed"], metrics["solver_gap_max"]) == (0, 0, 0)
    assert "programs solved" in trimtab(f"simulate out.csv {CHRONUS}").out
    greedy = trimtab("simulate out.csv --policy chronus --nodes 1 --format json").json()["metrics"]
    assert not any("solve" in name for name in greedy)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--rule chronos", "unknown deadline rule 'chronos'; did you mean 'chronus'"),
        ("--classes 1/2", "must be weights of strict, soft and best-effort jobs"),
        ("--load 0.5", "--load is that of a cluster: give its --gpus"),
        ("--load 0 --gpus 4", "load = 0: it must be 0.01 .. 100"),
        ("--gpus 0", "gpus = 0: it must be at least 1"),
        ("--thin 2", "thin = 2: it must be above 0"),
        ("--seed -1", "seed = -1"),
    ],
)
def test_deadlines_that_cannot_be(jobs: Path, trimtab: Trimtab, words: str, said: str) -> None:
    ran = trimtab(f"trace deadlines jobs.csv out.csv --quiet {words}")
    assert ran.code == 1
    assert said in ran.err
    assert not (jobs / "out.csv").exists()
