"""A line without one of its parts: it stands beside the whole line, and nothing else is different."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from histories import HOUR_MS, another_future, decisions, history, plan, table, walk
from trimtab.errors import ConfigError, UnknownName
from trimtab.knobs import Knobs
from trimtab.objective import Measured, Objective
from trimtab.report.lines import Line
from trimtab.simulate.trials import LocalTrials
from trimtab.simulate.whatif import Situation
from trimtab.studies.ablations import ABLATIONS, variants
from trimtab.traces.trace import Trace

PLUS_PARTS = [part for part, one in ABLATIONS.items() if "trimtab-plus" in one.lines]


def test_each_line_is_followed_by_its_ablations() -> None:
    lines, parts = ["fixed", "trimtab", "trimtab-plus"], ["local", "causal", "common-futures"]
    found = [(one.line, one.name) for one in variants(lines, parts, plan())]
    assert found == [
        ("fixed", "fixed"),
        ("trimtab", "trimtab"),
        ("trimtab", "trimtab without local"),
        ("trimtab", "trimtab without causal"),
        ("trimtab-plus", "trimtab-plus"),
        ("trimtab-plus", "trimtab-plus without local"),
        ("trimtab-plus", "trimtab-plus without common-futures"),
    ]


def test_an_ablation_changes_one_thing() -> None:
    whole = plan()
    paper, plus, rules = whole.paper, whole.plus, whole.rules
    expected = {
        "global": replace(
            whole, paper=replace(paper, arrivals="last-hour"), plus=replace(plus, arrivals="last-hour")
        ),
        "local": replace(
            whole, paper=replace(paper, remaining="lindy"), plus=replace(plus, remaining="lindy")
        ),
        "causal": replace(whole, rules=replace(rules, learning=False)),
        "identity": replace(whole, rules=replace(rules, identity=False)),
    }
    for part, changed in expected.items():
        assert ABLATIONS[part].change(whole) == changed
    assert not ABLATIONS["common-futures"].change(whole).plus.common


def test_what_cannot_be_left_out_is_refused() -> None:
    with pytest.raises(UnknownName, match="unknown part 'locals'; did you mean 'local'"):
        variants(["trimtab"], ["locals"], plan())
    with pytest.raises(ConfigError, match="part local is named twice"):
        variants(["trimtab"], ["local", "local"], plan())
    with pytest.raises(ConfigError, match="ablate causal: only trimtab has it; name it in --lines"):
        variants(["fixed", "trimtab-plus"], ["causal"], plan())


def _two_days() -> Trace:
    """Return one day after another: a forecast of arrivals has a day to look back on."""
    days = [list(history(seed).jobs.iter_rows(named=True)) for seed in (1, 2)]
    later = [
        {**job, "job_id": f"later {job['job_id']}", "submit_ms": job["submit_ms"] + 24 * HOUR_MS}
        for job in days[1]
    ]
    return table([*days[0], *later])


def _rounds(line: Line) -> list[object]:
    return [(one.record["futures"], one.record["trials"], one.verdict) for one in line.rounds]


def test_the_whole_line_is_as_without_ablations_and_each_ablation_differs() -> None:
    trace, how = _two_days(), plan(10)
    alone = walk(trace, "trimtab-plus", how=how, window="36h..42h").lines[0]
    whole, *others = walk(trace, "trimtab-plus", how=how, window="36h..42h", ablate=PLUS_PARTS).lines
    assert _rounds(whole) == _rounds(alone)
    assert [line.name for line in others] == [f"trimtab-plus without {part}" for part in PLUS_PARTS]
    for line in others:
        assert _rounds(line) != _rounds(alone), line.name
        assert line.start_knobs == alone.start_knobs


class _Spy(LocalTrials):
    """Remembers which settings each situation was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.met: dict[int, set[Knobs]] = defaultdict(set)
        self._kept: list[Situation] = []

    def measure(
        self, situation: Situation, candidates: Sequence[Knobs], objective: Objective
    ) -> list[Measured]:
        if situation.until_ms is not None:  # a future, not the last week
            self._kept.append(situation)  # so that no other takes its place in memory
            self.met[id(situation)] |= set(candidates)
        return super().measure(situation, candidates, objective)


def test_without_common_futures_no_two_settings_meet_the_same_one() -> None:
    trace = history(2)
    how = plan(10)
    own = ABLATIONS["common-futures"].change(how)
    common, apart = _Spy(), _Spy()
    walk(trace.window("12h..24h"), "trimtab-plus", how=how, trials=common)
    line = walk(trace.window("12h..24h"), "trimtab-plus", how=own, trials=apart).lines[0]
    assert max(len(settings) for settings in common.met.values()) >= 10
    assert {len(settings) for settings in apart.met.values()} == {1}
    trials = sum(one.trials - len(one.record["last_week"]) for one in line.rounds)
    assert sum(len(settings) for settings in apart.met.values()) == trials


@pytest.mark.parametrize("part", PLUS_PARTS)
def test_an_ablated_line_does_not_know_the_future_either(part: str) -> None:
    trace = history(1)
    before = walk(trace, "trimtab-plus", ablate=[part]).lines[1]
    for place, at_ms in enumerate((50_000_000, 57_600_000, 70_000_000)):
        other = another_future(trace, before, at_ms, np.random.default_rng(place))
        after = walk(other, "trimtab-plus", ablate=[part]).lines[1]
        assert decisions(after, at_ms) == decisions(before, at_ms)
