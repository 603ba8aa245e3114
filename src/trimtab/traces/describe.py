"""What is in a trace: how much, how it arrives, how it runs, what was left out, and what to beware of."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from trimtab.errors import InputError
from trimtab.traces import statistics
from trimtab.traces.statistics import BIN_MS, DAY_MS, HOUR_MS, Repeats
from trimtab.traces.trace import LeftOut, Trace

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_CAP_SHARE = 0.5  # per cent of jobs with the very longest run time, from which it is taken for a cap
_BURST_DISPERSION = 10.0
_QUIET_DAY_SHARE = 0.05  # of the median day's arrivals
_SPAN_MAX_MS = 100 * 365 * DAY_MS
_LONG_MEDIAN_MS = 5 * DAY_MS


@dataclass(frozen=True, slots=True)
class ClassShare:
    """A class of jobs: its share of jobs and of GPU time, in per cent."""

    name: str
    jobs: float
    gpu_time: float


@dataclass(frozen=True, slots=True)
class Description:
    """A trace in numbers. Shares are per cent; None where a statistic does not apply."""

    source: str
    sha256: str
    rows: int
    kept: int
    unrun: int
    left_out: tuple[LeftOut, ...]
    mapping: dict[str, str]
    notes: tuple[str, ...]
    dated: bool
    zone: str
    first: str  # first and last submission, as dates or days on the source's clock
    last: str
    span_days: float
    jobs_a_day: float | None
    gpu_hours: float
    cluster_gpus: int | None
    load: float | None  # GPU time asked for over the cluster's in the span of submissions
    largest_gang: int
    gangs: tuple[ClassShare, ...]
    run_times: tuple[ClassShare, ...]
    run_time_s: dict[str, float]  # quantiles: p10 p50 p90 p99
    arrivals_dispersion: float | None  # variance over mean of arrivals per 5 minutes
    arrivals_autocorrelation: dict[str, float | None]  # at 5min 1h 24h 168h
    arrivals_by_hour: tuple[int, ...]  # hour of the day in the trace's zone, 24 counts
    arrivals_by_weekday: dict[str, int] | None  # None without dates
    busiest_5min: int
    busiest_at: str
    same_second_share: float
    duplicates: int  # jobs equal to an earlier one in everything but the id
    users: Repeats | None
    vcs: Repeats | None
    warnings: tuple[str, ...]

    def jsonable(self) -> dict[str, Any]:
        """Return the description as JSON values; what is not a number is None."""
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}


def describe(trace: Trace, gpus: int | None = None) -> Description:
    """Describe a trace; `gpus` is the size of the cluster that load is stated for."""
    submit_ms, duration_ms, gang = (trace.column(name) for name in ("submit_ms", "duration_ms", "gpus"))
    first_ms, last_ms = trace.span_ms
    span_ms = last_ms - first_ms
    if span_ms > _SPAN_MAX_MS:
        raise InputError(
            f"{trace.provenance.source}: submissions span {span_ms / DAY_MS:,.0f} days, from job "
            f"{trace.jobs['job_id'][0]} to job {trace.jobs['job_id'][-1]}; at most "
            f"{_SPAN_MAX_MS // DAY_MS:,} can be described: are its times seconds?"
        )
    gpu_ms = statistics.gpu_time_ms(gang, duration_ms)
    counts = statistics.arrival_counts(submit_ms, first_ms, last_ms + 1)
    quantiles = statistics.run_time_quantiles_s(duration_ms)
    busiest, busiest_ms = statistics.busiest(submit_ms)
    hours, weekdays = _calendar(submit_ms, trace.zone if trace.dated else UTC)
    provenance = trace.provenance
    return Description(
        source=provenance.source,
        sha256=provenance.sha256,
        rows=provenance.rows,
        kept=len(trace),
        unrun=trace.unrun.height,
        left_out=provenance.left_out,
        mapping=dict(provenance.mapping),
        notes=provenance.notes,
        dated=trace.dated,
        zone=str(trace.zone),
        first=trace.show(first_ms),
        last=trace.show(last_ms),
        span_days=span_ms / DAY_MS,
        jobs_a_day=len(trace) * DAY_MS / span_ms if span_ms else None,
        gpu_hours=float(gpu_ms.sum()) / HOUR_MS,
        cluster_gpus=gpus,
        load=statistics.load(gang, duration_ms, span_ms, gpus) if gpus and span_ms else None,
        largest_gang=int(gang.max()),
        gangs=_classes(
            statistics.GANG_NAMES, statistics.gang_shares(gang), statistics.gang_shares(gang, gpu_ms)
        ),
        run_times=_classes(
            statistics.RUN_TIME_NAMES,
            statistics.run_time_shares(duration_ms),
            statistics.run_time_shares(duration_ms, gpu_ms),
        ),
        run_time_s={
            f"p{round(100 * q)}": float(v) for q, v in zip(statistics.QUANTILES, quantiles, strict=True)
        },
        arrivals_dispersion=_known(statistics.dispersion(counts)),
        arrivals_autocorrelation={
            name: _known(statistics.autocorrelation(counts, lag))
            for name, lag in zip(("5min", "1h", "24h", "168h"), statistics.LAGS_BINS, strict=True)
        },
        arrivals_by_hour=tuple(int(count) for count in np.bincount(hours, minlength=24)),
        arrivals_by_weekday=(
            dict(zip(WEEKDAYS, (int(count) for count in np.bincount(weekdays, minlength=7)), strict=True))
            if trace.dated
            else None
        ),
        busiest_5min=busiest,
        busiest_at=trace.show(busiest_ms),
        same_second_share=statistics.same_second_share(submit_ms),
        duplicates=_duplicates(trace.jobs),
        users=_repeats(trace, "user"),
        vcs=_repeats(trace, "vc"),
        warnings=tuple(warnings(trace, gpus)),
    )


def warnings(trace: Trace, gpus: int | None = None) -> list[str]:
    """Return what a reader of results should know about the trace, one sentence each."""
    submit_ms, duration_ms, gang = (trace.column(name) for name in ("submit_ms", "duration_ms", "gpus"))
    first_ms, last_ms = trace.span_ms
    found = []
    longest_ms = int(duration_ms.max())
    capped = int(np.sum(duration_ms == longest_ms))
    if capped >= 5 and 100.0 * capped / len(trace) >= _CAP_SHARE:
        found.append(
            f"{capped} jobs ({100 * capped / len(trace):.1f} %) run exactly {longest_ms / HOUR_MS:g} h, the"
            " longest run time: a cap that hides GPU time."
        )
    if float(np.median(duration_ms)) > _LONG_MEDIAN_MS:
        found.append("Half of the jobs run over 5 days: are the source's times seconds?")
    days = np.bincount((submit_ms - _day_start_ms(trace)) // DAY_MS)
    whole = days[1:-1]  # the first and the last day may be cut
    if len(whole):
        empty = int(np.sum(whole == 0))
        quiet = int(np.sum(whole < _QUIET_DAY_SHARE * np.median(whole))) - empty
        if empty or quiet > 0:
            found.append(
                f"{empty} days of {len(days)} have no arrival, {max(quiet, 0)} more under 5 % of a usual day."
            )
    counts = statistics.arrival_counts(submit_ms, first_ms, last_ms + 1, BIN_MS)
    if statistics.dispersion(counts) > _BURST_DISPERSION:
        busiest, at_ms = statistics.busiest(submit_ms)
        found.append(
            f"Arrivals come in bursts (variance/mean {statistics.dispersion(counts):.1f} per 5 minutes; the"
            f" largest {busiest} jobs about {trace.show(at_ms)}): ties decide single runs, use --tie-seeds."
        )
    wide = int(np.sum(gang > gpus)) if gpus else 0
    if wide:
        found.append(f"{wide} jobs ask for more than the cluster's {gpus} GPUs and can never start.")
    duplicates = _duplicates(trace.jobs)
    if duplicates:
        found.append(f"{duplicates} jobs equal an earlier one in all but the id: kept.")
    repeated = trace.jobs.height - trace.jobs["job_id"].n_unique()
    if repeated:
        found.append(f"{repeated} jobs have the id of another one: outputs that name jobs by id mix them up.")
    left_out = sum(item.count for item in trace.provenance.left_out)
    if left_out > 0.1 * trace.provenance.rows:
        found.append(f"{left_out} of {trace.provenance.rows} rows were left out.")
    return found


def _classes(names: tuple[str, ...], jobs: np.ndarray, gpu_time: np.ndarray) -> tuple[ClassShare, ...]:
    return tuple(
        ClassShare(name, float(share), float(heavy))
        for name, share, heavy in zip(names, jobs, gpu_time, strict=True)
    )


def _calendar(submit_ms: np.ndarray, zone: tzinfo) -> tuple[np.ndarray, np.ndarray]:
    """Return hour of day and weekday (Monday 0) of each arrival in the zone."""
    moments = pl.Series("at", submit_ms).cast(pl.Datetime("ms"))
    if isinstance(zone, ZoneInfo):
        moments = moments.dt.replace_time_zone("UTC").dt.convert_time_zone(zone.key)
    else:
        offset = zone.utcoffset(None)
        moments = moments + offset if offset else moments
    return moments.dt.hour().to_numpy().astype(np.int64), moments.dt.weekday().to_numpy().astype(np.int64) - 1


def _day_start_ms(trace: Trace) -> int:
    first_ms = trace.span_ms[0]
    return trace.instant_ms("0d") if trace.dated else first_ms // DAY_MS * DAY_MS


def _duplicates(jobs: pl.DataFrame) -> int:
    facts = jobs.drop("job_id")
    return facts.height - facts.n_unique()


def _repeats(trace: Trace, column: str) -> Repeats | None:
    return statistics.repeats(trace.labels(column)) if column in trace.jobs.columns else None


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return _known(value)
    return value
