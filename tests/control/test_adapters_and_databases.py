"""Both adapters with the journal on both databases: changes, a restart, scores, a way back, whole states."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import scheduler_process
from hostile import ORDERS, SPACE, Played
from trimtab.control.adapter import Adapter
from trimtab.control.advising import SearchKind
from trimtab.control.grpc_adapter import GrpcAdapter
from trimtab.control.guardrails import Apply, Guardrails, Tenure
from trimtab.control.ledger import Ledger
from trimtab.control.loop import Loop
from trimtab.control.orders import Plant
from trimtab.control.rounds import Round
from trimtab.control.safety import Safety
from trimtab.control.sight import Kept, keep, kept_again, names_in
from trimtab.control.standing import Standing, fold
from trimtab.policies.catalog import find_policy
from trimtab.search.scene import Scene
from trimtab.search.spaces import search_space
from trimtab.simulate.state import Environment
from trimtab.world import Seeds

MINUTE_MS = 60_000
WANTED = SPACE.project({"num_queues": 4, "queue_thresholds": (1000, 2000, 90_000)})


class Wanting(Played):
    """Searches that want one setting."""

    def advise(self, scene: Scene, tenure: Tenure, search: SearchKind) -> Round:
        self._dice = Seeds(1).stream("calm")
        verdict = Apply(WANTED, "better")
        return replace(super().advise(scene, tenure, search), best=WANTED, verdict=verdict, gain=1.5)


@pytest.fixture(params=["simulated", "grpc"])
def scheduler(request: pytest.FixtureRequest) -> Iterator[tuple[Adapter, Callable[[], None]]]:
    """A scheduler, and what lets its time pass."""
    if request.param == "simulated":
        engine = scheduler_process.scheduler("tiresias")
        yield engine, lambda: engine.advance(engine.now_ms() + MINUTE_MS)
        return
    with scheduler_process.running("tiresias") as port:
        adapter = GrpcAdapter(f"127.0.0.1:{port}", scheduler_process.WRITE, "tiresias")
        yield adapter, lambda: time.sleep(0.05)


def _told(adapter: Adapter, patch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return a clock that stands at what the scheduler's said last; beside one so fast, it would jump."""
    real, last = adapter.now_ms, [adapter.now_ms()]

    def now_ms() -> int:
        last[0] = real()
        return last[0]

    patch.setattr(adapter, "now_ms", now_ms)
    return lambda: last[0]


def _loop(adapter: Adapter, ledger: Ledger, clock: Callable[[], int], run: str) -> Loop:
    environment = Environment()
    plant = Plant(
        "tiresias", search_space(find_policy("tiresias"), SPACE.defaults, "consolidated"), environment
    )
    orders = replace(
        ORDERS,
        rails=Guardrails(gain_min=1.05, dwell_ms=5 * MINUTE_MS),
        safety=Safety(
            history_min_ms=0,
            score_ms=5 * MINUTE_MS,
            confirm_ms=240 * MINUTE_MS,
            state_age_max_ms=240 * MINUTE_MS,
        ),
        interval_ms=10 * MINUTE_MS,
        background_ms=None,
    )
    loop = Loop(adapter, ledger, plant, orders, Wanting(0), clock, run)
    loop.start({})
    return loop


def test_changed_verified_killed_and_gone_back(
    scheduler: tuple[Adapter, Callable[[], None]], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter, wait = scheduler
    clock = _told(adapter, monkeypatch)

    def until(loop: Loop, what: Callable[[Standing], Any]) -> None:
        started = time.monotonic()
        while not what(loop.standing):
            assert time.monotonic() - started < 120, (loop.standing, loop.trouble)
            wait()
            loop.tick()

    with Ledger.open(url) as ledger:
        loop = _loop(adapter, ledger, clock, "first")
        until(loop, lambda standing: standing.knobs == WANTED and standing.open is None)
        assert adapter.in_force().knobs == WANTED
    with Ledger.open(url) as ledger:  # the program is another one; nothing was told of its end
        loop = _loop(adapter, ledger, clock, "second")
        assert loop.standing.knobs == WANTED
        until(loop, lambda standing: standing.pairs)  # scored, although it was changed before the restart
        loop.rollback("ann")
        until(loop, lambda standing: standing.knobs == SPACE.defaults and standing.open is None)
        assert adapter.in_force().knobs == SPACE.defaults
        entries = ledger.entries()
        assert fold(Standing(), entries) == loop.standing
        states = [entry for entry in entries if entry.kind == "state"]
        assert len(states) > 1
        for entry in states:
            names = entry.body["kept"]
            again = kept_again(Kept(names, ledger.parts(names_in(names))))
            assert keep(again).names == names
            assert again.state.snapshot.now_ms == entry.body["time_ms"]
