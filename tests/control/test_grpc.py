"""Over gRPC nothing is done without authority, and every call comes back in time: refused, or not known."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

import scheduler_process
from certificates import issued
from trimtab.control import grpc_server, wire
from trimtab.control import scheduler_pb2 as pb
from trimtab.control.adapter import Adapter, Change, Identity, Receipt, Refused, State, Unreachable
from trimtab.control.authority import Certificate, Tokens
from trimtab.control.grpc_adapter import GrpcAdapter
from trimtab.control.grpc_server import serve
from trimtab.errors import ConfigError
from trimtab.knobs import Knobs

READ, WRITE = scheduler_process.READ, scheduler_process.WRITE
STRICT, SKIP = Knobs({"backfill": "strict"}), Knobs({"backfill": "skip"})


class Counted:
    """A scheduler that counts who reaches it."""

    def __init__(self) -> None:
        self.inner: Adapter = scheduler_process.scheduler("fifo")
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> object:
        if name not in ("identity", "now_ms"):
            self.calls.append(name)
        return getattr(self.inner, name)


@contextmanager
def served(scheduler: object, certificate: Certificate | None = None) -> Iterator[int]:
    server = serve(scheduler, "127.0.0.1:0", Tokens(READ, WRITE), certificate)  # type: ignore[arg-type]
    try:
        yield server.port
    finally:
        server.stop(0)


def client(port: int, token: str = WRITE, **more: object) -> GrpcAdapter:
    return GrpcAdapter(f"127.0.0.1:{port}", token, "fifo", **more)  # type: ignore[arg-type]


def raw_call(port: int, name: str, message: bytes, *metadata: tuple[str, str]) -> grpc.StatusCode:
    """Return the status of a call with whatever bytes and metadata."""
    with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.max_send_message_length", -1)]) as channel:
        try:
            channel.unary_unary(f"/{grpc_server.SERVICE}/{name}")(message, timeout=10, metadata=metadata)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


BEARER = ("authorization", f"Bearer {WRITE}")
GOOD = wire.pack_change(Change("k", SKIP, 1)).SerializeToString()


def test_a_change_goes_through_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trimtab.grpc")
    scheduler = Counted()
    with served(scheduler) as port:
        assert client(port).apply(Change("k", SKIP, 1)) == Receipt("k", 2)
    assert scheduler.calls == ["apply"]
    assert caplog.messages == ["change k: backfill=skip written as version 2"]


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ((), "UNAUTHENTICATED"),
        ((("authorization", WRITE),), "UNAUTHENTICATED"),
        ((("authorization", "Bearer "),), "UNAUTHENTICATED"),
        ((("authorization", f"Bearer {WRITE}x"),), "UNAUTHENTICATED"),
        ((("authorization", f"bearer {WRITE}"),), "UNAUTHENTICATED"),
        ((BEARER, BEARER), "UNAUTHENTICATED"),
        ((("authorization", f"Bearer {READ}"),), "PERMISSION_DENIED"),
    ],
)
def test_without_authority_nothing_is_done(
    metadata: tuple[tuple[str, str], ...], code: str, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = Counted()
    with served(scheduler) as port:
        assert raw_call(port, "ApplyKnobs", GOOD, *metadata).name == code
        assert raw_call(port, "ApplyKnobs", GOOD, BEARER).name == "OK"
    assert scheduler.calls == ["apply"]
    refused = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(refused) == 1
    assert "ApplyKnobs from ipv4:127.0.0.1" in refused[0].getMessage()
    assert code in refused[0].getMessage()
    assert WRITE not in caplog.text
    assert READ not in caplog.text


def test_a_token_that_reads_reads() -> None:
    scheduler = Counted()
    with served(scheduler) as port:
        one = client(port, READ)
        assert one.in_force().knobs == STRICT
        assert one.state().labels
        assert one.events(0, 3)
        with pytest.raises(Refused, match=r"permission_denied.*only allows to read"):
            one.apply(Change("k", SKIP, 1))
        for ask in (one.identity, one.state, one.in_force, lambda: one.events(0, 1)):
            assert ask()
        assert one.in_force().version == 1
        with pytest.raises(Refused, match="not known"):
            client(port, "some-other-token").state()
    assert "apply" not in scheduler.calls


@pytest.mark.parametrize("name", ["GetIdentity", "GetState", "GetKnobs", "ApplyKnobs", "StreamJobEvents"])
def test_no_call_is_open_to_everybody(name: str) -> None:
    scheduler = Counted()
    with served(scheduler) as port:
        assert raw_call(port, name, b"").name == "UNAUTHENTICATED"
    assert scheduler.calls == []


def _padded(size: int) -> bytes:
    return (
        wire.pack_change(Change("k", SKIP, 1)).SerializeToString()
        + pb.ApplyKnobsRequest(key="k" * size).SerializeToString()
    )


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"\xff\xff\xff\xff", "INVALID_ARGUMENT"),
        (GOOD[:-3], "INVALID_ARGUMENT"),
        (b"", "INVALID_ARGUMENT"),
        (_padded(grpc_server.REQUEST_BYTES_MAX), "RESOURCE_EXHAUSTED"),
        (_padded(5_000_000), "RESOURCE_EXHAUSTED"),
    ],
    ids=["noise", "cut short", "empty", "large", "very large"],
)
def test_messages_out_of_shape_are_refused_and_logged(
    message: bytes, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = Counted()
    with served(scheduler) as port:
        assert raw_call(port, "ApplyKnobs", message, BEARER).name == code
        wait_for(lambda: len(caplog.records) == 1)
        assert client(port).in_force().version == 1
    assert scheduler.calls == ["in_force"]
    assert "ApplyKnobs" in caplog.text


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_more_events_than_allowed_are_not_given() -> None:
    with served(Counted()) as port:
        assert client(port).events(0, 0) == ()
        assert len(client(port).events(0, 10**9)) == len(scheduler_process.scheduler("fifo").events(0, 10**9))
        for after, most in ((0, 0), (0, grpc_server.EVENTS_MAX + 1), (-1, 1)):
            message = pb.StreamJobEventsRequest(after=after, most=most).SerializeToString()
            assert raw_call(port, "StreamJobEvents", message, BEARER).name == "INVALID_ARGUMENT"


def test_what_a_stranger_writes_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    message = pb.ApplyKnobsRequest(key="k", knobs={"backfill": "x\nERROR all is lost" + "y" * 5000})
    with served(Counted()) as port:
        assert raw_call(port, "ApplyKnobs", message.SerializeToString(), BEARER).name == "INVALID_ARGUMENT"
    assert len(caplog.messages) == 1
    assert "\n" not in caplog.messages[0]
    assert len(caplog.messages[0]) < 500


def test_a_scheduler_that_may_not_be_changed_is_not() -> None:
    class ReadOnly(Counted):
        def identity(self) -> Identity:
            found = self.inner.identity()
            return Identity(found.name, found.policy, found.cluster, writes=False)

    scheduler = ReadOnly()
    with served(scheduler) as port:
        assert not client(port).identity().writes
        with pytest.raises(Refused, match="cannot be changed"):
            client(port).apply(Change("k", SKIP, 1))
    assert scheduler.calls == []


@pytest.mark.parametrize(
    ("raised", "kind", "why"),
    [
        (Refused("not now."), Refused, "not now"),
        (Unreachable("its database is gone."), Unreachable, "database is gone"),
        (ZeroDivisionError("secret"), Unreachable, "its log says how"),
    ],
)
def test_what_a_scheduler_raises_is_told_as_what_it_is(
    raised: Exception, kind: type[Exception], why: str
) -> None:
    class Failing(Counted):
        def apply(self, change: Change) -> Receipt:
            raise raised

        def state(self) -> State:
            raise raised

    with served(Failing()) as port:
        with pytest.raises(kind, match=why) as told:
            client(port).apply(Change("k", SKIP, 1))
        assert "secret" not in str(told.value)
        with pytest.raises(kind, match=why):
            client(port).state()
        assert client(port).in_force().version == 1


def test_a_call_has_a_deadline() -> None:
    stuck = threading.Event()

    class Stuck(Counted):
        def state(self) -> State:
            stuck.wait(20)
            return self.inner.state()

    with served(Stuck()) as port:
        one = client(port, deadline_s=0.3)
        one.identity()
        began_s = time.monotonic()
        with pytest.raises(Unreachable, match="deadline_exceeded"):
            one.state()
        assert time.monotonic() - began_s < 5
        stuck.set()


def test_nobody_there_and_back_again() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    one = client(port, deadline_s=2)
    with pytest.raises(Unreachable, match=f"127.0.0.1:{port}"):
        one.in_force()
    server = serve(scheduler_process.scheduler("fifo"), f"127.0.0.1:{port}", Tokens(READ, WRITE))
    wait_for(lambda: _answers(one))
    server.stop(0)
    with pytest.raises(Unreachable):
        one.in_force()


def _answers(adapter: GrpcAdapter) -> bool:
    try:
        return adapter.in_force().version == 1
    except Unreachable:
        return False


def test_an_address_that_is_taken_is_refused() -> None:
    with served(Counted()) as port, pytest.raises(ConfigError, match="cannot be listened at"):
        serve(scheduler_process.scheduler("fifo"), f"127.0.0.1:{port}", Tokens(READ, WRITE))


class _Odd(Counted):
    """Answers with a policy of its own choice, and nodes that the cluster does not have."""

    def __init__(self, policy: str) -> None:
        super().__init__()
        self.policy = policy

    def identity(self) -> Identity:
        found = self.inner.identity()
        return Identity(found.name, self.policy, found.cluster, writes=True)


@pytest.mark.parametrize("policy", ["srtf", "../evil.py::Evil", "evil.py::Evil", "<b>"])
def test_the_policy_that_a_scheduler_names_is_compared_and_never_loaded(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / "evil.py", tmp_path.parent / "evil.py"):
        path.write_text("raise SystemExit('loaded')\n")
    server = serve(_Odd(policy), "127.0.0.1:0", Tokens(READ, WRITE), space=scheduler_space())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is modelled by"):
        client(server.port).identity()
    server.stop(0)


def scheduler_space() -> object:
    from trimtab.policies.catalog import find_policy

    return find_policy("fifo").space


def test_an_answer_that_cannot_be_read_is_none() -> None:
    class Torn(Counted):
        def state(self) -> State:
            state = self.inner.state()
            for job in state.snapshot.jobs:
                job.home = 7
            return state

    with served(Torn()) as port, pytest.raises(Unreachable, match="no place"):
        client(port).state()


# ---- addresses and tokens ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "",
        "127.0.0.1",
        "unix:/tmp/x:1",
        "dns:///a:1",
        "127.0.0.1:99999",
        "a b:1",
        "127.0.0.1:1\n",
        "http://a:1",
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    for call in (
        lambda: GrpcAdapter(address, WRITE, "fifo", roots=b"x"),
        lambda: serve(scheduler_process.scheduler("fifo"), address, Tokens(READ, WRITE)),
    ):
        with pytest.raises(ConfigError, match="HOST:PORT"):
            call()


@pytest.mark.parametrize(
    "address", ["0.0.0.0:0", "[::]:0", "10.0.0.1:5", "scheduler.example:5", "localhost.x:5"]
)
def test_beyond_this_machine_nothing_goes_in_plain_text(address: str) -> None:
    for call in (
        lambda: GrpcAdapter(address, WRITE, "fifo"),
        lambda: serve(scheduler_process.scheduler("fifo"), address, Tokens(READ, WRITE)),
    ):
        with pytest.raises(ConfigError, match="over TLS only"):
            call()


@pytest.mark.parametrize(
    ("read", "write"),
    [("", ""), ("short", ""), ("", "with blanks in it, long"), (WRITE, WRITE), ("", "ü" * 20)],
)
def test_tokens_that_guard_nothing_are_refused(read: str, write: str) -> None:
    with pytest.raises(ConfigError, match="nothing was started"):
        Tokens(read, write)


def test_an_empty_token_lets_nobody_in() -> None:
    assert Tokens(read=READ).scope("") is None
    assert Tokens(write=WRITE).scope("") is None
    assert Tokens(read=READ).scope(READ) == "read"
    assert READ not in repr(Tokens(READ, WRITE))


# ---- certificates ------------------------------------------------------------------------------------


def test_over_tls_a_change_goes_through() -> None:
    certificate, roots = issued()
    with served(Counted(), certificate) as port:
        assert client(port, roots=roots).apply(Change("k", SKIP, 1)) == Receipt("k", 2)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"days": (-10, -1)}, "expired|certificate"),
        ({"days": (1, 10)}, "certificate"),
        ({"host": "127.0.0.2"}, "127.0.0.1|certificate|[Hh]ostname"),
    ],
    ids=["expired", "not yet valid", "of another host"],
)
def test_a_certificate_that_is_not_good_is_refused(more: dict[str, object], why: str) -> None:
    certificate, roots = issued(**more)  # type: ignore[arg-type]
    scheduler = Counted()
    with served(scheduler, certificate) as port, pytest.raises(Unreachable, match=why):
        client(port, roots=roots, deadline_s=5).apply(Change("k", SKIP, 1))
    assert scheduler.calls == []


def test_a_certificate_of_another_issuer_and_plain_text_are_refused() -> None:
    certificate, _ = issued()
    _, others = issued()
    scheduler = Counted()
    with served(scheduler, certificate) as port:
        for one in (client(port, roots=others, deadline_s=5), client(port, deadline_s=5)):
            with pytest.raises(Unreachable):
                one.apply(Change("k", SKIP, 1))
    assert scheduler.calls == []
