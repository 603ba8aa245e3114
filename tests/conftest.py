"""Fixtures that every kind of test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real traces: TRIMTAB_SHARED, or `../shared` beside the repository."""
    folder = Path(os.environ.get("TRIMTAB_SHARED") or _ROOT.parent / "shared")
    if not (folder / "data").is_dir():
        pytest.skip(f"real traces are not here: {folder} has no data/ (set TRIMTAB_SHARED)")
    return folder
