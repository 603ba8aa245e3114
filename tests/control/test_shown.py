"""What cannot be shown of the loop is said in one line; the loop, and the scheduler beside it, go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from serving import written
from trimtab.control import service as served
from trimtab.control.ledger import Ledger
from trimtab.control.service import Service
from trimtab.control.settings import read_settings
from trimtab.errors import ConfigError


def test_a_journal_that_cannot_be_shown_is_refused_in_one_line(tmp_path: Path) -> None:
    path = written(tmp_path)
    url = read_settings(path).journal
    with Ledger.open(url) as ledger:
        ledger.append("verdict", {"search": "main", "own_ms": 5}, at_ms=5)  # it does not say what was decided
    with pytest.raises(ConfigError) as refused:
        Service(path)
    assert str(refused.value) == (
        f"{url}: what it holds cannot be shown (KeyError: 'decision'); nothing was started."
    )
    Ledger.open(url).close()  # nobody holds it any more


def test_what_cannot_be_shown_later_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    service = Service(written(tmp_path, "observe"))
    status = served.status_of

    def fails(*args: object) -> None:
        raise ArithmeticError("a number\nthat is none")

    monkeypatch.setattr(served, "status_of", fails)
    shown = service.told
    service.ask("look", "")
    assert service._obey(1.0)
    assert service.told == shown
    last = json.loads(capsys.readouterr().err.splitlines()[-1])
    sentence = "cannot be brought up to date (ArithmeticError: a number that is none)"
    assert (last["event"], last["about"], last["sentence"]) == ("trouble", "page", sentence)
    monkeypatch.setattr(served, "status_of", status)
    service.ask("look", "")
    assert service._obey(1.0)
    assert service.told == shown + 1
    assert service.status["trouble"] == {}
    service.ask("stop", "")
    service.run()
