"""Deadlines of jobs as columns, what is lost by finishing late, and the numbers of a run that tell of it.

Two counts of violations stand side by side. Plainly, a job with a deadline violates it if it ends after its
first one. By value, it loses what the deadline it still met is worth less than its best one: Chronus's
1 - value / 10, whatever values are counted in. A job that did not finish, or was rejected, has missed all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trimtab.curve import FULL_SPEED_PPM
from trimtab.job import JobFacts
from trimtab.simulate.state import NONE_MS, Outcomes
from trimtab.timeline import seconds

Integers = NDArray[np.int64]

CLASSES = ("strict", "soft", "best")
OF_PROMISES = ("promised", "refused")
HELD_TO = ("strict", "soft", *OF_PROMISES)  # groups in which some jobs may meet what others miss
GROUPS = (*CLASSES, "met", "missed", *OF_PROMISES)  # of jobs, told of apart


@dataclass(frozen=True, slots=True, eq=False)
class Deadlines:
    """The deadlines of jobs, by dense id; a job of best effort has none.

    Attributes:
        kinds: Service class of each job. submit_ms: When each was submitted; both of shape (jobs,).
        deadlines_ms: On the engine's clock, ascending, `NONE_MS` where a job has no more; shape
            (jobs, options).
        values: What each is worth if it is the first that is met; 0 where there is none; same shape.
    """

    kinds: tuple[str, ...]
    submit_ms: Integers
    deadlines_ms: Integers
    values: Integers

    @classmethod
    def of(cls, facts: Sequence[JobFacts]) -> Deadlines | None:
        """Return the deadlines of jobs; None if none of them has any."""
        services = [one.service for one in facts]
        options = max((len(one.deadlines_ms) for one in services if one.kind != "best"), default=0)
        if not options:
            return None
        deadlines_ms = np.full((len(services), options), NONE_MS, dtype=np.int64)
        values = np.zeros((len(services), options), dtype=np.int64)
        for job, one in enumerate(services):
            if one.kind != "best" and one.deadlines_ms:
                count = len(one.deadlines_ms)
                deadlines_ms[job, :count] = one.deadlines_ms
                values[job, :count] = one.worth
        submit_ms = np.array([one.submit_ms for one in facts], dtype=np.int64)
        return cls(tuple(one.kind for one in services), submit_ms, deadlines_ms, values)

    @property
    def bound(self) -> NDArray[np.bool_]:
        """Which jobs have a deadline."""
        return np.not_equal(self.deadlines_ms[:, 0], NONE_MS)

    @property
    def first_ms(self) -> Integers:
        """The first deadline of each job, `NONE_MS` where it has none."""
        return np.asarray(self.deadlines_ms[:, 0])

    def obtained(self, finish_ms: Integers) -> Integers:
        """Return what each job's end is worth; 0 where it has no deadline or met none.

        Args:
            finish_ms: When each job finishes, a time beyond all deadlines if never; shape (jobs,).
        """
        found = np.zeros(len(finish_ms), dtype=np.int64)
        for option in reversed(range(self.deadlines_ms.shape[1])):
            found = np.where(finish_ms <= self.deadlines_ms[:, option], self.values[:, option], found)
        return found

    def lost_ppm(self, finish_ms: Integers) -> Integers:
        """Return how much of the best value each job loses, in ppm; -1 where it has no deadline."""
        best = np.maximum(1, self.values.max(axis=1))
        lost = FULL_SPEED_PPM - self.obtained(finish_ms) * FULL_SPEED_PPM // best
        return np.where(self.bound, lost, -1)

    def lost_of(self, jobs: Integers | NDArray[np.int32], age_ms: Integers, left_ms: Integers) -> Integers:
        """Return what each of some jobs loses of its deadlines' value, see `objective.Stays`.

        Args:
            jobs: Their ids. age_ms: From submission to completion, or to the end of the simulation if it
                came first. left_ms: What is left of them then, at full speed. All of shape (jobs,).
        """
        finish_ms = self.submit_ms.copy()
        finish_ms[jobs] += age_ms + left_ms
        return self.lost_ppm(finish_ms)[jobs]


def deadline_columns(facts: Sequence[JobFacts], outcomes: Outcomes) -> dict[str, pl.Series | list[str]]:
    """Return the columns that deadlines add to the table of jobs; none where no job has any.

    `deadline_s` counts from submission, several joined by "/"; `first_deadline_s` is the first as a number.
    `deadline_met` asks for the first; `deadline_value` is what was obtained, and `value_lost` the share of
    the best value that was not. All are null for best effort, as `promised_s` and `promise_kept` are for
    jobs without a promise.
    """
    deadlines = Deadlines.of(facts)
    columns: dict[str, pl.Series | list[str]] = {}
    if deadlines is not None:
        finish_ms = np.where(outcomes.finished, outcomes.finish_ms, np.iinfo(np.int64).max)
        bound, submit_ms = deadlines.bound, deadlines.submit_ms
        columns |= {
            "service_class": list(deadlines.kinds),
            "deadline_s": pl.Series([_joined(one) for one in facts], dtype=pl.String),
            "first_deadline_s": _known((deadlines.first_ms - submit_ms) / 1000, bound),
            "deadline_met": _known(finish_ms <= deadlines.first_ms, bound),
            "deadline_value": _known(deadlines.obtained(finish_ms), bound),
            "value_lost": _known(deadlines.lost_ppm(finish_ms) / FULL_SPEED_PPM, bound),
        }
    promised = np.not_equal(outcomes.promise_ms, NONE_MS)
    if promised.any():
        submit_ms = np.array([one.submit_ms for one in facts], dtype=np.int64)
        kept = outcomes.finished & (outcomes.finish_ms <= outcomes.promise_ms)
        columns["promised_s"] = _known((outcomes.promise_ms - submit_ms) / 1000, promised)
        columns["promise_kept"] = _known(kept, promised)
    return columns


def _joined(facts: JobFacts) -> str | None:
    if facts.service.kind == "best" or not facts.service.deadlines_ms:
        return None
    return "/".join(seconds(one - facts.submit_ms) for one in facts.service.deadlines_ms)


def _known(values: NDArray[np.generic], known: NDArray[np.bool_]) -> pl.Series:
    """Return a column that is null where it is not known."""
    return pl.select(pl.when(pl.Series(known)).then(pl.Series(values))).to_series()


def deadline_metrics(table: pl.DataFrame) -> dict[str, float | int | None]:
    """Return what a table of jobs says of deadlines and promises; nothing but a null where there are none.

    Jobs of best effort are in no rate of violations. Tardiness is how long after its first deadline a job
    with a deadline finished, 0 if before. Times are over the finished jobs of each group: the three service
    classes, those that met their first deadline and those that missed it, and where promises were made those
    with a deadline that were promised one and those that were refused. `queue_s` is all time without GPUs
    (AQT with requeueing), `first_queue_s` the time to the first start.
    """
    found: dict[str, float | int | None] = {"slo_violation_rate": None}
    if "promise_kept" in table.columns:
        kept = table["promise_kept"].drop_nulls()
        found |= {"promised": len(kept), "promise_kept_rate": _mean(kept)}
    if "deadline_met" not in table.columns:
        return found
    table = table.with_columns(
        first_queue_s=pl.col("start_s") - pl.col("submit_s"),
        tardiness_s=(pl.col("jct_s") - pl.col("first_deadline_s")).clip(lower_bound=0),
    )
    slo = table.filter(pl.col("deadline_met").is_not_null())
    found |= {"slo_jobs": slo.height, **_violations(slo), **_lateness(slo)}
    found["tardiness_s_sum"] = float(slo["tardiness_s"].sum())
    found["preemptions_per_job"] = _mean(table["preemptions"])
    done = table.filter(pl.col("finish_s").is_not_null())
    found |= _times(done, "first_queue_s")
    for name in GROUPS if "promise_kept" in table.columns else GROUPS[: -len(OF_PROMISES)]:
        some = table.filter(_of_group(name))
        if some.height:
            found |= {f"{metric}_{name}": value for metric, value in _of_some(some, name).items()}
    return found


def _of_some(jobs: pl.DataFrame, group: str) -> dict[str, float | int | None]:
    """Return the numbers of one group of jobs."""
    done = jobs.filter(pl.col("finish_s").is_not_null())
    return {
        "jobs": jobs.height,
        **(_violations(jobs) if group in HELD_TO else {}),
        **_times(done, "jct_s", "queue_s", "first_queue_s"),
        **(_lateness(jobs) if group in (*HELD_TO, "missed") else {}),
        "preemptions_per_job": _mean(jobs["preemptions"]),
        "resizes_per_job": _mean(jobs["resizes"]),
    }


def _violations(slo: pl.DataFrame) -> dict[str, float | int | None]:
    return {
        "slo_violation_rate": _mean(~slo["deadline_met"]),
        "slo_violation_rate_weighted": _mean(slo["value_lost"]),
    }


def _lateness(slo: pl.DataFrame) -> dict[str, float | int | None]:
    late_s = slo["tardiness_s"].drop_nulls()
    p95 = float(np.percentile(late_s.to_numpy(), 95)) if len(late_s) else None
    return {"tardiness_s_mean": _mean(late_s), "tardiness_s_p95": p95}


def _times(done: pl.DataFrame, *columns: str) -> dict[str, float | int | None]:
    """Return mean and median of columns."""
    found: dict[str, float | int | None] = {}
    for name in columns:
        found |= {f"{name}_mean": _mean(done[name]), f"{name}_p50": _median(done[name])}
    return found


def _of_group(name: str) -> pl.Expr:
    match name:
        case "met":
            return pl.col("deadline_met")
        case "missed":
            return ~pl.col("deadline_met")
        case "promised":
            return pl.col("promise_kept").is_not_null()
        case "refused":
            return pl.col("promise_kept").is_null() & pl.col("deadline_met").is_not_null()
        case _:
            return pl.col("service_class") == name


def _mean(values: pl.Series) -> float | None:
    found = values.mean()
    return float(found) if isinstance(found, int | float) else None


def _median(values: pl.Series) -> float | None:
    found = values.median()
    return float(found) if isinstance(found, int | float) else None
