"""The picture of deadlines by hand: where each job stands, and those that never finished."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest

from trimtab.report.charts import Chart, Clock
from trimtab.report.slack import slack_over_time
from trimtab.report.views import View
from trimtab.timeline import Timeline

# name, class, submit, first deadline after it, completion after it; s
JOBS = [
    ("early", "strict", 0, 7_260, 3_660),
    ("late", "strict", 100, 500, 560),
    ("soft", "soft", 86_400, 600, 1_140),
    ("never", "strict", 200, 100, None),
    ("best", "best", 300, None, 50),
]


def view(index: int = 0, jobs: list[tuple[Any, ...]] = JOBS) -> View:
    names = ("job_id", "service_class", "submit_s", "first_deadline_s", "jct_s")
    table = pl.DataFrame(jobs, schema=names, orient="row")
    table = table.with_columns(
        finish_s=pl.col("submit_s") + pl.col("jct_s"),
        deadline_met=pl.when(pl.col("first_deadline_s").is_not_null()).then(
            (pl.col("jct_s") <= pl.col("first_deadline_s")).fill_null(False)
        ),
    )
    return View(index, f"run {index}", table, Timeline([], []))


def chart(*views: View) -> Chart:
    (found,) = slack_over_time(views, Clock())
    return found


def test_each_job_stands_at_its_deadline_as_far_off_the_line_as_it_was() -> None:
    strict, _, soft = chart(view()).data

    # By deadline: late is due at 600 s and 60 s late, early at 7260 s and an hour early.
    assert strict["x"] == pytest.approx([600 / 86_400, 7_260 / 86_400], abs=1e-7)
    assert strict["y"] == pytest.approx([-math.log10(2), math.log10(61)], abs=1e-4)
    assert strict["customdata"] == [["late", "60.0\u00a0s late"], ["early", "60.0\u00a0min early"]]
    assert soft["x"] == pytest.approx([87_000 / 86_400])
    assert soft["y"] == pytest.approx([-1], abs=1e-4)
    assert strict["marker"]["color"] != soft["marker"]["color"]


def test_a_strip_says_how_many_were_met_of_all_and_the_caption_who_is_missing() -> None:
    found = chart(view(0), view(1))

    names = [note["text"] for note in found.layout["annotations"]]
    assert names == ["run 0: 1 of 4\u00a0deadlines met", "run 1: 1 of 4\u00a0deadlines met"]
    assert "never finished: up to 1\u00a0job." in found.caption
    assert {trace["meta"]["line"] for trace in found.data} == {0, 1}


def test_who_never_finished_is_a_cross_at_the_foot_below_all_others() -> None:
    found = chart(view())
    (never,) = [trace for trace in found.data if trace["marker"]["symbol"] == "x"]

    assert never["x"] == pytest.approx([300 / 86_400], abs=1e-7)
    assert never["customdata"] == [["never", "never finished"]]
    others = [height for trace in found.data if trace is not never for height in trace["y"]]
    low, _ = found.layout["yaxis"]["range"]
    assert low < never["y"][0] < min(others)
    drawn = sum(len(trace["x"]) for trace in found.data)
    assert drawn == sum(deadline is not None for *_, deadline, _ in JOBS)


def test_a_run_in_which_no_job_finished_is_drawn() -> None:
    (never,) = chart(view(0, [JOBS[3]])).data

    assert (never["marker"]["symbol"], never["customdata"]) == ("x", [["never", "never finished"]])


def test_the_picture_ends_a_day_after_the_last_submission() -> None:
    found = chart(view(0, [*JOBS, ("long", "strict", 0, 900_000, 100)]))

    assert found.layout["xaxis"]["range"] == pytest.approx([0, 2])
    assert "Beyond the right edge: 1\u00a0deadline." in found.caption


def test_of_very_many_jobs_each_so_manieth_is_drawn() -> None:
    many = [(f"j{place}", "strict", place, 10, 10) for place in range(3_001)]
    found = chart(view(0, many))

    assert len(found.data[0]["x"]) == 1_001
    assert "One job in 3 is drawn." in found.caption
    assert found.layout["annotations"][0]["text"].startswith("run 0: 3,001 of 3,001")


def test_without_deadlines_there_is_no_picture() -> None:
    bare = View(0, "run", pl.DataFrame({"finish_s": [1.0]}), Timeline([], []))
    assert slack_over_time([bare], Clock()) == []
    assert slack_over_time([view(0, [JOBS[4]])], Clock()) == []
