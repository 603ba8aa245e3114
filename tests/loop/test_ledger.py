"""The control loop's journal on both databases: what it promises, and what its triggers refuse."""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command

from trimtab import world
from trimtab.control.entries import KINDS
from trimtab.control.ledger import Ledger, Versions
from trimtab.control.sight import part_name
from trimtab.control.store import _config
from trimtab.errors import ConfigError, InvariantError, JournalError, OutputError

DAY_MS = 86_400_000


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with Ledger.open(url) as opened:
        yield opened


def raw(url: str) -> sa.Engine:
    """Return a way past everything but the database itself."""
    return sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))


def change(ledger: Ledger, key: str, outcome: str | None = None) -> None:
    ledger.append("intent", {"knobs": {"width": 2}}, at_ms=5, key=key)
    ledger.append("receipt", {"version": 7}, at_ms=6, key=key)
    if outcome:
        ledger.append("read_back", {"outcome": outcome}, at_ms=7, key=key)


def test_entries_come_back_as_they_were_written(ledger: Ledger, url: str) -> None:
    body = {"a": [1, 2.5, None, "ä\0\ud800"], "bad": {"x": math.nan, "y": -math.inf}, "big": 2**70}
    written = [
        ledger.append(kind, body, at_ms=-number, key=f"k{number}") for number, kind in enumerate(KINDS)
    ]
    assert [entry.number for entry in written] == list(range(1, len(KINDS) + 1))
    assert written[0].body == {**body, "bad": {"x": None, "y": None}}
    assert ledger.entries() == tuple(written)
    assert ledger.entries(after=3, limit=2) == tuple(written[3:5])
    assert [entry.kind for entry in ledger.entries(kinds=("stop", "state"))] == ["state", "stop"]
    ledger.close()
    with Ledger.open(url) as again:
        assert again.entries() == tuple(written)
        assert again.append("start", {}, at_ms=0).number == len(KINDS) + 1


@pytest.mark.parametrize(
    ("kind", "body", "key", "said"),
    [
        ("gossip", {}, None, "no such kind"),
        ("intent", {}, None, "without the key"),
        ("read_back", {"outcome": "unknown"}, None, "without the key"),
        ("read_back", {"outcome": "fine"}, "k", "'fine'"),
        ("intent", {"outcome": "confirmed"}, "k", "no outcome of its own"),
        ("state", {"x": object()}, None, "no plain JSON"),
        ("intent", {}, "a", "has an intent already"),
    ],
)
def test_what_is_no_entry_is_not_written(ledger: Ledger, kind, body, key, said) -> None:
    change(ledger, "a", "confirmed")
    with pytest.raises(InvariantError, match=said):
        ledger.append(kind, body, at_ms=0, key=key)
    assert len(ledger.entries()) == 3
    assert ledger.append("stop", {}, at_ms=0).number == 4


def test_a_journal_of_the_first_schema_is_brought_up_to_date(url: str) -> None:
    engine, config = raw(url), _config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        for number, kind in enumerate(("start", "state", "verdict"), 1):
            connection.exec_driver_sql(
                f"INSERT INTO trimtab_entries VALUES ({number}, 5, 6, '{kind}', NULL, NULL, '{{}}', '{{}}')"
            )
    engine.dispose()
    with pytest.raises(JournalError, match=r"schema 0001 is older than this Trimtab's 0002; `trimtab serve`"):
        Ledger.open(url, write=False)
    with Ledger.open(url) as ledger:
        assert [(entry.number, entry.kind) for entry in ledger.entries()] == [
            (1, "start"),
            (2, "state"),
            (3, "verdict"),
        ]
        name = part_name(b"{}")
        assert ledger.append("state", {"n": 4}, at_ms=7, parts={name: b"{}"}).number == 4
    with Ledger.open(url, write=False) as again:
        assert again.parts([name]) == {name: b"{}"}
        assert again.entries(after=3)[0].body == {"n": 4}


