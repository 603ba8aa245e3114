"""Which jobs will be submitted next? Segments of the past, copied to the future.

Every forecaster says which segments of the record are copied to which part of the horizon, and which share
of their jobs is taken. Segments end at the present or before. The single nearest segment is AutoSched's
Global Generator [Gao et al., ICS'24]; the others are what it has to beat, and mixtures that do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from trimtab.errors import ConfigError, UnknownName
from trimtab.forecast.history import Integers, Past
from trimtab.forecast.period import find_periods
from trimtab.forecast.record import BIN_MS, DAY, HOUR, KEEP, REACH, WEEK, Booleans, Reals, Record

NEIGHBOURS = 8
PHASE_CONFIDENCE_MIN = 0.3
DAYS = 14  # of which hours of the day are averaged
DAYS_AGO = (1, 7, 2, 3)  # of several futures that each copy one day

_EVEN = np.full(DAYS, 1 / DAYS)
# Shares of days in blends: yesterday tells the level, the same day of last week the kind of day.
_LEVEL = 0.6 * _EVEN + 0.2 * (np.arange(1, DAYS + 1) == 1) + 0.2 * (np.arange(1, DAYS + 1) == 7)
_FACTOR_MAX = 3.0
_LIKENESS = HOUR  # bins before the present that are compared with the past
_PHASE = HOUR  # bins that a segment may be off a multiple of the period
_DIGITS = 9  # of squared distances: what rounding makes of equal ones is equal


class Piece(NamedTuple):
    """A segment copied to [at, at + length) of the horizon, one for each origin; all in bins.

    `start` and `weight` have shape (origins,); a weight is the share of the segment's jobs that is taken,
    0 where the segment is not usable.
    """

    start: Integers
    weight: Reals
    at: int
    length: int


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Jobs to come.

    Attributes:
        submit_ms: When they are submitted, ascending, in [now, now + horizon), shape (jobs,).
        source: Which job of the `Past` each is a copy of, shape (jobs,); one may have several copies.
        method: The forecaster that was used.
        reason: Why it is not the one asked for, or why there is no job; empty otherwise.
    """

    submit_ms: Integers
    source: Integers
    method: str
    reason: str = ""

    def __len__(self) -> int:
        return len(self.submit_ms)

    def since(self, time_ms: int) -> Arrivals:
        """Return those submitted at an instant or later."""
        first = int(np.searchsorted(self.submit_ms, time_ms))
        return replace(self, submit_ms=self.submit_ms[first:], source=self.source[first:])


@dataclass(frozen=True, eq=False)
class View:
    """The record as seen from several instants (origins), each of which knows only what is before it.

    Attributes:
        record: Arrivals up to the last origin or later.
        origins: Bins of the record at whose beginning a forecast is made, shape (origins,).
        horizon: Bins to forecast.
    """

    record: Record
    origins: Integers
    horizon: int

    def piece(self, start: Integers, at: int, length: int) -> Piece:
        """Return a segment copied whole where it is usable and over before the origin."""
        usable = self.record.usable(start, length) & (start + length <= self.origins)
        return Piece(start, usable.astype(np.float64), at, length)

    @cached_property
    def distances(self) -> Reals:
        """Squared distances of the hour before an origin to that before each bin, (origins, bins + 1).

        The mean over twelve bins of squared differences of log (1 + count); infinite where the segment
        after the bin is not usable, not over before the origin, or more than 28 days ago.
        """
        bins = len(self.record)
        found = np.full((len(self.origins), bins + 1), np.inf)
        if bins < _LIKENESS + self.horizon:
            return found
        logs = np.log1p(self.record.counts.astype(np.float64))
        windows = np.lib.stride_tricks.sliding_window_view(logs, _LIKENESS)
        square = np.einsum("ij,ij->i", windows, windows)
        seen = self.record.usable(self.origins - _LIKENESS, _LIKENESS)
        mine = np.where(seen, self.origins - _LIKENESS, 0)
        apart = square[mine][:, None] + square - 2 * (windows[mine] @ windows.T)
        apart = np.round(np.maximum(apart, 0) / _LIKENESS, _DIGITS)
        ends = np.arange(_LIKENESS, bins + 1)
        usable = self.record.usable(ends - _LIKENESS, _LIKENESS + self.horizon)
        late = ends + self.horizon > self.origins[:, None]
        early = ends < self.origins[:, None] - REACH
        apart[late | early | ~usable | ~seen[:, None]] = np.inf
        found[:, _LIKENESS:] = apart
        return found

    @cached_property
    def in_phase(self) -> Booleans | None:
        """Which bins are a multiple of the period before an origin, (origins, bins + 1); None without one."""
        counts = self.record.counts[max(0, int(self.origins[-1]) - REACH) : self.origins[-1]]
        periods = [one for one in find_periods(counts, BIN_MS) if one.confidence >= PHASE_CONFIDENCE_MIN]
        if not periods:
            return None
        period = periods[0].period_ms / BIN_MS
        ago = self.origins[:, None] - np.arange(len(self.record) + 1)
        off = np.abs(ago - np.rint(ago / period) * period)
        return np.asarray((off <= _PHASE) & (ago > period / 2))

    @cached_property
    def neighbours(self) -> list[Piece]:
        """The segments of least distance, nearest first, weighted by softmax(-distance)."""
        return self.nearest(NEIGHBOURS, self.distances)

    def nearest(self, count: int, distances: Reals) -> list[Piece]:
        """Return the segments of least distance, the later one of equals first; see `neighbours`."""
        ago = np.arange(distances.shape[1])[::-1]
        key = distances + ago * (0.1**_DIGITS / (10 * distances.shape[1]))
        count = min(count, distances.shape[1])
        some = np.argpartition(key, count - 1, axis=1)[:, :count]
        order = np.take_along_axis(some, np.argsort(np.take_along_axis(key, some, axis=1), axis=1), axis=1)
        weights = np.exp(-np.sqrt(np.take_along_axis(distances, order, axis=1)))
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        return [Piece(order[:, place], weights[:, place], 0, self.horizon) for place in range(count)]


