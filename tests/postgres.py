"""A real PostgreSQL server for tests: unprivileged, one socket, no network, gone afterwards."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path


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
        self._data = self._folder / "data"
        self._run("initdb", "-D", self._data, "-U", "trimtab", "-A", "trust", "-E", "UTF8", "--no-sync")

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = f"-c listen_addresses='' -c unix_socket_directories='{self._folder}' -c max_connections=40"
        self._run("pg_ctl", "start", "-D", self._data, "-w", "-l", self._folder / "log", "-o", options)

    def stop(self) -> None:
        """End all sessions and stop it."""
        self._run("pg_ctl", "stop", "-D", self._data, "-m", "fast", "-w")

    def kill(self) -> None:
        """Kill the server as a power cut would: nothing is told, nothing is flushed."""
        main = int((self._data / "postmaster.pid").read_text().split()[0])
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(main)], capture_output=True, text=True)
        for pid in [main, *map(int, listed.stdout.split())]:
            os.kill(pid, signal.SIGKILL)
        while Path(f"/proc/{main}").exists() and "Z" not in Path(f"/proc/{main}/stat").read_text().split()[2]:
            os.sched_yield()
        (self._data / "postmaster.pid").unlink(missing_ok=True)

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
        if (self._data / "postmaster.pid").exists():
            self._run("pg_ctl", "stop", "-D", self._data, "-m", "immediate", "-w")
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, program: str, *arguments: object) -> None:
        done = subprocess.run(
            [self._programs / program, *map(str, arguments)],
            user=self._user,
            cwd=self._folder,
            stdout=subprocess.PIPE if program != "pg_ctl" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT if program != "pg_ctl" else subprocess.DEVNULL,
            text=True,
        )
        if done.returncode:
            log = self._folder / "log"
            said = done.stdout or (log.read_text() if log.exists() else "")
            raise RuntimeError(f"{program}: {said}")
