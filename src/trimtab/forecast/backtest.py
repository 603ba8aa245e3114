"""How well would each arrival forecaster have done lately, and which one is to be believed now?

Every hour of the last week is forecast again from what was known of submissions then, and compared with what
came. The errors are computed anew from the record each time, in one pass over all hours: there is nothing to
keep between two forecasts, and nothing that could differ from a fresh start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trimtab.errors import ConfigError
from trimtab.forecast.arrivals import METHODS, Arrivals, View, arrivals_of, covered, expected
from trimtab.forecast.history import Integers, Past
from trimtab.forecast.record import BIN_MS, DAY, HOUR, WEEK, Reals, Record

HALF_LIFE = 3 * DAY
ORIGINS_MIN = 24  # hours to compare on; with fewer, nothing is chosen by them
JOBS_MIN = 50  # in 40 days; fewer do not tell what is usual
STRANGE_PERCENTILE = 95.0
FIRST_CHOICE = "blend-0.4-x1"  # until another is better beyond doubt

_DOUBT = 2.0  # standard errors
_ROUNDING_JOBS = 1e-6
_UNKNOWN_RECENTLY = WEEK  # an outage in these bins before the present lowers confidence


@dataclass(frozen=True, slots=True)
class Errors:
    """Weighted absolute percentage errors, 1 = 100 %: sum of |forecast - truth| by sum of truth.

    Attributes:
        count: Of the number of jobs.
        service: Of their GPU time, as far as it is known by the present.
    """

    count: float
    service: float

    @property
    def mean(self) -> float:
        return (self.count + self.service) / 2


@dataclass(frozen=True, slots=True)
class Belief:
    """Whether the present is of a kind that can be forecast from the past.

    Attributes:
        value: 0 to 1: 0 without enough history or in an outage, halved where the last hour is
            like nothing seen before, less by the share of the last week that an outage hides.
        reasons: What lowers it, one sentence each.
    """

    value: float
    reasons: tuple[str, ...] = ()

    def doubt(self, least: float) -> str | None:
        """Say why a forecast is not to be relied on that needs so much belief."""
        if self.value >= least:
            return None
        return f"the forecast is not to be relied on: {'; '.join(self.reasons)}"


FULL = Belief(1.0)


@dataclass(frozen=True, slots=True)
class Backtest:
    """What the last week says of each forecaster.

    Attributes:
        hours: Hours that were forecast again; 0 if there is too little history.
        errors: By method; recent hours count more, by a half-life of three days.
        best: The method to use: `FIRST_CHOICE` unless another one's counts are better beyond doubt.
        distance_percentile: Among the nearest distances of these hours, how many in 100 are smaller than the
            present one; None where there is none to compare.
        confidence: 0 to 1, see `backtest`.
        reasons: What lowers confidence, one sentence each.
    """

    hours: int
    errors: Mapping[str, Errors]
    best: str
    distance_percentile: float | None
    confidence: float
    reasons: tuple[str, ...]


def backtest(past: Past, horizon_ms: int) -> Backtest:
    """Compare all forecasters on the hours of the last week whose horizon is over.

    Confidence is how much better than repeating the last hour the best one is, max(0, 1 - error / error),
    times `belief`.

    Args:
        past: What is known at the present.
        horizon_ms: How far forecasts look, more than 0.

    Raises:
        ConfigError: If the horizon is not longer than nothing.
    """
    return _tested(Record.of(past), horizon_ms)


def best_arrivals(
    past: Past, horizon_ms: int, dice: np.random.Generator | None = None
) -> tuple[Arrivals, Backtest]:
    """Return the forecast of the method that did best lately, and how it did; see `forecast_arrivals`.

    Raises:
        ConfigError: If the horizon is not longer than nothing.
    """
    record = Record.of(past)
    tested = _tested(record, horizon_ms)
    return arrivals_of(record, horizon_ms, {tested.best: METHODS[tested.best]}, dice), tested


def belief(past: Past, horizon_ms: int) -> Belief:
    """Say whether the present can be forecast from the past (AutoSched in Trimtab, 4.1).

    The last hour is like nothing seen before if it is farther from anything in 28 days than 95 of 100 hours
    of the last week were.

    Args:
        past: What is known at the present.
        horizon_ms: How far forecasts look, more than 0.
    """
    record = Record.of(past)
    horizon = -(-horizon_ms // BIN_MS)
    origins = _origins(record, horizon)
    if len(origins) < ORIGINS_MIN:
        return Belief(0.0, (_too_short(origins),))
    jobs = int(record.counts.sum())
    if jobs < JOBS_MIN:
        return Belief(0.0, (f"only {jobs} jobs are known of the last 40 days, {JOBS_MIN} are needed",))
    return _belief(record, _percentile(View(record, np.append(origins, len(record)), horizon)))


def _too_short(origins: Integers) -> str:
    return f"only {len(origins)} past hours can be forecast again, {ORIGINS_MIN} are needed"


def _tested(record: Record, horizon_ms: int) -> Backtest:
    if horizon_ms <= 0:
        raise ConfigError(f"horizon {horizon_ms} ms: it must be longer than nothing; nothing was forecast.")
    horizon = -(-horizon_ms // BIN_MS)
    origins = _origins(record, horizon)
    if len(origins) < ORIGINS_MIN:
        return Backtest(0, {}, FIRST_CHOICE, None, 0.0, (_too_short(origins),))
    # The present is the last origin, so that its distances are found on the way.
    view = View(record, np.append(origins, len(record)), horizon)
    weight = 0.5 ** ((len(record) - horizon - origins) / HALF_LIFE)
    truths = [
        record.sums(before, origins, horizon) for before in (record.counts_before, record.service_before)
    ]
    forecasts = _forecasts(view)
    errors = {
        name: Errors(*(_wape(one[:-1], truth, weight) for one, truth in zip(found, truths, strict=True)))
        for name, found in forecasts.items()
    }
    best = _best(
        {name: np.abs(count[:-1] - truths[0]) for name, (count, _) in forecasts.items()}, weight, horizon
    )
    percentile = _percentile(view)
    believed = _belief(record, percentile)
    confidence = _lead(errors, best) * believed.value
    return Backtest(len(origins), errors, best, percentile, confidence, believed.reasons)


def _origins(record: Record, horizon: int) -> Integers:
    """Return the hours of a week whose horizon is over and known, as is the hour before, oldest first."""
    latest = len(record) - horizon
    origins = np.arange(latest, max(HOUR - 1, latest - WEEK), -HOUR)[::-1]
    return origins[record.usable(origins - HOUR, HOUR + horizon)]


def _forecasts(view: View) -> dict[str, tuple[Reals, Reals]]:
    """Return counts and service by method and origin; where history is too short, the last hour's."""
    record = view.record
    found: dict[str, tuple[Reals, Reals]] = {}
    for name, forecaster in METHODS.items():
        pieces = forecaster(view)
        sums = tuple(
            expected(record, pieces, before) if pieces else np.zeros(len(view.origins))
            for before in (record.counts_before, record.service_before)
        )
        known = covered(view, pieces)
        instead = found.get("last-hour", sums)
        count, service = (np.where(known, one, other) for one, other in zip(sums, instead, strict=True))
        found[name] = (count, service)
    return found


