"""Every adapter keeps the shipped promises: the engine itself, and one in a process of its own over gRPC."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import scheduler_process
from trimtab.control.adapter import Adapter, Change, InForce, Receipt, State
from trimtab.control.faulty import Faulty
from trimtab.control.grpc_adapter import GrpcAdapter
from trimtab.control.simulated import Simulated
from trimtab.knobs import Knobs
from trimtab.testing import AdapterConformance
from trimtab.world import Seeds


class OnTheEngine(AdapterConformance):
    policy = "fifo"

    def make(self) -> Adapter:
        return scheduler_process.scheduler(self.policy)

    def unreachable(self) -> Adapter:
        return Faulty(self.make(), {"time_out": 1.0}, Seeds(1))

    def pass_time(self, adapter: Adapter) -> None:
        assert isinstance(adapter, Simulated)
        adapter.advance(adapter.now_ms() + 60_000)


class TestFifo(OnTheEngine):
    pass


class TestTiresias(OnTheEngine):
    policy = "tiresias"


class TestLucid(OnTheEngine):
    policy = "lucid"


class OverGrpc(AdapterConformance):
    policy = "tiresias"
    port: int

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _process(cls) -> Iterator[None]:
        with scheduler_process.running(cls.policy) as cls.port:
            yield

    def make(self) -> Adapter:
        return GrpcAdapter(f"127.0.0.1:{self.port}", scheduler_process.WRITE, self.policy)

    def unreachable(self) -> Adapter:
        return GrpcAdapter("127.0.0.1:1", scheduler_process.WRITE, self.policy, deadline_s=1)

    def pass_time(self, adapter: Adapter) -> None:
        before_ms = adapter.now_ms()
        while adapter.now_ms() == before_ms:
            time.sleep(0.01)


class TestGrpc(OverGrpc):
    pass


class TestGrpcThemis(OverGrpc):
    policy = "themis"


# A suite must be able to fail: each of these breaks one promise.


class _Around:
    """An adapter like the one behind it, but for what a subclass does otherwise."""

    def __init__(self) -> None:
        self.inner = scheduler_process.scheduler("fifo")

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


class _Forgetful(_Around):
    """Makes a change as often as it is asked for."""

    count = 0

    def apply(self, change: Change) -> Receipt:
        self.count += 1
        expected = self.inner._writes[-1].version if self.count > 1 else change.expected
        receipt = self.inner.apply(Change(f"{change.key}-{self.count}", change.knobs, expected))
        return Receipt(change.key, receipt.version)


class _Deaf(_Around):
    """Acknowledges, and writes nothing."""

    def apply(self, change: Change) -> Receipt:
        return Receipt(change.key, change.expected + 1)


class _Hasty(_Around):
    """Shows what was written as if it were in force already, under the old version."""

    written: Knobs | None = None

    def apply(self, change: Change) -> Receipt:
        receipt = self.inner.apply(change)
        self.written = change.knobs
        return receipt

    def in_force(self) -> InForce:
        found = self.inner.in_force()
        return InForce(self.written or found.knobs, found.version, found.as_of_ms)


class _Torn(_Around):
    def state(self) -> State:
        return Faulty(self.inner, {"torn_state": 1.0}, Seeds(3)).state()


class _Renumbering(_Around):
    def events(self, after: int, most: int) -> object:
        found = self.inner.events(0, 10_000)[-most:]
        return [event for event in found if event.number > after]


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (_Forgetful, "test_asked_twice_a_change_is_made_once"),
        (_Deaf, "test_read_back_is_what_was_written_or_says_that_it_is_not_yet"),
        (_Deaf, "test_an_illegal_setting_is_refused"),
        (_Deaf, "test_a_change_decided_on_another_version_is_refused"),
        (_Hasty, "test_read_back_is_what_was_written_or_says_that_it_is_not_yet"),
        (_Torn, "test_a_state_is_one_of_this_cluster"),
        (_Renumbering, "test_events_can_be_asked_for_again_from_any_number"),
    ],
)
def test_a_broken_adapter_is_found(broken: type[_Around], promise: str) -> None:
    class Suite(OnTheEngine):
        def pass_time(self, adapter: Adapter) -> None:
            super().pass_time(adapter.inner)  # type: ignore[attr-defined]

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        getattr(Suite(), promise)(broken())
