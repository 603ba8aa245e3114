"""Where trials can run beside this process: workers that joblib reaches, here or on a cluster."""

from __future__ import annotations

import logging
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, TypeVar
from urllib.parse import urlsplit

from trimtab.errors import ConfigError, TrialsLost

EXECUTORS = ("local", "processes", "dask", "ray")

# Those that can be a cluster that runs already.
CLUSTERS = {"dask": "Dask", "ray": "Ray"}

_SCHEMES = {"dask": ("tcp", "tls"), "ray": ("tcp",)}

Task = TypeVar("Task")
Result = TypeVar("Result")

_REACH_S = 5
_FIRST_WORKER_S = 10
_SILENT = logging.CRITICAL + 1


@dataclass(frozen=True)
class Workers:
    """Workers that are ready.

    Attributes:
        parallel: A `joblib.Parallel` on them: takes delayed calls, returns their results in order.
        count: How many calls run at once.
        place: What to call them in a sentence.
        lost: The errors that mean a worker, or the way to it, is gone.
    """

    parallel: Any
    count: int
    place: str
    lost: tuple[type[Exception], ...]


@contextmanager
def open_workers(executor: str, workers: int, address: str | None = None) -> Iterator[Workers]:
    """Start workers, or join a cluster; what was started here is stopped again.

    joblib and what is behind it are loaded here: most runs do without.

    Args:
        executor: processes, dask or ray.
        workers: How many processes to start; a cluster that is joined has its own. What would go to a
            single Ray worker, joblib runs in this process.
        address: HOST:PORT of a Dask scheduler or a Ray head, None for a local one.

    Raises:
        ConfigError: If the executor is not installed, or nothing useful answers at the address.
    """
    with _OPENERS[executor](workers, address) as opened:
        yield opened


def as_finished(workers: int, call: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
    """Yield what a call gives for each task as it ends, in any order; with one worker, here and in order.

    Raises:
        TrialsLost: If a worker was killed; what ended before has been yielded.
    """
    if workers == 1 or len(tasks) < 2:
        yield from map(call, tasks)
        return
    from joblib import Parallel, delayed
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.process_executor import BrokenProcessPool

    parallel = Parallel(workers, backend="loky", batch_size=1, return_as="generator_unordered")
    try:
        yield from parallel(delayed(call)(task) for task in tasks)
    except BrokenProcessPool as error:
        raise TrialsLost(
            f"one of {workers} worker processes was killed (out of memory?; {type(error).__name__}); the run "
            "ends here; try fewer --workers."
        ) from None
    finally:
        get_reusable_executor(reuse=True).shutdown(wait=True, kill_workers=True)


@contextmanager
def _open_processes(workers: int, address: str | None) -> Iterator[Workers]:
    from joblib import Parallel
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.process_executor import BrokenProcessPool

    with Parallel(workers, backend="loky", batch_size=1, pre_dispatch="all") as parallel:
        try:
            yield Workers(parallel, workers, f"{workers} worker processes", (BrokenProcessPool,))
        finally:
            get_reusable_executor(reuse=True).shutdown(wait=True, kill_workers=True)


@contextmanager
def _open_dask(workers: int, address: str | None) -> Iterator[Workers]:
    try:
        import dask
        from dask.distributed import Client, KilledWorker, LocalCluster
        from distributed.client import FutureCancelledError
        from distributed.comm import CommClosedError
        from distributed.utils import silence_logging_cmgr
    except ImportError:
        raise _missing("dask") from None
    from joblib import Parallel

    place = f"the Dask cluster at {address}" if address else f"{workers} local Dask workers"
    with ExitStack() as stack:
        stack.enter_context(silence_logging_cmgr(_SILENT))
        # A situation goes along with each chunk; Dask would remark on it where there are very many jobs.
        stack.enter_context(dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}))
        if address is None:
            folder = stack.enter_context(_own_folder())
            with _interrupts_unheard():
                started = LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    dashboard_address=":0",  # any free port for its own use; 8787 taken would be remarked on
                    scheduler_kwargs={"dashboard": False},
                    silence_logs=_SILENT,
                    local_directory=folder,
                )
            target = stack.enter_context(started)
        else:
            target = _reachable("dask", address)
        try:
            client = stack.enter_context(Client(target, timeout=_REACH_S, set_as_default=False))
            client.wait_for_workers(1, timeout=_FIRST_WORKER_S)
        except (OSError, ValueError, TimeoutError) as error:
            raise _no_use(place, error) from None
        if address is not None:
            _check_installed(place, lambda: client.run(version, "trimtab"))
            _check_installed(place, lambda: client.run_on_scheduler(version, "trimtab"))
        count = sum(client.nthreads().values())
        parallel = Parallel(count, backend=_dask_backend(client), batch_size=1, pre_dispatch="all")
        lost = (KilledWorker, FutureCancelledError, CommClosedError, OSError)
        yield Workers(stack.enter_context(parallel), count, place, lost)


