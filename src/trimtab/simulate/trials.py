"""Candidate settings tried on a situation: on one core, on threads, on processes, on a cluster."""

from __future__ import annotations

import hashlib
import pickle
import platform
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Protocol

from trimtab import __version__
from trimtab.errors import ConfigError, Interrupted, TrialsLost, UnknownName
from trimtab.knobs import Knobs
from trimtab.objective import Measured, Objective, find_objective
from trimtab.policies.catalog import find_policy
from trimtab.simulate.engines import runs_compiled
from trimtab.simulate.executors import CLUSTERS, Workers, open_workers
from trimtab.simulate.fast import FastSituation
from trimtab.simulate.whatif import Situation

# With small chunks few workers wait for a slow one; but each chunk carries the situation, 100 bytes a job.
_CHUNKS_A_WORKER = 4

# A search that can be stopped is between two trials of so many settings at the latest.
_AT_ONCE = 8

# A Dask worker may have several threads; a policy is shared by all of them and need not bear that.
_one_at_a_time = threading.Lock()


class Trials(Protocol):
    """Tries settings on situations: the one seam through which searches reach more cores or machines."""

    def measure(
        self, situation: Situation, candidates: Sequence[Knobs], objective: Objective
    ) -> list[Measured]:
        """Return what each candidate gives, in order; the same on any number of workers."""
        ...


class LocalTrials:
    """Here: in the compiled core on several threads where that can be, else one after another.

    Args:
        engine: auto, compiled or reference.
        threads: How many threads the core may use.
        otherwise: Who tries what the core cannot run, or not several at once: policies of one's own.
    """

    def __init__(self, engine: str = "auto", threads: int = 1, otherwise: Trials | None = None) -> None:
        self._engine = engine
        self._threads = threads
        self._otherwise = otherwise
        self._prepared: tuple[Situation, FastSituation | None] | None = None

    def measure(
        self, situation: Situation, candidates: Sequence[Knobs], objective: Objective
    ) -> list[Measured]:
        fast = self._prepare(situation)
        if self._otherwise is not None and (fast is None or fast.asks_python):
            return self._otherwise.measure(situation, candidates, objective)
        if fast is not None:
            return [objective.of(stays) for stays in fast.stays(candidates, self._threads)]
        return [objective.of(situation.stays(knobs)) for knobs in candidates]

    def _prepare(self, situation: Situation) -> FastSituation | None:
        """Return the situation's state in the core, made once for all searches on it."""
        prepared = self._prepared  # others may be measuring beside this
        if prepared is None or prepared[0] is not situation:
            one, policy = situation, find_policy(situation.policy)
            fast = None
            if runs_compiled(self._engine, one.workload, one.environment, policy):
                fast = FastSituation(
                    one.snapshot,
                    one.workload,
                    one.cluster,
                    policy,
                    one.environment,
                    one.until_ms,
                    one.preemptions_max,
                )
            self._prepared = prepared = situation, fast
        return prepared[1]


class Stoppable:
    """Trials of a search that can be stopped: what is under way ends soon, and nothing more is tried.

    Args:
        trials: Do the work, a few settings at a time.
    """

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self.begin()

    def begin(self, stop_after: int | None = None) -> None:
        """Begin a search, which stops by itself after so many calls if an earlier one did."""
        self._calls, self._why, self._stop_after = 0, "", stop_after

    def stop(self, why: str) -> None:
        """Stop the search that is under way; any thread may say so."""
        self._why = why

    def measure(
        self, situation: Situation, candidates: Sequence[Knobs], objective: Objective
    ) -> list[Measured]:
        found: list[Measured] = []
        for first in range(0, len(candidates), _AT_ONCE):
            if self._why or self._calls == self._stop_after:
                raise Interrupted(self._why, self._calls)
            self._calls += 1
            found += self._trials.measure(situation, candidates[first : first + _AT_ONCE], objective)
        return found


