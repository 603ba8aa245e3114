"""Output: tables for people, JSON for machines, progress on stderr, files whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from trimtab.control.journal import plain
from trimtab.errors import OutputError
from trimtab.simulate.deadlines import GROUPS
from trimtab.simulate.metrics import Metrics
from trimtab.timeline import COLUMNS, Timeline
from trimtab.traces.files import write
from trimtab.traces.trace import Trace

# As wide as the terminal; elsewhere 80 columns, or what COLUMNS says.
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

Spread = Mapping[str, Mapping[str, float]]

_NAME_WIDTH = 20  # longer names of runs do not head a column

Row = tuple[str, str, int]  # metric, what it is called, digits

_JCTS: tuple[Row, ...] = (("jct_s_mean", "mean JCT, s", 1), ("jct_s_p50", "median JCT, s", 1))
_QUEUES: tuple[Row, ...] = (("queue_s_mean", "mean queue, s", 1), ("queue_s_p50", "median queue, s", 1))
_FIRST_QUEUES: tuple[Row, ...] = (
    ("first_queue_s_mean", "mean to first start, s", 1),
    ("first_queue_s_p50", "median to first start, s", 1),
)
_VIOLATIONS: tuple[Row, ...] = (
    ("slo_violation_rate", "deadlines missed", 4),
    ("slo_violation_rate_weighted", "value lost by lateness", 4),
    ("tardiness_s_mean", "mean tardiness, s", 0),
    ("tardiness_s_p95", "p95 tardiness, s", 0),
)
_PREEMPTIONS_A_JOB: Row = ("preemptions_per_job", "preemptions a job", 2)
_RESIZES_A_JOB: Row = ("resizes_per_job", "resizes a job", 2)

_ROWS: tuple[Row, ...] = (
    ("wait_s_mean", "mean wait, s", 1),
    ("wait_s_p50", "median wait, s", 1),
    ("wait_s_p99", "p99 wait, s", 1),
    *_QUEUES,
    *_JCTS,
    ("jct_s_p99", "p99 JCT, s", 1),
    ("slowdown_mean", "mean slowdown", 3),
    ("preemptions", "preemptions", 0),
    ("gpu_utilisation", "GPU utilisation", 3),
    ("rho_le_1_share", "share with rho <= 1", 3),
    ("rho_le_1_1_share", "share with rho <= 1.1", 3),
    ("rho_p95", "p95 rho", 3),
    ("rho_max", "maximum rho", 1),
    ("cpu_utilisation", "CPU utilisation", 3),
    ("memory_utilisation", "memory utilisation", 3),
    _RESIZES_A_JOB,
    *_VIOLATIONS,
    ("tardiness_s_sum", "sum of tardiness, s", 0),
    ("promise_kept_rate", "promises kept", 4),
    _PREEMPTIONS_A_JOB,
    *_FIRST_QUEUES,
    ("solves", "programs solved", 0),
    ("solves_limited", "... ended at their limit", 0),
    ("solves_failed", "... without a plan", 0),
    ("solver_gap_max", "largest gap to the bound", 6),
    ("makespan_s", "makespan, s", 0),
    ("rejected", "rejected jobs", 0),
)
_OF_GROUP: tuple[Row, ...] = (
    ("jobs", "jobs", 0),
    *_VIOLATIONS,
    *_JCTS,
    *_QUEUES,
    *_FIRST_QUEUES,
    _PREEMPTIONS_A_JOB,
    _RESIZES_A_JOB,
)


def print_json(value: Any) -> None:
    """Print one JSON object on stdout; numbers that are none become null."""
    print(json_text(value))


def json_text(value: Any) -> str:
    """Return one JSON object; numbers that are none become null."""
    return json.dumps(plain(value), indent=1, allow_nan=False)


def notice(text: str, quiet: bool) -> None:
    """Say something on stderr."""
    if not quiet:
        err.print(text, soft_wrap=True, markup=False)


def notice_trace(trace: Trace, quiet: bool) -> None:
    """Say what became of the trace's rows, where some were left out."""
    for item in trace.provenance.left_out:
        notice(f"left out {item.count} rows: {item.reason} (e.g. {item.example})", quiet)
    if trace.unrun.height:
        label = trace.unrun["job_id"][0]
        count = trace.unrun.height
        notice(f"{count} arrivals have no known run and are not simulated (e.g. job {label})", quiet)
    for note in trace.provenance.notes:
        notice(f"note: {note}", quiet)


