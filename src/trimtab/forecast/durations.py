"""How long will a job run? QSSF's answer [Hu et al., SC'21]: its owner's history blended with a model.

    estimate = alpha x mean run time of similar completed jobs + (1 - alpha) x model

Everything here is learned from jobs that completed before the present, and a training example carries what
was known of its job when it was submitted, not what has become known since.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from trimtab.errors import InvariantError
from trimtab.job import JobFacts

FIRST_GUESS_MS = 3_600_000  # an hour, while nothing at all has completed
KEEP_JOBS = 20_000  # the last completed jobs that are remembered
EXAMPLES_MIN = 100  # a model is trained on no fewer

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_WHOLE_PPM = 1_000_000
_TREES = 60
_SETTINGS: dict[str, object] = {
    "objective": "regression",
    "num_leaves": 31,
    "max_bin": 63,
    "learning_rate": 0.1,
    "min_data_in_leaf": 20,
    "seed": 0,
    "deterministic": True,
    "force_row_wise": True,  # otherwise LightGBM times both layouts and takes the faster
    "num_threads": 1,
    "verbosity": -1,
}

# The part of a job that says to which group it belongs, None where the trace does not tell.
_Key = tuple[object, ...] | None
# log2 GPUs, sine and cosine of the hour, weekday; then of each group: log mean ms, log (1 + jobs).
_ROW = Struct("14d")


class _Total(NamedTuple):
    """Completed jobs of one group."""

    jobs: int
    sum_ms: int

    @property
    def mean_ms(self) -> int:
        return self.sum_ms // self.jobs


class _Completed(NamedTuple):
    """A completed job; `row` is what was known at its submission, None if nobody asked then."""

    facts: JobFacts
    duration_ms: int
    row: bytes | None


class Learned(NamedTuple):
    """What an estimator that was never asked has learned; instants are None before it heard of any.

    Attributes:
        first: How many jobs were forgotten again. jobs: those remembered, with their run times in ms, in the
            order in which they completed.
    """

    first: int
    jobs: list[tuple[JobFacts, int]]
    first_ms: int | None
    now_ms: int | None


class HistoryEstimator:
    """Estimates run times as they become known; one simulation's own, `fork` it for another.

    The history mean is taken over the completed jobs of the first group that has any: same user, name and
    GPUs; same user and GPUs; same virtual cluster and GPUs; same GPUs; all. Groups by something the trace
    does not tell are passed over. While nothing has completed it is one hour. Until a model is trained,
    the history mean is the whole estimate.

    Hour and weekday are counted from second 0 of the trace's clock.

    Example:
        >>> estimator = HistoryEstimator()
        >>> job = JobFacts("a", submit_ms=0, gpus=4, user="ann")
        >>> estimator.estimate_ms(0, job, now_ms=0, history_weight=0.1)
        3600000
        >>> estimator.observe(job, duration_ms=500, now_ms=600)
        >>> estimator.estimate_ms(1, JobFacts("b", 600, 4, user="bob"), now_ms=600, history_weight=0.1)
        500
    """

    def __init__(self, keep_jobs: int = KEEP_JOBS) -> None:
        """Begin with no history.

        Args:
            keep_jobs: How many completed jobs are remembered; those that completed first are forgotten.
        """
        self._keep_jobs = keep_jobs
        self._completed: deque[_Completed] = deque()
        self._forgotten = 0
        self._examples = 0
        self._totals: dict[_Key, _Total] = {}
        self._waiting: dict[JobFacts, bytes] = {}  # rows of jobs that have not completed
        self._model: Any = None  # a Booster, never changed once trained, so forks share it
        self._first_ms: int | None = None
        self._trained_ms: int | None = None
        self._now_ms: int | None = None

    def warm(self, history: Iterable[tuple[JobFacts, int, int]]) -> None:
        """Learn jobs that completed before the simulation begins.

        They are replayed, so that each one's training example knows only what had completed when it was
        submitted. The first model is then trained at the first arrival, if the history spans a period.

        Args:
            history: Facts, run time in ms and instant of completion in ms, on the simulation's clock
                (times before its second 0 are negative). In any order; completions of one instant are
                learned in the order given.

        Raises:
            InvariantError: If the estimator already knows a later instant than the first of these.
        """
        jobs = list(history)
        # At one instant completions come before submissions, as in the engine.
        events = [(finish_ms, 0, place) for place, (_, _, finish_ms) in enumerate(jobs)]
        events += [(facts.submit_ms, 1, place) for place, (facts, _, _) in enumerate(jobs)]
        for now_ms, is_submission, place in sorted(events):
            facts, duration_ms, _ = jobs[place]
            if is_submission:
                self._pass_to(now_ms)
                self._waiting.setdefault(facts, self._row(facts, _keys(facts)))
            else:
                self.observe(facts, duration_ms, now_ms)

    def observe(self, facts: JobFacts, duration_ms: int, now_ms: int) -> None:
        """Learn that a job completed at `now_ms` after running `duration_ms`."""
        self._pass_to(now_ms)
        row = self._waiting.pop(facts, None)
        self._completed.append(_Completed(facts, duration_ms, row))
        self._examples += row is not None
        for key in _keys(facts):
            if key is not None:
                jobs, sum_ms = self._totals.get(key, (0, 0))
                self._totals[key] = _Total(jobs + 1, sum_ms + duration_ms)
        if len(self._completed) > self._keep_jobs:
            self._forget(self._completed.popleft())

    def retrain(self, now_ms: int, period_ms: int) -> bool:
        """Train a new model if a period has begun since the last one; return whether it happened.

        Periods are counted from the first instant the estimator heard of, in trace time. With fewer than
        100 examples nothing is trained yet; it happens at the first call that finds enough.
        """
        first_ms = self._pass_to(now_ms)
        trained_ms = first_ms if self._trained_ms is None else self._trained_ms
        if period_ms <= 0 or (now_ms - first_ms) // period_ms == (trained_ms - first_ms) // period_ms:
            return False
        if self._examples < EXAMPLES_MIN:
            return False
        examples = [(done.row, done.duration_ms) for done in self._completed if done.row is not None]
        self._model = _train([row for row, _ in examples], [duration_ms for _, duration_ms in examples])
        self._trained_ms = now_ms
        return True

    def estimate_ms(self, job_id: int, facts: JobFacts, now_ms: int, history_weight: float) -> int:
        """Return the estimated run time of a job, at least 1 ms; remember what was known when first asked.

        Args:
            history_weight: Alpha, 0 to 1; counts as 1 until there is a model.
        """
        self._pass_to(now_ms)
        keys = _keys(facts)
        row = self._row(facts, keys)
        self._waiting.setdefault(facts, row)
        mean_ms = self._mean_ms(keys)
        weight_ppm = round(history_weight * _WHOLE_PPM)
        if self._model is None or weight_ppm == _WHOLE_PPM:
            return max(1, mean_ms)
        log_ms = self._model.predict(np.frombuffer(row).reshape(1, -1), num_threads=1)[0]
        model_ms = round(math.exp(log_ms))
        return max(1, (weight_ppm * mean_ms + (_WHOLE_PPM - weight_ppm) * model_ms) // _WHOLE_PPM)

    def fork(self) -> HistoryEstimator:
        """Return an independent copy; what never changes is shared."""
        twin = HistoryEstimator(self._keep_jobs)
        twin.__dict__.update(self.__dict__)
        twin._completed = self._completed.copy()
        twin._totals = self._totals.copy()
        twin._waiting = self._waiting.copy()
        return twin

    def learned(self) -> Learned:
        """Return what it has learned of completed jobs, in full; it must not have been asked anything yet."""
        if self._waiting or self._examples or self._model is not None:
            raise InvariantError("an estimator that was asked knows more than the jobs that completed.")
        jobs = [(done.facts, done.duration_ms) for done in self._completed]
        return Learned(self._forgotten, jobs, self._first_ms, self._now_ms)

    @classmethod
    def relearned(cls, learned: Learned) -> HistoryEstimator:
        """Return an estimator that has learned the same."""
        twin = cls()
        twin._first_ms, twin._now_ms, twin._forgotten = learned.first_ms, learned.now_ms, learned.first
        for facts, duration_ms in learned.jobs:
            assert learned.now_ms is not None
            twin.observe(facts, duration_ms, learned.now_ms)
        return twin

    def _pass_to(self, now_ms: int) -> int:
        """Move the present on, and return the first instant of all."""
        if self._first_ms is None or self._now_ms is None:
            self._first_ms = self._now_ms = now_ms
        if now_ms < self._now_ms:
            raise InvariantError(
                f"run-time estimates at {now_ms} ms would know what happened until {self._now_ms} ms;"
                " each run needs its own fork of the estimator, and this one was stopped."
            )
        self._now_ms = now_ms
        return self._first_ms

    def _forget(self, done: _Completed) -> None:
        self._forgotten += 1
        self._examples -= done.row is not None
        for key in _keys(done.facts):
            if key is not None:
                jobs, sum_ms = self._totals[key]
                if jobs == 1:
                    del self._totals[key]
                else:
                    self._totals[key] = _Total(jobs - 1, sum_ms - done.duration_ms)

    def _mean_ms(self, keys: tuple[_Key, ...]) -> int:
        totals = self._totals
        return next((totals[key].mean_ms for key in keys if key in totals), FIRST_GUESS_MS)

    def _row(self, facts: JobFacts, keys: tuple[_Key, ...]) -> bytes:
        """Return what is known of a job now, as the model reads it."""
        day, of_day_ms = divmod(facts.submit_ms, _DAY_MS)
        turn = 2 * math.pi * of_day_ms / _DAY_MS
        known: list[float] = [math.log2(facts.gpus), math.sin(turn), math.cos(turn), day % 7]
        for key in keys:
            total = self._totals.get(key)
            if total is None:
                known += (math.nan, 0.0)
            else:
                known += (math.log(max(1, total.mean_ms)), math.log1p(total.jobs))
        return _ROW.pack(*known)


def _keys(facts: JobFacts) -> tuple[_Key, ...]:
    """Return the groups a job belongs to, the most specific first."""
    user, name, vc, gpus = facts.user, facts.name, facts.vc, facts.gpus
    return (
        None if user is None or name is None else ("name", user, name, gpus),
        None if user is None else ("user", user, gpus),
        None if vc is None else ("vc", vc, gpus),
        ("gpus", gpus),
        ("all",),
    )


def _train(rows: list[bytes], duration_ms: list[int]) -> Any:
    """Return a model of log run time; the same for the same examples, wherever it is trained."""
    import lightgbm  # here because importing it takes longer than many a simulation

    known = np.frombuffer(b"".join(rows)).reshape(len(rows), -1)
    log_ms = np.log(np.maximum(1, np.array(duration_ms, dtype=np.float64)))
    return lightgbm.train(_SETTINGS, lightgbm.Dataset(known, label=log_ms), num_boost_round=_TREES)
