"""What many hours say together about settings: paired log-ratios, older ones counting less.

The hours are unlike, and what a setting costs in one of them says little. So settings are compared with a
field that is tried every hour on the same futures, and the differences are pooled.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.knobs import Knobs

_HOURS = 240  # remembered; at 0.98 an hour, what is older has lost 99 % of its weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooling:
    """How evidence is weighed.

    Attributes:
        keep: Part of its weight that evidence keeps from hour to hour.
        present: Weight of the present hour beside all evidence, 0 .. 1.
        doubt: Hours' worth of "no better than the field" that a setting begins with.
        week: Hours that the last week, replayed once a day, counts for.
    """

    keep: float = 0.98
    present: float = 0.3
    doubt: float = 2.0
    week: float = 24.0


class Evidence:
    """Log costs of settings relative to the field, hour by hour; less is better."""

    def __init__(self, how: Pooling) -> None:
        self._how = how
        self._hours: deque[tuple[dict[Knobs, float], float]] = deque(maxlen=_HOURS)

    def add(self, logs: Mapping[Knobs, float], field: Sequence[Knobs], weight: float = 1.0) -> None:
        """Add one hour: the mean log cost of each setting tried, of the field as many as were.

        What makes jobs thrash has no cost; it counts as e times as bad as the worst that has one. What could
        not be simulated (NaN) is left out.

        Args:
            weight: Hours it counts for: a whole week's replay says more than an hour.
        """
        worst = max((log for log in logs.values() if math.isfinite(log)), default=math.nan) + 1
        capped = {knobs: min(log, worst) for knobs, log in logs.items() if not math.isnan(log)}
        tried = [capped[knobs] for knobs in field if knobs in capped]
        if tried and math.isfinite(worst):
            level = float(np.mean(tried))
            self._hours.append(({knobs: log - level for knobs, log in capped.items()}, weight))

    def scores(self) -> dict[Knobs, float]:
        """Return every remembered setting's score: the pooled mean, drawn to 0 by doubt, and the present."""
        how, weights, sums = self._how, dict[Knobs, float](), dict[Knobs, float]()
        for age, (hour, weight) in enumerate(reversed(self._hours)):
            aged = weight * how.keep**age
            for knobs, log in hour.items():
                weights[knobs] = weights.get(knobs, 0.0) + aged
                sums[knobs] = sums.get(knobs, 0.0) + aged * log
        present = self._hours[-1][0] if self._hours else {}
        found = {}
        for knobs, total in sums.items():
            pooled = total / (weights[knobs] + how.doubt)
            found[knobs] = (1 - how.present) * pooled + how.present * present.get(knobs, pooled)
        return found

    def gain(self, running: Knobs, other: Knobs, sure: float) -> float:
        """Return the pooled gain of another setting over the running one, less `sure` standard errors.

        Only hours count in which both were tried, so that what made the hour hard or easy cancels out.
        """
        how, pairs = self._how, []
        for age, (hour, weight) in enumerate(reversed(self._hours)):
            if running in hour and other in hour:
                pairs.append((weight * how.keep**age, hour[running] - hour[other]))
        if not pairs:
            return 0.0
        weights, ratios = np.array(pairs).T
        present = ratios[0] if running in self._hours[-1][0] and other in self._hours[-1][0] else 0.0
        mean = float(weights @ ratios) / (float(weights.sum()) + how.doubt)
        spread = float(weights @ (ratios - mean) ** 2) / float(weights.sum())
        error = math.sqrt(spread * float((weights**2).sum())) / float(weights.sum())
        return math.exp((1 - how.present) * mean + how.present * present - sure * error)
