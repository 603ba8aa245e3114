"""The page of `trace describe --report`: how far a trace can be trusted, then what is in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimtab.report import charts, numbers, tables, texts, views
from trimtab.report.charts import Chart
from trimtab.report.markup import Html, breakable, join, label, tag
from trimtab.report.page import Page, Section, mono, render
from trimtab.traces import statistics
from trimtab.traces.describe import ClassShare, Description
from trimtab.traces.statistics import Repeats

_TERMS = (
    ("Left out", "Rows of the source that are no job of the trace, counted by reason: none goes silently."),
    ("Without a known run", "Arrivals that never started or had not ended: counted, not simulated."),
    (
        "Load",
        "GPU time the jobs ask for over the GPU time the cluster has in the span of submissions. Near 1 or "
        "above, queues form; far under 1, all schedulers look alike.",
    ),
    (
        "Variance/mean",
        "Of arrivals in five minutes: 1 if jobs came independently of each other, more in bursts.",
    ),
    ("Autocorrelation", "How far arrivals now tell arrivals later: 1 is fully, 0 not at all."),
    ("GPU time", "GPUs of a job times its run time."),
)


def trace_page(description: Description) -> str:
    """Return the page for a described trace."""
    page = Page(
        kind="Description of a trace",
        title=description.source,
        summary=_summary(description),
        warnings=description.warnings,
        facts=_facts(description),
        sections=(
            Section(
                title="Data quality",
                body=_quality(description),
                lead="What was read, what became of it, and what was assumed.",
            ),
            Section(
                title="Arrivals",
                body=_arrivals_table(description),
                charts=tuple(_arrival_charts(description)),
            ),
            Section(title="Jobs", body=_jobs_tables(description), charts=tuple(_class_charts(description))),
        ),
        terms=_TERMS,
    )
    return render(page)


def _summary(found: Description) -> str:
    rate = f", {numbers.figures(found.jobs_a_day)} a day" if found.jobs_a_day else ""
    load = ""
    if found.load is not None and found.cluster_gpus:
        load = f" On {numbers.count(found.cluster_gpus)} GPUs that is a load of {found.load:.2f}."
    single = next((one.jobs for one in found.gangs if one.name == "1"), 0.0)
    median = found.run_time_s.get("p50")
    return (
        f"{numbers.many(found.kept, 'job')} in {numbers.figures(found.span_days)} days{rate}: "
        f"{numbers.count(found.gpu_hours)} GPU-hours. {numbers.percent(single / 100)} of the jobs use one "
        f"GPU, half of all jobs run under {numbers.duration(median)}.{load}"
    )


def _facts(found: Description) -> tuple[tuple[str, str], ...]:
    return (
        ("Source", breakable(found.source)),
        ("First submission", found.first),
        ("Last submission", found.last),
        ("Times", f"dates, zone {found.zone}" if found.dated else "offsets on the source's clock"),
        ("GPU-hours", numbers.count(found.gpu_hours)),
        ("Cluster", f"{numbers.count(found.cluster_gpus)} GPUs" if found.cluster_gpus else ""),
        ("Load", f"{found.load:.3f}" if found.load is not None else ""),
        ("Widest job", numbers.many(found.largest_gang, "GPU")),
        ("SHA-256", mono(found.sha256)),
        texts.version_fact(),
    )


def _quality(found: Description) -> Html:
    rows: list[tuple[str, str, str]] = [
        ("Rows read", numbers.count(found.rows), ""),
        ("Jobs kept", numbers.count(found.kept), ""),
        (
            "Without a known run",
            numbers.count(found.unrun),
            "counted as arrivals, not simulated" if found.unrun else "",
        ),
        *(
            (f"Left out: {item.reason}", numbers.count(item.count), _example(item.example))
            for item in found.left_out
        ),
        (
            "Equal to an earlier job in all but the id",
            numbers.count(found.duplicates),
            "kept" if found.duplicates else "",
        ),
        ("Share a second of submission with another", numbers.percent(found.same_second_share / 100), ""),
    ]
    table = tables.plain_table(
        ("What", "How many", "Example or remark"), rows, "What became of every row", numeric={1}
    )
    notes = tag("ul", *(tag("li", one) for one in found.notes)) if found.notes else Html("")
    assumed = tag("h3", "Assumed while reading") if found.notes else Html("")
    return join(table, assumed, notes, _mapping(found.mapping))


def _example(text: str) -> Html:
    return mono(text if len(text) <= 300 else f"{text[:299]}…") if text else Html("")


def _mapping(mapping: dict[str, str]) -> Html:
    if not mapping:
        return Html("")
    rows = [(ours, mono(theirs)) for ours, theirs in mapping.items()]
    body = tables.plain_table(("Ours", "The source's"), rows, "Which column was read as which", narrow=True)
    return tag("details", tag("summary", f"Columns: {len(rows)} were recognised"), body)


def _arrivals_table(found: Description) -> Html:
    rows = [
        ("Busiest five minutes", f"{numbers.many(found.busiest_5min, 'job')}, {found.busiest_at}"),
        ("Variance/mean per five minutes", _number(found.arrivals_dispersion)),
        (
            "Autocorrelation",
            ", ".join(f"{lag} {_number(one)}" for lag, one in found.arrivals_autocorrelation.items()),
        ),
    ]
    return tables.plain_table(("Arrivals", ""), rows, "How evenly jobs arrive", narrow=True)


def _number(value: float | None) -> str:
    return numbers.NOTHING if value is None else f"{value:.2f}".replace("-", "−")


def _arrival_charts(found: Description) -> list[Chart]:
    hours = [f"{hour:02d}" for hour in range(len(found.arrivals_by_hour))]
    zone = f"hour of the day, {found.zone}" if found.dated else "hour of the day on the source's clock"
    made = [
        _counts(
            "Arrivals by hour of the day",
            "Jobs submitted in each hour, over all days.",
            hours,
            found.arrivals_by_hour,
            zone,
        ),
    ]
    if found.arrivals_by_weekday:
        days = found.arrivals_by_weekday
        made.append(
            _counts(
                "Arrivals by weekday",
                "Jobs submitted on each weekday, over all weeks.",
                list(days),
                list(days.values()),
                "",
            )
        )
    return made


def _counts(title: str, caption: str, names: Sequence[str], counts: Sequence[int], axis: str) -> Chart:
    data = [
        charts.bars(
            1,
            "jobs",
            list(names),
            [float(one) for one in counts],
            hovertemplate="%{x}: %{y:,} jobs<extra></extra>",
        )
    ]
    layout: dict[str, Any] = {
        "xaxis": {
            "type": "category",
            "title": {"text": label(axis)},
            "ticks": "",
            "tickangle": 0,
            "nticks": 12,
            "showgrid": False,
        },
        "yaxis": {"rangemode": "tozero", "tickformat": ","},
        "bargap": 0.22,
        "annotations": [charts.note("jobs")],
    }
    return Chart(title=title, caption=caption, data=data, layout=layout, height=300)


def _jobs_tables(found: Description) -> Html:
    names = {"p10": "10 %", "p50": "Half", "p90": "90 %", "p99": "99 %"}
    quantiles = [
        (f"{names.get(name, name)} of the jobs", numbers.duration(at))
        for name, at in found.run_time_s.items()
    ]
    people = [
        (what, *_repeats(one))
        for what, one in (("Users", found.users), ("Virtual clusters", found.vcs))
        if one
    ]
    made = [
        tables.plain_table(
            ("Run time", "at most"), quantiles, "Run time at full speed", numeric={1}, narrow=True
        )
    ]
    if people:
        titles = ("Who", "Distinct", "Largest share of jobs", "Jobs of those with over ten")
        made.append(tables.plain_table(titles, people, "Who submits", numeric={1, 2, 3}, narrow=True))
    return join(*made)


def _repeats(found: Repeats) -> tuple[str, str, str]:
    return (
        numbers.count(found.distinct),
        numbers.percent(found.top_share / 100),
        numbers.percent(found.often_share / 100),
    )


def _class_charts(found: Description) -> list[Chart]:
    words = dict(zip(statistics.RUN_TIME_NAMES, views.RUN_TIMES, strict=True))
    words |= dict(zip(statistics.GANG_NAMES, views.GANGS, strict=True))
    return [
        _shares(title, about, [words.get(one.name, one.name) for one in classes], classes)
        for title, about, classes in (
            ("GPUs of a job", "Few wide jobs can take most of the GPU time.", found.gangs),
            ("Run times", "Few long jobs can take most of the GPU time.", found.run_times),
        )
    ]


def _shares(title: str, about: str, names: list[str], found: Sequence[ClassShare]) -> Chart:
    data = [
        charts.bars(
            index,
            name,
            names,
            charts.rounded(values),
            meta={},
            hovertemplate="%{x}: %{y:.1f} % of " + name + "<extra></extra>",
        )
        for index, name, values in (
            (1, "jobs", [one.jobs for one in found]),
            (2, "GPU time", [one.gpu_time for one in found]),
        )
    ]
    layout: dict[str, Any] = {
        "xaxis": {"type": "category", "ticks": "", "tickangle": 0, "showgrid": False},
        "yaxis": {"rangemode": "tozero", "ticksuffix": " %"},
        "barmode": "group",
        "bargap": 0.28,
        "annotations": [charts.note("share of the total")],
        "showlegend": True,
        "legend": {"orientation": "h", "x": 1, "xanchor": "right", "y": 1.0, "yanchor": "bottom"},
    }
    return Chart(title=title, caption=about, data=data, layout=layout)
