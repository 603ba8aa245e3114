"""The control loop as a program: one thread that ticks and obeys, one that answers, one that searches.

Whoever asks for something is answered by the thread of the loop, between two ticks: nothing is changed by
anybody else. Settings are read again on SIGHUP or on request; a bad file is refused whole and the old
settings stay.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from trimtab import __version__
from trimtab.control.adapter import Adapter
from trimtab.control.advising import Searches
from trimtab.control.journal import plain
from trimtab.control.loop import Loop
from trimtab.control.orders import Plant
from trimtab.control.prometheus import metrics_text
from trimtab.control.safety import Safety
from trimtab.control.settings import SchedulerSettings, Settings, read_settings, read_token
from trimtab.control.sight import SCHEMA
from trimtab.control.simulated import Simulated
from trimtab.control.status import status_of
from trimtab.errors import ConfigError, JournalError, TrimtabError
from trimtab.policies.catalog import find_policy
from trimtab.search.spaces import search_space
from trimtab.simulate.run import World
from trimtab.simulate.trials import LocalTrials
from trimtab.simulate.workload import Workload
from trimtab.site import PLAIN_SITE, Site
from trimtab.traces.files import read
from trimtab.traces.loader import load
from trimtab.traces.trace import Trace
from trimtab.world import epoch_ms, wall_s

# Parts of entries that are for replay, not for logs.
_LONG = ("round", "kept", "asked")

# How often old days are looked for in the journal, of wall time.
_RETAIN_EVERY_S = 3600.0

# A tick that is so many polls and so much wall time late is not merely slow.
_POLLS_LATE, _STANDS_STILL_S = 3, 10.0


class Clock:
    """The loop's own clock: ms at the scheduler's pace; goes on over restarts, and never back in one run."""

    def __init__(self, pace: float) -> None:
        self._pace, self._epoch_ms, self._began_s = pace, epoch_ms(), wall_s()

    def __call__(self) -> int:
        return round((self._epoch_ms + (wall_s() - self._began_s) * 1000) * self._pace)


def log(event: str, values: Mapping[str, Any]) -> None:
    """Write one JSON line to stderr."""
    time = datetime.fromtimestamp(epoch_ms() / 1000, UTC).isoformat(timespec="milliseconds")
    short = {name: value for name, value in values.items() if name not in _LONG}
    print(json.dumps(plain({"time": time, "event": event, **short})), file=sys.stderr, flush=True)


@dataclass
class _Wish:
    """Something asked of the loop's thread."""

    name: str
    by: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)
    answer: Future[str] = field(default_factory=Future)


