"""In which rhythm do jobs arrive? The period of a series of counts, judged by its whole comb of harmonics.

A daily rhythm is hardly ever a sine: its power lies on 24, 12, 8, 6 ... h, and a single one of these may
tower over 24 h itself. So a period is not looked for among peaks. Every fundamental is weighed by all its
harmonics together, against what as many bins of mere noise would hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.traces.trace import DAY_MS

HOUR_MS = 3_600_000
SHORTEST_MS = 2 * HOUR_MS
LONGEST_MS = 8 * DAY_MS
WEAK_SHARE = 0.1

_CYCLES_MIN = 2  # what has not been seen twice is no period
_STEPS = 4  # fundamentals tried between two bins of the spectrum
_SURPRISE_MIN = 12.0  # nats: some thousand fundamentals are tried, and noise reaches 9
_NOISE_SIGMAS = 3.0  # autocorrelation of noise stays below so many standard errors
_REFINE = 0.1  # the refined period lies within this share of the first guess
_OUTER_MARGIN = 0.03  # autocorrelation of a longer period above that of other multiples

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Period:
    """A rhythm of arrivals.

    Attributes:
        period_ms: Its length.
        share: Share of the variance of log counts, 0 to 1, that its harmonics hold above the noise.
        confidence: The smaller one of the share and the autocorrelation at the period, 0 to 1: both
            estimate how much of the variance repeats.
    """

    period_ms: int
    share: float
    confidence: float

    @property
    def weak(self) -> bool:
        """Whether nearly all of the variance is something else."""
        return self.share < WEAK_SHARE


def find_periods(counts: Integers, bin_ms: int) -> list[Period]:
    """Return the period of counts, then a multiple of it that repeats still better; empty if there is none.

    Mean and linear trend of log (1 + counts) are removed, a Hann window is laid over it, and the power
    spectrum is divided by its running median, so that noise of any colour has mean 1. Let n harmonics of
    a fundamental, down to 2 h, have the mean m: noise has one as large with a probability of at most
    exp(-surprise), surprise = n (m - 1 - log m) (Chernoff's bound for the gamma distribution). The
    fundamental of greatest surprise is the period. Where none is surprising enough, the day is, if
    autocorrelation there is beyond noise: it may well be `weak`.

    A multiple, such as the week of a daily rhythm, is a second period if autocorrelation is higher there
    than at the period, at both neighbouring multiples, and clearly than at the mean one.

    Periods are 2 h to 8 days long and were seen twice at least; an evident one's length is refined to
    where autocorrelation, smoothed over an hour, is highest within +-10 %.

    Args:
        counts: Arrivals per bin, oldest first, shape (bins,).
        bin_ms: Length of a bin.
    """
    series = _detrended(counts)
    if series is None or len(series) * bin_ms < _CYCLES_MIN * SHORTEST_MS:
        return []
    spectrum = _Spectrum.of(series, bin_ms)
    correlation = _autocorrelation(series)
    first = _fundamental(spectrum, len(series), bin_ms)
    if first is None:
        lags = _day(correlation, bin_ms)
    else:
        guesses = [first, *_outer(first, correlation, bin_ms)]
        lags = [_refined(guess, correlation, bin_ms) for guess in guesses]
    periods = []
    for lag in lags:
        share = spectrum.share(len(series) / lag)
        periods.append(Period(lag * bin_ms, share, min(share, max(0.0, float(correlation[lag])))))
    return periods


def _detrended(counts: Integers) -> Reals | None:
    """Return log (1 + counts) without mean and linear trend, None if nothing but rounding is left."""
    if len(counts) < 3 or np.all(counts == counts[0]):
        return None
    series = np.log1p(counts.astype(np.float64))
    time = np.arange(len(series)) - (len(series) - 1) / 2
    series -= series.mean()
    series -= time * (np.dot(time, series) / np.dot(time, time))
    return series if np.dot(series, series) > 1e-9 * len(series) else None


@dataclass(frozen=True, eq=False)
class _Spectrum:
    """Power by bin of frequency up to the shortest period; `total` is the power of all frequencies."""

    power: Reals
    noise: Reals
    total: float

    @classmethod
    def of(cls, series: Reals, bin_ms: int) -> _Spectrum:
        power = np.abs(np.fft.rfft(series * np.hanning(len(series)))) ** 2
        total = float(power[1:].sum())
        power = power[: math.floor(len(series) * bin_ms / SHORTEST_MS) + 1]
        # The median of exponentially distributed power is log 2 times its mean.
        noise = np.array([np.median(power[_around(at, len(power))]) for at in range(len(power))])
        return cls(power, np.maximum(noise / math.log(2), 1e-12 * total), total)

    def comb(self, fundamental: float) -> Integers:
        """Return the bins of a fundamental's harmonics, the fundamental being in bins."""
        count = int((len(self.power) - 1) / fundamental + 1e-9)
        return np.asarray(np.rint(np.arange(1, count + 1) * fundamental), dtype=np.int64)

    def surprise(self, fundamental: float) -> float:
        comb = self.comb(fundamental)
        mean = float(np.mean(self.power[comb] / self.noise[comb]))
        return len(comb) * (mean - 1 - math.log(mean)) if mean > 1 else 0.0

    def share(self, fundamental: float) -> float:
        """Return the power of a comb above the noise, by the total; Hann spreads a line over three bins."""
        comb = self.comb(fundamental)
        bins = np.unique(np.clip(np.concatenate([comb - 1, comb, comb + 1]), 1, len(self.power) - 1))
        return max(0.0, float(np.sum(self.power[bins] - self.noise[bins]))) / self.total


def _around(at: int, bins: int) -> slice:
    """Return the bins from two thirds to one and a half of a frequency, five at least to each side."""
    return slice(max(1, min(at * 2 // 3, at - 5)), min(bins, max(at * 3 // 2, at + 5) + 1))


def _autocorrelation(series: Reals) -> Reals:
    """Return the autocorrelation by lag, shape (bins,), each by the number of pairs that there are."""
    bins = len(series)
    power = np.abs(np.fft.rfft(series, 2 * bins)) ** 2
    products = np.fft.irfft(power)[:bins] / np.arange(bins, 0, -1)
    return np.asarray(products / (np.dot(series, series) / bins), dtype=np.float64)


def _fundamental(spectrum: _Spectrum, bins: int, bin_ms: int) -> float | None:
    """Return the evident period in bins of time, None if there is none."""
    slowest = max(_CYCLES_MIN * _STEPS, math.ceil(_STEPS * bins * bin_ms / LONGEST_MS))
    tried = np.arange(slowest, _STEPS * (len(spectrum.power) - 1) + 1) / _STEPS
    surprises = [spectrum.surprise(float(one)) for one in tried]
    best = int(np.argmax(surprises))
    return bins / float(tried[best]) if surprises[best] >= _SURPRISE_MIN else None


def _day(correlation: Reals, bin_ms: int) -> list[int]:
    """Return the day in bins of time if counts repeat after it at all, or nothing."""
    day, bins = round(DAY_MS / bin_ms), len(correlation)
    return [day] if day * _CYCLES_MIN <= bins and correlation[day] > _NOISE_SIGMAS / math.sqrt(bins) else []


def _outer(lag: float, correlation: Reals, bin_ms: int) -> list[float]:
    """Return the multiple of a period that is a period of its own, in bins of time, or nothing."""
    bins = len(correlation)
    count = int(min(bins / _CYCLES_MIN, LONGEST_MS / bin_ms) / lag)
    # One multiple more than may be chosen, so that the longest has two neighbours as well.
    places = np.rint(np.arange(1, count + 2) * lag).astype(np.int64)
    if count < 3 or places[-1] >= bins:
        return []
    heights = correlation[places]
    best = int(np.argmax(heights))
    if best in (0, count) or heights[best] < heights.mean() + _OUTER_MARGIN:
        return []
    return [(best + 1) * lag]


def _refined(lag: float, correlation: Reals, bin_ms: int) -> int:
    """Return the lag near a first guess where smoothed autocorrelation is highest."""
    low, high = math.ceil(lag * (1 - _REFINE)), math.floor(lag * (1 + _REFINE))
    width = max(1, HOUR_MS // bin_ms // 2 * 2 + 1)
    kernel = np.ones(width) / width
    smooth = np.convolve(correlation, kernel, mode="same")[low : min(high, len(correlation) - 1) + 1]
    return low + int(np.argmax(smooth)) if len(smooth) else round(lag)
