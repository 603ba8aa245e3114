"""A loop beside a scheduler of many short jobs: what it remembers has an end, and so has what that takes."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from hostile import CLUSTER, ORDERS, POLICY, SPACE, Played
from trimtab.control.adapter import Change, Identity, InForce, JobEvent, Receipt, Refused, State
from trimtab.control.ledger import Ledger
from trimtab.control.loop import Loop
from trimtab.control.observed import Seen, observe
from trimtab.control.orders import Plant
from trimtab.control.register import WINDOW, Register
from trimtab.control.status import status_of
from trimtab.job import JobFacts
from trimtab.policies.catalog import find_policy
from trimtab.search.spaces import search_space
from trimtab.simulate.state import Environment

EVERY_MS = 4_000  # a job comes, one starts and one ends
WAITS, THERE = 4, 12  # jobs that wait, and that are there
ENDED_MAX = 1000
MINUTE_MS = 60_000


class Endless:
    """A scheduler that never stops and remembers nothing: what happened follows from the time.

    Args:
        busy: How many events happen whenever it is asked for them.
    """

    def __init__(self, busy: int = 0) -> None:
        self.clock_ms, self._busy, self.asked = 0, busy, 0

    def identity(self) -> Identity:
        return Identity("endless", POLICY, CLUSTER, writes=True)

    def now_ms(self) -> int:
        return self.clock_ms

    def in_force(self) -> InForce:
        return InForce(SPACE.defaults, 1, self.clock_ms)

    def state(self) -> State:
        last = (self.clock_ms - 1) // EVERY_MS
        jobs = [self._seen(last - age, age) for age in range(min(THERE, last + 1))]
        return observe(POLICY, CLUSTER, SPACE.defaults, self.clock_ms, jobs)

    def _seen(self, number: int, age: int) -> Seen:
        if age < WAITS:
            return Seen(facts=_facts(number))
        held_ms = self.clock_ms - (number + WAITS) * EVERY_MS
        return Seen(facts=_facts(number), nodes=((number % 2, 1),), held_ms=held_ms)

    def events(self, after: int, most: int) -> Sequence[JobEvent]:
        self.asked += 1
        self.clock_ms += self._busy * EVERY_MS // 3
        last = 3 * ((self.clock_ms - 1) // EVERY_MS + 1)
        numbers = range(after + 1, min(after + most, last) + 1)
        return [event for number in numbers if (event := _event(number)) is not None]

    def apply(self, change: Change) -> Receipt:
        raise Refused("it stays as it is.")


def _facts(number: int) -> JobFacts:
    return JobFacts(f"job-{number}", number * EVERY_MS, 1, user=f"u{number % 9}", name=f"n{number}")


def _event(number: int) -> JobEvent | None:
    """Return one of the three things that happen at an instant, if there is a job it can happen to."""
    turn, which = divmod(number - 1, 3)
    at_ms = turn * EVERY_MS
    if which == 2:
        return JobEvent(number, "submit", at_ms, f"job-{turn}", _facts(turn))
    if which == 1:
        return JobEvent(number, "start", at_ms, f"job-{turn - WAITS}") if turn >= WAITS else None
    ran_ms = (THERE - WAITS) * EVERY_MS
    return JobEvent(number, "finish", at_ms, f"job-{turn - THERE}", None, ran_ms) if turn >= THERE else None


def _loop(scheduler: Endless, ledger: Ledger) -> Loop:
    space = search_space(find_policy(POLICY), SPACE.defaults, "count")
    plant = Plant(POLICY, space, Environment(placement="count"))
    loop = Loop(scheduler, ledger, plant, ORDERS, Played(1), scheduler.now_ms, "soak")
    loop.register = Register(ENDED_MAX)
    loop.start({})
    return loop


def _soak(loop: Loop, scheduler: Endless, jobs: int) -> int:
    """Let so many jobs come, and return the bytes in use then."""
    until_ms = scheduler.clock_ms + jobs * EVERY_MS
    while scheduler.clock_ms < until_ms:
        scheduler.clock_ms = max(loop.tick(), scheduler.clock_ms + 1)
        assert len(loop.register) <= ENDED_MAX + THERE + 10 * MINUTE_MS // EVERY_MS
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_memory_does_not_grow_with_the_jobs_that_ever_were(tmp_path: Path) -> None:
    scheduler = Endless()
    with Ledger.open(f"sqlite:///{tmp_path}/journal.db") as ledger:
        loop = _loop(scheduler, ledger)
        _soak(loop, scheduler, 100)
        tracemalloc.start()
        try:
            first = _soak(loop, scheduler, 2 * ENDED_MAX)
            last = _soak(loop, scheduler, 2 * ENDED_MAX)
        finally:
            tracemalloc.stop()
        states, size = ledger.state_bytes()
    assert loop.trouble == {}
    assert last < 1.15 * first
    # What was let go is told, and leaves the journal's parts as they are for a while.
    assert loop.register.let_go >= 2 * ENDED_MAX
    assert status_of(loop, scheduler.clock_ms)["jobs_let_go"] == loop.register.let_go
    assert size / states < 10 * ENDED_MAX


def test_the_youngest_are_remembered_with_what_they_ran() -> None:
    """There is room for some: what is known of those is what a register with room for all knows of them."""
    scheduler, small, large = Endless(), Register(ENDED_MAX), Register()
    while scheduler.clock_ms < 3 * ENDED_MAX * EVERY_MS:
        scheduler.clock_ms += MINUTE_MS
        for register in (small, large):
            register.hear(scheduler.events(register.after, WINDOW))
            register.see(scheduler.state())
    assert large.let_go == 0
    assert small.let_go == len(large) - len(small)
    past, facts = small.past(scheduler.state())
    every, whole = large.past(scheduler.state())
    assert ENDED_MAX // 2 < len(past) <= ENDED_MAX + THERE
    assert facts == whole[-len(facts) :]
    for column in ("submit_ms", "gpus", "finish_ms", "ran_ms"):
        assert getattr(past, column).tolist() == getattr(every, column)[-len(past) :].tolist(), column
    assert set(past.ran_ms[past.completed].tolist()) == {(THERE - WAITS) * EVERY_MS}


@pytest.mark.parametrize("busy", [1, 100])
def test_events_that_happen_while_events_are_read_do_not_hold_up_a_tick(tmp_path: Path, busy: int) -> None:
    scheduler = Endless(busy)
    with Ledger.open(f"sqlite:///{tmp_path}/journal.db") as ledger:
        loop = _loop(scheduler, ledger)
        for _ in range(5):
            scheduler.clock_ms += 60 * MINUTE_MS
            scheduler.asked = 0
            loop.tick()
            assert 1 <= scheduler.asked <= 3
