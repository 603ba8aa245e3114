"""How things stand between the loop and its scheduler: what the journal's entries say, one after another.

`fold` is a pure function. The loop goes by what it gives while it runs, and after a restart it folds the same
entries again: there is nothing to recover but this. Times under `own_ms` are on the loop's own clock, which
the scheduler's jumps do not move.

Desired, written and in force are three things: an intent says what is desired, a receipt that it was written,
and only a read-back what is in force.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from trimtab.control.guardrails import Tenure
from trimtab.knobs import Knobs

Purpose = Literal["change", "rollback"]

# Settings that were left, and gains that came true or not, are remembered so far back.
_LEFT_MAX = 32
_PAIRS_MAX = 100
_GIVEN_UP_MAX = 8
_UNSCORED_MAX = 100

# What there may be to fold; other entries are for people and for replay.
FOLDED = (
    *("intent", "receipt", "read_back", "rollback", "verdict", "trial"),
    *("pause", "resume", "breaker", "start"),
)


class Noted(Protocol):
    """An entry of the journal, as far as it is read here."""

    @property
    def number(self) -> int: ...

    @property
    def kind(self) -> str: ...

    @property
    def key(self) -> str | None: ...

    @property
    def body(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Open:
    """A change whose outcome is not known.

    Attributes:
        before: What was in force when it was decided on. expected: the version of that.
        since_ms: When it was intended. gain: What was predicted, NaN for a rollback.
        written: The version that the scheduler gave it; None while there is no receipt.
    """

    key: str
    knobs: Knobs
    before: Knobs
    expected: int
    since_ms: int
    purpose: Purpose
    gain: float
    written: int | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that waits for a person; `state` is the number of the entry that it was decided on."""

    key: str
    knobs: Knobs
    expected: int
    since_ms: int
    gain: float
    reason: str
    state: int | None = None


@dataclass(frozen=True, slots=True)
class Unscored:
    """A change that was made, or would have been, until it is known what it was worth.

    Attributes:
        gain: What was predicted. since_ms: when it was decided on. made: whether it was really made.
        key: Of the change, or of the round it would have been made in.
        state: Number of the entry with the state that it was decided on.
    """

    key: str
    knobs: Knobs
    gain: float
    since_ms: int
    made: bool
    state: int


@dataclass(frozen=True, slots=True)
class Back:
    """A rollback that was decided on, by whom and why."""

    knobs: Knobs
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Standing:
    """All that decides what may be done next.

    Attributes:
        knobs: What the journal last found in force, None before anything was read. version: its version.
        since_ms: Since when. touched_ms: when a change, or an attempt at one, last ended; None for never.
        left: What was in force before, the latest first, with the instants at which it was left.
        open: The change in flight. torn: a change of which only a part came into force.
        given_up: Changes that were not in force in time; they may come yet. back: a rollback to be made.
        proposal: What waits for a person.
        paused, breaker: Why nothing is changed; empty if something may be.
        pairs: Predicted and realised gains. losses, failures: how many in a row, up to now.
        steady: What was in force before the first of these losses.
        main_ms: When the last main round was, None before the first.
        stopped: Whether that one was stopped: it is made up for after `resume`.
        unscored: What is to be scored, oldest first.
        versions: What this was decided by, as the last start says.
    """

    knobs: Knobs | None = None
    version: int = 0
    since_ms: int = 0
    touched_ms: int | None = None
    left: tuple[tuple[Knobs, int], ...] = ()
    open: Open | None = None
    torn: Open | None = None
    given_up: tuple[Open, ...] = ()
    back: Back | None = None
    proposal: Proposal | None = None
    paused: str = ""
    breaker: str = ""
    pairs: tuple[tuple[float, float], ...] = ()
    losses: int = 0
    failures: int = 0
    steady: Knobs | None = None
    main_ms: int | None = None
    stopped: bool = False
    unscored: tuple[Unscored, ...] = ()
    versions: Mapping[str, Any] | None = None

    @property
    def stages(self) -> tuple[Knobs | None, Knobs | None, Knobs | None]:
        """The settings desired, written, and in force."""
        change, in_force = self.open, self.knobs
        if change is not None:
            return change.knobs, change.knobs if change.written is not None else in_force, in_force
        wanted = in_force if self.way_back is None else self.way_back
        return wanted, self.torn.knobs if self.torn else in_force, in_force

    @property
    def way_back(self) -> Knobs | None:
        """The setting that is to be gone back to, None if none is."""
        return self.back.knobs if self.back else self.torn.before if self.torn else None

    def tenure(self, now_ms: int) -> Tenure:
        """Return how the setting in force stands, for the guardrails."""
        left = tuple((knobs, max(0, now_ms - at_ms)) for knobs, at_ms in self.left)
        return Tenure(self.touched_for_ms(now_ms), left)

    def touched_for_ms(self, now_ms: int) -> int:
        """Return how long ago a setting came into force, or a change of it was last attempted."""
        return max(0, now_ms - max(self.since_ms, self.touched_ms or self.since_ms))