# ---- forecasters ---------------------------------------------------------------------------------


def _again(view: View, span: int) -> list[Piece]:
    """Repeat the last `span` bins."""
    return [
        view.piece(view.origins - span, at, min(span, view.horizon - at))
        for at in range(0, view.horizon, span)
    ]


def _days(view: View, shares: Reals) -> list[Piece]:
    """Average the same hours of the last days, weighted by shares of shape (days,), the last day's first."""
    pieces = []
    for at in range(0, view.horizon, DAY):
        length = min(DAY, view.horizon - at)
        days = [view.piece(view.origins - ago * DAY, at, length) for ago in range(1, len(shares) + 1)]
        weights = shares[:, None] * np.array([day.weight for day in days])
        total = weights.sum(axis=0)
        weights /= np.where(total > 0, total, 1)
        pieces += [day._replace(weight=weight) for day, weight in zip(days, weights, strict=True)]
    return pieces


def _hour_of_day(view: View) -> list[Piece]:
    """Average the same hours of the last days."""
    return _days(view, _EVEN)


def _nearest(view: View) -> list[Piece]:
    """Copy the one nearest segment."""
    first = view.neighbours[0]
    return [first._replace(weight=np.ceil(first.weight))]


def _phase(view: View) -> list[Piece]:
    """Copy the nearest segment among those that are whole periods ago."""
    if view.in_phase is None:
        return []
    return view.nearest(1, np.where(view.in_phase, view.distances, np.inf))


def _blend(view: View, last_hour: float, scale: float) -> list[Piece]:
    """Mix the last hour into the next one of an hour-of-day mean, and take a share of it all.

    After the next hour, jobs are those of all days, and as many as yesterday and the same day of last week
    promise together with the mean day: these two tell how busy a day is, and a single day's jobs are too
    few to tell what they are like.
    """
    head = min(HOUR, view.horizon)
    again = view.piece(view.origins - HOUR, 0, head)
    even = _hour_of_day(view)
    known = np.sum([day.weight for day in even if day.at == 0], axis=0) > 0
    part = np.where(known, last_hour * again.weight, again.weight)
    pieces = [again._replace(weight=part)]
    level = expected(view.record, _days(view, _LEVEL), view.record.counts_before)
    for day, levelled in zip(even, _scaled(view, even, level), strict=True):
        cut = head if day.at == 0 else 0
        if cut:
            pieces.append(day._replace(weight=(1 - part) * day.weight, length=cut))
        if day.length > cut:
            pieces.append(levelled._replace(start=day.start + cut, at=day.at + cut, length=day.length - cut))
    return [piece._replace(weight=scale * piece.weight) for piece in pieces]


