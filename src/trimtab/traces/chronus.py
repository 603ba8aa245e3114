"""Chronus (Gao et al., SoCC'21): Philly-derived jobs with deadlines. Times are minutes there.

Columns: `job_id, user, num_gpu, submit_time, iterations, model_name, duration, interval,
expect_time_list, expect_value_list, best_effort, job_type`. Deadlines count from submission; several are
joined by `-`. With best_effort = 1 the list repeats the submit time and is no deadline.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from trimtab.traces.columns import (
    Sift,
    finish,
    fraction_note,
    mapping_of,
    number,
    number_ms,
    read_table,
    start_sift,
    whole,
)
from trimtab.traces.files import read
from trimtab.traces.trace import Trace

MINUTE_MS = 60_000
CLASSES = ("strict", "soft", "best")
_DEADLINES_MS = pl.col("deadline_ms").str.split("/").cast(pl.List(pl.Int64))
# Whole numbers joined by "/", at most nine digits each.
_VALUES = r"^\d{1,9}(\.0*)?(/\d{1,9}(\.0*)?)*$"
_NEEDED = {
    "job_id": "job_id",
    "submit_ms": "submit_time",
    "duration_ms": "duration",
    "gpus": "num_gpu",
    "deadline_ms": "expect_time_list",
}
_EXTRA = {
    "vc": "user",
    "model": "model_name",
    "deadline_value": "expect_value_list",
    "service_class": "job_type",
}


def load(path: str | Path, *, zone: str | None = None) -> Trace:
    """Load a Chronus trace; it has offsets, no dates, so `zone` changes nothing.

    Raises:
        InputError: If the file is no Chronus trace or no job is left.
    """
    del zone
    source = f"chronus:{path}"
    table = read_table(read(path), source)
    names = {ours: table.name(theirs) for ours, theirs in _NEEDED.items()}
    best = number(table.get("best_effort")).fill_null(0) == 1
    rows = {
        "job_id": table.get("job_id"),
        "submit_ms": number_ms(table.get("submit_time"), MINUTE_MS),
        "duration_ms": number_ms(table.get("duration"), MINUTE_MS),
        "gpus": whole(table.get("num_gpu")),
        "asked": number(table.get("num_gpu")),
        "vc": table.get("user"),
        "model": table.get("model_name"),
        "deadlines": pl.when(~best).then(table.get("expect_time_list")),
        "deadline_value": pl.when(~best).then(table.get("expect_value_list").str.replace_all("-", "/")),
        "service_class": table.get("job_type"),
    }
    sift = start_sift(table, rows)
    sift.leave_out("no run time, or not a number", pl.col("duration_ms").is_null())
    sift.rows = sift.rows.with_columns(deadline_ms=joined_ms(pl.col("deadlines"), "-", MINUTE_MS))
    leave_out_impossible(sift, "deadlines")
    names |= {ours: table.name(theirs) for ours, theirs in _EXTRA.items() if table.has(theirs)}
    notes = [
        "Times are minutes in the source; deadlines count from submission.",
        "Jobs with best_effort = 1 have no deadline.",
    ]
    notes += [*fraction_note(sift, "asked"), *forget_unclear_wishes(sift)]
    return finish(sift, source, table.sha256, mapping=mapping_of(names), notes=notes)


def joined_ms(text: pl.Expr, separator: str, unit_ms: float) -> pl.Expr:
    """Parse times joined by `separator` to milliseconds joined by "/"; null where one is not a number."""
    items = text.str.split(separator).list.eval(number_ms(pl.element().str.strip_chars(), unit_ms))
    bad = items.list.eval(pl.element().is_null()).list.any()
    joined = items.list.eval(pl.element().cast(pl.String)).list.join("/")
    return pl.when(text.is_not_null() & ~bad).then(joined)


def leave_out_impossible(sift: Sift, written: str) -> None:
    """Leave out the jobs whose deadlines, as written in a column, are none."""
    rules = {
        "deadline is not a number": pl.col(written).is_not_null() & pl.col("deadline_ms").is_null(),
        "deadline is before submission": _DEADLINES_MS.list.min() < 0,
    }
    for reason, broken in rules.items():
        sift.leave_out(reason, broken)


def forget_unclear_wishes(sift: Sift) -> list[str]:
    """Take classes of service and values of deadlines that mean nothing as not told, and count them."""
    rules: dict[str, tuple[pl.Expr, str]] = {
        "service_class": (pl.col("service_class").is_in(CLASSES), f"is none of {', '.join(CLASSES)}")
    }
    if "deadline_ms" in sift.rows.columns:
        values = pl.col("deadline_value").str.split("/")
        many = values.list.len() == pl.col("deadline_ms").str.split("/").list.len()
        whole = pl.col("deadline_value").str.contains(_VALUES)
        rules["deadline_value"] = many & whole, "is not a whole number for each deadline"
    notes = []
    for name, (fine, what) in rules.items():
        if name not in sift.rows.columns:
            continue
        wrong = sift.rows.filter(~fine).height
        if wrong:
            sift.rows = sift.rows.with_columns(pl.when(fine).then(pl.col(name)).alias(name))
            notes.append(f"{name} {what} in {wrong:,} rows: taken as not told.")
    return notes + _wishes_taken_otherwise(sift)


def _wishes_taken_otherwise(sift: Sift) -> list[str]:
    """Say which classes of service and deadlines contradict each other, and what such jobs are taken for."""
    if "deadline_ms" not in sift.rows.columns:
        return []
    told = sift.rows.with_columns(
        () if "service_class" in sift.rows.columns else pl.lit(None, pl.String).alias("service_class")
    )
    kind, deadlines = pl.col("service_class"), pl.col("deadline_ms")
    rules = {
        "say strict or soft and have no deadline: taken as best effort": (
            kind.is_in(["strict", "soft"]) & deadlines.is_null()
        ),
        "say best and have a deadline: taken as best effort": (kind == "best") & deadlines.is_not_null(),
        "say strict and have several deadlines: taken as soft": (
            (kind == "strict") & deadlines.str.contains("/", literal=True)
        ),
        "have deadlines out of order: put in order, each with its value": (
            _DEADLINES_MS.list.diff().list.min() < 0
        ),
    }
    counts = {what: told.filter(broken).height for what, broken in rules.items()}
    return [f"{count:,} rows {what}." for what, count in counts.items() if count]
