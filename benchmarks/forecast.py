"""How good are the forecasts? One table each, on windows that no rule was chosen on.

    python benchmarks/forecast.py [--table periods] [--case venus] [--step-h 2]

Reads the real traces in the folder named by TRIMTAB_SHARED (default ../shared). Each job counts as started
when it was submitted. Errors are weighted absolute percentage errors over all forecasts made in a window.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cases import SHARED
from trimtab.forecast.arrivals import NAIVE, Arrivals, View, expected, forecast_arrivals
from trimtab.forecast.backtest import best_arrivals
from trimtab.forecast.history import History, Past
from trimtab.forecast.period import HOUR_MS, find_periods
from trimtab.forecast.record import BIN_MS, REACH, Record
from trimtab.traces.loader import load
from trimtab.world import cpu_s

HORIZONS_H = (1, 24)
NO_WORSE = 1.02  # than the best naive forecaster
JUDGES = ("last-hour", "yesterday", "hour-of-day")


@dataclass(frozen=True)
class Case:
    """A trace and the window in which forecasts are made; `better` where naive forecasters must be beaten."""

    source: str
    window: str
    period: str
    better: bool = False


DATA = SHARED / "data"
CASES = {
    "philly-b": Case(
        f"philly:{DATA / 'philly' / 'philly_until_2017-10-31.csv.gz'}",
        "2017-10-06..2017-10-20",
        "weak, 2 to 5 % at 24 h",
    ),
    "venus": Case(
        f"helios:{DATA / 'helios' / 'venus_gpu_jobs_until_2020-08-09.csv.gz'}",
        "2020-07-26..2020-08-09",
        "24.0 +- 0.5 h, then 168 h",
        better=True,
    ),
    "pai": Case(
        f"pai:{DATA / 'pai' / 'pai_gpu_tasks_sample_days_0_45.csv.gz'}", "32d..46d", "24 h", better=True
    ),
    "synthetic-philly": Case("synthetic:philly?days=42&seed=1", "28d..42d", ""),
    "synthetic-helios": Case("synthetic:helios?days=42&seed=1", "28d..42d", "24 h"),
    "synthetic-pai": Case("synthetic:pai?days=42&seed=1", "28d..42d", "24 h"),
}


@lru_cache(maxsize=1)
def opened(case: Case) -> tuple[History, int, int]:
    """Return a case's jobs and its window in ms on their clock."""
    trace = load(case.source)
    start_ms, end_ms = (bound - trace.zero_ms for bound in trace.window_ms(case.window))
    return History.of(trace), start_ms, end_ms


# ---- periods -------------------------------------------------------------------------------------


def periods(cases: Sequence[str], step_h: int) -> Iterator[Sequence[str]]:
    """Yield the periods found at the start and at the end of each window."""
    yield ("case", "at its", "period h", "share of variance", "confidence", "second h", "target")
    for name in cases:
        history, *bounds = opened(CASES[name])
        for edge, now_ms in zip(("start", "end"), bounds, strict=True):
            record = Record.of(history.as_of(now_ms))
            found = find_periods(record.counts[-REACH:], BIN_MS)
            hours = [f"{one.period_ms / HOUR_MS:.1f}" for one in found]
            if not found:
                yield (name, edge, "none", "", "", "", CASES[name].period)
                continue
            first = found[0]
            share = f"{first.share:.1%}{' weak' if first.weak else ''}"
            second = hours[1] if len(hours) > 1 else ""
            yield (name, edge, hours[0], share, f"{first.confidence:.2f}", second, CASES[name].period)


# ---- arrivals ------------------------------------------------------------------------------------


def arrivals(cases: Sequence[str], step_h: int) -> Iterator[Sequence[str]]:
    """Yield the errors of the picked forecaster beside the best naive one and the nearest segment."""
    yield ("case", "hours", "of", "ours", "best naive", "which", "ratio", "target", "met", "nearest", "ms")
    for name in cases:
        for hours in HORIZONS_H:
            yield from _errors(name, hours, step_h)


