"""`serve`, and what talks to a running one: `status`, `approve`, `rollback`, `pause`, `resume`, `reload`."""

from __future__ import annotations

import getpass
import json
import math
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib import error, request

import typer

from trimtab.cli import options as o
from trimtab.cli import show
from trimtab.errors import ConfigError, InputError

Config = Annotated[Path, typer.Option(help="The settings file of `serve`.")]
Key = Annotated[str | None, typer.Option(help="The proposal's key; the one that waits, unless given.")]

_FILE = Path("trimtab.toml")
_ANSWER_S = 90.0
_ANSWER_MAX = 16 << 20


def serve(config: Config = _FILE) -> None:
    """Run the control loop beside a scheduler, until stopped.

    Example: trimtab serve --config trimtab.toml
    """
    from trimtab.control.service import serve as run
    from trimtab.report.live import live_page

    run(config, live_page())


def status(
    config: Config = _FILE,
    format: o.OutputFormat = "text",
    seed: o.NoSeed = 0,
    quiet: o.Quiet = False,
) -> None:
    """Show what a running `serve` wants, has written and sees in force.

    Example: trimtab status --config trimtab.toml
    """
    found = _asked(config, "status")
    if format == "json":
        show.print_json(found)
    else:
        _print_status(found)


def approve(config: Config = _FILE, key: Key = None) -> None:
    """Make the change that a running `serve` proposes.

    Example: trimtab approve --config trimtab.toml
    """
    _command(config, "approve", {} if key is None else {"key": key})


def rollback(config: Config = _FILE) -> None:
    """Go back to the setting before the one in force.

    Example: trimtab rollback --config trimtab.toml
    """
    _command(config, "rollback", {})


def pause(config: Config = _FILE) -> None:
    """Let a running `serve` change nothing until `resume`.

    Example: trimtab pause --config trimtab.toml
    """
    _command(config, "pause", {})


def resume(config: Config = _FILE) -> None:
    """Let changes be made again after `pause`, or after the circuit breaker opened.

    Example: trimtab resume --config trimtab.toml
    """
    _command(config, "resume", {})


def reload(config: Config = _FILE) -> None:
    """Let a running `serve` read its settings file again.

    Example: trimtab reload --config trimtab.toml
    """
    _command(config, "reload", {})


def _command(config: Path, name: str, body: Mapping[str, str]) -> None:
    show.out.print(_asked(config, name, {"by": getpass.getuser(), **body})["done"])


def _asked(config: Path, name: str, body: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Ask a running `serve`.

    Raises:
        ConfigError: If it refuses. InputError: if it does not answer.
    """
    from trimtab.control.authority import trusting
    from trimtab.control.settings import server_of

    server, tokens = server_of(config)
    address, is_tls = server.listen, server.certificate_file is not None
    token, scheme = tokens.write or tokens.read, "https" if is_tls else "http"
    asking = request.Request(
        f"{scheme}://{address}/{name}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    ways: list[request.BaseHandler] = [request.ProxyHandler({})]  # the token is for the server alone
    if is_tls:
        ways.append(request.HTTPSHandler(context=trusting(server.ca_file)))
    opener = request.build_opener(*ways)
    try:
        with opener.open(asking, timeout=_ANSWER_S) as answer:
            found: dict[str, Any] = json.loads(answer.read(_ANSWER_MAX))
            return found
    except error.HTTPError as refusal:
        raise ConfigError(_sentence(refusal)) from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "reason", problem)
        if isinstance(reason, ssl.SSLCertVerificationError):
            why = reason.verify_message.rstrip(".")
            raise InputError(f"{address}: its certificate is not good ({why}); nothing was asked.") from None
        raise InputError(f"{address}: no `trimtab serve` answers there ({reason}).") from None


def _sentence(refusal: error.HTTPError) -> str:
    try:
        return str(json.loads(refusal.read(_ANSWER_MAX))["error"])
    except (ValueError, KeyError, TypeError):
        return f"the server answers {refusal.code}."


def _print_status(found: Mapping[str, Any]) -> None:
    entries = {
        "mode": found["mode"],
        "in force": _setting(found["in_force"]),
        "for": _age(found["in_force_for_s"]),
        "written": "the same" if found["written"] == found["in_force"] else _setting(found["written"]),
        "desired": "the same" if found["desired"] == found["in_force"] else _setting(found["desired"]),
        "proposal": _proposal(found["proposal"]),
        "paused": found["paused"],
        "breaker": found["breaker"],
        "last round": _round(found["last_round"]),
        "settings": found["settings"]["refused"] or found["settings"]["digest"],
        **found["trouble"],
    }
    for name, value in entries.items():
        if value:
            show.print_entry(name, str(value))


def _setting(knobs: Mapping[str, Any] | None) -> str | None:
    if knobs is None:
        return None
    shown = {name: "/".join(map(str, one)) if isinstance(one, list) else one for name, one in knobs.items()}
    return ",".join(f"{name}={value}" for name, value in shown.items())


def _age(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    minutes = math.floor(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def _proposal(found: Mapping[str, Any] | None) -> str | None:
    if found is None:
        return None
    return f"{found['key']}: {_setting(found['knobs'])} ({found['reason']}); trimtab approve makes it"


def _round(found: Mapping[str, Any] | None) -> str | None:
    return None if found is None else f"{found['decision']}: {found['reason']}"
