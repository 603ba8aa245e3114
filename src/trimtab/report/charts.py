"""Charts as plain values for plotly.js: what is drawn, never how the page is coloured.

Colours are names, `@c1`, that the page's style sheet knows for light and dark; a line has one in all charts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from trimtab.report import numbers
from trimtab.report.markup import label
from trimtab.report.numbers import Unit

_DAY_TITLE = {"unifiedhovertitle": {"text": "day %{x:.2f}"}}
Trace = dict[str, Any]
Axis = dict[str, Any]
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?")
_GAP = 30  # pixels between two strips, where the name of the lower one stands
_TICKS_S = {
    1.0: "1 s",
    10.0: "10 s",
    60.0: "1 min",
    600.0: "10 min",
    3_600.0: "1 h",
    36_000.0: "10 h",
    259_200.0: "3 d",
    2_592_000.0: "30 d",
    31_536_000.0: "1 y",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One chart; its title and how to read it are text of the page."""

    title: str
    caption: str
    data: list[Trace]
    layout: dict[str, Any]
    height: int = 330
    wide: bool = False

    def jsonable(self, name: str) -> dict[str, Any]:
        """Return plain values for the page's script; `name` is the id of its place."""
        return {"id": name, "data": self.data, "layout": self.layout, "height": self.height}


