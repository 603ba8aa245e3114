"""Parts of the jobs, and what a line's changes were like, on rounds and events made up by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from histories import HOUR_MS, history, plan, walk
from trimtab.control.guardrails import Apply, Keep
from trimtab.control.rounds import Round
from trimtab.knobs import Knobs
from trimtab.studies.segments import dominated_hours, segments_of
from trimtab.studies.switching import switching_of
from trimtab.timeline import Timeline


def _round(
    hour: float, before: Knobs, after: Knobs, gain: float = 1.5, realised: float | None = None
) -> Round:
    return Round(
        time_s=3600 * hour,
        knobs_before=before,
        best=after,
        verdict=Keep("") if before == after else Apply(after, ""),
        gain=gain,
        cost_running=1.0,
        cost_best=1.0,
        trials=1,
        pending=0,
        running=0,
        arrivals=0,
        search_s=0.0,
        realised_gain=realised,
    )


A, B, C = (Knobs({"x": value, "y": 0}) for value in (1, 2, 3))


def test_a_long_job_dominates_the_hours_that_begin_once_it_holds_half_for_over_a_day() -> None:
    """Job 0 holds 4 GPUs from 0 h on, 2 h without in between; at 27 h job 1 takes 5, at 29 h it ends."""
    found = Timeline(["long", "wide", "late"], [4, 5, 1])
    for hour, kind, job in (
        (0, "submit", 0),
        (0, "start", 0),
        (10, "preempt", 0),
        (12, "start", 0),
        (27.5, "submit", 1),
        (27.5, "start", 1),
        (29, "finish", 1),
        (31.5, "finish", 0),
        (33, "submit", 2),
        (40, "start", 2),
    ):
        found.add(round(hour * HOUR_MS), kind, job)
    assert dominated_hours(found, HOUR_MS) == [27, 30, 31]  # at 26 h it has held for 24 h, not for more


def test_jobs_soon_after_a_change_stand_beside_themselves_under_the_first_line() -> None:
    fixed, tuned = walk(history(2), "fixed", "selftune").lines
    changed_s = [one.time_s for one in tuned.rounds if one.switched]
    assert changed_s
    waits, references = [], []
    for mine, other in zip(tuned.jobs.rows(named=True), fixed.jobs.rows(named=True), strict=True):
        if any(0 <= mine["submit_s"] - at < 7200 for at in changed_s):
            waits.append(mine["wait_s"])
            references.append(other["wait_s"])
    found = segments_of([fixed, tuned], HOUR_MS)[1]["after-change"]
    assert found["jobs"] == len(waits)
    assert found["wait_s_mean"] == pytest.approx(sum(waits) / len(waits))
    assert found["reference_wait_s_mean"] == pytest.approx(sum(references) / len(references))
    assert tuned.segments["after-change"] == found
    assert "after-change" not in fixed.segments


def test_hours_dominated_by_long_jobs_hold_the_same_jobs_in_every_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trimtab.studies.segments.LONG_MS", 2 * HOUR_MS)
    found = [
        line.segments["long-job-dominated"]["jobs"] for line in walk(history(1), "fixed", "selftune").lines
    ]
    assert found[0] == found[1]
    assert 0 < found[0] < history(1).window("12h..22h").jobs.height


def test_what_changes_were_like() -> None:
    rounds = [
        _round(0, A, A),
        _round(2, A, B, 2.0, 4.0),
        _round(3, B, B),
        _round(5, B, A, 3.0, 0.5),  # back within three hours
        _round(9, A, C, 8.0, 2.0),
        _round(9.25, C, B, 5.0, 5.0),
    ]
    found = switching_of(rounds, 1800)
    assert found["dwell_s_mean"] == 9.25 * 3600 / 4
    assert found["flapping_share"] == 1 / 4
    # log 4 + log 0.5 + log 5 over log 2 + log 3 + log 5: the change at 9 h did not stay.
    assert found["realised_over_predicted"] == pytest.approx(math.log(10) / math.log(30))
    assert switching_of(rounds, 1e9)["realised_over_predicted"] == pytest.approx(1.0)  # the last stayed
    nothing = dict.fromkeys(("dwell_s_mean", "flapping_share", "realised_over_predicted"))
    assert switching_of(rounds[:1], 1800) == switching_of([], 1800) == nothing
    unknown = [replace(one, realised_gain=None) for one in rounds]
    assert switching_of(unknown, 1800)["realised_over_predicted"] is None


def test_realised_gains_are_looked_up_and_change_nothing() -> None:
    """The oracle predicts on the true future itself: what it predicts is what is found to have come true."""
    trace = history(2)
    plain = walk(trace, "oracle", "selftune").lines
    told = walk(trace, "oracle", "selftune", how=plan(realised=True)).lines
    assert [line.timeline.digest() for line in told] == [line.timeline.digest() for line in plain]
    for line in told:
        for one in line.rounds:
            assert (one.realised_gain is not None) == one.switched
    assert told[0].switches > 0
    assert all(one.realised_gain == one.gain for one in told[0].rounds if one.switched)
    assert told[0].switching["realised_over_predicted"] == pytest.approx(1.0)
    assert any(one.realised_gain != one.gain for one in told[1].rounds if one.switched)
