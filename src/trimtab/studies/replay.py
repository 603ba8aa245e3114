"""An evaluation again, from its journal: must every decision come out the same?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.control.journal import CLOCKS, Recorded, plain
from trimtab.simulate.trials import Trials
from trimtab.studies.ablations import variants
from trimtab.studies.evaluate import evaluate
from trimtab.studies.lines import Progress
from trimtab.studies.request import Request
from trimtab.traces.trace import Trace

_ABSENT = "nothing"


@dataclass(frozen=True, slots=True)
class Difference:
    """The first value that is another one; `time_s` is the round's, None outside of rounds."""

    line: str
    kind: str
    time_s: float | None
    field: str
    then: Any
    now: Any

    def text(self) -> str:
        """Return it in one line."""
        when = f", hour {self.time_s / 3600:g}" if self.time_s is not None else f", {self.kind}"
        then, now = (short(value) for value in (self.then, self.now))
        return f"{self.line}{when}: {self.field} was {then} and is {now}"


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of a replay: how many rounds of each line are identical, up to the first difference."""

    rounds: Mapping[str, int]
    difference: Difference | None
    whole: bool  # whether the journal reaches the evaluation's end

    def jsonable(self) -> dict[str, Any]:
        """Return the object that `replay --format json` prints."""
        found = self.difference
        different = {name: getattr(found, name) for name in Difference.__slots__} if found else None
        return {
            "identical": found is None,
            "rounds": sum(self.rounds.values()),
            "lines": dict(self.rounds),
            "whole": self.whole,
            "difference": different,
        }


class Ended(Exception):
    """There is nothing more to compare with."""


class Follower:
    """Is told what happens, and compares it with what a journal says happened.

    Attributes:
        rounds: How many rounds of each line were identical.
        difference: The first difference, None as long as there is none.
    """

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        self._records, self._place = records, 0
        self.rounds: dict[str, int] = {}
        self.difference: Difference | None = None

    def finish(self) -> None:
        """Note as a difference what the journal holds beyond the evaluation's end."""
        if self._place < len(self._records):
            left = self._records[self._place]
            self.difference = Difference(left["line"], left["kind"], None, "kind", left["kind"], _ABSENT)

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Compare the next record.

        Raises:
            Ended: If it is different, or the last one.
        """
        then, now = self._records[self._place], json.loads(json.dumps(plain(record)))
        self.difference = _difference(then, now)
        if self.difference:
            raise Ended
        if now["kind"] == "round":
            self.rounds[now["line"]] = self.rounds.get(now["line"], 0) + 1
        self._place += 1
        if self._place == len(self._records):
            raise Ended


def replay(
    request: Request,
    recorded: Recorded,
    trace: Trace,
    trials: Trials,
    progress: Progress = lambda text, share: None,
) -> Replayed:
    """Evaluate again as far as the journal reaches, and compare all but what clocks say.

    Raises:
        InputError: If the trace is not the one that was evaluated.
    """
    request.check(trace)
    follower = Follower(recorded.records)
    asked = request.window, request.cluster, request.policy, request.base, request.world, request.plan
    try:
        if recorded.records:
            evaluate(trace, *asked, request.lines, trials, progress, request.ablate, follower)
            follower.finish()
    except Ended:
        pass
    lines = [one.name for one in variants(request.lines, request.ablate, request.plan)]
    ended = [record["line"] for record in recorded.records if record["kind"] == "end"]
    return Replayed(follower.rounds, follower.difference, ended == lines)


def _difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> Difference | None:
    for field, before, after in differences(then, now, ""):
        return Difference(now["line"], now["kind"], now.get("time_s"), field, before, after)
    return None


def differences(then: Any, now: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield where two values differ, by the path to it: names joined by dots, places by their number."""
    if isinstance(then, dict) and isinstance(now, dict):
        for name in dict.fromkeys([*then, *now]):
            if name not in CLOCKS:
                sides = then.get(name, _ABSENT), now.get(name, _ABSENT)
                yield from differences(*sides, f"{path}.{name}" if path else name)
    elif isinstance(then, list) and isinstance(now, list):
        for place in range(max(len(then), len(now))):
            before, after = (side[place] if place < len(side) else _ABSENT for side in (then, now))
            yield from differences(before, after, f"{path}.{place}")
    elif then != now or type(then) is not type(now):
        yield path, then, now


def short(value: Any) -> str:
    """Return a value as one line shows it."""
    text = json.dumps(value) if value != _ABSENT else _ABSENT
    return text if len(text) <= 60 else f"{text[:57]}..."
