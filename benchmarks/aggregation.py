"""How faithful are merged jobs, and what do they save? By rung, on hours of real windows with true futures.

    PYTHONPATH=src python benchmarks/aggregation.py --situations 12 --settings 24

Situations are evenly spaced hours of a window that runs under the default settings. Settings are those a
search would scatter. A rung's `JCT error` is the mean over settings of |merged - all| / all of the mean JCT,
`wait error` the same of the mean wait, both without settings that thrash; `rank` is the rank correlation of
waits over the settings of an hour, the mean over busy hours. `saved` is CPU seconds of 80 settings on all
jobs less those on merged ones, the merging included. `service` says whether GPU-ms are the same to the last
one. A case ends with the hours for which calibration chose each rung.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from model import HOUR_MS, POLICY, situations
from trimtab.forecast.aggregate import LADDER
from trimtab.knobs import Knobs
from trimtab.objective import find_objective
from trimtab.policies.catalog import find_policy
from trimtab.search.fidelity import PROBES, Bench, calibrate, coarsened, rank_correlation
from trimtab.search.sampler import design
from trimtab.search.spaces import search_space
from trimtab.simulate.trials import LocalTrials
from trimtab.simulate.whatif import Situation
from trimtab.world import Seeds, cpu_s
from verdicts import Target, Verdict

# Trace, window, nodes of 8 GPUs.
CASES = {
    "philly-b": ("philly/philly_until_2017-10-31.csv.gz", "2017-10-06..2017-10-20", 64),
    "venus": ("helios/venus_gpu_jobs_until_2020-08-09.csv.gz", "2020-07-26..2020-08-09", 70),
}
BUSY_S = 60.0  # mean wait under the first setting from which there is something to rank
BUDGET = 80
HALVED = 2.0  # times fewer jobs, at which merging is judged
HEADINGS = (
    "case",
    "rung",
    "jobs / merged",
    "JCT error",
    "wait error",
    "rank",
    "saved s",
    "speed-up",
    "service",
)
WIDTHS = (8, 12, 13, 9, 10, 6, 7, 8, 7)


@dataclass
class Row:
    """What one rung gave, an hour each."""

    compression: list[float] = field(default_factory=list)
    jct_error: list[float] = field(default_factory=list)
    wait_error: list[float] = field(default_factory=list)
    rank: list[float] = field(default_factory=list)
    saved_s: list[float] = field(default_factory=list)
    speed_up: list[float] = field(default_factory=list)
    exact: bool = True

    def cells(self) -> tuple[str, ...]:
        """Return means over the hours, as text."""
        return (
            f"{_mean(self.compression):.2f}",
            f"{_mean(self.jct_error):.2%}",
            f"{_mean(self.wait_error):.1%}",
            f"{_mean(self.rank):.3f}",
            f"{_mean(self.saved_s):.3f}",
            f"{_mean(self.speed_up):.2f}x",
            "exact" if self.exact else "LOST",
        )


@dataclass(frozen=True)
class Tried:
    """Means of settings on one situation, shape (settings,) each, and the CPU seconds a setting took."""

    jct_s: np.ndarray
    wait_s: np.ndarray
    each_s: float


def tried(situation: Situation, settings: Sequence[Knobs]) -> Tried:
    """Try settings on a situation."""
    began = cpu_s()
    found = LocalTrials().measure(situation, settings, find_objective("jct"))
    each_s = (cpu_s() - began) / len(settings)
    waits = [one.queue_s + one.restart_s + one.slowdown_s for one in found]
    return Tried(np.array([one.cost for one in found]), np.array(waits), each_s)


def service(situation: Situation) -> int:
    """Return the GPU-ms of a situation's jobs."""
    return sum(
        facts.gpus * run_ms
        for facts, run_ms in zip(situation.workload.facts, situation.workload.duration_ms, strict=True)
    )


