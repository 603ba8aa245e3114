"""What is decided, and from what: pure functions of a state, of how things stand, and of a search.

The loop decides by these as things happen, and a replay decides by them again from the journal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.control import safety as checks
from trimtab.control.advising import Advising, SearchKind
from trimtab.control.guardrails import Apply, Tenure
from trimtab.control.orders import Orders
from trimtab.control.rounds import Round
from trimtab.control.safety import Safety
from trimtab.control.standing import Standing
from trimtab.errors import Interrupted
from trimtab.forecast.backtest import belief
from trimtab.knobs import Knobs, Space
from trimtab.search.scene import Scene

# A gain that was looked at in one round only counts from here on.
_ONCE_GAIN_MIN = 1.1

STOPPED = "the search was stopped"


@dataclass(frozen=True)
class Question:
    """A round as it begins.

    Attributes:
        state: Number of the entry that has what it is decided on.
        version: Of the setting in force then. tenure: how that stood. orders: how it is worked by then.
        writes: Whether the scheduler lets its settings be changed.
    """

    kind: SearchKind
    scene: Scene
    state: int
    version: int
    tenure: Tenure
    orders: Orders
    writes: bool


@dataclass(frozen=True)
class Answer:
    """What a search came to: its round, the setting it comes to within the limits, and that one's gain."""

    one: Round
    wanted: Knobs
    gain: float


@dataclass(frozen=True)
class Decision:
    """What a round came to.

    Attributes:
        body: Of its verdict. change: the setting to be written and its gain, None for none.
    """

    body: Mapping[str, Any]
    change: tuple[Knobs, float] | None = None


def unfit(scene: Scene, orders: Orders) -> str | None:
    """Say why nothing is searched."""
    if orders.mode == "observe":
        return "mode observe: nothing is searched"
    past = scene.past
    known_ms = past.now_ms - int(past.submit_ms[0]) if len(past) else 0
    least_ms = orders.safety.history_min_ms
    if known_ms < least_ms:
        return f"the history is {known_ms / 1000:g} s long, {least_ms / 1000:g} s are needed"
    return belief(past, orders.interval_ms).doubt(orders.rails.belief_min)


def sought(question: Question, advising: Advising, space: Space) -> Answer:
    """Search for a better setting, and for the one on the way to it that one change may reach."""
    scene, orders = question.scene, question.orders
    one = advising.advise(scene, question.tenure, question.kind)
    gain = one.record.get("guards", {}).get("gain", one.gain)
    if not isinstance(one.verdict, Apply):
        return Answer(one, scene.running, 1.0)
    best = one.verdict.knobs
    near = checks.within(scene.running, best, space, orders.safety, orders.mode)
    if near not in (best, scene.running):
        gain = advising.gain(scene, near)
    return Answer(one, near, gain)


def kept(kind: SearchKind, why: str, state: int | None) -> Decision:
    """Return the decision to leave all as it is, where nothing was found."""
    return Decision({"search": kind, "decision": "kept", "reason": why, "state": state})


def failed(question: Question, error: BaseException) -> Decision:
    """Return what becomes of a search that failed, or was stopped: nothing."""
    if isinstance(error, Interrupted):
        found = kept(question.kind, f"{STOPPED}: {error}", question.state)
        return Decision({**found.body, "interrupted": error.after})
    return kept(question.kind, f"the search failed: {type(error).__name__}: {error}", question.state)


