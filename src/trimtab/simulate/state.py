"""What goes into a simulation beside the jobs, and what comes out: environment, records, snapshots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.cluster import Pace, Placement
from trimtab.errors import ConfigError
from trimtab.job import JobView
from trimtab.knobs import Knobs
from trimtab.profile import PairSpeeds
from trimtab.simulate.workload import Estimator, Workload
from trimtab.site import PLAIN_SITE, Site

# In a column of times: it did not happen. No instant is ever this small; the compiled core says the same.
NONE_MS = int(np.iinfo(np.int64).min)


def flat_restart(restart_ms: int) -> Callable[[int], int]:
    """Return a restart cost that is the same for every gang."""
    return partial(_flat, restart_ms)


def _flat(restart_ms: int, gpus: int) -> int:
    return restart_ms


@dataclass(frozen=True)
class Environment:
    """The world a policy runs in: not a knob, the same for all policies of one comparison.

    Attributes:
        placement: How gangs are put on nodes.
        restart_ms: GPUs of a gang -> ms that a job holds them without progress when it resumes.
        cold_start_ms: The same at a job's first start.
        adjust_ms: The same when CPU and memory of a running job are changed.
        estimator: Where run-time estimates come from, None for nowhere.
        completed_gpu_ms: Services of jobs completed before the simulation begins.
        speeds: How fast jobs are that share GPUs, None for full speed.
        pace: How many submissions are forecast, None for no forecast.
        site: What partitions, qualities of service and accounts are worth.
    """

    placement: Placement = "consolidated"
    restart_ms: Callable[[int], int] = field(default_factory=lambda: flat_restart(62_000))
    cold_start_ms: int = 0
    adjust_ms: int = 0
    estimator: Estimator | None = None
    completed_gpu_ms: tuple[int, ...] = ()
    speeds: PairSpeeds | None = None
    pace: Pace | None = None
    site: Site = PLAIN_SITE


class Update(NamedTuple):
    """A change of knobs at an instant."""

    time_ms: int
    knobs: Knobs


@dataclass(slots=True)
class Record:
    """What became of one job; times in ms, None for what did not happen.

    Of a job that is still active, nothing is known yet: all is as it was before the job came.
    """

    first_start_ms: int | None = None
    finish_ms: int | None = None
    held_ms: int = 0
    paid_ms: int = 0  # restart cost
    preemptions: int = 0
    rejected: bool = False
    life_job_ms: int = 0  # integral of the number of active jobs of its virtual cluster over its life
    resizes: int = 0
    promise_ms: int | None = None  # by when its policy promised that it will have finished


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """What became of all jobs: the columns of their `Record`s, by dense id; each of shape (jobs,).

    Attributes:
        first_start_ms, finish_ms, promise_ms: `NONE_MS` where it did not happen.
        held_ms, paid_ms, preemptions, life_job_ms, resizes: 0 for jobs that did not finish.
        rejected: Whether no virtual cluster could ever hold the job.
    """

    first_start_ms: NDArray[np.int64]
    finish_ms: NDArray[np.int64]
    held_ms: NDArray[np.int64]
    paid_ms: NDArray[np.int64]
    preemptions: NDArray[np.int64]
    rejected: NDArray[np.bool_]
    life_job_ms: NDArray[np.int64]
    resizes: NDArray[np.int64]
    promise_ms: NDArray[np.int64]

    @classmethod
    def of(cls, records: Sequence[Record]) -> Outcomes:
        """Return the columns of records."""
        return cls(
            _times([record.first_start_ms for record in records]),
            _times([record.finish_ms for record in records]),
            np.array([record.held_ms for record in records], dtype=np.int64),
            np.array([record.paid_ms for record in records], dtype=np.int64),
            np.array([record.preemptions for record in records], dtype=np.int64),
            np.array([record.rejected for record in records], dtype=np.bool_),
            np.array([record.life_job_ms for record in records], dtype=np.int64),
            np.array([record.resizes for record in records], dtype=np.int64),
            _times([record.promise_ms for record in records]),
        )

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Which jobs have finished."""
        return np.not_equal(self.finish_ms, NONE_MS)

    def records(self) -> list[Record]:
        """Return the same, job by job."""
        columns = (
            _times_or_none(self.first_start_ms),
            _times_or_none(self.finish_ms),
            self.held_ms.tolist(),
            self.paid_ms.tolist(),
            self.preemptions.tolist(),
            self.rejected.tolist(),
            self.life_job_ms.tolist(),
            self.resizes.tolist(),
            _times_or_none(self.promise_ms),
        )
        return [Record(*values) for values in zip(*columns, strict=True)]


def _times(times_ms: Sequence[int | None]) -> NDArray[np.int64]:
    return np.array([NONE_MS if time_ms is None else time_ms for time_ms in times_ms], dtype=np.int64)


def _times_or_none(times_ms: NDArray[np.int64]) -> list[int | None]:
    return [None if time_ms == NONE_MS else time_ms for time_ms in times_ms.tolist()]


@dataclass(frozen=True)
class Snapshot:
    """A scheduler's state at an instant, before anything of that instant has happened.

    `jobs` are the active ones, settled to `now_ms`; how long they will run is not in it.
    """

    now_ms: int
    knobs: Knobs
    jobs: tuple[JobView, ...]
    arrived: int  # jobs of the workload that have been submitted
    places: tuple[int, int, int]
    tick_anchor_ms: int
    dirty: tuple[bool, ...]
    reviews_ms: tuple[int | None, ...]
    completed_gpu_ms: tuple[int, ...]
    sampled: tuple[int, int]  # completed services in the plan's sample, and when it was taken (ms)
    estimator: Estimator | None
    job_ms: tuple[int, ...]  # per virtual cluster, see `ClusterView`; so are `memories`
    memories: tuple[tuple[int, ...], ...]
    crossing: tuple[int, ...] = ()  # running jobs whose level is to be looked at this very instant

    def refuse_others(self, workload: Workload) -> None:
        """Raise `ConfigError` if a workload tells other facts of an active job than were submitted."""
        for job in self.jobs:
            facts = workload.facts[job.id] if job.id < len(workload) else None
            if facts is not job.facts and facts != job.facts:
                raise ConfigError(
                    f"job {job.facts.label}, active in the snapshot at {self.now_ms} ms, is not job {job.id} "
                    "of the workload to go on with: its facts must be those submitted; nothing was run."
                )
