"""What the comment of a job tells: its user's wishes, and what the dispatcher must know of it later.

A comment is one line, `trimtab:1` and then `;name=value`, each name at most once and in the order below. It
is read strictly: what would be written differently is not taken for one of ours.

    class=strict|soft   deadline=2026-11-30T18:00:00Z/...   value=10/5   estimate=SECONDS   preempt=yes
    model=NAME

are told at submission. The dispatcher adds, with times in ms and since 1970 where they are instants,

    submit   when it was submitted at first           held, work   time on its GPUs, and work done there, in
    run, ran, speed  the last run that it ended: its           runs before the last one it ended
             start, length, and speed in ppm          first, stopped  first start; when it ended the last run
    losses   how often it was requeued                forgiven     held time that does not count for its level
    share    cores/MiB given at the last start        lease        start/end/renewal
    note     what the policy wrote down               promise      by when it will have finished
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

from trimtab.curve import FULL_SPEED_PPM, Share
from trimtab.errors import ConfigError
from trimtab.job import BEST_EFFORT, Service, ServiceClass

VERSION = 1
_MARK = "trimtab:"
_LATEST_S = 253_402_300_799  # the last second of the year 9999
_LONGEST_S = 31_622_400_000
_COMMENT_MAX = 4000


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a user tells of a job.

    Attributes:
        service: Its deadlines, in ms since 1970.
        estimate_ms: How long it runs, None for as long as its limit.
        preemptable: Whether it may be requeued: it then goes on from where it was.
        model: What it trains, of those whose speed by CPU and memory is known.
    """

    service: Service = BEST_EFFORT
    estimate_ms: int | None = None
    preemptable: bool = False
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """What the dispatcher wrote down of a job; see the module. None, 0 or nothing where it wrote nothing."""

    submit: int | None = None
    held: int = 0
    work: int = 0
    run: int | None = None
    ran: int = 0
    speed: int = FULL_SPEED_PPM
    first: int | None = None
    stopped: int | None = None
    losses: int = 0
    forgiven: int = 0
    share: tuple[int, ...] = ()
    lease: tuple[int, ...] = ()
    note: tuple[int, ...] = ()
    promise: int | None = None

    @property
    def given(self) -> Share | None:
        """CPU and memory given at its last start, None for what it asked for itself."""
        return Share(*self.share) if self.share else None

    def before(self, run_ms: int | None) -> tuple[int, int]:
        """Return time held and work done in ms before a run that began at an instant; None: it waits."""
        if self.run is None or self.run == run_ms:
            return self.held, self.work
        return self.held + self.ran, self.work + self.ran * self.speed // FULL_SPEED_PPM

    def stop(self, run_ms: int, ran_ms: int, speed_ppm: int) -> Record:
        """Return what is known when a run is ended; said again of the same run, it replaces what was said."""
        held, work = self.before(run_ms)
        again = self.run == run_ms
        return replace(
            self,
            held=held,
            work=work,
            run=run_ms,
            ran=ran_ms,
            speed=speed_ppm,
            first=run_ms if self.first is None else self.first,
            stopped=run_ms + ran_ms,
            losses=self.losses + (not again),
            lease=(),
        )


class Foreign(ConfigError):
    """A comment begins like one of ours and is none; its job is left alone."""


def read_comment(text: str) -> tuple[Ticket, Record] | None:
    """Return what a comment tells, None for a comment that is not ours.

    Raises:
        Foreign: If it is of another version, or not exactly as it would be written.
    """
    if not text.startswith(_MARK):
        return None
    version, *parts = text.removeprefix(_MARK).split(";")
    if version != str(VERSION):
        raise Foreign(f"comment {text!r:.60}: its version is {version!r:.10}, only {VERSION} is known")
    if len(text) > _COMMENT_MAX:
        raise Foreign(f"comment {text!r:.60}: it has {len(text):,} characters, more than {_COMMENT_MAX:,}")
    try:
        values = dict(_read(part) for part in parts)
        ticket, record = _ticket(values), Record(**{one.name: values[one.name] for one in _own(values)})
    except (KeyError, ValueError, OverflowError) as problem:
        raise Foreign(f"comment {text!r:.60}: {_reason(problem)}") from None
    if write_comment(ticket, record) != text:
        raise Foreign(f"comment {text!r:.60}: it is not written as it must be, one space or name too many")
    return ticket, record


