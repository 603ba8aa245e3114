"""The loop's journal when things break: killed writers, databases that are gone, locked, full or too new."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
import sqlalchemy as sa

from ledgers import append_until_killed, append_with_small_files, assert_whole, nth
from postgres import FILE_MAX, Server
from trimtab.control import store
from trimtab.control.ledger import Ledger
from trimtab.errors import ConfigError, JournalError
from trimtab.world import Seeds

KILLS = int(os.environ.get("TRIMTAB_KILLS", "20"))


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Processes that have imported everything when they begin."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["trimtab.control.ledger"])
    return context


def engine_of(url: str) -> sa.Engine:
    return sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"), poolclass=sa.NullPool)


def one_line(refusal: pytest.ExceptionInfo[JournalError], url: str) -> str:
    text = str(refusal.value)
    assert "\n" not in text
    assert text.startswith(url.split("?")[0])
    return text


def fill(ledger: Ledger, count: int) -> None:
    for number in range(ledger.last + 1, ledger.last + count + 1):
        ledger.append("forecast", nth(number), at_ms=number, key=f"k{number}")


def killed(url: str, processes: ForkServerContext, most: int, patience_s: float) -> int:
    """Kill a writer so long after its entry `most` (0 = its opening); return the last that it told of."""
    hears, says = processes.Pipe(duplex=False)
    child = processes.Process(target=append_until_killed, args=(url, says), daemon=True)
    child.start()
    says.close()
    told = [hears.recv() for _ in range(most + 1)]
    threading.Event().wait(patience_s)
    child.kill()
    child.join()
    with suppress(EOFError):
        while True:
            told.append(hears.recv())
    return int(told[-1])


def test_a_writer_killed_at_any_instant_leaves_whole_entries(url: str, processes: ForkServerContext) -> None:
    """`kill -9` within an append, again and again on one journal: the next writer just goes on."""
    dice = Seeds(0).stream("kills")
    for _ in range(KILLS):
        acknowledged = killed(url, processes, int(dice.integers(1, 6)), float(dice.uniform(0.0, 0.02)))
        with reopened(url) as ledger:
            assert_whole(ledger.entries(), acknowledged)
            fill(ledger, 1)
    with reopened(url) as ledger:
        assert ledger.last > 2 * KILLS


def test_a_writer_killed_while_it_makes_the_tables_leaves_none_or_all(
    request: pytest.FixtureRequest, tmp_path: Path, processes: ForkServerContext
) -> None:
    dice = Seeds(0).stream("openings")
    postgres = request.getfixturevalue("postgres")
    for number in range(KILLS // 2):
        url = postgres.database() if number % 3 == 0 else f"sqlite:///{tmp_path}/journal-{number}.db"
        acknowledged = killed(url, processes, 0, float(dice.uniform(0.0, 0.1)))
        with reopened(url) as ledger:
            assert_whole(ledger.entries(), acknowledged)
            fill(ledger, 1)


def reopened(url: str) -> Ledger:
    """Open for writing; a server notices the end of a killed session a moment later."""
    for _ in range(500):
        with suppress(JournalError):
            return Ledger.open(url)
        threading.Event().wait(0.01)
    return Ledger.open(url)


def test_a_disk_that_fills_up_takes_no_entry_in_part(file_url: str, processes: ForkServerContext) -> None:
    hears, says = processes.Pipe(duplex=False)
    child = processes.Process(target=append_with_small_files, args=(file_url, 300_000, says))
    child.start()
    says.close()
    refusal, last = hears.recv()
    child.join()
    assert refusal.startswith(f"{file_url}: ")
    assert "\n" not in refusal
    assert last > 5
    with Ledger.open(file_url) as ledger:
        assert_whole(ledger.entries(), last)
        fill(ledger, 30)
        assert ledger.last >= last + 30


def test_a_full_database_says_so_and_goes_on_when_there_is_room(
    file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = 40

    def bound(connection: sa.Connection) -> None:
        begin(connection)
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")

    begin = store._begin
    monkeypatch.setattr(store, "_begin", bound)
    with Ledger.open(file_url) as ledger:
        with pytest.raises(JournalError, match="database or disk is full; nothing was written") as refusal:
            fill(ledger, 100)
        one_line(refusal, file_url)
        last = ledger.last
        assert_whole(ledger.entries(), last)
        assert len(ledger.entries()) == last
        pages = 100_000
        fill(ledger, 3)
        assert_whole(ledger.entries(), last + 3)


def test_a_server_that_cannot_store_more_says_so(postgres: Server) -> None:
    url = postgres.database()
    with Ledger.open(url) as ledger:
        fill(ledger, 2)
        bulk = Seeds(0).stream("bulk").bytes(FILE_MAX).hex()
        with pytest.raises(JournalError, match="File too large; nothing was written") as refusal:
            ledger.append("state", {"jobs": bulk}, at_ms=0)
        one_line(refusal, url)
        fill(ledger, 2)
        assert_whole(ledger.entries(), 4)


def test_a_lock_of_somebody_else_is_waited_for_and_then_told(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "WAIT_S", 1)
    lock = "BEGIN EXCLUSIVE" if url.startswith("sqlite") else "LOCK TABLE trimtab_entries IN EXCLUSIVE MODE"
    with Ledger.open(url) as ledger:
        fill(ledger, 2)
        with engine_of(url).connect() as other:
            other.exec_driver_sql(lock)
            with pytest.raises(JournalError, match=r"lock(ed| timeout); nothing was written") as refusal:
                fill(ledger, 1)
            assert_whole(ledger.entries(), 2)
        one_line(refusal, url)
        fill(ledger, 1)
        assert_whole(ledger.entries(), 3)


def test_days_that_cannot_leave_the_database_stay_and_leave_later(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is written, the database refuses: nothing is lost, and nothing moved twice."""
    monkeypatch.setattr(store, "WAIT_S", 1)
    lock = "BEGIN EXCLUSIVE" if url.startswith("sqlite") else "LOCK TABLE trimtab_entries IN EXCLUSIVE MODE"
    with Ledger.open(url) as ledger:
        fill(ledger, 5)
        with engine_of(url).connect() as other:
            other.exec_driver_sql(lock)
            with pytest.raises(JournalError, match=r"lock(ed| timeout); nothing was written"):
                ledger.retain(10**15, tmp_path)
        assert_whole(ledger.entries(), 5)
        orphan = (tmp_path / "entries-1-4.jsonl").read_bytes()
        (export,) = ledger.retain(10**15, tmp_path)
        assert (export.path.read_bytes(), export.entries) == (orphan, 4)
        assert [entry.number for entry in ledger.entries()] == [5]


