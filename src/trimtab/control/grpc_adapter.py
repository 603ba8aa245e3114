"""A scheduler that answers over gRPC, as the loop sees it; needs `trimtab[grpc]`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError

from trimtab.control import scheduler_pb2 as pb
from trimtab.control import wire
from trimtab.control.adapter import Change, Identity, InForce, JobEvent, Receipt, Refused, State, Unreachable
from trimtab.control.authority import check_address, check_token
from trimtab.control.grpc_server import EVENTS_MAX, SERVICE
from trimtab.errors import ConfigError
from trimtab.knobs import Space
from trimtab.policies.catalog import find_policy
from trimtab.site import PLAIN_SITE, Site

# A state of 100,000 jobs has some 9 MB.
REPLY_BYTES_MAX = 64 << 20

_Code = grpc.StatusCode
# The scheduler has answered, and has done nothing. After any other status that is not known.
_REFUSALS = (
    _Code.UNAUTHENTICATED,
    _Code.PERMISSION_DENIED,
    _Code.INVALID_ARGUMENT,
    _Code.FAILED_PRECONDITION,
    _Code.UNIMPLEMENTED,
)

_Found = TypeVar("_Found")


class GrpcAdapter:
    """A scheduler at an address; see `Adapter`. An answer that cannot be read counts as none.

    Args:
        address: HOST:PORT; beyond this machine only with `roots`.
        token: What it is asked with.
        policy: The policy it must be modelled by. What it says itself is compared, and never looked up.
        roots: PEM of the certificates that its own is checked against; None: no TLS.
        deadline_s: How long each call may take.
        space: The policy's knobs, if they are not those of `policy`.
        site: What its partitions, qualities of service and accounts are worth: it says nothing of that.

    Raises:
        ConfigError: If address, token or deadline is not possible.
    """

    def __init__(
        self,
        address: str,
        token: str,
        policy: str,
        *,
        roots: bytes | None = None,
        deadline_s: float = 10.0,
        space: Space | None = None,
        site: Site = PLAIN_SITE,
    ) -> None:
        check_address(address, is_secret=roots is not None)
        check_token("a token", token)
        if not 0 < deadline_s <= 3600:
            raise ConfigError(f"deadline {deadline_s} s: it must be above 0, at most an hour.")
        self._address, self._policy, self._deadline_s = address, policy, deadline_s
        self._space = space or find_policy(policy).space
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._identity: Identity | None = None
        self._site = site
        options = [
            ("grpc.max_receive_message_length", REPLY_BYTES_MAX),
            ("grpc.enable_http_proxy", 0),  # the token is for the scheduler alone
            ("grpc.enable_retries", 0),  # who asks again is the loop
            ("grpc.max_reconnect_backoff_ms", 5000),
        ]
        if roots is None:
            self._channel = grpc.insecure_channel(address, options)
        else:
            self._channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(roots), options)

    def close(self) -> None:
        """Hang up."""
        self._channel.close()

    def identity(self) -> Identity:
        """Return which scheduler this is.

        Raises:
            ConfigError: If it is modelled by another policy than it should be.
        """
        return self._asked_identity()[0]

    def now_ms(self) -> int:
        return self._asked_identity()[1]

    def in_force(self) -> InForce:
        return self._ask("GetKnobs", pb.GetKnobsRequest(), pb.InForce, self._read_in_force)

    def state(self) -> State:
        identity = self._identity or self.identity()
        return self._ask(
            "GetState",
            pb.GetStateRequest(),
            pb.State,
            lambda message: wire.read_state(message, identity, self._space),
        )

    def events(self, after: int, most: int) -> Sequence[JobEvent]:
        if most < 1:
            return ()
        request = pb.StreamJobEventsRequest(after=max(0, after), most=min(most, EVENTS_MAX))
        ask = self._channel.unary_stream(
            f"/{SERVICE}/StreamJobEvents", request_serializer=pb.StreamJobEventsRequest.SerializeToString
        )
        found: list[JobEvent] = []
        try:
            stream = ask(request, timeout=self._deadline_s, metadata=self._metadata)
            for raw in stream:
                if len(found) == request.most:
                    stream.cancel()
                    break
                found.append(wire.read_event(pb.JobEvent.FromString(raw)))
        except grpc.RpcError as error:
            raise self._problem("StreamJobEvents", error) from None
        except (wire.Unreadable, DecodeError) as error:
            raise self._unread("StreamJobEvents", error) from None
        return found

    def apply(self, change: Change) -> Receipt:
        return self._ask(
            "ApplyKnobs",
            wire.pack_change(change),
            pb.Receipt,
            lambda message: wire.read_receipt(message, change),
        )

    def _asked_identity(self) -> tuple[Identity, int]:
        identity, now_ms = self._ask(
            "GetIdentity",
            pb.GetIdentityRequest(),
            pb.Identity,
            lambda message: (replace(wire.read_identity(message), site=self._site), message.now_ms),
        )
        if identity.policy != self._policy:
            raise ConfigError(
                f"scheduler {self._address} is modelled by {identity.policy!r:.60}, not by {self._policy}."
            )
        self._identity = identity
        return identity, now_ms

    def _read_in_force(self, message: pb.InForce) -> InForce:
        return wire.read_in_force(message, self._space)

    def _ask(self, name: str, request: Any, reply: Any, read: Callable[[Any], _Found]) -> _Found:
        ask = self._channel.unary_unary(
            f"/{SERVICE}/{name}", request_serializer=type(request).SerializeToString
        )
        try:
            raw = ask(request, timeout=self._deadline_s, metadata=self._metadata)
            return read(reply.FromString(raw))
        except grpc.RpcError as error:
            raise self._problem(name, error) from None
        except (wire.Unreadable, DecodeError) as error:
            raise self._unread(name, error) from None

    def _problem(self, name: str, error: grpc.RpcError) -> Refused | Unreachable:
        """Return what is to be raised for a status that is not OK."""
        code = error.code()
        reason = " ".join((error.details() or "").split())[:300]
        kind = Refused if code in _REFUSALS else Unreachable
        return kind(f"scheduler {self._address}, {name}: {code.name.lower()}: {reason}")

    def _unread(self, name: str, error: Exception) -> Unreachable:
        self._identity = None  # the cluster may have become another one
        reason = " ".join(str(error).split())[:300]
        return Unreachable(f"scheduler {self._address}, {name}: answered what cannot be read: {reason}")