def write_comment(ticket: Ticket, record: Record) -> str:
    """Return what a ticket and a record are as a comment."""
    service = ticket.service
    told = {
        "class": "" if service.kind == "best" else service.kind,
        "deadline": "/".join(map(_instant, service.deadlines_ms)),
        "value": "/".join(map(str, service.values)),
        "estimate": "" if ticket.estimate_ms is None else str(-(-ticket.estimate_ms // 1000)),
        "preempt": "yes" if ticket.preemptable else "",
        "model": ticket.model or "",
    }
    noted = {one.name: _noted(getattr(record, one.name), one.default) for one in fields(Record)}
    return "".join(
        [f"{_MARK}{VERSION}", *(f";{name}={text}" for name, text in (told | noted).items() if text)]
    )


def make_service(kind: str | None, deadlines_ms: tuple[int, ...], values: tuple[int, ...]) -> Service:
    """Return what a user wants, if it can be wanted.

    Args:
        kind: `strict`, `soft` or `best`; None for what the number of deadlines says.

    Raises:
        ValueError: If the parts do not go together; with the rule.
    """
    kinds: dict[str | None, ServiceClass] = {"strict": "strict", "soft": "soft", "best": "best"}
    usual: ServiceClass = "best" if not deadlines_ms else "strict" if len(deadlines_ms) == 1 else "soft"
    found = kinds.get(kind, usual)
    if kind is not None and kind not in kinds:
        raise ValueError(f"class {kind!r:.20}: it must be strict, soft or best")
    if found == "best" and (deadlines_ms or values):
        raise ValueError("class best has no deadlines and no values")
    if found != "best" and not deadlines_ms:
        raise ValueError(f"class {found} needs a deadline")
    if found == "strict" and len(deadlines_ms) > 1:
        raise ValueError("class strict has one deadline; several are of class soft")
    if list(deadlines_ms) != sorted(set(deadlines_ms)):
        raise ValueError("deadlines must be in order, each later than the one before")
    if values and len(values) != len(deadlines_ms):
        raise ValueError(
            f"{len(values)} values for {len(deadlines_ms)} deadlines: there must be one for each"
        )
    if list(values) != sorted(values, reverse=True):
        raise ValueError("values must not rise: a later deadline is worth no more")
    return Service(found, deadlines_ms, values)


# ---- one part ----------------------------------------------------------------------------------------


def _read(part: str) -> tuple[str, Any]:
    name, equals, text = part.partition("=")
    if not equals or name not in _PARTS:
        raise ValueError(f"{part!r:.40} is none of {', '.join(_PARTS)}")
    return name, _PARTS[name](text)


def _ticket(values: Mapping[str, Any]) -> Ticket:
    service = make_service(values.get("class"), values.get("deadline", ()), values.get("value", ()))
    return Ticket(service, values.get("estimate"), values.get("preempt", False), values.get("model"))


def _own(values: Mapping[str, Any]) -> Iterator[Any]:
    return (one for one in fields(Record) if one.name in values)


def _noted(value: int | tuple[int, ...] | None, usual: object) -> str:
    if value is None or value == usual:
        return ""
    return "/".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _instant(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _deadlines(text: str) -> tuple[int, ...]:
    return tuple(_instant_ms(part) for part in text.split("/"))


def _instant_ms(text: str) -> int:
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", text):
        raise ValueError(f"deadline {text!r:.40}: it must be as 2026-11-30T18:00:00Z")
    return round(datetime.fromisoformat(text).timestamp()) * 1000


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"-?\d{1,19}", text) or not least <= int(text) <= most:
            raise ValueError(f"{text!r:.40}: it must be a whole number, {least:,} .. {most:,}")
        return int(text)

    return read


def _wholes(least: int, most: int, count: int | None = None) -> Callable[[str], tuple[int, ...]]:
    one = _whole(least, most)

    def read(text: str) -> tuple[int, ...]:
        found = tuple(one(part) for part in text.split("/"))
        if count is not None and len(found) != count:
            raise ValueError(f"{text!r:.40}: it must be {count} whole numbers")
        return found

    return read


def _yes(text: str) -> bool:
    if text != "yes":
        raise ValueError(f"preempt={text!r:.20}: it must be yes, or left out")
    return True


def model_name(text: str) -> str:
    """Return the name of a model if it is one.

    Raises:
        ValueError: If it has other letters than `\\w . + -`, or is too long.
    """
    if not re.fullmatch(r"[A-Za-z0-9_.+-]{1,60}", text):
        raise ValueError(f"model {text!r:.70}: it must be letters, digits and _.+-, at most 60 of them")
    return text


def _estimate_ms(text: str) -> int:
    return 1000 * _whole(1, _LONGEST_S)(text)


def _reason(problem: Exception) -> str:
    return str(problem.args[0]) if problem.args else str(problem)


_TIME = _whole(0, 1000 * _LATEST_S)
_SPAN = _whole(0, 1000 * _LONGEST_S)
_PARTS: Mapping[str, Callable[[str], Any]] = {
    "class": str,
    "deadline": _deadlines,
    "value": _wholes(1, 10**9),
    "estimate": _estimate_ms,
    "preempt": _yes,
    "model": model_name,
    **dict.fromkeys(("submit", "run", "first", "stopped", "promise"), _TIME),
    **dict.fromkeys(("held", "work", "ran", "forgiven"), _SPAN),
    "speed": _whole(1, 1000 * FULL_SPEED_PPM),
    "losses": _whole(0, 10**9),
    "share": _wholes(1, 10**12, 2),
    "lease": _wholes(0, 1 << 60, 3),
    "note": _wholes(-(1 << 62), 1 << 62),
}
