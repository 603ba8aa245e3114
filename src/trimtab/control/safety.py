"""What a change must pass before it is written, beside its gain: pure checks, each with its sentence.

`guardrails.judge` says whether a setting is better enough. What is here says whether it may be written now,
by this mode, in one go. A check returns the sentence an operator reads, or None if nothing speaks against it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from trimtab.errors import ConfigError, UnknownName
from trimtab.knobs import Fault, Knobs, Space, Value, write

Mode = Literal["observe", "shadow", "canary", "approve", "auto"]
MODES: tuple[Mode, ...] = ("observe", "shadow", "canary", "approve", "auto")


@dataclass(frozen=True, slots=True)
class Step:
    """The largest step of a knob in one change: by a difference, or by a factor."""

    difference: float = math.inf
    factor: float = math.inf

    @classmethod
    def of(cls, name: str, text: object) -> Step:
        """Read `2` (a difference) or `x4` (a factor).

        Raises:
            ConfigError: If it is neither.
        """
        try:
            if isinstance(text, str) and text.startswith("x"):
                factor = float(text[1:])
                if factor > 1 and math.isfinite(factor):
                    return cls(factor=factor)
            elif isinstance(text, int | float) and not isinstance(text, bool) and 0 < text < math.inf:
                return cls(difference=float(text))
        except ValueError:
            pass
        raise ConfigError(
            f'{name} = {text!r:.60}: a step is a number above 0, or a factor above 1 such as "x4".'
        )

    def __str__(self) -> str:
        return f"x{self.factor:g}" if math.isfinite(self.factor) else f"{self.difference:g}"

    def allows(self, before: Value, after: Value) -> bool:
        """Whether one change may go from one value to another; of lists, place by place."""
        if isinstance(before, tuple) and isinstance(after, tuple):
            return all(self.allows(old, new) for old, new in zip(before, after, strict=False))
        if not _is_number(before) or not _is_number(after):
            return True
        return before == after or self.toward(before, after) == after

    def toward(self, before: Value, after: Value) -> Value:
        """Return the value nearest to `after` that one change may reach."""
        if isinstance(before, tuple) and isinstance(after, tuple):
            reached = [self.toward(old, new) for old, new in zip(before, after, strict=False)]
            whole = [round(value) for value in reached if isinstance(value, int | float)]
            return (*whole, *after[len(whole) :])
        if not isinstance(before, int | float) or not isinstance(after, int | float):
            return after
        if not _is_number(before) or not _is_number(after):
            return after
        low, high = before - self.difference, before + self.difference
        if math.isfinite(self.factor) and before > 0:
            low, high = max(low, before / self.factor), min(high, before * self.factor)
        clipped = min(max(after, low), high)
        if isinstance(after, int) and clipped != after:  # a whole number within the step
            return math.floor(clipped) if after > before else math.ceil(clipped)
        return clipped


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Safety:
    """What the loop may do, beside `Guardrails`; times in ms on its own clock.

    Attributes:
        read_only: Knobs that stay as they are. canary: the one knob that the mode canary changes.
        steps: The largest step of a knob.
        confirm_ms: How long a change may take until it is in force; then what is in force is kept.
        state_age_max_ms: The oldest state that is decided on.
        history_min_ms: The least history that is decided on.
        score_ms: When a change, or one that would have been made, is scored against what came.
        losses_max: Realised losses in a row after which the breaker opens. loss_below: the realised gain
            that is a loss.
        failures_max: Changes in a row that were not confirmed after which the breaker opens.
        proposal_ms: How long a proposal may be approved.
    """

    read_only: frozenset[str] = frozenset()
    canary: str | None = None
    steps: Mapping[str, Step] = field(default_factory=dict)
    confirm_ms: int = 120_000
    state_age_max_ms: int = 300_000
    history_min_ms: int = 86_400_000
    score_ms: int = 3_600_000
    losses_max: int = 3
    loss_below: float = 0.98
    failures_max: int = 3
    proposal_ms: int = 3_600_000

    def check(self, mode: Mode, space: Space) -> None:
        """Refuse what does not go with a policy's knobs.

        Raises:
            UnknownName: If a knob does not exist.
            ConfigError: If the mode is canary and no knob is named for it, or one that may not change; or a
                step is named for a knob whose values lie in no order.
        """
        for name in (*sorted(self.read_only), *self.steps, *([self.canary] if self.canary else [])):
            if name not in space.by_name:
                raise UnknownName("knob", name, space.by_name)
        for name, step in self.steps.items():
            if (kind := space.by_name[name].kind) in ("choice", "bool"):
                raise ConfigError(f"step {step} of knob {name}: it is a {kind}, which has no steps.")
        if mode == "canary" and self.canary is None:
            raise ConfigError("mode canary: guardrails.canary must name the one knob that may change.")
        if self.canary in self.read_only:
            raise ConfigError(f"knob {self.canary} is both canary and read-only.")

    def held(self, mode: Mode, space: Space) -> frozenset[str]:
        """Return the knobs that a change may not move."""
        if mode == "canary":
            return frozenset(space.by_name) - {self.canary or ""}
        return self.read_only


def within(running: Knobs, best: Knobs, space: Space, safety: Safety, mode: Mode) -> Knobs:
    """Return the legal setting on the way to another that one change may reach; the running one if none."""
    held = safety.held(mode, space)
    reached = {name: running[name] if name in held else value for name, value in best.items()}
    for name, step in safety.steps.items():
        if name not in held:
            reached[name] = step.toward(running[name], reached[name])
    found = space.project(reached)
    return running if moves_too_much(running, found, space, safety, mode) else found


def moves_too_much(running: Knobs, wanted: Knobs, space: Space, safety: Safety, mode: Mode) -> str | None:
    """Say which knob would move that may not, or by more than one change may."""
    held = safety.held(mode, space)
    for name, value in wanted.items():
        before = running.get(name)
        if before is None or before == value:
            continue
        if name in held:
            why = f"mode canary changes {safety.canary} alone" if mode == "canary" else "it is read-only"
            return f"{name} would go from {write(before)} to {write(value)}: {why}"
        step = safety.steps.get(name)
        if step is not None and not step.allows(before, value):
            return f"{name} would go from {write(before)} to {write(value)}: at most {step} in one change"
    return None


def illegal(wanted: Knobs, space: Space) -> str | None:
    """Say what makes a setting another than its own projection: such a one is never written."""
    match space.fault(wanted):
        case Fault("type"):
            return "the setting has values of the wrong kind: it is never written"
        case Fault("missing", name):
            return f"the setting lacks knob {name}: it is never written"
        case Fault("unknown", name):
            return f"the setting has an unknown knob {name}: it is never written"
        case Fault("value", name, given, nearest):
            return f"{name} = {write(given)} is not legal, {write(nearest)} would be: it is never written"
    return None


def dwells(touched_for_ms: int, dwell_ms: int) -> str | None:
    """Say that the last change, or attempt at one, is too short a time ago."""
    if touched_for_ms >= dwell_ms:
        return None
    return f"the last change was {touched_for_ms / 1000:g} s ago, dwell is {dwell_ms / 1000:g} s"


def corrected(gain: float, pairs: Sequence[tuple[float, float]]) -> float:
    """Return a predicted gain as far as gains came true so far.

    The part of a log gain that is believed is the ratio of summed log gains, realised over predicted, drawn
    to 1 by one gain of 1.1 that came true; it is 0 at least and 1 at most.

    Args:
        pairs: Predicted and realised gains of changes, made or shadowed.
    """
    if not math.isfinite(gain) or gain <= 0:
        return gain
    doubt = math.log(1.1)
    promised = doubt + sum(math.log(predicted) for predicted, _ in pairs)
    kept = doubt + sum(math.log(realised) for _, realised in pairs)
    return math.exp(min(max(kept / promised, 0.0), 1.0) * math.log(gain))


def disappoints(gain: float, pairs: Sequence[tuple[float, float]], gain_min: float) -> str | None:
    """Say that a gain is too small once it is corrected by what gains came to so far."""
    least, believed = max(gain_min, 1.0), corrected(gain, pairs)
    if believed >= least and believed > 1:
        return None
    return (
        f"gain {gain:.3f} is {believed:.3f} by what {len(pairs)} earlier gains came to, "
        f"which is under {least:g}"
    )


def breaks(losses: int, failures: int, safety: Safety) -> str | None:
    """Say why the circuit breaker opens."""
    if losses >= safety.losses_max:
        return (
            f"{losses} changes in a row lost against the setting before them: nothing is changed until resume"
        )
    if failures >= safety.failures_max:
        return f"{failures} changes in a row were not confirmed: nothing is changed until resume"
    return None
