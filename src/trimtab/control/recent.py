"""What was decided lately and what came of it, as a person reads it: from the journal, the latest first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from trimtab.control.entries import Entry, EntryKind
from trimtab.control.ledger import Ledger

_DECISIONS_MAX = 60
_SCORED_MAX = 40
_AT_START = 300

Telling = Callable[[Mapping[str, Any]], tuple[str, str]]


class Recent:
    """The last decisions and scores of a journal; one thread takes them in, any may read them.

    Args:
        journal: Open; what it holds already is looked at from its last 300 entries on.

    Attributes:
        decisions: Entry `number`, `wall_ms`, `key`, `what` happened, `reason`, `knobs` and `gain`, or None.
        scored: `wall_ms`, gain `predicted` and `realised`, and whether the change was `made`.
    """

    def __init__(self, journal: Ledger) -> None:
        self._journal, self._after = journal, max(0, journal.last - _AT_START)
        self._decisions = deque[dict[str, Any]](maxlen=_DECISIONS_MAX)
        self._scored = deque[dict[str, Any]](maxlen=_SCORED_MAX)
        self.decisions: list[dict[str, Any]] = []
        self.scored: list[dict[str, Any]] = []

    def take(self) -> None:
        """Take in what was written since.

        Raises:
            JournalError: If it cannot be read; what was taken in before stays.
        """
        entries = self._journal.entries(self._after, (*_TELLINGS, "trial"))
        for entry in entries:
            self._after = entry.number
            if entry.kind == "trial":
                self._scored.appendleft(_score(entry))
            else:
                self._decisions.appendleft(_decision(entry))
        if entries:
            self.decisions, self.scored = list(self._decisions), list(self._scored)


def _score(entry: Entry) -> dict[str, Any]:
    body = entry.body
    return {"wall_ms": entry.wall_ms, **{name: body.get(name) for name in ("predicted", "realised", "made")}}


def _decision(entry: Entry) -> dict[str, Any]:
    body = entry.body
    what, reason = _TELLINGS[entry.kind](body)
    wanted = body.get("proposed") or body.get("shadowed") or body
    return {
        "number": entry.number,
        "wall_ms": entry.wall_ms,
        "key": entry.key or wanted.get("key"),
        "what": what,
        "reason": reason,
        "knobs": wanted.get("knobs"),
        "gain": wanted.get("gain"),
    }


def _read_back(body: Mapping[str, Any]) -> tuple[str, str]:
    if outcome := body.get("outcome"):
        return outcome.replace("_", " "), body.get("why", "")
    return "found in force", _FOUND.get(body.get("found", ""), "")


_FOUND = {
    "restarted": "the same setting under another version: the scheduler was started again",
    "foreign": "somebody else changed the setting: theirs is kept",
}


def _settings(body: Mapping[str, Any]) -> tuple[str, str]:
    if body.get("accepted"):
        return "settings taken up", f"{body['digest']}, mode {body['mode']}"
    return "settings refused", body.get("reason", "")


_TELLINGS: dict[EntryKind, Telling] = {
    "verdict": lambda body: (body["decision"], body.get("reason", "")),
    "intent": lambda body: (f"{body['purpose']} begun", body.get("reason", "")),
    "read_back": _read_back,
    "rollback": lambda body: ("rollback wanted", body["reason"]),
    "pause": lambda body: ("paused", f"by {body['by']}"),
    "resume": lambda body: ("resumed", f"by {body['by']}"),
    "breaker": lambda body: ("circuit breaker opened", body["reason"]),
    "settings": _settings,
    "start": lambda body: ("started", f"mode {body['mode']}"),
    "stop": lambda body: ("stopped", ""),
}