def notice_rejected(timeline: Timeline, quiet: bool) -> None:
    """Say which jobs could never run, by reason."""
    found: dict[str, list[str]] = {}
    for event in timeline.events:
        if event.kind == "reject" and event.job is not None:
            found.setdefault(event.detail, []).append(timeline.labels[event.job])
    for reason, labels in found.items():
        notice(f"rejected {len(labels)} jobs: {reason} (e.g. {labels[0]})", quiet)


def print_metrics(title: str, columns: Sequence[tuple[str, Metrics]], spreads: Sequence[Spread]) -> None:
    """Print metrics side by side, as many runs at a time as fit; ratios are to the first run.

    Where jobs have deadlines, those of each group of jobs follow: in a column a group for one run, in a table
    a group for several. Long names of runs become letters, with the names below.
    """
    names = [name for name, _ in columns]
    short = len(set(names)) == len(names) and max(map(len, names)) <= _NAME_WIDTH
    heads = names if short else [_letter(place) for place in range(len(names))]
    runs = [metrics for _, metrics in columns]
    groups = [group for group in GROUPS if any(f"jobs_{group}" in metrics for metrics in runs)]
    out.print(title, markup=False)
    _print_cells(_ROWS, heads, _side_by_side(_ROWS, runs, spreads))
    if len(runs) == 1 and groups:
        cells = [_cells(_rows_of(group), runs[0], runs[0], spreads[0]) for group in groups]
        _print_cells(_OF_GROUP, groups, cells)
    for group in groups if len(runs) > 1 else ():
        out.print(f"jobs of group {group}", markup=False)
        _print_cells(_OF_GROUP, heads, _side_by_side(_rows_of(group), runs, spreads))
    if not short:
        for head, name in zip(heads, names, strict=True):
            out.print(f"{head}: {name}", soft_wrap=True, markup=False)


def _letter(place: int) -> str:
    return chr(ord("A") + place) if place < 26 else f"#{place + 1}"


def _rows_of(group: str) -> list[Row]:
    return [(f"{metric}_{group}", label, digits) for metric, label, digits in _OF_GROUP]


