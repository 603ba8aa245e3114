"""What searches have measured: one row a simulation, in columns that models learn from.

A row has where its setting lies on the search's axes, what the simulated workload was like, and what came
out: the mean seconds that make up a job's stay. Rows are only ever added, and rows of another policy or
of other axes are kept apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trimtab.curve import FULL_SPEED_PPM
from trimtab.job import JobState
from trimtab.knobs import Knobs
from trimtab.objective import Measured
from trimtab.search.sampler import design
from trimtab.search.space import Axis, AxisValue, Point, SearchSpace
from trimtab.simulate.whatif import Situation
from trimtab.world import Seeds

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

# What a job's stay is made of beside its work, in mean seconds a job, and how often jobs were preempted.
# `unrun_s` is work that the window's end left undone; 0 where all is done.
MEDIATORS = ("queue_s", "restart_s", "slowdown_s", "unrun_s", "preemptions")

FEATURES = (
    "log_load",
    "log_jobs",
    "mean_gpus",
    "log_median_run_s",
    "log_p90_run_s",
    "wide_share",
    "active_share",
    "active_service_share",
    "top10_service_share",
    "log_backlog",
    "log_median_service",
    "log_pending",
    "log_peak_demand",
)
_WIDE_GPUS = 8
_SCATTERED = 16  # points at which it is looked at whether an axis switches others on and off


@dataclass(frozen=True)
class Summary:
    """A situation in numbers that do not depend on the settings; of aggregated jobs, each member counts.

    Attributes:
        features: The values of `FEATURES`; shape (features,).
        run_s: Mean seconds of work a job could get inside the window, if it never waited.
        age_s: Mean seconds a job had been there before the window.
    """

    features: Vector
    run_s: float
    age_s: float

    @classmethod
    def of(cls, situation: Situation) -> Summary:
        """Look at a situation's jobs: those active, then those arriving before it ends."""
        now_ms, until_ms = situation.snapshot.now_ms, situation.until_ms
        facts = situation.workload.facts
        left_ms = np.array(situation.workload.duration_ms, dtype=np.int64)
        done = np.array([job.done for job in situation.snapshot.jobs], dtype=np.int64)
        active = len(done)
        left_ms[:active] -= done // FULL_SPEED_PPM
        submit_ms = np.array([job.submit_ms for job in facts], dtype=np.int64)
        members = np.array([job.members for job in facts], dtype=np.int64) * _counted(situation, submit_ms)
        gpus = np.array([job.gpus // job.members for job in facts], dtype=np.int64)
        active = int(members[:active].sum())
        submit_ms, gpus, left_ms = (np.repeat(column, members) for column in (submit_ms, gpus, left_ms))
        if not len(gpus):
            return cls(np.zeros(len(FEATURES)), 0.0, 0.0)
        began_ms = np.maximum(submit_ms, now_ms)
        possible_ms = left_ms if until_ms is None else np.minimum(left_ms, until_ms - began_ms)
        end_ms = int(began_ms.max()) if until_ms is None else until_ms
        offered = situation.cluster.gpus * max(end_ms - now_ms, 1)
        pending = sum(job.facts.gpus for job in situation.snapshot.jobs if job.state is JobState.PENDING)
        features = _features(gpus, left_ms, active, offered)
        more = [
            math.log1p(pending / situation.cluster.gpus),
            _peak_demand(began_ms, gpus, left_ms, situation),
        ]
        features = np.append(features, more)
        return cls(features, float(possible_ms.mean()) / 1000, float((began_ms - submit_ms).mean()) / 1000)


def _counted(situation: Situation, submit_ms: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which jobs a trial's means are over: neither turned away nor after the window."""
    homes = situation.cluster.vcs
    counted = np.ones(len(submit_ms), dtype=bool)
    if situation.until_ms is not None:
        counted = submit_ms < situation.until_ms
    for job, facts in enumerate(situation.workload.facts):
        home = situation.cluster.home(facts.vc)
        counted[job] &= home is not None and facts.gpus <= homes[home].gpus
    return counted


def _features(gpus: NDArray[np.int64], left_ms: NDArray[np.int64], active: int, offered: int) -> Vector:
    service = np.sort((gpus * left_ms).astype(np.float64))[::-1]
    total = max(service.sum(), 1.0)
    here = float((gpus[:active] * left_ms[:active]).sum())
    return np.array(
        [
            math.log(total / offered),
            math.log(len(gpus)),
            gpus.mean(),
            math.log(1 + np.median(left_ms) / 1000),
            math.log(1 + np.percentile(left_ms, 90) / 1000),
            (gpus >= _WIDE_GPUS).mean(),
            active / len(gpus),
            here / total,
            service[:10].sum() / total,
            math.log1p(here / offered),
            math.log(1 + np.median(service) / 1000),
        ]
    )


def _peak_demand(
    began_ms: NDArray[np.int64], gpus: NDArray[np.int64], left_ms: NDArray[np.int64], situation: Situation
) -> float:
    """Return the logarithm of the most GPUs that would be used at once if no job waited, as a load."""
    times = np.concatenate([began_ms, began_ms + left_ms])
    steps = np.concatenate([gpus, -gpus])
    return math.log1p(np.cumsum(steps[np.lexsort((steps, times))]).max() / situation.cluster.gpus)


class Encoding:
    """Settings as rows of numbers.

    An ordered axis is one column, its place in [0, 1]; an unordered one has a column of 0 and 1 a choice, a
    choice of two only one. Where an axis makes no difference (a threshold while there is one queue), its
    columns are NaN.

    Attributes:
        columns: The names of the columns.
        axis_of: Column -> the axis it belongs to.
    """

    def __init__(self, space: SearchSpace) -> None:
        self.space = space
        self.axis_of = {column: axis.name for axis in space.axes for column in _columns(axis)}
        self.columns = tuple(self.axis_of)
        self._known: dict[Knobs, Vector] = {}

    @property
    def version(self) -> str:
        """What rows must have in common to be learned from together."""
        return "; ".join(repr(axis) for axis in self.space.axes)

    def row(self, knobs: Knobs) -> Vector:
        """Return one setting's row; shape (columns,)."""
        if knobs not in self._known:
            point = self.space.to_point(knobs)
            parts = [self._part(axis, point) for axis in self.space.axes]
            self._known[knobs] = np.array([value for part in parts for value in part])
        return self._known[knobs]

    def rows(self, settings: Sequence[Knobs]) -> Matrix:
        """Return a row a setting; shape (settings, columns)."""
        return np.array([self.row(knobs) for knobs in settings]).reshape(len(settings), len(self.columns))

    def counts(self, knobs: Knobs, axis: Axis) -> bool:
        """Whether an axis makes a difference to a setting."""
        first = next(at for at, name in enumerate(self.axis_of.values()) if name == axis.name)
        return not math.isnan(self.row(knobs)[first])

    def _active(self, point: Point, axis: Axis) -> bool:
        return len({self.space.knobs({**point, axis.name: value}) for value in _probes(axis)}) > 1

    @cached_property
    def gates(self) -> frozenset[str]:
        """The axes on whose value it depends whether another one makes a difference."""
        points = [self.space.to_point(self.space.base), *design(self.space, _SCATTERED, Seeds(0))]
        axes = self.space.axes
        return frozenset(axis.name for axis in axes if any(self._switches(axis, point) for point in points))

    def _switches(self, gate: Axis, point: Point) -> bool:
        values = gate.values() or _probes(gate)
        others = [axis for axis in self.space.axes if axis is not gate]
        points = [{**point, gate.name: value} for value in values]
        return any(len({self._active(one, axis) for one in points}) > 1 for axis in others)

    def _part(self, axis: Axis, point: Point) -> list[float]:
        columns = _columns(axis)
        if not self._active(point, axis):
            return [math.nan] * len(columns)
        if axis.scale != "choice":
            return [axis.encode(point[axis.name])]
        chosen = [float(point[axis.name] == choice) for choice in axis.choices]
        return chosen if len(columns) > 1 else chosen[-1:]


def _columns(axis: Axis) -> list[str]:
    if axis.scale != "choice" or len(axis.choices) <= 2:
        return [axis.name]
    return [f"{axis.name}={choice}" for choice in axis.choices]


def _probes(axis: Axis) -> list[AxisValue]:
    return list(axis.choices) if axis.scale == "choice" else [axis.decode(0.0), axis.decode(1.0)]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows as columns, oldest first.

    Attributes:
        axis_of: Column of `knobs` -> its axis.
        knobs: Where settings lie, NaN where an axis is inactive; shape (rows, columns).
        features: What the workloads were like; shape (rows, features).
        mediators: What stays are made of, none below 0; shape (rows, mediators).
        cost: The objective's cost, s; shape (rows,).
        run_s, age_s: Of each row's `Summary`; shape (rows,).
        situation: The number of each row's situation; shape (rows,).
        designed: Which rows were scattered over the space; shape (rows,).
    """

    axis_of: Mapping[str, str]
    knobs: Matrix
    features: Matrix
    mediators: Matrix
    cost: Vector
    run_s: Vector
    age_s: Vector
    situation: NDArray[np.int64]
    designed: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.cost)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Table:
        """Return some of the rows, by number or by mask."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return Table(**{name: part if name == "axis_of" else part[rows] for name, part in parts.items()})


class Samples:
    """The rows of one policy on one set of axes, oldest first."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding
        self._summaries: list[Summary] = []
        self._rows: list[tuple[int, Vector, Measured, bool]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def open(self, summary: Summary) -> int:
        """Begin a situation; return its number."""
        self._summaries.append(summary)
        return len(self._summaries) - 1

    def add(self, situation: int, knobs: Knobs, measured: Measured, designed: bool) -> bool:
        """Add what a setting did; return False for a trial that thrashes or failed, which teaches nothing.

        Args:
            situation: The number `open` gave.
            knobs: The setting.
            measured: What it did.
            designed: Whether it was scattered over the space, not proposed by what was learned before.
        """
        usable = all(math.isfinite(value) for value in measured)
        if usable:
            self._rows.append((situation, self.encoding.row(knobs), measured, designed))
        return usable

    def table(self, situations: int) -> Table:
        """Return the rows of the last `situations` situations."""
        first = len(self._summaries) - situations
        rows = [row for row in self._rows if row[0] >= first]
        numbers = np.array([row[0] for row in rows], dtype=np.int64)
        place = numbers - max(first, 0)
        recent = self._summaries[max(first, 0) :]
        features = np.array([one.features for one in recent]).reshape(-1, len(FEATURES))
        run_s, age_s = (np.array([getattr(one, name) for one in recent]) for name in ("run_s", "age_s"))
        measured = np.array([row[2] for row in rows], dtype=np.float64).reshape(-1, len(Measured._fields))
        by_name = dict(zip(Measured._fields, measured.T, strict=True))
        by_name["unrun_s"] = run_s[place] - by_name["run_s"]
        mediators = np.maximum(np.column_stack([by_name[name] for name in MEDIATORS]), 0.0)
        return Table(
            self.encoding.axis_of,
            np.array([row[1] for row in rows]).reshape(-1, len(self.encoding.columns)),
            features[place],
            mediators,
            by_name["cost"],
            run_s[place],
            age_s[place],
            numbers,
            np.array([row[3] for row in rows], dtype=bool),
        )