class Service:
    """The loop of one settings file, until it is stopped.

    Args:
        path: The settings file.

    Attributes:
        settings: Those in use.
        status: How things stand, as of the last tick. metrics: the same for Prometheus.
        recent: What was decided lately. told: how often all these were brought up to date.

    Raises:
        ConfigError: If the settings are not possible.
        JournalError: If the journal cannot be opened, or another process writes it.
    """

    def __init__(self, path: Path) -> None:
        from trimtab.control.ledger import Ledger, Versions  # SQLAlchemy: optional, and slow to load
        from trimtab.control.recent import Recent

        self.settings = settings = read_settings(path)
        settings.server.check()  # refused before the journal has an entry
        self._path, self._wishes = path, queue.SimpleQueue[_Wish]()
        self._clock = Clock(settings.scheduler.pace)
        self._refused = ""
        self._searcher = ThreadPoolExecutor(1, thread_name_prefix="trimtab-search")
        self.journal = Ledger.open(settings.journal)
        try:
            plant = plant_of(settings.scheduler)
            self._scheduler = open_scheduler(settings.scheduler)
            check_objective(settings, self._scheduler)
            self.loop = Loop(
                self._scheduler,
                self.journal,
                plant,
                settings.orders,
                searches_of(settings, plant),
                self._clock,
                f"{epoch_ms():x}",
                log,
                self._search,
            )
            self.journal.versions = Versions(**decided_by(settings.scheduler.policy))
            self.loop.start(told_of(settings))
            self.status: dict[str, Any] = {}
            self.metrics = ""
            self.told, self._told_s = 0, wall_s()
            self._retain_s = self._told_s
            self.recent = Recent(self.journal)
            self._show_first()
        except BaseException:
            self.journal.close()
            raise

    def _search(self, work: Callable[[], Any]) -> Future[Any]:
        found = self._searcher.submit(work)
        found.add_done_callback(lambda _: self._wishes.put(_Wish("look")))
        return found

    def _show_first(self) -> None:
        """Show how things stand for the first time.

        Raises:
            ConfigError: If that cannot be shown, for whatever reason.
        """
        try:
            self._show()
        except Exception as failure:
            why = f"what it holds cannot be shown ({_named(failure)})"
            raise ConfigError(f"{self.journal.name}: {why}; nothing was started.") from failure

    def _publish(self) -> None:
        """Show how things stand; where that fails, what is shown grows old, and the loop goes on."""
        before = self.loop.trouble.pop("page", None)
        try:
            self._show()
        except Exception as failure:  # whatever it is, it is no reason to leave the scheduler unwatched
            sentence = f"cannot be brought up to date ({_named(failure)})"
            self.loop.trouble["page"] = sentence
            if sentence != before:
                log("trouble", {"about": "page", "sentence": sentence})

    def _show(self) -> None:
        now_ms = self._clock()
        told = {"settings": str(self._path), "digest": self.settings.digest, "refused": self._refused or None}
        self.status = {**plain(status_of(self.loop, now_ms)), "settings": told}
        self.metrics = metrics_text(self.loop, now_ms)
        if "journal" not in self.loop.trouble:
            with suppress(JournalError):
                self.recent.take(self.loop.past)
        self.told, self._told_s = self.told + 1, wall_s()

    @property
    def age_s(self) -> float:
        """How old the status is, in s of wall time."""
        return wall_s() - self._told_s

    @property
    def old_s(self) -> float:
        """The age from which the loop is taken to stand still."""
        return (
            _STANDS_STILL_S + _POLLS_LATE * self.settings.orders.poll_ms / 1000 / self.settings.scheduler.pace
        )

    # ---- what may be asked, from any thread --------------------------------------------------------

    def ask(self, name: str, by: str, body: Mapping[str, Any] | None = None) -> Future[str]:
        """Ask the loop for `approve`, `rollback`, `pause`, `resume`, `reload` or `stop`.

        Returns:
            What happens then, or the refusal, when the loop has come to it.
        """
        wish = _Wish(name, by, body or {})
        self._wishes.put(wish)
        return wish.answer

    # ---- the loop's thread -------------------------------------------------------------------------

    def run(self) -> None:
        """Tick until somebody asks for a stop."""
        try:
            while True:
                due_ms = self.loop.tick()
                self._retain()
                self._publish()
                wait_s = (due_ms - self._clock()) / 1000 / self.settings.scheduler.pace
                if not self._obey(max(0.0, wait_s)):
                    return
        finally:
            self._searcher.shutdown(wait=False, cancel_futures=True)
            self.journal.close()

    def _retain(self) -> None:
        """Move the oldest day that is old enough out of the journal, unless a change is in flight."""
        rule = self.settings.retention
        if rule is None or self.loop.standing.open is not None or wall_s() < self._retain_s:
            return
        self._retain_s = wall_s() + _RETAIN_EVERY_S
        try:
            moved = self.journal.retain(epoch_ms() - rule.after_ms, rule.folder, days=1)
        except TrimtabError as error:
            self.loop.trouble["old days"] = str(error)
            log("trouble", {"about": "old days", "sentence": str(error)})
            return
        self.loop.trouble.pop("old days", None)
        for export in moved:
            log("moved", {"file": str(export.path), "entries": export.entries})
            self._retain_s = wall_s()  # there may be another day

    def _obey(self, wait_s: float) -> bool:
        """Do what is asked for within a time; return whether to go on."""
        try:
            wish = self._wishes.get(timeout=wait_s)
        except queue.Empty:
            return True
        if wish.name == "stop":
            with suppress(JournalError):
                self.loop.stop()
            wish.answer.set_result("stopped")
            return False
        try:
            wish.answer.set_result(self._done(wish))
        except TrimtabError as refusal:
            log("refused", {"wish": wish.name, "by": wish.by, "reason": str(refusal)})
            wish.answer.set_exception(refusal)
        self._publish()
        return True

    def _done(self, wish: _Wish) -> str:
        match wish.name:
            case "look":
                return ""
            case "approve":
                return self.loop.approve(wish.by, wish.body.get("key"))
            case "rollback":
                return self.loop.rollback(wish.by)
            case "pause":
                return self.loop.pause(wish.by)
            case "resume":
                return self.loop.resume(wish.by)
            case "reload":
                return self._reload()
        raise ConfigError(f"there is no command {wish.name!r:.40}.")

    def _reload(self) -> str:
        """Take up the settings file as it is now, or keep all as it was."""
        try:
            self._adopt(read_settings(self._path))
        except JournalError:
            raise
        except Exception as failure:  # settings may be wrong in any way, and must not end the loop
            self._refused = str(failure) if isinstance(failure, TrimtabError) else self._unforeseen(failure)
            self.loop.refuse_settings(self._refused)
            raise ConfigError(self._refused) from failure
        self._refused = ""
        return f"settings {self.settings.digest} are in use"

    def _unforeseen(self, failure: Exception) -> str:
        return f"{self._path}: {_named(failure)}; nothing was changed."

    def _adopt(self, found: Settings) -> None:
        """Go by other settings from now on.

        Raises:
            ConfigError: If that needs a restart, or they do not go with what runs; the old ones stay.
        """
        if why := self.settings.needs_restart(found):
            raise ConfigError(f"{self._path}: {why}; nothing was changed.")
        check_objective(found, self._scheduler)
        plant = plant_of(found.scheduler)
        searches = searches_of(found, plant) if searches_anew(self.settings, found, plant) else None
        self.loop.adopt(found.orders, searches, found.digest, found.asked)
        self.settings = found


