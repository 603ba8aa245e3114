"""The line trimtab-plus: one field every hour, on the same futures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from histories import HOUR_MS, history, plan, walk
from trimtab.control import advisor
from trimtab.knobs import Knobs
from trimtab.objective import Measured, Objective
from trimtab.report.lines import Line
from trimtab.simulate.trials import LocalTrials
from trimtab.simulate.whatif import Situation


def tried(line: Line) -> list[list[tuple[str, str]]]:
    return [
        [(str(trial["knobs"]), trial["purpose"]) for trial in one.record["trials"]] for one in line.rounds
    ]


def plus(seed: int = 1, budget: int = 12, futures: int = 3) -> Line:
    how = plan(budget)
    how = replace(how, plus=replace(how.plus, futures=futures))
    return walk(history(seed), "trimtab-plus", how=how).lines[0]


def busy(line: Line) -> Sequence[list[tuple[str, str]]]:
    return [row for row in tried(line) if len(row) > 1]


def test_every_busy_hour_tries_the_same_field_on_every_future() -> None:
    line = plus()
    fields = {tuple(knobs for knobs, purpose in row if purpose == "field") for row in busy(line)}
    assert len(fields) == 1
    assert len(set(*fields)) == 12
    for one in line.rounds:
        assert one.trials == 3 * len(one.record["measured"]) + len(one.record["last_week"])
        assert len(one.record["measured"]) in (1, 12, 13)  # idle, or the field and what runs beside it


def test_the_field_begins_with_what_runs_and_the_best_known_beforehand() -> None:
    line = plus()
    field = [knobs for knobs, purpose in busy(line)[0] if purpose == "field"]
    assert str(line.start_knobs.jsonable()) in field[:1]


def test_a_field_of_one_changes_nothing() -> None:
    line = plus(budget=1)
    assert line.switches == 0
    assert {one.verdict.reason.partition(":")[0] for one in line.rounds} <= {
        "no setting was better than the running one",
        "the running setting costs nothing",
    }


def test_every_change_has_a_lower_bound_above_one_and_goes_to_a_setting_of_the_field() -> None:
    changes: list[Knobs] = []
    for seed in range(1, 4):
        line = plus(seed)
        field = {knobs for row in busy(line) for knobs, purpose in row if purpose == "field"}
        for one in line.rounds:
            if one.switched:
                changes.append(one.knobs_after)
                assert one.record["gain_lower"] > 1
                assert str(one.knobs_after.jsonable()) in field
    assert changes


def _undone(seed: int, return_ms: int) -> int:
    """Return how many changes put a knob back to what it was within that time."""
    line = walk(history(seed), "trimtab-plus", how=replace(plan(12), return_ms=return_ms)).lines[0]
    changes = [one for one in line.rounds if one.switched]
    return sum(
        any(
            one.knobs_after[name] == earlier.knobs_before[name] != one.knobs_before[name]
            for name in one.knobs_after
        )
        for place, one in enumerate(changes)
        for earlier in changes[:place]
    )


def test_no_knob_goes_back_before_its_time() -> None:
    assert sum(_undone(seed, 0) for seed in range(1, 4)) > 0
    assert sum(_undone(seed, 1000 * HOUR_MS) for seed in range(1, 4)) == 0


class _Spy(LocalTrials):
    """Keeps the situations that run until all is done: the last week, looked back on."""

    def __init__(self) -> None:
        super().__init__()
        self.weeks: list[Situation] = []

    def measure(
        self, situation: Situation, candidates: Sequence[Knobs], objective: Objective
    ) -> list[Measured]:
        if situation.until_ms is None and len(candidates) == 12:
            self.weeks.append(situation)
        return super().measure(situation, candidates, objective)


@pytest.mark.parametrize(("every_ms", "least_apart_ms"), [(24 * HOUR_MS, None), (3 * HOUR_MS, 3 * HOUR_MS)])
def test_the_last_week_is_looked_back_on_once_a_day(
    every_ms: int, least_apart_ms: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advisor, "DAY_MS", every_ms)
    spy, trace = _Spy(), history(1)
    walk(trace, "trimtab-plus", how=plan(12), trials=spy)
    counts = [len(one.workload) for one in spy.weeks]
    submits = trace.column("submit_ms")
    instants = [int(submits[count - 1]) for count in counts]  # the last that was known
    if least_apart_ms is None:
        assert len(counts) == 1
    else:
        assert len(counts) > 1
        assert all(later - earlier > least_apart_ms // 2 for earlier, later in pairwise(instants))
    for one in spy.weeks:
        assert one.snapshot.jobs == ()
        assert [facts.label for facts in one.workload.facts] == [f"j{n}" for n in range(len(one.workload))]
