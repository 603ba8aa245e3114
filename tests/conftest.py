"""Fixtures that every kind of test may use."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

from postgres import Server, find_server
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
