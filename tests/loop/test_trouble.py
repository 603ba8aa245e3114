"""Histories and simulations that are no good: every line goes on, keeps or changes, and says why."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from histories import HOUR_MS, history, plan, table, walk
from trimtab.errors import TrialsLost
from trimtab.knobs import Knobs
from trimtab.objective import Measured, Objective
from trimtab.report.lines import Line
from trimtab.simulate.trials import LocalTrials
from trimtab.simulate.whatif import Situation
from trimtab.studies import lines
from trimtab.studies.lines import LINES
from trimtab.traces.trace import Trace

DAY_MS = 24 * HOUR_MS
TUNED = ("selftune", "trimtab", "trimtab-plus", "oracle")


def day(seed: int, start_ms: int = 0) -> list[dict[str, Any]]:
    """Return a day's jobs, submitted from an instant on."""
    jobs = history(seed).jobs.iter_rows(named=True)
    return [
        {**job, "job_id": f"{start_ms} {job['job_id']}", "submit_ms": job["submit_ms"] + start_ms}
        for job in jobs
    ]


def alike(every_ms: int) -> list[dict[str, Any]]:
    """Return a day and a half of jobs that differ in nothing but when they come."""
    times_ms = range(0, 36 * HOUR_MS, every_ms)
    return [{"job_id": str(at), "submit_ms": at, "duration_ms": 900_000, "gpus": 4} for at in times_ms]


# Rows and window of a history -> what is wrong with it.
TROUBLE: dict[str, tuple[list[dict[str, Any]], str]] = {
    "no history": (day(1, DAY_MS), "24h..36h"),
    "one job of history": ([day(2)[0], *day(1, DAY_MS)], "24h..36h"),
    "a week's gap before the window": ([*day(2), *day(1, 9 * DAY_MS)], "9d..9.5d"),
    "a week's gap inside the window": ([*day(2), *day(3, 8 * DAY_MS)], "12h..8.5d"),
    "an outage up to the window": (
        [job for job in [*day(2), *day(3, DAY_MS)] if not 30 <= job["submit_ms"] / HOUR_MS < 36],
        "36h..42h",
    ),
    "an outage inside the window": (
        [job for job in [*day(2), *day(3, DAY_MS)] if not 32 <= job["submit_ms"] / HOUR_MS < 38],
        "30h..42h",
    ),
    "jobs that are all alike": (alike(400_000), "24h..36h"),
    "jobs that never wait": (alike(3_000_000), "24h..36h"),
}


def sound(line: Line, trace: Trace, window: str) -> None:
    """Check that all of a window was walked through, and that every verdict has a reason."""
    jobs = len(trace.window(window))
    assert line.metrics["jobs"] == line.metrics["finished"] == jobs
    for one in line.rounds:
        assert one.verdict.reason
        assert not one.switched or one.gain > 1
        assert one.switched == (one.knobs_after != one.knobs_before)


@pytest.mark.parametrize("trouble", TROUBLE)
@pytest.mark.parametrize("name", LINES)
def test_no_history_stops_a_line(name: str, trouble: str) -> None:
    rows, window = TROUBLE[trouble]
    trace, how = table(rows), plan(20)
    if window == "12h..8.5d":
        how = replace(plan(6), interval_ms=4 * HOUR_MS)
    sound(walk(trace, name, how=how, window=window).lines[0], trace, window)


def test_what_cannot_be_forecast_changes_nothing() -> None:
    rows, window = TROUBLE["no history"]
    how = plan(20, belief_min=0.6, paper_gain_min=1.0, paper_background_ms=1_800_000)
    line = walk(table(rows), "trimtab", how=how, window=window).lines[0]
    assert line.switches == 0
    assert any("not to be relied on: only" in one.verdict.reason for one in line.rounds)
    assert walk(table(rows), "trimtab", how=replace(how, belief_min=0.0), window=window).lines[0].switches


