"""The command line's contract: verbs, options, help with an example, JSON alone on stdout, 80 columns."""

from __future__ import annotations

import csv
import math
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from commands import Trimtab
from trimtab.cli import show, tuning

SHARED = [
    "--window",
    "--nodes",
    "--gpus-per-node",
    "--cluster",
    "--placement",
    "--engine",
    "--knob",
    "--preset",
    "--restart-cost-s",
    "--estimates",
    "--speeds",
    "--models",
    "--thin",
]
SEARCH = [
    "--objective",
    "--arrivals-horizon",
    "--run-on",
    "--budget",
    "--threshold",
    "--dwell",
    "--executor",
    "--workers",
    "--address",
]
RESULTS = ["--jobs-out", "--timeline-out", "--tie-seeds"]
EVERYWHERE = ["--format", "--seed", "--quiet", "--help"]

VERBS = {
    "demo": ["--out"],
    "trace list": [],
    "trace describe": ["--report"],
    "trace convert": [],
    "trace generate": [],
    "trace fetch": [],
    "policies": [],
    "knobs": [],
    "simulate": ["--policy", "--report", *SHARED, *RESULTS],
    "compare": ["--policy", "--report", *SHARED, *RESULTS],
    "admit": [
        "--policy",
        "--at",
        "--gpus",
        "--run-time",
        "--deadline",
        "--model",
        "--vc",
        "--curves",
        *(option for option in SHARED if option not in ("--preset", "--speeds")),
    ],
    "tune": ["--policy", "--at", *SHARED, *SEARCH],
    "evaluate": [
        "--policy",
        "--lines",
        "--interval",
        "--arrivals",
        "--futures",
        "--report",
        "--journal",
        "--graph",
        *SHARED,
        *SEARCH,
        *RESULTS,
    ],
    "study deadlines": [
        "--grid",
        "--policy",
        "--seeds",
        "--thin",
        "--out",
        "--report",
        "--workers",
        "--engine",
    ],
    "diagnose": ["--hours", "--line", "--executor", "--workers", "--address"],
    "replay": ["--executor", "--workers", "--address"],
    "slurm check": ["--conf", "--file"],
    "slurm import": ["--out", "--since", "--slice", "--completions"],
    "slurm site": ["--out", "--conf"],
    "slurm dispatch": ["--config", "--policy", "--once", "--dry-run"],
    "slurm submit": ["--deadline", "--class", "--value", "--estimate", "--preemptable", "--model"],
    "doctor": [],
}


@pytest.mark.parametrize("verb", VERBS)
def test_verb_takes_its_options_and_shows_one_example(verb: str, trimtab: Trimtab) -> None:
    ran = trimtab(f"{verb} --help")
    assert ran.code == 0
    assert ran.err == ""
    assert ran.out.count(f"Example: trimtab {verb}") == 1
    named = {word.strip(",") for line in ran.out.splitlines() for word in line.split()[:2]}
    assert {*VERBS[verb], *EVERYWHERE} <= named
    assert max(map(len, ran.out.splitlines())) <= 80


TIRESIAS = "--policy tiresias --nodes 1"
EVALUATE = f"evaluate jobs.csv {TIRESIAS} --window 0s..90m --budget 3 --executor local"

# Verbs that answer in JSON without a network, and what the object holds at least.
OBJECTS = {
    "trace list": {"traces"},
    "trace describe jobs.csv": {"rows", "kept", "left_out", "warnings"},
    "trace convert jobs.csv out.csv": {"path", "jobs"},
    "trace generate 'philly?days=0.02' out.csv --seed 4": {"path", "jobs"},
    "policies": {"policies"},
    "knobs tiresias": {"policy", "knobs"},
    f"simulate jobs.csv {TIRESIAS}": {"metrics", "digest"},
    f"compare jobs.csv {TIRESIAS} --policy srtf": {"runs"},
    f"tune jobs.csv {TIRESIAS} --at 20s --budget 3 --executor local": {"trials", "verdict"},
    EVALUATE: {"lines"},
    "doctor": {"trimtab", "python", "engine"},
}


@pytest.mark.parametrize("command", OBJECTS)
def test_json_is_alone_on_stdout(command: str, folder: Path, trimtab: Trimtab) -> None:
    ran = trimtab(f"{command} --format json")
    assert OBJECTS[command] <= set(ran.json())
    quiet = trimtab(f"{command} --format json --quiet")
    assert quiet.err == ""
    assert _timeless(quiet.json()) == _timeless(ran.json())


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        clocks = {"cpu_s", "seconds", "search_s"}
        return {key: _timeless(item) for key, item in value.items() if key not in clocks}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("command", OBJECTS)
