"""From what became of each job to the table people read and the numbers they compare."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trimtab.cluster import Cluster
from trimtab.curve import Share
from trimtab.simulate.deadlines import deadline_columns, deadline_metrics
from trimtab.simulate.pairs import shared_stretches
from trimtab.simulate.state import NONE_MS, Outcomes
from trimtab.simulate.workload import Workload
from trimtab.timeline import Timeline
from trimtab.traces.trace import Trace

Metrics = dict[str, float | int | None]
Array = NDArray[np.float64]

# Metrics that need a finished job; in this order behind the counts.
_OF_FINISHED = (
    "jct_s_mean",
    "jct_s_p50",
    "jct_s_p99",
    "wait_s_mean",
    "wait_s_p50",
    "wait_s_p99",
    "queue_s_mean",
    "queue_s_p50",
    "slowdown_mean",
    "gpu_utilisation",
    "makespan_s",
    *(_RHO := ("rho_le_1_share", "rho_le_1_1_share", "rho_p95", "rho_max")),
)


def jobs_table(workload: Workload, outcomes: Outcomes, trace: Trace | None = None) -> pl.DataFrame:
    """Return one row a job, in id order; times in seconds on the trace's output clock.

    `wait_s` is JCT less run time (restart cost and slowdown included); `queue_s` is the time without
    GPUs. Both are null for jobs that did not finish. Deadlines and promises add theirs, see
    `deadline_columns`, and so does `trace` what it knows.
    """
    finished = outcomes.finished
    submit = np.array([facts.submit_ms for facts in workload.facts], dtype=np.int64)
    duration = np.array(workload.duration_ms, dtype=np.int64)
    jct = np.where(finished, outcomes.finish_ms, 0) - submit
    columns: dict[str, Any] = {
        "job_id": [facts.label for facts in workload.facts],
        "submit_s": submit / 1000,
        "start_s": _seconds(outcomes.first_start_ms, outcomes.first_start_ms != NONE_MS),
        "finish_s": _seconds(outcomes.finish_ms, finished),
        "gpus": [facts.gpus for facts in workload.facts],
        "duration_s": duration / 1000,
        "wait_s": _seconds(jct - duration, finished),
        "queue_s": _seconds(jct - outcomes.held_ms, finished),
        "jct_s": _seconds(jct, finished),
        "held_s": _seconds(outcomes.held_ms, finished),
        "preemptions": outcomes.preemptions,
        "rejected": outcomes.rejected,
        "resizes": outcomes.resizes,
        "vc": pl.Series([facts.vc for facts in workload.facts], dtype=pl.String),
        **deadline_columns(workload.facts, outcomes),
    }
    table = pl.DataFrame(columns)
    return table if trace is None else _with_trace(table, trace)


def _seconds(times_ms: NDArray[np.int64], known: NDArray[np.bool_]) -> pl.Series:
    """Return seconds, null where a time is not known."""
    return pl.Series(np.where(known, times_ms / 1000, np.nan), nan_to_null=True)


def _with_trace(table: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Add what a trace says each job trains."""
    if "model" not in trace.jobs.columns:
        return table
    extra = trace.jobs.select("job_id", "model").unique("job_id", keep="first")
    return table.join(extra, on="job_id", how="left", maintain_order="left")


def metrics_of(
    table: pl.DataFrame, cluster: Cluster, twice_gpu_s: float = 0.0, held: Share | None = None
) -> Metrics:
    """Return the numbers of one run; percentiles by linear interpolation, null where one does not apply.

    Numbers of deadlines and promises stand there only where jobs have any (see `deadline_metrics`), those of
    CPU and memory only where they matter.

    Args:
        table: What became of each job.
        cluster: Where they ran.
        twice_gpu_s: GPU-seconds held by two jobs at once, which count once as used.
        held: CPU and memory held, in core-ms and MiB-ms; None where they do not matter.
    """
    done = table.filter(pl.col("finish_s").is_not_null())
    deadlines = deadline_metrics(table)
    if done.is_empty():
        return {**_counts(table), **dict.fromkeys(_OF_FINISHED), **deadlines}
    jct, wait, queue = (done[name].to_numpy() for name in ("jct_s", "wait_s", "queue_s"))
    makespan_s = float(done["finish_s"].max()) - float(table["submit_s"].min())  # type: ignore[arg-type]
    gpu_s = float((done["held_s"] * done["gpus"]).sum()) - twice_gpu_s
    ran = done.filter(pl.col("duration_s") > 0)
    return {
        **_counts(table),
        "jct_s_mean": float(jct.mean()),
        "jct_s_p50": float(np.percentile(jct, 50)),
        "jct_s_p99": float(np.percentile(jct, 99)),
        "wait_s_mean": float(wait.mean()),
        "wait_s_p50": float(np.percentile(wait, 50)),
        "wait_s_p99": float(np.percentile(wait, 99)),
        "queue_s_mean": float(queue.mean()),
        "queue_s_p50": float(np.percentile(queue, 50)),
        "slowdown_mean": float((ran["held_s"] / ran["duration_s"]).mean()) if ran.height else None,  # type: ignore[arg-type]
        "gpu_utilisation": gpu_s / (cluster.gpus * makespan_s) if makespan_s > 0 else None,
        "makespan_s": makespan_s,
        **_fairness(rhos(ran, cluster)),
        **(_use_of_shares(table, cluster, held, makespan_s) if held is not None else {}),
        **deadlines,
    }


