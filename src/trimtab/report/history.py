"""What the tuner did over time: the gains it predicted, and the settings it chose."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from trimtab.errors import TrimtabError
from trimtab.knobs import Knob, Value, write
from trimtab.policies.catalog import find_policy
from trimtab.report import charts, numbers
from trimtab.report.charts import Axis, Chart, Clock, Strip, Trace
from trimtab.report.lines import Evaluation, Line
from trimtab.report.markup import Html, label, tag

_BEYOND = 4.0  # an infinite value is drawn this far over the largest finite one
_STEPS_MAX = 1_000  # of one knob's course
Course = list[tuple[float, Value]]


def gains(tuned: Sequence[tuple[int, Line]], clock: Clock, axis: Axis, threshold: float | None) -> Chart:
    """Return the gain each round predicted for the best setting it found."""
    known = [one.gain for _, line in tuned for one in line.rounds if math.isfinite(one.gain) and one.gain > 0]
    y = _gain_axis([1.0, *known, threshold or 1.0])
    shapes = [_level(1.0, "@edge")] + ([_level(threshold, "@muted", "dot")] if threshold else [])
    strips = [
        Strip(
            index,
            _did(line),
            [_marks(index, line, clock)],
            y,
            tuple(shapes),
        )
        for index, line in tuned
    ]
    line_at = (
        f" The dotted line is the threshold, {threshold:g}: under it nothing changes." if threshold else ""
    )
    return charts.stack(
        "Gain predicted in each round",
        "How many times better the best setting found was than the running one, on that round's forecast."
        f"{line_at}",
        strips,
        axis,
        each=120,
    )


def _did(line: Line) -> str:
    changes, rounds = numbers.many(line.switches, "change"), numbers.many(len(line.rounds), "round")
    return f"{line.name}: {changes} in {rounds}"


def _gain_axis(values: Sequence[float]) -> Axis:
    low, high = min(values), max(values)
    if high > 5 * low:
        return charts.log_axis(values)
    edge = 0.1 * (high - low) or 0.2
    return {"range": [low - edge, high + edge]}


def _marks(index: int, line: Line, clock: Clock) -> Trace:
    switched = [one.switched for one in line.rounds]
    tone = charts.colour(index)
    return {
        "type": "scatter",
        "mode": "markers",
        "cliponaxis": False,
        "name": label(line.name),
        "meta": {"line": index},
        "x": clock.at([one.time_s for one in line.rounds]),
        "y": charts.rounded(one.gain if one.gain > 0 else math.nan for one in line.rounds),
        "customdata": [label(one.verdict.reason, 90) for one in line.rounds],
        "marker": {
            "size": [8 if one else 5 for one in switched],
            "color": [tone if one else "@paper" for one in switched],
            "line": {"color": tone, "width": 1.2},
            "opacity": 1,
        },
        "hovertemplate": "%{x}<br>gain %{y:.3f}<br>%{customdata}<extra></extra>",
    }


def _level(at: float, tone: str, dash: str = "solid") -> dict[str, Any]:
    return {
        "type": "line",
        "layer": "below",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": at,
        "y1": at,
        "line": {"color": tone, "width": 1.2, "dash": dash},
    }


def knobs(evaluation: Evaluation, clock: Clock, axis: Axis) -> list[Chart]:
    """Return the course of every knob that some line changed, one chart a knob, one strip a tuned line."""
    return [_knob_chart(evaluation, name, clock, axis) for name in _moved(evaluation)]


def unchanged(evaluation: Evaluation) -> Html:
    """Return which knobs nobody changed, with their values."""
    moved = set(_moved(evaluation))
    still = [
        f"{name} = {write(value)}"
        for name, value in evaluation.lines[0].start_knobs.items()
        if name not in moved
    ]
    return (
        tag("p", f"The same in every line, all the time: {', '.join(still)}.", class_="lead")
        if still
        else Html("")
    )


def _moved(evaluation: Evaluation) -> list[str]:
    """Return the knobs with more than one value over all lines and rounds."""
    found: dict[str, set[Value]] = {}
    for line in evaluation.lines:
        for setting in (line.start_knobs, *(one.knobs_after for one in line.rounds)):
            for name, value in setting.items():
                found.setdefault(name, set()).add(value)
    return [name for name, values in found.items() if len(values) > 1]


def _course(line: Line, name: str, last_s: float) -> Course:
    """Return when a knob took which value, from its line's first round to the end."""
    first_s = line.rounds[0].time_s if line.rounds else 0.0
    found: Course = [(first_s, line.start_knobs[name])] if name in line.start_knobs else []
    for one in line.rounds:
        if name in one.knobs_after and (not found or one.knobs_after[name] != found[-1][1]):
            found.append((one.time_s, one.knobs_after[name]))
    found = found[:_STEPS_MAX]
    return [*found, (max(last_s, found[-1][0]), found[-1][1])] if found else []