def test_text_fits_80_columns(command: str, folder: Path, trimtab: Trimtab) -> None:
    ran = trimtab(f"{command} --quiet")
    assert ran.code == 0
    assert ran.err == ""
    long = [line for line in ran.out.splitlines() if len(line) > 80]
    # What is to be copied is never broken; sentences that nobody copies are not worth breaking either.
    assert all(line.startswith(("digest ", "fixed-week", "  tiresias:", "keep ", "! ")) for line in long), (
        long
    )
    assert "…" not in ran.out


@pytest.mark.parametrize("digits", range(2, 8))
def test_a_line_keeps_its_name_however_long_its_numbers_are(
    digits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = StringIO()
    monkeypatch.setattr(show, "out", Console(width=80, file=page))
    cells = ["9" * digits] * 7
    table = tuning._grid(["line", *cells])
    table.add_row("trimtab-plus", *cells)
    tuning._print_grid(table)

    assert max(map(len, page.getvalue().splitlines())) <= 80
    assert page.getvalue().count(" trimtab-plus ") == 1
    assert page.getvalue().count("9" * digits) == 14


def test_wide_comparisons_are_split_and_named_below(folder: Path, trimtab: Trimtab) -> None:
    settings = " ".join(f"--policy tiresias:queue_thresholds={number}" for number in (60, 600, 6000, 60000))
    ran = trimtab(f"compare jobs.csv --nodes 1 {settings} --policy fifo --tie-seeds 1 --quiet")
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "A: tiresias:queue_thresholds=60\n" in ran.out
    assert "E: fifo\n" in ran.out
    assert ran.out.count("mean wait, s") > 1


RUN_KEYS = {
    "trimtab", "engine", "trace", "cluster", "policy", "knobs", "seed", "cpu_s", "events", "metrics",
    "digest", "placement", "restart_cost_s", "estimates", "speeds", "models", "curves", "mix", "curve_noise",
    "adjust_cost_s",
    "site",
}  # fmt: skip
METRICS = {
    "jobs", "finished", "rejected", "preemptions", "jct_s_mean", "jct_s_p50", "jct_s_p99", "wait_s_mean",
    "wait_s_p50", "wait_s_p99", "queue_s_mean", "queue_s_p50", "slowdown_mean", "gpu_utilisation",
    "makespan_s", "rho_le_1_share", "rho_le_1_1_share", "rho_p95", "rho_max", "slo_violation_rate",
}  # fmt: skip


def test_simulate_prints_the_contracts_object(folder: Path, trimtab: Trimtab) -> None:
    found = trimtab(f"simulate jobs.csv {TIRESIAS} --format json").json()
    assert set(found) == RUN_KEYS
    assert set(found["metrics"]) == METRICS
    assert set(found["trace"]) == {"source", "rows", "kept", "left_out", "unrun", "set_aside", "sha256"}
    assert found["metrics"]["slo_violation_rate"] is None
    assert found["knobs"]["promote_knob"] == "inf"
    with_ties = trimtab(f"simulate jobs.csv {TIRESIAS} --tie-seeds 2 --format json").json()
    assert set(with_ties) == RUN_KEYS | {"spread"}
    assert set(with_ties["spread"]["wait_s_mean"]) == {"mean", "min", "max"}


def test_what_does_not_apply_is_null(folder: Path, trimtab: Trimtab) -> None:
    metrics = trimtab("simulate wide.csv --policy fifo --nodes 1 --format json").json()["metrics"]
    assert {name for name, value in metrics.items() if value is None} == METRICS - {
        "jobs", "finished", "rejected", "preemptions",
    }  # fmt: skip


def test_compare_prints_one_such_object_a_run(folder: Path, trimtab: Trimtab) -> None:
    found = trimtab(f"compare jobs.csv {TIRESIAS} --policy fifo:backfill=skip --format json").json()
    assert set(found) == {"runs"}
    assert [set(run) for run in found["runs"]] == [RUN_KEYS, RUN_KEYS]
    assert found["runs"][1]["knobs"] == {"backfill": "skip"}
    alone = trimtab("simulate jobs.csv --policy fifo --knob backfill=skip --nodes 1 --format json").json()
    assert alone["digest"] == found["runs"][1]["digest"]


def test_tune_prints_trials_and_a_verdict(folder: Path, trimtab: Trimtab) -> None:
    found = trimtab(f"tune jobs.csv {TIRESIAS} --at 20s --budget 4 --executor local --format json").json()
    assert {"trials", "stopped", "situation", "verdict"} == set(found)
    assert all(set(trial) == {"knobs", "fate", "purpose", "cost", "gain"} for trial in found["trials"])
    assert found["trials"][0]["purpose"] == "incumbent"
    assert found["trials"][0]["gain"] == 1
    assert {"action", "reason", "running", "best", "gain", "cost_running", "cost_best"} == set(
        found["verdict"]
    )


def test_evaluate_prints_lines_with_hours(folder: Path, trimtab: Trimtab) -> None:
    found = trimtab(f"{EVALUATE} --tie-seeds 1 --format json").json()
    names = ["fixed", "fixed-week", "selftune", "trimtab-plus", "oracle"]
    assert [line["line"] for line in found["lines"]] == names
    for line in found["lines"]:
        assert {"line", "metrics", "hours", "segments", "seconds", "digest", "spread"} <= set(line)
        assert set(line["metrics"]) == METRICS
        assert len(line["hours"]) == (0 if line["line"].startswith("fixed") else 2)
        assert {"wall", "cpu", "search", "search_p50", "search_p95"} <= set(line["seconds"])
        assert all(math.isfinite(second) for second in line["seconds"].values())
    assert found["settings"]["budget"] == 3


def test_evaluate_runs_with_several_seeds_and_without_parts(folder: Path, trimtab: Trimtab) -> None:
    lines = "--lines fixed,trimtab-plus --ablate local --realised"
    found = trimtab(f"{EVALUATE} {lines} --seeds 2 --format json").json()
    names = ["fixed", "trimtab-plus", "trimtab-plus without local"]
    assert [line["line"] for line in found["lines"]] == names
    assert all({"switching", "spread"} <= set(line) for line in found["lines"])
    statistics = found["statistics"]
    assert (statistics["runs"], list(statistics["waits"])) == (2, names)
    assert [(one["line"], one["reference"]) for one in statistics["contrasts"]] == [
        (name, "fixed") for name in names[1:]
    ]
    assert "statistics" not in trimtab(f"{EVALUATE} --lines fixed --format json").json()
    text = trimtab(f"{EVALUATE} {lines} --seeds 2")
    assert text.code == 0
    assert "over 2 seeds or orders of simultaneous jobs:" in text.out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--seeds 0", "seeds = 0: it must be 1 or more; nothing was run."),
        ("--seeds 2 --tie-seeds 1", "leave out --tie-seeds; nothing was run."),
        ("--ablate causal", "ablate causal: only trimtab has it; name it in --lines; nothing was run."),
        ("--ablate glob", "unknown part 'glob'; did you mean 'global'? Nothing was run."),
    ],
)
def test_what_cannot_be_repeated_or_left_out_is_refused(
    folder: Path, trimtab: Trimtab, options: str, told: str
) -> None:
    ran = trimtab(f"{EVALUATE} {options}")
    assert ran.code == 1
    assert told in " ".join(ran.err.split())
    assert ran.out == ""


