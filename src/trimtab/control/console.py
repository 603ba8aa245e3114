"""The server's address: status and commands for whoever shows a token, metrics for Prometheus.

`GET /` is the page: it holds no data, needs no token, and fetches `/events` with the one that it is given.
`GET /status` and `/events` (server-sent, one at each change) need a token that reads; `POST /approve`,
`/rollback`, `/pause`, `/resume` and `/reload` need one that writes. `GET /metrics` and `/healthz` tell
nothing of jobs or users and need none. Bodies are JSON objects of at most 64 KiB. A refusal is a JSON object
with one line under `error`.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from trimtab.control.authority import Scope
from trimtab.control.service import Service, log
from trimtab.control.settings import ServerSettings
from trimtab.errors import ConfigError, TrimtabError

COMMANDS = ("approve", "rollback", "pause", "resume", "reload")
BODY_MAX = 1 << 16
_ANSWER_S = 60.0  # a scheduler that hangs is waited for so long
_NAME = re.compile(r"[\w.@ +-]{1,60}")
_LISTENERS_MAX = 32
_LOOK_S, _SIGN_OF_LIFE_S = 0.25, 5.0
_METRICS = "text/plain; version=0.0.4; charset=utf-8"

_PAGE_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

Handler = Callable[[Request], Awaitable[Response]]


class Refusal(Exception):
    """A request that is not answered: status and sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Console:
    """Answers at an address, in a thread of its own.

    Args:
        service: What it speaks for. server: address and tokens.
        page: What is shown at the address, and the Content-Security-Policy it is sent with.

    Raises:
        ConfigError: If the tokens are not possible, or the address is taken.
    """

    def __init__(self, service: Service, server: ServerSettings, page: tuple[str, str]) -> None:
        self._service, self._tokens, self._page = service, server.tokens(), page
        self._listeners = 0
        host, _, port = server.listen.rpartition(":")
        self._socket = _bound(host.strip("[]"), int(port), server.listen)
        routes = [
            Route("/", self._shell),
            Route("/events", self._guarded("read", self._events)),
            Route("/status", self._guarded("read", self._status)),
            Route("/metrics", self._metrics),
            Route("/healthz", self._health),
            *(
                Route(f"/{name}", self._guarded("write", self._command), methods=["POST"])
                for name in COMMANDS
            ),
        ]
        app = Starlette(routes=routes)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            ssl_certfile=server.certificate_file,
            ssl_keyfile=server.key_file,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="trimtab-console", daemon=True)

    @property
    def address(self) -> str:
        """HOST:PORT as it really is."""
        host, port = self._socket.getsockname()[:2]
        return f"{host}:{port}"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer nobody any more."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(5)
        self._socket.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])

    # ---- who may ask -------------------------------------------------------------------------------

    def _guarded(self, scope: Scope, answer: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            try:
                self._check(request, scope)
                return await answer(request)
            except Refusal as refusal:
                log("denied", {"path": request.url.path, "status": refusal.status, "reason": str(refusal)})
                return JSONResponse({"error": str(refusal)}, refusal.status)

        return guarded

    def _scope(self, request: Request) -> Scope | None:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        return self._tokens.scope(token.strip()) if kind.lower() == "bearer" else None

    def _check(self, request: Request, scope: Scope) -> None:
        allowed = self._scope(request)
        if allowed is None:
            raise Refusal(401, "no token, or not one of ours: nothing was done.")
        if scope == "write" and allowed != "write":
            raise Refusal(403, "this token may only read: nothing was done.")

    # ---- what is answered --------------------------------------------------------------------------

    async def _shell(self, request: Request) -> Response:
        html, policy = self._page
        return HTMLResponse(html, headers={"Content-Security-Policy": policy, **_PAGE_HEADERS})

    async def _events(self, request: Request) -> Response:
        if self._listeners >= _LISTENERS_MAX:
            raise Refusal(503, f"{_LISTENERS_MAX} pages are open already: close one.")
        scope = self._scope(request)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(self._told(scope), media_type="text/event-stream", headers=headers)

    async def _told(self, scope: Scope | None) -> AsyncIterator[str]:
        """Yield how things stand whenever that was looked at, and between these how old it is."""
        self._listeners += 1
        try:
            told, quiet_s = -1, 0.0
            while not self._server.should_exit:
                if self._service.told != told:
                    told, quiet_s = self._service.told, 0.0
                    yield _event({**self._news(), "scope": scope, **self._age()})
                elif quiet_s >= _SIGN_OF_LIFE_S:
                    quiet_s = 0.0
                    yield _event(self._age())
                await asyncio.sleep(_LOOK_S)
                quiet_s += _LOOK_S
        finally:
            self._listeners -= 1

    def _news(self) -> dict[str, Any]:
        recent = self._service.recent
        told = {name: getattr(recent, name) for name in ("decisions", "scored", "forecasts")}
        return {"status": self._service.status, **told}

    def _age(self) -> dict[str, float]:
        return {"age_s": self._service.age_s, "old_s": self._service.old_s}

    async def _status(self, request: Request) -> Response:
        return JSONResponse(self._service.status)

    async def _metrics(self, request: Request) -> Response:
        return PlainTextResponse(self._service.metrics, media_type=_METRICS)

    async def _health(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _command(self, request: Request) -> Response:
        body = await _body(request)
        by = body.pop("by", "somebody")
        if not isinstance(by, str) or not _NAME.fullmatch(by):
            raise Refusal(400, "`by` must be a name of at most 60 letters: nothing was done.")
        if any(name != "key" or not isinstance(value, str) for name, value in body.items()):
            raise Refusal(400, "the only other thing that may be said is `key`, a text: nothing was done.")
        answer = self._service.ask(request.url.path.removeprefix("/"), by, body)
        try:
            said = await asyncio.wait_for(asyncio.wrap_future(answer), _ANSWER_S)
        except TimeoutError:
            raise Refusal(504, "the scheduler hangs; look at the status for what came of it.") from None
        except TrimtabError as refusal:
            raise Refusal(409, str(refusal)) from None
        return JSONResponse({"done": said})


def _event(values: dict[str, Any]) -> str:
    """Return a server-sent event; JSON of one line has no line break that could end it."""
    return f"data: {json.dumps(values)}\n\n"


async def _body(request: Request) -> dict[str, Any]:
    """Return a request's JSON object, empty for none."""
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > BODY_MAX:
            raise Refusal(413, f"more than {BODY_MAX} bytes: nothing was done.")
    try:
        found = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        raise Refusal(400, "what was sent is no JSON: nothing was done.") from None
    if not isinstance(found, dict):
        raise Refusal(400, "what was sent is no JSON object: nothing was done.")
    return found


def _bound(host: str, port: int, address: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(64)
    except OSError as problem:
        found.close()
        reason = problem.strerror or str(problem)
        raise ConfigError(
            f"address {address}: cannot be used ({reason.lower()}); nothing was started."
        ) from None
    return found
