"""Output: tables for people, JSON for machines, progress on stderr, files whole or not at all."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from trimtab.cli.options import printable
from trimtab.errors import OutputError
from trimtab.simulate.metrics import Metrics
from trimtab.timeline import Timeline
from trimtab.traces.files import write
from trimtab.traces.trace import Trace

out = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
err = Console(stderr=True, highlight=False)

_ROWS: tuple[tuple[str, str, int], ...] = (
    ("wait_s_mean", "mean wait, s", 1),
    ("wait_s_p50", "median wait, s", 1),
    ("wait_s_p99", "p99 wait, s", 1),
    ("queue_s_mean", "mean queue, s", 1),
    ("jct_s_mean", "mean JCT, s", 1),
    ("jct_s_p99", "p99 JCT, s", 1),
    ("slowdown_mean", "mean slowdown", 3),
    ("preemptions", "preemptions", 0),
    ("gpu_utilisation", "GPU utilisation", 3),
    ("rho_le_1_share", "share with rho <= 1", 3),
    ("slo_violation_rate", "deadlines missed", 4),
    ("makespan_s", "makespan, s", 0),
    ("rejected", "rejected jobs", 0),
)


def print_json(value: Any) -> None:
    """Print one JSON object on stdout; numbers that are none become null."""
    print(json.dumps(printable(value), indent=1))


def notice(text: str, quiet: bool) -> None:
    """Say something on stderr."""
    if not quiet:
        err.print(text, soft_wrap=True, markup=False)


def notice_trace(trace: Trace, quiet: bool) -> None:
    """Say what became of the trace's rows, where some were left out."""
    for item in trace.provenance.left_out:
        notice(f"left out {item.count} rows: {item.reason} (e.g. {item.example})", quiet)
    for note in trace.provenance.notes:
        notice(f"note: {note}", quiet)


def metrics_table(
    title: str, columns: Sequence[tuple[str, Metrics]], spreads: Sequence[dict[str, Any]]
) -> Table:
    """Return metrics side by side; with several columns the first is the baseline of the ratios."""
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name, _ in columns:
        table.add_column(name, justify="right", overflow="fold")
    base = columns[0][1]
    for key, label, digits in _ROWS:
        cells = []
        for place, ((_, metrics), spread) in enumerate(zip(columns, spreads, strict=True)):
            cell = number(metrics[key], digits)
            if place and metrics[key] is not None and base[key]:
                cell += f" ({metrics[key] / base[key]:.2f}x)"  # type: ignore[operator]
            if key in spread:
                cell += f" [{number(spread[key]['min'], digits)} .. {number(spread[key]['max'], digits)}]"
            cells.append(cell)
        if any(cell != "-" for cell in cells):
            table.add_row(label, *cells)
    return table


def number(value: float | None, digits: int) -> str:
    """Return a number with thousands separators, `-` where there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    write(path, text.encode())


def check_writable(paths: Sequence[Path | None]) -> None:
    """Refuse before long work what could not be written after it.

    Raises:
        OutputError: If a folder does not exist, or a path is one.
    """
    for path in paths:
        if path is None:
            continue
        if path.is_dir():
            raise OutputError(f"{path}: is a folder, not a file; nothing was run.")
        if not path.parent.is_dir():
            raise OutputError(f"{path}: there is no folder {path.parent}; nothing was run.")


def write_jobs(path: Path, jobs: pl.DataFrame) -> None:
    """Write one line a job: the contract's columns first, then what else is known."""
    first = ["job_id", "submit_s", "start_s", "finish_s", "gpus", "wait_s", "jct_s", "preemptions"]
    rest = ["queue_s", "deadline_s", "deadline_met", "model", "vc", "service_class"]
    known = [name for name in rest if name in jobs.columns and jobs[name].null_count() < jobs.height]
    write_text(path, jobs.select(first + known).write_csv(float_precision=3))


def write_timeline(path: Path, timeline: Timeline) -> None:
    """Write the timeline as csv."""
    write_text(path, timeline.csv())


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
