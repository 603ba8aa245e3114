"""How the loop works, and what it takes its scheduler for."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.control.guardrails import Guardrails
from trimtab.control.safety import Mode, Safety
from trimtab.knobs import Space
from trimtab.search.space import SearchSpace
from trimtab.simulate.state import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """How the loop works; all of it may be exchanged while it runs. Times in ms on its own clock.

    Attributes:
        interval_ms: Between main rounds. background_ms: between light ones, None for none.
        poll_ms: Between looks at the scheduler.
        rails: Of these, dwell and the time for which no knob goes back are asked of every change.
        belief_min: in `rails`, asked of the forecast of the next hour.
    """

    mode: Mode
    rails: Guardrails
    safety: Safety
    interval_ms: int = 3_600_000
    background_ms: int | None = 300_000
    poll_ms: int = 60_000


@dataclass(frozen=True)
class Plant:
    """What the scheduler is modelled by: its policy, world, and where better settings are looked for."""

    policy: str
    space: SearchSpace
    environment: Environment

    @property
    def knobs(self) -> Space:
        return self.space.space
