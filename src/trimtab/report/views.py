"""Charts of runs side by side, whatever page they stand on: waiting, load, who waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from trimtab.cluster import Cluster
from trimtab.report import charts, numbers
from trimtab.report.charts import Chart, Clock
from trimtab.simulate.metrics import load_series
from trimtab.timeline import Timeline
from trimtab.traces import statistics

_POINTS = 300  # of a distribution
_STEPS_MAX = 800  # of a course over time
_STEPS_MS = tuple(3_600_000 * hours for hours in (1, 2, 6, 12, 24, 168))
_BARS_SPAN = 25.0  # largest over smallest, beyond which bars are too short to see
_TAIL_S = 86_400.0  # shown after the last submission
RUN_TIMES = ("under 5 min", "5–30 min", "30–60 min", "1–2 h", "2–4 h", "over 4 h")
GANGS = ("1 GPU", "2–4 GPUs", "5–8 GPUs", "9–16 GPUs", "over 16 GPUs")


ClassMeans = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, slots=True)
class View:
    """A run as the charts need it; `index` decides its colour on the whole page."""

    index: int
    name: str
    jobs: pl.DataFrame
    timeline: Timeline

    @property
    def done(self) -> pl.DataFrame:
        """The jobs that finished."""
        return self.jobs.filter(pl.col("finish_s").is_not_null())


def span_s(views: Sequence[View]) -> tuple[float, float]:
    """Return the span that charts over time show: submissions, and at most a day after the last one."""
    first = min((_least(view.jobs["submit_s"]) for view in views), default=0.0)
    submitted = max((_most(view.jobs["submit_s"]) for view in views), default=0.0)
    finished = max((_most(view.jobs["finish_s"]) for view in views), default=0.0)
    return first, max(min(finished, submitted + _TAIL_S), first + 3_600)


def distributions(views: Sequence[View]) -> list[Chart]:
    """Return the distributions of waiting and of completion times."""
    return [found for found in (_wait_distribution(views), _jct_distribution(views)) if found]


def _wait_distribution(views: Sequence[View]) -> Chart | None:
    waits = {view.index: view.done["wait_s"].to_numpy() for view in views if view.done.height}
    if not waits:
        return None
    at_once = {index: float(np.mean(wait < 1)) for index, wait in waits.items()}
    least = min(at_once.values())
    floor = min(int(10 * least), 9) / 10 if least > 0.5 else 0.0
    low, high = min(at_once.values()), max(at_once.values())
    share = (
        numbers.percent(low) if high - low < 0.001 else f"{numbers.percent(low)} to {numbers.percent(high)}"
    )
    cut = f" The vertical axis begins at {numbers.percent(floor)}." if floor else ""
    return _distribution(
        views,
        "wait_s",
        "How long jobs wait",
        f"Share of jobs that wait at most this long: higher and further left is better. {share} of jobs "
        f"wait less than a second, where the curves begin.{cut}",
        "waiting (JCT less run time), logarithmic",
        floor,
    )


def _jct_distribution(views: Sequence[View]) -> Chart | None:
    return _distribution(
        views,
        "jct_s",
        "How long jobs take from submission to completion",
        "Share of jobs complete within this time. Where curves meet, jobs hardly waited: run time decides.",
        "job completion time, logarithmic",
        0.0,
    )


def _distribution(
    views: Sequence[View], column: str, title: str, caption: str, axis: str, floor: float
) -> Chart | None:
    found = [(view, np.sort(view.done[column].to_numpy())) for view in views if view.done.height]
    highest = max((float(values[-1]) for _, values in found), default=0.0)
    if not found:
        return None
    grid = np.geomspace(1.0, max(highest, 10.0), _POINTS)
    grid[-1] = max(highest, 10.0)
    shown = [numbers.duration(float(at)) for at in grid]
    data = [
        charts.curve(
            view.index,
            view.name,
            charts.rounded(grid),
            charts.rounded(np.searchsorted(values, grid, side="right") / len(values)),
            customdata=shown,
            hovertemplate="<b>%{fullData.name}</b><br>%{y:.1%} of jobs: at most %{customdata}<extra></extra>",
        )
        for view, values in found
    ]
    layout = {
        "xaxis": charts.log_time_axis(1.0, float(grid[-1]), axis),
        "yaxis": {"range": [floor, 1 + 0.02 * (1 - floor)], "tickformat": ".0%"},
        "annotations": [charts.note("share of jobs")],
    }
    return Chart(title=title, caption=caption, data=data, layout=layout, height=360)


def load_over_time(views: Sequence[View], cluster: Cluster, clock: Clock) -> list[Chart]:
    """Return GPUs held and jobs pending over time; nothing where no job started."""
    if not any(view.jobs["start_s"].count() for view in views):
        return []
    first, last = span_s(views)
    step_ms = next((one for one in _STEPS_MS if (last - first) * 1000 / one <= _STEPS_MAX), _STEPS_MS[-1])
    loads = [(view, _load(view, step_ms, last)) for view in views]
    axis = clock.axis(first, last)
    hours = step_ms // 3_600_000
    per = "hour" if hours == 1 else f"{hours} hours"
    top = {"range": [0, 1.06 * cluster.gpus], "tickformat": ","}
    gpus = charts.over_time(axis, "GPUs held", top, shapes=[_capacity(cluster)])
    return [
        Chart(
            title="GPUs held",
            caption=f"Mean of each {per}. The thin line is the whole cluster, {cluster.gpus:,} GPUs; "
            "restarts of preempted jobs count as held.",
            data=[_course(view, load, "gpus_held", clock) for view, load in loads],
            layout=gpus,
            wide=True,
        ),
        Chart(
            title="Jobs in the queue",
            caption=f"Mean of each {per}: submitted or preempted, and without GPUs.",
            data=[_course(view, load, "jobs_pending", clock) for view, load in loads],
            layout=charts.over_time(axis, "jobs pending", {"tickformat": ","}),
            wide=True,
        ),
    ]


def busy_share(view: View, cluster: Cluster) -> float | None:
    """Return the share of the cluster's GPU time that is held from the first to the last submission."""
    last = _most(view.jobs["submit_s"])
    load = _load(view, 3_600_000, last)
    return float(load["gpus_held"].mean()) / cluster.gpus if load.height > 1 else None  # type: ignore[arg-type]


