"""The loop with an honest scheduler: its modes, what people ask of it, and what a round writes down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hostile import HOUR_MS, ORDERS, SPACE, Memory, Played, Theatre
from trimtab.control.adapter import Change, Receipt, Unreachable
from trimtab.control.advising import SearchKind
from trimtab.control.guardrails import Apply, Tenure
from trimtab.control.prometheus import metrics_text
from trimtab.control.rounds import Round
from trimtab.control.safety import Mode, Safety, Step
from trimtab.control.scoring import Shadow
from trimtab.control.standing import Standing, fold
from trimtab.control.status import status_of
from trimtab.errors import ConfigError, JournalError
from trimtab.forecast.history import Past
from trimtab.job import JobFacts
from trimtab.knobs import Knobs
from trimtab.search.scene import Scene
from trimtab.world import Seeds

FOUR = SPACE.project({"num_queues": 4, "queue_thresholds": (1000, 2000, 90_000)})
FIVE = SPACE.project({**FOUR, "in_queue_order": "submit"})


class Scripted(Played):
    """Searches that always propose one setting or another, and gains that are told."""

    def __init__(self, gain: float = 1.5, realised: float = 1.4) -> None:
        super().__init__(0)
        self.told, self.came, self.asked = gain, realised, list[str]()

    def advise(self, scene: Scene, tenure: Tenure, search: SearchKind) -> Round:
        self.asked.append(search)
        best = FIVE if scene.running == FOUR else FOUR
        self._dice = Seeds(1).stream("calm")  # never the search that fails
        one = super().advise(scene, tenure, search)
        return replace(one, best=best, verdict=Apply(best, "better"), gain=self.told)

    def gain(self, scene: Scene, wanted: Knobs) -> float:
        return self.told

    def realised(self, shadow: Shadow, past: Past, facts: Sequence[JobFacts]) -> float:
        return self.came


def _theatre(
    mode: Mode = "auto", safety: Safety | None = None, advising: Any = None, **changes: Any
) -> Theatre:
    orders = replace(
        ORDERS, mode=mode, safety=safety or Safety(history_min_ms=0), background_ms=None, **changes
    )
    return Theatre(1, hours=12, orders=orders, advising=advising or Scripted())


def _kinds(theatre: Theatre, kind: str) -> list[Any]:
    return [one.body for one in theatre.journal.entries() if one.kind == kind]


# ---- modes ------------------------------------------------------------------------------------------


def test_observe_looks_and_searches_nothing() -> None:
    theatre = _theatre("observe")
    theatre.run_until(5 * HOUR_MS)
    assert theatre.loop._advising.asked == []  # type: ignore[attr-defined]
    assert {body["reason"] for body in _kinds(theatre, "verdict")} == {"mode observe: nothing is searched"}
    assert len(_kinds(theatre, "state")) == 5
    assert theatre.switch.asked == []


def test_shadow_writes_nothing_and_scores_what_it_would_have_done() -> None:
    theatre = _theatre("shadow")
    theatre.run_until(6 * HOUR_MS)
    assert theatre.switch.asked == []
    assert theatre.scheduler.in_force().knobs == SPACE.defaults
    decisions = [body["decision"] for body in _kinds(theatre, "verdict")]
    assert decisions == ["shadow"] * 6
    trials = _kinds(theatre, "trial")
    assert len(trials) == 5
    assert {(one["predicted"], one["realised"], one["made"]) for one in trials} == {(1.5, 1.4, False)}
    assert theatre.loop.standing.pairs == ((1.5, 1.4),) * 5


def test_canary_changes_its_one_knob() -> None:
    safety = Safety(history_min_ms=0, canary="in_queue_order")
    theatre = _theatre("canary", safety, Scripted())
    theatre.run_until(3 * HOUR_MS)
    assert theatre.switch.asked == []  # the best setting moves another knob, and leaves this one
    assert "mode canary changes in_queue_order alone" in _kinds(theatre, "verdict")[0]["reason"]
    theatre.loop._advising.advise = lambda scene, tenure, search: replace(  # type: ignore[method-assign]
        Scripted().advise(scene, tenure, search), verdict=Apply(FIVE, "better")
    )
    theatre.run_until(5 * HOUR_MS)
    changed = [change.knobs for _, change in theatre.switch.asked]
    assert changed == [SPACE.project({**SPACE.defaults, "in_queue_order": "submit"})]


def test_approve_waits_for_a_person() -> None:
    theatre = _theatre("approve")
    theatre.run_until(HOUR_MS + 60_000)
    proposal = theatre.loop.standing.proposal
    assert proposal is not None
    assert proposal.knobs == FOUR
    assert theatre.switch.asked == []
    with pytest.raises(ConfigError, match="no such proposal waits"):
        theatre.loop.approve("ann", "another")
    assert "not yet in force" in theatre.loop.approve("ann", proposal.key)
    theatre.run_until(HOUR_MS + 120_000)
    assert theatre.scheduler.in_force().knobs == FOUR
    assert _kinds(theatre, "intent")[0]["reason"] == "approved by ann: better"
    assert theatre.loop.standing.proposal is None
    with pytest.raises(ConfigError, match="no such proposal waits"):
        theatre.loop.approve("ann")


def test_who_approves_approves_what_was_read() -> None:
    """A newer proposal has another key: the earlier one is no longer there to be approved."""
    theatre = _theatre("approve")
    theatre.run_until(HOUR_MS + 60_000)
    earlier = theatre.loop.standing.proposal
    theatre.run_until(2 * HOUR_MS + 60_000)
    later = theatre.loop.standing.proposal
    assert earlier is not None
    assert later is not None
    assert earlier.key != later.key
    with pytest.raises(ConfigError, match="no such proposal waits"):
        theatre.loop.approve("ann", earlier.key)
    assert theatre.switch.asked == []


def test_a_proposal_lapses_and_is_checked_again() -> None:
    theatre = _theatre("approve", Safety(history_min_ms=0, proposal_ms=1_200_000))
    theatre.run_until(HOUR_MS + 1_500_000)
    with pytest.raises(ConfigError, match="has lapsed"):
        theatre.loop.approve("ann")
    theatre.run_until(2 * HOUR_MS + 60_000)
    theatre.loop.pause("bob")
    with pytest.raises(ConfigError, match="paused by bob: nothing is changed until resume"):
        theatre.loop.approve("ann")
    theatre.loop.resume("bob")
    by_hand = SPACE.project({"num_queues": 3})
    theatre.scheduler.apply(Change("by hand", by_hand, 1))
    theatre.scheduler.advance(theatre.now_ms + 1)
    with pytest.raises(ConfigError, match="the setting was changed since this was proposed"):
        theatre.loop.approve("ann")
    assert theatre.loop.standing.knobs == by_hand


def test_auto_changes_and_keeps_the_dwell() -> None:
    theatre = _theatre()
    theatre.run_until(4 * HOUR_MS)
    assert [change.knobs for _, change in theatre.switch.asked] == [FOUR, FIVE, FOUR]
    assert all(body["outcome"] == "confirmed" for body in _kinds(theatre, "read_back")[1:])


# ---- guardrails in the loop -------------------------------------------------------------------------


def test_a_step_that_is_too_large_is_made_smaller_if_that_gains() -> None:
    safety = Safety(history_min_ms=0, steps={"num_queues": Step(difference=1)})
    theatre = _theatre(safety=safety)
    theatre.run_until(2 * HOUR_MS)
    assert theatre.switch.asked[0][1].knobs["num_queues"] == 3
    poor = _theatre(safety=safety, advising=Scripted(gain=1.07))
    poor.run_until(2 * HOUR_MS)
    assert poor.switch.asked == []
    assert "halfway the gain is 1.070" in _kinds(poor, "verdict")[-1]["reason"]


def test_without_history_nothing_is_searched() -> None:
    theatre = _theatre(safety=Safety(history_min_ms=3 * HOUR_MS))
    theatre.run_until(5 * HOUR_MS)
    reasons = [body["reason"] for body in _kinds(theatre, "verdict")]
    assert reasons[1] == "the history is 3600 s long, 10800 s are needed"
    assert reasons[-1] == "better"


def test_losses_open_the_breaker_and_go_back_to_what_was_before_them() -> None:
    theatre = _theatre(advising=Scripted(realised=1.5))
    theatre.run_until(4 * HOUR_MS + 60_000)
    steady = theatre.scheduler.in_force().knobs
    theatre.loop.changer.standing = replace(theatre.loop.standing, unscored=())
    theatre.loop._advising.came = 0.9  # type: ignore[attr-defined]
    theatre.run_until(8 * HOUR_MS + 60_000)
    reasons = [body["reason"] for body in _kinds(theatre, "breaker")]
    assert len(reasons) == 1
    assert reasons[0].startswith(
        "3 changes in a row lost against the setting before them: nothing is changed"
    )
    assert theatre.scheduler.in_force().knobs == steady
    assert _kinds(theatre, "intent")[-1]["purpose"] == "rollback"
    assert theatre.loop.last["decision"] == "kept"
    assert theatre.loop.last["reason"].endswith("nothing is changed until resume")
    theatre.loop.resume("ann")
    before = len(_kinds(theatre, "intent"))
    theatre.run_until(9 * HOUR_MS + 60_000)
    assert len(_kinds(theatre, "intent")) == before + 1


def test_gains_that_do_not_come_true_are_believed_less() -> None:
    theatre = _theatre(
        "shadow", advising=Scripted(gain=1.2, realised=1.0), rails=replace(ORDERS.rails, gain_min=1.1)
    )
    theatre.run_until(6 * HOUR_MS)
    assert "earlier gains came to, which is under 1.1" in theatre.loop.last["reason"]
    theatre.loop._advising.came = 1.2  # type: ignore[attr-defined]
    theatre.run_until(12 * HOUR_MS)
    assert theatre.loop.last["decision"] == "shadow"  # what was refused was looked at, and came true


def test_a_failing_search_is_a_reason_to_keep() -> None:
    class Failing(Scripted):
        def advise(self, scene: Scene, tenure: Tenure, search: SearchKind) -> Round:
            raise ZeroDivisionError("no jobs")

    theatre = _theatre(advising=Failing())
    theatre.run_until(2 * HOUR_MS)
    assert _kinds(theatre, "verdict")[0]["reason"] == "the search failed: ZeroDivisionError: no jobs"


# ---- what people ask for ----------------------------------------------------------------------------


def test_rollback_by_hand() -> None:
    theatre = _theatre()
    with pytest.raises(ConfigError, match="there is no earlier setting to go back to"):
        theatre.loop.rollback("ann")
    theatre.run_until(2 * HOUR_MS + 60_000)
    in_force = theatre.scheduler.in_force().knobs
    assert in_force == FIVE
    said = theatre.loop.rollback("ann")
    key = [one.key for one in theatre.journal.entries() if one.kind == "intent"][-1]
    assert said == f"change {key} is written, and not yet in force"
    with pytest.raises(ConfigError, match=f"change {key} is in flight"):
        theatre.loop.rollback("ann")
    theatre.run_until(2 * HOUR_MS + 120_000)
    assert theatre.scheduler.in_force().knobs == FOUR
    assert _kinds(theatre, "rollback")[0]["reason"] == "asked for by ann"


def test_a_person_may_go_back_while_changes_are_paused() -> None:
    theatre = _theatre()
    theatre.run_until(2 * HOUR_MS + 60_000)
    theatre.loop.pause("ann")
    theatre.loop.rollback("ann")
    theatre.run_until(2 * HOUR_MS + 120_000)
    assert theatre.scheduler.in_force().knobs == FOUR
    assert theatre.loop.standing.paused


def test_pause_holds_all_changes_but_settles_what_is_in_flight() -> None:
    theatre = _theatre()
    theatre.run_until(HOUR_MS)
    theatre.loop.tick()
    assert theatre.loop.standing.open is not None
    theatre.loop.pause("ann")
    theatre.run_until(5 * HOUR_MS)
    assert theatre.loop.standing.open is None
    assert theatre.scheduler.in_force().knobs == FOUR
    assert theatre.loop.last["reason"] == "paused by ann: nothing is changed until resume"
    theatre.loop.resume("ann")
    theatre.run_until(5 * HOUR_MS + 60_000)
    assert theatre.scheduler.in_force().knobs == FIVE


def test_somebody_elses_setting_is_kept_and_dwells() -> None:
    theatre = _theatre()
    theatre.run_until(HOUR_MS - 600_000)
    by_hand = SPACE.project({"num_queues": 3})
    theatre.scheduler.apply(Change("by hand", by_hand, 1))
    theatre.run_until(HOUR_MS + 60_000)
    assert theatre.loop.standing.knobs == by_hand
    assert theatre.loop.last["reason"] == "the last change was 540 s ago, dwell is 1800 s"


def test_orders_are_exchanged_while_it_runs() -> None:
    theatre = _theatre("observe")
    theatre.run_until(2 * HOUR_MS)
    with pytest.raises(ConfigError, match="must name the one knob"):
        theatre.loop.adopt(replace(theatre.orders, mode="canary"), None, "x")
    assert theatre.loop.orders.mode == "observe"
    theatre.loop.adopt(replace(theatre.orders, mode="auto"), None, "x")
    theatre.run_until(2 * HOUR_MS + 60_000)
    assert theatre.scheduler.in_force().knobs == FOUR


# ---- trouble ----------------------------------------------------------------------------------------


def test_a_scheduler_that_is_gone_is_told_and_waited_for() -> None:
    theatre = _theatre()
    theatre.run_until(HOUR_MS + 60_000)
    honest = theatre.switch.adapter

    class Gone:
        def __getattr__(self, name: str) -> Callable[..., Any]:
            def call(*args: Any) -> Any:
                raise Unreachable("nobody answers.")

            return call

    theatre.switch.adapter = Gone()  # type: ignore[assignment]
    theatre.run_until(4 * HOUR_MS)
    assert theatre.loop.trouble == {"scheduler": "nobody answers."}
    theatre.switch.adapter = honest
    theatre.run_until(4 * HOUR_MS + 60_000)
    assert theatre.loop.trouble == {}
    assert theatre.scheduler.in_force().knobs == FIVE


def test_without_a_journal_nothing_is_changed() -> None:
    theatre = _theatre()
    real, full = theatre.journal.append, [True]

    def append(*args: Any, **more: Any) -> Any:
        if full[0]:
            raise JournalError("the disk is full; nothing was written.")
        return real(*args, **more)

    theatre.journal.append = append  # type: ignore[method-assign]
    theatre.run_until(3 * HOUR_MS)
    assert theatre.switch.asked == []
    assert "the disk is full" in theatre.loop.trouble["journal"]
    full[0] = False
    theatre.run_until(4 * HOUR_MS + 60_000)
    assert theatre.loop.trouble == {}
    assert len(theatre.switch.asked) == 1


def test_an_entry_that_may_have_been_written_is_read_again() -> None:
    """The connection breaks after the intent was written: it is found, and the change is made once."""
    theatre = _theatre()
    real, broke = theatre.journal.append, list[str]()

    def append(kind: str, body: Any, **more: Any) -> Any:
        entry = real(kind, body, **more)
        if kind == "intent" and not broke:
            broke.append(entry.key or "")
            raise JournalError("the connection broke; it may have been written.")
        return entry

    theatre.journal.append = append  # type: ignore[method-assign]
    theatre.run_until(HOUR_MS + 300_000)
    assert [change.key for _, change in theatre.switch.asked] == broke
    assert theatre.scheduler.in_force().knobs == FOUR
    assert fold(Standing(), theatre.journal.entries()) == theatre.loop.standing


def test_an_acknowledged_change_that_does_not_come_into_force_is_given_up() -> None:
    theatre = _theatre()
    theatre.run_until(HOUR_MS - 1)
    theatre.switch.apply = lambda change: Receipt(change.key, 2)  # type: ignore[method-assign]
    theatre.run_until(HOUR_MS + 300_000)
    assert theatre.loop.standing.open is None
    why = "acknowledged, but not in force after 120 s: what is in force is kept"
    assert _kinds(theatre, "read_back")[-1]["why"] == why
    theatre.run_until(6 * HOUR_MS)
    assert theatre.loop.standing.breaker.startswith("3 changes in a row were not confirmed")


# ---- what is told -----------------------------------------------------------------------------------


def test_desired_written_and_in_force_are_three_things() -> None:
    theatre = _theatre()
    theatre.run_until(HOUR_MS)
    theatre.loop.tick()
    status = status_of(theatre.loop, theatre.now_ms)
    assert status["desired"] == status["written"] == FOUR.jsonable()
    assert status["in_force"] == SPACE.defaults.jsonable()
    text = metrics_text(theatre.loop, theatre.now_ms)
    assert 'trimtab_knob_value{knob="num_queues",stage="desired"} 4' in text
    assert 'trimtab_knob_value{knob="num_queues",stage="in_force"} 2' in text
    assert 'trimtab_setting_differs{stage="written"} 1' in text
    theatre.run_until(HOUR_MS + 60_000)
    assert status_of(theatre.loop, theatre.now_ms)["in_force"] == FOUR.jsonable()
    assert 'trimtab_setting_differs{stage="desired"} 0' in metrics_text(theatre.loop, theatre.now_ms)


def test_metrics_have_help_types_and_units() -> None:
    theatre = _theatre()
    theatre.run_until(3 * HOUR_MS)
    lines = metrics_text(theatre.loop, theatre.now_ms).splitlines()
    types = {line.split()[2]: line.split()[3] for line in lines if line.startswith("# TYPE")}
    helped = {line.split()[2] for line in lines if line.startswith("# HELP")}
    assert set(types) == helped
    for name, kind in types.items():
        assert name.startswith("trimtab_")
        assert (kind == "counter") == name.endswith("_total")
    for line in lines:
        if not line.startswith("#"):
            assert line.split("{")[0].split()[0] in types
            float(line.rsplit(" ", 1)[1])
    assert 'trimtab_changes_total{purpose="change",outcome="confirmed"} 2' in lines
    assert 'trimtab_mode_info{mode="auto"} 1' in lines


def test_the_journal_in_memory_is_what_the_loop_goes_by() -> None:
    theatre = _theatre()
    theatre.run_until(8 * HOUR_MS)
    assert isinstance(theatre.journal, Memory)
    assert fold(Standing(), theatre.journal.lines) == theatre.loop.standing
