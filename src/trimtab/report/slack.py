"""The picture of deadlines: each job at its deadline, as far from the line as it was early or late."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from trimtab.report import charts, numbers
from trimtab.report.charts import Chart, Clock, Strip
from trimtab.report.markup import label
from trimtab.report.views import View

_POINTS_MAX = 1_500  # of a strip
_TICKS_S = {
    60: "1 min",
    600: "10 min",
    3_600: "1 h",
    36_000: "10 h",
    259_200: "3 d",
    2_592_000: "30 d",
    31_536_000: "1 y",
}
_TAIL_S = 86_400.0  # shown after the last submission
_MARKS = {"strict": ("circle", "@c1"), "soft": ("diamond", "@c5")}


def slack_over_time(views: Sequence[View], clock: Clock) -> list[Chart]:
    """Return one strip a run of jobs met and missed over time; nothing where no job with a deadline ended."""
    found = [(view, _ended(view)) for view in views if "deadline_met" in view.jobs.columns]
    shown = [(view, jobs) for view, jobs in found if jobs.height]
    if not shown:
        return []
    due_s = np.concatenate([jobs["due_s"].to_numpy() for _, jobs in shown])
    reach = max(_height(float(np.abs(jobs["slack_s"].to_numpy()).max())) for _, jobs in shown)
    step = max(-(-jobs.height // _POINTS_MAX) for _, jobs in shown)
    strips = [_strip(view, jobs, step, 1.1 * reach, clock) for view, jobs in shown]
    last_s = min(float(due_s.max()) + 1, _last_submission_s(views) + _TAIL_S)
    axis = clock.axis(float(due_s.min()), last_s)
    beyond = max(jobs.filter(pl.col("due_s") > last_s).height for _, jobs in shown)
    caption = _caption(views, step, beyond)
    return [charts.stack("Deadlines met and missed", caption, strips, axis, each=170)]


def _last_submission_s(views: Sequence[View]) -> float:
    return max(float(view.jobs["submit_s"].to_numpy().max()) for view in views)


def _ended(view: View) -> pl.DataFrame:
    """Return the jobs with a deadline that finished, by deadline: `job_id, service_class, due_s, slack_s`."""
    jobs = view.jobs.filter(pl.col("deadline_met").is_not_null() & pl.col("finish_s").is_not_null())
    return jobs.select(
        "job_id",
        "service_class",
        due_s=pl.col("submit_s") + pl.col("first_deadline_s"),
        slack_s=pl.col("first_deadline_s") - pl.col("jct_s"),
    ).sort("due_s", maintain_order=True)


def _caption(views: Sequence[View], step: int, beyond: int) -> str:
    some = f" One job in {step} is drawn." if step > 1 else ""
    some += f" Beyond the right edge: {numbers.many(beyond, 'deadline')}." if beyond else ""
    missing = max(
        view.jobs.filter(pl.col("deadline_met").is_not_null() & pl.col("finish_s").is_null()).height
        for view in views
        if "deadline_met" in view.jobs.columns
    )
    never = f" {numbers.many(missing, 'job')} never finished and cannot be drawn." if missing else ""
    return (
        "Each job stands at its first deadline; above the line it finished so long before it, below so long "
        "after. Circles are strict jobs, diamonds soft ones, which may still have met a later deadline. The "
        f"scale is logarithmic away from the line.{some}{never}"
    )


def _strip(view: View, jobs: pl.DataFrame, step: int, reach: float, clock: Clock) -> Strip:
    drawn = jobs.gather_every(step)
    met, all_jobs = int(view.jobs["deadline_met"].sum()), view.jobs["deadline_met"].count()
    name = f"{view.name}: {numbers.count(met)} of {numbers.many(all_jobs, 'deadline')} met"
    ticks = [tick for tick in _TICKS_S if _height(tick) <= reach]
    places = [*(-_height(tick) for tick in reversed(ticks)), 0.0, *map(_height, ticks)]
    words = [*(f"{_TICKS_S[tick]} late" for tick in reversed(ticks)), "", *(_TICKS_S[tick] for tick in ticks)]
    axis = {"range": [-reach, reach], "tickvals": charts.rounded(places), "ticktext": words}
    late = {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": -reach, "y1": 0, "layer": "below"}
    shape = {**late, "fillcolor": "@warn", "line": {"width": 0}}
    return Strip(view.index, name, [*_points(view, drawn, clock)], axis, (shape,))


def _points(view: View, jobs: pl.DataFrame, clock: Clock) -> list[charts.Trace]:
    made = []
    for kind, (symbol, colour) in _MARKS.items():
        some = jobs.filter(pl.col("service_class") == kind)
        if some.is_empty():
            continue
        slack_s = some["slack_s"].to_list()
        jobs_named = [label(name) for name in some["job_id"].to_list()]
        made.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"{label(view.name)}, {kind}",
                "meta": {"line": view.index},
                "x": clock.at(some["due_s"].to_numpy()),
                "y": charts.rounded(_height(one) for one in slack_s),
                "marker": {"symbol": symbol, "color": colour, "size": 5, "opacity": 0.7},
                "customdata": [[job, _words(one)] for job, one in zip(jobs_named, slack_s, strict=True)],
                "hovertemplate": f"{kind} job %{{customdata[0]}}<br>%{{customdata[1]}}<extra></extra>",
            }
        )
    return made


def _words(slack_s: float) -> str:
    return f"{numbers.duration(abs(slack_s))} {'late' if slack_s < 0 else 'early'}"


def _height(slack_s: float) -> float:
    """Return where a slack stands: straight up to a minute, logarithmic beyond."""
    return math.copysign(math.log10(1 + abs(slack_s) / 60), slack_s)
