"""The page of `evaluate --report`: ways of choosing the settings, walked forward over the same weeks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from trimtab.control.rounds import Round
from trimtab.errors import ConfigError
from trimtab.knobs import Knobs, write
from trimtab.report import charts, graph, history, numbers, tables, texts, views
from trimtab.report.charts import Chart, Clock
from trimtab.report.lines import Evaluation, Line, Statistics
from trimtab.report.markup import Html, join, tag
from trimtab.report.page import Page, Section, mono, render
from trimtab.report.tables import PREEMPTIONS, Measure
from trimtab.report.views import View

_MEASURES = (
    Measure(name="wait_s_mean", title="Wait, mean"),
    Measure(name="wait_s_p99", title="Wait, p99"),
    Measure(name="jct_s_mean", title="JCT, mean"),
    Measure(name="jct_s_p99", title="JCT, p99"),
    PREEMPTIONS,
    Measure(name="switches", title="Switches", kind="count", better=None),
    Measure(name="search_s", title="Search time", better=None),
)
_GOALS = {
    "wait": Measure(name="wait_s_mean", title="mean waiting"),
    "jct": Measure(name="jct_s_mean", title="the mean completion time"),
    "jct_p99": Measure(name="jct_s_p99", title="the completion time that one job in a hundred exceeds (p99)"),
    "rho": Measure(name="rho_le_1_share", title="the share of jobs with ρ ≤ 1", kind="share", better="more"),
    "violations": Measure(
        name="slo_violation_rate_weighted", title="the value lost by missed deadlines", kind="share"
    ),
}
_MORE = {  # columns that an objective adds to the table of lines
    "rho": (Measure(name="rho_le_1_share", title="ρ ≤ 1", kind="share", better="more"),),
    "violations": (
        Measure(name="slo_violation_rate", title="Deadlines missed", kind="share"),
        Measure(name="slo_violation_rate_weighted", title="Value lost", kind="share"),
    ),
}
_ORACLE = "oracle"
_LOG_MAX = 400  # rounds of a decision log that are shown
_CURVE_POINTS = 400
_DAILY_FROM_DAYS = 4.0


def evaluate_page(evaluation: Evaluation) -> str:
    """Return the page for an evaluation; its first line is what the others are compared with.

    Raises:
        ConfigError: If there is no line.
    """
    if not evaluation.lines:
        raise ConfigError("an evaluation needs at least one line; no page was written.")
    clock = Clock.read(evaluation.first_day)
    lines = [View(index, one.name, one.jobs, one.timeline) for index, one in enumerate(evaluation.lines)]
    page = Page(
        kind="Evaluation of tuning, walked forward in time",
        title=f"Tuning {evaluation.policy} on {evaluation.provenance.source}",
        summary=_summary(evaluation),
        warnings=tuple(_warnings(evaluation)),
        facts=_facts(evaluation),
        key=tuple(line.name for line in evaluation.lines),
        sections=tuple(_sections(evaluation, lines, clock)),
        terms=texts.terms(
            "Wait",
            "JCT",
            "Median, p95, p99",
            "Switch",
            "Predicted gain",
            "Oracle",
            "GPU utilisation",
            "Ratio",
            "Best",
            "Ties",
        ),
    )
    return render(page)


def _sections(evaluation: Evaluation, lines: Sequence[View], clock: Clock) -> list[Section]:
    axis = clock.axis(*views.span_s(lines))
    tuned = [(index, line) for index, line in enumerate(evaluation.lines) if line.rounds]
    found = [
        Section(
            title="Results",
            body=_table(evaluation),
            lead="Every line runs the same jobs; it differs in who chooses the settings, and when. "
            "Under each value its ratio to the first line.",
        ),
        *([_over_seeds(evaluation.statistics)] if evaluation.statistics else []),
        Section(
            title="Waiting",
            with_key=True,
            charts=tuple(_waiting(lines, clock, axis)),
        ),
        Section(title="Load over time", charts=tuple(views.load_over_time(lines, evaluation.cluster, clock))),
    ]
    if any(line.segments for line in evaluation.lines):
        found.append(_segments(evaluation))
    if tuned:
        found.append(
            Section(
                title="What the tuner did",
                lead="One mark a round: hollow where the settings stayed, filled where they changed.",
                charts=(
                    history.gains(tuned, clock, axis, _threshold(evaluation)),
                    *history.knobs(evaluation, clock, axis),
                ),
                body=history.unchanged(evaluation),
            )
        )
        found.append(Section(title="Decision log", body=join(*(_log(*one, clock) for one in tuned))))
    for line in evaluation.lines:
        found += _graph(line)
    return found


def _graph(line: Line) -> list[Section]:
    """Return the causal graph a line learned last, and what speaks for it; nothing if it learned none."""
    if line.graph is None:
        return []
    lead = (
        f"The causal graph that {line.name} learned last: knobs on the left, what waiting is made of in the "
        "middle, the objective on the right."
    )
    picture = Section(title="What the knobs act on", lead=lead, charts=(graph.graph_chart(line.graph),))
    return [picture, Section(title="Evidence for the graph", body=graph.evidence_table(line.graph))]


def _goal(evaluation: Evaluation) -> Measure:
    return _GOALS.get(str(evaluation.settings.get("objective", "wait")), _GOALS["wait"])


def _summary(evaluation: Evaluation) -> str:
    goal = _goal(evaluation)
    base = evaluation.lines[0]
    before = base.metrics.get(goal.name)
    rivals = [line for line in evaluation.lines[1:] if not line.name.startswith(_ORACLE)]
    known = [
        (value, index)
        for index, line in enumerate(rivals)
        if (value := line.metrics.get(goal.name)) is not None
    ]
    over = f"{numbers.many(evaluation.kept, 'job')} on {numbers.count(evaluation.cluster.gpus)} GPUs"
    if before is None and base.metrics["finished"]:
        return (
            f"Of {over}, none that finished under {base.name} has any run time: {goal.title} is not defined."
        )
    if before is None:
        return f"Of {over}, no job finished under {base.name}."
    if not known:
        return f"Over {over}, {goal.title} is {_told(goal, [before])[0]} under {base.name} ({base.meaning})."
    after, best = max(known) if goal.better == "more" else min(known)
    was, now = _told(goal, [before, after])
    if not _is_better(goal, after, before):
        return (
            f"No line does better than {base.name} ({base.meaning}) over {over}: {goal.title} is "
            f"{was}; the nearest, {rivals[best].name}, has {now} ({numbers.change(before, after)})."
        )
    verb = "raises" if goal.better == "more" else "cuts"
    found = (
        f"{rivals[best].name} ({rivals[best].meaning}) {verb} {goal.title} of {over} from "
        f"{was} under {base.name} ({base.meaning}) to {now} ({numbers.change(before, after)})."
    )
    if abs(after - before) < texts.NOISE * before:
        found += f" {texts.NOISE_WARNING}"
    return " ".join(
        part for part in (found, _effort(rivals[best]), _reach(evaluation, goal, before, after)) if part
    )


def _told(goal: Measure, values: Sequence[float]) -> list[str]:
    """Return values of a measure in words, times in one unit."""
    if goal.kind == "share":
        return [numbers.percent(value) for value in values]
    unit = numbers.common_unit(values) if len(values) > 1 else None
    return [numbers.duration(value, unit) for value in values]


def _is_better(goal: Measure, value: float, than: float) -> bool:
    return value > than if goal.better == "more" else value < than


def _effort(line: Line) -> str:
    if not line.rounds:
        return "Its settings stay the same from the first job to the last."
    main = [one for one in line.rounds if one.search == "main"]
    search = numbers.duration(sum(one.search_s for one in main) / len(main))
    return (
        f"It changed the settings {numbers.many(line.switches, 'time')} in "
        f"{numbers.many(len(line.rounds), 'round')}; a main search took {search} on average."
    )


def _reach(evaluation: Evaluation, goal: Measure, before: float, after: float) -> str:
    for line in evaluation.lines[1:]:
        limit = line.metrics.get(goal.name)
        if line.name.startswith(_ORACLE) and limit is not None and _is_better(goal, limit, before):
            part = numbers.percent((before - after) / (before - limit))
            (reached,) = _told(goal, [limit])
            return f"Knowing the future, {line.name} reaches {reached}: {part} of that gain is won."
    return ""


def _warnings(evaluation: Evaluation) -> list[str]:
    found = [f"{line.name}: {note}" for line in evaluation.lines for note in line.notes]
    if len({line.metrics["finished"] for line in evaluation.lines}) > 1:
        found.append(
            "The lines did not finish the same number of jobs, and means are over finished jobs only."
        )
    return found


def _facts(evaluation: Evaluation) -> tuple[tuple[str, str], ...]:
    settings = dict(evaluation.settings)
    known = [
        *texts.provenance_facts(evaluation.provenance, evaluation.kept),
        ("Cluster", texts.cluster_text(evaluation.cluster)),
        ("Window", evaluation.window),
        ("Second 0", evaluation.first_day),
        ("Policy", evaluation.policy),
        ("Tuned for", _goal(evaluation).title),
        ("Seed", str(settings.pop("seed", ""))),
        texts.version_fact(),
    ]
    rest = ", ".join(f"{name} {_setting(value)}" for name, value in settings.items())
    digest = texts.digest_fact(evaluation.provenance)
    return (*known, ("Settings", mono(rest) if rest else ""), digest)


def _setting(value: Any) -> str:
    if isinstance(value, Knobs):
        return value.text()
    if isinstance(value, tuple | list):
        return "/".join(str(item) for item in value)
    return write(value) if isinstance(value, bool | float) else str(value)


def _threshold(evaluation: Evaluation) -> float | None:
    value = evaluation.settings.get("threshold")
    return float(value) if isinstance(value, int | float) and value > 0 else None


def _table(evaluation: Evaluation) -> Html:
    rows_of = [
        {**line.metrics, "switches": line.switches, "search_s": sum(one.search_s for one in line.rounds)}
        for line in evaluation.lines
    ]
    goal = _goal(evaluation)
    more = _MORE.get(str(evaluation.settings.get("objective")), ())
    measures = [*more, *_MEASURES]
    measures.sort(key=lambda one: one.name != goal.name)
    columns = [tables.cells(one, [row.get(one.name) for row in rows_of]) for one in measures]
    head = [tag("th", "Line", scope="col")]
    head += [tag("th", one.title, scope="col", class_="num") for one in measures]
    rows = [
        [
            tag("th", tables.name_head(index, line.name, line.meaning), scope="row"),
            *(column[index] for column in columns),
        ]
        for index, line in enumerate(evaluation.lines)
    ]
    return tables.table(head, rows, "Times are simulated, but for the search time, which is ours", "lines")


def _waiting(lines: Sequence[View], clock: Clock, axis: charts.Axis) -> list[Chart]:
    if not any(line.done.height for line in lines):
        return []
    over_time = [_waiting_over_time(lines, clock, axis), _cumulative(lines, clock, axis)]
    return [*over_time, *views.distributions(lines), *views.by_class(lines)]


def _waiting_over_time(lines: Sequence[View], clock: Clock, axis: charts.Axis) -> Chart:
    first, last = views.span_s(lines)
    daily = last - first >= _DAILY_FROM_DAYS * 86_400
    step_s = 86_400.0 if daily else 3_600.0
    means = [_means_by_submission(line, step_s) for line in lines]
    unit = charts.unit_for(value for _, wait in means for value in wait)
    data = [
        charts.curve(
            line.index,
            line.name,
            clock.at(times),
            charts.rounded(wait / unit.seconds),
            mode="lines+markers",
            marker={"size": 5, "color": charts.colour(line.index)},
            customdata=[numbers.duration(w) for w in wait],
            hovertemplate="%{customdata}",
        )
        for line, (times, wait) in zip(lines, means, strict=True)
    ]
    return Chart(
        title=f"Waiting by {'day' if daily else 'hour'} of submission",
        caption="Mean waiting of the jobs submitted in it, however late they finish.",
        data=data,
        layout=charts.over_time(axis, f"mean waiting, {unit.name}", {}),
        wide=True,
    )


def _means_by_submission(line: View, step_s: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the middle of each step that has jobs, and their mean waiting."""
    step = (pl.col("submit_s") / step_s).floor().alias("step")
    grouped = line.done.group_by(step).agg(pl.col("wait_s").mean()).sort("step")
    return (grouped["step"].to_numpy() + 0.5) * step_s, grouped["wait_s"].to_numpy()