def _errors(name: str, hours: int, step_h: int) -> Iterator[Sequence[str]]:
    case = CASES[name]
    history, start_ms, end_ms = opened(case)
    span_ms = hours * HOUR_MS
    times = range(start_ms, end_ms - span_ms + 1, step_h * HOUR_MS)
    begun, pasts, ours = 0.0, [history.as_of(now_ms) for now_ms in times], []
    for past in pasts:
        before = cpu_s()
        ours.append(_sums(past, best_arrivals(past, span_ms)[0]))
        begun += cpu_s() - before
    truth = np.array([_truth(history, now_ms, span_ms) for now_ms in times])
    naive = {judge: np.array([_promised(past, judge, hours) for past in pasts]) for judge in JUDGES}
    nearest = [_sums(past, forecast_arrivals(past, span_ms, "nearest")) for past in pasts]
    for column, what in enumerate(("count", "GPU time")):
        found = {judge: _wape(sums, truth, column) for judge, sums in naive.items()}
        best = min(found, key=found.__getitem__)
        error = _wape(np.array(ours), truth, column)
        ratio, bound = error / found[best], 1.0 if case.better else NO_WORSE
        yield (
            name,
            str(hours),
            what,
            f"{error:.1%}",
            f"{found[best]:.1%}",
            best,
            f"{ratio:.3f}",
            f"{'<' if case.better else '<='} {bound:g}",
            "yes" if ratio < bound or (ratio == bound and not case.better) else "NO",
            f"{_wape(np.array(nearest), truth, column):.1%}",
            f"{begun / len(pasts) * 1000:.0f}",
        )


def _sums(past: Past, found: Arrivals) -> tuple[float, float]:
    """Return how many jobs arrive, and the GPU time that they have taken as far as it is known."""
    service = past.gpus[found.source].astype(np.float64) * past.ran_ms[found.source]
    return float(len(found)), float(service.sum())


def _promised(past: Past, judge: str, hours: int) -> tuple[float, float]:
    """Return the same two of a naive forecaster, by arithmetic."""
    record = Record.of(past)
    view = View(record, np.array([len(record)]), hours * HOUR_MS // BIN_MS)
    pieces = NAIVE[judge](view)
    count, service = (
        expected(record, pieces, before) for before in (record.counts_before, record.service_before)
    )
    return float(count[0]), float(service[0])


def _truth(history: History, now_ms: int, span_ms: int) -> tuple[float, float]:
    first, last = np.searchsorted(history.submit_ms, (now_ms, now_ms + span_ms))
    jobs = slice(int(first), int(last))
    service = history.gpus[jobs].astype(np.float64) * history.duration_ms[jobs]
    return float(last - first), float(service.sum())


def _wape(forecast: np.ndarray, truth: np.ndarray, column: int) -> float:
    return float(np.abs(forecast - truth)[:, column].sum() / truth[:, column].sum())


# ---- the command ---------------------------------------------------------------------------------

TABLES: dict[str, Callable[[Sequence[str], int], Iterator[Sequence[str]]]] = {
    "periods": periods,
    "arrivals": arrivals,
}


def shown(lines: Sequence[Sequence[str]]) -> str:
    """Return lines of cells as text, the first one being the heading."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description="Forecasts against naive ones, as tables.")
    options.add_argument("--table", action="append", choices=list(TABLES), help="may be repeated")
    options.add_argument("--case", action="append", choices=list(CASES), help="may be repeated")
    options.add_argument("--step-h", type=int, default=2, help="hours between two forecasts (default 2)")
    given = options.parse_args()
    if given.step_h < 1:
        options.error(f"--step-h {given.step_h}: it must be at least 1; nothing was measured.")
    cases = given.case or list(CASES)
    if any(not CASES[name].source.startswith("synthetic:") for name in cases) and not DATA.is_dir():
        options.error(f"{SHARED} has no data/ (set TRIMTAB_SHARED); nothing was measured.")
    for table in given.table or TABLES:
        print(f"{table}\n\n{shown(list(TABLES[table](cases, given.step_h)))}\n")


if __name__ == "__main__":
    main()
