"""How much service has each job left? A class from what is known of it, then a time from alike jobs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.errors import InvariantError, UnknownName
from trimtab.forecast.history import Integers, Past
from trimtab.forecast.snapshots import (
    CLASSES,
    EDGES_MS,
    GRID_MS,
    HOUR_MS,
    Features,
    Floats,
    Snapshots,
    classes,
    mature,
)
from trimtab.forecast.survival import ENDLESS_MS, RunTimes, lindy_ms
from trimtab.traces.trace import DAY_MS
from trimtab.world import Seeds

MODES = ("xgboost", "paper", "kaplan-meier", "lindy")
HISTORY_MS = 42 * DAY_MS  # jobs submitted before that are forgotten
RETRAIN_AT_MS = 4 * HOUR_MS  # of each day of the trace's clock
SNAPSHOTS_MIN = 500  # mature ones that a model is trained on, at least,
SPAN_MIN_MS = 3 * DAY_MS  # over this time, at least

_SAMPLE = 5_000  # snapshots that a model is trained on, at most
_TREES = 40
_SETTINGS: dict[str, object] = {
    "objective": "multi:softprob",
    "num_class": CLASSES,
    "tree_method": "hist",
    "max_bin": 64,
    "max_depth": 4,
    "eta": 0.1,
    "min_child_weight": 5,
    "subsample": 0.7,
    "colsample_bytree": 0.5,
    "nthread": 1,
    "seed": 0,
}
_BOUNDS_MS = (0, *EDGES_MS.tolist(), ENDLESS_MS)


@dataclass(frozen=True)
class Card:
    """Where a model comes from.

    Attributes:
        version: 1 for the first model, one more for each.
        trained_ms: The instant it was trained at.
        cutoff_ms: The last snapshot it may have learned from.
        mature: Snapshots whose class was known.
        sampled: How many of them it was trained on.
        features: Hash of the table it was trained on.
        frequencies: Share of each class among them.
    """

    version: int
    trained_ms: int
    cutoff_ms: int
    mature: int
    sampled: int
    features: str
    frequencies: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class _Model:
    booster: Any
    columns: Integers  # those in which anything was known
    card: Card


class LocalPredictor:
    """Draws the remaining service of jobs that have not completed.

    Modes: `xgboost` draws a class from the model's probabilities, then a time within it from the run times
    of alike jobs that lasted so long; `paper` takes the likeliest class instead; `kaplan-meier` has no model;
    `lindy` expects as much again. A model is trained once a day, at 4 h of the trace's clock or the first
    refresh after it; until 500 mature snapshots span 3 days there is none and curves answer. A job that has
    never run is always drawn from curves, and where nothing has completed the answer is Lindy's.

    The model is a function of the history at its training and of the seed: an object that was refreshed then
    and now answers like one that was refreshed at every hour between.
    """

    def __init__(self, mode: str, seeds: Seeds) -> None:
        """Begin without history.

        Raises:
            UnknownName: If there is no such mode.
        """
        if mode not in MODES:
            raise UnknownName("predictor mode", mode, MODES)
        self.mode = mode
        self._seeds = seeds
        self._curves: RunTimes | None = None
        self._model: _Model | None = None

    @property
    def card(self) -> Card | None:
        """Where the present model comes from; None while there is none."""
        return self._model.card if self._model else None

    def refresh(self, past: Past) -> None:
        """Learn what is known now, and train a model if one is due."""
        recent = past.since(past.now_ms - HISTORY_MS)
        self._curves = RunTimes.of(recent)
        if self.mode in ("xgboost", "paper") and self._is_due(past.now_ms):
            self._model = _trained(recent, self._seeds) or self._model

    def remaining_ms(self, past: Past, rows: Integers, uniforms: Floats) -> Integers:
        """Return drawn remaining service.

        Args:
            past: What is known now; `refresh` has seen it, or an earlier one.
            rows: Places in it of jobs that have not completed, shape (jobs,).
            uniforms: Numbers in [0, 1), shape (futures, jobs, 2): the first chooses the class, the second
                the time in it. The same numbers of a job couple its draws from one hour to the next.

        Returns:
            Whole ms of work at full speed, at least 1, shape (futures, jobs).
        """
        curves = self._known()
        if self.mode == "lindy":
            return np.broadcast_to(lindy_ms(past.ran_ms[rows]), uniforms.shape[:2]).copy()
        drawn = curves.remaining_ms(past, rows, uniforms[..., 1])
        begun = np.flatnonzero(past.ran_ms[rows] > 0)
        if self._model is None or not len(begun):
            return drawn
        share = _shares(self._model, curves, past, rows[begun])
        chosen = self._chosen(share, uniforms[:, begun, 0])
        for kind in range(CLASSES):
            future, place = np.nonzero(chosen == kind)
            job = begun[place]
            level = uniforms[future, job, 1]
            drawn[future, job] = curves.remaining_ms(past, rows[job], level, *_BOUNDS_MS[kind : kind + 2])
        return drawn

    def probabilities(self, past: Past, rows: Integers) -> Floats:
        """Return each class's probability, shape (jobs, 6); where no model answers, as the curves have it."""
        curves = self._known()
        if self.mode == "lindy":
            one_hot: Floats = np.eye(CLASSES)[np.digitize(lindy_ms(past.ran_ms[rows]), EDGES_MS)]
            return one_hot
        begun = past.ran_ms[rows] > 0
        share = np.empty((len(rows), CLASSES))
        by_curve = np.flatnonzero(~begun if self._model else np.ones_like(begun))
        share[by_curve] = _curve_shares(curves, past, rows[by_curve])
        if self._model and begun.any():
            share[begun] = _shares(self._model, curves, past, rows[begun])
        return share

    def _known(self) -> RunTimes:
        if self._curves is None:
            raise InvariantError("a predictor was asked before it knew anything; refresh it first.")
        return self._curves

    def _is_due(self, now_ms: int) -> bool:
        return self._model is None or _day(now_ms) > self._model.card.version

    def _chosen(self, share: Floats, uniforms: Floats) -> Integers:
        if self.mode == "paper":
            return np.broadcast_to(share.argmax(axis=1), uniforms.shape)
        reached = np.cumsum(share, axis=1)[:, :-1]
        chosen: Integers = (uniforms[..., None] >= reached).sum(axis=-1)
        return chosen