def _cumulative(lines: Sequence[View], clock: Clock, axis: charts.Axis) -> Chart:
    data = []
    for line in lines:
        done = line.done.sort("submit_s")
        total = done["wait_s"].cum_sum().to_numpy() / 3_600
        at = np.unique(np.linspace(0, len(total) - 1, min(_CURVE_POINTS, len(total))).astype(int))
        submit = done["submit_s"].to_numpy()
        data.append(
            charts.curve(
                line.index,
                line.name,
                clock.at(submit[at]),
                charts.rounded(total[at]),
                hovertemplate="%{y:,.0f} h",
            )
        )
    return Chart(
        title="Waiting added up",
        caption="Hours waited by all jobs submitted so far: one line gains on another where they part.",
        data=data,
        layout=charts.over_time(axis, "job-hours waited", {}),
        wide=True,
    )


def _over_seeds(statistics: Statistics) -> Section:
    waits = [
        (name, *_durations(wait.mean, wait.deviation, wait.low, wait.high))
        for name, wait in statistics.waits.items()
    ]
    contrasts = [
        (
            one.line,
            one.reference,
            numbers.ratio(one.ratio.mean, 1) if one.ratio else numbers.NOTHING,
            f"{one.ratio.low:.3f} … {one.ratio.high:.3f}" if one.ratio else numbers.NOTHING,
            *_durations(one.difference_s),
            " … ".join(_durations(*one.interval_s)) if one.interval_s else numbers.NOTHING,
        )
        for one in statistics.contrasts
    ]
    heads = ("Line", "Mean", "Standard deviation", "Least", "Most")
    pairs = ("Line", "Against", "Ratio", "Least … most", "Difference", "95 % interval")
    return Section(
        title="Over seeds",
        lead=f"The evaluation in {numbers.many(statistics.runs, 'run')}, each with its own seed or order of "
        "simultaneous jobs; all other parts of this page show the first. Differences are of mean waiting, "
        "job by job within a run; for the interval whole days are drawn again.",
        body=join(
            tables.plain_table(heads, waits, "Mean waiting over the runs", range(1, len(heads))),
            tables.plain_table(pairs, contrasts, "Lines against those to beat", range(2, len(pairs))),
        ),
    )


