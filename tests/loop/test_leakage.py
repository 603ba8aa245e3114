"""No line but the oracle may know the future: all after an instant changes, nothing before it does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from histories import END_MS, HOUR_MS, START_MS, another_future, days, decisions, history, plan, walk
from trimtab.cluster import Cluster
from trimtab.control.advisor import BACKGROUND
from trimtab.report.lines import Line
from trimtab.simulate.run import World
from trimtab.studies import lines as module
from trimtab.studies.futures import oracle_future
from trimtab.traces.trace import Trace

TRACES = (1, 2, 3)
INSTANTS = 20  # of each trace, so 60 in all, for every line


@lru_cache
def _history(seed: int) -> Trace:
    return history(seed)


def _instants(seed: int, count: int) -> list[int]:
    """Return random instants of the window, some of them those of rounds."""
    dice = np.random.default_rng([seed, 99])
    found = dice.integers(START_MS, END_MS, count)
    return [int(at) // 3_600_000 * 3_600_000 if place % 4 == 0 else int(at) for place, at in enumerate(found)]


def _changed(seed: int, line: str, count: int, **how: Any) -> Iterator[tuple[int, Line, Line]]:
    """Yield instant, the line as it was and the line in a world with another future."""
    trace = _history(seed)
    before = walk(trace, line, **how).lines[0]
    for place, at_ms in enumerate(_instants(seed, count)):
        other = another_future(trace, before, at_ms, np.random.default_rng([seed, place]))
        yield at_ms, before, walk(other, line, **how).lines[0]


@pytest.mark.parametrize("seed", TRACES)
@pytest.mark.parametrize("line", ["fixed", "fixed-week", "selftune", "trimtab", "trimtab-plus"])
def test_the_future_does_not_reach_back(line: str, seed: int) -> None:
    for at_ms, before, after in _changed(seed, line, INSTANTS):
        assert decisions(after, at_ms) == decisions(before, at_ms), f"{line} at {at_ms} ms of history {seed}"


@pytest.mark.parametrize("line", ["fixed", "fixed-week", "selftune"])
def test_nor_does_it_where_the_policy_learns_run_times(line: str) -> None:
    """Estimates come from completions alone, in the run and in every trial."""
    learnt = World(restart_cost_s=30.0, estimates="predicted")
    for at_ms, before, after in _changed(2, line, 6, policy="qssf", world=learnt):
        assert decisions(after, at_ms) == decisions(before, at_ms), f"{line} at {at_ms} ms"


# ---- lines that have learned -----------------------------------------------------------------------

LEARNED_START_MS, LEARNED_END_MS = 102 * HOUR_MS, 108 * HOUR_MS
_LOOKING_AGAIN_MS = 20 * 60_000


def _learned(trace: Trace, line: str) -> Line:
    """Walk six hours after four days, with light rounds: trees, past days, graph and model are there."""
    how = replace(
        plan(45 if line == "trimtab" else 12),
        paper_background_ms=_LOOKING_AGAIN_MS,
        plus_background_ms=_LOOKING_AGAIN_MS,
    )
    return walk(trace, line, how=how, window="102h..108h", cluster=Cluster.pool(4, 4)).lines[0]


def _recorded(line: Line, until_ms: int) -> list[Any]:
    """Return all that rounds up to an instant have written down, clocks left out."""
    return [
        {**one.recorded(), "search_s": None, "seconds": None}
        for one in line.rounds
        if one.time_s * 1000 <= until_ms
    ]


@pytest.mark.parametrize(("line", "count"), [("trimtab", 3), ("trimtab-plus", 12)])
def test_nor_where_lines_have_learned_from_days_before(line: str, count: int) -> None:
    """To the last digit of the record: futures, models, rejections, scopes, and what was tried in between."""
    trace, dice = days(5, 1), np.random.default_rng(5)
    before = _learned(trace, line)
    main = [one.record for one in before.rounds if one.search == "main"]
    assert any(one.trials for one in before.rounds if one.search == BACKGROUND)
    if line == "trimtab":
        assert all(record["remaining_model"] is not None for record in main)
        assert any(record["graph"] is not None for record in main)
        assert {"rejected", "explored"} <= {trial["fate"] for record in main for trial in record["trials"]}
    else:
        assert any(record["last_week"] for record in main)
        assert all(one.arrivals > 100 for one in before.rounds if one.search == "main")
    for place, at_ms in enumerate(dice.integers(LEARNED_START_MS, LEARNED_END_MS, count).tolist()):
        at_ms = at_ms // _LOOKING_AGAIN_MS * _LOOKING_AGAIN_MS if place % 2 else at_ms
        after = _learned(another_future(trace, before, at_ms, dice, LEARNED_START_MS, LEARNED_END_MS), line)
        assert _recorded(after, at_ms) == _recorded(before, at_ms), f"{line} at {at_ms} ms"
        assert decisions(after, at_ms) == decisions(before, at_ms), f"{line} at {at_ms} ms"


# ---- the tests themselves --------------------------------------------------------------------------


def test_the_lines_have_something_to_decide() -> None:
    """A line that never acts could not leak: the histories make selftune switch and tune the week."""
    found = [walk(_history(seed), "fixed-week", "selftune").lines for seed in TRACES]
    assert sum(selftune.switches for _, selftune in found) >= 5
    assert any(week.start_knobs != selftune.start_knobs for week, selftune in found)


def test_the_oracle_does_know() -> None:
    assert any(decisions(a, at) != decisions(b, at) for at, a, b in _changed(1, "oracle", 6))


def test_a_planted_leak_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """selftune is given true run times and arrivals, as the oracle is."""

    def leaky(engine, now_ms, truth, policy, environment, interval_ms):  # type: ignore[no-untyped-def]
        return oracle_future(engine, now_ms, truth, policy, environment, interval_ms, interval_ms)

    monkeypatch.setattr(module, "last_hour_again", leaky)
    assert any(decisions(a, at) != decisions(b, at) for at, a, b in _changed(1, "selftune", 12))
