"""`trimtab serve` as a process, and all that talks to it over its address."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving import FILE, READ, WRITE, Running, refusal, running, written
from trimtab.control.service import serve
from trimtab.control.settings import read_settings
from trimtab.errors import ConfigError


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("served"), "approve") as found:
        found.wait(lambda status: status["proposal"])
        yield found


def test_status_tells_three_settings(server: Running) -> None:
    status = server.wait(lambda status: status["proposal"])
    assert status["mode"] == "approve"
    assert status["in_force"] == status["written"] == status["desired"] == {"backfill": "strict"}
    assert status["proposal"]["knobs"] == {"backfill": "skip"}
    shown = server.command("status")
    assert shown.returncode == 0, shown.stderr
    assert "backfill=strict" in shown.stdout
    assert json.loads(server.command("status", "--format", "json").stdout)["mode"] == "approve"


def test_metrics_and_health_need_no_token(server: Running) -> None:
    code, text = server.ask("GET", "/metrics")
    assert code == 200
    assert 'trimtab_mode_info{mode="approve"} 1' in text
    assert "trimtab_up 1" in text
    assert server.ask("GET", "/healthz") == (200, "ok\n")


@pytest.mark.parametrize(
    ("method", "path", "token", "body", "code", "says"),
    [
        ("GET", "/status", "", None, 401, "no token"),
        ("GET", "/status", "another-token-of-the-right-length", None, 401, "not one of ours"),
        ("GET", "/status", READ + "x", None, 401, "not one of ours"),
        ("POST", "/rollback", "", b"{}", 401, "no token"),
        ("POST", "/rollback", READ, b"{}", 403, "may only read"),
        ("POST", "/pause", READ, b"{}", 403, "may only read"),
        ("POST", "/pause", WRITE, b"{", 400, "no JSON"),
        ("POST", "/pause", WRITE, b"[]", 400, "no JSON object"),
        ("POST", "/pause", WRITE, b"[" * 60_000, 400, "no JSON"),
        ("POST", "/pause", WRITE, b'{"by": "<script>"}', 400, "`by` must be a name"),
        ("POST", "/pause", WRITE, b'{"by": 7}', 400, "`by` must be a name"),
        ("POST", "/pause", WRITE, b'{"file": "../../etc"}', 400, "the only other thing"),
        ("POST", "/pause", WRITE, b"x" * 70_000, 413, "more than 65536 bytes"),
        ("POST", "/approve", WRITE, b'{"key": "no-such"}', 409, "no such proposal waits"),
        ("GET", "/pause", WRITE, None, 405, ""),
        ("POST", "/shell", WRITE, b"{}", 404, ""),
    ],
)
def test_what_may_not_be_asked_is_refused(
    server: Running, method: str, path: str, token: str, body: bytes | None, code: int, says: str
) -> None:
    found, text = server.ask(method, path, token, body)
    assert found == code
    assert says in text
    status = server.status()
    assert status["paused"] is None
    assert status["change"] is None
    assert status["in_force"] == {"backfill": "strict"}


def test_a_second_server_on_the_same_journal_is_refused(server: Running) -> None:
    second = server.command("serve")
    assert second.returncode == 1
    assert "another trimtab writes this journal" in second.stderr.splitlines()[-1]


def test_settings_are_reloaded_or_refused_whole(server: Running) -> None:
    good = server.path.read_text()
    server.path.write_text(good.replace('mode = "approve"', 'mode = "bold"'))
    refused = server.command("reload")
    assert refused.returncode == 1
    assert "mode" in refused.stderr
    server.process.send_signal(signal.SIGHUP)
    status = server.wait(lambda status: status["settings"]["refused"])
    assert "unknown mode 'bold'" in status["settings"]["refused"]
    assert status["mode"] == "approve"
    server.path.write_text(good.replace("nodes = 14", "nodes = 15"))
    server.process.send_signal(signal.SIGHUP)
    server.wait(lambda status: "without a restart" in (status["settings"]["refused"] or ""))
    server.path.write_text(good.replace("budget = 4", "budget = 5"))
    done = server.command("reload")
    assert done.returncode == 0, done.stderr
    digest = read_settings(server.path).digest
    assert done.stdout.split() == ["settings", digest, "are", "in", "use"]
    assert server.status()["settings"] == {"settings": str(server.path), "digest": digest, "refused": None}


def test_proposed_approved_rolled_back_paused_killed_and_started_again(tmp_path: Path) -> None:
    with running(tmp_path, "approve") as server:
        server.wait(lambda status: status["proposal"])
        done = server.command("approve")
        assert done.returncode == 0, done.stderr
        server.wait(lambda status: status["in_force"] == {"backfill": "skip"} and not status["change"])
        assert server.command("pause").stdout.startswith("paused by ")
        assert "nothing is changed until resume" in server.status()["paused"]
        back = server.command("rollback")  # a person's word counts although changes are paused
        assert back.returncode == 0, back.stderr
        server.wait(lambda status: status["in_force"] == {"backfill": "strict"})
        server.process.kill()
        server.process.wait()
        gone = server.command("status")
        assert gone.returncode == 1
        assert "no `trimtab serve` answers there" in gone.stderr
        server.process = server.start()
        status = server.wait(lambda status: status["in_force"])
        assert status["paused"]  # the journal remembers
        assert status["in_force"] == {"backfill": "strict"}
        assert server.command("resume").stdout.strip() == "changes may be made again"
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        events = [json.loads(line)["event"] for line in server.log.read_text().splitlines()]
        assert events[-1] == "stopped"
        assert {
            "start",
            "verdict",
            "intent",
            "receipt",
            "read_back",
            "rollback",
            "pause",
            "resume",
            "stop",
        } <= set(events)


# ---- the settings file ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('mode = "auto"', "", "mode is missing"),
        ('mode = "auto"', 'mode = "canary"', "must name the one knob that may change"),
        ('mode = "auto"', 'mode = "auto', "is no TOML"),
        ('mode = "auto"', 'mode = "auto"\nmod = 1', "unknown setting 'mod'; did you mean 'mode'?"),
        ("[search]", "[serach]", "unknown setting 'serach'; did you mean 'search'?"),
        ("budget = 4", "budget = 0", "search.budget = 0: it must be a whole number, 1 .. 10000"),
        ("budget = 4", "budget = true", "search.budget = True"),
        ("budget = 4", 'objective = "speed"', "unknown objective 'speed'"),
        ('interval = "30m"', 'interval = "soon"', "search.interval = 'soon': it must be a time such as 90s"),
        ('interval = "30m"', "interval = 30", "search.interval"),
        ("gain_min = 1.0", "gain_min = 0.9", "guardrails.gain_min = 0.9: it must be a number, 1 .. 100"),
        ("gain_min = 1.0", "gain_min = nan", "guardrails.gain_min = nan"),
        ("gain_min = 1.0", 'read_only = ["nothing"]', "unknown knob 'nothing'"),
        ("gain_min = 1.0", "[guardrails.steps]\nbackfill = 0", "guardrails.steps.backfill = 0: a step is"),
        ('dwell = "10m"', 'dwell = "2m"', "guardrails.dwell must be longer than guardrails.confirm"),
        ('policy = "fifo"', 'policy = "fifa"', "unknown policy 'fifa'; did you mean 'fifo'?"),
        ("simulated:", "pbs:", "grpc://HOST:PORT, slurm:CONF, dispatch:FILE or simulated:SOURCE"),
        (
            "simulated:synthetic:philly?days=2&seed=3&load=0.3",
            "grpc://127.0.0.1:1",
            "scheduler.token_file is missing",
        ),
        ("127.0.0.1", "0.0.0.0", "beyond this machine a token goes over TLS only"),
        ("nodes = 14", 'nodes = "many"', "nodes = 'many'"),
    ],
)
def test_a_bad_settings_file_is_refused_in_one_line(tmp_path: Path, old: str, new: str, says: str) -> None:
    path = written(tmp_path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    assert says in refusal(path)


def test_a_good_settings_file(tmp_path: Path) -> None:
    found = read_settings(written(tmp_path, "canary", text=FILE + 'canary = "backfill"\n'))
    assert found.orders.mode == "canary"
    assert found.orders.safety.canary == "backfill"
    assert found.orders.background_ms is None
    assert found.orders.interval_ms == 1_800_000
    assert found.scheduler.cluster.gpus == 14 * 8
    assert found.server.tokens().scope(READ) == "read"
    assert found.server.tokens().scope(WRITE) == "write"


def test_tokens_that_others_can_read_are_refused(tmp_path: Path) -> None:
    found = read_settings(written(tmp_path))
    (tmp_path / "read.token").chmod(0o644)
    with pytest.raises(ConfigError, match="others can read it; chmod 600 it"):
        found.server.tokens()


def test_there_is_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_settings(tmp_path / "none.toml")


def test_a_missing_web_server_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "trimtab.control.console", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ConfigError, match=r"^serve needs uvicorn; pip install 'trimtab\[serve\]'; nothing"):
        serve(tmp_path / "trimtab.toml", ("", ""))