# ---- simulations that fail --------------------------------------------------------------------------


def four_queues(knobs: Knobs) -> bool:
    return knobs.integer("num_queues") == 4


class Broken(LocalTrials):
    """Raises for some settings, or gives no number for them."""

    def __init__(self, for_these: Callable[[Knobs], bool], error: Exception | None) -> None:
        super().__init__()
        self._for_these, self._error = for_these, error

    def measure(
        self, situation: Situation, candidates: Sequence[Knobs], objective: Objective
    ) -> list[Measured]:
        hit = [self._for_these(knobs) for knobs in candidates]
        if self._error is not None and any(hit):
            raise self._error
        found = super().measure(situation, candidates, objective)
        return [Measured(*[math.nan] * 6) if no else one for no, one in zip(hit, found, strict=True)]


def fates(line: Line) -> list[dict[str, Any]]:
    return [trial for one in line.rounds for trial in one.record["trials"]]


@pytest.mark.parametrize("name", ["fixed-week", *TUNED])
def test_one_broken_setting_stops_nothing_and_is_never_taken(name: str) -> None:
    trace = history(1)
    error = ZeroDivisionError("no queue")
    line = walk(trace, name, how=plan(40), trials=Broken(four_queues, error)).lines[0]
    sound(line, trace, "12h..22h")
    assert not any(four_queues(one.knobs_after) for one in line.rounds)
    assert not four_queues(line.start_knobs)
    failed = [trial for trial in fates(line) if trial["fate"] == "failed"]
    assert bool(failed) == bool(line.rounds)
    assert {trial["reason"] for trial in failed} <= {"ZeroDivisionError: no queue"}
    assert {trial["knobs"]["num_queues"] for trial in failed} <= {4}
    assert any(trial["fate"] == "simulated" for trial in fates(line)) == bool(line.rounds)


@pytest.mark.parametrize("name", LINES)
def test_one_setting_without_a_number_is_never_taken(name: str) -> None:
    line = walk(history(1), name, how=plan(20), trials=Broken(four_queues, None)).lines[0]
    sound(line, history(1), "12h..22h")
    assert not any(four_queues(one.knobs_after) for one in line.rounds)


@pytest.mark.parametrize("name", ["selftune", "trimtab", "oracle"])
def test_where_nothing_can_be_simulated_the_running_setting_stays_and_the_round_says_why(name: str) -> None:
    broken = Broken(lambda _: True, OSError("no disk"))
    line = walk(history(1).window("12h..24h"), name, how=plan(20), trials=broken).lines[0]
    sound(line, history(1), "12h..22h")
    assert line.switches == 0
    told = {one.record["stopped"] for one in line.rounds if one.search == "main"}
    assert told == {"the running setting could not be simulated: OSError: no disk"}


@pytest.mark.parametrize("name", TUNED)
def test_lost_workers_end_the_run(name: str) -> None:
    with pytest.raises(TrialsLost, match="gone"):
        walk(history(1), name, trials=Broken(lambda _: True, TrialsLost("gone")))


@pytest.mark.parametrize("name", TUNED)
@pytest.mark.parametrize("budget", [1, 2])
def test_fewer_simulations_than_knobs_are_no_obstacle(name: str, budget: int) -> None:
    trace = history(1)
    sound(walk(trace, name, how=plan(budget)).lines[0], trace, "12h..22h")


def test_what_is_known_beforehand_holds_no_setting_without_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """One such number would put the others in any order."""
    told: list[Mapping[Knobs, float]] = []

    class Told(lines.PoolingAdvisor):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            told.append(given[-1])

    monkeypatch.setattr(lines, "PoolingAdvisor", Told)
    walk(history(1), "trimtab-plus", how=plan(20), trials=Broken(four_queues, None))
    assert len(told[0]) > 5
    assert not any(math.isnan(log) or four_queues(knobs) for knobs, log in told[0].items())