def _durations(*times_s: float | None) -> list[str]:
    return [numbers.duration(time_s) for time_s in times_s]


def _segments(evaluation: Evaluation) -> Section:
    names = list(dict.fromkeys(name for line in evaluation.lines for name in line.segments))
    found = [line.segments for line in evaluation.lines]
    keys = list(dict.fromkeys(key for one in found for segment in one.values() for key in segment))
    measures = [
        Measure(name=key, title=_segment_title(key), kind=_segment_kind(key)) for key in keys if key != "jobs"
    ]
    heads = [tables.name_head(index, line.name) for index, line in enumerate(evaluation.lines)]
    made = []
    for number, measure in enumerate(measures):
        rows = [
            (
                join(name, tag("small", _segment_jobs(found, name))),
                tables.cells(measure, [one.get(name, {}).get(measure.name) for one in found]),
            )
            for name in names
            if any(measure.name in one.get(name, {}) for one in found)
        ]
        title = f"{measure.title} by segment"
        body = tables.measure_table(heads, rows, title, "Segment")
        made.append(tag("details", tag("summary", title), body) if number else body)
    lead = "A mean hides who pays for it: the same numbers for parts of the jobs."
    return Section(title="Segments", lead=lead, body=join(*made))


def _segment_title(key: str) -> str:
    if key == "reference_wait_s_mean":
        return "Wait of the same jobs under the first line, mean"
    known = {one.name: one.title for one in (*tables.WAITS, *tables.JCTS, *tables.OTHERS)}
    return known.get(key, key.replace("_", " "))