def compare(case: str, count: int, settings: int, horizon_h: tuple[int, int]) -> tuple[list[Row], list[int]]:
    """Return a row a rung, and in how many hours calibration chose each rung, none at the end."""
    policy = find_policy(POLICY)
    space = search_space(policy, policy.space.defaults, "consolidated")
    rows, chosen = [Row() for _ in LADDER], [0] * (len(LADDER) + 1)
    for hour, one in enumerate(
        situations(CASES[case], count, horizon_h[0] * HOUR_MS, horizon_h[1] * HOUR_MS)
    ):
        points = design(space, settings - 1, Seeds(hour))
        some = [space.base, *(space.knobs(point) for point in points)]
        full = tried(one, some)
        for row, how in zip(rows, LADDER, strict=True):
            began = cpu_s()
            merged = coarsened(one, how)
            _note(row, one, merged, full, tried(merged, some), cpu_s() - began)
        chosen[_calibrated(one, some[:PROBES])] += 1
    return rows, chosen


def _calibrated(one: Situation, probes: Sequence[Knobs]) -> int:
    trials, wait = LocalTrials(), find_objective("wait")
    full = Bench(one, lambda some: trials.measure(one, some, wait))
    found = calibrate(full, trials, wait, probes[0], probes, BUDGET)
    return LADDER.index(found.rungs[-1].how) if found.merged else len(LADDER)


def _note(row: Row, one: Situation, merged: Situation, full: Tried, less: Tried, took_s: float) -> None:
    row.compression.append(len(one.workload) / len(merged.workload))
    row.jct_error.append(_error(less.jct_s, full.jct_s))
    row.exact &= service(one) == service(merged)
    merging_s = took_s - less.each_s * len(less.jct_s)
    row.saved_s.append(BUDGET * (full.each_s - less.each_s) - merging_s)
    row.speed_up.append(full.each_s / less.each_s)
    if full.wait_s[0] >= BUSY_S:
        row.wait_error.append(_error(less.wait_s, full.wait_s))
        row.rank.append(rank_correlation(full.wait_s.tolist(), less.wait_s.tolist()))


def _error(guessed: np.ndarray, true: np.ndarray) -> float:
    """Return the mean relative error where both are finite."""
    known = np.isfinite(guessed) & np.isfinite(true) & (true > 0)
    return float(np.mean(np.abs(guessed[known] - true[known]) / true[known]))


def _mean(values: Sequence[float]) -> float:
    return float(np.nanmean(values)) if len(values) else float("nan")


def verdicts(
    cases: Sequence[str], count: int, settings: int, horizon_h: tuple[int, int]
) -> Iterator[Verdict]:
    """Yield what the finest rung with half as many jobs gives.

    Where none has so few, the coarsest one is shown and only its number of jobs is judged.
    """
    for case in cases:
        rows, _ = compare(case, count, settings, horizon_h)
        row = next((row for row in rows if _mean(row.compression) >= HALVED), rows[-1])
        halved = _mean(row.compression) >= HALVED
        for what, unit, values, target in (
            ("jobs over merged jobs", "x", row.compression, Target(low=HALVED)),
            ("error of the mean JCT", "%", [100 * one for one in row.jct_error], Target(high=2)),
            ("rank correlation", "", row.rank, Target(low=0.98)),
        ):
            told = {"what": f"merged jobs: {what}", "case": case, "unit": unit}
            judged = halved or values is row.compression
            yield Verdict.of(values, "no hour busy", target=target if judged else None, **told)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--situations", type=int, default=12)
    parser.add_argument("--settings", type=int, default=24)
    parser.add_argument("--arrivals-h", type=int, default=24)
    parser.add_argument("--run-on-h", type=int, default=48)
    told = parser.parse_args()
    print("  ".join(name.rjust(width) for name, width in zip(HEADINGS, WIDTHS, strict=True)))
    for case in CASES:
        horizon_h = told.arrivals_h, told.run_on_h
        rows, chosen = compare(case, told.situations, told.settings, horizon_h)
        for how, row in zip(LADDER, rows, strict=True):
            rung = f"{how.arrivals_ms // 1000} s, {how.log_run:g}, {how.members_max}"
            cells = (case, rung, *row.cells())
            print("  ".join(cell.rjust(width) for cell, width in zip(cells, WIDTHS, strict=True)))
        busy = f"{case}: {len(rows[0].rank)} of {told.situations} hours busy"
        rungs = ", ".join(str(count) for count in chosen[:-1])
        print(f"{busy}; calibration chose the rungs in {rungs} hours, all jobs in {chosen[-1]}")


if __name__ == "__main__":
    main()
