"""`Trace`: a job history as columns, with an account of every row it was read from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo

import numpy as np
import polars as pl

from trimtab.errors import ConfigError, InputError

DAY_MS = 86_400_000
LONGEST_MS = 1000 * 366 * DAY_MS  # no time that somebody asks for is longer

# Every column a trace may have, in the order tables are written. The first four are always there.
SCHEMA: Mapping[str, pl.DataType] = {
    "job_id": pl.String(),  # the source's own label; dense engine ids are the row index
    "submit_ms": pl.Int64(),  # dated traces: Unix time in UTC; others: as the source counts
    "duration_ms": pl.Int64(),  # run time at full speed
    "gpus": pl.Int64(),  # GPUs of the gang, at least 1
    "vc": pl.String(),
    "user": pl.String(),
    "name": pl.String(),
    "state": pl.String(),
    "start_ms": pl.Int64(),  # when the real scheduler started it, same clock as submit_ms
    "end_ms": pl.Int64(),
    "cpus": pl.Float64(),
    "memory_gib": pl.Float64(),
    "limit_ms": pl.Int64(),  # the run time the user asked for; null where there is no limit
    "account": pl.String(),  # whom its GPU time is charged to
    "qos": pl.String(),
    "model": pl.String(),
    "dataset": pl.String(),
    "batchsize": pl.Int64(),
    "amp": pl.Int64(),  # 1: mixed precision
    "deadline_ms": pl.String(),  # after submission; several joined by "/"
    "deadline_value": pl.String(),
    "service_class": pl.String(),
    "gpu_util": pl.Float64(),  # %, of the GPU's time; so is gmem_util
    "gmem_util": pl.Float64(),
    "gmem_mib": pl.Float64(),  # on each GPU
    "sharescore": pl.Int64(),
    "spread_speed": pl.Float64(),  # speed when not consolidated, 1 where that costs nothing
}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Rows a loader did not use, and why; `example` is one of them as the source wrote it."""

    reason: str
    count: int
    example: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a trace came from and what became of each row.

    Of a freshly loaded trace rows + expanded = kept + unrun + sum of left out + joined, exactly.
    """

    source: str  # FORMAT:PATH or the synthetic spec
    sha256: str  # of the file's bytes as stored; of the spec if synthetic
    rows: int
    left_out: tuple[LeftOut, ...] = ()
    mapping: Mapping[str, str] = field(default_factory=dict)  # our column -> the source's column
    notes: tuple[str, ...] = ()  # assumptions the loader made, one sentence each
    joined: int = 0  # rows that became part of another row's job (a requeue, a heterogeneous part)
    expanded: int = 0  # jobs beyond the first that one row stands for (a pending array's tasks)

    def left_out_counts(self) -> dict[str, int]:
        """Return reason -> rows."""
        return {item.reason: item.count for item in self.left_out}


@dataclass(frozen=True, slots=True)
class Trace:
    """A job history.

    Attributes:
        jobs: One row a job that ran, columns of `SCHEMA` that the source has, sorted by submit time;
            rows of one instant keep the source's order. The row index is the engine's job id.
        unrun: Arrivals without a known run (cancelled while pending, still pending or running), same
            columns, `duration_ms` null. They count as arrivals and are never simulated.
        dated: Whether times are calendar times (Unix milliseconds) or offsets on the source's clock.
        zone: The zone that dates without one are read and shown in.
        zero_ms: What outputs call second 0.
        set_aside: Jobs that were loaded but are not asked for, by reason (outside a window, thinned).
    """

    jobs: pl.DataFrame
    unrun: pl.DataFrame
    provenance: Provenance
    dated: bool = False
    zone: tzinfo = UTC
    zero_ms: int = 0
    set_aside: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def build(
        cls,
        jobs: pl.DataFrame,
        provenance: Provenance,
        *,
        dated: bool = False,
        zone: tzinfo = UTC,
        unrun: pl.DataFrame | None = None,
    ) -> Trace:
        """Sort, order columns, set second 0 (the first midnight of a dated trace) and check the promises.

        Raises:
            InputError: If no job is left.
        """
        if jobs.is_empty():
            reasons = "; ".join(f"{item.count} x {item.reason}" for item in provenance.left_out)
            raise InputError(
                f"{provenance.source}: no job left of {provenance.rows} rows"
                f"{f' ({reasons})' if reasons else ''}; nothing to simulate."
            )
        ordered = _ordered(jobs)
        pending = _ordered(unrun) if unrun is not None else ordered.clear()
        zero_ms = _midnight_ms(int(ordered["submit_ms"][0]), zone) if dated else 0
        return cls(ordered, pending, provenance, dated, zone, zero_ms)

    def __len__(self) -> int:
        return self.jobs.height

    def column(self, name: str) -> np.ndarray:
        """Return a numeric column as an int64 or float64 array, shape (jobs,)."""
        return self.jobs[name].to_numpy()

    def labels(self, name: str) -> list[str | None]:
        """Return a text column as a list; all None where the trace has no such column."""
        if name not in self.jobs.columns:
            return [None] * len(self)
        return self.jobs[name].to_list()

    @property
    def span_ms(self) -> tuple[int, int]:
        """The first and the last submit time."""
        return int(self.jobs["submit_ms"][0]), int(self.jobs["submit_ms"][-1])

    def show(self, time_ms: int) -> str:
        """Return an instant as people read it: a date in the trace's zone, or days on its clock."""
        if self.dated:
            return datetime.fromtimestamp(time_ms / 1000, self.zone).strftime("%Y-%m-%d %H:%M:%S")
        return f"{time_ms / DAY_MS:.2f}d"

    def instant_ms(self, text: str) -> int:
        """Parse a date, a date with time, or an offset such as `7d`, `36h`, `90s` from second 0.

        Raises:
            ConfigError: If the text is none of these, or a date is asked of a trace without dates.
        """
        offset = re.fullmatch(r"(-?\d+(?:\.\d+)?)(d|h|m|s)", text.strip())
        if offset:
            unit_ms = {"d": DAY_MS, "h": 3_600_000, "m": 60_000, "s": 1000}[offset[2]]
            origin_ms = _midnight_ms(self.span_ms[0], self.zone) if self.dated else 0
            return origin_ms + round(float(offset[1]) * unit_ms)
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            raise ConfigError(
                f"time {text!r} is neither a date like 2017-10-06 nor an offset like 7d; nothing was run."
            ) from None
        if not self.dated:
            raise ConfigError(f"time {text!r} is a date, but this trace has only offsets; write e.g. 7d.")
        return round((moment if moment.tzinfo else moment.replace(tzinfo=self.zone)).timestamp() * 1000)

    def window(self, text: str) -> Trace:
        """Return the jobs submitted in a half-open window `START..END`; its start becomes second 0 if dated.

        Raises:
            ConfigError: If the text is no window or it ends before it starts.
            InputError: If no job is submitted in it; the message gives the trace's span.
        """
        start_ms, end_ms = self.window_ms(text)
        inside = (pl.col("submit_ms") >= start_ms) & (pl.col("submit_ms") < end_ms)
        jobs = self.jobs.filter(inside)
        if jobs.is_empty():
            first, last = (self.show(time_ms) for time_ms in self.span_ms)
            raise InputError(f"window {text}: no job is submitted in it; the trace spans {first} .. {last}.")
        zero_ms = start_ms if self.dated else self.zero_ms
        aside = _added(self.set_aside, "outside the window", len(self) - jobs.height)
        return replace(self, jobs=jobs, unrun=self.unrun.filter(inside), zero_ms=zero_ms, set_aside=aside)

    def window_ms(self, text: str) -> tuple[int, int]:
        """Return the bounds of a window, half-open; see `window`."""
        start, dots, end = text.partition("..")
        if not dots or not start or not end:
            raise ConfigError(f"window {text!r} is not START..END, e.g. 2017-10-06..2017-10-20 or 7d..21d.")
        start_ms, end_ms = self.instant_ms(start), self.instant_ms(end)
        if end_ms <= start_ms:
            raise ConfigError(f"window {text} ends before it starts; nothing was run.")
        return start_ms, end_ms

    def select(self, keep: Sequence[bool] | np.ndarray, reason: str = "not selected") -> Trace:
        """Return the jobs where `keep`, shape (jobs,), is true; the others are set aside for a reason."""
        jobs = self.jobs.filter(pl.Series(keep))
        return replace(self, jobs=jobs, set_aside=_added(self.set_aside, reason, len(self) - jobs.height))


def _ordered(frame: pl.DataFrame) -> pl.DataFrame:
    columns = [pl.col(name).cast(kind) for name, kind in SCHEMA.items() if name in frame.columns]
    return frame.select(columns).sort("submit_ms", maintain_order=True)


def _midnight_ms(time_ms: int, zone: tzinfo) -> int:
    moment = datetime.fromtimestamp(time_ms / 1000, zone)
    return round(moment.replace(hour=0, minute=0, second=0, microsecond=0).timestamp() * 1000)


def _added(counts: Mapping[str, int], reason: str, count: int) -> dict[str, int]:
    return {**counts, reason: counts.get(reason, 0) + count} if count else dict(counts)
