"""The control loop: looks at a live scheduler, searches, decides by its mode, and scores what came of it.

What is written, and what becomes of it, is `changer`'s business; what may be written is `safety`'s. This says
when to look, when to search, and what to do with what a search finds. One thread calls it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from trimtab.control import safety as checks
from trimtab.control.adapter import Adapter, State, Unreachable
from trimtab.control.advising import Advising, SearchKind
from trimtab.control.changer import Changer, Journal, Say
from trimtab.control.guardrails import Apply, Tenure
from trimtab.control.orders import Orders, Plant
from trimtab.control.register import Register, Torn, check_held
from trimtab.control.rounds import Round
from trimtab.control.scoring import Shadow
from trimtab.control.standing import Standing
from trimtab.errors import ConfigError, JournalError, TrimtabError
from trimtab.forecast.backtest import belief
from trimtab.job import JobState
from trimtab.knobs import Knobs
from trimtab.search.scene import Scene

_EVENTS_AT_ONCE = 10_000
_EVENTS_A_TICK = 200_000
_OPEN_POLL_MS = 5_000
_JUMP_MS = 60_000
_SHADOWS_MAX = 100

# A gain that was looked at in one round only counts from here on.
_ONCE_GAIN_MIN = 1.1


@dataclass
class Counts:
    """What has happened since this process began, for metrics."""

    rounds: dict[tuple[str, str], int] = field(default_factory=dict)  # by search and decision
    unreachable: int = 0
    journal_failures: int = 0
    search_s: float = 0.0


@dataclass(frozen=True)
class _Search:
    """A search that goes on, and what it began with."""

    kind: SearchKind
    scene: Scene
    version: int
    found: Future[tuple[Round, Knobs, float]]


def at_once(work: Callable[[], Any]) -> Future[Any]:
    """Do work here and now; what it raises is kept for whoever asks for its result."""
    found: Future[Any] = Future()
    try:
        found.set_result(work())
    except Exception as error:
        found.set_exception(error)
    return found


class Loop:
    """The loop beside one scheduler.

    Args:
        adapter: The scheduler.
        journal: Open for writing.
        plant: How it is modelled.
        orders: How to work.
        advising: Searches.
        clock: The loop's own clock, in ms at the scheduler's pace; it never goes back.
        run: Names this start of the program; keys of changes begin with it.
        say: Is told what happens, for logs.
        submit: Runs a search, here or elsewhere.

    Attributes:
        changer: Knows what is in force, and changes it.
        register: The jobs known so far. seen: the last state that was fit to decide on.
        trouble: What is wrong now, in sentences by what it concerns; empty if nothing is.
        last: What the last round came to. counts: what has happened, for metrics.
    """

    def __init__(
        self,
        adapter: Adapter,
        journal: Journal,
        plant: Plant,
        orders: Orders,
        advising: Advising,
        clock: Callable[[], int],
        run: str,
        say: Say = lambda event, values: None,
        submit: Callable[[Callable[[], Any]], Future[Any]] = at_once,
    ) -> None:
        orders.safety.check(orders.mode, plant.knobs)
        self._adapter, self._plant, self._advising = adapter, plant, advising
        self._clock, self._run, self._say, self._submit = clock, run, say, submit
        self.changer = Changer(adapter, journal, plant.knobs, orders, clock, run, say, self._drop_shadow)
        self.register = Register()
        self.trouble: dict[str, str] = {}
        self.counts = Counts()
        self.last: Mapping[str, Any] = {}
        self.seen: State | None = None
        self._searching: _Search | None = None
        self._offered: tuple[str, Scene] | None = None
        self._shadows: list[Shadow] = []
        self._clocks: tuple[int, int] | None = None  # the scheduler's and one's own, when last looked at
        self._jumped_ms = 0
        self._round_ms: int | None = None

    @property
    def standing(self) -> Standing:
        """How things stand, as the journal has it."""
        return self.changer.standing

    @property
    def orders(self) -> Orders:
        """How it works now."""
        return self.changer.orders

    def start(self, body: Mapping[str, Any]) -> None:
        """Recover, and write down that the loop begins."""
        self.changer.recover()
        self.changer.note("start", {"run": self._run, "mode": self.orders.mode, **body})

    def stop(self) -> None:
        """Write down that it ends; a change in flight is settled by the next start."""
        self.changer.note("stop", {"run": self._run})

    # ---- a tick ----------------------------------------------------------------------------------

    def tick(self) -> int:
        """Do what is due.

        Returns:
            When to call again, on the loop's own clock.
        """
        try:
            self.changer.recover_if_in_doubt()
            self._look()
            self._finish_search()
            self._score()
            self.changer.act()
            self._begin_round()
            self._finish_search()
            self.trouble.pop("scheduler", None)
            self.trouble.pop("journal", None)
        except Unreachable as error:
            self.counts.unreachable += 1
            self._worry("scheduler", str(error))
        except JournalError as error:
            self.counts.journal_failures += 1
            self._worry("journal", f"{error} Nothing is changed until it can be written again.")
        except TrimtabError as error:
            self._worry("scheduler", str(error))
        return self._next_ms()

    def _worry(self, about: str, sentence: str) -> None:
        if self.trouble.get(about) != sentence:
            self._say("trouble", {"about": about, "sentence": sentence})
        self.trouble[about] = sentence

    def _next_ms(self) -> int:
        now_ms = self._clock()
        if self.standing.open is not None or self._searching is not None:
            return now_ms + min(_OPEN_POLL_MS, self.orders.poll_ms)
        due_ms, _ = self._due()
        later_ms = now_ms + self.orders.poll_ms
        return min(later_ms, due_ms) if due_ms > now_ms else later_ms  # what is due had to be left

    # ---- looking ---------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read what is in force and what has happened; settle what can be settled."""
        self.changer.at_ms = self._adapter.now_ms()
        self._check_clock()
        self.changer.look()
        self._hear()

    def _check_clock(self) -> None:
        own_ms = self._clock()
        self._jumped_ms = 0
        if self._clocks is not None:
            at_ms, before_ms = self._clocks
            jump_ms = (self.changer.at_ms - at_ms) - (own_ms - before_ms)
            if abs(jump_ms) > _JUMP_MS + (own_ms - before_ms) // 10:
                self._jumped_ms = jump_ms
                self._say("clock_jump", {"jump_s": jump_ms / 1000})
        self._clocks = self.changer.at_ms, own_ms

    def _hear(self) -> None:
        taken = 0
        while taken < _EVENTS_A_TICK:
            events = self._adapter.events(self.register.after, _EVENTS_AT_ONCE)
            before = self.register.latest
            self.register.hear(events)
            taken += len(events)
            if self.register.latest == before:
                return

    # ---- rounds ----------------------------------------------------------------------------------

    def _due(self) -> tuple[int, SearchKind]:
        """Return when the next round is due, and of which kind it is."""
        main_ms = self.standing.main_ms
        if main_ms is None:
            return self._clock(), "main"
        next_main_ms = main_ms + self.orders.interval_ms
        light_ms = self.orders.background_ms
        if light_ms is None or self.orders.mode == "observe":
            return next_main_ms, "main"
        since_ms = max(main_ms, self._round_ms or main_ms)
        if since_ms + light_ms < next_main_ms:
            return since_ms + light_ms, "background"
        return next_main_ms, "main"

    def _begin_round(self) -> None:
        due_ms, kind = self._due()
        if self._searching is not None or self.standing.open is not None or self._clock() < due_ms:
            return
        if self.standing.knobs is None or self.changer.read is None:
            return
        state = self._adapter.state()
        self._round_ms = self._clock()
        try:
            scene = self._scene(state)
        except Torn as torn:
            self._keep(kind, str(torn))
            return
        self.changer.note("state", self._summary(scene))
        if why := self._unfit(scene):
            self._keep(kind, why)
            return
        tenure = self.standing.tenure(self._clock())
        version, orders, advising = self.standing.version, self.orders, self._advising
        found = self._submit(lambda: self._sought(scene, tenure, kind, orders, advising))
        self._searching = _Search(kind, scene, version, found)

    def _scene(self, state: State) -> Scene:
        """Return what a search begins with.

        Raises:
            Torn: If the state is too old, or contradicts itself.
        """
        age_ms = self.changer.at_ms - state.snapshot.now_ms
        if self._jumped_ms:
            raise Torn(f"the scheduler's clock jumped by {self._jumped_ms / 1000:g} s: no decision")
        if abs(age_ms) > self.orders.safety.state_age_max_ms:
            raise Torn(f"the state is {age_ms / 1000:g} s old: no decision")
        identity = self._adapter.identity()
        self.changer.writes = identity.writes
        check_held(state, identity.cluster, self._plant.environment.placement)
        self.register.see(state)
        self.seen = state
        assert self.standing.knobs is not None
        plant = self._plant
        return self.register.scene(
            state, self.standing.knobs, identity.cluster, plant.policy, plant.environment, plant.space
        )

    def _unfit(self, scene: Scene) -> str | None:
        """Say why nothing is searched."""
        if self.orders.mode == "observe":
            return "mode observe: nothing is searched"
        past = scene.past
        known_ms = past.now_ms - int(past.submit_ms[0]) if len(past) else 0
        least_ms = self.orders.safety.history_min_ms
        if known_ms < least_ms:
            return f"the history is {known_ms / 1000:g} s long, {least_ms / 1000:g} s are needed"
        return belief(past, self.orders.interval_ms).doubt(self.orders.rails.belief_min)

    def _sought(
        self, scene: Scene, tenure: Tenure, kind: SearchKind, orders: Orders, advising: Advising
    ) -> tuple[Round, Knobs, float]:
        """Search; return the round, the setting that it comes to within the limits, and that one's gain."""
        one = advising.advise(scene, tenure, kind)
        gain = one.record.get("guards", {}).get("gain", one.gain)
        if not isinstance(one.verdict, Apply):
            return one, scene.running, 1.0
        best = one.verdict.knobs
        near = checks.within(scene.running, best, self._plant.knobs, orders.safety, orders.mode)
        if near not in (best, scene.running):
            gain = advising.gain(scene, near)
        return one, near, gain

    def _finish_search(self) -> None:
        searching = self._searching
        if searching is None or not searching.found.done():
            return
        self._searching = None
        try:
            one, wanted, gain = searching.found.result()
        except Exception as error:  # a search may fail in any way, and must not end the loop
            self._keep(searching.kind, f"the search failed: {type(error).__name__}: {error}")
            return
        self.counts.search_s += one.search_s
        why = self._refusal(searching, one, wanted, gain)
        if why is not None:
            self._keep(searching.kind, why, one)
        else:
            self._decide(searching, one, wanted, gain)

    def _refusal(self, searching: _Search, one: Round, wanted: Knobs, gain: float) -> str | None:
        if not isinstance(one.verdict, Apply):
            return one.verdict.reason
        running = searching.scene.running
        limits = self._plant.knobs, self.orders.safety, self.orders.mode
        if wanted == running:
            return (
                checks.moves_too_much(running, one.verdict.knobs, *limits)
                or "no legal setting is near enough"
            )
        least = self.orders.rails.gain_min
        if wanted != one.verdict.knobs:
            least = max(least, _ONCE_GAIN_MIN)
            if math.isnan(gain) or gain < least:
                return f"the best setting is too far for one change, and halfway the gain is {gain:.3f}"
        if why := checks.disappoints(gain, self.standing.pairs, least):
            # What it would have come to is looked at all the same: else nothing could restore the belief.
            self._shadow(searching.scene, wanted, gain, made=False, key=self.changer.key())
            return why
        if self.orders.mode == "shadow":
            return None
        return self.changer.objection(wanted, searching.version)

    def _decide(self, searching: _Search, one: Round, wanted: Knobs, gain: float) -> None:
        """Do what the mode says with a change that nothing speaks against."""
        mode, reason, key = self.orders.mode, one.verdict.reason, self.changer.key()
        finite = gain if math.isfinite(gain) else None
        said = {"knobs": wanted.jsonable(), "gain": finite, "expected": searching.version, "key": key}
        if mode == "shadow":
            self._note_verdict(searching.kind, "shadow", reason, one, {"shadowed": said})
            self._shadow(searching.scene, wanted, gain, made=False, key=key)
        elif mode == "approve":
            self._note_verdict(searching.kind, "proposed", reason, one, {"proposed": said})
            self._offered = key, searching.scene
        else:
            self._note_verdict(searching.kind, "applied", reason, one, {})
            self._shadow(searching.scene, wanted, gain, made=True, key=key)
            self.changer.intend(wanted, "change", gain, reason, key)

    def _keep(self, kind: SearchKind, why: str, one: Round | None = None) -> None:
        self._note_verdict(kind, "kept", why, one, {})

    def _note_verdict(
        self, kind: SearchKind, decision: str, why: str, one: Round | None, more: Mapping[str, Any]
    ) -> None:
        body = {"search": kind, "decision": decision, "reason": why, **more}
        self.changer.note("verdict", body if one is None else {**body, "round": one.recorded()})
        self.last = {**body, "own_ms": self._clock()}
        self.counts.rounds[kind, decision] = self.counts.rounds.get((kind, decision), 0) + 1

    def _summary(self, scene: Scene) -> dict[str, Any]:
        return {
            "knobs": scene.running.jsonable(),
            "version": self.standing.version,
            "time_ms": scene.now_ms,
            "pending": scene.count(JobState.PENDING),
            "running": scene.count(JobState.RUNNING),
            "known": len(self.register),
            "events": self.register.events,
        }

    # ---- what changes were worth -----------------------------------------------------------------

    def _shadow(self, scene: Scene, knobs: Knobs, gain: float, made: bool, key: str) -> None:
        if math.isfinite(gain):
            due_ms = self._clock() + self.orders.safety.score_ms
            self._shadows = [*self._shadows, Shadow(scene, knobs, gain, due_ms, made, key)][-_SHADOWS_MAX:]

    def _drop_shadow(self, key: str) -> None:
        self._shadows = [one for one in self._shadows if one.key != key or not one.made]

    def _score(self) -> None:
        """Score what is due against what came; one that cannot be scored now is looked at again later."""
        now_ms = self._clock()
        due = [one for one in self._shadows if one.due_ms <= now_ms]
        if not due or self._jumped_ms:
            return
        state = self._adapter.state()
        if abs(self.changer.at_ms - state.snapshot.now_ms) > self.orders.safety.state_age_max_ms:
            return
        try:
            self.register.see(state)
        except Torn:
            return
        past, facts = self.register.past(state)
        for one in due:
            self._shadows.remove(one)
            if past.now_ms > one.scene.now_ms:
                gain = self._advising.realised(one, past, facts)
                self.changer.note("trial", _scored(one, gain, self.orders.safety.loss_below), None)

    # ---- what people ask for ---------------------------------------------------------------------

    def approve(self, by: str, key: str | None = None) -> str:
        """Make the change that is proposed.

        Returns:
            What happens now.

        Raises:
            ConfigError: If there is none, or something speaks against it by now.
        """
        proposal = self.standing.proposal
        if proposal is None or key not in (None, proposal.key):
            raise ConfigError("no such proposal waits: nothing was changed.")
        self._look()
        if self.standing.proposal != proposal:
            raise ConfigError("the setting was changed since this was proposed: nothing was changed.")
        age_ms = self._clock() - proposal.since_ms
        if age_ms > self.orders.safety.proposal_ms:
            raise ConfigError(f"the proposal is {age_ms / 1000:g} s old and has lapsed: nothing was changed.")
        if why := self.changer.objection(proposal.knobs, proposal.expected):
            raise ConfigError(f"{why}: nothing was changed.")
        if self._offered is not None and self._offered[0] == proposal.key:
            self._shadow(self._offered[1], proposal.knobs, proposal.gain, made=True, key=proposal.key)
        reason = f"approved by {by}: {proposal.reason}"
        self.changer.intend(proposal.knobs, "change", proposal.gain, reason, proposal.key)
        return self._told(proposal.key)

    def rollback(self, by: str) -> str:
        """Go back to the setting before the one in force.

        Returns:
            What happens now.

        Raises:
            ConfigError: If there is none, or a change is in flight.
        """
        self._look()
        standing = self.standing
        if standing.open is not None:
            raise ConfigError(f"change {standing.open.key} is in flight; try again when it has an outcome.")
        if not standing.left:
            raise ConfigError("there is no earlier setting to go back to: nothing was changed.")
        back = standing.left[0][0]
        if why := checks.illegal(back, self._plant.knobs):
            raise ConfigError(f"{why}: nothing was changed.")
        self.changer.ask_back(back, by, f"asked for by {by}")
        self.changer.act()
        return self._told(self.standing.open.key if self.standing.open else None)

    def _told(self, key: str | None) -> str:
        change = self.standing.open
        if change is not None:
            stage = "written" if change.written is not None else "asked for"
            return f"change {change.key} is {stage}, and not yet in force"
        assert self.standing.knobs is not None
        return f"in force: {self.standing.knobs.text()}" + (f" (change {key})" if key else "")

    def pause(self, by: str) -> str:
        """Change nothing until resume; return what that means."""
        self.changer.note("pause", {"by": by})
        return self.standing.paused

    def resume(self, by: str) -> str:
        """Let changes be made again after a pause, or after the breaker opened; return what that means."""
        self.changer.note("resume", {"by": by})
        return "changes may be made again"

    def adopt(self, orders: Orders, advising: Advising | None, digest: str) -> None:
        """Work by other orders from now on.

        Raises:
            ConfigError: If they do not go with the policy's knobs; the old ones stay.
        """
        orders.safety.check(orders.mode, self._plant.knobs)
        self.changer.note("settings", {"digest": digest, "mode": orders.mode, "accepted": True})
        self.changer.orders = orders
        if advising is not None:
            self._advising = advising

    def refuse_settings(self, why: str) -> None:
        """Write down that other settings were refused."""
        self.changer.note("settings", {"accepted": False, "reason": why})


def _scored(one: Shadow, gain: float, loss_below: float) -> dict[str, Any]:
    return {
        "of": one.key,
        "made": one.made,
        "knobs": one.knobs.jsonable(),
        "before": one.scene.running.jsonable(),
        "predicted": one.gain,
        "realised": gain if math.isfinite(gain) and gain > 0 else None,
        "loss": gain < loss_below,
    }
