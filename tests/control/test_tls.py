"""The server's own address over TLS: what it proves itself with, what clients check, what is said."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from certificates import issued, write_certificate
from serving import FILE, Running, free_port, refusal, running, written
from trimtab.cli.serve import _asked
from trimtab.control.console import Console
from trimtab.control.service import Service
from trimtab.control.settings import read_settings
from trimtab.errors import ConfigError, InputError

TLS = 'certificate_file = "server.pem"\nkey_file = "server.key"\nca_file = "issuer.pem"\n'
FILE_TLS = FILE.replace("[server]\n", f"[server]\n{TLS}")


def _told(server: Running, *words: str) -> str:
    done = server.command(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_command_goes_over_tls(tmp_path: Path) -> None:
    write_certificate(tmp_path)
    with running(tmp_path, "approve", FILE_TLS) as server:
        while (done := server.command("status")).returncode:
            assert server.process.poll() is None, server.log.read_text()
            assert "no `trimtab serve` answers there" in done.stderr
            time.sleep(0.5)
        while json.loads(_told(server, "status", "--format", "json"))["proposal"] is None:
            time.sleep(0.5)
        assert "backfill=skip" in _told(server, "approve")
        assert _told(server, "pause").startswith("paused by ")
        assert "backfill=strict" in _told(server, "rollback")
        assert _told(server, "resume") == "changes may be made again"
        refused = server.command("approve", "--key", "no-such")
        assert refused.returncode == 1
        assert "no such proposal waits" in refused.stderr
        with socket.create_connection(("127.0.0.1", server.port)) as plain:  # nothing is told in the clear
            plain.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            plain.settimeout(10)
            assert b"trimtab" not in plain.recv(1000)


@contextmanager
def _answering(folder: Path, **more: Any) -> Iterator[Path]:
    """Answer with a certificate, and yield the settings file of those who ask."""
    write_certificate(folder, **more)
    path = written(folder, port=free_port(), text=FILE_TLS)
    service = cast(Service, SimpleNamespace(status={"mode": "observe"}))
    console = Console(service, read_settings(path).server, ("", ""))
    console.start()
    try:
        yield path
    finally:
        console.stop()


def test_the_certificate_of_the_issuer_named_is_believed(tmp_path: Path) -> None:
    with _answering(tmp_path) as path:
        assert _asked(path, "status") == {"mode": "observe"}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"days": (-10, -1)}, "certificate has expired"),
        ({"days": (1, 10)}, "certificate is not yet valid"),
        ({"host": "127.0.0.2"}, "IP address mismatch, certificate is not valid for '127.0.0.1'"),
    ],
    ids=["expired", "not yet valid", "of another host"],
)
def test_a_certificate_that_is_not_good_is_told_in_one_line(
    tmp_path: Path, more: dict[str, Any], why: str
) -> None:
    with _answering(tmp_path, **more) as path, pytest.raises(InputError) as told:
        _asked(path, "pause", {"by": "me"})
    address = read_settings(path).server.listen
    assert str(told.value) == f"{address}: its certificate is not good ({why}); nothing was asked."


def test_without_its_issuer_nobody_believes_it(tmp_path: Path) -> None:
    with _answering(tmp_path) as path:
        (tmp_path / "issuer.pem").write_bytes(issued()[1])
        with pytest.raises(InputError, match="its certificate is not good"):
            _asked(path, "status")
        path.write_text(path.read_text().replace('ca_file = "issuer.pem"\n', ""))
        with pytest.raises(
            InputError, match=r"\(.*unable to get local issuer certificate\); nothing was asked"
        ):
            _asked(path, "status")
        for text, why in (
            (None, "cannot be read (no such file or directory)"),
            ("none", "has no certificate"),
        ):
            path.write_text(path.read_text().replace("[server]\n", '[server]\nca_file = "ca.pem"\n'))
            if text is not None:
                (tmp_path / "ca.pem").write_text(text)
            with pytest.raises(ConfigError) as told:
                _asked(path, "status")
            assert str(told.value) == f"CA file {tmp_path / 'ca.pem'}: {why}; nothing was asked."
            path.write_text(path.read_text().replace('ca_file = "ca.pem"\n', ""))


def test_a_server_cannot_start_with_what_does_not_go_together(tmp_path: Path) -> None:
    chain, key = tmp_path / "server.pem", tmp_path / "server.key"
    path = written(tmp_path, text=FILE_TLS)

    def told() -> str:
        with pytest.raises(ConfigError) as refused:
            Service(path)
        assert not (tmp_path / "journal.db").exists()
        return str(refused.value)

    assert told() == f"{key}: cannot be read (no such file or directory); nothing was started."
    write_certificate(tmp_path)
    chain.unlink()
    assert told() == f"{chain}: cannot be read (no such file or directory); nothing was started."
    chain.write_bytes(issued()[0].chain)
    assert told() == f"key file {key}: is not the key of certificate file {chain}; nothing was started."
    key.write_text("no key")
    assert told() == f"key file {key}: cannot be used with certificate file {chain}; nothing was started."
    key.chmod(0o640)
    assert told() == f"key file {key}: others can read it; chmod 600 it; nothing was started."


def test_only_with_a_certificate_it_answers_beyond_this_machine(tmp_path: Path) -> None:
    path = written(tmp_path, port=free_port())
    good = path.read_text()
    path.write_text(good.replace("127.0.0.1", "0.0.0.0"))
    assert "name server.certificate_file and server.key_file, or use 127.0.0.1" in refusal(path)
    path.write_text(good.replace("127.0.0.1", "0.0.0.0").replace("[server]\n", f"[server]\n{TLS}"))
    assert read_settings(path).server.listen.startswith("0.0.0.0:")
    for one in ("certificate_file", "key_file"):
        other = {"certificate_file": "key_file", "key_file": "certificate_file"}[one]
        path.write_text(good.replace("[server]\n", f'[server]\n{one} = "x.pem"\n'))
        assert f"server.{other} is missing: a certificate and its key go together" in refusal(path)
