"""The control loop: looks at a live scheduler, searches, decides by its mode, and scores what came of it.

What is written, and what becomes of it, is `changer`'s business; what may be written is `safety`'s. This says
when to look, when to search, and what to do with what a search finds. One thread calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from trimtab.control import safety as checks
from trimtab.control.adapter import Adapter, State, Unreachable
from trimtab.control.advising import Advising, SearchKind
from trimtab.control.changer import Changer, Journal, Say
from trimtab.control.deciding import Answer, Decision, Question, decided, failed, kept, sought, unfit
from trimtab.control.orders import Orders, Plant
from trimtab.control.register import Register, Torn, check_held
from trimtab.control.scoring import at_hand, scored
from trimtab.control.sight import Kept, Sight, Unkept, keep, kept_again, names_in
from trimtab.control.standing import Standing, knobs_of
from trimtab.errors import ConfigError, JournalError, TrimtabError
from trimtab.forecast.history import Past
from trimtab.job import JobState
from trimtab.knobs import Knobs
from trimtab.search.scene import Scene
from trimtab.world import epoch_ms

_EVENTS_AT_ONCE = 10_000
_EVENTS_A_TICK = 200_000
_OPEN_POLL_MS = 5_000
_JUMP_MS = 60_000


@dataclass
class Counts:
    """What has happened since this process began, for metrics."""

    rounds: dict[tuple[str, str], int] = field(default_factory=dict)  # by search and decision
    unreachable: int = 0
    journal_failures: int = 0
    search_s: float = 0.0


@dataclass(frozen=True)
class _Search:
    """A search that goes on, and what it was asked."""

    question: Question
    advising: Advising
    found: Future[Answer]


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
        register: The jobs known so far. seen: the last state that was fit to decide on. past: what
            was known of all jobs then.
        looked_s: When it last looked, s since 1970, UTC; None before the first look.
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
        self._journal = journal
        self.changer = Changer(adapter, journal, plant.knobs, orders, clock, run, say)
        self.register = Register()
        self.trouble: dict[str, str] = {}
        self.counts = Counts()
        self.last: Mapping[str, Any] = {}
        self.seen: State | None = None
        self.past: Past | None = None
        self.looked_s: float | None = None
        self._searching: _Search | None = None
        self._at_hand: dict[int, Scene] = {}  # what was decided on, by the number of its entry
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
        """Write down that it ends, and stop what is searched; the next start settles a change in flight."""
        self._interrupt("the program ends")
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
        self.looked_s = epoch_ms() / 1000

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
        """Take the events so far; the few that happen while they are read are left to the next look."""
        taken = 0
        while taken < _EVENTS_A_TICK:
            events = self._adapter.events(self.register.after, _EVENTS_AT_ONCE)
            before = self.register.events
            self.register.hear(events)
            taken += len(events)
            new = self.register.events - before
            if not new or 2 * new < len(events):
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
        now_ms = self._round_ms = self._clock()
        try:
            sight = self._sight(state)
        except Torn as torn:
            self._note_verdict(kept(kind, str(torn), None), now_ms)
            return
        scene = self._scene(sight, self.standing.knobs)
        number = self._note_state(sight, scene, kind, now_ms)
        if why := unfit(scene, self.orders):
            self._note_verdict(kept(kind, why, number), now_ms)
            return
        standing = self.standing
        question = Question(
            kind,
            scene,
            number,
            standing.version,
            standing.tenure(now_ms),
            self.orders,
            self.changer.writes,
        )
        advising, space = self._advising, self._plant.knobs
        advising.begin()
        found = self._submit(lambda: sought(question, advising, space))
        self._searching = _Search(question, advising, found)

    def _sight(self, state: State) -> Sight:
        """Return all that is known now.

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
        self._see(state)
        self.seen = state
        sight = self.register.sight(state, identity.cluster, identity.site)
        self.past = sight.past
        return sight

    def _see(self, state: State) -> None:
        before = self.register.let_go
        self.register.see(state)
        if gone := self.register.let_go - before:
            self._say("let_go", {"jobs": gone, "known": len(self.register), "why": "no more are remembered"})

    def _scene(self, sight: Sight, knobs: Knobs) -> Scene:
        plant = self._plant
        return sight.scene(knobs, plant.policy, plant.environment, plant.space)

    def _note_state(self, sight: Sight, scene: Scene, purpose: str, now_ms: int) -> int:
        """Write down what is going to be decided on, whole; return the number of the entry."""
        parts = keep(sight)
        body = {
            "own_ms": now_ms,
            "purpose": purpose,
            "knobs": scene.running.jsonable(),
            "version": self.standing.version,
            "writes": self.changer.writes,
            "time_ms": scene.now_ms,
            "pending": scene.count(JobState.PENDING),
            "running": scene.count(JobState.RUNNING),
            "known": len(self.register),
            "events": self.register.events,
            "kept": parts.names,
        }
        number = self.changer.note("state", body, parts=parts.parts)
        self._at_hand = at_hand(self._at_hand, self.standing) | {number: scene}
        return number

    def _finish_search(self) -> None:
        searching = self._searching
        if searching is None or not searching.found.done():
            return
        self._searching = None
        question, now_ms = searching.question, self._clock()
        try:
            answer = searching.found.result()
        except Exception as error:  # a search may fail in any way, and must not end the loop
            self._note_verdict(failed(question, error), now_ms)
            return
        self.counts.search_s += answer.one.search_s
        model, graph = (answer.one.record.get(name) for name in ("remaining_model", "graph"))
        if answer.one.forecast is not None:
            told = {"own_ms": now_ms, "search": question.kind, "state": question.state}
            self.changer.note("forecast", {**told, **answer.one.forecast})
        self._journal.learned(None if model is None else str(model), graph)
        key = self.changer.key()
        found = decided(question, answer, self.standing, self.orders, now_ms, key, self._plant.knobs)
        self._note_verdict(found, now_ms)
        if found.change is not None:
            knobs, gain = found.change
            self.changer.intend(knobs, "change", gain, found.body["reason"], key, question.state)

    def _interrupt(self, why: str) -> None:
        if self._searching is not None:
            self._searching.advising.interrupt(why)

    def _note_verdict(self, found: Decision, now_ms: int) -> None:
        body = {"own_ms": now_ms, **found.body}
        self.changer.note("verdict", body)
        self.last = {name: value for name, value in body.items() if name != "round"}
        count = body["search"], body["decision"]
        self.counts.rounds[count] = self.counts.rounds.get(count, 0) + 1

    # ---- what changes were worth -----------------------------------------------------------------

    def _score(self) -> None:
        """Score what is due against what came; where that cannot be seen now, it is looked at again later."""
        now_ms, score_ms = self._clock(), self.orders.safety.score_ms
        due = [one for one in self.standing.unscored if one.since_ms + score_ms <= now_ms]
        if not due or self._jumped_ms or self.standing.knobs is None:
            return
        state = self._adapter.state()
        if abs(self.changer.at_ms - state.snapshot.now_ms) > self.orders.safety.state_age_max_ms:
            return
        try:
            self._see(state)
        except Torn:
            return
        identity = self._adapter.identity()
        sight = self.register.sight(state, identity.cluster, identity.site)
        begun = {one.state: self._begun(one.state) for one in due}
        number = self._note_state(sight, self._scene(sight, self.standing.knobs), "scores", now_ms)
        for one in due:
            body = scored(one, begun[one.state], sight, self._advising, self.orders.safety.loss_below)
            self.changer.note("trial", {"since": one.state, "state": number, **body})

    def _begun(self, number: int) -> Scene | str:
        """Return what was decided on, from the journal if it is not at hand, or why it cannot be had."""
        if number in self._at_hand:
            return self._at_hand[number]
        found = self._journal.entries(number - 1, ("state",), 1)
        if not found or found[0].number != number:
            return f"entry {number}, which has what it was decided on, is no longer in the journal"
        body = found[0].body
        try:
            sight = kept_again(Kept(body["kept"], self._journal.parts(names_in(body["kept"]))))
        except Unkept as why:
            return f"entry {number}: {why}"
        return self._scene(sight, knobs_of(body["knobs"]))

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
        reason = f"approved by {by}: {proposal.reason}"
        self.changer.intend(proposal.knobs, "change", proposal.gain, reason, proposal.key, proposal.state)
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
        """Change nothing until resume, and stop what is searched; return what that means."""
        self.changer.note("pause", {"by": by})
        self._interrupt(f"paused by {by}")
        return self.standing.paused

    def resume(self, by: str) -> str:
        """Let changes be made again after a pause, or after the breaker opened; return what that means."""
        self.changer.note("resume", {"by": by})
        return "changes may be made again"

    def adopt(
        self, orders: Orders, advising: Advising | None, digest: str, asked: Mapping[str, Any] | None = None
    ) -> None:
        """Work by other orders from now on.

        Args:
            advising: Searches from now on, None for the same as before.
            digest, asked: Of the settings that say so, for the journal.

        Raises:
            ConfigError: If they do not go with the policy's knobs; the old ones stay.
        """
        orders.safety.check(orders.mode, self._plant.knobs)
        self.changer.note(
            "settings", {"digest": digest, "mode": orders.mode, "accepted": True, "asked": asked}
        )
        self.changer.orders = orders
        if advising is not None:
            self._advising = advising

    def refuse_settings(self, why: str) -> None:
        """Write down that other settings were refused."""
        self.changer.note("settings", {"accepted": False, "reason": why})
