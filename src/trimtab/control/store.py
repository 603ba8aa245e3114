"""The database under the control loop's journal: connections, the lock of its one writer, its schema.

SQLite in WAL with `synchronous=FULL`, or PostgreSQL with `synchronous_commit=on`: what was committed is on
the disk. Whatever goes wrong is one `JournalError` of one line, and the transaction that it ended is undone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from trimtab.errors import ConfigError, JournalError

SCHEMA_TABLE = "trimtab_schema"
WAIT_S = 5  # for a lock that somebody else holds, and for a server to answer

_META = sa.MetaData()
ENTRIES = sa.Table(
    "trimtab_entries",
    _META,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("wall_ms", sa.BigInteger),
    sa.Column("at_ms", sa.BigInteger),
    sa.Column("kind", sa.Text),
    sa.Column("key", sa.Text),
    sa.Column("outcome", sa.Text),
    sa.Column("body", sa.Text),
    sa.Column("versions", sa.Text),
)
EXPORTS = sa.Table(
    "trimtab_exports",
    _META,
    sa.Column("first_number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("last_number", sa.BigInteger),
    sa.Column("file", sa.Text),
    sa.Column("sha256", sa.Text),
)
PARTS = sa.Table(
    "trimtab_parts",
    _META,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger),
    sa.Column("data", sa.LargeBinary),
)
_SCHEMA = sa.text(f"SELECT version_num FROM {SCHEMA_TABLE}")


class Place(Protocol):
    """Where a journal is: what SQLite and PostgreSQL do differently."""

    engine: sa.Engine

    def still_there(self) -> None:
        """Raise JournalError if what was opened is no longer what the URL names."""
        ...

    def lock(self, writer: sa.Connection) -> bool:
        """Take the writer's lock for as long as that connection lives; return False if another has it."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


def place(url: str, write: bool) -> Place:
    """Return the place that a URL names; nothing is opened yet.

    Raises:
        ConfigError: If it is no URL, or of another database.
        JournalError: If a file that is only to be read is not there.
    """
    try:
        parsed = sa.make_url(url)
    except (ArgumentError, ValueError):  # a port that is no number is a ValueError
        raise ConfigError(
            "the journal's place is no URL (sqlite:///FILE or postgresql://HOST/NAME); nothing was opened."
        ) from None
    if parsed.drivername == "sqlite":
        return _File(parsed, write)
    if parsed.drivername in ("postgresql", "postgresql+psycopg"):
        return _Server(parsed.set(drivername="postgresql+psycopg"))
    raise ConfigError(
        f"journal {shown(parsed)}: {parsed.drivername} is neither sqlite nor postgresql; nothing was opened."
    )


def shown(url: sa.URL) -> str:
    """Return a URL as it may be shown: without password, and without options, which may hold one."""
    return url.set(drivername=url.get_backend_name(), query={}).render_as_string(hide_password=True)


class _File:
    """SQLite. The lock is on a file beside it, and goes with the process however that ends."""

    def __init__(self, url: sa.URL, write: bool) -> None:
        name = url.database or ""
        if not name or name == ":memory:" or name.startswith("file:"):
            raise ConfigError(f"journal {shown(url)}: names no file; nothing was opened.")
        self._path, self._shown = Path(name), shown(url)
        self._lock: int | None = None
        if not write and not self._path.exists():
            raise JournalError(f"{self._shown}: there is no such file; nothing was read.")
        self._file: tuple[int, int] | None = None
        self.engine = sa.create_engine(url, connect_args={"timeout": WAIT_S})
        sa.event.listen(self.engine, "connect", _durable)
        sa.event.listen(self.engine, "begin", _begin)

    def still_there(self) -> None:
        try:
            now = self._path.stat()
        except FileNotFoundError:
            raise JournalError(f"{self._shown}: the file is gone; nothing is written or read.") from None
        if self._file is None:
            self._file = now.st_dev, now.st_ino
        elif self._file != (now.st_dev, now.st_ino):
            raise JournalError(f"{self._shown}: another file is in its place; nothing is written or read.")

    def lock(self, writer: sa.Connection) -> bool:
        if self._lock is None:
            held = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(held)
                return False
            self._lock = held
        return True

    def close(self) -> None:
        self.engine.dispose()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _durable(connection: sqlite3.Connection, record: object) -> None:
    connection.isolation_level = None  # transactions begin in `_begin`, also those that make tables
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


