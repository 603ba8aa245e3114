"""Entries of the control loop's journal: what one is, and what can be asked about them.

Every question takes a connection of `control.store` and sees the journal as that does.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Literal, get_args

import sqlalchemy as sa

from trimtab import __version__
from trimtab.control.journal import plain
from trimtab.control.sight import names_in, part_name
from trimtab.control.store import ENTRIES, PARTS
from trimtab.errors import InvariantError, JournalError

EntryKind = Literal[
    "state",
    "forecast",
    "trial",
    "verdict",
    "intent",
    "receipt",
    "read_back",
    "rollback",
    "pause",
    "resume",
    "breaker",
    "settings",
    "start",
    "stop",
]
Outcome = Literal["confirmed", "rolled_back", "refused", "unknown"]

KINDS: tuple[EntryKind, ...] = get_args(EntryKind)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
_NAMES_MAX = 500  # in one question to the database
CLOSING: tuple[Outcome, ...] = ("confirmed", "rolled_back", "refused")


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """What an entry was made by; each is a version or a digest, None where there was no such thing.

    Attributes:
        trimtab: The package. trace_schema: The columns of traces. policy: The policy's code.
        model: The forecast's or the search's model. graph: The causal graph.
    """

    trimtab: str = __version__
    trace_schema: str | None = None
    policy: str | None = None
    model: str | None = None
    graph: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry.

    Attributes:
        number: From 1, without a gap. wall_ms: When it was written, ms since 1970, UTC.
        at_ms: What the scheduler's clock said. key: Of the change it belongs to.
        body: Plain JSON; numbers are finite, or null.
    """

    number: int
    wall_ms: int
    at_ms: int
    kind: EntryKind
    key: str | None
    body: Mapping[str, Any]
    versions: Versions

    @property
    def outcome(self) -> Outcome | None:
        """What became of the change, if this entry says so."""
        found: Outcome | None = self.body.get("outcome")
        return found


def body_text(kind: EntryKind, body: Mapping[str, Any], key: str | None) -> str:
    """Return the JSON text of an entry's body; a number that is not finite becomes null.

    Raises:
        InvariantError: If there is no such entry: its kind, key, outcome or body is not allowed.
    """
    outcome = body.get("outcome")
    if kind not in KINDS:
        raise InvariantError(f"entry of kind {kind!r}: there is no such kind; nothing was written.")
    if outcome is not None and outcome not in OUTCOMES:
        raise InvariantError(f"{kind} with outcome {outcome!r}: there is no such one; nothing was written.")
    if key is None and (kind == "intent" or outcome in ("rolled_back", "refused", "unknown")):
        raise InvariantError(f"{kind} without the key of its change; nothing was written.")
    if kind == "intent" and outcome is not None:
        raise InvariantError("an intent has no outcome of its own; nothing was written.")
    try:
        return _text(plain(body))
    except (TypeError, ValueError, RecursionError) as problem:
        raise InvariantError(f"{kind}: its body is no plain JSON ({problem}); nothing was written.") from None


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _versions_text(versions: Versions) -> str:
    return _text(asdict(versions))


def insert(connection: sa.Connection, entry: Entry, text: str) -> None:
    """Write an entry, whose body has that text."""
    connection.execute(
        ENTRIES.insert().values(
            number=entry.number,
            wall_ms=entry.wall_ms,
            at_ms=entry.at_ms,
            kind=entry.kind,
            key=entry.key,
            outcome=entry.outcome,
            body=text,
            versions=_versions_text(entry.versions),
        )
    )


def _some(names: Collection[str]) -> Iterator[tuple[str, ...]]:
    """Yield names in runs that one question may hold."""
    rest = iter(names)
    while run := tuple(islice(rest, _NAMES_MAX)):
        yield run


def insert_parts(connection: sa.Connection, number: int, parts: Mapping[str, bytes]) -> None:
    """Write parts of a state, compressed, with the entry that has it; those that are there already stay."""
    there: set[str] = set()
    for run in _some(parts):
        there |= set(connection.scalars(sa.select(PARTS.c.name).where(PARTS.c.name.in_(run))))
    rows = [
        {"name": name, "number": number, "data": zlib.compress(text)}
        for name, text in parts.items()
        if name not in there
    ]
    if rows:
        connection.execute(PARTS.insert(), rows)


def packed_parts(connection: sa.Connection, names: Collection[str]) -> dict[str, bytes]:
    """Return parts as they are stored, by name; those that are not there are left out."""
    found: dict[str, bytes] = {}
    for run in _some(names):
        rows = connection.execute(sa.select(PARTS.c.name, PARTS.c.data).where(PARTS.c.name.in_(run)))
        found |= {row.name: bytes(row.data) for row in rows}
    return found


def part_text(name: str, data: bytes) -> bytes:
    """Return the text of a stored part.

    Raises:
        JournalError: If it is not what was written.
    """
    try:
        text = zlib.decompress(data)
    except zlib.error:
        text = b""
    if part_name(text) != name:
        raise JournalError(f"part {name} of a state is not what was written; nothing was made of it.")
    return text


def state_bytes(connection: sa.Connection) -> tuple[int, int]:
    """Return how many states there are, and what all their parts take."""
    states = connection.scalar(sa.select(sa.func.count()).where(ENTRIES.c.kind == "state")) or 0
    return states, int(connection.scalar(sa.select(sa.func.sum(sa.func.length(PARTS.c.data)))) or 0)


def delete_unused_parts(connection: sa.Connection) -> None:
    """Delete the parts that no state in the database has."""
    bodies = connection.scalars(sa.select(ENTRIES.c.body).where(ENTRIES.c.kind == "state"))
    used = {name for body in bodies for name in names_in(json.loads(body).get("kept", {}))}
    unused = [name for name in connection.scalars(sa.select(PARTS.c.name)) if name not in used]
    for run in _some(unused):
        connection.execute(PARTS.delete().where(PARTS.c.name.in_(run)))


def _entry(row: sa.Row[Any]) -> Entry:
    return Entry(
        number=row.number,
        wall_ms=row.wall_ms,
        at_ms=row.at_ms,
        kind=row.kind,
        key=row.key,
        body=json.loads(row.body),
        versions=Versions(**json.loads(row.versions)),
    )


def selected(connection: sa.Connection, query: sa.Select[Any]) -> tuple[Entry, ...]:
    """Return the entries that a query for whole rows finds."""
    return tuple(_entry(row) for row in connection.execute(query))


def last_number(connection: sa.Connection) -> int:
    """Return the number of the last entry, which is never exported; 0 = none."""
    return connection.scalar(sa.select(sa.func.max(ENTRIES.c.number))) or 0


def has_intent(connection: sa.Connection, key: str | None) -> bool:
    """Return whether a change was begun."""
    query = sa.select(ENTRIES.c.number).where(ENTRIES.c.kind == "intent", ENTRIES.c.key == key)
    return connection.scalar(query) is not None


def entries_after(
    connection: sa.Connection, after: int, kinds: Collection[EntryKind] | None, limit: int | None
) -> tuple[Entry, ...]:
    """Return at most so many entries with larger numbers, of these kinds, oldest first."""
    query = sa.select(ENTRIES).where(ENTRIES.c.number > after).order_by(ENTRIES.c.number).limit(limit)
    return selected(connection, query if kinds is None else query.where(ENTRIES.c.kind.in_(sorted(kinds))))