def fold(standing: Standing, entries: Iterable[Noted]) -> Standing:
    """Return how things stand after more entries."""
    for entry in entries:
        standing = _FOLDS.get(entry.kind, _nothing)(standing, entry)
    return standing


def knobs_of(plain: Mapping[str, Any]) -> Knobs:
    """Return knobs from plain values, see `Knobs.jsonable`."""
    return Knobs({name: _value(value) for name, value in plain.items()})


def _value(value: Any) -> Any:
    return math.inf if value == "inf" else tuple(value) if isinstance(value, list) else value


def _nothing(standing: Standing, entry: Noted) -> Standing:
    return standing


def _start(standing: Standing, entry: Noted) -> Standing:
    """Begin anew; what gains came to under other versions says nothing of those that are predicted now."""
    versions = entry.body.get("versions")
    pairs = standing.pairs if versions == standing.versions else ()
    return replace(standing, proposal=None, versions=versions, pairs=pairs)


def _verdict(standing: Standing, entry: Noted) -> Standing:
    body = entry.body
    if body.get("search") == "main":
        standing = replace(standing, main_ms=body["own_ms"], stopped="interrupted" in body)
    for way in ("shadowed", "doubted"):
        if told := body.get(way):
            standing = _awaiting(standing, told["key"], told, body, made=False)
    if not (proposed := body.get("proposed")):
        return standing if body.get("search") != "main" else replace(standing, proposal=None)
    knobs, gain = knobs_of(proposed["knobs"]), _gain(proposed["gain"])
    found = Proposal(
        proposed["key"],
        knobs,
        proposed["expected"],
        body["own_ms"],
        gain,
        body.get("reason", ""),
        body.get("state"),
    )
    return replace(standing, proposal=found)


def _awaiting(
    standing: Standing, key: str, told: Mapping[str, Any], body: Mapping[str, Any], made: bool
) -> Standing:
    """Add what is to be scored; without a gain, or a state to go by, nothing can be."""
    if told["gain"] is None or body.get("state") is None:
        return standing
    one = Unscored(key, knobs_of(told["knobs"]), float(told["gain"]), body["own_ms"], made, body["state"])
    return replace(standing, unscored=(*standing.unscored, one)[-_UNSCORED_MAX:])


def _scored(standing: Standing, key: str | None, made: bool) -> Standing:
    left = tuple(one for one in standing.unscored if (one.key, one.made) != (key, made))
    return replace(standing, unscored=left)


