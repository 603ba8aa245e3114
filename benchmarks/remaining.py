"""How good the forecasts of remaining service are: one table, each hour of a window forecast from its past.

    python benchmarks/remaining.py [CASE ...] [--shared FOLDER]

Jobs are taken to run from their submission to submission + run time. Each predictor mode is asked for every
job running at each hour. `best constant` is the class most frequent in the evaluated snapshots. The error of
GPU-service is |sum of drawn - sum of true remaining GPU-ms| / sum of true, over an hour's running jobs with
the mean of 16 draws a job, averaged over the hours; also with every remaining time cut at 48 h.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import polars as pl

from trimtab.forecast.history import NEVER_MS, Past
from trimtab.forecast.remaining import LocalPredictor
from trimtab.forecast.snapshots import CLASSES, EDGES_MS
from trimtab.traces.loader import load
from trimtab.traces.trace import Trace
from trimtab.world import Seeds, cpu_s
from verdicts import Target, Verdict

HOUR_MS = 3_600_000
CUT_MS = 48 * HOUR_MS
FUTURES = 16
MODES = ("xgboost", "paper", "kaplan-meier", "lindy")
PHILLY = "philly/philly_until_2017-10-31.csv.gz"
VENUS = "helios/venus_gpu_jobs_until_2020-08-09.csv.gz"
# Case -> file, window, points of accuracy that xgboost is to gain on the best constant (None: not judged).
CASES: dict[str, tuple[str, str, float | None]] = {
    "philly": (PHILLY, "2017-10-06..2017-10-20", 4.0),
    "venus": (VENUS, "2020-07-26..2020-08-09", 2.0),
    "philly-before": (PHILLY, "2017-09-27..2017-10-05", None),  # where settings are chosen
    "venus-before": (VENUS, "2020-06-15..2020-06-29", None),
}
HEADINGS = (
    *("case", "mode", "snapshots", "accuracy", "constant", "gain", "balanced", "log-loss", "ECE"),
    *("GPU error", "at 48 h", "s/1000", "refit s", "missed targets"),
)


class History:
    """A trace whose jobs run from submission on, as known at any instant."""

    def __init__(self, trace: Trace) -> None:
        """Read the columns; labels become whole numbers."""
        self.submit_ms, self.duration_ms = trace.column("submit_ms"), trace.column("duration_ms")
        self.gpus = trace.column("gpus")
        self.labels = {name: _numbers(trace, name) for name in ("vc", "user", "name")}

    def as_of(self, now_ms: int) -> Past:
        """Return what is known at an instant."""
        seen = slice(0, int(np.searchsorted(self.submit_ms, now_ms)))
        submit_ms, duration_ms = self.submit_ms[seen], self.duration_ms[seen]
        finish_ms = submit_ms + duration_ms
        return Past(
            now_ms,
            submit_ms,
            self.gpus[seen],
            **{name: label[seen] for name, label in self.labels.items()},
            finish_ms=np.where(finish_ms <= now_ms, finish_ms, NEVER_MS),
            ran_ms=np.minimum(duration_ms, now_ms - submit_ms),
        )


@dataclass
class Scores:
    """What one mode answered over a window, hour by hour."""

    shares: list[np.ndarray] = field(default_factory=list)
    kinds: list[np.ndarray] = field(default_factory=list)
    whole_errors: list[float] = field(default_factory=list)
    cut_errors: list[float] = field(default_factory=list)
    refit_s: list[float] = field(default_factory=list)
    ask_s: float = 0.0

    def note(self, drawn_ms: np.ndarray, true_ms: np.ndarray, gpus: np.ndarray) -> None:
        """Add the errors of an hour's sums."""
        for errors, cut_ms in ((self.whole_errors, np.inf), (self.cut_errors, CUT_MS)):
            true = float((np.minimum(true_ms, cut_ms) * gpus).sum())
            drawn = float((np.minimum(drawn_ms, cut_ms).mean(axis=0) * gpus).sum())
            errors.append(abs(drawn - true) / true)

    def figures(self) -> dict[str, float]:
        """Return the table's figures."""
        share, kind = np.concatenate(self.shares), np.concatenate(self.kinds)
        hit = share.argmax(axis=1) == kind
        seen = [label for label in range(CLASSES) if (kind == label).any()]
        own = np.maximum(share[np.arange(len(kind)), kind], 1e-6)
        return {
            "snapshots": len(kind),
            "accuracy": 100 * hit.mean(),
            "constant": 100 * np.bincount(kind).max() / len(kind),
            "gain": 100 * (hit.mean() - np.bincount(kind).max() / len(kind)),
            "balanced": 100 * float(np.mean([hit[kind == label].mean() for label in seen])),
            "log-loss": -float(np.log(own).mean()),
            "ECE": calibration_error(share.max(axis=1), hit),
            "GPU error": float(np.mean(self.whole_errors)),
            "at 48 h": float(np.mean(self.cut_errors)),
            "s/1000": self.ask_s,
            "refit s": float(np.median(self.refit_s)),
        }


def calibration_error(sure: np.ndarray, hit: np.ndarray, bins: int = 10) -> float:
    """Return the expected calibration error of the likeliest class, over bins of equal width."""
    place = np.minimum((sure * bins).astype(int), bins - 1)
    return float(np.abs(np.bincount(place, sure - hit, minlength=bins)).sum() / len(sure))


