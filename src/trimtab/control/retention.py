"""Long entries of old days leave the journal's database, to files first, and never what recovery goes by.

States, forecasts and verdicts are nearly all of a journal. The rest is short and stays: only all of it
together tells the setting before this one, which gains came true, and that a rollback was made.

Each entry is in one place, the database or a file that the database names. A run that is killed in between
leaves a file that is not named, and the next run writes it anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from trimtab.control.entries import (
    Entry,
    EntryKind,
    Versions,
    delete_unused_parts,
    packed_parts,
    selected,
)
from trimtab.control.sight import names_in
from trimtab.control.store import ENTRIES, EXPORTS, Store
from trimtab.errors import JournalError, OutputError
from trimtab.traces.trace import DAY_MS

# Among so many entries the changes that wait for a score are looked for; what marks their verdicts.
_LATEST = 500
_WAITS = {"shadowed", "doubted", "proposed"}

# What leaves.
LONG: tuple[EntryKind, ...] = ("state", "forecast", "verdict")


@dataclass(frozen=True, slots=True)
class Export:
    """A file of one day's entries that left the database.

    Attributes:
        path: JSON lines, one an entry, in order, then the parts of states; `FILE.sha256` beside it is as
            `sha256sum --check` reads it.
        entries: How many. kept: How many of these kinds and of that day stay for recovery.
    """

    path: Path
    sha256: str
    entries: int
    kept: int


def retain(store: Store, before_ms: int, folder: Path, days: int | None = None) -> tuple[Export, ...]:
    """Move the long entries of whole days (UTC, by wall time) that ended by `before_ms` to files, one a day.

    What stays however old it is: the verdicts and states of changes without a score, the last main round, and
    the last entry of each kind.

    Args:
        days: At most so many, the oldest first; None for all.

    Returns:
        The files.

    Raises:
        OutputError: If a file cannot be written; of that day, nothing left the database.
        JournalError: If the database fails; that day's entries are then still in it.
    """
    of_entry = ENTRIES.c.wall_ms // sa.literal_column(str(DAY_MS), sa.BigInteger)
    is_old = ENTRIES.c.kind.in_(LONG) & (ENTRIES.c.wall_ms < before_ms // DAY_MS * DAY_MS)
    with store.reading() as connection:
        stays = _needed(connection)
        found = sa.select(of_entry).where(is_old, ENTRIES.c.number.not_in(sorted(stays))).distinct()
        old = connection.scalars(found.order_by(of_entry).limit(days)).all()
    return tuple(_move(store, day, stays, folder) for day in old)


def _move(store: Store, day: int, stays: frozenset[int], folder: Path) -> Export:
    """Move a day's long entries but those that stay, and with its states the parts that they have."""
    that_day = ENTRIES.c.wall_ms.between(day * DAY_MS, (day + 1) * DAY_MS - 1) & ENTRIES.c.kind.in_(LONG)
    with store.reading() as connection:
        found = selected(connection, sa.select(ENTRIES).where(that_day).order_by(ENTRIES.c.number))
        leaving = [entry for entry in found if entry.number not in stays]
        names = {name for entry in leaving for name in names_in(entry.body.get("kept", {}))}
        parts = packed_parts(connection, sorted(names))
    path = (folder / f"entries-{leaving[0].number}-{leaving[-1].number}.jsonl").absolute()
    sha256 = _write(path, leaving, parts)
    with store.writing() as connection:
        for first, last in _runs([entry.number for entry in leaving]):
            row = {"first_number": first, "last_number": last, "file": str(path), "sha256": sha256}
            connection.execute(EXPORTS.insert().values(**row))
            connection.execute(ENTRIES.delete().where(ENTRIES.c.number.between(first, last)))
        if parts:
            delete_unused_parts(connection)
    return Export(path, sha256, len(leaving), len(found) - len(leaving))


def _needed(connection: sa.Connection) -> frozenset[int]:
    """Return the numbers of the long entries that recovery goes by."""
    last_of_each = sa.select(sa.func.max(ENTRIES.c.number)).group_by(ENTRIES.c.kind)
    query = sa.select(ENTRIES).where(ENTRIES.c.kind.in_(["intent", "verdict", "trial"]))
    latest = selected(connection, query.order_by(ENTRIES.c.number.desc()).limit(_LATEST))
    main = [one.number for one in latest if one.kind == "verdict" and one.body.get("search") == "main"][:1]
    return frozenset({*connection.scalars(last_of_each), *main, *_unscored(latest)})


def _unscored(latest: Sequence[Entry]) -> set[int]:
    """Return the decisions of changes without a score, made or not, and the states they were made on."""
    scored = {entry.body.get("since") for entry in latest if entry.kind == "trial"}
    waiting = [
        (entry.number, entry.body["state"])
        for entry in latest
        if (entry.kind == "intent" or _WAITS & entry.body.keys())
        and entry.body.get("state") not in {None, *scored}
    ]
    return {number for pair in waiting for number in pair}


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Yield first and last of each run of consecutive numbers."""
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield members[0], members[-1]


def _lines(entries: list[Entry], parts: Mapping[str, bytes]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file: entries, then parts of states as they were stored."""
    yield from (asdict(entry) for entry in entries)
    yield from ({"part": name, "zlib": b64encode(data).decode()} for name, data in parts.items())


def _write(path: Path, entries: list[Entry], parts: Mapping[str, bytes]) -> str:
    """Write entries to a file that is whole, and on the disk, once it has its name; return its sha256."""
    digest = hashlib.sha256()
    partial = path.with_suffix(".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            for one in _lines(entries, parts):
                line = json.dumps(one, separators=(",", ":"), allow_nan=False).encode() + b"\n"
                digest.update(line)
                file.write(line)
            file.flush()
            os.fsync(file.fileno())
        Path(f"{path}.sha256").write_text(f"{digest.hexdigest()}  {path.name}\n")
        partial.replace(path)
        _keep_names(path.parent)
    except OSError as problem:
        with suppress(OSError):
            partial.unlink()
        reason = (problem.strerror or str(problem)).lower()
        raise OutputError(f"{path}: cannot be written ({reason}); no entry left the journal.") from None
    return digest.hexdigest()


def _keep_names(folder: Path) -> None:
    """Bring a folder's list of names to the disk."""
    held = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(held)
    finally:
        os.close(held)


def exported(connection: sa.Connection) -> tuple[list[Entry], dict[str, bytes]]:
    """Return the entries that left, and the parts of states that left with them, as stored.

    Raises:
        JournalError: If a file is not there, or not what was written.
    """
    files = connection.execute(sa.select(EXPORTS.c.file, EXPORTS.c.sha256).distinct()).all()
    entries: list[Entry] = []
    parts: dict[str, bytes] = {}
    for file, sha256 in files:
        for one in map(json.loads, _read(Path(file), sha256).splitlines()):
            if "part" in one:
                parts[one["part"]] = b64decode(one["zlib"])
            else:
                entries.append(Entry(**{**one, "versions": Versions(**one["versions"])}))
    return entries, parts


def _read(path: Path, sha256: str) -> bytes:
    """Return a file of entries."""
    try:
        data = path.read_bytes()
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise JournalError(
            f"{path}: earlier entries were moved there, and it cannot be read ({reason}); nothing was read."
        ) from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise JournalError(f"{path}: is not what was written; nothing was read.")
    return data
