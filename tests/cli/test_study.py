"""`study deadlines` on the command line: what it prints, writes and refuses."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from commands import Trimtab

GRID = """
loads = [0.9]
classes = ["MIX2"]
mixes = ["50/0/50"]
nodes = ["4x12x250"]
gpus = 16
noises = [0, 0.5]
curve_noises = [0]
seeds = 2
baselines = ["in order"]
[policies]
"in order" = "fifo:backfill=skip"
"short first" = "srtf"
[thin_policies]
"""
SOURCE = "'synthetic:philly?days=1&load=0.4&seed=3'"
RUN = f"study deadlines {SOURCE} --grid grid.toml --thin 0.1 --workers 1"


@pytest.fixture
def here(folder: Path) -> Path:
    (folder / "grid.toml").write_text(GRID)
    return folder


def test_a_study_writes_its_folder_and_prints_the_ladder(here: Path, trimtab: Trimtab) -> None:
    ran = trimtab(f"{RUN} --out found")

    assert ran.code == 0, ran.err
    assert "simulating: 100 %" in ran.err
    assert {one.name for one in (here / "found").iterdir()} == {
        "cells.csv", "cells.jsonl", "report.html", "summary.json",
    }  # fmt: skip
    assert "against in order" in ran.out
    assert "short first" in ran.out
    for words in ("off by 0.5", "better/tied/worse", "preempted", "resized"):
        assert words in ran.out
    table = pl.read_csv(here / "found" / "cells.csv")
    assert table.height == 8
    groups = ("strict", "soft", "best", "met", "missed")
    told = (
        "jct_s_mean",
        "jct_s_p50",
        "queue_s_p50",
        "first_queue_s_p50",
        "preemptions_per_job",
        "resizes_per_job",
    )
    assert {f"{one}_{group}" for one in told for group in groups} <= set(table.columns)
    assert {"tardiness_s_mean", "tardiness_s_p95_soft", "resizes_per_job"} <= set(table.columns)
    assert set(table["policy"]) == {"in order", "short first"}
    quiet = trimtab(f"{RUN} --out found --quiet")
    assert quiet.err == ""
    assert quiet.out == ran.out


def test_json_says_the_same_as_the_summary(here: Path, trimtab: Trimtab) -> None:
    found = trimtab(f"{RUN} --out found --report page.html --format json --quiet").json()

    assert found["cells"] == 8
    told = {"slo_violation_rate_weighted", "jct_s_mean", "queue_s_mean"}
    assert set(found["variations"]["in order"]["run times off by 0.5"]) == told
    assert found["report"] == "page.html"
    assert (here / "page.html").read_text().startswith("<!doctype html>")
    (duel,) = found["duels"]
    assert (duel["policy"], duel["baseline"], duel["cases"]) == ("short first", "in order", 1)
    assert set(duel["measures"]) >= {"slo_violation_rate_weighted", "jct_s_mean", "queue_s_mean"}


def test_text_fits_80_columns(here: Path, trimtab: Trimtab) -> None:
    ran = trimtab(f"{RUN} --out found --quiet")
    long = [line for line in ran.out.splitlines() if len(line) > 80]
    assert all("does worst at" in line for line in long), long


def test_policies_of_the_command_line_take_the_place_of_the_grids(here: Path, trimtab: Trimtab) -> None:
    ran = trimtab(f"{RUN} --seeds 1 --policy srtf --policy fifo --out other --format json --quiet").json()

    assert ran["policies"] == ["srtf", "fifo"]
    assert [(one["policy"], one["baseline"]) for one in ran["duels"]] == [("fifo", "srtf")]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--policy fifo --policy fifo", "given twice"),
        ("--policy nothing", "unknown policy 'nothing'"),
        ("--seeds 0", "seeds = 0"),
        ("--grid missing.toml", "missing.toml"),
        ("--workers 1000", "workers = 1,000: it must be 1 .. 512"),
        ("--workers 0", "workers = 0: it must be 1 .. 512"),
        ("--workers -1", "workers = -1: it must be 1 .. 512"),
        ("--seeds 1000000000", "seeds = 1000000000: it must be 1 .. 1000"),
        ("--policy fifo --out jobs.csv", "jobs.csv"),
    ],
)
def test_what_cannot_be_is_one_line(options: str, said: str, here: Path, trimtab: Trimtab) -> None:
    ran = trimtab(f"study deadlines {SOURCE} --thin 0.1 {options}")

    assert ran.code == 1
    assert ran.out == ""
    assert said in ran.err.splitlines()[-1]
    assert not (here / "trimtab-deadlines").exists()


def test_another_grid_in_the_same_folder_is_refused(here: Path, trimtab: Trimtab) -> None:
    assert trimtab(f"{RUN} --out found --quiet").code == 0
    ran = trimtab(f"{RUN} --out found --seeds 3 --quiet")

    assert ran.code == 1
    assert "holds cells of another study (its grid differs)" in ran.err
