"""The Generation Engine: forecasts put together to situations in which settings can be tried (AutoSched, §4).

A future is the work that running and waiting jobs have left and the jobs to come. Nothing in it is known:
how long a job will run is drawn from what alike jobs ran, who comes is copied from the past.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.curve import FULL_SPEED_PPM
from trimtab.errors import ConfigError
from trimtab.forecast.arrivals import DAYS_AGO, METHODS, Arrivals, day_again, forecast_arrivals
from trimtab.forecast.backtest import FULL, belief, best_arrivals
from trimtab.forecast.history import Integers, Past
from trimtab.forecast.remaining import LocalPredictor
from trimtab.job import JobFacts
from trimtab.search.futures import Future, situation_of, supposed
from trimtab.search.scene import Scene
from trimtab.simulate.whatif import Situation
from trimtab.simulate.workload import Workload
from trimtab.traces.trace import DAY_MS, LONGEST_MS
from trimtab.world import Seeds

DAY_BY_DAY = "days-ago"  # each future copies another past day
BACKTESTED = "backtested"  # the method that the last week's backtest says to use
NO_ARRIVALS = "none"
ARRIVALS = (*METHODS, BACKTESTED)  # those that look at the last hour
FUTURES_MAX = 64
_HOUR_MS = 3_600_000
_UNIFORMS = 1 << 16  # jobs that have numbers of their own

Own = tuple[int, ...]  # names the random streams of futures that only one setting meets


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecasting:
    """What the futures of a search are.

    Attributes:
        arrivals: A method of `forecast.arrivals`, `backtested`, `days-ago` or `none`.
        remaining: A mode of the Local Predictor.
        futures: How many.
        arrivals_ms: How far into the future arrivals are taken.
        run_on_ms: How long a trial's simulation runs on.
        common: Whether all settings of a search meet the same futures; if not, each meets its own.

    Raises:
        ConfigError: If there are no futures or too many, or a time is none or longer than any.
    """

    arrivals: str
    remaining: str
    futures: int
    arrivals_ms: int
    run_on_ms: int
    common: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.futures <= FUTURES_MAX:
            raise ConfigError(f"futures = {self.futures}: it must be 1 .. {FUTURES_MAX}; nothing was run.")
        for name, time_ms in (("arrivals", self.arrivals_ms), ("run-on", self.run_on_ms)):
            if not 0 < time_ms <= LONGEST_MS:
                raise ConfigError(f"{name} = {time_ms} ms: it must be 1 .. {LONGEST_MS} ms; nothing was run.")


# AutoSched's own, and those of which several an hour are pooled over many hours.
PAPER = Forecasting(
    arrivals="nearest", remaining="paper", futures=1, arrivals_ms=_HOUR_MS, run_on_ms=_HOUR_MS
)
PLUS = Forecasting(
    arrivals=DAY_BY_DAY, remaining="kaplan-meier", futures=3, arrivals_ms=DAY_MS, run_on_ms=DAY_MS
)


class Generation:
    """Makes futures, hour after hour. A job draws the same numbers in every hour and for all settings.

    Attributes:
        how: What the futures are.
        belief: In the last of them. Whole days are copied whatever the last hour was like.
    """

    def __init__(self, how: Forecasting, seeds: Seeds) -> None:
        self.how = how
        self._seeds = seeds
        self._predictor = LocalPredictor(how.remaining, seeds)
        self._coming: list[Arrivals] = []
        self.belief = FULL

    @property
    def model_version(self) -> int | None:
        """The version of the model that draws remaining times; None while there is none."""
        card = self._predictor.card
        return card.version if card else None

    def situations(self, scene: Scene, most: int, whose: int | None = None) -> list[Situation]:
        """Return one situation for each future, at most so many.

        Args:
            whose: The number of a setting that meets futures of its own, drawn anew at every instant.
        """
        return [self.situation(scene, future) for future in self.futures(scene, most, whose)]

    def futures(self, scene: Scene, most: int, whose: int | None = None) -> list[Future]:
        """Return the futures of a scene, at most so many."""
        self._predictor.refresh(scene.past)
        own = () if whose is None else (scene.now_ms, whose)
        count = min(self.how.futures, most)
        coming = [self._arrivals(scene.past, number, own) for number in range(count)]
        if whose is None:
            self._coming = coming
            if self.how.arrivals != DAY_BY_DAY:
                self.belief = belief(scene.past, self.how.arrivals_ms)
        return [self._future(scene, number, one, own) for number, one in enumerate(coming)]

    def again(self, scene: Scene, most: int) -> list[Situation]:
        """Return the last futures as of a later instant: what jobs have left is drawn from what is known now.

        Curves and model are those of the last `situations`. Its arrivals are kept, those dropped whose time
        has passed; a trial's simulation runs on for as long as ever.
        """
        return [
            self.situation(scene, self._future(scene, number, coming.since(scene.now_ms), ()))
            for number, coming in enumerate(self._coming[:most])
        ]

    def week_again(self, scene: Scene) -> Situation | None:
        """Return the last seven days once more, from an empty cluster until all is done; None without jobs.

        How long the jobs ran that have completed is known; what the others have left is drawn.
        """
        past = scene.past
        rows = np.flatnonzero(past.submit_ms >= past.now_ms - 7 * DAY_MS)
        if not len(rows):
            return None
        self._predictor.refresh(past)
        run_ms = past.ran_ms[rows].copy()
        is_unknown = ~past.completed[rows]
        run_ms[is_unknown] += self._left_ms(past, rows[is_unknown], 0, ())
        workload = Workload([scene.facts[row] for row in rows.tolist()], run_ms.tolist())
        environment = supposed(scene.environment, workload, past.now_ms)
        return Situation.empty(workload, scene.cluster, scene.policy, environment)

    def situation(self, scene: Scene, future: Future) -> Situation:
        """Return a scene with one future for it."""
        return situation_of(
            scene.snapshot, future, scene.cluster, scene.policy, scene.environment, self.how.run_on_ms
        )

    def _future(self, scene: Scene, number: int, coming: Arrivals, own: Own) -> Future:
        active = scene.active_rows
        is_unknown = ~scene.past.completed[coming.source]
        rows = np.concatenate([active, coming.source[is_unknown]])
        left_ms = self._left_ms(scene.past, rows, number, own)
        run_ms = scene.past.ran_ms[coming.source].copy()
        run_ms[is_unknown] += left_ms[len(active) :]
        return Future(_whole_ms(scene, left_ms[: len(active)]), _copies(scene.facts, coming), run_ms.tolist())

    def _arrivals(self, past: Past, number: int, own: Own) -> Arrivals:
        how = self.how
        if how.arrivals == NO_ARRIVALS:
            none = np.zeros(0, dtype=np.int64)
            return Arrivals(none, none, NO_ARRIVALS)
        if how.arrivals == DAY_BY_DAY:
            place = int(self._seeds.stream("day", number, *own).integers(len(DAYS_AGO))) if own else number
            return day_again(past, how.arrivals_ms, DAYS_AGO[place % len(DAYS_AGO)])
        dice = self._seeds.stream("arrivals", number, past.now_ms, *own) if number or own else None
        if how.arrivals == BACKTESTED:
            return best_arrivals(past, how.arrivals_ms, dice)[0]
        return forecast_arrivals(past, how.arrivals_ms, how.arrivals, dice)

    def _left_ms(self, past: Past, rows: Integers, number: int, own: Own) -> Integers:
        """Return drawn remaining service of jobs that have not completed."""
        table = self._seeds.stream("remaining", number, *own).random((_UNIFORMS, 2))
        uniforms: NDArray[np.float64] = table[rows % _UNIFORMS]
        return np.asarray(self._predictor.remaining_ms(past, rows, uniforms[None])[0], dtype=np.int64)


def _whole_ms(scene: Scene, left_ms: Integers) -> list[int]:
    """Return whole run times: work done, rounded up, and what is left."""
    done = (-(-job.done // FULL_SPEED_PPM) for job in scene.snapshot.jobs)
    return [ran_ms + more_ms for ran_ms, more_ms in zip(done, left_ms.tolist(), strict=True)]


def _copies(facts: Sequence[JobFacts], coming: Arrivals) -> list[JobFacts]:
    """Return what the arrivals will have submitted."""
    return [
        one.submitted(submit_ms)
        for one, submit_ms in zip(
            (facts[row] for row in coming.source.tolist()), coming.submit_ms.tolist(), strict=True
        )
    ]


def digest_of(situations: Sequence[Situation]) -> str:
    """Return eight hex digits that tell one set of futures from another."""
    total = 0
    for one in situations:
        submits = np.array([facts.submit_ms for facts in one.workload.facts], dtype=np.int64)
        total = zlib.crc32(np.array(one.workload.duration_ms, dtype=np.int64).tobytes(), total)
        total = zlib.crc32(submits.tobytes(), total)
    return f"{total:08x}"