def test_jobs_and_timelines_are_written_as_promised(folder: Path, trimtab: Trimtab) -> None:
    outputs = "--jobs-out jobs-out.csv --timeline-out timeline.csv --quiet"
    assert trimtab(f"simulate jobs.csv {TIRESIAS} {outputs}").code == 0
    jobs = list(csv.DictReader((folder / "jobs-out.csv").open()))
    first = ["job_id", "submit_s", "start_s", "finish_s", "gpus", "wait_s", "jct_s", "preemptions"]
    assert list(jobs[0])[:8] == first
    assert [job["job_id"] for job in jobs] == list("abcdef")
    assert (jobs[0]["start_s"], jobs[0]["finish_s"], jobs[0]["jct_s"]) == ("0.000", "100.000", "100.000")
    assert jobs[5]["start_s"] == jobs[5]["jct_s"] == ""
    events = (folder / "timeline.csv").read_text()
    assert events.startswith(
        "time_s,event,job_id,gpus,nodes,detail\n0.000,submit,a,4,,\n0.000,start,a,4,0:4,\n"
    )
    for command, column, runs in (
        (f"compare jobs.csv {TIRESIAS} --policy fifo", "run", ["tiresias", "fifo"]),
        (f"{EVALUATE} --lines fixed,oracle", "line", ["fixed", "oracle"]),
    ):
        assert trimtab(f"{command} {outputs}").code == 0
        jobs = list(csv.DictReader((folder / "jobs-out.csv").open()))
        assert list(jobs[0])[:8] == first
        assert list(dict.fromkeys(job[column] for job in jobs)) == runs
        assert len(jobs) == 12
        rows = list(csv.DictReader((folder / "timeline.csv").open()))
        assert list(dict.fromkeys(row[column] for row in rows)) == runs


