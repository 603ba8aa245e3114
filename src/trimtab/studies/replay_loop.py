"""The decisions of a control loop again, from its journal alone: must every one come out the same?

All that decides is in the journal: the settings at each start, the state of each round, and how things stood,
which the entries before it say. The scheduler is not asked, and nothing later than a decision is looked at.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from trimtab.control.advising import Searches
from trimtab.control.deciding import (
    STOPPED,
    Answer,
    Question,
    decided,
    failed,
    kept,
    no_way_back,
    opening,
    sought,
    unfit,
)
from trimtab.control.entries import Entry
from trimtab.control.journal import plain
from trimtab.control.orders import Orders, Plant
from trimtab.control.scoring import at_hand, scored
from trimtab.control.service import decided_by, plant_of, searches_anew, searches_of
from trimtab.control.settings import Settings, settings_again
from trimtab.control.sight import Kept, Sight, Unkept, kept_again, names_in
from trimtab.control.standing import Standing, fold, knobs_of
from trimtab.errors import InputError, Interrupted, JournalError
from trimtab.knobs import Knobs
from trimtab.search.scene import Scene
from trimtab.studies.replay import differences, short

Parts = Callable[[Sequence[str]], Mapping[str, bytes]]
Progress = Callable[[str, float], None]

_STATE = "kept"  # the field of an entry that names the parts of its state


@dataclass(frozen=True, slots=True)
class Other:
    """The first entry that is decided otherwise."""

    number: int
    kind: str
    wall_ms: int
    field: str
    then: Any
    now: Any

    def text(self) -> str:
        """Return it in one line."""
        when = datetime.fromtimestamp(self.wall_ms / 1000, UTC).isoformat(timespec="seconds")
        entry = f"entry {self.number}, {self.kind} of {when}"
        if self.field == _STATE:
            return f"{entry}: {str(self.now).rstrip('.')}"
        return f"{entry}: {self.field} was {short(self.then)} and is {short(self.now)}"


@dataclass
class Redone:
    """What came of a replay.

    Attributes:
        same: How many entries of a kind were decided the same again.
        unseen: Rounds that were kept because no state was fit to be looked at: there is nothing to redo.
        left_out: Rounds of a start by other versions, or by none that is told.
        other: The first that is decided otherwise.
    """

    same: Counter[str] = field(default_factory=Counter)
    unseen: int = 0
    left_out: int = 0
    other: Other | None = None

    def jsonable(self) -> dict[str, Any]:
        """Return the object that `replay --format json` prints."""
        other = self.other
        return {
            "identical": other is None,
            "same": dict(self.same),
            "unseen": self.unseen,
            "left_out": self.left_out,
            "difference": {name: getattr(other, name) for name in Other.__slots__} if other else None,
        }


class _Different(Exception):
    def __init__(self, entry: Entry, where: str, then: Any, now: Any) -> None:
        self.other = Other(entry.number, entry.kind, entry.wall_ms, where, then, now)


@dataclass
class _Run:
    """One start of the program: what it decides by."""

    name: str
    settings: Settings
    plant: Plant
    advising: Searches

    @classmethod
    def of(cls, entry: Entry) -> _Run | None:
        """Return what a start says, None if it was by other versions."""
        asked, versions = entry.body.get("asked"), entry.body.get("versions")
        if asked is None:
            return None
        settings = settings_again(asked, entry.body["settings"])
        if versions != decided_by(settings.scheduler.policy):
            return None
        plant = plant_of(settings.scheduler)
        return cls(entry.body["run"], settings, plant, searches_of(settings, plant))

    @property
    def orders(self) -> Orders:
        return self.settings.orders

    def adopt(self, settings: Settings) -> None:
        """Go by other settings."""
        if searches_anew(self.settings, settings, self.plant):
            self.advising = searches_of(settings, self.plant)
        self.settings = settings


def redo(entries: Sequence[Entry], parts: Parts, progress: Progress = lambda text, share: None) -> Redone:
    """Make every decision of a journal again, up to the first that is another one.

    Args:
        entries: All of them, oldest first.
        parts: Gives parts of states by name.

    Raises:
        InputError: If a state is not there.
    """
    found = Redone()
    replay = _Replay(parts, found)
    try:
        for place, entry in enumerate(entries):
            progress(f"entry {entry.number}", place / len(entries))
            replay.take(entry)
    except _Different as different:
        found.other = different.other
    return found


class _Replay:
    """Follows a journal as the loop wrote it, and decides what it decided."""

    def __init__(self, parts: Parts, found: Redone) -> None:
        self._parts, self._found = parts, found
        self._stopped: dict[int, int] = {}  # calls after which the search of a state was stopped
        self._standing = Standing()
        self._run: _Run | None = None
        self._states: dict[int, Entry] = {}
        self._scenes: dict[int, Scene] = {}
        self._asked: tuple[Question, Searches] | None = None
        self._answer: Answer | Exception | None = None  # to what is asked, once it was sought
        self._sight: tuple[int, Sight] | None = None
        self._wanted: Mapping[str, Any] | None = None

    def take(self, entry: Entry) -> None:
        """Decide again what an entry says, compare, and go on."""
        if entry.kind == "state":
            self._states[entry.number] = entry
        if entry.kind == "start":
            self._run, self._asked = _Run.of(entry), None
        elif self._run is not None:
            self._redo(entry, self._run)
        elif entry.kind == "verdict":
            self._found.left_out += 1
        self._standing = fold(self._standing, [entry])

    def _redo(self, entry: Entry, run: _Run) -> None:
        match entry.kind:
            case "settings" if entry.body.get("accepted"):
                run.adopt(settings_again(entry.body["asked"], entry.body["digest"]))
            case "state":
                self._see(entry, run)
            case "forecast":
                self._forecast(entry, run)
            case "verdict":
                self._verdict(entry, run)
            case "intent":
                self._intent(entry)
            case "trial":
                self._trial(entry, run)
            case "breaker":
                self._breaker(entry, run)

    def _compare(self, entry: Entry, now: Mapping[str, Any]) -> None:
        again = json.loads(json.dumps(plain(now)))
        told = {name: entry.body.get(name) for name in again}
        for where, then, otherwise in differences(told, again):
            raise _Different(entry, where, then, otherwise)
        self._found.same[entry.kind] += 1

    def _sight_of(self, entry: Entry) -> Sight:
        """Return the state of an entry, from the journal."""
        try:
            names = entry.body["kept"]
            return kept_again(Kept(names, self._parts(names_in(names))))
        except (JournalError, Unkept) as why:
            raise _Different(entry, _STATE, "as it was written", str(why)) from None
        except KeyError:
            raise InputError(f"entry {entry.number}: has no state; nothing after it was replayed.") from None

    def _see(self, entry: Entry, run: _Run) -> None:
        body, sight = entry.body, self._sight_of(entry)
        scene = _scene(sight, knobs_of(body["knobs"]), run.plant)
        self._scenes = at_hand(self._scenes, self._standing) | {entry.number: scene}
        self._sight = entry.number, sight
        if body["purpose"] != "scores":
            question = Question(
                body["purpose"],
                scene,
                entry.number,
                body["version"],
                self._standing.tenure(body["own_ms"]),
                run.orders,
                body["writes"],
            )
            self._asked, self._answer = (question, run.advising), None

    def _question(self, entry: Entry) -> Question:
        """Return what the round of an entry was asked."""
        if self._asked is None or self._asked[0].state != entry.body["state"]:
            raise _Different(entry, "state", entry.body["state"], "another round's")
        return self._asked[0]

    def _sought(self, run: _Run) -> Answer | Exception:
        """Search once for what was asked last; an error is what came of it then."""
        if self._answer is None:
            assert self._asked is not None
            question, advising = self._asked
            advising.begin(self._stopped.get(question.state))
            try:
                self._answer = sought(question, advising, run.plant.knobs)
            except Exception as error:
                self._answer = error
        return self._answer

    def _forecast(self, entry: Entry, run: _Run) -> None:
        question, answer = self._question(entry), self._sought(run)
        told = None if isinstance(answer, Exception) else answer.one.forecast
        self._compare(entry, {"state": question.state, **(told or {"hours": None})})

    def _verdict(self, entry: Entry, run: _Run) -> None:
        body = entry.body
        if body.get("state") is None:
            self._found.unseen += 1
            return
        question, space = self._question(entry), run.plant.knobs
        if "interrupted" in body:
            self._stopped = {question.state: body["interrupted"]}
        if why := unfit(question.scene, question.orders):
            found = kept(question.kind, why, question.state)
        elif isinstance(answer := self._sought(run), Exception):
            found = failed(question, _as_then(answer, body))
        else:
            key, now_ms = f"{run.name}-{entry.number}", body["own_ms"]
            found = decided(question, answer, self._standing, run.orders, now_ms, key, space)
        self._compare(entry, found.body)
        if found.change is not None:
            self._wanted = {"knobs": found.change[0].jsonable(), "state": question.state}

    def _intent(self, entry: Entry) -> None:
        """Compare a change with what was decided, or what was proposed and approved."""
        if entry.body["purpose"] != "change":
            return
        proposal, wanted = self._standing.proposal, self._wanted
        if proposal is not None:
            wanted = {"knobs": proposal.knobs.jsonable(), "state": proposal.state}
        self._wanted = None
        self._compare(entry, wanted or {"knobs": None})

    def _trial(self, entry: Entry, run: _Run) -> None:
        body = entry.body
        one = next((one for one in self._standing.unscored if one.key == body["of"]), None)
        if one is None or self._sight is None or self._sight[0] != body["state"]:
            raise _Different(entry, "of", body["of"], "no change that waits for a score")
        _, sight = self._sight
        begun = self._begun(one.state, body, run)
        found = scored(one, begun, sight, run.advising, run.orders.safety.loss_below)
        self._compare(entry, {"since": one.state, "state": body["state"], **found})

    def _begun(self, number: int, body: Mapping[str, Any], run: _Run) -> Scene | str:
        """Return what was decided on, or why it could not be had then, as the entry of the score says."""
        if "before" not in body:
            why: str = body["why"]
            return why
        if number not in self._scenes:
            begun = self._states[number]
            self._scenes[number] = _scene(self._sight_of(begun), knobs_of(begun.body["knobs"]), run.plant)
        return self._scenes[number]

    def _breaker(self, entry: Entry, run: _Run) -> None:
        """Compare the breaker with what losses and failures say; where there is no way back, it opens too."""
        found = opening(self._standing, run.orders.safety)
        if found is None and (back := self._standing.way_back) is not None:
            found = no_way_back(back, run.plant.knobs)
        self._compare(entry, found or {"reason": None})


def _as_then(error: Exception, body: Mapping[str, Any]) -> Exception:
    """Return what came of a search; who stopped it is not decided, but told."""
    if isinstance(error, Interrupted) and "interrupted" in body:
        return Interrupted(body["reason"].removeprefix(f"{STOPPED}: "), error.after)
    return error


def _scene(sight: Sight, knobs: Knobs, plant: Plant) -> Scene:
    return sight.scene(knobs, plant.policy, plant.environment, plant.space)
