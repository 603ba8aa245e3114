"""Each fault is what it says, happens at its rate, is logged, and never writes an illegal setting."""

from __future__ import annotations

from contextlib import suppress

import pytest

import scenario
from trimtab.cluster import Cluster
from trimtab.control.adapter import Change, JobEvent, Receipt, Refused, Unreachable, refuse_illegal
from trimtab.control.faulty import FAULTS, Fault, Faulty
from trimtab.control.simulated import Simulated
from trimtab.errors import ConfigError, UnknownName
from trimtab.policies.catalog import find_policy
from trimtab.simulate.state import Environment
from trimtab.world import Seeds

SPACE = find_policy("tiresias").space
BEFORE = SPACE.defaults
AFTER = SPACE.project({**BEFORE, "min_run": 60, "in_queue_order": "start", "pack_limit": 0.5})
MINUTE_MS = 60_000


def pair(rate: float = 1.0, *faults: Fault, seed: int = 1) -> tuple[Simulated, Faulty]:
    rows = "\n".join(f"j{n} {20 * n} {30 + 7 * (n % 11)} {1 + n % 4}" for n in range(60))
    workload = scenario.jobs(f"job submit_s duration_s gpus\n{rows}")
    inner = Simulated(workload, Cluster.pool(2, 4), "tiresias", BEFORE, Environment())
    inner.advance(400_000)
    return inner, Faulty(inner, dict.fromkeys(faults, rate), Seeds(seed))


def befallen(adapter: Faulty) -> list[tuple[Fault, str]]:
    return [(one.fault, one.call) for one in adapter.log]


def numbers(events: list[JobEvent]) -> list[int]:
    return [event.number for event in events]


def test_without_faults_it_is_the_adapter_behind_it() -> None:
    inner, adapter = pair()
    assert (adapter.identity(), adapter.now_ms()) == (inner.identity(), inner.now_ms())
    assert adapter.in_force() == inner.in_force()
    assert adapter.state().labels == inner.state().labels
    assert adapter.events(3, 20) == inner.events(3, 20)
    assert adapter.apply(Change("k", AFTER, 1)) == inner.apply(Change("k", AFTER, 1)) == Receipt("k", 2)
    assert adapter.log == []


@pytest.mark.parametrize("call", ["identity", "now_ms", "in_force", "state"])
def test_any_call_may_time_out(call: str) -> None:
    _, adapter = pair(1.0, "time_out")
    with pytest.raises(Unreachable, match=call):
        getattr(adapter, call)()
    assert befallen(adapter) == [("time_out", call)]


def test_what_is_stale_was_true_before() -> None:
    inner, adapter = pair(1.0, "stale_state", "stale_knobs")
    state, knobs = adapter.state(), adapter.in_force()
    inner.apply(Change("k", AFTER, 1))
    inner.advance(500_000)
    assert adapter.state().snapshot.now_ms == state.snapshot.now_ms == 400_000
    assert adapter.in_force() == knobs
    assert befallen(adapter) == [("stale_state", "state"), ("stale_knobs", "in_force")]


def test_a_torn_state_lacks_jobs_and_doubles_others() -> None:
    inner, adapter = pair(1.0, "torn_state")
    true, torn = inner.state(), adapter.state()
    assert len(torn.labels) == len(torn.snapshot.jobs)
    assert [job.facts.label for job in torn.snapshot.jobs] == list(torn.labels)
    assert set(torn.labels) < set(true.labels)
    assert len(set(torn.labels)) < len(torn.labels)


@pytest.mark.parametrize(
    ("fault", "is_answered", "is_written"),
    [
        ("apply_lost", False, False),
        ("apply_not_in_force", True, False),
        ("apply_unanswered", False, True),
        ("time_out", False, False),
    ],
)
def test_an_answer_and_a_write_are_two_things(fault: Fault, is_answered: bool, is_written: bool) -> None:
    inner, adapter = pair(1.0, fault)
    if is_answered:
        assert adapter.apply(Change("k", AFTER, 1)) == Receipt("k", 2)
    else:
        with pytest.raises(Unreachable):
            adapter.apply(Change("k", AFTER, 1))
    inner.advance(400_001)
    assert inner.in_force().knobs == (AFTER if is_written else BEFORE)


def test_what_comes_late_is_written_unless_something_else_was_first() -> None:
    for other in (False, True):
        inner, adapter = pair(1.0, "apply_late")
        with pytest.raises(Unreachable):
            adapter.apply(Change("k", AFTER, 1))
        if other:
            inner.apply(Change("by hand", SPACE.project({"min_run": 7}), 1))
        inner.advance(inner.now_ms() + 10 * MINUTE_MS)
        adapter.now_ms()
        inner.advance(inner.now_ms() + 1)
        assert (inner.in_force().knobs == AFTER) is not other
        assert inner.in_force().version == 2