def measured(history: History, window_ms: tuple[int, int], mode: str) -> dict[str, float]:
    """Return the figures of one mode over a window."""
    predictor, scores = LocalPredictor(mode, Seeds(0)), Scores()
    for now_ms in range(window_ms[0], window_ms[1], HOUR_MS):
        past = history.as_of(now_ms)
        card, begin_s = predictor.card, cpu_s()
        predictor.refresh(past)
        if predictor.card != card or not scores.refit_s:
            scores.refit_s.append(cpu_s() - begin_s)
        rows = np.flatnonzero(~past.completed)
        if not len(rows):
            continue
        true_ms = history.duration_ms[rows] - past.ran_ms[rows]
        uniforms = Seeds(0).stream("remaining-benchmark", now_ms).random((FUTURES, len(rows), 2))
        scores.shares.append(predictor.probabilities(past, rows))
        scores.kinds.append(np.digitize(true_ms, EDGES_MS))
        scores.note(predictor.remaining_ms(past, rows, uniforms), true_ms, past.gpus[rows])
    scores.ask_s = seconds_a_thousand(predictor, past, rows)
    return scores.figures()


def seconds_a_thousand(predictor: LocalPredictor, past: Past, rows: np.ndarray) -> float:
    """Return CPU seconds of one call that draws one future of 1,000 jobs, the median of five."""
    rows = np.resize(rows, 1000)
    spent_s = []
    for nth in range(5):
        uniforms = Seeds(nth).stream("thousand").random((1, 1000, 2))
        begin_s = cpu_s()
        predictor.remaining_ms(past, rows, uniforms)
        spent_s.append(cpu_s() - begin_s)
    return float(np.median(spent_s))


def judged(
    case: str, figures: dict[str, float], curves: dict[str, float], points: float | None
) -> list[Verdict]:
    """Return the figures of the model that have a target, beside those of the curves; none if not judged."""
    if points is None:
        return []
    targets = {
        "gain": Target(low=points),
        "ECE": Target(high=0.05),
        "GPU error": Target(high=curves["GPU error"], strict=True),
        "at 48 h": Target(high=curves["at 48 h"], strict=True),
        "s/1000": Target(high=0.033),
        "refit s": Target(high=0.33),
    }
    return [
        Verdict(what=name, case=case, measured=figures[name], target=target, baseline=curves[name])
        for name, target in targets.items()
    ]


def missed(rows: Sequence[Verdict]) -> str:
    """Return which targets are missed, `none`, or nothing where nothing is asked."""
    names = [f"{row.what} {row.target.text()}" for row in rows if row.target and not row.met]
    return ", ".join(names) or ("none" if rows else "")


def table(names: list[str], shared: Path) -> list[tuple[str, ...]]:
    """Return the table's lines, headings first."""
    lines: list[tuple[str, ...]] = [HEADINGS]
    for name in names:
        history, window_ms = opened(name, shared)
        found = {mode: measured(history, window_ms, mode) for mode in MODES}
        rows = judged(name, found["xgboost"], found["kaplan-meier"], CASES[name][2])
        for mode, figures in found.items():
            cells = [_cell(figures[heading]) for heading in HEADINGS[2:-1]]
            lines.append((name, mode, *cells, missed(rows) if mode == "xgboost" else ""))
    return lines


def opened(name: str, shared: Path) -> tuple[History, tuple[int, int]]:
    """Return a case's jobs and its window in ms."""
    file, window, _ = CASES[name]
    trace = load(str(shared / "data" / file))
    return History(trace), trace.window_ms(window)


def verdicts(names: Sequence[str], shared: Path, hours_max: int | None = None) -> Iterator[Verdict]:
    """Yield the judged rows of cases; `hours_max` looks at no more hours than that."""
    for name in names:
        history, (start_ms, end_ms) = opened(name, shared)
        if hours_max is not None:
            end_ms = min(end_ms, start_ms + hours_max * HOUR_MS)
        model, curves = (measured(history, (start_ms, end_ms), mode) for mode in ("xgboost", "kaplan-meier"))
        for row in judged(name, model, curves, CASES[name][2]):
            yield replace(row, what=f"remaining time, {row.what}, baseline kaplan-meier")


def _cell(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.4f}"


def _numbers(trace: Trace, name: str) -> np.ndarray:
    if name not in trace.jobs.columns:
        return np.full(len(trace), -1)
    numbers = trace.jobs[name].rank("dense").cast(pl.Int64).fill_null(-1)
    return numbers.to_numpy()


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description="Quality and cost of forecasts of remaining service.")
    options.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}")
    beside = os.environ.get("TRIMTAB_SHARED") or Path(__file__).resolve().parents[2] / "shared"
    options.add_argument("--shared", type=Path, default=Path(beside), help="the folder of real traces")
    chosen = options.parse_args()
    unknown = set(chosen.cases) - set(CASES)
    if unknown:
        options.error(f"unknown case {min(unknown)!r}; known: {', '.join(CASES)}")
    lines = table(chosen.cases or ["philly", "venus"], chosen.shared)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
