"""What goes into a simulation beside the jobs, and what comes out: environment, records, snapshots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from trimtab.cluster import Placement
from trimtab.job import JobView
from trimtab.knobs import Knobs
from trimtab.simulate.workload import Estimator


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
        estimator: Where run-time estimates come from, None for nowhere.
        completed_gpu_ms: Services of jobs completed before the simulation begins.
    """

    placement: Placement = "consolidated"
    restart_ms: Callable[[int], int] = field(default_factory=lambda: flat_restart(62_000))
    cold_start_ms: int = 0
    estimator: Estimator | None = None
    completed_gpu_ms: tuple[int, ...] = ()


class Update(NamedTuple):
    """A change of knobs at an instant."""

    time_ms: int
    knobs: Knobs


@dataclass
class Record:
    """What became of one job; times in ms, None for what did not happen."""

    first_start_ms: int | None = None
    finish_ms: int | None = None
    held_ms: int = 0
    preemptions: int = 0
    rejected: bool = False


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
    crossing: tuple[int, ...] = ()  # running jobs whose level is to be looked at this very instant