def test_half_a_setting_is_legal_and_neither_the_old_nor_the_new_one() -> None:
    found = set()
    for seed in range(20):
        inner, adapter = pair(1.0, "apply_half", seed=seed)
        assert adapter.apply(Change("k", AFTER, 1)) == Receipt("k", 2)
        inner.advance(400_001)
        knobs = inner.in_force().knobs
        refuse_illegal(SPACE, knobs)
        found.add(knobs)
    assert AFTER not in found
    assert len(found - {BEFORE}) > 2


def test_a_restart_answers_nothing_and_counts_on_from_elsewhere() -> None:
    seen = set()
    for seed in range(24):
        inner, adapter = pair(1.0, "restart", seed=seed)
        with pytest.raises(Unreachable):
            adapter.apply(Change("k", AFTER, 1))
        inner.advance(400_001)
        seen.add((inner.in_force().knobs == AFTER, adapter.in_force().version))
    assert seen == {(False, 0), (False, 1001), (True, 1), (True, 1002)}


def test_versions_after_a_restart_go_with_each_other() -> None:
    inner, adapter = pair(1.0, "restart")
    with pytest.raises(Unreachable):
        adapter.apply(Change("k", AFTER, 1))
    calm = Faulty(inner, {}, Seeds(1))
    calm._versions = adapter._versions
    inner.advance(400_001)
    version = calm.in_force().version
    with pytest.raises(Refused):
        calm.apply(Change("next", BEFORE, version + 1))
    assert calm.apply(Change("next", BEFORE, version)).version == version + 1


def test_a_clock_jumps_and_stays_where_it_is() -> None:
    inner, adapter = pair(0.3, "clock_jump")
    off = [adapter.now_ms() - inner.now_ms() for _ in range(40)]
    assert off[0] == 0
    assert len(set(off)) == len(adapter.log) + 1
    assert all(abs(one) <= 60 * MINUTE_MS for one in off)


def drained(adapter: Faulty, most: int) -> list[JobEvent]:
    """Read until nothing is new, as somebody does who goes on from the largest number he has seen."""
    found: list[JobEvent] = []
    for _ in range(3000):
        got = adapter.events(max(numbers(found), default=0), most)
        assert len(got) <= most
        found += got
    return found


@pytest.mark.parametrize("faults", [("duplicate_events",), ("disorder",), ("duplicate_events", "disorder")])
@pytest.mark.parametrize("most", [2, 7, 100])
def test_no_event_is_lost_where_they_come_twice_late_or_in_disorder(
    faults: tuple[Fault, ...], most: int
) -> None:
    inner, adapter = pair(1.0, *faults)
    found = drained(adapter, most)
    true = {event.number: event for event in inner.events(0, 999)}
    assert {event.number: event for event in found} == true
    assert all(true[event.number] == event for event in found)
    assert numbers(found) != sorted(true)


def test_a_flood_is_tenfold_and_always_the_same() -> None:
    inner, adapter = pair(1.0, "flood")
    true = inner.events(0, 999)
    flood = list(adapter.events(0, 9_999))
    assert len(flood) == 10 * len(true)
    assert numbers(flood) == list(range(10, 10 * len(true) + 10))
    assert [event.label for event in flood[::10]] == [event.label for event in true]
    assert len({event.label for event in flood}) == len({event.label for event in true}) + len(true)
    for after in (0, 9, 10, 11, 19, 20, 57, 9_999):
        assert list(adapter.events(after, 13)) == [one for one in flood if one.number > after][:13]


def test_accounting_may_be_empty() -> None:
    _, adapter = pair(1.0, "empty_accounting")
    assert adapter.events(0, 99) == ()


def test_faults_happen_at_their_rate_and_by_seed() -> None:
    def played(seed: int) -> list[object]:
        _, adapter = pair(0.2, "time_out", "stale_state", seed=seed)
        for _ in range(500):
            with suppress(Unreachable):
                adapter.state()
        return list(adapter.log)

    assert played(1) == played(1) != played(2)
    lost = [one for one in played(3) if one.fault == "time_out"]
    assert 70 <= len(lost) <= 130


@pytest.mark.parametrize("seed", range(5))
def test_whatever_happens_the_scheduler_goes_by_a_legal_setting(seed: int) -> None:
    inner, adapter = pair(0.3, *FAULTS, seed=seed)
    dice = Seeds(seed).stream("settings")
    for step in range(200):
        knobs = SPACE.project({**BEFORE, "min_run": int(dice.integers(0, 600)), "pack_limit": dice.random()})
        with suppress(Unreachable, Refused):
            adapter.apply(Change(f"k{step}", knobs, adapter.in_force().version))
        inner.advance(inner.now_ms() + MINUTE_MS)
        refuse_illegal(SPACE, inner.in_force().knobs)
    assert inner.in_force().version > 5
    assert {one.fault for one in adapter.log} >= {"apply_half", "apply_late", "restart", "apply_lost"}


def test_unknown_faults_and_impossible_rates_are_refused() -> None:
    inner, _ = pair()
    with pytest.raises(UnknownName, match="torn_state"):
        Faulty(inner, {"torn_stat": 0.1}, Seeds(1))  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="must be 0"):
        Faulty(inner, {"flood": 1.5}, Seeds(1))