def test_there_is_one_writer_and_readers_beside_it(ledger: Ledger, url: str) -> None:
    ledger.append("start", {}, at_ms=0)
    with pytest.raises(JournalError, match="another trimtab writes this journal; it was not opened"):
        Ledger.open(url)
    with Ledger.open(url, write=False) as reader:
        ledger.append("stop", {}, at_ms=1)
        assert reader.entries() == ledger.entries()
        with pytest.raises(JournalError, match="for reading only"):
            reader.append("start", {}, at_ms=2)
    ledger.close()
    with Ledger.open(url) as next_one:
        assert next_one.append("start", {}, at_ms=3).number == 3


def test_what_is_committed_is_synced(ledger: Ledger, url: str) -> None:
    asked = {
        "sqlite": ["PRAGMA journal_mode", "PRAGMA synchronous"],
        "postgresql": ["SHOW synchronous_commit"],
    }
    with ledger._store.writing() as connection:
        answers = [connection.exec_driver_sql(one).scalar() for one in asked[connection.dialect.name]]
    assert answers in (["wal", 2], ["on"])


def test_threads_share_a_ledger(ledger: Ledger) -> None:
    def work(name: str) -> None:
        for number in range(10):
            ledger.append("trial", {"by": name, "n": number}, at_ms=0)
            ledger.entries(limit=3)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = ledger.entries()
    assert [entry.number for entry in found] == list(range(1, 31))
    for name in "abc":
        assert [entry.body["n"] for entry in found if entry.body["by"] == name] == list(range(10))


FORBIDDEN = (
    "UPDATE trimtab_entries SET body = '{}' WHERE number = 2",
    "UPDATE trimtab_entries SET number = 9 WHERE number = 3",
    "DELETE FROM trimtab_entries WHERE number = 3",
    "DELETE FROM trimtab_entries",
    "INSERT INTO trimtab_entries SELECT 6, 0, 0, 'stop', NULL, NULL, '{}', '{}'",
    "INSERT INTO trimtab_entries SELECT 3, 0, 0, 'stop', NULL, NULL, '{}', '{}'",
    "INSERT INTO trimtab_exports SELECT 1, 1, 'again', 'x'",
    "UPDATE trimtab_exports SET file = 'other'",
    "DELETE FROM trimtab_exports",
)
FORBIDDEN_IN = {
    "sqlite": ("INSERT OR REPLACE INTO trimtab_entries SELECT 3, 0, 0, 'stop', NULL, NULL, '{}', '{}'",),
    "postgresql": ("TRUNCATE trimtab_entries", "TRUNCATE trimtab_exports"),
}


