"""What a change was worth: the setting before it and the one after it, both tried on what really came."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.control.sight import Sight
from trimtab.control.standing import Standing, Unscored
from trimtab.curve import FULL_SPEED_PPM
from trimtab.errors import ConfigError
from trimtab.forecast.history import Past
from trimtab.job import JobFacts
from trimtab.knobs import Knobs
from trimtab.objective import Objective
from trimtab.search.futures import Future, situation_of
from trimtab.search.scene import Scene
from trimtab.simulate.trials import Trials
from trimtab.simulate.whatif import Situation

if TYPE_CHECKING:
    from trimtab.control.advising import Advising  # which says what a shadow is worth

# What changes were decided on is kept at hand for so many that wait for their score.
_AT_HAND_MAX = 8


@dataclass(frozen=True, eq=False)
class Shadow:
    """A change that was made, or would have been, as it is scored.

    Attributes:
        scene: What it was decided on; `scene.running` is the setting that it is compared with.
        knobs: The setting. gain: what was predicted.
        made: Whether it was really made. key: of the change, or of the round it would have been made in.
    """

    scene: Scene
    knobs: Knobs
    gain: float
    made: bool
    key: str


def at_hand(scenes: Mapping[int, Scene], standing: Standing) -> dict[int, Scene]:
    """Return those of the scenes, by number of their entry, that the last changes wait for a score with."""
    wanted = {one.state for one in standing.unscored[-_AT_HAND_MAX:]}
    return {number: scene for number, scene in scenes.items() if number in wanted}


def scored(
    one: Unscored, begun: Scene | str, sight: Sight, advising: Advising, loss_below: float
) -> dict[str, Any]:
    """Return what a trial says of a change: the gain it had, or why that is not known.

    Args:
        begun: What it was decided on, or why that cannot be had.
        sight: What is known now.
        loss_below: The gain that is a loss.
    """
    if isinstance(begun, str):
        return _lost(one, begun)
    shadow = Shadow(begun, one.knobs, one.gain, one.made, one.key)
    gain, why = math.nan, {}
    try:
        if sight.past.now_ms <= begun.now_ms:
            raise ConfigError("the scheduler's clock has not moved since")
        gain = advising.realised(shadow, sight.past, sight.facts)
    except Exception as problem:  # what cannot be tried again must not be tried for ever
        why = {"why": f"{type(problem).__name__}: {problem}"}
    return {
        "of": one.key,
        "made": one.made,
        "knobs": one.knobs.jsonable(),
        "before": begun.running.jsonable(),
        "predicted": one.gain,
        "realised": gain if math.isfinite(gain) and gain > 0 else None,
        "loss": gain < loss_below,
        **why,
    }


def _lost(one: Unscored, why: str) -> dict[str, Any]:
    """Return what a trial says of a change whose state is no longer there."""
    return {
        "of": one.key,
        "made": one.made,
        "knobs": one.knobs.jsonable(),
        "predicted": one.gain,
        "realised": None,
        "loss": False,
        "why": why,
    }


def what_came(scene: Scene, past: Past, facts: Sequence[JobFacts]) -> Situation:
    """Return a scene with what really came after it, up to a later instant.

    A job that had not completed by then is taken to run on beyond it whatever the setting: how long it will
    run is not known, and does not matter until then.

    Args:
        past: What is known at the later instant. facts: what was submitted, by row of `past`.
    """
    span_ms = past.now_ms - scene.now_ms
    rows = {one.label: row for row, one in enumerate(facts)}
    run_ms = np.maximum(past.ran_ms + np.where(past.completed, 0, span_ms), 1).tolist()
    active_ms = []
    for job in scene.snapshot.jobs:
        row, done_ms = rows.get(job.facts.label), -(-job.done // FULL_SPEED_PPM)
        active_ms.append(done_ms + span_ms if row is None else max(run_ms[row], done_ms + 1))
    there = {job.facts.label for job in scene.snapshot.jobs}
    came = np.flatnonzero((past.submit_ms >= scene.now_ms) & (past.submit_ms < past.now_ms)).tolist()
    coming = [row for row in came if facts[row].label not in there]
    future = Future(active_ms, [facts[row] for row in coming], [run_ms[row] for row in coming])
    return situation_of(scene.snapshot, future, scene.cluster, scene.policy, scene.environment, span_ms)


def realised_gain(
    shadow: Shadow, past: Past, facts: Sequence[JobFacts], trials: Trials, objective: Objective
) -> float:
    """Return the gain that a change has, or would have had, over none, on what really came.

    Args:
        past: What is known at an instant later than the shadow's. facts: by its rows.
    """
    situation = what_came(shadow.scene, past, facts)
    before, after = trials.measure(situation, [shadow.scene.running, shadow.knobs], objective)
    return objective.gain(before.cost, after.cost)