def _levelled(view: View, pieces: Sequence[Piece]) -> list[Piece]:
    """Take more or fewer of the jobs: as many as the pieces promise in the mean with the last hour."""
    record = view.record
    hourly = record.sums(record.counts_before, view.origins - HOUR, HOUR) * (view.horizon / HOUR)
    promised = expected(record, pieces, record.counts_before)
    known = record.usable(view.origins - HOUR, HOUR)
    return _scaled(view, pieces, np.where(known, (promised + hourly) / 2, promised))


def _scaled(view: View, pieces: Sequence[Piece], counts: Reals) -> list[Piece]:
    """Weight pieces so that they promise counts, shape (origins,); at most thrice what they do promise."""
    promised = expected(view.record, pieces, view.record.counts_before)
    factor = np.divide(counts, promised, out=np.ones_like(promised), where=promised > 0)
    return [piece._replace(weight=piece.weight * np.minimum(factor, _FACTOR_MAX)) for piece in pieces]


def _last_known(view: View) -> list[Piece]:
    """Repeat the last hour that is known, or all there is of a shorter record."""
    span = min(HOUR, len(view.record))
    usable = view.record.usable(np.arange(len(view.record)), span)
    before = np.cumsum(usable)  # usable starts up to a bin
    latest = np.searchsorted(before, before[np.maximum(0, view.origins - span)])
    return [
        view.piece(latest.astype(np.int64), at, min(span, view.horizon - at))
        for at in range(0, view.horizon, span)
    ]


Forecaster = Callable[[View], list[Piece]]

NAIVE: Mapping[str, Forecaster] = {
    "last-hour": lambda view: _again(view, HOUR),
    "yesterday": lambda view: _again(view, DAY),
    "last-week": lambda view: _again(view, WEEK),
    "hour-of-day": _hour_of_day,
}
SIMILAR: Mapping[str, Forecaster] = {
    "nearest": _nearest,
    "phase": _phase,
    "knn": lambda view: view.neighbours,
    "knn-levelled": lambda view: _levelled(view, view.neighbours),
}


def _blender(last_hour: float, scale: float) -> Forecaster:
    return lambda view: _blend(view, last_hour, scale)


BLENDS: Mapping[str, Forecaster] = {
    f"blend-{last_hour:g}-x{scale:g}": _blender(last_hour, scale)
    for last_hour in (0.2, 0.4, 0.7)
    for scale in (1.0, 0.8, 0.6)
}
METHODS: Mapping[str, Forecaster] = {**NAIVE, **SIMILAR, **BLENDS}

# What is tried, in this order, where a forecaster finds too little history.
_INSTEAD: Mapping[str, Forecaster] = {
    "hour-of-day": NAIVE["hour-of-day"],
    "last-hour": NAIVE["last-hour"],
    "last-known": _last_known,
}


def expected(record: Record, pieces: Sequence[Piece], before: Integers | Reals) -> Reals:
    """Return what pieces promise of a running sum of the record, by origin, shape (origins,)."""
    return np.asarray(sum(piece.weight * record.sums(before, piece.start, piece.length) for piece in pieces))


def covered(view: View, pieces: Sequence[Piece]) -> Booleans:
    """Return for which origins every bin of the horizon is covered by a piece, shape (origins,)."""
    covers = np.zeros((view.horizon, len(view.origins)), dtype=np.bool_)
    for piece in pieces:
        covers[piece.at : piece.at + piece.length] |= piece.weight > 0
    return np.asarray(covers.all(axis=0))


# ---- forecasts -----------------------------------------------------------------------------------


def forecast_arrivals(
    past: Past, horizon_ms: int, method: str, dice: np.random.Generator | None = None
) -> Arrivals:
    """Return the jobs expected in [now, now + horizon); where history is too short, say what was done.

    A mixture of segments is realised by taking jobs at equal steps of weight, in the order of the GPU time
    they have taken: small and large ones come in their proportions, and as many as expected. Without dice
    the steps begin at half a step, so that the middle of each step stands for it, which is nearer to the
    median than to the mean of GPU time. With dice they begin anywhere, and `knn` draws one of its
    neighbours instead.

    Args:
        past: What is known at the present.
        horizon_ms: How far to look, more than 0.
        method: One of `METHODS`.
        dice: Chance for one of several futures; None for the one best forecast.

    Raises:
        UnknownName: If there is no such method.
        ConfigError: If the horizon is not longer than nothing.
    """
    if method not in METHODS:
        raise UnknownName("arrival forecaster", method, METHODS)
    return arrivals_of(Record.of(past), horizon_ms, {method: METHODS[method]}, dice)


