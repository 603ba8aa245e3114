"""The loop under seeded faults and kills: short here, `benchmarks/faults.py` plays as many as you like."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostile import Memory, Theatre, drawn_faults, hostile_day, killed_often
from trimtab.control import safety
from trimtab.control.ledger import Ledger
from trimtab.control.standing import FOLDED, Standing, fold

KILL_SEEDS, DAYS = range(25), range(20)


@pytest.mark.parametrize("seed", KILL_SEEDS)
def test_killed_at_any_step_nothing_is_lost_or_made_twice(seed: int) -> None:
    result = killed_often(seed)
    assert result.broken == []
    assert result.kills > 20
    assert result.confirmed >= 3


@pytest.mark.parametrize("seed", DAYS)
def test_a_hostile_day_is_survived(seed: int) -> None:
    result = hostile_day(seed)
    assert result.broken == []
    assert sum(result.faults.values()) > 0


def test_killed_at_each_step_of_two_hours_in_turn() -> None:
    """Before and after each entry of the journal and each call that matters."""
    undisturbed = Theatre(3, hours=2).play()
    assert undisturbed.broken == []
    assert undisturbed.confirmed >= 3
    for step in range(1, undisturbed.steps, 5):
        result = Theatre(3, hours=2, kill_at=step).play()
        assert result.broken == [], f"killed at step {step}"
        assert result.kills == 1


def test_the_real_journal_is_killed_as_well(tmp_path: Path) -> None:
    with Ledger.open(f"sqlite:///{tmp_path}/journal.db") as ledger:
        result = killed_often(1, ledger)
        assert result.broken == []
        assert result.kills > 20
        standing = fold(Standing(), ledger.entries(0, FOLDED))
        assert standing.open is None
        assert standing.knobs is not None
        confirmed = [entry.body["knobs"] for entry in ledger.entries() if entry.outcome == "confirmed"]
        assert confirmed[-1] == standing.knobs.jsonable()


def test_a_day_is_the_same_again() -> None:
    first, again = (Theatre(4, faults=drawn_faults(4), kill_rate=0.002) for _ in range(2))
    assert first.play() == again.play()
    assert isinstance(first.journal, Memory)
    assert first.journal.lines == again.journal.lines


# ---- bugs that are planted must be found ------------------------------------------------------------


def _broken(seeds: range) -> str:
    return " | ".join(one for seed in seeds for one in Theatre(seed, hours=6).play().broken)


def test_a_dwell_that_is_not_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "dwells", lambda touched_for_ms, dwell_ms: None)
    assert "after the one before" in _broken(range(3))


def test_an_illegal_setting_that_is_let_through_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "illegal", lambda wanted, space: None)
    monkeypatch.setattr(safety, "within", lambda running, best, *limits: best)
    assert "illegal setting" in _broken(range(3))


def test_a_recovery_that_forgets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that starts from nothing instead of from its journal."""
    monkeypatch.setattr(Memory, "entries", lambda self, after=0, kinds=None: () if kinds else (*self.lines,))
    assert any(killed_often(seed).broken for seed in range(3))


def test_asking_under_a_new_key_each_time_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are what makes a change once: without the intent's own key, one is written without an intent."""
    from trimtab.control import changer

    real, asked = changer.Change, [0]

    def renamed(key, knobs, expected):  # type: ignore[no-untyped-def]
        asked[0] += 1
        return real(f"{key}#{asked[0]}", knobs, expected)

    monkeypatch.setattr(changer, "Change", renamed)
    assert any("without an intent" in one for seed in range(2) for one in killed_often(seed).broken)
