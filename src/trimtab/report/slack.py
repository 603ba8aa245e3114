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
_LEAST_S = 60.0  # slack that a strip reaches at least
_FOOT = 0.96  # where those stand that never finished, as a part of the way to the lower edge
_MARKS = {"strict": ("circle", "@c1"), "soft": ("diamond", "@c5")}


def slack_over_time(views: Sequence[View], clock: Clock) -> list[Chart]:
    """Return one strip a run of deadlines met and missed over time; nothing where no job has one."""
    found = [(view, _bound(view)) for view in views if "deadline_met" in view.jobs.columns]
    shown = [(view, jobs) for view, jobs in found if jobs.height]
    if not shown:
        return []
    due_s = np.concatenate([jobs["due_s"].to_numpy() for _, jobs in shown])
    slack_s = np.concatenate([jobs["slack_s"].drop_nulls().to_numpy() for _, jobs in shown])
    reach = _height(float(np.abs(slack_s).max(initial=_LEAST_S)))
    step = max(-(-jobs.height // _POINTS_MAX) for _, jobs in shown)
    strips = [_strip(view, jobs, step, 1.1 * reach, clock) for view, jobs in shown]
    last_s = min(float(due_s.max()) + 1, _last_submission_s(views) + _TAIL_S)
    axis = clock.axis(float(due_s.min()), last_s)
    beyond = max(jobs.filter(pl.col("due_s") > last_s).height for _, jobs in shown)
    missing = max(jobs["slack_s"].null_count() for _, jobs in shown)
    caption = _caption(step, beyond, missing)
    return [charts.stack("Deadlines met and missed", caption, strips, axis, each=170)]


def _last_submission_s(views: Sequence[View]) -> float:
    return max(float(view.jobs["submit_s"].to_numpy().max()) for view in views)


def _bound(view: View) -> pl.DataFrame:
    """Return the jobs with a deadline, by deadline: `job_id, service_class, due_s, slack_s`.

    A job that never finished has no slack.
    """
    return (
        view.jobs.filter(pl.col("deadline_met").is_not_null())
        .select(
            "job_id",
            "service_class",
            due_s=pl.col("submit_s") + pl.col("first_deadline_s"),
            slack_s=pl.col("first_deadline_s") - pl.col("jct_s"),
        )
        .sort("due_s", maintain_order=True)
    )


def _caption(step: int, beyond: int, missing: int) -> str:
    some = f" One job in {step} is drawn." if step > 1 else ""
    some += f" Beyond the right edge: {numbers.many(beyond, 'deadline')}." if beyond else ""
    never = f" Crosses at the foot never finished: up to {numbers.many(missing, 'job')}." if missing else ""
    return (
        "Each job stands at its first deadline; above the line it finished so long before it, below so long "
        "after. Circles are strict jobs, diamonds soft ones, which may still have met a later deadline. The "
        f"scale is logarithmic away from the line.{never}{some}"
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
    return Strip(view.index, name, _points(view, drawn, reach, clock), axis, (shape,))


def _points(view: View, jobs: pl.DataFrame, reach: float, clock: Clock) -> list[charts.Trace]:
    """Return the marks of each class, and crosses at the foot for those of it that never finished."""
    made = []
    for kind, (symbol, colour) in _MARKS.items():
        some = jobs.filter(pl.col("service_class") == kind)
        for mark, shown in (
            (symbol, some.filter(pl.col("slack_s").is_not_null())),
            ("x", some.filter(pl.col("slack_s").is_null())),
        ):
            if shown.is_empty():
                continue
            slack_s = shown["slack_s"].to_list()
            jobs_named = [label(name) for name in shown["job_id"].to_list()]
            made.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": f"{label(view.name)}, {kind}",
                    "meta": {"line": view.index},
                    "x": clock.at(shown["due_s"].to_numpy()),
                    "y": charts.rounded(-_FOOT * reach if one is None else _height(one) for one in slack_s),
                    "marker": {"symbol": mark, "color": colour, "size": 5, "opacity": 0.7},
                    "customdata": [[job, _words(one)] for job, one in zip(jobs_named, slack_s, strict=True)],
                    "hovertemplate": f"{kind} job %{{customdata[0]}}<br>%{{customdata[1]}}<extra></extra>",
                }
            )
    return made


def _words(slack_s: float | None) -> str:
    if slack_s is None:
        return "never finished"
    return f"{numbers.duration(abs(slack_s))} {'late' if slack_s < 0 else 'early'}"


def _height(slack_s: float) -> float:
    """Return where a slack stands: straight up to a minute, logarithmic beyond."""
    return math.copysign(math.log10(1 + abs(slack_s) / 60), slack_s)
