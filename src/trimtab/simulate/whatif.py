"""What would other settings do from here? A situation, and candidates tried on it, on one core or many."""

from __future__ import annotations

import pickle
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Protocol

import numpy as np

from trimtab.cluster import Cluster
from trimtab.errors import ConfigError, Thrashing, TrialsLost
from trimtab.job import FULL_SPEED_PPM
from trimtab.knobs import Knobs
from trimtab.objective import Objective, Stays, find_objective
from trimtab.policies.catalog import find_policy
from trimtab.simulate.engine import Engine
from trimtab.simulate.engines import runs_compiled
from trimtab.simulate.fast import FastSituation
from trimtab.simulate.state import Environment, Snapshot
from trimtab.simulate.workload import Workload

EXECUTORS = ("local", "processes")

_PREEMPTIONS_A_JOB_MAX = 50


@dataclass(frozen=True)
class Situation:
    """A scheduler's state at an instant, and one future for it.

    Attributes:
        snapshot: The state; its active jobs are the first of the workload, in id order.
        workload: The active jobs with the run times this future gives them, then its arrivals.
        until_ms: Where the simulation stops (the run-on horizon), None to drain.
    """

    snapshot: Snapshot
    workload: Workload
    cluster: Cluster
    policy: str
    environment: Environment
    until_ms: int | None

    @classmethod
    def empty(cls, workload: Workload, cluster: Cluster, policy: str, environment: Environment) -> Situation:
        """Return a situation that starts from an empty cluster and runs until all is done."""
        engine = Engine(
            workload, cluster, find_policy(policy), find_policy(policy).space.defaults, environment
        )
        return cls(engine.snapshot(), workload, cluster, policy, environment, None)

    @property
    def preemptions_max(self) -> int:
        """More preemptions than this are thrashing; the settings are not worth simulating further."""
        return 1000 + _PREEMPTIONS_A_JOB_MAX * len(self.workload)

    def stays(self, knobs: Knobs) -> Stays | None:
        """Return how long each job stays if these knobs hold from now on, None if they make jobs thrash."""
        engine = Engine.resume(
            self.snapshot, self.workload, self.cluster, find_policy(self.policy), self.environment
        )
        engine.update(self.snapshot.now_ms, knobs)
        engine.preemptions_max = self.preemptions_max
        try:
            engine.run(self.until_ms)
        except Thrashing:
            return None
        done_before = {job.id: job.done for job in self.snapshot.jobs}
        ages, idles = [], []
        for job_id, facts in enumerate(self.workload.facts):
            end_ms = self._end_ms(engine, job_id)
            if end_ms is not None:
                ages.append(end_ms - facts.submit_ms)
                idles.append(self._idle_ms(engine, job_id, end_ms, done_before.get(job_id, 0)))
        return Stays(np.array(ages, dtype=np.int64), np.array(idles, dtype=np.int64))

    def _end_ms(self, engine: Engine, job_id: int) -> int | None:
        """Return when a job's stay ends, None for one that was rejected or has not arrived."""
        record = engine.records[job_id]
        if record.finish_ms is not None:
            return record.finish_ms
        return engine.now_ms if engine.active(job_id) is not None else None

    def _idle_ms(self, engine: Engine, job_id: int, end_ms: int, done_before: int) -> int:
        job = engine.active(job_id)
        done = self.workload.duration_ms[job_id] * FULL_SPEED_PPM if job is None else job.done_by(end_ms)
        began_ms = max(self.workload.facts[job_id].submit_ms, self.snapshot.now_ms)
        return end_ms - began_ms - (done - done_before) // FULL_SPEED_PPM


class Trials(Protocol):
    """Tries settings on situations: the one seam through which searches reach more cores or machines."""

    def costs(self, situation: Situation, candidates: Sequence[Knobs], objective: Objective) -> list[float]:
        """Return each candidate's cost in seconds, in order; the same on any number of workers."""
        ...


