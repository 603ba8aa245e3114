"""The journal keeps what each decision was made from, whole, and a replay decides the same from it alone."""

from __future__ import annotations

import json
import shutil
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from commands import Trimtab
from histories import days
from looped import HOUR_MS, Looped, settings
from postgres import Server
from trimtab import world
from trimtab.cluster import Cluster
from trimtab.control import service
from trimtab.control.entries import Entry
from trimtab.control.ledger import Ledger
from trimtab.control.loop import Loop, at_once
from trimtab.control.recent import Recent
from trimtab.control.register import Register
from trimtab.control.sight import Kept, Sight, Unkept, keep, kept_again, part_name
from trimtab.control.standing import FOLDED, Standing, fold
from trimtab.errors import JournalError
from trimtab.forecast.history import Past
from trimtab.job import JobView
from trimtab.policies.catalog import find_policy
from trimtab.simulate.trials import LocalTrials
from trimtab.studies.replay_loop import Redone, redo
from trimtab.traces import loader

DAY_MS = 24 * HOUR_MS


def _day(folder: Path, url: str, line: str) -> None:
    """A day of changes: by itself, approved, taken back, under other settings, with a kill in between."""
    looped = Looped(settings(folder, url, line=line, losses="1", loss_below="1.0"))
    looped.run(12 * HOUR_MS)
    looped.loop.resume("ann")
    looped.start()
    looped.run(15 * HOUR_MS)
    looped.loop.resume("ann")
    found = settings(folder, url, line=line, mode="approve")
    looped.loop.adopt(found.orders, None, found.digest, found.asked)
    looped.run(19 * HOUR_MS, lambda: looped.loop.standing.proposal and looped.loop.approve("ann"))
    looped.loop.pause("ann")
    looped.run(20 * HOUR_MS)
    looped.loop.resume("ann")
    found = settings(folder, url, line=line, mode="shadow", seed="4")
    looped.loop.adopt(found.orders, service.searches_of(found, looped.plant), found.digest, found.asked)
    looped.run(32 * HOUR_MS)
    looped.loop.stop()
    looped.ledger.close()


def _redone(ledger: Ledger) -> Redone:
    entries, moved = ledger.everything()
    return redo(entries, lambda names: {**ledger.parts(names), **moved})


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of such a day."""
    folder = tmp_path_factory.mktemp("day")
    _day(folder, f"sqlite:///{folder}/journal.db", "trimtab-plus")
    return folder / "journal.db"


@pytest.fixture
def copy(day: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(day, tmp_path / "copy.db"))


def test_a_day_is_decided_again(day: Path, trimtab: Trimtab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the journal is looked at: neither trace nor scheduler is there."""
    for forbidden in (loader, service):
        monkeypatch.setattr(forbidden, "load" if forbidden is loader else "open_scheduler", None)
    with Ledger.open(f"sqlite:///{day}", write=False) as ledger:
        entries = ledger.entries()
    kinds = Counter(entry.kind for entry in entries)
    said = Counter(entry.body["decision"] for entry in entries if entry.kind == "verdict")
    assert min(said[one] for one in ("kept", "applied", "proposed", "shadow")) > 0, said
    assert kinds["trial"] > 2
    assert kinds["breaker"] > 0
    found = trimtab(f"replay {day} --format json").json()
    assert found["identical"]
    changes = sum(entry.kind == "intent" and entry.body["purpose"] == "change" for entry in entries)
    counts = {one: kinds[one] for one in ("verdict", "forecast", "trial", "breaker")} | {"intent": changes}
    assert found["same"] == counts
    assert 1000 < found["bytes_a_state"] < 20_000
    told = trimtab(f"replay sqlite:///{day} --quiet")
    assert "identical: every decision came out as it did then" in told.out


def test_a_day_on_the_other_database_is_decided_again(tmp_path: Path, postgres: Server) -> None:
    url = postgres.database()
    _day(tmp_path, url, "trimtab")
    with Ledger.open(url, write=False) as ledger:
        found = _redone(ledger)
        assert found.other is None
        assert found.same["verdict"] == len(ledger.entries(kinds=("verdict",))) > 15


