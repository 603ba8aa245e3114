"""How sure is a difference between lines? The same evaluation with several seeds, and days drawn again.

Lines are compared inside one run, seed by seed and job by job: what makes a day or an order of simultaneous
jobs hard is hard for all lines, and cancels out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trimtab.report.lines import Contrast, Estimate, Evaluation, Statistics
from trimtab.world import Seeds

# Besides the first line, those that the others have to beat.
REFERENCES = ("fixed-week", "selftune")

_DRAWS = 2_000
_DAY_S = 86_400
Reals = NDArray[np.float64]


def statistics_of(runs: Sequence[Evaluation], seeds: Seeds) -> Statistics:
    """Return what several runs of one evaluation say together about its lines, without those with no job."""
    waits = {
        line.name: [float(run.lines[place].metrics["wait_s_mean"] or 0.0) for run in runs]
        for place, line in enumerate(runs[0].lines)
        if all(run.lines[place].metrics["finished"] for run in runs)
    }
    references = [name for name in dict.fromkeys([runs[0].lines[0].name, *REFERENCES]) if name in waits]
    pairs = [(line, other) for line, other in product(waits, references) if line != other]
    return Statistics(
        runs=len(runs),
        waits={name: estimate(values) for name, values in waits.items()},
        contrasts=tuple(_contrast(runs, *pair, waits, seeds) for pair in pairs),
    )


def estimate(values: Sequence[float]) -> Estimate:
    """Return mean, standard deviation (None for a single value), least and most."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Estimate(mean=float(np.mean(values)), deviation=deviation, low=min(values), high=max(values))


def _contrast(
    runs: Sequence[Evaluation], line: str, reference: str, waits: Mapping[str, Sequence[float]], seeds: Seeds
) -> Contrast:
    sums_s, counts = np.zeros(0), np.zeros(0)
    for run in runs:
        tables = {one.name: one.jobs for one in run.lines}
        more = daily_differences(tables[line], tables[reference])
        sums_s, counts = _added(sums_s, more[0]), _added(counts, more[1])
    some = counts > 0
    dice = seeds.stream("bootstrap", line, reference)
    pairs = zip(waits[line], waits[reference], strict=True)
    ratios = [mine / other for mine, other in pairs if other]
    return Contrast(
        line=line,
        reference=reference,
        ratio=estimate(ratios) if ratios else None,
        days=int(some.sum()),
        difference_s=float(sums_s.sum() / counts.sum()),
        interval_s=bootstrap(sums_s[some], counts[some], dice),
    )


def _added(one: Reals, other: Reals) -> Reals:
    length = max(len(one), len(other))
    return np.pad(one, (0, length - len(one))) + np.pad(other, (0, length - len(other)))


def daily_differences(mine: pl.DataFrame, other: pl.DataFrame) -> tuple[Reals, Reals]:
    """Return by day of submission how much longer jobs waited, added up in s, and how many jobs there were.

    Args:
        mine, other: Tables of the same jobs in the same order; jobs that did not finish in both are left out.

    Returns:
        Two arrays of shape (days,); place 0 is the day of the first submission.
    """
    wait_s = mine["wait_s"] - other["wait_s"]
    both = mine.select("submit_s", wait_s.alias("longer_s")).drop_nulls()
    day = (both["submit_s"].to_numpy() // _DAY_S).astype(np.int64)
    day -= day.min(initial=int(mine["submit_s"].to_numpy().min() // _DAY_S))
    sums_s, counts = np.bincount(day, weights=both["longer_s"].to_numpy()), np.bincount(day)
    return np.asarray(sums_s, dtype=np.float64), np.asarray(counts, dtype=np.float64)


def bootstrap(sums_s: Reals, counts: Reals, dice: np.random.Generator) -> tuple[float, float] | None:
    """Return a 95 % interval of the mean difference by job: whole days are drawn, with replacement.

    Jobs of one day share their queues, so that single jobs would promise too narrow an interval.

    Args:
        sums_s: Differences added up by day, s; shape (days,). counts: Jobs; same shape.

    Returns:
        The 2.5 % and the 97.5 % percentile in s; None for fewer than two days.
    """
    days = len(counts)
    if days < 2:
        return None
    drawn = dice.integers(days, size=(_DRAWS, days))
    means_s = sums_s[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low_s, high_s = np.percentile(means_s, [2.5, 97.5]).tolist()
    return low_s, high_s
