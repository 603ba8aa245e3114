"""The control loop's journal: numbered entries in a database, written before anything is done about them.

An entry is there as a whole or not at all, and for ever: nothing changes one, and only `retention` takes
old ones away, to a file. Starting and recovering read the same entries: which setting was confirmed last, and
which changes were begun and have no outcome.

A change is an `intent` with a key of its own. Its outcome is an entry of the same key (`read_back` as a rule)
whose body says so under `outcome`: `confirmed` (what was desired is in force), `rolled_back` (what was in
force before is again), `refused` (nothing was changed), or `unknown`, with which the change stays open.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from trimtab import world
from trimtab.errors import ConfigError, InvariantError, JournalError

try:
    import sqlalchemy as sa

    from trimtab.control import entries as ask
    from trimtab.control.changer import NOTHING
    from trimtab.control.entries import Entry, EntryKind, Versions
    from trimtab.control.retention import Export, exported, retain
    from trimtab.control.store import Store
except ImportError as missing:  # SQLAlchemy and Alembic are optional
    raise ConfigError(
        f"the loop's journal needs {missing.name}; pip install 'trimtab[serve]'; nothing was opened."
    ) from None

__all__ = ["Entry", "EntryKind", "Export", "Ledger", "Versions"]

T = TypeVar("T")


class Ledger:
    """An open journal; `Ledger.open` makes one. Threads may share it.

    Attributes:
        versions: Written with each entry; set it anew when a model or a graph is.
    """

    versions: Versions

    def __init__(self, store: Store, write: bool) -> None:
        self._store, self._lock = store, threading.Lock()
        self.versions = Versions()
        self._last = self._read(ask.last_number) if write else 0
        self._doubtful: Entry | None = None
        self._known: frozenset[str] = frozenset()  # parts of the last state: they are there

    @classmethod
    def open(cls, url: str, *, write: bool = True) -> Ledger:
        """Open a journal, as its one writer or to read it.

        Args:
            url: `sqlite:///FILE` or `postgresql://USER@HOST/NAME`.
            write: Make it if it is not there, bring its schema up to date, keep other writers out.

        Raises:
            ConfigError: If the URL is none, or its database needs a package that is not installed.
            JournalError: If it cannot be opened, is written by another process, or its schema is newer.
        """
        store = Store(url, write)
        try:
            return cls(store, write)
        except BaseException:
            store.close()
            raise

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the next writer in."""
        with self._lock:
            self._store.close()

    @property
    def name(self) -> str:
        """Where it is, as may be shown."""
        return self._store.name

    @property
    def last(self) -> int:
        """Number of the last entry that this writer knows to be there; 0 = none."""
        return self._last

    def append(
        self,
        kind: EntryKind,
        body: Mapping[str, Any],
        *,
        at_ms: int,
        key: str | None = None,
        parts: Mapping[str, bytes] = NOTHING,
    ) -> Entry:
        """Write an entry; it is on the disk when this returns.

        Args:
            at_ms: What the scheduler's clock says.
            key: Of a change, which has one intent. Only `confirmed` may be said without one: of a setting
                that was found in force and is nobody's change.
            parts: Of the state it has, by name; each is there once.

        Raises:
            JournalError: If it was not written. Where the connection broke, it may have been: read again.
            InvariantError: If there is no such entry.
        """
        text = ask.body_text(kind, body, key)
        with self._lock, self._store.writing() as connection:
            self._catch_up(connection)
            new = {name: part for name, part in parts.items() if name not in self._known}
            if kind == "intent" and ask.has_intent(connection, key):
                raise InvariantError(f"change {key!r} has an intent already; nothing was written.")
            entry = Entry(
                number=self._last + 1,
                wall_ms=world.epoch_ms(),
                at_ms=at_ms,
                kind=kind,
                key=key,
                body=json.loads(text),
                versions=self.versions,
            )
            self._doubtful = entry
            ask.insert(connection, entry, text)
            ask.insert_parts(connection, entry.number, new)
        if parts:
            self._known = frozenset(parts)
        self._last, self._doubtful = entry.number, None
        return entry

    def entries(
        self, after: int = 0, kinds: Collection[EntryKind] | None = None, limit: int | None = None
    ) -> tuple[Entry, ...]:
        """Return at most so many entries with larger numbers, of these kinds, oldest first."""
        return self._read(lambda connection: ask.entries_after(connection, after, kinds, limit))

    def parts(self, names: Collection[str]) -> dict[str, bytes]:
        """Return the texts of parts of states; those that are not there are left out.

        Raises:
            JournalError: If one is not what was written.
        """
        packed = self._read(lambda connection: ask.packed_parts(connection, names))
        return {name: ask.part_text(name, data) for name, data in packed.items()}

    def everything(self) -> tuple[tuple[Entry, ...], Mapping[str, bytes]]:
        """Return all entries ever written, oldest first, and the parts that are no longer in the database.

        Raises:
            JournalError: If a file with earlier ones is not there, or is not what was written.
        """
        moved, packed = self._read(exported)
        parts = {name: ask.part_text(name, data) for name, data in packed.items()}
        return tuple(sorted([*moved, *self.entries()], key=lambda entry: entry.number)), parts

    def state_bytes(self) -> tuple[int, int]:
        """Return how many states the database has, and what all their parts take, compressed."""
        return self._read(ask.state_bytes)

    def learned(self, model: str | None, graph: str | None) -> None:
        """Write with the entries from now on which model and causal graph they were made by."""
        self.versions = replace(self.versions, model=model, graph=graph)

    def retain(self, before_ms: int, folder: Path, days: int | None = None) -> tuple[Export, ...]:
        """Move long entries of whole days (UTC) that ended by `before_ms` to files, see `retention`."""
        with self._lock:
            self._known = frozenset()
            return retain(self._store, before_ms, folder, days)

    def _read(self, question: Callable[[sa.Connection], T]) -> T:
        with self._store.reading() as connection:
            return question(connection)

    def _catch_up(self, connection: sa.Connection) -> None:
        """Find out whether the entry in doubt was written, and refuse if anyone else wrote one."""
        last = ask.last_number(connection)
        if self._doubtful is not None and last == self._doubtful.number:
            found = ask.entries_after(connection, last - 1, None, 1)
            if found == (self._doubtful,):
                self._last = last
        self._doubtful = None
        if last != self._last:
            raise JournalError(
                f"{self._store.name}: entry {last} was written by somebody else; start again to go on."
            )
