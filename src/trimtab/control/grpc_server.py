"""Serves any object with the methods of `Adapter` over gRPC: a scheduler's half; needs `trimtab[grpc]`.

    server = serve(my_scheduler, "127.0.0.1:50051", Tokens(read="...", write="..."))
    server.wait()

No call is carried out without authority: token first, then the message, then whether the setting is legal.
What is refused is logged in one line by the logger `trimtab.grpc`, without the token that was shown.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from trimtab.control import scheduler_pb2 as pb
from trimtab.control import wire
from trimtab.control.adapter import Adapter, Refused, Unreachable
from trimtab.control.authority import Certificate, Scope, Tokens, check_address
from trimtab.errors import ConfigError
from trimtab.knobs import Space
from trimtab.policies.catalog import find_policy

SERVICE = "trimtab.v1.Scheduler"
REQUEST_BYTES_MAX = 65_536
EVENTS_MAX = 10_000

# Larger ones are not even read to their end.
_READ_BYTES_MAX = 1 << 20
_CALLS_MAX = 32
_REASON_MAX = 300

_log = logging.getLogger("trimtab.grpc")
_Code = grpc.StatusCode


@dataclass(frozen=True)
class Server:
    """A server that runs.

    Attributes:
        port: Where it listens.
    """

    port: int
    _server: grpc.Server

    def wait(self) -> None:
        """Return when it has been stopped."""
        self._server.wait_for_termination()

    def stop(self, grace_s: float = 1.0) -> None:
        """Take no more calls, and let those that run come to an end for so long."""
        self._server.stop(grace_s).wait()


def serve(
    adapter: Adapter,
    address: str,
    tokens: Tokens,
    certificate: Certificate | None = None,
    space: Space | None = None,
) -> Server:
    """Serve a scheduler; one call at a time reaches it.

    Args:
        address: HOST:PORT; port 0 takes a free one. Beyond this machine only with a certificate.
        space: The policy's knobs, if it is none of the built-in ones.

    Raises:
        ConfigError: If the address is not possible, or taken.
    """
    check_address(address, is_secret=certificate is not None)
    space = space or find_policy(adapter.identity().policy).space
    options = [
        ("grpc.max_receive_message_length", _READ_BYTES_MAX),
        ("grpc.so_reuseport", 0),  # two servers at one address would share the calls between them
    ]
    threads = futures.ThreadPoolExecutor(max_workers=4, thread_name_prefix="trimtab-grpc")
    server = grpc.server(threads, options=options, maximum_concurrent_rpcs=_CALLS_MAX)
    server.add_generic_rpc_handlers((_Calls(adapter, tokens, space).handler(),))
    try:
        if certificate is None:
            port = server.add_insecure_port(address)
        else:
            pair = (certificate.key, certificate.chain)
            port = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    except RuntimeError:
        raise ConfigError(f"address {address}: cannot be listened at; nothing was started.") from None
    server.start()
    return Server(port, server)


class _NotDone(Exception):
    """A call that is refused: its status, and why."""

    def __init__(self, code: grpc.StatusCode, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class _Calls:
    """The calls of the service, each from the bytes that came to the message that goes."""

    def __init__(self, adapter: Adapter, tokens: Tokens, space: Space) -> None:
        self._adapter, self._tokens, self._space = adapter, tokens, space
        self._one_at_a_time = threading.Lock()

    def handler(self) -> grpc.GenericRpcHandler:
        """Return what gRPC is to call. All calls take a stream: so requests are read here, and no sooner."""
        unary = {
            "GetIdentity": self._unary("GetIdentity", "read", self._identity),
            "GetState": self._unary("GetState", "read", self._state),
            "GetKnobs": self._unary("GetKnobs", "read", self._knobs),
            "ApplyKnobs": self._unary("ApplyKnobs", "write", self._apply),
        }
        handlers = {name: grpc.stream_unary_rpc_method_handler(call) for name, call in unary.items()}
        handlers["StreamJobEvents"] = grpc.stream_stream_rpc_method_handler(self._events)
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    # ---- what is asked ---------------------------------------------------------------------------

    def _identity(self, raw: bytes) -> Any:
        _read(pb.GetIdentityRequest, raw)
        return wire.pack_identity(self._adapter.identity(), self._adapter.now_ms())

    def _state(self, raw: bytes) -> Any:
        _read(pb.GetStateRequest, raw)
        return wire.pack_state(self._adapter.state())

    def _knobs(self, raw: bytes) -> Any:
        _read(pb.GetKnobsRequest, raw)
        return wire.pack_in_force(self._adapter.in_force())

    def _apply(self, raw: bytes) -> Any:
        request = _read(pb.ApplyKnobsRequest, raw)
        change = wire.read_change(request, self._space)
        if not self._adapter.identity().writes:
            raise Refused("this scheduler's settings cannot be changed.")
        receipt = self._adapter.apply(change)
        _log.info("change %s: %s written as version %d", change.key, change.knobs.text(), receipt.version)
        return wire.pack_receipt(receipt)

    def _events(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        def ask(raw: bytes) -> list[bytes]:
            request = _read(pb.StreamJobEventsRequest, raw)
            if request.after < 0 or not 1 <= request.most <= EVENTS_MAX:
                raise _NotDone(
                    _Code.INVALID_ARGUMENT,
                    f"events after {request.after}, at most {request.most}: 1 .. {EVENTS_MAX:,} may be.",
                )
            found = self._adapter.events(request.after, request.most)
            return [wire.pack_event(event).SerializeToString() for event in found]

        yield from self._answer("StreamJobEvents", "read", ask, requests, context)

    # ---- how it is answered ----------------------------------------------------------------------

    def _unary(
        self, name: str, scope: Scope, ask: Callable[[bytes], Any]
    ) -> Callable[[Iterator[bytes], grpc.ServicerContext], bytes]:
        def call(requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            message = self._answer(name, scope, ask, requests, context)
            found: bytes = message.SerializeToString()
            return found

        return call

    def _answer(
        self,
        name: str,
        scope: Scope,
        ask: Callable[[bytes], Any],
        requests: Iterator[bytes],
        context: grpc.ServicerContext,
    ) -> Any:
        """Return what is answered, or abort the call and say why, there and in the log."""
        try:
            self._admit(scope, context)
            raw = _request(requests)
            with self._one_at_a_time:
                return ask(raw)
        except _NotDone as error:
            _abort(context, name, error.code, error.reason)
        except wire.Unreadable as error:
            _abort(context, name, _Code.INVALID_ARGUMENT, str(error))
        except Refused as error:
            _abort(context, name, _Code.FAILED_PRECONDITION, str(error))
        except Unreachable as error:
            _abort(context, name, _Code.UNAVAILABLE, str(error))
        except Exception:  # whatever a scheduler of somebody's own raises
            _log.exception("%s: the scheduler failed", name)
            _abort(context, name, _Code.INTERNAL, "the scheduler failed; its log says how.")

    def _admit(self, scope: Scope, context: grpc.ServicerContext) -> None:
        """Refuse who shows no token, more than one, or one that does not allow this."""
        shown = [value for key, value in context.invocation_metadata() if key == "authorization"]
        if len(shown) != 1 or not isinstance(shown[0], str) or not shown[0].startswith("Bearer "):
            raise _NotDone(_Code.UNAUTHENTICATED, "no token was shown.")
        allowed = self._tokens.scope(shown[0].removeprefix("Bearer "))
        if allowed is None:
            raise _NotDone(_Code.UNAUTHENTICATED, "the token that was shown is not known.")
        if scope == "write" and allowed != "write":
            raise _NotDone(_Code.PERMISSION_DENIED, "the token that was shown only allows to read.")


def _request(requests: Iterator[bytes]) -> bytes:
    """Return the one message of a call."""
    try:
        raw = next(requests)
    except StopIteration:
        raise _NotDone(_Code.INVALID_ARGUMENT, "no message came.") from None
    except grpc.RpcError:
        raise _NotDone(_Code.RESOURCE_EXHAUSTED, "the call broke off, or its message is too large.") from None
    if len(raw) > REQUEST_BYTES_MAX:
        raise _NotDone(
            _Code.RESOURCE_EXHAUSTED,
            f"the message has {len(raw):,} bytes, at most {REQUEST_BYTES_MAX:,} are read.",
        )
    return raw


def _read(kind: Any, raw: bytes) -> Any:
    try:
        return kind.FromString(raw)
    except DecodeError:
        raise _NotDone(_Code.INVALID_ARGUMENT, "the message cannot be read.") from None


def _abort(context: grpc.ServicerContext, name: str, code: grpc.StatusCode, reason: str) -> NoReturn:
    reason = " ".join(reason.split())[:_REASON_MAX]
    _log.warning("%s from %s refused (%s): %s", name, context.peer(), code.name, reason)
    context.abort(code, reason)
    raise AssertionError("abort always raises")