@dataclass(frozen=True, slots=True)
class Clock:
    """The axis of trace time: dates where second 0 has one, days otherwise."""

    origin: datetime | None = None

    @classmethod
    def read(cls, first_day: str) -> Clock:
        """Return the clock of what people call second 0; text without a date gives days."""
        found = _DATE.search(first_day)
        try:
            return cls(datetime.fromisoformat(found[0]).replace(tzinfo=UTC) if found else None)
        except ValueError:
            return cls()

    def at(self, seconds: Sequence[float] | np.ndarray) -> list[float | None]:
        """Return places on the axis: milliseconds for dates, else days."""
        times = np.asarray(seconds, dtype=np.float64)
        if self.origin is None:
            return rounded(times / 86_400, 7)
        return [float(one) for one in np.round(times * 1000 + self.origin.timestamp() * 1000)]

    def axis(self, first_s: float, last_s: float) -> Axis:
        """Return the axis over a span."""
        span = {"range": self.at([first_s // 3_600 * 3_600, last_s]), "showgrid": True, "hoverformat": ".2f"}
        if self.origin is None:
            return {**span, "title": {"text": "days on the trace's clock"}, "nticks": 8, **_DAY_TITLE}
        return {**span, "type": "date", "hoverformat": "%a %Y-%m-%d %H:%M", "nticks": 8}

    def show(self, seconds: float) -> str:
        """Return one instant for people."""
        if self.origin is None:
            days, rest = divmod(seconds, 86_400)
            return f"day {days:.0f}, {rest // 3_600:02.0f}:{rest % 3_600 // 60:02.0f}"
        moment = datetime.fromtimestamp(self.origin.timestamp() + seconds, UTC)
        return moment.strftime("%Y-%m-%d %H:%M")


def colour(index: int) -> str:
    """Return the name of a line's colour."""
    return f"@c{index % 7}"


def dash(index: int) -> str:
    """Return a line's dash: it changes once all colours are used."""
    return ("solid", "dash", "dot")[index // 7 % 3]


def rounded(values: Iterable[float], figures: int = 5) -> list[float | None]:
    """Return values with few figures, for small pages; what is not a number is None, a gap."""
    return [float(f"{value:.{figures}g}") if math.isfinite(value) else None for value in values]


def curve(
    index: int, name: str, x: Sequence[float | None], y: Sequence[float | str | None], **more: Any
) -> Trace:
    """Return a line's curve."""
    style = {"color": colour(index), "dash": dash(index), "width": 2, **more.pop("line", {})}
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label(name),
        "meta": {"line": index},
        "x": list(x),
        "y": list(y),
        "line": style,
        **more,
    }


def bars(index: int, name: str, x: list[str], y: list[float | None], **more: Any) -> Trace:
    """Return a line's bars."""
    return {
        "type": "bar",
        "name": label(name),
        "meta": {"line": index},
        "x": x,
        "y": y,
        "marker": {"color": colour(index), "pattern": {"shape": ("", "/", ".")[index // 7 % 3]}},
        **more,
    }


def points(index: int, name: str, x: list[str], y: list[float | None]) -> Trace:
    """Return a line's points, beside those of the other lines."""
    symbol = ("circle", "diamond", "square")[index // 7 % 3]
    marker = {"color": colour(index), "size": 11, "symbol": symbol}
    mode = {
        "type": "scatter",
        "cliponaxis": False,
        "mode": "markers",
        "offsetgroup": str(index),
        "marker": marker,
    }
    return {**mode, "name": label(name), "meta": {"line": index}, "x": x, "y": y}


def log_time_axis(low_s: float, high_s: float, title: str, edge: float = 0.05) -> Axis:
    """Return a logarithmic axis of times with ticks people use; `edge` is what it goes beyond, in decades."""
    low_s = max((at for at in _TICKS_S if at <= low_s), default=1.0)
    ticks = [at for at in _TICKS_S if low_s <= at <= high_s * 1.01]
    return {
        "type": "log",
        "range": [math.log10(low_s) - edge / 5, math.log10(max(high_s, 10 * low_s)) + edge],
        "tickvals": ticks,
        "ticktext": [_TICKS_S[at] for at in ticks],
        "title": {"text": title},
    }


def log_axis(values: Sequence[float], title: str = "") -> Axis:
    """Return a logarithmic axis around positive values, ticks at powers of ten or at 1, 2, 5."""
    low, high = math.log10(min(values)), math.log10(max(values))
    edge = max(0.08 * (high - low), 0.05)
    steps = (1,) if high - low > 1.6 else (1, 2, 5)
    ticks = [k * 10.0**p for p in range(math.floor(low) - 1, math.ceil(high) + 1) for k in steps]
    ticks = [tick for tick in ticks if low - edge <= math.log10(tick) <= high + edge]
    if len(ticks) < 2:
        ticks = sorted({min(values), max(values)})
    axis: Axis = {"type": "log", "range": [low - edge, high + edge], "tickvals": ticks}
    return {**axis, "ticktext": [numbers.short(tick) for tick in ticks], "title": {"text": title}}


def unit_for(values: Iterable[float | None]) -> Unit:
    """Return the unit for a linear axis that ends at the largest value."""
    return numbers.fitting_unit(max((value for value in values if value is not None), default=0.0))


def note(text: str) -> dict[str, Any]:
    """Return a chart's vertical measure, written level above its axis."""
    return {
        "text": text,
        "showarrow": False,
        "xref": "paper",
        "yref": "paper",
        "x": 0,
        "y": 1,
        "xanchor": "left",
        "yanchor": "bottom",
        "yshift": 5,
        "font": {"size": 12.5, "color": "@muted"},
    }


def over_time(axis: Axis, measure: str, y: Axis, **more: Any) -> dict[str, Any]:
    """Return the layout of a chart over time, with one hover box for all lines."""
    return {
        "xaxis": axis,
        "yaxis": {"rangemode": "tozero", **y},
        "annotations": [note(measure)],
        "hovermode": "x unified",
        **more,
    }


@dataclass(frozen=True, slots=True)
class Strip:
    """One row of a stack of small charts that share their time axis."""

    index: int
    name: str
    traces: list[Trace]
    y: Axis
    shapes: tuple[dict[str, Any], ...] = ()


def stack(title: str, caption: str, strips: Sequence[Strip], axis: Axis, each: int = 105) -> Chart:
    """Return small charts above each other, each named in its line's colour."""
    inner = each * len(strips) + _GAP * (len(strips) - 1)
    height = inner + 26 + 44
    data: list[Trace] = []
    layout: dict[str, Any] = {"xaxis": {**axis, "anchor": f"y{len(strips)}" if len(strips) > 1 else "y"}}
    notes, shapes = [], []
    for row, strip in enumerate(strips):
        suffix = str(row + 1) if row else ""
        top = 1 - row * (each + _GAP) / inner
        domain = [max(0.0, top - each / inner), min(1.0, top)]
        layout[f"yaxis{suffix}"] = {"nticks": 4, **strip.y, "domain": domain}
        data += [{**trace, "yaxis": f"y{suffix}"} for trace in strip.traces]
        notes.append(
            {
                **note(label(strip.name)),
                "y": domain[1],
                "yshift": 3,
                "font": {"size": 12.5, "color": colour(strip.index)},
            }
        )
        shapes += [{**shape, "yref": f"y{suffix}"} for shape in strip.shapes]
    layout |= {"annotations": notes, "shapes": shapes, "hovermode": "closest"}
    return Chart(title=title, caption=caption, data=data, layout=layout, height=height, wide=True)