def _use_of_shares(table: pl.DataFrame, cluster: Cluster, held: Share, makespan_s: float) -> Metrics:
    """Return how much of the cluster's CPU and memory jobs held, and how often a job's were changed."""
    cores = sum(vc.nodes * vc.cores_per_node for vc in cluster.vcs)
    memory_mib = sum(vc.nodes * vc.memory_mib_per_node for vc in cluster.vcs)
    whole_ms = 1000 * makespan_s
    return {
        "cpu_utilisation": held.cores / (cores * whole_ms) if whole_ms else None,
        "memory_utilisation": held.memory_mib / (memory_mib * whole_ms) if whole_ms else None,
        "resizes_per_job": float(table["resizes"].mean()),  # type: ignore[arg-type]
    }


def _counts(table: pl.DataFrame) -> Metrics:
    return {
        "jobs": table.height,
        "finished": int(table["finish_s"].is_not_null().sum()),
        "rejected": int(table["rejected"].sum()),
        "preemptions": int(table["preemptions"].sum()),
    }


def _fairness(rho: pl.Series) -> Metrics:
    """Return the shares of jobs with rho <= 1 and <= 1.1, its 95th percentile and its maximum."""
    known = rho.drop_nulls().to_numpy()
    if not known.size:
        return dict.fromkeys(_RHO)
    found = (known <= 1).mean(), (known <= 1.1).mean(), np.percentile(known, 95), known.max()
    return dict(zip(_RHO, map(float, found), strict=True))


def rhos(table: pl.DataFrame, cluster: Cluster) -> pl.Series:
    """Return each job's finish-time fairness, null where it has none; 1 or less is fair.

    rho = JCT / (run time x max(1, GPUs x mean number of active jobs in its life / GPUs of its VC)), with the
    jobs of the table that finished as the active ones. A job of no duration has none.
    """
    found = np.full(table.height, np.nan)
    homes = np.array([-1 if (home := cluster.home(vc)) is None else home for vc in table["vc"].to_list()])
    columns = ("submit_s", "finish_s", "jct_s", "duration_s", "gpus")
    submit, finish, jct, run, gpus = (table[name].cast(pl.Float64).to_numpy() for name in columns)
    for home, vc in enumerate(cluster.vcs):
        here = (homes == home) & ~np.isnan(finish)
        begin, end = submit[here], finish[here]
        job_s = _job_seconds(begin, end, end) - _job_seconds(begin, end, begin)
        some = run[here] > 0
        crowding = np.maximum(1.0, gpus[here][some] * job_s[some] / (end - begin)[some] / vc.gpus)
        found[np.flatnonzero(here)[some]] = jct[here][some] / (run[here][some] * crowding)
    return pl.Series("rho", found, nan_to_null=True)


def _job_seconds(submit: Array, finish: Array, at: Array) -> Array:
    """Return the integral of the number of active jobs from the beginning up to each instant of `at`."""

    def passed(starts: Array) -> Array:
        ordered = np.sort(starts)
        sums = np.concatenate([[0.0], np.cumsum(ordered)])
        count = np.searchsorted(ordered, at, side="right")
        return np.asarray(count * at - sums[count])

    return passed(submit) - passed(finish)


def load_series(timeline: Timeline, step_ms: int) -> pl.DataFrame:
    """Return mean GPUs held and mean jobs pending per step: columns `time_s, gpus_held, jobs_pending`.

    GPUs under two jobs count once.
    """
    changes = {"submit": (0, 1), "reject": (0, -1), "start": (1, -1), "preempt": (-1, 1), "finish": (-1, 0)}
    rows = [
        (event.time_ms, sign * timeline.gpus[event.job], waiting)
        for event in timeline.events
        if event.job is not None and event.kind in changes
        for sign, waiting in [changes[event.kind]]
    ]
    for from_ms, until_ms, gpus, _ in shared_stretches(timeline):
        rows += [(from_ms, -gpus, 0), (until_ms, gpus, 0)]
    rows.sort(key=itemgetter(0))
    if not rows:
        return pl.DataFrame(
            schema={"time_s": pl.Float64, "gpus_held": pl.Float64, "jobs_pending": pl.Float64}
        )
    times, gpu_steps, pending = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    first, last = times[0] // step_ms * step_ms, times[-1]
    edges = np.arange(first, last + step_ms, step_ms)
    return pl.DataFrame(
        {
            "time_s": edges[:-1] / 1000,
            "gpus_held": _step_means(times, np.cumsum(gpu_steps), edges),
            "jobs_pending": _step_means(times, np.cumsum(pending), edges),
        }
    )


def _step_means(times: NDArray[np.int64], levels: NDArray[np.int64], edges: NDArray[np.int64]) -> Array:
    """Return the mean of a step function between successive edges; it is 0 before its first time."""
    area = np.concatenate([[0], np.cumsum(levels[:-1] * np.diff(times))])
    before = np.searchsorted(times, edges, side="right") - 1
    at = np.where(before < 0, 0, area[before] + levels[before] * (edges - times[before]))
    return np.asarray(np.diff(at) / np.diff(edges))
