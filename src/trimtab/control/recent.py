"""What was decided lately and what came of it, as a person reads it: from the journal, the latest first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from trimtab.control.entries import Entry, EntryKind
from trimtab.control.ledger import Ledger
from trimtab.forecast.history import Past
from trimtab.forecast.period import HOUR_MS

_DECISIONS_MAX = 60
_SCORED_MAX = 40
_FORECASTS_MAX = 24
_AT_START = 300

Telling = Callable[[Mapping[str, Any]], tuple[str, str]]


class Recent:
    """The last decisions and scores of a journal; one thread takes them in, any may read them.

    Args:
        journal: Open; what it holds already is looked at from its last 300 entries on.

    Attributes:
        decisions: Entry `number`, `wall_ms`, `key`, `what` happened, `reason`, `knobs` and `gain`, or None.
        scored: `wall_ms`, gain `predicted` and `realised`, and whether the change was `made`.
        forecasts: `wall_ms`, and of the hour from then on `jobs` and `gpu_h` in each future, and what `came`:
            `jobs`, `gpu_h` that they have run so far, and how many are `left` to end; None until then.
    """

    def __init__(self, journal: Ledger) -> None:
        self._journal, self._after = journal, max(0, journal.last - _AT_START)
        self._decisions = deque[dict[str, Any]](maxlen=_DECISIONS_MAX)
        self._scored = deque[dict[str, Any]](maxlen=_SCORED_MAX)
        self._forecasts = deque[tuple[int, dict[str, Any]]](maxlen=_FORECASTS_MAX)
        self.decisions: list[dict[str, Any]] = []
        self.forecasts: list[dict[str, Any]] = []
        self.scored: list[dict[str, Any]] = []

    def take(self, past: Past | None) -> None:
        """Take in what was written since, and what has come of forecasts.

        Args:
            past: What is known of jobs, None before anything is.

        Raises:
            JournalError: If it cannot be read; what was taken in before stays.
        """
        entries = self._journal.entries(self._after, (*_TELLINGS, "trial", "forecast"))
        for entry in entries:
            self._after = entry.number
            if entry.kind == "trial":
                self._scored.appendleft(_score(entry))
            elif entry.kind == "forecast":
                if entry.body["search"] == "main" and entry.body["arrivals"]:
                    self._forecasts.appendleft((entry.body["from_ms"], _forecast(entry)))
            else:
                self._decisions.appendleft(_decision(entry))
        if entries:
            self.decisions, self.scored = list(self._decisions), list(self._scored)
        self.forecasts = [{**told, "came": _came(past, from_ms)} for from_ms, told in self._forecasts]


def _forecast(entry: Entry) -> dict[str, Any]:
    """Return what the futures of a round say of the first hour."""
    body = entry.body
    return {
        "wall_ms": entry.wall_ms,
        "jobs": [hours[0] for hours in body["arrivals"]],
        "gpu_h": [hours[0] / HOUR_MS for hours in body["gpu_ms"]],
    }


def _came(past: Past | None, from_ms: int) -> dict[str, Any] | None:
    """Return who came within an hour, and what they have run so far; None if the hour is not over."""
    if past is None or past.now_ms < from_ms + HOUR_MS:
        return None
    first, last = np.searchsorted(past.submit_ms, [from_ms, from_ms + HOUR_MS]).tolist()
    came = past.take(slice(first, last))
    gpu_ms = int((came.gpus * came.ran_ms).sum())
    return {"jobs": len(came), "gpu_h": gpu_ms / HOUR_MS, "left": int((~came.completed).sum())}


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