@dataclass(frozen=True)
class Parcel:
    """A situation on its way to a worker, and what must be the same there for the same answers.

    It is pickled once. Every chunk of candidates carries it; a worker opens it once. That costs some 10 ms on
    each side for 2,500 jobs, and needs neither files that all machines see nor the cluster's memory.

    Attributes:
        situation: The pickled situation; a policy of a user's own is named by its absolute path.
        version: The version of Trimtab that made it.
        policy_file: A user's own policy: its file and the sha256 of it.
    """

    situation: bytes
    version: str
    policy_file: tuple[Path, str] | None

    @classmethod
    def of(cls, situation: Situation) -> Parcel:
        """Pack a situation."""
        path, separator, name = situation.policy.partition("::")
        policy_file = _policy_file(path) if separator else None
        if policy_file is not None:
            situation = replace(situation, policy=f"{policy_file[0]}::{name}")
        data = pickle.dumps(situation, protocol=pickle.HIGHEST_PROTOCOL)
        return cls(data, __version__, policy_file)

    def open(self) -> Situation:
        """Return the situation, on a worker.

        Raises:
            TrialsLost: If this worker would give other answers.
        """
        here = f"worker {platform.node()}"
        if self.version != __version__:
            raise TrialsLost(
                f"{here} runs trimtab {__version__}, not {self.version}: its answers may differ; "
                "install the same version there; the run ends here."
            )
        if self.policy_file is not None:
            path, digest = self.policy_file
            if not path.is_file() or _sha256(path) != digest:
                raise TrialsLost(
                    f"{here}: policy file {path} is missing there or is another one; "
                    "put the same file there, or use --executor local; the run ends here."
                )
            find_policy.cache_clear()  # a worker may outlive several versions of a file
        found = pickle.loads(self.situation)
        assert isinstance(found, Situation)
        return found


class WorkerTrials:
    """On workers beside this process, started when first needed.

    Args:
        opening: The workers, not yet opened.
        engine: auto, compiled or reference; chosen anew on each worker.
    """

    def __init__(self, opening: AbstractContextManager[Workers], engine: str) -> None:
        self._opening = opening
        self._engine = engine
        self._workers: Workers | None = None
        self._stack = ExitStack()
        self._packed: tuple[Situation, Parcel] | None = None

    def start(self) -> Workers:
        """Return the workers, opened now if they were not."""
        if self._workers is None:
            self._workers = self._stack.enter_context(self._opening)
        return self._workers

    def measure(
        self, situation: Situation, candidates: Sequence[Knobs], objective: Objective
    ) -> list[Measured]:
        from joblib import delayed

        workers, parcel = self.start(), self._pack(situation)
        size = -(-len(candidates) // (_CHUNKS_A_WORKER * workers.count)) or 1
        chunks = [candidates[start : start + size] for start in range(0, len(candidates), size)]
        calls = [delayed(_measure)(parcel, chunk, objective.name, self._engine) for chunk in chunks]
        try:
            return list(chain.from_iterable(workers.parallel(calls)))
        except workers.lost as error:
            raise TrialsLost(
                f"one of {workers.place} was killed or cannot be reached any more (out of memory?; "
                f"{type(error).__name__}); the run ends here; try fewer --workers, or --executor local."
            ) from None

    def close(self) -> None:
        """Stop what was started."""
        self._stack.close()

    def _pack(self, situation: Situation) -> Parcel:
        if self._packed is None or self._packed[0] is not situation:
            self._packed = situation, Parcel.of(situation)
        return self._packed[1]


@contextmanager
def open_trials(
    executor: str, workers: int, engine: str = "auto", address: str | None = None
) -> Iterator[Trials]:
    """Give trials on an executor.

    The compiled core needs no processes: with `processes`, it tries as many settings at once on threads.

    Args:
        executor: local, processes, dask or ray.
        workers: How many workers to start, at least 1.
        engine: auto, compiled or reference.
        address: HOST:PORT of a Dask or Ray cluster to join instead.

    Raises:
        ConfigError: If the number of workers is below 1, or the executor cannot be opened.
    """
    if workers < 1:
        raise ConfigError(f"workers = {workers}: it must be at least 1; nothing was run.")
    goes_out = executor in CLUSTERS
    if not goes_out and (executor == "local" or workers == 1):
        yield LocalTrials(engine)
        return
    others = WorkerTrials(open_workers(executor, workers, address), engine)
    try:
        if goes_out:
            others.start()
        yield others if goes_out else LocalTrials(engine, workers, others)
    finally:
        others.close()


@lru_cache
def _policy_file(path: str) -> tuple[Path, str]:
    """Return a policy's file and its sha256, as they were when this process first asked."""
    return Path(path).resolve(), _sha256(Path(path))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@lru_cache(maxsize=1)
def _opened(parcel: Parcel, engine: str) -> tuple[Situation, LocalTrials]:
    return parcel.open(), LocalTrials(engine)


def _measure(parcel: Parcel, candidates: Sequence[Knobs], objective: str, engine: str) -> list[Measured]:
    with _one_at_a_time:
        try:
            situation, trials = _opened(parcel, engine)
            return trials.measure(situation, candidates, find_objective(objective))
        except UnknownName as refused:  # takes more than its message, and would not arrive
            raise ConfigError(str(refused)) from None
