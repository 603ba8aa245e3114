"""What to do about a change in flight, and about a setting that nobody here asked for: pure functions.

The only evidence is what the scheduler says it goes by. A change is asked for again under its own key as long
as there is no receipt; with one, it is waited for. When its time is up, what is in force is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trimtab.control.adapter import InForce
from trimtab.control.standing import Open, Standing
from trimtab.knobs import Knobs


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the scheduler for the change, again perhaps."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again later."""


@dataclass(frozen=True, slots=True)
class Settle:
    """Write down what became of it, as the journal calls it, and what the operator reads.

    Attributes:
        again: Whether it is to be tried again: a rollback is, unless somebody else chose a setting.
    """

    outcome: Literal["confirmed", "refused", "unknown", "rolled_back"]
    why: str
    again: bool = False


def next_step(change: Open, read: InForce, now_ms: int, confirm_ms: int) -> Ask | Wait | Settle:
    """Say what is next for a change in flight.

    Args:
        read: What is in force.
        now_ms: On the loop's own clock.
        confirm_ms: How long a change may take.
    """
    if read.knobs == change.knobs:
        return Settle("confirmed", "what was desired is in force")
    late_s = (now_ms - change.since_ms) / 1000
    if read.knobs != change.before:
        if read.version == change.written or mixed(read.knobs, change.before, change.knobs):
            return _half(change)
        return Settle("refused", "somebody else changed the setting meanwhile: theirs is kept")
    is_rollback = change.purpose == "rollback"
    if late_s * 1000 >= confirm_ms:
        said = "acknowledged, but not" if change.written is not None else "not"
        return Settle("refused", f"{said} in force after {late_s:g} s: what is in force is kept", is_rollback)
    if change.written is not None:
        return Wait()
    if read.version != change.expected:
        why = f"version {read.version} is in force, not {change.expected}: nothing was changed"
        return Settle("refused", why, is_rollback)
    return Ask()


def _half(change: Open) -> Settle:
    if change.purpose == "rollback":
        return Settle("refused", "only a part of the rollback is in force: it is tried again", again=True)
    return Settle("unknown", "only a part of the change is in force: it is rolled back")


def mixed(found: Knobs, before: Knobs, after: Knobs) -> bool:
    """Whether a setting is made of two others' values, and is neither."""
    names = {*found, *before, *after}
    return found not in (before, after) and all(
        name in found and found[name] in (before.get(name), after.get(name)) for name in names
    )


@dataclass(frozen=True, slots=True)
class Found:
    """What is in force is not what was found last: how that is written down, and of which change.

    Attributes:
        found: `seen` for the first time; `restarted`, the same setting under another version; `late`, a
            change that was given up; `half` of one; `foreign`, somebody else's.
    """

    found: Literal["seen", "restarted", "late", "half", "foreign"]
    change: Open | None = None


def reconcile(standing: Standing, read: InForce) -> Found | None:
    """Say what a setting is that is in force while no change is in flight; None if it is the known one."""
    if standing.knobs is None:
        return Found("seen")
    if read.knobs == standing.knobs:
        return None if read.version == standing.version else Found("restarted")
    for change in standing.given_up:
        if read.knobs == change.knobs:
            return Found("late", change)
    for change in standing.given_up:
        if mixed(read.knobs, change.before, change.knobs):
            return Found("half", change)
    return Found("foreign")
