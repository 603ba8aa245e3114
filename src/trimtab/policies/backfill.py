"""Safe backfill: a job may start past others that wait if none of them is made late by it.

The free GPUs of the future are a step function made from when running jobs will end; GPUs are counted over
all nodes. Units that wait are entered in their order, each at its earliest start, those with a promise first:
they need not respect who has none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from trimtab.curve import FULL_SPEED_PPM

NEVER_MS = 1 << 60


class Outlook:
    """Free GPUs from each instant on, up to the next."""

    __slots__ = ("free", "times_ms")

    def __init__(self, times_ms: list[int], free: list[int]) -> None:
        self.times_ms = times_ms
        self.free = free

    @classmethod
    def of(cls, now_ms: int, free: int, releases: Iterable[tuple[int, int]]) -> Outlook:
        """Make one from the GPUs that are free now and (instant, GPUs) given back later."""
        times_ms, steps = [now_ms], [free]
        for time_ms, gpus in sorted(releases):
            free += gpus
            if time_ms <= times_ms[-1]:
                steps[-1] = free
            else:
                times_ms.append(time_ms)
                steps.append(free)
        return cls(times_ms, steps)

    def copy(self) -> Outlook:
        """Return an independent copy."""
        return Outlook(self.times_ms.copy(), self.free.copy())

    def earliest_ms(self, gpus: int, length_ms: int) -> int:
        """Return the first instant from which so many GPUs stay free for so long."""
        start = 0
        for place, free in enumerate(self.free):
            if place > start and self.times_ms[place] >= self.times_ms[start] + length_ms:
                break
            if free < gpus:
                start = place + 1
        return self.times_ms[start] if start < len(self.free) else NEVER_MS

    def take(self, start_ms: int, length_ms: int, gpus: int) -> None:
        """Take GPUs for a while; `start_ms` is not before the first instant."""
        first = self._cut(start_ms)
        last = self._cut(start_ms + length_ms)
        for place in range(first, last):
            self.free[place] -= gpus

    def _cut(self, time_ms: int) -> int:
        place = bisect_left(self.times_ms, time_ms)
        if place == len(self.times_ms) or self.times_ms[place] != time_ms:
            self.times_ms.insert(place, time_ms)
            self.free.insert(place, self.free[place - 1])
        return place


class Blocked(NamedTuple):
    """A unit that waits for GPUs: how many, for how long, and by when it has to start (None: no deadline)."""

    gpus: int
    length_ms: int
    latest_ms: int | None
    job_id: int = -1  # its first job
    is_promised: bool = False


@dataclass(slots=True)
class Backfill:
    """What may start now although others wait.

    Attributes:
        mode: `lst`: nobody may be pushed past its latest start, nor farther past it than it is; `easy`: the
            first may not start later; `conservative`: none may; `none`: none may, and nothing starts without
            a promise.
        reserve_ppm: Part of its run time that a unit's slack is not to be eaten below.
        blocked: Who waits, those with a promise in front.
        refused: By number of GPUs, the shortest run time that was refused without a promise. Who is as wide
            and as long is, too.
    """

    mode: str
    reserve_ppm: int
    outlook: Outlook
    blocked: list[Blocked] = field(default_factory=list)
    bounds_ms: list[int] | None = None
    refused: dict[int, int] = field(default_factory=dict)

    def block(self, unit: Blocked) -> None:
        """Let a unit wait; what starts from now on must respect it."""
        self.blocked.append(unit)
        self.bounds_ms = None

    def unblock(self, job_id: int) -> None:
        """Forget a unit that waits no more."""
        self.blocked = [unit for unit in self.blocked if unit.job_id != job_id]
        self.bounds_ms = None

    def start(self, now_ms: int, length_ms: int, gpus: int) -> None:
        """Enter what has been started."""
        self.outlook.take(now_ms, max(1, length_ms), gpus)
        self.bounds_ms = None

    def is_safe(self, now_ms: int, unit: Blocked) -> bool:
        """Whether a unit may start now; it need not respect what is kept for itself."""
        kept = [other for other in self.blocked if other.is_promised or not unit.is_promised]
        if not kept:
            return True
        if not unit.is_promised and (self.mode == "none" or self._is_refused(unit)):
            return False
        trial = self.outlook.copy()
        trial.take(now_ms, unit.length_ms, unit.gpus)
        for other, bound_ms in zip(kept, self._bounds_ms(), strict=False):
            if unit.job_id == other.job_id != -1:
                continue
            start_ms = trial.earliest_ms(other.gpus, other.length_ms)
            if start_ms > bound_ms:
                self._refuse(unit)
                return False
            trial.take(start_ms, other.length_ms, other.gpus)
        return True

    def _refuse(self, unit: Blocked) -> None:
        if not unit.is_promised:
            self.refused[unit.gpus] = min(unit.length_ms, self.refused.get(unit.gpus, unit.length_ms))

    def _is_refused(self, unit: Blocked) -> bool:
        refused = self.refused.items()
        return any(gpus <= unit.gpus and shortest_ms <= unit.length_ms for gpus, shortest_ms in refused)

    def _bounds_ms(self) -> list[int]:
        """Return by when each unit that counts has to start: its earliest start, or later if it has slack."""
        if self.bounds_ms is None:
            plan, bounds_ms = self.outlook.copy(), []
            for unit in self.blocked[: 1 if self.mode == "easy" else None]:
                base_ms = plan.earliest_ms(unit.gpus, unit.length_ms)
                plan.take(base_ms, unit.length_ms, unit.gpus)
                bounds_ms.append(max(base_ms, self._latest_ms(unit)))
            self.bounds_ms = bounds_ms
        return self.bounds_ms

    def _latest_ms(self, unit: Blocked) -> int:
        if self.mode != "lst" or unit.latest_ms is None:
            return -NEVER_MS
        return unit.latest_ms - unit.length_ms * self.reserve_ppm // FULL_SPEED_PPM
