"""Fixtures that every kind of test may use."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

import slurm_lab
from commands import Ran, Trimtab
from postgres import Server, find_server
from trimtab.cli import main, show
from trimtab.simulate.fast import compiled_available

_ROOT = Path(__file__).resolve().parents[1]

# Wall time says more about the machine than about the code.
settings.register_profile("trimtab", deadline=None)
settings.load_profile("trimtab")

# Without a core, the tests run on the reference engine on purpose, which need not be said on every stderr.
if not compiled_available():
    os.environ["TRIMTAB_NO_CORE"] = "1"


def _missing(reason: str) -> NoReturn:
    """Skip for want of something outside the project, or fail where nothing may be missing."""
    if os.environ.get("TRIMTAB_NO_SKIP"):
        pytest.fail(f"{reason}; TRIMTAB_NO_SKIP allows no skip")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real traces: TRIMTAB_SHARED, or `../shared` beside the repository."""
    folder = Path(os.environ.get("TRIMTAB_SHARED") or _ROOT.parent / "shared")
    if not (folder / "data").is_dir():
        _missing(f"real traces are not here: {folder} has no data/ (set TRIMTAB_SHARED)")
    return folder


@pytest.fixture
def trimtab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Trimtab:
    """The command line: takes one line as a shell would."""
    monkeypatch.setattr(show.out, "_width", 80)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)

    def run(line: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["trimtab", *shlex.split(line)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ending:
            main()
        said = capsys.readouterr()
        code = ending.value.code
        return Ran(0 if code is None else int(code), said.out, said.err)

    return run


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium: TRIMTAB_CHROMIUM, or the one on the path."""
    found = os.environ.get("TRIMTAB_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if not found:
        _missing("no Chromium on the path (set TRIMTAB_CHROMIUM)")
    return found


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL of its own, on a socket in a folder of its own."""
    programs = find_server()
    if programs is None:
        _missing("no PostgreSQL server is installed (Debian: postgresql; or set TRIMTAB_POSTGRES to its bin)")
    server = Server(programs)
    try:
        server.start()
        yield server
    finally:
        server.remove()


def _lab(accounting: bool) -> Iterator[slurm_lab.Lab]:
    why = slurm_lab.missing_accounting() if accounting else slurm_lab.missing()
    if why:
        _missing(why)
    with slurm_lab.opened(accounting=accounting) as lab:
        yield lab


@pytest.fixture(scope="session")
def lab() -> Iterator[slurm_lab.Lab]:
    """A real Slurm of 4 nodes with 8 GPUs each, without accounting."""
    yield from _lab(False)


@pytest.fixture(scope="session")
def _accounted_lab() -> Iterator[slurm_lab.Lab]:
    yield from _lab(True)


@pytest.fixture
def accounted_lab(_accounted_lab: slurm_lab.Lab) -> Iterator[slurm_lab.Lab]:
    """A real Slurm with slurmdbd and MariaDB: sacct, ages and fair shares work; set alike each time."""
    with _accounted_lab.as_set():
        yield _accounted_lab


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a journal may be, on each of the databases."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/journal.db"
    return str(request.getfixturevalue("postgres").database())