def _load(view: View, step_ms: int, last_s: float) -> pl.DataFrame:
    return load_series(view.timeline, step_ms).filter(pl.col("time_s") <= last_s)


def _course(view: View, load: pl.DataFrame, column: str, clock: Clock) -> charts.Trace:
    return charts.curve(
        view.index,
        view.name,
        clock.at(load["time_s"].to_numpy()),
        charts.rounded(load[column].to_numpy()),
        line={"shape": "hv", "width": 1.6},
        hovertemplate="%{y:,.1f}",
    )


def _capacity(cluster: Cluster) -> dict[str, Any]:
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": cluster.gpus,
        "y1": cluster.gpus,
        "line": {"color": "@muted", "width": 1},
    }


def by_class(views: Sequence[View]) -> list[Chart]:
    """Return mean waiting by gang width and by run time; nothing where no job waited."""
    if not any(view.done.filter(pl.col("wait_s") >= 1).height for view in views):
        return []
    gangs = [_class_means(view, "gpus", statistics.GANG_BOUNDS) for view in views]
    lengths = [_class_means(view, "duration_s", statistics.RUN_TIME_BOUNDS_S) for view in views]
    return [
        _class_chart(views, gangs, GANGS, "Who waits: by gang width", "each width"),
        _class_chart(views, lengths, RUN_TIMES, "Who waits: by run time", "each length"),
    ]


def _class_chart(
    views: Sequence[View], table: Sequence[ClassMeans], names: Sequence[str], title: str, which: str
) -> Chart:
    """Return bars side by side, or points on a logarithmic axis where bars would vanish beside others."""
    sizes = np.max([counts for counts, _ in table], axis=0)
    kept = [place for place, size in enumerate(sizes) if size]
    waits = [means[kept] for _, means in table]
    ticks = [f"{names[place]}<br>{sizes[place]:,}" for place in kept]
    above = [float(wait) for row in waits for wait in row if wait >= 1]
    wide = bool(above) and max(above) > _BARS_SPAN * min(above)
    unit = charts.unit_for(above)
    drawn = [
        charts.points(view.index, view.name, ticks, charts.rounded(np.maximum(row, 1.0)))
        if wide
        else charts.bars(view.index, view.name, ticks, charts.rounded(row / unit.seconds))
        for view, row in zip(views, waits, strict=True)
    ]
    hover = "<b>%{fullData.name}</b><br>%{customdata}<extra></extra>"
    layout = {
        "xaxis": {
            "type": "category",
            "tickangle": 0,
            "ticks": "",
            "tickfont": {"size": 11.5},
            "showgrid": False,
        },
        "yaxis": charts.log_time_axis(min(above), max(above), "", edge=0.2)
        if wide
        else {"rangemode": "tozero"},
        "shapes": [_between(place) for place in range(1, len(kept))] if wide else [],
        "barmode": "group",
        "scattermode": "group",
        "bargap": 0.28,
        "scattergap": 0.28,
        "annotations": [charts.note("mean waiting, logarithmic" if wide else f"mean waiting, {unit.name}")],
    }
    return Chart(
        title=title,
        caption=f"Mean waiting of the jobs of {which}; the number of jobs stands under it. A gain for one "
        "class may be another's loss.",
        data=[
            {**one, "customdata": [numbers.duration(float(wait)) for wait in row], "hovertemplate": hover}
            for one, row in zip(drawn, waits, strict=True)
        ],
        layout=layout,
    )


def _between(place: int) -> dict[str, Any]:
    """Return the rule between two classes of points."""
    at = {"x0": place - 0.5, "x1": place - 0.5, "yref": "paper", "y0": 0, "y1": 1}
    return {"type": "line", "layer": "below", "line": {"color": "@grid", "width": 1}, **at}


def _class_means(view: View, column: str, bounds: Sequence[int]) -> ClassMeans:
    """Return jobs and mean waiting of each class, shape (classes,); nan for a class without jobs."""
    done = view.done
    place = np.clip(np.searchsorted(bounds, done[column].to_numpy(), side="right") - 1, 0, None)
    counts = np.bincount(place, minlength=len(bounds))
    sums = np.bincount(place, weights=done["wait_s"].to_numpy(), minlength=len(bounds))
    return counts, np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _least(values: pl.Series) -> float:
    found = values.min()
    return float(found) if isinstance(found, int | float) else 0.0


def _most(values: pl.Series) -> float:
    found = values.max()
    return float(found) if isinstance(found, int | float) else 0.0
