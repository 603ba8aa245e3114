"""An adapter in front of another one that fails as real schedulers fail, by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from trimtab.control.adapter import (
    Adapter,
    Change,
    EventKind,
    Identity,
    InForce,
    JobEvent,
    Receipt,
    Refused,
    State,
    Unreachable,
)
from trimtab.errors import ConfigError, UnknownName
from trimtab.job import JobFacts
from trimtab.knobs import Knobs, Space
from trimtab.policies.catalog import find_policy
from trimtab.world import Seeds

Fault = Literal[
    "time_out",  # any call: it does not reach the scheduler
    "stale_state",  # state: the one told before
    "stale_knobs",  # in_force: the one told before
    "torn_state",  # state: some of its jobs are missing, others stand there twice
    "apply_lost",  # apply: no answer, and it is never written
    "apply_not_in_force",  # apply: acknowledged, but never written
    "apply_late",  # apply: no answer; it is written minutes later, unless something else was written first
    "apply_half",  # apply: acknowledged, but only some of the knobs are written
    "apply_unanswered",  # apply: written, but the answer is lost
    "restart",  # apply: no answer; it was written or not, and versions count on from elsewhere
    "clock_jump",  # now_ms, in_force: the clock is another from now on
    "duplicate_events",  # events: some come twice, some come again
    "disorder",  # events: in another order, and one of them an answer later
    "flood",  # events: ten for each one, about jobs that come and go
    "empty_accounting",  # events: none, though there are
]
FAULTS: tuple[Fault, ...] = get_args(Fault)

_HOUR_MS = 3_600_000
_LATE_MS = 10 * 60_000
_JUMP_VERSIONS = 1000
# The life of a job that a flood brings: with the real event ten.
_FLOOD: tuple[EventKind, ...] = ("submit", *("start", "preempt") * 3, "start", "cancel")
_TENFOLD = 1 + len(_FLOOD)


@dataclass(frozen=True, slots=True)
class Injected:
    """A fault that happened.

    Attributes:
        call: The method it befell. time_ms: the scheduler's true clock then.
        detail: What was done, for people.
    """

    fault: Fault
    call: str
    time_ms: int
    detail: str = ""


class Faulty:
    """An adapter that fails; see `Adapter`.

    The scheduler behind it is told the truth and tells it: what is wrong is only what goes through here. No
    fault writes a setting that is not legal.

    Args:
        inner: The adapter it stands in front of.
        rates: How often each fault befalls a call it can befall, 0 .. 1; those not named never do.
        seeds: Random streams: the same calls meet the same faults.
        space: The policy's knobs, if it is none of the built-in ones.

    Attributes:
        log: What has been done to whom so far.

    Raises:
        UnknownName: If there is no such fault.
        ConfigError: If a rate is no share.
    """

    def __init__(
        self,
        inner: Adapter,
        rates: Mapping[Fault, float],
        seeds: Seeds,
        space: Space | None = None,
    ) -> None:
        for name, rate in rates.items():
            if name not in FAULTS:
                raise UnknownName("fault", name, FAULTS)
            if not 0 <= rate <= 1:
                raise ConfigError(f"fault {name} = {rate}: its rate must be 0 .. 1; nothing was run.")
        self.log: list[Injected] = []
        self._inner, self._rates, self._seeds = inner, dict(rates), seeds
        self._space = space
        self._dice = {name: seeds.stream("fault", name) for name in FAULTS}
        self._state: State | None = None
        self._in_force: InForce | None = None
        self._late: list[tuple[int, Change]] = []  # when it is written, by the true clock
        self._held_back: list[JobEvent] = []
        self._recent: list[JobEvent] = []
        self._clock_ms = 0  # what the clock is off by
        self._versions = 0  # what versions are off by

    def identity(self) -> Identity:
        self._begin("identity")
        return self._inner.identity()

    def now_ms(self) -> int:
        self._begin("now_ms")
        self._jump("now_ms")
        return self._inner.now_ms() + self._clock_ms

    def in_force(self) -> InForce:
        self._begin("in_force")
        self._jump("in_force")
        if self._in_force is not None and self._happens("stale_knobs", "in_force"):
            return self._in_force
        found = self._inner.in_force()
        self._in_force = replace(
            found, version=found.version + self._versions, as_of_ms=found.as_of_ms + self._clock_ms
        )
        return self._in_force

    def state(self) -> State:
        self._begin("state")
        if self._state is not None and self._happens("stale_state", "state"):
            return self._state
        self._state = self._inner.state()
        if self._state.labels and self._happens("torn_state", "state"):
            return self._torn(self._state)
        return self._state

    def events(self, after: int, most: int) -> Sequence[JobEvent]:
        self._begin("events")
        if self._happens("empty_accounting", "events"):
            return ()
        floods = self._rates.get("flood", 0) > 0
        found = self._flooded(after, most) if floods else list(self._inner.events(after, most))
        if len(found) > 1 and self._happens("duplicate_events", "events"):
            found = self._with_duplicates(found, most)
        if len(found) > 1 and self._happens("disorder", "events"):
            found = self._disordered(found, most)
        elif self._held_back and len(found) < most:
            found, self._held_back = [*found, *self._held_back], []
        return found

    def apply(self, change: Change) -> Receipt:
        self._begin("apply")
        wish = replace(change, expected=change.expected - self._versions)
        if self._happens("apply_lost", "apply", change.key):
            raise Unreachable(f"change {change.key}: no answer in time.")
        if self._happens("apply_not_in_force", "apply", change.key):
            return Receipt(change.key, change.expected + 1)
        if self._happens("apply_late", "apply", change.key):
            delay_ms = int(self._dice["apply_late"].integers(1, _LATE_MS))
            self._late.append((self._inner.now_ms() + delay_ms, wish))
            raise Unreachable(f"change {change.key}: no answer in time.")
        if self._happens("restart", "apply", change.key):
            self._restart(wish)
            raise Unreachable(f"change {change.key}: the connection broke off.")
        if self._happens("apply_half", "apply", change.key):
            wish = replace(wish, key=f"{change.key}/half", knobs=self._half(wish.knobs))
        receipt = self._inner.apply(wish)
        if self._happens("apply_unanswered", "apply", change.key):
            raise Unreachable(f"change {change.key}: the answer got lost.")
        return Receipt(change.key, receipt.version + self._versions)

    # ---- faults ----------------------------------------------------------------------------------

    def _happens(self, fault: Fault, call: str, detail: str = "") -> bool:
        """Whether a fault happens now; what happens is logged."""
        rate = self._rates.get(fault, 0.0)
        if rate == 0 or self._dice[fault].random() >= rate:
            return False
        self.log.append(Injected(fault, call, self._inner.now_ms(), detail))
        return True

    def _begin(self, call: str) -> None:
        """Write what comes late, and let the call be lost if it is to be."""
        now_ms = self._inner.now_ms()
        due = [change for due_ms, change in self._late if due_ms <= now_ms]
        self._late = [(due_ms, change) for due_ms, change in self._late if due_ms > now_ms]
        for change in due:
            self._try(change)
        if self._happens("time_out", call):
            raise Unreachable(f"{call}: no answer in time.")

    def _try(self, change: Change) -> None:
        """Write a setting of which nobody waits for an answer."""
        try:
            self._inner.apply(change)
        except Refused:
            return

    def _restart(self, change: Change) -> None:
        dice = self._dice["restart"]
        if dice.random() < 0.5:
            self._try(change)
        resets = dice.random() < 0.5
        self._versions = -self._inner.in_force().version if resets else self._versions + _JUMP_VERSIONS

    def _half(self, knobs: Knobs) -> Knobs:
        """Return a legal setting that has some knobs of a new one, and at least one as it is."""
        before = self._inner.in_force().knobs
        moved = [name for name in knobs if knobs[name] != before[name]]
        kept = [name for name in moved if self._dice["apply_half"].random() < 0.5] or moved[:1]
        space = self._space or find_policy(self._inner.identity().policy).space
        return space.project({**knobs, **{name: before[name] for name in kept}})

    def _jump(self, call: str) -> None:
        if self._happens("clock_jump", call):
            self._clock_ms = int(self._dice["clock_jump"].integers(-_HOUR_MS, _HOUR_MS + 1))

    def _torn(self, state: State) -> State:
        """Return a state of which a part of the jobs is missing, and a part stands there twice."""
        drawn = self._dice["torn_state"].random(len(state.labels))
        times = [0 if one < 0.2 else 2 if one > 0.8 else 1 for one in drawn]
        jobs = tuple(job.copy() for job, n in zip(state.snapshot.jobs, times, strict=True) for _ in range(n))
        labels = tuple(label for label, n in zip(state.labels, times, strict=True) for _ in range(n))
        return State(replace(state.snapshot, jobs=jobs), labels)

    def _with_duplicates(self, found: list[JobEvent], most: int) -> list[JobEvent]:
        """Return the events, some of them twice, and some told before; what is too many comes later."""
        dice = self._dice["duplicate_events"]
        twice = [event for event in found for _ in range(1 + int(dice.random() < 0.5))][:most]
        again, self._recent = self._recent, twice[-5:]
        return [*twice, *again][:most]

    def _disordered(self, found: list[JobEvent], most: int) -> list[JobEvent]:
        """Return events in another order, one of them held back until the next answer."""
        order = self._dice["disorder"].permutation(len(found)).tolist()
        shuffled = [found[place] for place in order]
        late, self._held_back = self._held_back, [shuffled.pop()]  # never more than one
        return [*shuffled, *late]

    def _flooded(self, after: int, most: int) -> list[JobEvent]:
        """Return ten events for each one that a flood meets; numbers are tenfold, and stay with the event."""
        told: list[JobEvent] = []
        real = after // _TENFOLD  # the last one that has been told, or is being told
        for event in self._inner.events(max(0, real - 1), most + 1):
            told.append(replace(event, number=_TENFOLD * event.number))
            told += self._flood(event)
        return [event for event in told if event.number > after][:most]

    def _flood(self, event: JobEvent) -> list[JobEvent]:
        """Return the life of a job that comes and goes, right after an event; always the same one."""
        dice = self._seeds.stream("flood", event.number)
        if dice.random() >= self._rates["flood"]:
            return []
        facts = JobFacts(f"flood-{event.number}", event.time_ms, int(dice.integers(1, 9)))
        return [
            JobEvent(
                _TENFOLD * event.number + place,
                kind,
                event.time_ms,
                facts.label,
                facts if kind == "submit" else None,
            )
            for place, kind in enumerate(_FLOOD, 1)
        ]