class LocalTrials:
    """Here: in the compiled core on several threads where that can be, else one after another.

    Args:
        engine: auto, compiled or reference.
        threads: How many threads the core may use.
        otherwise: Who tries what the core cannot run.
    """

    def __init__(self, engine: str = "auto", threads: int = 1, otherwise: Trials | None = None) -> None:
        self._engine = engine
        self._threads = threads
        self._otherwise = otherwise
        self._prepared: tuple[Situation, FastSituation | None] | None = None

    def costs(self, situation: Situation, candidates: Sequence[Knobs], objective: Objective) -> list[float]:
        fast = self._prepare(situation)
        if fast is not None:
            return [objective.cost(stays) for stays in fast.stays(candidates, self._threads)]
        if self._otherwise is not None:
            return self._otherwise.costs(situation, candidates, objective)
        return [objective.cost(situation.stays(knobs)) for knobs in candidates]

    def _prepare(self, situation: Situation) -> FastSituation | None:
        """Return the situation's state in the core, made once for all searches on it."""
        if self._prepared is None or self._prepared[0] is not situation:
            one, policy = situation, find_policy(situation.policy)
            fast = None
            if runs_compiled(self._engine, one.workload, one.environment):
                fast = FastSituation(
                    one.snapshot,
                    one.workload,
                    one.cluster,
                    policy,
                    one.environment,
                    one.until_ms,
                    one.preemptions_max,
                )
            self._prepared = situation, fast
        return self._prepared[1]


class ProcessTrials:
    """On several processes, started when first needed; a situation is handed over once, through a file."""

    def __init__(self, workers: int, folder: Path) -> None:
        self._workers = workers
        self._folder = folder
        self._pool: ProcessPoolExecutor | None = None
        self._handed: tuple[Situation, Path] | None = None
        self._count = 0

    def costs(self, situation: Situation, candidates: Sequence[Knobs], objective: Objective) -> list[float]:
        if len(candidates) < 2:
            return LocalTrials("reference").costs(situation, candidates, objective)
        path = self._hand_over(situation)
        try:
            with _interrupts_wait():  # workers are started here, and inherit it: Ctrl-C is for us alone
                if self._pool is None:
                    self._pool = ProcessPoolExecutor(self._workers, get_context("spawn"))
                waiting = [self._pool.submit(_cost, path, knobs, objective.name) for knobs in candidates]
            return [one.result() for one in waiting]
        except BrokenProcessPool:
            raise TrialsLost(
                f"one of {self._workers} worker processes was killed (out of memory?); the run ends here; "
                "try fewer --workers, or --executor local."
            ) from None

    def close(self) -> None:
        """Let running trials end, and drop the rest."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _hand_over(self, situation: Situation) -> Path:
        if self._handed is None or self._handed[0] is not situation:
            if self._handed is not None:
                self._handed[1].unlink()
            self._count += 1
            path = self._folder / f"situation-{self._count}.pickle"
            path.write_bytes(pickle.dumps(situation, protocol=pickle.HIGHEST_PROTOCOL))
            self._handed = situation, path
        return self._handed[1]


@contextmanager
def open_trials(executor: str, workers: int, engine: str = "auto") -> Iterator[Trials]:
    """Give trials on an executor: `local`, or `processes` with a number of workers.

    The compiled core needs no processes: it tries as many settings at once on threads.

    Raises:
        ConfigError: If the number of workers is below 1.
    """
    if workers < 1:
        raise ConfigError(f"workers = {workers}: it must be at least 1; nothing was run.")
    if executor == "local" or workers == 1:
        yield LocalTrials(engine)
        return
    with tempfile.TemporaryDirectory(prefix="trimtab-") as folder:
        others = ProcessTrials(workers, Path(folder))
        try:
            yield LocalTrials(engine, workers, others)
        finally:
            others.close()


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Leave Ctrl-C unheard for a moment; processes started meanwhile never hear it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@lru_cache(maxsize=1)
def _handed_over(path: Path) -> Situation:
    found = pickle.loads(path.read_bytes())
    assert isinstance(found, Situation)
    return found


def _cost(path: Path, knobs: Knobs, objective: str) -> float:
    return find_objective(objective).cost(_handed_over(path).stays(knobs))