def day_again(past: Past, horizon_ms: int, days_ago: int) -> Arrivals:
    """Return the arrivals of the day that began `days_ago` x 24 h before the present, over and over.

    Raises:
        ConfigError: If the horizon is not longer than nothing or the day not over.
    """
    if days_ago < 1:
        raise ConfigError(f"days ago {days_ago}: it must be at least 1; nothing was forecast.")

    def copied(view: View) -> list[Piece]:
        start = view.origins - days_ago * DAY
        return [view.piece(start, at, min(DAY, view.horizon - at)) for at in range(0, view.horizon, DAY)]

    return arrivals_of(Record.of(past), horizon_ms, {f"{days_ago}-days-ago": copied}, None)


def arrivals_of(
    record: Record,
    horizon_ms: int,
    methods: Mapping[str, Forecaster],
    dice: np.random.Generator | None,
) -> Arrivals:
    """Return what the first of the methods that covers the horizon forecasts, or what can be had instead.

    Raises:
        ConfigError: If the horizon is not longer than nothing.
    """
    if horizon_ms <= 0:
        raise ConfigError(f"horizon {horizon_ms} ms: it must be longer than nothing; nothing was forecast.")
    asked = next(iter(methods))
    if not len(record):
        none = np.zeros(0, dtype=np.int64)
        return Arrivals(none, none, asked, f"no job was submitted in the last {KEEP // DAY} days")
    view = View(record, np.array([len(record)]), -(-horizon_ms // BIN_MS))
    for name, forecaster in {**methods, **_INSTEAD}.items():
        pieces = forecaster(view)
        if name == "last-known" or covered(view, pieces).all():
            break
    if dice is not None and name == "knn":
        pieces = [_drawn(pieces, dice)]
    found = _realised(record, pieces, horizon_ms, 0.5 if dice is None else float(dice.random()))
    reason = "" if name == asked else f"the history is too short or broken for {asked}"
    if not reason and not len(found[0]):
        reason = "nothing was submitted in what is copied"
    return Arrivals(*found, name, reason)


def _drawn(pieces: Sequence[Piece], dice: np.random.Generator) -> Piece:
    """Return one of the pieces, by weight, to be copied whole."""
    weights = np.array([piece.weight[0] for piece in pieces])
    one = pieces[int(np.searchsorted(np.cumsum(weights), dice.random() * weights.sum(), side="right"))]
    return one._replace(weight=np.ones(1))


def _realised(
    record: Record, pieces: Sequence[Piece], horizon_ms: int, begin: float
) -> tuple[Integers, Integers]:
    """Return submit times and sources of the jobs that pieces stand for; the one origin is the present."""
    past = record.past
    sources, submits, weights = [], [], []
    for piece in pieces:
        if piece.weight[0] > 0:
            start_ms = record.start_ms(int(piece.start[0]))
            to_ms = past.now_ms + piece.at * BIN_MS
            bounds_ms = (start_ms, start_ms + piece.length * BIN_MS)
            first, last = (int(place) for place in np.searchsorted(past.submit_ms, bounds_ms))
            sources.append(np.arange(first, last))
            submits.append(past.submit_ms[first:last] + (to_ms - start_ms))
            weights.append(np.full(last - first, piece.weight[0]))
    if not sources:
        none = np.zeros(0, dtype=np.int64)
        return none, none
    source, submit_ms, weight = (np.concatenate(parts) for parts in (sources, submits, weights))
    inside = submit_ms < past.now_ms + horizon_ms
    source, submit_ms, weight = source[inside], submit_ms[inside], weight[inside]
    if not np.all(weight == 1):
        taken = _taken(past.gpus[source] * past.ran_ms[source], source, submit_ms, weight, begin)
        source, submit_ms = source[taken], submit_ms[taken]
    order = np.lexsort((source, submit_ms))
    return submit_ms[order], source[order]


def _taken(service: Integers, source: Integers, submit_ms: Integers, weight: Reals, begin: float) -> Integers:
    """Return which jobs are taken at equal steps of weight in the order of service."""
    order = np.lexsort((submit_ms, source, service))
    total = np.cumsum(weight[order])
    count = int(total[-1] + begin) if len(total) else 0
    steps = (np.arange(count) + begin) / max(1, count) * (total[-1] if count else 0.0)
    places = np.searchsorted(total, steps, side="right").clip(max=len(order) - 1)
    return np.asarray(order[places], dtype=np.int64)
