"""Diagnosis: what an hour lost adds up, and falls to the part that is at fault."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from histories import CLUSTER, WINDOW, WORLD, history, plan
from trimtab.control.guardrails import Guardrails
from trimtab.control.journal import Recorded, plain
from trimtab.errors import ConfigError, InputError, UnknownName
from trimtab.policies.catalog import find_policy
from trimtab.search.futures import Future
from trimtab.search.generation import Generation
from trimtab.search.scene import Scene
from trimtab.simulate.trials import LocalTrials
from trimtab.simulate.workload import Workload
from trimtab.studies.diagnose import PARTS, Diagnosis, diagnose
from trimtab.studies.evaluate import evaluate
from trimtab.studies.futures import true_future
from trimtab.studies.lines import Plan
from trimtab.studies.request import Request

TRACE = history(2)


def recorded(how: Plan, *lines: str) -> tuple[Request, Recorded]:
    """Return the journal of an evaluation, as it would be read."""
    request = Request(
        source="table:small",
        zone=None,
        thin=None,
        sha256=TRACE.provenance.sha256,
        kept=len(TRACE),
        window=WINDOW,
        cluster=CLUSTER,
        policy="tiresias",
        base=find_policy("tiresias").space.defaults,
        world=WORLD,
        plan=how,
        lines=lines,
    )
    told: list[dict[str, Any]] = []
    asked = WINDOW, CLUSTER, request.policy, request.base, WORLD, how, lines
    evaluate(
        TRACE, *asked, LocalTrials(), note=lambda record: told.append(json.loads(json.dumps(plain(record))))
    )
    return request, Recorded(json.loads(json.dumps(plain(request.jsonable()))), tuple(told))


def diagnosed(how: Plan, line: str, hours: int = 3) -> Diagnosis:
    request, journal = recorded(how, line)
    return diagnose(request, journal, TRACE, LocalTrials(), hours)


def test_a_request_survives_its_header() -> None:
    request, journal = recorded(plan(), "fixed")
    assert Request.of(journal.header) == request


@pytest.mark.parametrize("line", ["trimtab", "trimtab-plus"])
def test_the_parts_add_up_and_the_simulator_is_right(line: str) -> None:
    found = diagnosed(plan(budget=12), line)
    assert found.line == line
    assert 0 < len(found.hours) <= 3
    assert [hour.time_s for hour in found.hours] == sorted(hour.time_s for hour in found.hours)
    for hour in found.hours:
        assert hour.lost_s > 0
        assert hour.gain > 1
        assert sum(hour.parts[name] for name in PARTS) == pytest.approx(hour.lost_s)
        if hour.realised_s is not None:
            assert hour.realised_s == pytest.approx(hour.simulated_s, abs=0.001)
    assert any(hour.realised_s for hour in found.hours)
    assert found.sums()["lost_s"] == pytest.approx(sum(hour.lost_s for hour in found.hours))


def test_the_worst_hours_are_the_worst() -> None:
    request, journal = recorded(plan(budget=12), "trimtab-plus")
    every = diagnose(request, journal, TRACE, LocalTrials(), 10).hours
    two = diagnose(request, journal, TRACE, LocalTrials(), 2).hours
    assert len(every) > 2
    assert {hour.time_s for hour in two} <= {hour.time_s for hour in every}
    again = diagnose(request, journal, TRACE, LocalTrials(), 2)
    assert again.hours == two


def test_guardrails_that_let_nothing_through_are_blamed() -> None:
    """Nothing reaches a gain of 1e9: what the line would have gained is lost to application."""
    how = plan(budget=12, paper_gain_min=1e9)
    found = diagnosed(how, "trimtab", 10)
    free = diagnosed(
        plan(budget=12, rails=Guardrails(gain_min=1.0, dwell_ms=0), paper_gain_min=1.0), "trimtab", 10
    )
    assert found.sums()["application"] != 0
    assert free.sums()["application"] == 0


def test_who_knows_the_truth_has_no_fault_of_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line whose futures are the truth, over the oracle's span, loses nothing to forecast or horizon."""
    window = TRACE.window(WINDOW)
    workload = Workload.of(window, WORLD.spread_ppm)

    def truth(self: Generation, scene: Scene, most: int, whose: int | None = None) -> list[Future]:
        return [true_future(scene.snapshot, workload, self.how.arrivals_ms)] * min(self.how.futures, most)

    monkeypatch.setattr(Generation, "futures", truth)
    how = plan(budget=12)
    plus = replace(how.plus, arrivals_ms=how.arrivals_ms, run_on_ms=how.run_on_ms)
    found = diagnosed(replace(how, plus=plus), "trimtab-plus", 10)
    assert found.hours
    for hour in found.hours:
        assert hour.parts["forecast"] == hour.parts["horizon"] == 0
        assert hour.arrivals_s == hour.remaining_s == 0
    assert found.sums()["search"] + found.sums()["application"] == pytest.approx(found.sums()["lost_s"])


@pytest.mark.parametrize("blind_to", ["arrivals", "remaining"])
def test_what_is_not_foreseen_is_named(blind_to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two parts one is the truth: mending the other one alone mends the whole forecast."""
    workload = Workload.of(TRACE.window(WINDOW), WORLD.spread_ppm)

    def half_true(self: Generation, scene: Scene, most: int, whose: int | None = None) -> list[Future]:
        future = true_future(scene.snapshot, workload, self.how.arrivals_ms)
        if blind_to == "arrivals":
            return [replace(future, coming=[], coming_ms=[])]
        longer = [run_ms + 600_000 * (place % 7) ** 2 for place, run_ms in enumerate(future.active_ms)]
        return [replace(future, active_ms=longer)]

    monkeypatch.setattr(Generation, "futures", half_true)
    found = diagnosed(plan(budget=12), "trimtab-plus", 10)
    assert found.sums()["forecast"] != 0
    for hour in found.hours:
        mended, other = hour.arrivals_s, hour.remaining_s
        if blind_to == "remaining":
            mended, other = other, mended
        assert mended == hour.parts["forecast"]
        assert other == 0


def _refused(error: type[Exception], said: str, lines: Sequence[str], **options: Any) -> None:
    request, journal = recorded(plan(), *lines)
    with pytest.raises(error, match=said):
        diagnose(request, journal, TRACE, LocalTrials(), **{"hours": 3, **options})


def test_what_cannot_be_diagnosed_is_refused() -> None:
    _refused(ConfigError, "no round of a forecasting line", ["fixed", "oracle"])
    _refused(ConfigError, "hours = 0", ["trimtab-plus"], hours=0)
    _refused(
        UnknownName, "unknown forecasting line of this journal 'trimtab'", ["trimtab-plus"], line="trimtab"
    )


def test_an_altered_journal_is_refused_and_a_short_one_is_used() -> None:
    request, journal = recorded(plan(budget=12), "trimtab-plus")
    altered = [dict(record) for record in journal.records]
    altered[4]["gain"] += 1
    with pytest.raises(InputError, match="not as in the journal: trimtab-plus, hour 15: gain was "):
        diagnose(request, replace(journal, records=tuple(altered)), TRACE, LocalTrials(), 3)
    short = diagnose(request, replace(journal, records=journal.records[:5]), TRACE, LocalTrials(), 10)
    assert short.rounds == 4
