"""The table as text for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rows import Figure, Row

HEADINGS = ("", "work", "engine", "lowest..highest", "target", "met", "whole call", "reference", "ratio", "")
_LEFT = 2  # columns of text; the others are numbers, to the right


def text(machine: Mapping[str, Any], runs: int, rows: Sequence[Row], tiny: bool) -> str:
    """Return a head that says what was measured on what, then the rows."""
    head = (
        "{cpu}, {cores} cores, {memory_gib} GiB, load {load}; {system}; Python {python}\n"
        "core by {compiler}; commit {commit}\n"
    ).format(**machine)
    how = (
        f"medians of {runs} runs of CPU time unless wall is said; engine: run() alone, as in a search;\n"
        "whole call: from jobs in Python to results and every event, once from 200,000 jobs on;\n"
        "reference: the reference engine's run(), once; ratio: its time over the engine's\n"
    )
    if tiny:
        how += "TINY: 300 synthetic jobs in place of each trace; the targets mean nothing\n"
    lines = [HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    return f"{head}{how}\n" + "\n".join(_line(line, widths) for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    aligned = [
        cell.ljust(width) if column < _LEFT else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(aligned).rstrip()


def _cells(row: Row) -> tuple[str, ...]:
    figure, target = row.figure, ""
    if row.target:
        target = f"{'>=' if row.target.least else '<='} {number(row.target.bound)}"
    return (
        row.name,
        row.work,
        f"{number(figure.median)} {row.unit}".strip() if figure else "not available",
        f"{number(figure.low)}..{number(figure.high)}" if figure else "",
        target,
        {None: "", True: "yes", False: "NO"}[row.met],
        number(row.whole),
        number(row.reference),
        number(row.ratio),
        row.note,
    )


def number(value: float | None) -> str:
    """Return a number as people read it, with three digits at least; nothing for None."""
    if value is None:
        return ""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def jsonable(machine: Mapping[str, Any], runs: int, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the same as plain values, numbers unrounded."""
    return {"machine": dict(machine), "runs": runs, "rows": [_plain(row) for row in rows]}


def _plain(row: Row) -> dict[str, Any]:
    target = row.target and {"at_least" if row.target.least else "at_most": row.target.bound}
    return {
        "name": row.name,
        "work": row.work,
        "unit": row.unit,
        "engine": row.figure and _spread(row.figure),
        "target": target,
        "met": row.met,
        "whole_call": row.whole,
        "reference": row.reference,
        "ratio": row.ratio,
        "note": row.note,
    }


def _spread(figure: Figure) -> dict[str, float]:
    return {"median": figure.median, "lowest": figure.low, "highest": figure.high}
