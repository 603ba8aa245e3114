"""Tables of metrics: one measure over several lines, with the ratio to the first and the best one marked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trimtab.report import numbers
from trimtab.report.markup import Html, breakable, join, tag

Kind = Literal["duration", "count", "share", "factor"]
Spread = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """How one metric is shown. `better` is None where neither end is good in itself."""

    name: str
    title: str
    kind: Kind = "duration"
    better: Literal["less", "more"] | None = "less"


WAITS = (
    Measure(name="wait_s_mean", title="Wait, mean"),
    Measure(name="wait_s_p50", title="Wait, median"),
    Measure(name="wait_s_p95", title="Wait, p95"),
    Measure(name="wait_s_p99", title="Wait, p99"),
)
JCTS = (
    Measure(name="jct_s_mean", title="JCT, mean"),
    Measure(name="jct_s_p50", title="JCT, median"),
    Measure(name="jct_s_p99", title="JCT, p99"),
)
PREEMPTIONS = Measure(name="preemptions", title="Preemptions", kind="count")
_VIOLATIONS = (
    Measure(name="slo_violation_rate", title="Deadlines missed", kind="share"),
    Measure(name="slo_violation_rate_weighted", title="Value lost by lateness", kind="share"),
    Measure(name="tardiness_s_mean", title="Tardiness, mean"),
    Measure(name="tardiness_s_p95", title="Tardiness, p95"),
)
_FIRST_STARTS = (
    Measure(name="first_queue_s_mean", title="To the first start, mean"),
    Measure(name="first_queue_s_p50", title="To the first start, median"),
)
_QUEUES = (
    Measure(name="queue_s_mean", title="Queue, mean"),
    Measure(name="queue_s_p50", title="Queue, median"),
)
PREEMPTIONS_A_JOB = Measure(name="preemptions_per_job", title="Preemptions a job", kind="factor")
RESIZES_A_JOB = Measure(name="resizes_per_job", title="Resizes a job", kind="factor", better=None)
DEADLINES = (
    *_VIOLATIONS,
    Measure(name="tardiness_s_sum", title="Tardiness, sum"),
    Measure(name="promise_kept_rate", title="Promises kept", kind="share", better="more"),
    PREEMPTIONS_A_JOB,
    *_FIRST_STARTS,
    Measure(name="solves", title="Programs solved", kind="count", better=None),
    Measure(name="solves_limited", title="… ended at their limit", kind="count", better=None),
    Measure(name="solves_failed", title="… without a plan", kind="count", better=None),
    Measure(name="solver_gap_max", title="Largest gap to the bound", kind="share", better=None),
)
GROUP_TITLES = {
    "strict": "Strict jobs",
    "soft": "Soft jobs",
    "best": "Best effort",
    "met": "Jobs that met their first deadline",
    "missed": "Jobs that missed their first deadline",
    "promised": "Jobs that were promised a deadline",
    "refused": "Jobs that were refused a promise",
}
_OF_GROUP = (
    Measure(name="jobs", title="Jobs", kind="count", better=None),
    *_VIOLATIONS,
    *JCTS[:2],
    *_QUEUES,
    *_FIRST_STARTS,
    PREEMPTIONS_A_JOB,
    RESIZES_A_JOB,
)
OTHERS = (
    *_QUEUES,
    Measure(name="slowdown_mean", title="Slowdown, mean", kind="factor"),
    PREEMPTIONS,
    Measure(name="gpu_utilisation", title="GPU utilisation", kind="share", better=None),
    Measure(name="busy_share", title="… while jobs arrive", kind="share", better=None),
    Measure(name="makespan_s", title="Makespan"),
    Measure(name="rho_le_1_share", title="Jobs with ρ ≤ 1", kind="share", better="more"),
    Measure(name="rho_le_1_1_share", title="Jobs with ρ ≤ 1.1", kind="share", better="more"),
    Measure(name="rho_p95", title="ρ, p95", kind="factor"),
    Measure(name="rho_max", title="ρ, maximum", kind="factor"),
    Measure(name="cpu_utilisation", title="CPU utilisation", kind="share", better=None),
    Measure(name="memory_utilisation", title="Memory utilisation", kind="share", better=None),
    RESIZES_A_JOB,
    Measure(name="finished", title="Jobs finished", kind="count", better="more"),
    Measure(name="rejected", title="Jobs rejected", kind="count"),
)


def of_group(group: str) -> list[Measure]:
    """Return what is told of one group of jobs, see `simulate.deadlines`."""
    return [replace(one, name=f"{one.name}_{group}") for one in _OF_GROUP]


def scroller(table: Html, name: str) -> Html:
    """Return a table that scrolls inside its own box where the window is narrow."""
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=name)


def table(
    head: Sequence[Html], rows: Sequence[Sequence[Html]], caption: str, class_: str = "", style: str = ""
) -> Html:
    """Return a table of finished cells in its scroll box."""
    body = join(*(tag("tr", *row) for row in rows))
    made = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *head)),
        tag("tbody", body),
        class_=class_ or None,
        style=style or None,
    )
    return scroller(made, caption)


def measure_table(
    heads: Sequence[Html], rows: Sequence[tuple[Html, Sequence[Html]]], caption: str, corner: str
) -> Html:
    """Return a table with a column a line, all of one width, and a row a measure or segment."""
    head = [tag("th", corner, scope="col")] + [tag("th", one, scope="col", class_="run") for one in heads]
    made = [[tag("th", first, scope="row"), *rest] for first, rest in rows]
    return table(head, made, caption, "columns", f"min-width:{160 + 128 * len(heads)}px")


def plain_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    caption: str,
    numeric: Collection[int] = (),
    narrow: bool = False,
) -> Html:
    """Return a table of text: the first column heads its row, `numeric` ones are set to the right."""
    classes = ["num" if column in numeric else None for column in range(len(titles))]
    head = [tag("th", title, scope="col", class_=one) for title, one in zip(titles, classes, strict=True)]
    made = [
        [
            tag("th", row[0], scope="row"),
            *(tag("td", cell, class_=one) for cell, one in zip(row[1:], classes[1:], strict=True)),
        ]
        for row in rows
    ]
    return table(head, made, caption, "plain narrow" if narrow else "plain")


def name_head(index: int, name: str, note: str = "") -> Html:
    """Return the head of a line's column or row: its colour, its name, what it means."""
    about = tag("small", note) if note else Html("")
    return join(swatch(index), tag("span", breakable(name), class_="name"), about)


