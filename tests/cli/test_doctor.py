"""`trimtab doctor`: which engine runs and why, and what is installed."""

from __future__ import annotations

from importlib import metadata

import pytest

from commands import Trimtab
from trimtab.cli import inspect
from trimtab.simulate import fast


def test_it_says_that_the_core_runs_and_what_built_it(
    trimtab: Trimtab, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fast.compiled_available():
        pytest.skip("the compiled core is not built in this installation")
    found = trimtab("doctor --format json").json()
    assert (found["engine"], found["why"]) == ("compiled", "the compiled core is built")
    assert "-ffp-contract=off" in found["core"]


@pytest.mark.parametrize(
    ("built", "unwanted", "why"),
    [
        (True, "1", "TRIMTAB_NO_CORE is set"),
        (False, "1", "TRIMTAB_NO_CORE is set"),
        (False, "0", "this installation has no compiled core"),
    ],
)
def test_it_says_why_the_reference_engine_runs(
    built: bool, unwanted: str, why: str, trimtab: Trimtab, monkeypatch: pytest.MonkeyPatch
) -> None:
    if built and fast.core_built() is None:
        pytest.skip("the compiled core is not built in this installation")
    monkeypatch.setattr(fast, "_BUILT", built)
    monkeypatch.setenv("TRIMTAB_NO_CORE", unwanted)
    found = trimtab("doctor --format json").json()
    assert (found["engine"], found["why"]) == ("reference", why)
    assert (found["core"] is not None) == built


def test_it_lists_what_is_needed_and_what_extras_bring(
    trimtab: Trimtab, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = trimtab("doctor --format json").json()
    assert found["packages"]["polars"] == metadata.version("polars")
    assert found["threads"] >= 1
    assert "pytest" not in found["packages"]
    assert "pooch" in found["extras"]["traces"]
    lines = ["numpy>=1", 'dot-ted.name[x]<3,>=1 ; python_version > "3" and extra == "some-extra"', "absent"]
    monkeypatch.setattr(inspect.metadata, "requires", lambda name: lines)
    found = trimtab("doctor --format json").json()
    assert found["packages"] == {"numpy": metadata.version("numpy"), "absent": None}
    assert found["extras"] == {"some-extra": {"dot-ted.name": None}}
    assert "absent: not there" in " ".join(trimtab("doctor").out.split())
