"""A real PostgreSQL server for tests: unprivileged, one socket, no network, gone afterwards."""

from __future__ import annotations

import itertools
import os
import pwd
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

# No file of the server may grow beyond that. A segment of its write-ahead log (16 MiB) stays below.
FILE_MAX = 17 << 20


def find_server() -> Path | None:
    """Return the folder of the server's programs: TRIMTAB_POSTGRES, or Debian's newest."""
    named = os.environ.get("TRIMTAB_POSTGRES")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    if named:
        return Path(named)
    return found[-1].parent if found else None


class Server:
    """One cluster of databases; `start` may be called again after `kill`."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="trimtab-pg-"))  # a socket's path must be short
        self._user = "postgres" if os.geteuid() == 0 else None  # the server refuses to be root
        if self._user:
            account = pwd.getpwnam(self._user)
            os.chown(self._folder, account.pw_uid, account.pw_gid)
        self._numbers = itertools.count()
        self._main: subprocess.Popen[bytes] | None = None
        self._data = self._folder / "data"
        self._run("initdb", "-D", self._data, "-U", "trimtab", "-A", "trust", "-E", "UTF8", "--no-sync")

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = {
            "listen_addresses": "",
            "unix_socket_directories": self._folder,
            "max_connections": 40,
            "fsync": "off",  # processes are killed here, machines are not
        }
        with (self._folder / "log").open("ab") as log:
            self._main = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, *(f"--{k}={v}" for k, v in options.items())],
                user=self._user,
                cwd=self._folder,
                stdout=log,
                stderr=log,
                preexec_fn=_limit_files,
            )
        while not self._answers():
            if self._main.poll() is not None:
                raise RuntimeError((self._folder / "log").read_text())
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End all sessions and stop it."""
        if self._main is not None:
            self._main.send_signal(how)
            self._main.wait()

    def kill(self) -> None:
        """Kill all its processes: nothing is told, nothing is flushed."""
        assert self._main is not None
        main = self._main.pid
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(main)], capture_output=True, text=True)
        for pid in [main, *map(int, listed.stdout.split())]:
            os.kill(pid, signal.SIGKILL)
        self._main.wait()

    def database(self) -> str:
        """Make an empty database and return its URL."""
        name = f"journal_{next(self._numbers)}"
        self._run("createdb", "-h", self._folder, "-U", "trimtab", name)
        return self.url(name)

    def url(self, name: str) -> str:
        """Return the URL of a database."""
        return f"postgresql://trimtab@/{name}?host={self._folder}"

    def remove(self) -> None:
        """Stop it if it runs, and leave nothing behind."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        asked = [self._programs / "pg_isready", "-q", "-h", self._folder]
        return subprocess.run(asked).returncode == 0

    def _run(self, program: str, *arguments: object) -> None:
        done = subprocess.run(
            [self._programs / program, *map(str, arguments)],
            user=self._user,
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stdout}")


def _limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_MAX, resource.RLIM_INFINITY))