def _wape(forecast: Reals, truth: Reals, weight: Reals) -> float:
    """Return the weighted error; 0 for nothing forecast as nothing, infinity for something."""
    missed, total = float(np.dot(weight, np.abs(forecast - truth))), float(np.dot(weight, truth))
    return missed / total if total > 0 else (0.0 if missed == 0 else float("inf"))


def _best(missed: Mapping[str, Reals], weight: Reals, horizon: int) -> str:
    """Return the method whose count is off by least, or the first choice if that is not worse beyond doubt.

    Doubt is two standard errors of the paired difference, with as many independent pairs as horizons fit into
    the effective number of hours. Counts decide alone: how long the copies will run is drawn elsewhere.
    """
    best = min(missed, key=lambda name: float(np.dot(weight, missed[name])))
    gain = missed[FIRST_CHOICE] - missed[best]
    share = weight / weight.sum()
    mean = float(np.dot(share, gain))
    pairs = max(1.0, 1 / float(np.dot(share, share)) * HOUR / max(HOUR, horizon))
    error = float(np.sqrt(np.dot(share, (gain - mean) ** 2) / pairs))
    return best if mean > _DOUBT * error + _ROUNDING_JOBS else FIRST_CHOICE


def _percentile(view: View) -> float | None:
    nearest = view.distances.min(axis=1)
    before, now = nearest[:-1], nearest[-1]
    before = before[np.isfinite(before)]
    if not len(before) or not np.isfinite(now):
        return None
    return 100.0 * float(np.mean(before < now))


def _lead(errors: Mapping[str, Errors], best: str) -> float:
    """Return how much less than the last hour again the best method errs, 0 to 1."""
    naive = errors["last-hour"].mean
    return max(0.0, 1 - errors[best].mean / naive) if 0 < naive < float("inf") else 0.0


def _belief(record: Record, percentile: float | None) -> Belief:
    value, reasons = 1.0, []
    if percentile is not None and percentile > STRANGE_PERCENTILE:
        value /= 2
        reasons.append("the last hour is like nothing that was seen before")
    first = max(0, len(record) - _UNKNOWN_RECENTLY)
    unknown = float(record.unknown_before[-1] - record.unknown_before[first])
    if unknown:
        value *= 1 - unknown / (len(record) - first)
        reasons.append(f"nothing is known of {unknown / HOUR:.1f} hours of the last week: an outage")
    if not record.usable(np.array([len(record) - HOUR]), HOUR)[0]:
        value = 0.0
        reasons.append("nothing is known of the last hour: an outage")
    return Belief(value, tuple(reasons))
