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
from trimtab.forecast.period import HOUR_MS, Period, find_periods
from trimtab.forecast.record import BIN_MS, REACH, Record
from trimtab.traces.loader import load
from trimtab.world import cpu_s
from verdicts import Target, Verdict

HORIZONS_H = (1, 24)
NO_WORSE = 1.02  # than the best naive forecaster
JUDGES = ("last-hour", "yesterday", "hour-of-day")


@dataclass(frozen=True)
class Case:
    """A trace and the window in which forecasts are made.

    `period` says what is to be found, `hours` and `share` (of variance, the least and the most) in numbers;
    `better` where naive forecasters must be beaten.
    """

    source: str
    window: str
    period: str
    better: bool = False
    hours: tuple[float, ...] = ()
    share: tuple[float, float] | None = None


DATA = SHARED / "data"
CASES = {
    "philly-b": Case(
        f"philly:{DATA / 'philly' / 'philly_until_2017-10-31.csv.gz'}",
        "2017-10-06..2017-10-20",
        "weak, 2 to 5 % at 24 h",
        hours=(24.0,),
        share=(0.02, 0.05),
    ),
    "venus": Case(
        f"helios:{DATA / 'helios' / 'venus_gpu_jobs_until_2020-08-09.csv.gz'}",
        "2020-07-26..2020-08-09",
        "24.0 +- 0.5 h, then 168 h",
        better=True,
        hours=(24.0, 168.0),
    ),
    "pai": Case(
        f"pai:{DATA / 'pai' / 'pai_gpu_tasks_sample_days_0_45.csv.gz'}",
        "32d..46d",
        "24 h",
        better=True,
        hours=(24.0,),
    ),
    "synthetic-philly": Case("synthetic:philly?days=42&seed=1", "28d..42d", ""),
    "synthetic-helios": Case("synthetic:helios?days=42&seed=1", "28d..42d", "24 h", hours=(24.0,)),
    "synthetic-pai": Case("synthetic:pai?days=42&seed=1", "28d..42d", "24 h", hours=(24.0,)),
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
        for edge, found in _found_periods(name):
            hours = [f"{one.period_ms / HOUR_MS:.1f}" for one in found]
            if not found:
                yield (name, edge, "none", "", "", "", CASES[name].period)
                continue
            first = found[0]
            share = f"{first.share:.1%}{' weak' if first.weak else ''}"
            second = hours[1] if len(hours) > 1 else ""
            yield (name, edge, hours[0], share, f"{first.confidence:.2f}", second, CASES[name].period)


def _found_periods(name: str) -> Iterator[tuple[str, Sequence[Period]]]:
    """Yield the edge of the window and the periods known there, the strongest first."""
    history, *bounds = opened(CASES[name])
    for edge, now_ms in zip(("start", "end"), bounds, strict=True):
        record = Record.of(history.as_of(now_ms))
        yield edge, find_periods(record.counts[-REACH:], BIN_MS)


def period_verdicts(cases: Sequence[str]) -> Iterator[Verdict]:
    """Yield a row for every period that is to be found, within 1/48 of it, and for its share of variance."""
    for name in cases:
        case = CASES[name]
        for edge, found in _found_periods(name):
            for place, hours in enumerate(case.hours):
                yield Verdict.of(
                    [one.period_ms / HOUR_MS for one in found[place : place + 1]],
                    what=f"{'second ' if place else ''}period at the {edge}",
                    case=name,
                    unit="h",
                    target=Target(hours * 47 / 48, hours * 49 / 48),
                    note="none found",
                )
            if case.share:
                yield Verdict.of(
                    [100 * one.share for one in found[:1]],
                    what=f"its share of variance at the {edge}",
                    case=name,
                    unit="%",
                    target=Target(100 * case.share[0], 100 * case.share[1]),
                    note="none found",
                )


# ---- arrivals ------------------------------------------------------------------------------------


def arrivals(cases: Sequence[str], step_h: int) -> Iterator[Sequence[str]]:
    """Yield the errors of the picked forecaster beside the best naive one and the nearest segment."""
    yield ("case", "hours", "of", "ours", "best naive", "which", "ratio", "target", "met", "nearest", "ms")
    for name in cases:
        for hours in HORIZONS_H:
            yield from (one.cells() for one in errors(name, hours, step_h))


def arrival_verdicts(cases: Sequence[str], step_h: int) -> Iterator[Verdict]:
    """Yield a row for every error, beside the best naive forecaster's."""
    for name in cases:
        for hours in HORIZONS_H:
            yield from (one.verdict() for one in errors(name, hours, step_h))


@dataclass(frozen=True)
class Error:
    """How wrong the forecasts of a window are: ours, the best naive ones (by name), the nearest segments."""

    case: str
    hours: int
    what: str
    ours: float
    naive: float
    which: str
    nearest: float
    each_ms: float

    @property
    def bound(self) -> Target:
        """Return what our error over the naive one is to keep."""
        better = CASES[self.case].better
        return Target(high=1.0 if better else NO_WORSE, strict=better)

    def cells(self) -> tuple[str, ...]:
        """Return the line of the table."""
        ratio = self.ours / self.naive
        return (
            *(self.case, str(self.hours), self.what),
            *(f"{self.ours:.1%}", f"{self.naive:.1%}", self.which, f"{ratio:.3f}"),
            *(self.bound.text(), "yes" if self.bound.met(ratio) else "NO"),
            *(f"{self.nearest:.1%}", f"{self.each_ms:.0f}"),
        )

    def verdict(self) -> Verdict:
        """Return the row of the table of everything; errors in %."""
        most = 100 * self.naive * self.bound.high
        return Verdict(
            what=f"error of {self.what} that arrives in {self.hours} h, baseline {self.which}",
            case=self.case,
            measured=100 * self.ours,
            unit="%",
            target=Target(high=most, strict=self.bound.strict),
            baseline=100 * self.naive,
        )


def errors(name: str, hours: int, step_h: int) -> Iterator[Error]:
    """Yield the errors of the number of jobs and of their GPU time."""
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
        near = _wape(np.array(nearest), truth, column)
        yield Error(name, hours, what, error, found[best], best, near, begun / len(pasts) * 1000)


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