def _day(now_ms: int) -> int:
    return (now_ms - RETRAIN_AT_MS) // DAY_MS


def _remembered(past: Past, rows: Integers) -> tuple[Past, Integers]:
    """Return the past without what completed long ago, and the places of the same jobs in it."""
    keep = ~past.completed | (past.submit_ms >= past.now_ms - HISTORY_MS)
    return past.take(keep), np.cumsum(keep)[rows] - 1


def _curve_shares(curves: RunTimes, past: Past, rows: Integers) -> Floats:
    reached = curves.longer(past, rows, EDGES_MS)
    return -np.diff(reached, axis=1, prepend=1.0, append=0.0)


def _shares(model: _Model, curves: RunTimes, past: Past, rows: Integers) -> Floats:
    """Return the mean of what the model and the curves say: surer, and better calibrated, than either."""
    recent, places = _remembered(past, rows)
    now_ms = np.full(len(rows), past.now_ms)
    table = Features(recent).of(Snapshots(places, now_ms, past.ran_ms[rows]))
    told = model.booster.inplace_predict(table[:, model.columns]).astype(np.float64)
    share: Floats = told / told.sum(axis=1, keepdims=True) + _curve_shares(curves, past, rows)
    return share / 2


def _trained(past: Past, seeds: Seeds) -> _Model | None:
    """Return a model of what is known, None if that is too little."""
    day = _day(past.now_ms)
    dice = seeds.stream("remaining", day)
    known = mature(past, int(dice.integers(GRID_MS)))
    if len(known) < SNAPSHOTS_MIN or np.ptp(known.at_ms) < SPAN_MIN_MS:
        return None
    count = min(_SAMPLE, len(known))
    sample = known.take(np.floor((np.arange(count) + dice.random()) * len(known) / count).astype(np.int64))
    table, kind = Features(past).of(sample), classes(past, sample)
    columns = np.flatnonzero(np.isfinite(table).any(axis=0))
    card = Card(
        version=day,
        trained_ms=past.now_ms,
        cutoff_ms=int(known.at_ms.max()),
        mature=len(known),
        sampled=count,
        features=hashlib.blake2b(table.tobytes(), digest_size=8).hexdigest(),
        frequencies=tuple((np.bincount(kind, minlength=CLASSES) / count).tolist()),
    )
    return _Model(_boosted(table[:, columns], kind), columns, card)


def _boosted(table: Floats, kind: Integers) -> Any:
    import xgboost  # here because importing it takes longer than many a simulation

    examples = xgboost.QuantileDMatrix(table, kind, nthread=1, max_bin=_SETTINGS["max_bin"])
    return xgboost.train(_SETTINGS, examples, num_boost_round=_TREES)