def _named(failure: Exception) -> str:
    """Return what failed as one line."""
    return " ".join(f"{type(failure).__name__}: {failure}".split())


def decided_by(policy: str) -> dict[str, str]:
    """Return the versions of what decides: of Trimtab, of states, and of a policy's code."""
    source = Path(inspect.getfile(type(find_policy(policy)))).read_bytes()
    return {
        "trimtab": __version__,
        "trace_schema": str(SCHEMA),
        "policy": hashlib.sha256(source).hexdigest()[:12],
    }


def told_of(settings: Settings) -> dict[str, Any]:
    """Return what the journal is told at a start, all that decisions are made by beside states."""
    return {
        "settings": settings.digest,
        "scheduler": settings.scheduler.address,
        "asked": settings.asked,
        "versions": decided_by(settings.scheduler.policy),
    }


def searches_anew(before: Settings, after: Settings, plant: Plant) -> bool:
    """Whether other settings need other searches, which have learned nothing yet."""
    return after.searching != before.searching or _held(after, plant) != _held(before, plant)


def _held(settings: Settings, plant: Plant) -> frozenset[str]:
    safety: Safety = settings.orders.safety
    return safety.held(settings.orders.mode, plant.knobs)


def _world_of(scheduler: SchedulerSettings) -> World:
    return World(
        placement=scheduler.placement,
        restart_cost_s=scheduler.restart_cost_s,
        estimates=scheduler.estimates,
    )


def plant_of(scheduler: SchedulerSettings) -> Plant:
    """Return what a scheduler is taken for."""
    policy = find_policy(scheduler.policy)
    space = search_space(policy, policy.space.defaults, scheduler.placement)
    return Plant(scheduler.policy, space, _world_of(scheduler).environment(Workload([], [])))


def searches_of(settings: Settings, plant: Plant) -> Searches:
    """Return the advisors that settings ask for."""
    return Searches(settings.searching, LocalTrials(), _held(settings, plant))


def check_objective(settings: Settings, scheduler: Adapter) -> None:
    """Refuse to look for fewer violations where it is known that no job will ever have a deadline.

    Raises:
        ConfigError: If that is asked for.
    """
    wanted = settings.searching.tuning.objective.name
    if wanted == "violations" and isinstance(scheduler, Simulated) and not scheduler.has_deadlines:
        raise ConfigError(
            f"{settings.path}: search.objective = 'violations': no job of {settings.scheduler.address} has a "
            "deadline; nothing was changed."
        )