def swatch(index: int) -> Html:
    """Return the sample of a line's colour and dash."""
    return tag("i", class_=f"swatch tone{index % 7} dash{index // 7 % 3}", aria_hidden="true")


def cells(
    measure: Measure, values: Sequence[float | int | None], spreads: Sequence[Spread] = ()
) -> list[Html]:
    """Return the cells of one measure, one a line; the ratio is to the first line."""
    unit = numbers.common_unit(values) if measure.kind == "duration" else None
    ranges = [one.get(measure.name) for one in spreads] or [None] * len(values)
    winners = best(measure, values, ranges, unit)
    ratios = _ratios(measure, values)
    made = []
    for index, (value, around) in enumerate(zip(values, ranges, strict=True)):
        parts = [tag("b", write(measure.kind, value, unit))]
        if index in winners:
            parts.append(tag("span", "best", class_="best-tag"))
        if ratios:
            parts.append(tag("small", ratios[index]))
        if around and (between := _range(measure.kind, around, unit)):
            parts.append(tag("small", between, class_="range"))
        made.append(
            tag(
                "td",
                *parts,
                class_="best" if index in winners else None,
                data_metric=measure.name,
                data_value="" if value is None else repr(value),
            )
        )
    return made


def _ratios(measure: Measure, values: Sequence[float | int | None]) -> list[str]:
    """Return the ratios to the first value, or none at all where they would say nothing."""
    if measure.better is None or measure.kind == "share" or not values[0] or len(set(values)) < 2:
        return []
    return ["base", *(numbers.ratio(value, values[0]) or "\u00a0" for value in values[1:])]


def best(
    measure: Measure,
    values: Sequence[float | int | None],
    ranges: Sequence[Mapping[str, float] | None] = (),
    unit: numbers.Unit | None = None,
) -> set[int]:
    """Return which lines are best, or none: if all read the same, or another's spread reaches the best one's.

    What reads the same is equally good: a reader could not tell why one of them should be marked.
    """
    known = [(value, index) for index, value in enumerate(values) if value is not None]
    if measure.better is None or len({value for value, _ in known}) < 2:
        return set()
    sign = 1 if measure.better == "less" else -1
    top, first = min((sign * value, index) for value, index in known)
    shown = write(measure.kind, sign * top, unit)
    winners = {index for value, index in known if write(measure.kind, value, unit) == shown}
    if len(winners) == len(known):
        return set()
    lead = ranges[first] if ranges else None
    others = [one for index, one in enumerate(ranges) if index not in winners and one]
    near, far = ("max", "min") if measure.better == "less" else ("min", "max")
    if lead and any(sign * one[far] <= sign * lead[near] for one in others):
        return set()
    return winners


def write(kind: Kind, value: float | int | None, unit: numbers.Unit | None = None) -> str:
    """Return a value of a measure as text."""
    if value is None:
        return numbers.NOTHING
    match kind:
        case "duration":
            return numbers.duration(value, unit)
        case "count":
            return numbers.count(value)
        case "share":
            return numbers.percent(value)
        case "factor":
            return numbers.figures(value)


def _range(kind: Kind, around: Mapping[str, float], unit: numbers.Unit | None) -> str:
    unit = unit or (numbers.fitting_unit(around["max"]) if kind == "duration" else None)
    low, high = write(kind, around["min"], unit), write(kind, around["max"], unit)
    return f"{low.split(chr(160))[0]} … {high}" if low != high else ""