def decided(
    question: Question,
    answer: Answer,
    standing: Standing,
    orders: Orders,
    now_ms: int,
    key: str,
    space: Space,
) -> Decision:
    """Say what the mode does with what was found, if nothing speaks against it.

    Args:
        standing: How things stand now. orders: how it is worked by now.
        now_ms: On the loop's own clock. key: of the change, if there is one.
    """
    why = _too_little(question, answer, orders, space)
    told = {
        "knobs": answer.wanted.jsonable(),
        "gain": answer.gain if math.isfinite(answer.gain) else None,
        "expected": question.version,
        "key": key,
    }
    if why is None and (why := checks.disappoints(answer.gain, standing.pairs, _least(answer, orders))):
        # What it would have come to is looked at all the same: else nothing could restore the belief.
        return _verdict(question, answer, "kept", why, {"doubted": told})
    if why is None and orders.mode != "shadow":
        why = objection(
            standing, answer.wanted, question.version, orders, now_ms, space, writes=question.writes
        )
    if why is not None:
        return _verdict(question, answer, "kept", why, {})
    reason = answer.one.verdict.reason
    if orders.mode == "shadow":
        return _verdict(question, answer, "shadow", reason, {"shadowed": told})
    if orders.mode == "approve":
        return _verdict(question, answer, "proposed", reason, {"proposed": told})
    change = answer.wanted, answer.gain
    return Decision(_verdict(question, answer, "applied", reason, {}).body, change)


def _verdict(
    question: Question, answer: Answer, decision: str, why: str, more: Mapping[str, Any]
) -> Decision:
    said = {"search": question.kind, "decision": decision, "reason": why, "state": question.state}
    return Decision({**said, **more, "round": answer.one.recorded()})


def _least(answer: Answer, orders: Orders) -> float:
    """Return the least gain that is enough; halfway to the best setting more is asked for."""
    is_best = isinstance(answer.one.verdict, Apply) and answer.wanted == answer.one.verdict.knobs
    return orders.rails.gain_min if is_best else max(orders.rails.gain_min, _ONCE_GAIN_MIN)


def _too_little(question: Question, answer: Answer, orders: Orders, space: Space) -> str | None:
    """Say why what was found is not enough to change anything."""
    verdict, running = answer.one.verdict, question.scene.running
    if not isinstance(verdict, Apply):
        return verdict.reason
    if answer.wanted == running:
        return (
            checks.moves_too_much(running, verdict.knobs, space, orders.safety, orders.mode)
            or "no legal setting is near enough"
        )
    halfway = answer.wanted != verdict.knobs
    if halfway and (math.isnan(answer.gain) or answer.gain < _least(answer, orders)):
        return f"the best setting is too far for one change, and halfway the gain is {answer.gain:.3f}"
    return None


def objection(
    standing: Standing,
    knobs: Knobs,
    expected: int,
    orders: Orders,
    now_ms: int,
    space: Space,
    *,
    writes: bool,
) -> str | None:
    """Say what speaks against writing a setting now, whatever it gains; None if nothing does.

    Args:
        expected: The version it was decided on.
        now_ms: On the loop's own clock.
        writes: Whether the scheduler lets its settings be changed.
    """
    if standing.paused or standing.breaker:
        return standing.paused or standing.breaker
    if standing.open is not None:
        return f"change {standing.open.key} is in flight: one at a time"
    if standing.torn is not None or standing.back is not None:
        return "a rollback comes first"
    if standing.knobs is None:
        return "nothing is known of what is in force"
    if not writes:
        return "this scheduler does not let its settings be changed"
    if expected != standing.version:
        return "the setting was changed since this was decided on"
    return (
        checks.illegal(knobs, space)
        or checks.moves_too_much(standing.knobs, knobs, space, orders.safety, orders.mode)
        or checks.dwells(standing.touched_for_ms(now_ms), orders.rails.dwell_ms)
    )


def opening(standing: Standing, safety: Safety) -> dict[str, Any] | None:
    """Return what is written as the breaker opens by losses or failures; None if it does not."""
    why = checks.breaks(standing.losses, standing.failures, safety)
    if why is None or standing.breaker:
        return None
    steady = standing.steady if standing.steady != standing.knobs else None
    return {"reason": why, "back": steady.jsonable() if steady else None}


def no_way_back(knobs: Knobs, space: Space) -> dict[str, Any] | None:
    """Return what is written as the breaker opens because the setting to go back to may not be written."""
    why = checks.illegal(knobs, space)
    return None if why is None else {"reason": f"there is no way back, {why}", "back": None}
