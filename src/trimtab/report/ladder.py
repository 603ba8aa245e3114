"""The page of `study deadlines`: the ladder of policies against its baselines, and where it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trimtab.report import charts, numbers, tables, texts
from trimtab.report.charts import Chart
from trimtab.report.markup import Html, join, tag
from trimtab.report.page import Page, Section, render
from trimtab.report.tables import GROUP_TITLES, PREEMPTIONS_A_JOB, RESIZES_A_JOB, Measure, of_group

VIOLATIONS = Measure(name="slo_violation_rate_weighted", title="Value lost by lateness", kind="share")
PLAIN = Measure(name="slo_violation_rate", title="Deadlines missed", kind="share")
JCT = Measure(name="jct_s_mean", title="JCT")
AQT_ALL = Measure(name="queue_s_mean", title="Queue, all (AQT)")
AQT_FIRST = Measure(name="first_queue_s_mean", title="Queue to the first start (AQT)")
COMPARED = (VIOLATIONS, PLAIN, JCT, AQT_ALL, AQT_FIRST)
OF_PART = (VIOLATIONS, JCT, AQT_ALL)
ASIDE = (
    Measure(name="jct_s_p50", title="JCT, median"),
    Measure(name="queue_s_p50", title="Queue, median"),
    Measure(name="first_queue_s_p50", title="Queue to the first start, median"),
    Measure(name="tardiness_s_mean", title="Tardiness, mean"),
    Measure(name="tardiness_s_p95", title="Tardiness, p95"),
    Measure(name="promise_kept_rate", title="Promises kept", kind="share", better="more"),
    PREEMPTIONS_A_JOB,
    RESIZES_A_JOB,
    Measure(name="gpu_utilisation", title="GPU utilisation", kind="share", better=None),
    Measure(name="cpu_utilisation", title="CPU utilisation", kind="share", better=None),
    Measure(name="memory_utilisation", title="Memory utilisation", kind="share", better=None),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One measure of a policy against a baseline, over the cases.

    Attributes:
        change: Mean over cases of the relative change, -0.5 is half; None where no case allows a ratio.
        by_ratio: How many cases do: a baseline below 0.5 % violations does not.
        difference: Mean over cases and seeds of policy less baseline. interval: 95 % of it, over seeds, None
            for a single seed.
        better, tied, worse: In how many cases the policy is so. A tie is the same value or, where there are
            too few violations for a ratio, at most 0.2 points more.
    """

    change: float | None
    by_ratio: int
    difference: float
    interval: tuple[float, float] | None
    better: int
    tied: int
    worse: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """A case in which a policy loses more value than its baseline; rates, and 95 % of the difference."""

    case: str
    policy: float
    baseline: float
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Duel:
    """A policy against a baseline: by measure, and the cases it does worst in."""

    policy: str
    baseline: str
    cases: int
    measures: Mapping[str, Compared]
    worst: tuple[Worst, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Mean value lost by policy along an axis, for a chart."""

    title: str
    axis: str
    places: tuple[float, ...]
    by_policy: Mapping[str, tuple[float | None, ...]]


# Policy -> part of the cases -> metric -> mean; None where no cell has it.
ByPart = Mapping[str, Mapping[str, Mapping[str, float | None]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySummary:
    """What a study found.

    Attributes:
        means: Policy -> metric -> mean over cases and seeds of the grid, those of the centre's variations
            left out; None where no cell has it.
        step_ms: Policy -> engine CPU by event, ms; what is measured, not simulated.
        axes: Policy -> mix of models or kind of node -> means of `OF_PART`.
        variations: Policy -> variation of the centre -> the same.
        failed: Name and reason of each cell that failed.
    """

    source: str
    sha256: str
    grid: Mapping[str, Any]
    cells: int
    policies: tuple[str, ...]
    means: Mapping[str, Mapping[str, float | None]]
    step_ms: Mapping[str, float | None]
    duels: tuple[Duel, ...]
    courses: tuple[Course, ...]
    axes: ByPart
    variations: ByPart
    failed: tuple[tuple[str, str], ...]

    def jsonable(self) -> dict[str, Any]:
        """Return it as plain values; what was measured of this machine is left out."""
        plain = asdict(self)
        del plain["step_ms"]
        return plain


def ladder_page(found: StudySummary) -> str:
    """Return the page of a study."""
    page = Page(
        kind="Study of deadlines",
        title=f"{numbers.many(len(found.policies), 'policy', 'policies')} over {found.source}",
        summary=_summary(found),
        facts=_facts(found),
        key=found.policies,
        warnings=_warnings(found),
        sections=(
            Section(title="The ladder", lead=_LEAD, body=_means(found, COMPARED)),
            *(_against(found, baseline) for baseline in dict.fromkeys(one.baseline for one in found.duels)),
            Section(
                title="By load, by mix and node, and by what is unknown",
                with_key=True,
                charts=tuple(_chart(found, course) for course in found.courses),
                body=join(
                    *(_by_part(found.axes, one, "by mix of models and by kind of node") for one in OF_PART),
                    *(_by_part(found.variations, one, "the centre and its variations") for one in OF_PART),
                ),
            ),
            Section(title="What it costs", body=join(_means(found, ASIDE), _steps(found))),
            Section(title="By group of jobs", body=join(*(_group(found, name) for name in GROUP_TITLES))),
            *([_failures(found)] if found.failed else []),
        ),
        terms=texts.terms(
            "JCT", "Queue", "To the first start", "Deadlines missed", "Value lost", "Tardiness"
        ),
    )
    return render(page)


_AXES = {"gpus": "GPUs", "restart_cost_s": "Restart cost, s", "adjust_cost_s": "Cost of a resize, s"}
_LEAD = "Means over all cases and seeds of the grid; every policy ran exactly the same jobs in each."


def _summary(found: StudySummary) -> str:
    lost = [(found.means[name][VIOLATIONS.name], name) for name in found.policies]
    known = sorted((value, name) for value, name in lost if value is not None)
    if not known:
        return "No cell told of deadlines."
    value, best = known[0]
    duel = next((one for one in found.duels if one.policy == best), None)
    text = f"{best} loses least of the value of deadlines: {numbers.percent(value)}"
    if duel is None:
        return f"{text}."
    base = found.means[duel.baseline][VIOLATIONS.name]
    count = _counts(duel.measures[VIOLATIONS.name])
    return f"{text}, against {numbers.percent(base)} of {duel.baseline}; it is {count} cases."


def _facts(found: StudySummary) -> tuple[tuple[str, str], ...]:
    said = {name: value for name, value in found.grid.items() if name not in ("policies", "thin_policies")}
    axes = ((name, _told(value)) for name, value in said.items())
    return (
        ("Trace", found.source),
        ("Cells", numbers.count(found.cells)),
        *((_AXES.get(name, name.replace("_", " ").capitalize()), text) for name, text in axes),
        texts.version_fact(),
        ("SHA-256 of the trace", tag("span", found.sha256, class_="mono")),
    )


def _told(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _warnings(found: StudySummary) -> tuple[str, ...]:
    if not found.failed:
        return ()
    return (f"{numbers.many(len(found.failed), 'cell')} failed and are in no mean; see the end.",)


def _counts(one: Compared) -> str:
    """Return in how many cases a policy is better or worse, ties only where there are any."""
    tied = f", tied in {one.tied}" if one.tied else ""
    total = one.better + one.tied + one.worse
    return f"better in {one.better}{tied}, worse in {one.worse} of {total}"


def _means(found: StudySummary, measures: Sequence[Measure], caption: str = "Means of the grid") -> Html:
    shown = [one for one in measures if any(row.get(one.name) is not None for row in found.means.values())]
    heads = [tables.name_head(index, name) for index, name in enumerate(found.policies)]
    rows = [
        (join(one.title), tables.cells(one, [found.means[name].get(one.name) for name in found.policies]))
        for one in shown
    ]
    return tables.measure_table(heads, rows, caption, "Measure")


def _group(found: StudySummary, group: str) -> Html:
    """Return the means of one group of jobs; nothing if no cell has it."""
    measures = of_group(group)
    if all(row.get(measures[0].name) is None for row in found.means.values()):
        return join()
    title = GROUP_TITLES[group]
    return tag("details", tag("summary", title), _means(found, measures, title))


def _against(found: StudySummary, baseline: str) -> Section:
    duels = [one for one in found.duels if one.baseline == baseline]
    rows = [
        (tables.name_head(found.policies.index(one.policy), one.policy), *(_cell(one, m) for m in COMPARED))
        for one in duels
    ]
    head = ("Policy", *(measure.title for measure in COMPARED))
    caption = (
        "Mean relative change; difference and its 95 % interval over seeds; cases it is better and worse in"
    )
    body = join(tables.plain_table(head, rows, caption, range(1, len(head))), _worst(duels))
    lead = (
        f"Every policy beside {baseline}, on the same jobs. Where {baseline} loses less than 0.5 %, a case "
        "is in no ratio, and up to 0.2 points more are a tie."
    )
    return Section(title=f"Against {baseline}", lead=lead, body=body)


def _cell(duel: Duel, measure: Measure) -> Html:
    one = duel.measures.get(measure.name)
    if one is None:
        return join(numbers.NOTHING)
    change = "no ratio" if one.change is None else numbers.change(1, 1 + one.change)
    low, high = one.interval or (None, None)
    text = _difference(measure, one.difference)
    around = (
        ""
        if low is None or high is None
        else f" [{_difference(measure, low)} … {_difference(measure, high)}]"
    )
    return join(
        tag("b", change),
        tag("small", f"{text}{around}"),
        tag("small", _counts(one)),
    )


def _difference(measure: Measure, value: float) -> str:
    sign = "+" if value > 0 else ""
    if measure.kind == "share":
        return f"{sign}{numbers.figures(100 * value)} points"
    return f"{sign}{numbers.duration(value)}"


def _worst(duels: Sequence[Duel]) -> Html:
    rows = [
        (duel.policy, one.case, numbers.percent(one.policy), numbers.percent(one.baseline))
        for duel in duels
        for one in duel.worst
    ]
    if not rows:
        return join(tag("p", "No policy loses more than the baseline in any case."))
    head = ("Policy", "Case", "Value lost", "Baseline's")
    return tables.plain_table(head, rows, "The cases each does worst in", (2, 3))


def _chart(found: StudySummary, course: Course) -> Chart:
    data = [
        charts.curve(
            index,
            name,
            list(course.places),
            [None if one is None else float(f"{one:.5g}") for one in course.by_policy[name]],
            mode="lines+markers",
            hovertemplate="<b>%{fullData.name}</b><br>%{y:.2%}<extra></extra>",
        )
        for index, name in enumerate(found.policies)
        if name in course.by_policy
    ]
    layout = {
        "xaxis": {"title": {"text": course.axis}, "tickvals": list(course.places)},
        "yaxis": {"rangemode": "tozero", "tickformat": ".0%"},
        "annotations": [charts.note("value lost by lateness")],
    }
    caption = "Mean over seeds and the other axes of the grid; lower is better."
    return Chart(title=course.title, caption=caption, data=data, layout=layout)


def _by_part(table: ByPart, measure: Measure, caption: str) -> Html:
    names = list(dict.fromkeys(name for row in table.values() for name in row))
    values = {policy: [row[name][measure.name] for name in names] for policy, row in table.items()}
    rows = [
        (policy, *(tables.write(measure.kind, value) for value in found)) for policy, found in values.items()
    ]
    return tables.plain_table(
        (measure.title, *names), rows, f"{measure.title}, {caption}", range(1, 1 + len(names))
    )


def _steps(found: StudySummary) -> Html:
    rows = [
        (name, numbers.NOTHING if step is None else numbers.figures(step))
        for name, step in found.step_ms.items()
    ]
    return tables.plain_table(("Policy", "ms"), rows, "CPU of the engine by event, measured here", (1,), True)


def _failures(found: StudySummary) -> Section:
    return Section(
        title="Cells that failed",
        body=tables.plain_table(("Cell", "Reason"), found.failed, "Not simulated to the end"),
    )