def test_a_decision_uses_no_later_state(day: Path) -> None:
    """Cut short anywhere, the journal is decided again from the states up to there, and no part beside."""
    with Ledger.open(f"sqlite:///{day}", write=False) as ledger:
        entries = ledger.entries()
        for cut in (20, len(entries) // 3):
            known = {
                name
                for entry in entries[:cut]
                if entry.kind == "state"
                for kind in ("head", "jobs", "learned", "completed")
                for name in entry.body["kept"][kind]
            }

            def parts(names: Sequence[str], known: set[str] = known) -> Mapping[str, bytes]:
                assert set(names) <= known
                return ledger.parts(names)

            found = redo(entries[:cut], parts)
            assert found.other is None
            assert found.same["verdict"] == sum(entry.kind == "verdict" for entry in entries[:cut])


# ---- what was changed is named ----------------------------------------------------------------------


def _altered(path: Path, statement: str, **values: Any) -> None:
    """Change what is in a journal, past the triggers that refuse it."""
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        for name in connection.scalars(
            sa.text("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        ).all():
            connection.exec_driver_sql(f"DROP TRIGGER {name}")
        connection.execute(sa.text(statement), values)
    engine.dispose()


def _rounds(path: Path, kind: str) -> list[Entry]:
    with Ledger.open(f"sqlite:///{path}", write=False) as ledger:
        return list(ledger.entries(kinds=(kind,)))  # type: ignore[arg-type]


def test_a_changed_byte_of_a_state_is_named(copy: Path, trimtab: Trimtab) -> None:
    entry = _rounds(copy, "state")[15]
    (name,) = entry.body["kept"]["head"]
    engine = sa.create_engine(f"sqlite:///{copy}")
    with engine.connect() as connection:
        asked = sa.text("SELECT data FROM trimtab_parts WHERE name = :name")
        data = bytearray(connection.scalar(asked, {"name": name}))
    engine.dispose()
    data[len(data) // 2] ^= 1
    _altered(copy, "UPDATE trimtab_parts SET data = :data WHERE name = :name", data=bytes(data), name=name)
    ran = trimtab(f"replay {copy} --quiet")
    assert ran.code == 1
    assert f"entry {entry.number}, state of " in ran.err
    assert f"part {name} of a state is not what was written" in ran.err
    assert len(ran.err.strip().splitlines()) == 1


def test_a_changed_decision_is_named(copy: Path, trimtab: Trimtab) -> None:
    entry = _rounds(copy, "verdict")[9]
    body = {**entry.body, "reason": entry.body["reason"] + "!"}
    statement = "UPDATE trimtab_entries SET body = :body WHERE number = :number"
    _altered(copy, statement, body=json.dumps(body), number=entry.number)
    ran = trimtab(f"replay {copy} --quiet --format json")
    assert ran.code == 1
    assert f"entry {entry.number}, verdict of " in ran.err
    assert 'reason was "' in ran.err
    found = json.loads(ran.out)
    assert not found["identical"]
    assert (found["difference"]["number"], found["difference"]["field"]) == (entry.number, "reason")


def test_another_state_leads_to_another_decision_which_is_named(copy: Path) -> None:
    """A state that is whole but not the one that was seen: all its names fit."""
    entry = next(one for one in _rounds(copy, "state") if one.body["pending"] > 3)
    with Ledger.open(f"sqlite:///{copy}", write=False) as ledger:
        (text,) = ledger.parts(entry.body["kept"]["head"]).values()
    head = json.loads(text)
    head["jobs"]["done"] = [0 for _ in head["jobs"]["done"]]
    other = json.dumps(head, separators=(",", ":")).encode()
    insert = "INSERT INTO trimtab_parts VALUES (:name, :number, :data)"
    _altered(copy, insert, name=part_name(other), number=entry.number, data=zlib.compress(other))
    body = {**entry.body, "kept": {**entry.body["kept"], "head": [part_name(other)]}}
    statement = "UPDATE trimtab_entries SET body = :body WHERE number = :number"
    _altered(copy, statement, body=json.dumps(body), number=entry.number)
    with Ledger.open(f"sqlite:///{copy}", write=False) as ledger:
        found = _redone(ledger)
    assert found.other is not None
    assert found.other.number > entry.number
    assert found.other.kind in ("forecast", "verdict")


def test_rounds_by_other_versions_are_left_out(copy: Path, trimtab: Trimtab) -> None:
    _, second = _rounds(copy, "start")
    body = {**second.body, "versions": {**second.body["versions"], "policy": "another"}}
    statement = "UPDATE trimtab_entries SET body = :body WHERE number = :number"
    _altered(copy, statement, body=json.dumps(body), number=second.number)
    found = trimtab(f"replay {copy} --format json").json()
    rounds = [entry.number for entry in _rounds(copy, "verdict")]
    assert found["left_out"] == sum(number > second.number for number in rounds) > 5
    assert found["same"]["verdict"] == sum(number < second.number for number in rounds)


def test_gains_of_other_versions_are_not_mixed_in(day: Path) -> None:
    with Ledger.open(f"sqlite:///{day}", write=False) as ledger:
        entries = ledger.entries()
    standing = fold(Standing(), entries)
    start = next(entry for entry in entries if entry.kind == "start")
    assert len(standing.pairs) > 2
    assert fold(standing, [start]).pairs == standing.pairs
    other = replace(start, body={**start.body, "versions": {**start.body["versions"], "policy": "another"}})
    assert fold(standing, [other]).pairs == ()


# ---- states -----------------------------------------------------------------------------------------


def _sights(policy: str, folder: Path, hours: Sequence[int] = (1, 5, 20, 30)) -> Iterator[Sight]:
    found = settings(folder, "sqlite:///-", policy=policy)
    source = "helios" if policy == "lucid" else "philly"
    trace = loader.load(f"synthetic:{source}?days={hours[-1] // 24 + 1}&seed=3&load=0.3")
    scheduler = replace(found.scheduler, start_ms=None, cluster=Cluster.pool(14, 8))
    engine, register = service.simulated(scheduler, trace), Register()
    for hour in hours:
        engine.advance(hour * HOUR_MS)
        register.hear(engine.events(0, 1_000_000))
        register.see(engine.state())
        yield register.sight(engine.state(), scheduler.cluster)


POLICIES = ("tiresias", "themis", "lucid", "chronus", "sensascale", "slurm")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_state_comes_back_whole(policy: str, tmp_path: Path) -> None:
    for sight in _sights(policy, tmp_path):
        again = kept_again(keep(sight))
        assert _shown(again) == _shown(sight)
        assert keep(again) == keep(sight)
        scenes = [
            one.scene(find_policy(policy).space.defaults, policy, _world(), None)  # type: ignore[arg-type]
            for one in (sight, again)
        ]
        assert _jobs(scenes[0].snapshot.jobs) == _jobs(scenes[1].snapshot.jobs)


def _world() -> Any:
    from trimtab.simulate.run import World
    from trimtab.simulate.workload import Workload

    return World(estimates="predicted").environment(Workload([], []))


def _shown(sight: Sight) -> Any:
    snapshot = sight.state.snapshot
    told = {field.name: getattr(snapshot, field.name) for field in fields(snapshot) if field.name != "jobs"}
    past = {field.name: np.asarray(getattr(sight.past, field.name)).tolist() for field in fields(Past)}
    return (
        told,
        _jobs(snapshot.jobs),
        sight.state.labels,
        sight.cluster,
        past,
        sight.facts,
        sight.estimator.learned(),
    )


def _jobs(jobs: Sequence[JobView]) -> list[dict[str, Any]]:
    return [{name: getattr(job, name) for name in JobView.__slots__} for job in jobs]


def test_what_is_no_state_is_refused(tmp_path: Path) -> None:
    *_, sight = _sights("tiresias", tmp_path)
    kept = keep(sight)
    (name,) = kept.names["head"]
    with pytest.raises(Unkept, match="is not there"):
        kept_again(Kept(kept.names, {one: text for one, text in kept.parts.items() if one != name}))
    with pytest.raises(Unkept, match="schema 1, this Trimtab reads 2"):
        kept_again(Kept({**kept.names, "schema": 1}, kept.parts))
    with pytest.raises(Unkept, match="is not what was written"):
        kept_again(Kept(kept.names, {**kept.parts, name: b"{}"}))
    with pytest.raises(Unkept, match="cannot be put together"):
        kept_again(Kept({**kept.names, "head": [part_name(b"{}")]}, {**kept.parts, part_name(b"{}"): b"{}"}))


def test_what_does_not_change_is_kept_once(tmp_path: Path) -> None:
    """From one hour to the next, most of what is known is what was known."""
    before, after = (keep(sight) for sight in _sights("tiresias", tmp_path, (149, 150)))
    for kind in ("completed", "learned"):
        assert set(before.names[kind][:-1]) <= set(after.names[kind])
    new = sum(len(text) for name, text in after.parts.items() if name not in before.parts)
    assert new < sum(map(len, after.parts.values())) / 2


def test_forecasts_stand_beside_what_came(tmp_path: Path) -> None:
    """Jobs of each hour that was forecast are those that were really submitted in it."""
    looped = Looped(settings(tmp_path, f"sqlite:///{tmp_path}/journal.db", mode="shadow"))
    looped.run(14 * HOUR_MS)
    recent = Recent(looped.ledger)
    recent.take(looped.loop.past)
    entries = [one.body for one in looped.ledger.entries(kinds=("forecast",)) if one.body["search"] == "main"]
    submit_ms = [one.submit_ms for one in looped.scheduler._workload.facts]
    assert len(recent.forecasts) == len(entries) > 4
    known_ms = looped.loop.past.now_ms if looped.loop.past else 0
    for told, body in zip(recent.forecasts, reversed(entries), strict=True):
        hour = range(body["from_ms"], body["from_ms"] + HOUR_MS)
        came = None if known_ms < hour.stop else sum(one in hour for one in submit_ms)
        assert (told["came"] and told["came"]["jobs"]) == came
        assert told["jobs"] == [hours[0] for hours in body["arrivals"]]
    assert recent.forecasts[-1]["came"]["gpu_h"] > 0
    looped.ledger.close()


# ---- retention --------------------------------------------------------------------------------------


def test_old_days_are_replayed_from_their_file(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looped = Looped(settings(tmp_path, url), trace=days(3, 2))
    monkeypatch.setattr(world, "epoch_ms", lambda: looped.now_ms)
    looped.run(27 * HOUR_MS)
    ledger = looped.ledger
    before, (states, size) = ledger.entries(), ledger.state_bytes()
    expected = _redone(ledger)
    assert expected.other is None
    assert ledger.retain(DAY_MS // 2, tmp_path / "old") == ()
    (export,) = ledger.retain(DAY_MS, tmp_path / "old")
    left = ledger.entries()
    assert {entry.kind for entry in before if entry not in left} == {"state", "forecast", "verdict"}
    assert export.entries == len(before) - len(left) > 10
    fewer, smaller = ledger.state_bytes()
    assert fewer < states / 2
    assert smaller < size / 2
    assert ledger.everything()[0] == before
    assert _redone(ledger).jsonable() == expected.jsonable()
    looped.run(29 * HOUR_MS)  # what waited for a score is scored, and new states are whole
    assert all("why" not in entry.body for entry in ledger.entries(kinds=("trial",)))
    assert _redone(ledger).other is None
    data = export.path.read_bytes()
    export.path.write_bytes(data[:-10] + b"\n")
    with pytest.raises(JournalError, match="is not what was written; nothing was read"):
        ledger.everything()
    export.path.unlink()
    with pytest.raises(JournalError, match="earlier entries were moved there, and it cannot be read"):
        ledger.everything()
    ledger.close()


def test_what_recovery_goes_by_stays_when_old_days_leave(copy: Path, tmp_path: Path) -> None:
    with Ledger.open(f"sqlite:///{copy}") as ledger:
        before, expected = fold(Standing(), ledger.entries(kinds=FOLDED)), _redone(ledger)
        assert before.pairs
        assert before.left
        (export,) = ledger.retain(10**15, tmp_path / "old")
        assert export.entries > export.kept > 0
        assert fold(Standing(), ledger.entries(kinds=FOLDED)) == before
        assert _redone(ledger).jsonable() == expected.jsonable()


def test_parts_are_never_changed_and_leave_with_their_entries(url: str) -> None:
    with Ledger.open(url) as ledger:
        ledger.append("state", {}, at_ms=0, parts={part_name(b"x"): b"x"})
        ledger.append("state", {}, at_ms=0, parts={part_name(b"x"): b"x", part_name(b"y"): b"y"})
        assert ledger.parts([part_name(b"x"), part_name(b"z")]) == {part_name(b"x"): b"x"}
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    statements = ["UPDATE trimtab_parts SET number = 2", "DELETE FROM trimtab_parts"]
    if url.startswith("postgresql"):
        statements.append("TRUNCATE trimtab_parts")
    for statement in statements:
        with (
            pytest.raises(sa.exc.DBAPIError, match=r"never changed|only parts of exported"),
            engine.begin() as connection,
        ):
            connection.exec_driver_sql(statement)
    engine.dispose()


# ---- restarts and stops -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "shadow"])
def test_a_restart_loses_no_score(mode: str, tmp_path: Path) -> None:
    """What a change was decided on is read from the journal by the program that comes next."""
    looped = Looped(settings(tmp_path, f"sqlite:///{tmp_path}/journal.db", mode=mode))
    looped.run(20 * HOUR_MS, lambda: looped.loop.standing.unscored and looped.start())
    trials = [entry.body for entry in looped.ledger.entries(kinds=("trial",))]
    assert looped.starts > 3
    assert len(trials) > 0
    assert [one.get("why") for one in trials if one["realised"] is None] == []
    assert any(one["made"] for one in trials) == (mode == "auto")
    assert {one.key for one in looped.loop.standing.unscored}.isdisjoint(one["of"] for one in trials)
    looped.ledger.close()


@pytest.mark.parametrize("calls", [0, 1])
def test_a_search_is_stopped_by_a_pause_and_made_up_for_after_it(calls: int, tmp_path: Path) -> None:
    """Stopped before it began, or between two of its trials: the replay stops it at the same place."""
    waiting: list[tuple[Future[Any], Any]] = []

    def submit(work: Any) -> Future[Any]:
        waiting.append((Future(), work))
        return waiting[-1][0]

    def search() -> None:
        for future, work in waiting:
            done = at_once(work)
            future.set_exception(done.exception()) if done.exception() else future.set_result(done.result())
        waiting.clear()

    looped = Looped(settings(tmp_path, f"sqlite:///{tmp_path}/journal.db"), submit=submit)
    looped.run(14 * HOUR_MS, search)
    looped.run(15 * HOUR_MS, lambda: None if _is_main(looped.loop) else search())
    assert _is_main(looped.loop)
    real, made = LocalTrials.measure, list[int]()

    def measure(self: LocalTrials, *args: Any) -> Any:
        made.append(1)
        if len(made) == calls:
            looped.loop.pause("ann")
        return real(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalTrials, "measure", measure)
        if not calls:
            looped.loop.pause("ann")
        search()
    assert len(made) == calls
    looped.run(looped.now_ms + 60_000, search)
    stopped = looped.ledger.entries(kinds=("verdict",))[-1].body
    assert stopped["reason"] == "the search was stopped: paused by ann"
    assert stopped["interrupted"] == calls
    looped.loop.resume("ann")
    looped.run(looped.now_ms + 120_000, search)
    assert looped.loop.last["search"] == "main"
    assert "interrupted" not in looped.loop.last
    looped.run(18 * HOUR_MS, search)
    assert _redone(looped.ledger).other is None
    looped.ledger.close()


def _is_main(loop: Loop) -> bool:
    return loop._searching is not None and loop._searching.question.kind == "main"
