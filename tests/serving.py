"""A `trimtab serve` as a process of its own, for tests that talk to it."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from trimtab.control.settings import read_settings
from trimtab.errors import ConfigError

READ, WRITE = "a-token-that-reads", "a-token-that-writes"

FILE = """
mode = "{mode}"
journal = "sqlite:///{folder}/journal.db"

[scheduler]
address = "simulated:synthetic:philly?days=2&seed=3&load=0.3"
policy = "fifo"
pace = 600
start = "30h"
nodes = 14

[server]
listen = "127.0.0.1:{port}"
read_token_file = "read.token"
write_token_file = "write.token"

[search]
line = "trimtab"
budget = 4
background = "off"
interval = "30m"

[guardrails]
gain_min = 1.0
belief_min = 0.0
dwell = "10m"
confirm = "5m"
return = "0s"
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def write_tokens(folder: Path) -> None:
    """Write the files of both tokens."""
    for name, token in (("read.token", READ), ("write.token", WRITE)):
        (folder / name).write_text(token)
        (folder / name).chmod(0o600)


def written(folder: Path, mode: str = "auto", port: int = 18765, text: str = FILE) -> Path:
    write_tokens(folder)
    path = folder / "trimtab.toml"
    path.write_text(text.format(mode=mode, folder=folder, port=port))
    return path


def refusal(path: Path) -> str:
    """Return the one line that a settings file is refused in."""
    with pytest.raises(ConfigError) as refused:
        read_settings(path)
    line = str(refused.value)
    assert line.startswith(f"{path}: ")
    assert line.endswith("; nothing was changed.")
    assert line.count("nothing was") == 1
    assert line.isprintable()
    return line


class Running:
    """A server, its settings file and its port."""

    def __init__(self, folder: Path, mode: str, text: str = FILE) -> None:
        self.port, self.text = free_port(), text
        self.path = written(folder, mode, self.port, text)
        self.log = folder / "log"
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "trimtab", "serve", "--config", str(self.path)]
            return subprocess.Popen(command, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def ask(self, method: str, path: str, token: str = "", body: bytes | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def status(self) -> dict[str, Any]:
        code, text = self.ask("GET", "/status", READ)
        assert code == 200, text
        found: dict[str, Any] = json.loads(text)
        return found

    def wait(self, what: Any, seconds: float = 60) -> dict[str, Any]:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            try:
                found = self.status()
            except OSError:
                time.sleep(0.2)
                continue
            if what(found):
                return found
            time.sleep(0.2)
        pytest.fail(f"{found}\n{self.log.read_text()[-3000:]}")

    def switch(self, mode: str) -> None:
        """Let it go by the same settings in another mode."""
        written(self.path.parent, mode, self.port, self.text)
        done = self.command("reload")
        assert done.returncode == 0, done.stderr

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "trimtab", *words, "--config", str(self.path)]
        return subprocess.run(line, capture_output=True, text=True, timeout=120)


@contextmanager
def running(folder: Path, mode: str, text: str = FILE) -> Iterator[Running]:
    found = Running(folder, mode, text)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.wait()