def test_thinning_says_what_it_does_to_the_load(folder: Path, trimtab: Trimtab) -> None:
    ran = trimtab(f"simulate jobs.csv {TIRESIAS} --thin 0.7 --seed 3")
    assert ran.err.startswith("thinned: ")
    assert "of the load)" in ran.err
    again = trimtab(f"simulate jobs.csv {TIRESIAS} --thin 0.7 --seed 3")
    assert again.out.splitlines()[-1] == ran.out.splitlines()[-1]


def test_a_shared_knob_reaches_the_policies_that_have_it(folder: Path, trimtab: Trimtab) -> None:
    command = "compare jobs.csv --nodes 1 --policy fifo --policy sjf:backfill=strict --policy srtf"
    runs = trimtab(f"{command} --knob backfill=skip --format json").json()["runs"]
    assert [run["knobs"].get("backfill") for run in runs] == ["skip", "strict", None]


def test_a_preset_stands_in_for_the_defaults_of_who_has_it(folder: Path, trimtab: Trimtab) -> None:
    """And gives way to what is set besides."""
    runs = trimtab(
        "compare jobs.csv --nodes 3 --policy fifo --policy lucid --policy lucid:t_prof=90 --preset philly "
        "--format json --quiet"
    ).json()["runs"]
    told = [(one["knobs"].get("t_prof"), one["knobs"].get("prof_factor")) for one in runs]
    assert told == [(None, None), (80, 2), (90, 2)]
    options = "--policy lucid --preset philly --knob prof_factor=3 --format json --quiet"
    one = trimtab(f"simulate jobs.csv --nodes 3 {options}").json()
    assert (one["knobs"]["t_prof"], one["knobs"]["prof_factor"]) == (80, 3)


def test_options_of_the_window_and_the_search_meet(folder: Path, trimtab: Trimtab) -> None:
    """`tune --window` hides what is outside: at 25 s only b, c and d of the window are there."""
    command = f"tune jobs.csv {TIRESIAS} --at 25s --window 10s..30s --budget 1 --executor local --format json"
    found = trimtab(command).json()["situation"]
    assert sum(found.values()) == 3


def test_version(trimtab: Trimtab) -> None:
    assert trimtab("--version").out.startswith("trimtab ")


# Objective -> what heads its column in tune, what it is in evaluate, and the metric that it shows there.
GOALS = {
    "wait": ("mean wait, s", "wait", "wait_s_mean"),
    "jct": ("mean JCT, s", "JCT", "jct_s_mean"),
    "jct_p99": ("p99 JCT, s", "p99 JCT", "jct_s_p99"),
    "rho": ("jobs with rho > 1, %", "rho<=1", "rho_le_1_share"),
}


@pytest.mark.parametrize("objective", GOALS)
def test_the_objective_is_told_with_its_unit(objective: str, folder: Path, trimtab: Trimtab) -> None:
    in_tune, heading, metric = GOALS[objective]
    tune = f"tune jobs.csv --policy srtf --nodes 1 --at 20s --executor local --objective {objective}"
    said = trimtab(f"{tune} --quiet")
    assert in_tune in said.out
    cost = trimtab(f"{tune} --format json").json()["verdict"]["cost_running"]
    assert f" {cost:,.1f} " in said.out
    evaluate = f"{EVALUATE} --lines fixed,oracle --objective {objective}"
    head, rule, fixed = trimtab(f"{evaluate} --quiet").out.splitlines()[2:5]
    assert head.split("ratio")[0].split(maxsplit=1) == ["line", f"{heading}   "]
    value = trimtab(f"{evaluate} --format json").json()["lines"][0]["metrics"][metric]
    assert float(fixed.split()[1].replace(",", "")) == pytest.approx(value, abs=0.5)
    assert fixed.split()[2] == "1.00x"
    assert rule.strip("─ ") == ""


def test_a_change_says_what_it_does_to_the_cost(folder: Path, trimtab: Trimtab) -> None:
    """FIFO blocks behind d, which takes the node; with skip on, c and e pass it."""
    tune = "tune jobs.csv --policy fifo --nodes 1 --at 20s --executor local"
    verdict = trimtab(f"{tune} --format json").json()["verdict"]
    assert verdict["action"] == "apply"
    costs = "mean wait {cost_running:,.1f} -> {cost_best:,.1f} s".format(**verdict)
    said = trimtab(f"{tune} --quiet").out.splitlines()
    assert f"change: {verdict['reason']}; {costs}" in said
