"""Old entries leave the journal's database: whole days, to files first, and never what recovery reads.

Each entry is in one place, the database or a file that the database names. A run that is killed in between
leaves a file that is not named, and the next run writes it anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

import sqlalchemy as sa

from trimtab.control.entries import Entry, last_confirmed, open_changes, selected
from trimtab.control.store import ENTRIES, EXPORTS, Store
from trimtab.errors import OutputError
from trimtab.traces.trace import DAY_MS


@dataclass(frozen=True, slots=True)
class Export:
    """A file of one day's entries that left the database.

    Attributes:
        path: JSON lines, one an entry, in order; `FILE.sha256` beside it is as `sha256sum --check` reads it.
        entries: How many. kept: How many of that day stay for recovery.
    """

    path: Path
    sha256: str
    entries: int
    kept: int


def retain(store: Store, before_ms: int, folder: Path) -> tuple[Export, ...]:
    """Move whole days (UTC, by wall time) that ended by `before_ms` to files, one a day; return these.

    What stays however old it is: all entries of open changes and of the change that was confirmed last, and
    the last entry of each kind.

    Raises:
        OutputError: If a file cannot be written; of that day, nothing left the database.
        JournalError: If the database fails; that day's entries are then still in it.
    """
    of_entry = ENTRIES.c.wall_ms // sa.literal_column(str(DAY_MS), sa.BigInteger)
    with store.reading() as connection:
        stays = _needed(connection)
        may_go = ENTRIES.c.wall_ms < before_ms // DAY_MS * DAY_MS, ENTRIES.c.number.not_in(sorted(stays))
        days = connection.scalars(sa.select(of_entry).where(*may_go).distinct().order_by(of_entry)).all()
    return tuple(_move(store, day, stays, folder) for day in days)


def _move(store: Store, day: int, stays: frozenset[int], folder: Path) -> Export:
    """Move a day's entries but those that stay."""
    that_day = ENTRIES.c.wall_ms.between(day * DAY_MS, (day + 1) * DAY_MS - 1)
    with store.reading() as connection:
        found = selected(connection, sa.select(ENTRIES).where(that_day).order_by(ENTRIES.c.number))
    leaving = [entry for entry in found if entry.number not in stays]
    path = (folder / f"entries-{leaving[0].number}-{leaving[-1].number}.jsonl").absolute()
    sha256 = _write(path, leaving)
    with store.writing() as connection:
        for first, last in _runs([entry.number for entry in leaving]):
            row = {"first_number": first, "last_number": last, "file": str(path), "sha256": sha256}
            connection.execute(EXPORTS.insert().values(**row))
            connection.execute(ENTRIES.delete().where(ENTRIES.c.number.between(first, last)))
    return Export(path, sha256, len(leaving), len(found) - len(leaving))


def _needed(connection: sa.Connection) -> frozenset[int]:
    """Return the numbers of the entries that recovery reads."""
    changes = [*open_changes(connection), last_confirmed(connection)]
    keys = {entry.key for entry in changes if entry is not None and entry.key is not None}
    numbers = {entry.number for entry in changes if entry is not None}
    numbers |= set(connection.scalars(sa.select(ENTRIES.c.number).where(ENTRIES.c.key.in_(sorted(keys)))))
    latest = sa.select(sa.func.max(ENTRIES.c.number)).group_by(ENTRIES.c.kind)
    return frozenset(numbers | set(connection.scalars(latest)))


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Yield first and last of each run of consecutive numbers."""
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield members[0], members[-1]


def _write(path: Path, entries: list[Entry]) -> str:
    """Write entries to a file that is whole, and on the disk, once it has its name; return its sha256."""
    digest = hashlib.sha256()
    partial = path.with_suffix(".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            for entry in entries:
                line = json.dumps(asdict(entry), separators=(",", ":"), allow_nan=False).encode() + b"\n"
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