def test_a_schema_of_a_later_trimtab_is_refused_also_under_an_open_journal(url: str) -> None:
    with Ledger.open(url) as ledger:
        fill(ledger, 2)
        _set_schema(url, "9999")
        too_new = "schema 9999 is newer than this Trimtab's 0002; nothing was done"
        for attempt in (lambda: fill(ledger, 1), ledger.entries, lambda: ledger.retain(10**15, Path("no"))):
            for _ in range(2):
                with pytest.raises(JournalError, match=too_new) as refusal:
                    attempt()
                one_line(refusal, url)
        _set_schema(url, "0002")
        fill(ledger, 1)
        _set_schema(url, "9999")
    for write in (True, False):
        with pytest.raises(JournalError, match="schema 9999 is newer"):
            Ledger.open(url, write=write)
    _set_schema(url, "0002")
    with Ledger.open(url) as ledger:
        assert_whole(ledger.entries(), 3)


def _set_schema(url: str, version: str) -> None:
    with engine_of(url).begin() as connection:
        connection.execute(sa.text("UPDATE trimtab_schema SET version_num = :version"), {"version": version})


def test_a_file_that_is_gone_or_another_one_is_noticed(file_url: str, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with Ledger.open(file_url) as ledger:
        fill(ledger, 2)
        path.rename(tmp_path / "moved.db")
        for attempt in (lambda: fill(ledger, 1), ledger.entries):
            with pytest.raises(JournalError, match="the file is gone; nothing is written or read") as refusal:
                attempt()
        one_line(refusal, file_url)
        path.touch()
        with pytest.raises(JournalError, match="another file is in its place"):
            fill(ledger, 1)
        (tmp_path / "moved.db").rename(path)
        fill(ledger, 1)
        assert_whole(ledger.entries(), 3)


@pytest.mark.parametrize(
    ("write", "said"), [(True, "unable to open database file"), (False, "there is no such file")]
)
def test_a_file_in_no_folder_is_refused(tmp_path: Path, write: bool, said: str) -> None:
    with pytest.raises(JournalError, match=said):
        Ledger.open(f"sqlite:///{tmp_path}/none/journal.db", write=write)


def test_a_file_that_is_no_database_is_refused_and_left_alone(file_url: str, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(b"knobs: none\n" * 1000)
    with pytest.raises(JournalError, match="file is not a database; it was not opened") as refusal:
        Ledger.open(file_url)
    one_line(refusal, file_url)
    assert path.read_bytes() == b"knobs: none\n" * 1000


def test_a_server_may_stop_and_come_back(postgres: Server) -> None:
    url = postgres.database()
    with Ledger.open(url) as ledger:
        fill(ledger, 2)
        postgres.stop()
        try:
            for attempt in (lambda: fill(ledger, 1), ledger.entries, lambda: Ledger.open(url)):
                with pytest.raises(JournalError) as refusal:
                    attempt()
                one_line(refusal, url)
        finally:
            postgres.start()
        fill(ledger, 1)
        with pytest.raises(JournalError, match="another trimtab writes this journal"):
            Ledger.open(url)
        assert_whole(ledger.entries(), 3)


def test_a_server_that_loses_power_keeps_what_was_acknowledged(postgres: Server) -> None:
    url = postgres.database()
    with Ledger.open(url) as ledger:
        fill(ledger, 5)
        postgres.kill()
        postgres.start()
        fill(ledger, 2)
        assert_whole(ledger.entries(), 7)


def test_a_session_that_ends_between_entries_is_opened_again(postgres: Server) -> None:
    url = postgres.database()
    with Ledger.open(url) as ledger:
        fill(ledger, 2)
        _end_sessions(url)
        fill(ledger, 1)
        assert_whole(ledger.entries(), 3)


def test_a_writer_that_was_replaced_writes_no_more(postgres: Server) -> None:
    url = postgres.database()
    with Ledger.open(url) as first:
        fill(first, 2)
        _end_sessions(url)
        with Ledger.open(url) as second:
            fill(second, 1)
            with pytest.raises(JournalError, match="another trimtab writes this journal"):
                fill(first, 1)
        with pytest.raises(JournalError, match="entry 3 was written by somebody else; start again"):
            fill(first, 1)
        assert_whole(first.entries(), 3)


def _end_sessions(url: str) -> None:
    ends = (
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with engine_of(url).connect() as connection:
        connection.exec_driver_sql(ends)


class Wire:
    """Stands between a client and a server's socket, and cuts the next commit off, or its answer."""

    def __init__(self, server: Path, mine: Path) -> None:
        self.cut: str = ""
        self._server, self._listener = server, socket.socket(socket.AF_UNIX)
        self._listener.bind(str(mine))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self._server))
                threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                if self.cut and b"COMMIT" in data:
                    cut, self.cut = self.cut, ""
                    client.shutdown(socket.SHUT_RDWR)
                    if cut == "before":
                        break
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data)
        server.close()
        client.close()