def _gain(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _intent(standing: Standing, entry: Noted) -> Standing:
    assert entry.key is not None
    body = entry.body
    found = Open(
        entry.key,
        knobs_of(body["knobs"]),
        knobs_of(body["before"]),
        body["expected"],
        body["own_ms"],
        body["purpose"],
        _gain(body["gain"]),
    )
    back = None if found.purpose == "rollback" else standing.back
    if found.purpose == "change":
        standing = _awaiting(standing, entry.key, body, body, made=True)
    return replace(standing, open=found, proposal=None, back=back)


def _receipt(standing: Standing, entry: Noted) -> Standing:
    if standing.open is None or standing.open.key != entry.key:
        return standing
    return replace(standing, open=replace(standing.open, written=entry.body["version"]))


def _read_back(standing: Standing, entry: Noted) -> Standing:
    body, key, outcome = entry.body, entry.key, entry.body.get("outcome")
    standing = _in_force(standing, knobs_of(body["knobs"]), body["version"], body["own_ms"])
    if key is None:
        return standing
    standing = replace(standing, touched_ms=body["own_ms"])
    if outcome != "confirmed":
        standing = _scored(standing, key, made=True)
    if standing.torn is not None and standing.torn.key == key:
        return standing if outcome == "unknown" else replace(standing, torn=None)
    earlier = tuple(one for one in standing.given_up if one.key != key)
    if standing.open is None or standing.open.key != key:
        if outcome == "unknown":  # a part of one that was given up
            torn = next((one for one in standing.given_up if one.key == key), None)
            return replace(standing, torn=torn, given_up=earlier)
        return replace(standing, given_up=earlier) if outcome == "confirmed" else standing
    mine, standing = standing.open, replace(standing, open=None)
    if outcome == "confirmed":
        return replace(standing, failures=0)
    standing = replace(standing, failures=standing.failures + 1)
    if outcome == "unknown":
        return replace(standing, torn=mine)
    if body.get("again") and standing.torn is None:
        standing = replace(standing, back=Back(mine.knobs, "trimtab", body["why"]))
    return replace(standing, given_up=(mine, *earlier)[:_GIVEN_UP_MAX])


def _in_force(standing: Standing, knobs: Knobs, version: int, own_ms: int) -> Standing:
    """Take what was found in force; if it is another setting, its time begins now."""
    standing = replace(standing, version=version)
    if knobs == standing.knobs:
        return standing
    left = standing.left
    if standing.knobs is not None:
        left = ((standing.knobs, own_ms), *left)[:_LEFT_MAX]
    return replace(standing, knobs=knobs, since_ms=own_ms, left=left, proposal=None)


def _rollback(standing: Standing, entry: Noted) -> Standing:
    body = entry.body
    return replace(standing, back=Back(knobs_of(body["knobs"]), body["by"], body["reason"]), proposal=None)


def _trial(standing: Standing, entry: Noted) -> Standing:
    body = entry.body
    standing = _scored(standing, body.get("of"), bool(body.get("made")))
    if body.get("predicted") is None or body.get("realised") is None:
        return standing
    pair = float(body["predicted"]), float(body["realised"])
    standing = replace(standing, pairs=(*standing.pairs, pair)[-_PAIRS_MAX:])
    if not body.get("made"):
        return standing
    if not body["loss"]:
        return replace(standing, losses=0, steady=None)
    return replace(standing, losses=standing.losses + 1, steady=standing.steady or knobs_of(body["before"]))


def _pause(standing: Standing, entry: Noted) -> Standing:
    return replace(standing, paused=f"paused by {entry.body['by']}: nothing is changed until resume")


def _resume(standing: Standing, entry: Noted) -> Standing:
    main_ms = None if standing.stopped else standing.main_ms
    standing = replace(standing, main_ms=main_ms, stopped=False)
    return replace(standing, paused="", breaker="", losses=0, failures=0, steady=None)


def _breaker(standing: Standing, entry: Noted) -> Standing:
    reason, back = entry.body["reason"], entry.body["back"]
    found = Back(knobs_of(back), "circuit breaker", reason) if back else None
    return replace(standing, breaker=reason, back=found, proposal=None)


_FOLDS = {
    "start": _start,
    "verdict": _verdict,
    "intent": _intent,
    "receipt": _receipt,
    "read_back": _read_back,
    "rollback": _rollback,
    "trial": _trial,
    "pause": _pause,
    "resume": _resume,
    "breaker": _breaker,
}