def _print_cells(rows: Sequence[Row], heads: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """Print columns of cells in tables that fit the width, without rows that say nothing."""
    shown = [row for row in range(len(rows)) if any(column[row] != "-" for column in cells)]
    for places in _that_fit(rows, heads, cells):
        table = Table()
        table.add_column("")
        for place in places:
            table.add_column(Text(heads[place]), justify="right")
        for row in shown:
            table.add_row(rows[row][1], *(Text(cells[place][row]) for place in places))
        out.print(table)


def _side_by_side(rows: Sequence[Row], runs: Sequence[Metrics], spreads: Sequence[Spread]) -> list[list[str]]:
    return [_cells(rows, runs[0], metrics, spread) for metrics, spread in zip(runs, spreads, strict=True)]


def _cells(rows: Sequence[Row], base: Metrics, metrics: Metrics, spread: Spread) -> list[str]:
    """Return one run's column: value, ratio to the first run, and lowest and highest over the tie orders."""
    cells = []
    for key, _, digits in rows:
        value, first = metrics.get(key), base.get(key)
        cell = number(value, digits)
        if metrics is not base and value is not None and first:
            cell += f" ({value / first:.2f}x)"
        if key in spread:
            mean, low, high = (number(spread[key][part], digits) for part in ("mean", "min", "max"))
            cell += f"\n~{mean} [{low} .. {high}]"
        cells.append(cell)
    return cells


def _that_fit(
    rows: Sequence[Row], heads: Sequence[str], cells: Sequence[Sequence[str]]
) -> Iterator[list[int]]:
    """Split columns into groups that fit the width beside the metrics' names; at least one each."""
    room = out.width - max(len(label) for _, label, _ in rows) - 4
    group: list[int] = []
    used = 0
    for place, (head, column) in enumerate(zip(heads, cells, strict=True)):
        width = 3 + max(len(line) for line in (head, *(line for cell in column for line in cell.split("\n"))))
        if group and used + width > room:
            yield group
            group, used = [], 0
        group.append(place)
        used += width
    yield group


def print_entry(head: str, *lines: str) -> None:
    """Print a heading and what belongs to it, indented: what is too wordy for a table."""
    out.print(head, style="bold", markup=False)
    for line in lines:
        out.print(Padding(Text(line), (0, 0, 0, 4)))


def number(value: float | None, digits: int) -> str:
    """Return a number with thousands separators, `-` where there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    write(path, text.encode())


def check_writable(paths: Sequence[Path | None]) -> None:
    """Refuse before long work what could not be written after it.

    Raises:
        OutputError: If a folder does not exist or may not be written, a path is one, or two are the same.
    """
    wanted = [path for path in paths if path is not None]
    for path in wanted:
        if path.is_dir():
            raise OutputError(f"{path}: is a folder, not a file; nothing was run.")
        if not path.parent.is_dir():
            raise OutputError(f"{path}: there is no folder {path.parent}; nothing was run.")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise OutputError(f"{path}: may not be written; nothing was run.")
    files = [path.resolve() for path in wanted if path.is_file() or not path.exists()]
    if len(set(files)) < len(files):
        raise OutputError(f"{wanted[0]}: is asked for two different results; nothing was run.")


def write_jobs(path: Path, runs: Sequence[tuple[str, pl.DataFrame]], column: str | None = None) -> None:
    """Write one line a job: the contract's columns first, then what else is known.

    Several runs stand one below the other; `column` is the last one's heading and says which is which.
    """
    tables = [_jobs_shown(jobs, name, column) for name, jobs in runs]
    write_text(path, pl.concat(tables, how="diagonal").write_csv(float_precision=3))


def _jobs_shown(jobs: pl.DataFrame, name: str, column: str | None) -> pl.DataFrame:
    first = ["job_id", "submit_s", "start_s", "finish_s", "gpus", "wait_s", "jct_s", "preemptions"]
    rest = ["queue_s", "deadline_s", "deadline_met", "deadline_value", "promised_s", "promise_kept"]
    rest += ["model", "vc", "service_class"]
    known = [one for one in rest if one in jobs.columns and jobs[one].null_count() < jobs.height]
    shown = jobs.select(first + known)
    return shown if column is None else shown.with_columns(pl.lit(name).alias(column))


def write_timeline(path: Path, runs: Sequence[tuple[str, Timeline]], column: str | None = None) -> None:
    """Write every event, in order; several runs as in `write_jobs`."""
    if column is None:
        write_text(path, "".join(timeline.csv() for _, timeline in runs))
        return
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow((*COLUMNS, column))
    for name, timeline in runs:
        writer.writerows((*row, name) for row in timeline.rows())
    write_text(path, written.getvalue())


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str, float], None]]:
    """Give a function that shows how far something is: a bar on a terminal, plain lines elsewhere."""
    if quiet:
        yield lambda text, share: None
        return
    if err.is_terminal:
        with Progress(
            TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=err, transient=True
        ) as bar:
            tasks: dict[str, Any] = {}

            def advance(text: str, share: float) -> None:
                if text not in tasks:
                    tasks[text] = bar.add_task(text, total=1.0)
                bar.update(tasks[text], completed=share)

            yield advance
        return
    said: dict[str, int] = {}

    def say(text: str, share: float) -> None:
        tenth = int(share * 10)
        if said.get(text) != tenth:
            said[text] = tenth
            err.print(f"{text}: {tenth * 10} %", soft_wrap=True, markup=False)

    yield say
