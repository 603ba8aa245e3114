"""The settings of `serve`, wrong in every key: refused in one line, at its start and while it runs.

A loop that runs goes on with the settings it has, and says why it did not take the others.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from itertools import groupby, product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from certificates import write_certificate
from serving import READ, refusal, write_tokens
from trimtab import world
from trimtab.control import service as module
from trimtab.control.service import Service
from trimtab.control.settings import _Table, read_settings
from trimtab.errors import ConfigError

DAY_MS = 86_400_000
TRACE = "simulated:synthetic:philly?days=2&seed=3&load=0.3"

# Every key -> what it holds, and a value that goes with the others.
KEYS: Mapping[str, tuple[str, str]] = {
    "mode": ("text", '"observe"'),
    "journal": ("text", '"sqlite:///{folder}/journal.db"'),
    "seed": ("whole", "3"),
    "retention.after": ("text", '"30d"'),
    "retention.folder": ("text", '"old"'),
    "scheduler.address": ("text", f'"{TRACE}"'),
    "scheduler.policy": ("text", '"tiresias"'),
    "scheduler.pace": ("number", "600"),
    "scheduler.start": ("text", '"30h"'),
    "scheduler.placement": ("text", '"consolidated"'),
    "scheduler.restart_cost_s": ("number", "62.0"),
    "scheduler.estimates": ("text", '"predicted"'),
    "scheduler.nodes": ("whole", "14"),
    "scheduler.gpus_per_node": ("whole", "8"),
    "scheduler.token_file": ("text", '"scheduler.token"'),
    "scheduler.ca_file": ("text", '"scheduler.pem"'),
    "scheduler.file": ("text", '"tunable.conf"'),
    "scheduler.past": ("text", '"14d"'),
    "scheduler.site": ("text", '"site.toml"'),
    "server.listen": ("text", '"127.0.0.1:18765"'),
    "server.read_token_file": ("text", '"read.token"'),
    "server.write_token_file": ("text", '"write.token"'),
    "server.certificate_file": ("text", '"server.pem"'),
    "server.key_file": ("text", '"server.key"'),
    "server.ca_file": ("text", '"issuer.pem"'),
    "search.line": ("text", '"trimtab"'),
    "search.futures": ("whole", "4"),
    "search.arrivals": ("text", '"last-hour"'),
    "search.arrivals_horizon": ("text", '"6h"'),
    "search.run_on": ("text", '"6h"'),
    "search.objective": ("text", '"wait"'),
    "search.sampler": ("text", '"bluefin"'),
    "search.budget": ("whole", "4"),
    "search.background": ("text", '"off"'),
    "search.interval": ("text", '"30m"'),
    "search.poll": ("text", '"60s"'),
    "guardrails.read_only": ("list", '["regrade"]'),
    "guardrails.canary": ("text", '"num_queues"'),
    "guardrails.steps": ("table", "{{ num_queues = 1 }}"),
    "guardrails.confirm": ("text", '"5m"'),
    "guardrails.state_age": ("text", '"5m"'),
    "guardrails.history": ("text", '"0s"'),
    "guardrails.score_after": ("text", '"1h"'),
    "guardrails.losses": ("whole", "3"),
    "guardrails.loss_below": ("number", "0.98"),
    "guardrails.failures": ("whole", "3"),
    "guardrails.proposal": ("text", '"1h"'),
    "guardrails.gain_min": ("number", "1.0"),
    "guardrails.dwell": ("text", '"10m"'),
    "guardrails.return": ("text", '"0s"'),
    "guardrails.belief_min": ("number", "0.0"),
}

TABLES = {"retention", "scheduler", "server", "search", "guardrails", "guardrails.steps.num_queues"}

# What TOML can say -> the kind it is of; a whole number is a number as well.
VALUES: Mapping[str, str] = {
    '"nonsense/of\\u0000no:kind"': "none",
    '"two\\nlines"': "none",
    '""': "none",
    '" "': "none",
    "true": "none",
    "nan": "none",
    "-inf": "none",
    "-9223372036854775808": "none",
    "2026-12-01": "none",
    "07:32:00": "none",
    "[]": "list",
    '["trimtab"]': "none",
    "[1, [2]]": "none",
    "{{}}": "table",
    "{{ trimtab = 1 }}": "none",
    "[{{}}]": "none",
    "7": "whole",
    "0.5": "number",
}
WRONG = [
    (key, value)
    for (key, (kind, _)), (value, given) in product(KEYS.items(), VALUES.items())
    if given == "none" or (given != kind and (given, kind) != ("whole", "number"))
]
# All that is said of these is that they are too long or too large.
BEYOND = ("9" * 5000, "0x" + "f" * 5000, "1" + "0" * 19, "[" * 5000 + "]" * 5000)


def text_of(folder: Path, **told: str) -> str:
    """Return a file of all keys, some of them told otherwise."""
    tables: dict[str, list[str]] = {"": []}
    for name, (_, usual) in KEYS.items():
        table, _, key = name.rpartition(".")
        tables.setdefault(table, []).append(f"{key} = {told.get(name, usual)}")
    text = "\n".join("\n".join([f"[{name}]" if name else "", *lines]) for name, lines in tables.items())
    return text.format(folder=folder)


def put(folder: Path, **told: str) -> Path:
    path = folder / "trimtab.toml"
    path.write_text(text_of(folder, **told))
    (folder / "site.toml").write_text('[[partition]]\nname = "all"\n')
    return path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Path, threading.Thread]]:
    """A loop that runs, in this process."""
    folder = tmp_path_factory.mktemp("served")
    write_tokens(folder)
    write_certificate(folder)
    path = put(folder)
    service = Service(path)
    thread = threading.Thread(target=service.run)
    thread.start()
    yield service, path, thread
    service.ask("stop", "test").result(30)
    thread.join(30)


def test_every_key_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = set()
    take = _Table.take

    def noted(table: _Table, key: str, *more: object) -> object:
        taken.add(f"{table._name}{key}")
        return take(table, key, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(_Table, "take", noted)
    read_settings(put(tmp_path))
    assert taken - TABLES == set(KEYS)


@pytest.mark.parametrize("key", KEYS)
def test_a_value_of_the_wrong_kind_is_refused_by_its_key(tmp_path: Path, key: str) -> None:
    for name, value in WRONG:
        if name == key:
            line = refusal(put(tmp_path, **{key: value}))
            assert key in line or "unknown knob 'trimtab'" in line, value


@pytest.mark.parametrize("value", BEYOND, ids=["decimal", "hexadecimal", "64 bits", "deep"])
def test_what_no_settings_file_holds_is_refused(tmp_path: Path, value: str) -> None:
    for key in KEYS:
        assert "is no TOML" in refusal(put(tmp_path, **{key: value}))


def test_a_reload_of_any_of_it_leaves_a_running_loop_as_it_is(
    served: tuple[Service, Path, threading.Thread],
) -> None:
    service, path, thread = served
    before, told = service.settings, service.told
    for key, wrong in groupby([*WRONG, *product(["seed"], BEYOND)], lambda one: one[0]):
        for _, value in wrong:
            put(path.parent, **{key: value})
            with pytest.raises(ConfigError) as refused:
                service.ask("reload", "test").result(30)
            assert service.settings is before
        service.ask("look", "test").result(30)  # it still obeys, and has told how things stand
        assert service.status["settings"]["refused"] == str(refused.value), (key, value)
    assert thread.is_alive()
    assert service.told > told
    put(path.parent, **{"search.budget": "5"})
    assert "are in use" in service.ask("reload", "test").result(30)
    service.ask("look", "test").result(30)
    assert service.settings.searching.tuning.budget == 5
    assert service.status["settings"]["refused"] is None


@pytest.mark.parametrize("failure", [TypeError("unhashable"), ValueError("two\nlines"), RecursionError()])
def test_a_reload_that_fails_in_another_way_does_too(
    served: tuple[Service, Path, threading.Thread], monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    service, _, thread = served

    def fails(path: Path) -> None:
        raise failure

    monkeypatch.setattr(module, "read_settings", fails)
    with pytest.raises(ConfigError, match=f"{type(failure).__name__}.*; nothing was changed"):
        service.ask("reload", "test").result(30)
    service.ask("look", "test").result(30)
    assert thread.is_alive()
    assert type(failure).__name__ in service.status["settings"]["refused"]


def test_old_days_leave_the_journal_one_at_a_time_or_it_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tokens(tmp_path)
    write_certificate(tmp_path)
    service = Service(put(tmp_path))
    for day in (10, 11):
        monkeypatch.setattr(world, "epoch_ms", lambda day=day: day * DAY_MS)
        service.journal.append("verdict", {"day": day}, at_ms=0)
    monkeypatch.undo()
    service.journal.append("verdict", {}, at_ms=0)
    folder, held = tmp_path / "old", len(service.journal.entries())
    folder.write_text("no folder")
    service._retain()
    assert "no entry left the journal" in service.loop.trouble["old days"]
    folder.unlink()
    service._retain()  # an hour has to go by
    assert not folder.exists()
    service._retain_s = 0.0
    for files in (1, 2, 2):
        service._retain()
        assert len([*folder.glob("*.jsonl")]) == files
        assert len(service.journal.entries()) == held - files
        assert "old days" not in service.loop.trouble
    service.journal.close()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.sampled_from([*KEYS]), text=st.text(max_size=12) | st.sampled_from(["0x1", "1e400", "a.b=1"]))
def test_any_text_is_a_setting_or_one_line(tmp_path: Path, key: str, text: str) -> None:
    path = tmp_path / "trimtab.toml"
    path.write_bytes(text_of(tmp_path).replace(KEYS[key][1], text, 1).encode("utf-8", "surrogatepass"))
    with contextlib.suppress(ConfigError):
        read_settings(path)
        return
    refusal(path)


# ---- what each word means, where it is used ------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("retention.after", '"0s"', "retention.after = '0s': it must be longer than nothing"),
        ("search.interval", "30", 'search.interval = 30: it must be a text that tells a time, such as "90s"'),
        ("server.listen", '"localhost"', "server.listen = 'localhost': it must be HOST:PORT"),
        ("server.listen", '"127.0.0.1:99999"', "ports up to 65535"),
        ("scheduler.address", '"grpc://h"', "scheduler.address = 'grpc://h': it must be HOST:PORT"),
        ("guardrails.steps", "{{ num_queues = 0 }}", "guardrails.steps.num_queues = 0: a step is a number"),
        (
            "guardrails.steps",
            "{{ regrade = 2 }}",
            "step 2 of knob regrade: it is a choice, which has no steps",
        ),
        ("scheduler.policy", '"nowhere.py::Any"', "there is no such file"),
    ],
)
def test_a_refusal_names_what_was_written(tmp_path: Path, key: str, value: str, says: str) -> None:
    assert says in refusal(put(tmp_path, **{key: value}))


@pytest.mark.parametrize(
    ("name", "token", "says"),
    [
        ("read.token", "short", "needs at least 16 characters"),
        ("write.token", "", "needs at least 16 characters"),
        ("read.token", "with blanks between them", "none of them blank"),
        ("write.token", READ, "are the same"),
        ("read.token", None, "cannot be read (No such file"),
    ],
)
def test_a_bad_token_is_refused_before_the_journal_has_an_entry(
    tmp_path: Path, name: str, token: str | None, says: str
) -> None:
    write_tokens(tmp_path)
    write_certificate(tmp_path)
    (tmp_path / name).unlink() if token is None else (tmp_path / name).write_text(token)
    with pytest.raises(ConfigError) as refused:
        Service(put(tmp_path))
    assert says in str(refused.value)
    assert str(tmp_path / name) in str(refused.value) or says == "are the same"
    assert not (tmp_path / "journal.db").exists()


@pytest.mark.parametrize(
    "body",
    [
        "raise ValueError('two\\nlines')",
        "raise SystemExit(3)",
        "class P:\n    def __init__(self):\n        raise SystemExit(3)",
        "from trimtab.policies import policy as p\nclass P(p.QueuePolicy):\n    name = 'p'\n    space = 7",
    ],
)
def test_a_policy_of_ones_own_that_is_none_is_refused(tmp_path: Path, body: str) -> None:
    (tmp_path / "own.py").write_text(body)
    assert "own.py" in refusal(put(tmp_path, **{"scheduler.policy": f'"{tmp_path}/own.py::P"'}))


def test_a_start_after_the_last_job_is_refused(tmp_path: Path) -> None:
    write_tokens(tmp_path)
    write_certificate(tmp_path)
    with pytest.raises(ConfigError, match=r"scheduler\.start = 259,200 s: the last job of .* comes at 17\d,"):
        Service(put(tmp_path, **{"scheduler.start": '"3d"'}))


def test_violations_are_tuned_for_where_jobs_have_deadlines(
    tmp_path: Path, served: tuple[Service, Path, threading.Thread]
) -> None:
    write_tokens(tmp_path)
    write_certificate(tmp_path)
    wanted = {"search.objective": '"violations"'}
    with pytest.raises(ConfigError, match=r"no job of simulated:.* has a deadline; nothing was changed"):
        Service(put(tmp_path, **wanted))
    service, path, _ = served
    put(path.parent, **wanted)
    with pytest.raises(ConfigError, match=r"no job of simulated:.* has a deadline; nothing was changed"):
        service.ask("reload", "test").result(30)
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("job_id,submit_s,duration_s,gpus,deadline_s\na,0,10,1,20\nb,200000,10,1,20\n")
    Service(put(tmp_path, **wanted, **{"scheduler.address": f'"simulated:table:{jobs}"'})).journal.close()