def open_scheduler(scheduler: SchedulerSettings) -> Adapter:
    """Return the scheduler that settings name.

    Raises:
        ConfigError: If it cannot be reached as it is named, or what that needs is not installed.
    """
    kind, _, rest = scheduler.address.partition(":")
    if kind == "simulated":
        return simulated(scheduler, load(rest), scheduler.pace)
    if kind == "slurm":
        return _slurm(scheduler, Path(rest))
    if kind == "dispatch":
        return _dispatched(scheduler, Path(rest))
    try:
        from trimtab.control.grpc_adapter import GrpcAdapter  # grpcio: optional
    except ImportError as missing:
        raise ConfigError(
            f"scheduler needs {missing.name}; pip install 'trimtab[grpc]'; nothing ran."
        ) from None
    roots = None if scheduler.ca_file is None else read(scheduler.ca_file).data
    token = read_token(scheduler.token_file)
    return GrpcAdapter(
        rest.removeprefix("//"), token, scheduler.policy, roots=roots, site=_site_of(scheduler) or PLAIN_SITE
    )


def _site_of(scheduler: SchedulerSettings) -> Site | None:
    return None if scheduler.site is None else Site.from_toml(str(scheduler.site))


def simulated(scheduler: SchedulerSettings, trace: Trace, speedup: float | None = None) -> Simulated:
    """Return the engine as the scheduler of a trace; without a speedup its clock is moved by hand.

    Raises:
        ConfigError: If it is to start after the last job, or its policy cannot run the trace.
    """
    world = replace(_world_of(scheduler), site=str(scheduler.site or ""))
    workload = world.workload(trace)
    start_ms, last_ms = scheduler.start_ms or 0, workload.facts[-1].submit_ms
    if start_ms > last_ms:
        _, _, source = scheduler.address.partition(":")
        raise ConfigError(
            f"scheduler.start = {start_ms / 1000:,.0f} s: the last job of {source} comes at "
            f"{last_ms / 1000:,.0f} s; nothing was started."
        )
    return Simulated(
        workload,
        scheduler.cluster,
        scheduler.policy,
        find_policy(scheduler.policy).space.defaults,
        world.environment(workload),
        start_ms=scheduler.start_ms,
        speedup=speedup,
    )


def _slurm(scheduler: SchedulerSettings, conf: Path) -> Adapter:
    from trimtab.control.slurm import SlurmAdapter
    from trimtab.control.slurm_commands import Commands
    from trimtab.control.slurm_history import past_of

    commands = Commands(conf)
    return SlurmAdapter(
        commands,
        scheduler.policy,
        scheduler.file,
        past=lambda: past_of(commands, scheduler.past_ms),
        site=_site_of(scheduler),
    )


def _dispatched(scheduler: SchedulerSettings, path: Path) -> Adapter:
    from trimtab.control.dispatch_settings import read_dispatch
    from trimtab.control.dispatched import Dispatched
    from trimtab.control.slurm_commands import commands_for

    settings = read_dispatch(path, scheduler.policy)
    return Dispatched(commands_for(settings.conf, settings.timeout_s), settings)


def heed_signals(service: Service) -> None:
    """Reload on SIGHUP, stop on SIGTERM and Ctrl-C; for the main thread."""

    def reload(number: int, frame: FrameType | None) -> None:
        service.ask("reload", "SIGHUP")

    def stop(number: int, frame: FrameType | None) -> None:
        service.ask("stop", signal.Signals(number).name)

    signal.signal(signal.SIGHUP, reload)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


def serve(path: Path, page: tuple[str, str]) -> None:
    """Run the loop of a settings file and answer at its address, until stopped.

    Args:
        page: Shown at the address, and the Content-Security-Policy it is sent with.

    Raises:
        ConfigError: If the settings are not possible, the address is taken, or a package is missing.
        JournalError: If the journal cannot be opened, or another process writes it.
    """
    try:
        from trimtab.control.console import Console  # its web server is optional
    except ImportError as missing:
        raise ConfigError(f"serve needs {missing.name}; pip install 'trimtab[serve]'; nothing ran.") from None

    service = Service(path)
    console = Console(service, service.settings.server, page)
    heed_signals(service)
    try:
        console.start()
        log("serving", {"listen": console.address, "settings": service.settings.digest})
        service.run()
    finally:
        console.stop()
        log("stopped", {"threads": threading.active_count()})