def test_the_database_itself_refuses_to_change_what_was_written(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger.open(url) as ledger:
        monkeypatch.setattr(world, "epoch_ms", lambda: 0)
        for _ in range(2):
            ledger.append("state", {}, at_ms=0)
        monkeypatch.undo()
        change(ledger, "a")
        assert len(ledger.retain(DAY_MS, tmp_path / "old")) == 1
        before = ledger.entries()
        assert [entry.number for entry in before] == [2, 3, 4]
    engine = raw(url)
    for statement in FORBIDDEN + FORBIDDEN_IN[engine.dialect.name]:
        refused = pytest.raises(
            sa.exc.DBAPIError, match=r"never changed|never deleted|without a gap|exported"
        )
        with refused, engine.begin() as connection:
            connection.exec_driver_sql(statement)
    engine.dispose()
    with Ledger.open(url) as ledger:
        assert ledger.entries() == before
        assert ledger.append("stop", {}, at_ms=0).number == 5


def days(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write three days: settings, a confirmed change and one open on the first, then states, then a pause."""
    monkeypatch.setattr(world, "epoch_ms", lambda: 10 * DAY_MS)
    ledger.append("settings", {"n": 1}, at_ms=0)
    ledger.append("settings", {"n": 2}, at_ms=0)
    change(ledger, "done", "confirmed")
    change(ledger, "refused", "refused")
    change(ledger, "open")
    monkeypatch.setattr(world, "epoch_ms", lambda: 11 * DAY_MS - 1)
    ledger.append("state", {"n": 3}, at_ms=0)
    monkeypatch.setattr(world, "epoch_ms", lambda: 11 * DAY_MS)
    ledger.append("state", {"n": 4}, at_ms=0)
    monkeypatch.setattr(world, "epoch_ms", lambda: 12 * DAY_MS)
    ledger.append("state", {"n": 5}, at_ms=0)


def test_old_days_move_to_files_and_what_recovery_needs_stays(
    ledger: Ledger, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days(ledger, monkeypatch)
    written = ledger.entries()
    assert ledger.retain(11 * DAY_MS - 1, tmp_path / "old") == ()  # that day is not over
    (first,) = ledger.retain(12 * DAY_MS + 5, tmp_path / "old", days=1)
    moved = (first, *ledger.retain(12 * DAY_MS + 5, tmp_path / "old"))
    assert [(export.entries, export.kept) for export in moved] == [(1, 0), (1, 0)]
    assert [entry.number for entry in ledger.entries()] == [*range(1, 11), 13]
    assert [entry.key for entry in ledger.entries(kinds=("intent",))] == ["done", "refused", "open"]
    assert [entry.outcome for entry in ledger.entries(kinds=("read_back",))] == ["confirmed", "refused"]
    assert ledger.retain(12 * DAY_MS, tmp_path / "old") == ()
    filed = {}
    for export in moved:
        data = export.path.read_bytes()
        assert hashlib.sha256(data).hexdigest() == export.sha256
        assert Path(f"{export.path}.sha256").read_text() == f"{export.sha256}  {export.path.name}\n"
        filed |= {found["number"]: found for found in map(json.loads, data.splitlines())}
    assert sorted(filed) == [11, 12]
    for entry in written:
        if entry.number in filed:
            assert filed[entry.number]["body"] == entry.body
            assert Versions(**filed[entry.number]["versions"]) == entry.versions
    ledger.append("state", {"n": 6}, at_ms=8)
    ledger.close()
    with Ledger.open(url) as again:  # the last of its kind goes when there is another, and numbers go on
        (export,) = again.retain(13 * DAY_MS, tmp_path / "old")
        assert (export.path.name, export.entries, export.kept) == ("entries-13-13.jsonl", 1, 1)
        assert again.append("stop", {}, at_ms=9).number == 15


def test_numbers_go_on_when_all_days_were_moved(
    ledger: Ledger, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "epoch_ms", lambda: 0)
    for _ in range(3):
        ledger.append("state", {}, at_ms=0)
    ledger.retain(DAY_MS, tmp_path)
    assert [entry.number for entry in ledger.entries()] == [3]  # the last one of its kind
    assert ledger.append("state", {}, at_ms=0).number == 4
    ledger.close()
    with Ledger.open(url) as again:
        assert again.append("state", {}, at_ms=0).number == 5


def test_nothing_leaves_where_the_file_cannot_be_written(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days(ledger, monkeypatch)
    before = ledger.entries()
    (tmp_path / "old").write_text("a file, no folder")
    with pytest.raises(OutputError, match="no entry left the journal"):
        ledger.retain(12 * DAY_MS, tmp_path / "old")
    assert ledger.entries() == before


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("journal.db", "is no URL"),
        ("postgresql://host:port/trimtab", "is no URL"),
        ("mysql://me:secret@host/x", r"mysql://me:\*\*\*@host/x: mysql is neither"),
        ("mysql://host/x?password=secret", "journal mysql://host/x: mysql is neither"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
    ],
)
def test_only_files_and_postgresql_are_journals(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Ledger.open(url)