def _segment_kind(key: str) -> tables.Kind:
    if "_s_" in key or key.endswith("_s"):
        return "duration"
    if key.endswith(("_share", "_rate")):
        return "share"
    return "factor" if key.endswith("_mean") else "count"


def _segment_jobs(found: Sequence[dict[str, dict[str, float]]], name: str) -> str:
    counts = [int(one[name]["jobs"]) for one in found if "jobs" in one.get(name, {})]
    if not counts:
        return ""
    return ("" if min(counts) == max(counts) else "up to ") + numbers.many(max(counts), "job")


def _log(index: int, line: Line, clock: Clock) -> Html:
    head = [tag("th", name, scope="col") for name in ("Time", "Verdict", "Gain", "Trials", "Reason", "Knobs")]
    told = [one for one in line.rounds if one.search == "main" or one.switched]
    rows = [_log_row(one, clock) for one in told[:_LOG_MAX]]
    left_out = len(rows) < len(line.rounds)
    more = " Rounds between main rounds are shown where they changed something"
    more += f", and at most {_LOG_MAX} in all; --format json prints all."
    made = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows), class_="plain log")
    rounds, changes = numbers.many(len(line.rounds), "round"), numbers.many(line.switches, "change")
    start = mono(line.start_knobs.text() or "no knobs")
    return tag(
        "details",
        tag("summary", tables.swatch(index), f"{line.name}: {rounds}, {changes}"),
        tag("p", "Started with ", start, ".", more if left_out else "", class_="lead"),
        tables.scroller(made, f"Decisions of {line.name}"),
    )


def _log_row(one: Round, clock: Clock) -> Html:
    changed = {name: value for name, value in one.knobs_after.items() if one.knobs_before.get(name) != value}
    knobs = ", ".join(
        f"{name} {_before(one.knobs_before, name)} → {write(value)}" for name, value in changed.items()
    )
    brief = ("change" if one.switched else "keep", f"{one.gain:.3f}", numbers.count(one.trials))
    return tag(
        "tr",
        tag("th", clock.show(one.time_s), scope="row"),
        *(tag("td", text, class_="brief") for text in brief),
        tag("td", one.verdict.reason),
        tag("td", knobs),
        class_="apply" if one.switched else None,
    )


def _before(knobs: Knobs, name: str) -> str:
    return write(knobs[name]) if name in knobs else "unset"