def _begin(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("trimtab_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


class _Server:
    """PostgreSQL. The lock is an advisory one of the writer's own session, and ends with that."""

    def __init__(self, url: sa.URL) -> None:
        try:
            self.engine = sa.create_engine(
                url,
                pool_pre_ping=True,
                isolation_level="REPEATABLE READ",
                connect_args={"connect_timeout": WAIT_S, "application_name": "trimtab"},
            )
        except ImportError:
            raise ConfigError(
                f"journal {shown(url)} needs psycopg; pip install 'trimtab[postgres]'; nothing was opened."
            ) from None
        sa.event.listen(self.engine, "connect", _patient)

    def still_there(self) -> None:
        pass  # the connection says so itself

    def lock(self, writer: sa.Connection) -> bool:
        schema = writer.scalar(sa.text("SELECT current_schema()"))
        digest = hashlib.blake2b(f"trimtab/{schema}".encode(), digest_size=8).digest()
        number = int.from_bytes(digest, "big", signed=True)
        return bool(writer.scalar(sa.text("SELECT pg_try_advisory_lock(:number)"), {"number": number}))

    def close(self) -> None:
        self.engine.dispose()


def _patient(connection: Any, record: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = on")
        cursor.execute(f"SET lock_timeout = '{WAIT_S}s'")
        cursor.execute(f"SET statement_timeout = '{6 * WAIT_S}s'")
    connection.commit()


class Store:
    """An open database with the tables of a journal.

    Args:
        url: `sqlite:///FILE` or `postgresql://…`.
        write: Take the writer's lock, and make or upgrade the tables; otherwise only read.

    Raises:
        ConfigError: If the URL is no such one.
        JournalError: If it cannot be opened, another process writes it, or its schema is another one.
    """

    def __init__(self, url: str, write: bool) -> None:
        self._place = place(url, write)
        self.name = shown(self._place.engine.url)
        self._writer: sa.Connection | None = None
        self._head = str(_script().get_current_head())
        try:
            with self._told("it was not opened"):
                if write:
                    self._writer = self._connect()
                    self._upgrade(self._writer)
                self._place.still_there()
            with self.reading():
                pass
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give back the lock and all connections."""
        if self._writer is not None:
            with suppress(SQLAlchemyError):
                self._writer.close()
            self._writer = None
        self._place.close()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Give a connection that sees one state of the journal."""
        with self._told("nothing was read"):
            self._place.still_there()
            with self._place.engine.connect() as connection, connection.begin():
                self._schema_is_ours(connection)
                yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Give the writer's connection in a transaction, committed on leaving; connects again if it must.

        Raises:
            JournalError: As everything else here; after a lost connection also if another writer came first.
        """
        if self._writer is None:
            raise JournalError(f"{self.name}: is closed, or open for reading only; nothing was written.")
        with self._told("nothing was written"):
            self._place.still_there()
            try:
                with self._begun() as connection:
                    yield connection
            except DBAPIError as problem:
                if not problem.connection_invalidated:
                    raise
                what = _first_line(problem.orig)
                raise JournalError(
                    f"{self.name}: {what}; whether the last was written shows when it is back."
                ) from None

    @contextmanager
    def _begun(self) -> Iterator[sa.Connection]:
        assert self._writer is not None
        try:
            transaction = self._begin(self._writer)
        except _Lost:  # before anything was written: nothing is in doubt
            self._writer.close()
            self._writer = self._connect()
            transaction = self._begin(self._writer)
        with transaction:
            yield self._writer

    def _begin(self, writer: sa.Connection) -> sa.Transaction:
        if writer.closed or writer.invalidated:
            raise _Lost(f"{self.name}: the connection was lost; nothing was written.")
        try:
            transaction = writer.begin()
            try:
                self._schema_is_ours(writer)
            except BaseException:
                transaction.close()
                raise
        except DBAPIError as problem:
            if problem.connection_invalidated:
                raise _Lost(f"{self.name}: {_first_line(problem.orig)}; nothing was written.") from None
            raise
        return transaction

    def _connect(self) -> sa.Connection:
        connection = self._place.engine.connect().execution_options(trimtab_writes=True)
        with connection.begin():
            mine = self._place.lock(connection)
        if not mine:
            connection.close()
            raise JournalError(f"{self.name}: another trimtab writes this journal; it was not opened.")
        return connection

    def _upgrade(self, connection: sa.Connection) -> None:
        with connection.begin():
            if sa.inspect(connection).has_table(SCHEMA_TABLE):
                found = connection.scalar(_SCHEMA)
                if found == self._head:
                    return
                if not _is_known(found):
                    raise self._other(found)
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    def _schema_is_ours(self, connection: sa.Connection) -> None:
        found = connection.scalar(_SCHEMA)
        if found != self._head:
            raise self._other(found)

    def _other(self, found: object) -> JournalError:
        is_older = _is_known(found)
        age, way = ("older", "; `trimtab serve` brings it up to date") if is_older else ("newer", "")
        return JournalError(
            f"{self.name}: its schema {found} is {age} than this Trimtab's {self._head}{way}; "
            "nothing was done."
        )

    @contextmanager
    def _told(self, consequence: str) -> Iterator[None]:
        """Turn what a database or the system says into one line."""
        try:
            yield
        except DBAPIError as problem:
            raise JournalError(f"{self.name}: {_first_line(problem.orig)}; {consequence}.") from None
        except SQLAlchemyError as problem:
            raise JournalError(f"{self.name}: {_first_line(problem)}; {consequence}.") from None
        except OSError as problem:
            reason = problem.strerror or str(problem)
            raise JournalError(f"{self.name}: {reason.lower()}; {consequence}.") from None


class _Lost(JournalError):
    """The writer's connection is no longer there."""


def _first_line(problem: object) -> str:
    lines = str(problem).strip().splitlines() or [type(problem).__name__]
    return lines[0].rstrip(".:; ")


def _is_known(revision: object) -> bool:
    return revision in {step.revision for step in _script().walk_revisions()}


def _config() -> Config:
    config = Config()
    folder = str(Path(__file__).parent / "migrations").replace("%", "%%")
    config.set_main_option("script_location", folder)
    return config


def _script() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())