@pytest.fixture
def wired(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Wire, str]]:
    url = postgres.database()
    server, mine = Path(url.split("host=")[1]), Path(url.split("host=")[1]) / f"wire-{os.getpid()}"
    mine.mkdir()
    wire = Wire(server / ".s.PGSQL.5432", mine / ".s.PGSQL.5432")
    yield wire, url.replace(f"host={server}", f"host={mine}")
    wire.close()
    (mine / ".s.PGSQL.5432").unlink()
    mine.rmdir()


@pytest.mark.parametrize(("cut", "written"), [("before", 2), ("after", 3)])
def test_an_entry_in_doubt_is_there_once_or_not_at_all(
    wired: tuple[Wire, str], cut: str, written: int
) -> None:
    """The connection breaks at a commit: it may have reached the server, and the journal shows whether."""
    wire, url = wired
    with Ledger.open(url) as ledger:
        fill(ledger, 2)
        wire.cut = cut
        with pytest.raises(
            JournalError, match="whether the last was written shows when it is back"
        ) as refusal:
            fill(ledger, 1)
        one_line(refusal, url)
        _end_sessions(url)  # the server has noticed, too
        assert_whole(ledger.entries(), written)
        number = written + 1
        assert ledger.append("forecast", nth(number), at_ms=number, key=f"k{number}").number == number
        assert_whole(ledger.entries(), number)


@pytest.mark.parametrize("missing", ["sqlalchemy", "alembic"])
def test_without_the_extra_it_says_what_to_install(missing: str) -> None:
    program = f"""
import sys
sys.modules[{missing!r}] = None
from trimtab.errors import ConfigError
try:
    from trimtab.control.ledger import Ledger
except ConfigError as refusal:
    print(refusal)
"""
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert said.startswith(f"the loop's journal needs {missing}")
    assert "pip install 'trimtab[serve]'" in said


def test_without_psycopg_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"postgresql://me:\*\*\*@host/x needs psycopg; pip install"):
        Ledger.open("postgresql://me:secret@host/x")