def _dask_backend(client: Any) -> Any:
    """Return joblib's backend for Dask, mended.

    It would wait for ever for a task that Dask gave up, and with one worker left work in this process.
    """
    from joblib._dask import DaskDistributedBackend

    class Backend(DaskDistributedBackend):  # type: ignore[misc]
        def effective_n_jobs(self, n_jobs: int) -> int:
            return max(2, int(super().effective_n_jobs(n_jobs)))

        def submit(self, func: Any, callback: Any = None) -> Any:
            future = super().submit(func, lambda result: None)
            future.add_done_callback(callback)  # called for errors of Dask's own, too
            return future

        def retrieve_result_callback(self, out: Any) -> Any:
            return super().retrieve_result_callback(out.result())

    return Backend(client=client)


@contextmanager
def _open_ray(workers: int, address: str | None) -> Iterator[Workers]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError:
        raise _missing("ray") from None
    from joblib import Parallel

    quiet = {"log_to_driver": False, "logging_level": _SILENT}
    place = f"the Ray cluster at {address}" if address else f"{workers} local Ray workers"
    with ExitStack() as stack:
        stack.enter_context(_no_raylet_messages())
        if address is None:
            folder = stack.enter_context(_own_folder())
            target = {"num_cpus": workers, "include_dashboard": False, "_temp_dir": folder}
        else:
            target = {"address": _reachable("ray", address)}
        stack.callback(ray.shutdown, wait_for_processes=True)
        try:
            ray.init(**{"address": "local", **target, **quiet})
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise _no_use(place, error) from None
        count = int(ray.cluster_resources().get("CPU", 0))
        if count < 1:
            raise ConfigError(f"{place} has no CPU; nothing was run.")
        if address is not None:
            _check_installed(place, lambda: ray.get(ray.remote(version).remote("trimtab")))
        register_ray()
        parallel = Parallel(count, backend="ray", batch_size=1, pre_dispatch="all")
        yield Workers(stack.enter_context(parallel), count, place, (ray.exceptions.RayError,))


def _own_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder for what a local cluster writes, which goes with it."""
    return tempfile.TemporaryDirectory(prefix="trimtab-", ignore_cleanup_errors=True)


@contextmanager
def _no_raylet_messages() -> Iterator[None]:
    """Keep off stdout what Ray says of its workers' deaths, which no option of it turns off."""
    from ray._private import worker

    before = worker._worker_logs_enabled
    worker._worker_logs_enabled = False
    try:
        yield
    finally:
        worker._worker_logs_enabled = before


_OPENERS = {"processes": _open_processes, "dask": _open_dask, "ray": _open_ray}


def _missing(executor: str) -> ConfigError:
    return ConfigError(
        f'executor {executor}: {CLUSTERS[executor]} is not installed; pip install "trimtab[{executor}]"; '
        "nothing was run."
    )


def _no_use(place: str, error: Exception) -> ConfigError:
    reason = str(error).partition("\n")[0] or type(error).__name__
    return ConfigError(f"{place} cannot be used: {reason}; nothing was run.")


def _check_installed(place: str, ask: Callable[[], object]) -> None:
    """Let a cluster say which Trimtab it has: a Dask worker without one dies of our tasks, and they wait.

    Raises:
        ConfigError: If it has none; what is raised over there then is of many kinds.
    """
    try:
        ask()
    except Exception:
        raise ConfigError(
            f"{place} lacks trimtab: install it there, for the scheduler and each worker; nothing was run."
        ) from None


def _reachable(executor: str, address: str) -> str:
    """Return the address if something listens there: Ray itself takes a minute to give up, and aloud.

    Raises:
        ConfigError: If it is no address, or nothing listens.
    """
    name = CLUSTERS[executor]
    try:
        parts = urlsplit(address if "://" in address else f"tcp://{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or port is None or parts.scheme not in _SCHEMES[executor]:
        raise ConfigError(
            f"address {address!r}: it must be HOST:PORT of the {name} cluster; nothing was run."
        )
    try:
        socket.create_connection((host, port), timeout=_REACH_S).close()
    except OSError as error:
        raise _no_use(f"the {name} cluster at {address}", error) from None
    return address


@contextmanager
def _interrupts_unheard() -> Iterator[None]:
    """Leave Ctrl-C unheard for a moment; processes started meanwhile never hear it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
