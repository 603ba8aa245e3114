"""Numbers as people read them: sensible units, three figures, a true minus sign."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

NOTHING = "–"
_NBSP = "\u00a0"


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of time."""

    name: str
    seconds: float


SECONDS, MINUTES, HOURS, DAYS = Unit("s", 1), Unit("min", 60), Unit("h", 3_600), Unit("d", 86_400)


def fitting_unit(seconds: float) -> Unit:
    """Return the unit a time is best said in."""
    size = abs(seconds)
    if size < 90:
        return SECONDS
    if size < 90 * 60:
        return MINUTES
    return HOURS if size < 72 * 3_600 else DAYS


def common_unit(values: Iterable[float | None]) -> Unit | None:
    """Return one unit for times shown side by side, or None where each needs its own."""
    sizes = [abs(value) for value in values if value]
    if not sizes:
        return SECONDS
    unit = fitting_unit(max(sizes))
    return unit if min(sizes) >= 0.5 * unit.seconds else None


def duration(seconds: float | None, unit: Unit | None = None) -> str:
    """Return a time as `12.3 min`; in its own best unit unless one is given."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    unit = (unit if seconds else None) or fitting_unit(seconds)
    return f"{figures(seconds / unit.seconds)}{_NBSP}{unit.name}"


def figures(value: float) -> str:
    """Return a number with about three figures."""
    size = abs(value)
    if size == 0:
        return "0"
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.0995 else 3
    text = f"{value:,.{digits}f}"
    return text.replace("-", "−")


def short(value: float) -> str:
    """Return a round number for an axis: 500, 10k, 1M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def count(value: float | None) -> str:
    """Return a whole number with separators."""
    return NOTHING if value is None else f"{value:,.0f}".replace("-", "−")


def many(value: int, singular: str, plural: str = "") -> str:
    """Return `1 job`, `2 jobs`."""
    return f"{count(value)}{_NBSP}{singular if value == 1 else plural or singular + 's'}"


def percent(share: float | None) -> str:
    """Return a share of 1 as `12.3 %`."""
    return NOTHING if share is None or not math.isfinite(share) else f"{figures(100 * share)}{_NBSP}%"


def ratio(value: float | None, base: float | None) -> str:
    """Return `0.45×`, or nothing where there is no ratio."""
    if value is None or not base or not math.isfinite(value / base):
        return ""
    return f"{figures(value / base)}×"


def change(before: float, after: float) -> str:
    """Return a relative change as `−55 %`."""
    if not before:
        return "no base"
    percents = 100 * (after / before - 1)
    shown = f"{abs(percents):.1f}" if abs(percents) < 9.95 else f"{abs(percents):,.0f}"
    sign = "−" if percents < 0 else "+"
    return f"{sign}{shown}{_NBSP}%" if float(shown.replace(",", "")) else f"±0{_NBSP}%"