def _knob_chart(evaluation: Evaluation, name: str, clock: Clock, axis: Axis) -> Chart:
    last_s = max((one.time_s for line in evaluation.lines for one in line.rounds), default=0.0)
    courses = [
        (index, line.name, _course(line, name, last_s + 3_600))
        for index, line in enumerate(evaluation.lines)
        if line.rounds
    ]
    values = [value for _, _, course in courses for _, value in course]
    y = _axis(values)
    strips = [Strip(index, who, _steps(index, who, course, clock, y), y) for index, who, course in courses]
    knob = _declared(evaluation.policy, name)
    about = f"{knob.trades[0].upper()}{knob.trades[1:]}. Takes effect: {knob.takes_effect}." if knob else ""
    unit = f", {knob.unit}" if knob and knob.unit else ""
    return charts.stack(f"Knob {name}{unit}", f"{about}{_others(evaluation, name)}", strips, axis, each=80)


def _others(evaluation: Evaluation, name: str) -> str:
    fixed = [
        f"{line.name} {write(line.start_knobs[name])}"
        for line in evaluation.lines
        if not line.rounds and name in line.start_knobs
    ]
    return f" Held all the time: {', '.join(fixed)}." if fixed else ""


def _declared(policy: str, name: str) -> Knob | None:
    try:
        return find_policy(policy).space.by_name.get(name)
    except TrimtabError:  # a user's file that has moved since: the page does without the knob's text
        return None


def _axis(values: Sequence[Value]) -> Axis:
    """Return the axis for a knob: names for choices, powers of ten for wide ranges, else plain numbers."""
    flat = [float(one) for value in values for one in _numbers(value)]
    if not flat:
        names = list(dict.fromkeys(write(value) for value in values))
        return {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": names,
            "range": [-0.5, len(names) - 0.5],
        }
    finite = [one for one in flat if math.isfinite(one)]
    top = max(finite, default=1.0)
    if any(map(math.isinf, flat)):
        return _axis_with_infinity(finite or [1.0], top)
    if min(flat) > 0 and top / min(flat) >= 10:
        return charts.log_axis(flat)
    edge = 0.12 * (top - min(flat)) or 1.0
    axis: Axis = {"range": [min(flat) - edge, top + edge]}
    return {**axis, "tickvals": sorted(set(flat))} if len(set(flat)) <= 4 else axis


def _axis_with_infinity(finite: Sequence[float], top: float) -> Axis:
    ticks = sorted({min(finite), top})
    low, high = min(0.0, *finite), _BEYOND * max(top, 0.25)
    return {
        "range": [low, 1.1 * high],
        "tickvals": [*ticks, high],
        "ticktext": [*(f"{one:g}" for one in ticks), "inf"],
    }


def _numbers(value: Value) -> tuple[float, ...]:
    if isinstance(value, tuple):
        return value
    return (value,) if isinstance(value, int | float) and not isinstance(value, bool) else ()


def _steps(index: int, who: str, course: Course, clock: Clock, y: Axis) -> list[Trace]:
    """Return the step curves of one strip; a list has one for each place in it."""
    places = max((len(value) if isinstance(value, tuple) else 1 for _, value in course), default=0)
    ends = [(at, then, value) for (at, value), (then, _) in pairwise(course)]
    times = clock.at([at for start, end, _ in ends for at in (start, end)])
    return [
        charts.curve(
            index,
            who,
            times,
            [_drawn(value, place, y) for _, _, value in ends for _ in range(2)],
            line={"width": 2, "dash": ("solid", "dot", "dash")[place % 3]},
            customdata=[label(write(value)) for _, _, value in ends for _ in range(2)],
            hovertemplate="%{x}<br>%{customdata}<extra></extra>",
        )
        for place in range(places)
    ]


def _drawn(value: Value, place: int, y: Axis) -> float | str | None:
    if y.get("type") == "category":
        return write(value)
    items = _numbers(value)
    if place >= len(items):
        return None
    return float(y["tickvals"][-1]) if math.isinf(items[place]) else float(items[place])
