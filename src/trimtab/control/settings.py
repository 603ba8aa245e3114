"""The settings file of `trimtab serve`: one TOML file, read whole or refused whole.

What a change of it may not touch while the program runs is the scheduler, the journal and the address; see
`Settings.needs_restart`. Paths are taken from the file's own folder.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from trimtab.cluster import PLACEMENTS, Cluster, Placement
from trimtab.control.advising import LINES, Searching
from trimtab.control.authority import Tokens, check_address, check_certificate, check_private, check_token
from trimtab.control.guardrails import Guardrails
from trimtab.control.orders import Orders
from trimtab.control.safety import MODES, Mode, Safety, Step
from trimtab.control.settings_table import Table as _Table
from trimtab.control.settings_table import names as _names
from trimtab.control.settings_table import number as _number
from trimtab.control.settings_table import one_of as _one_of
from trimtab.control.settings_table import span as _span
from trimtab.control.settings_table import span_or_none as _span_or_none
from trimtab.control.settings_table import table_of as _table
from trimtab.control.settings_table import text as _text
from trimtab.control.settings_table import toml_file, without_end
from trimtab.control.settings_table import whole as _whole
from trimtab.errors import ConfigError
from trimtab.objective import find_objective
from trimtab.policies.catalog import find_policy
from trimtab.search.generation import ARRIVALS, DAY_BY_DAY
from trimtab.search.sampler import SAMPLERS
from trimtab.search.tuner import Tuning

_BUDGET_MAX = 10_000
_ESTIMATES = ("predicted", "none")
_UNASKED = ("journal", "retention", "server")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """Which scheduler, and what it is taken for.

    Attributes:
        address: `grpc://HOST:PORT`, `slurm:CONF` with a slurm.conf, `dispatch:FILE` with the settings of a
            dispatcher, or `simulated:SOURCE` with a trace that the engine runs.
        pace: ms of its clock for each ms of ours; 1 but for simulated ones.
        start_ms: Where a simulated one's clock stands at first, None for its first job.
        cluster: Of a simulated one; others say it themselves.
        token_file, ca_file: What a gRPC scheduler is asked with, and what its certificate is checked against.
        file: The included file that Slurm's settings are written to, None to watch only.
        past_ms: How far back Slurm's accounting is asked for jobs when the loop begins.
        site: The site file; None: Slurm says it itself, others have none.
    """

    address: str
    policy: str
    pace: float
    start_ms: int | None
    placement: Placement
    restart_cost_s: float
    estimates: str
    cluster: Cluster
    token_file: Path | None
    ca_file: Path | None
    file: Path | None
    past_ms: int
    site: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Where commands, metrics and the page are answered, and who may ask; see `authority`.

    Attributes:
        certificate_file, key_file: PEM, what it proves itself with; both None: no TLS.
        ca_file: What those who ask check that against, None for what the system trusts.
    """

    listen: str
    read_token_file: Path | None
    write_token_file: Path | None
    certificate_file: Path | None = None
    key_file: Path | None = None
    ca_file: Path | None = None

    def check(self) -> None:
        """Refuse tokens and certificates that cannot be served with.

        Raises:
            ConfigError: If there is one.
        """
        self.tokens()
        if self.certificate_file is not None and self.key_file is not None:
            check_certificate(self.certificate_file, self.key_file)

    def tokens(self) -> Tokens:
        """Read the tokens.

        Raises:
            ConfigError: If one cannot be read, others on this machine can read it, or it is none.
        """
        return Tokens(read_token(self.read_token_file), read_token(self.write_token_file))


@dataclass(frozen=True, slots=True)
class Retention:
    """How old days are when they leave the journal, and for which folder; see `control.retention`."""

    after_ms: int
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A settings file.

    Attributes:
        digest: sha256 of its bytes, first 12 hex digits.
        retention: None to keep all in the journal.
        asked: What decisions are made by, as the file has it: all but where the journal is and goes, and the
            server.
    """

    path: Path
    digest: str
    journal: str
    retention: Retention | None
    scheduler: SchedulerSettings
    server: ServerSettings
    orders: Orders
    searching: Searching
    asked: Mapping[str, Any]

    def needs_restart(self, other: Settings) -> str | None:
        """Say what of other settings cannot be taken up while the program runs; None if all can."""
        for name in ("journal", "scheduler", "server"):
            if getattr(self, name) != getattr(other, name):
                return f"{name} cannot be changed without a restart"
        return None


def read_token(path: Path | None) -> str:
    """Return the token in a file, nothing for no file.

    Raises:
        ConfigError: If it cannot be read, others on this machine can read it, or it is none.
    """
    if path is None:
        return ""
    try:
        check_private("token file", path)
        found = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "is no text"
        raise ConfigError(f"token file {path}: cannot be read ({reason}); nothing was started.") from None
    check_token(f"token file {path}", found)
    return found


def read_settings(path: Path) -> Settings:
    """Read a settings file.

    Raises:
        ConfigError: If it cannot be read, or anything in it is not possible; the message names file and key.
    """
    data, table = toml_file(path)
    try:
        asked = {name: value for name, value in table.items() if name not in _UNASKED}
        digest = hashlib.sha256(data).hexdigest()[:12]
        return _settings(path, digest, _Table(table, ""), asked)
    except ConfigError as problem:
        raise ConfigError(f"{path}: {without_end(problem)}; nothing was changed.") from None


def _step(name: str, value: Any) -> Step:
    return Step.of(name, value)


def _background(name: str, value: Any) -> int | None:
    return None if value == "off" else _span(name, value)


def settings_again(asked: Mapping[str, Any], digest: str) -> Settings:
    """Return the settings that a journal says decisions were made by; see `Settings.asked`.

    Raises:
        ConfigError: If they are not possible.
    """
    table = _Table({"journal": "sqlite:///-", **asked}, "")
    return _settings(Path("-"), digest, table, asked)


def _settings(path: Path, digest: str, file: _Table, asked: Mapping[str, Any]) -> Settings:
    mode = cast(Mode, file.take("mode", _one_of("mode", MODES)))
    journal, seed = file.take("journal", _text), file.take("seed", _whole(0, 2**63 - 1), 0)
    scheduler = _scheduler(file.table("scheduler"), path.parent)
    server = _server(file.table("server"), path.parent)
    retention = _retention(file.take("retention", _table, None), path.parent)
    search, guardrails = file.table("search"), file.table("guardrails")
    line = search.take("line", _one_of("line", LINES), "trimtab-plus")
    orders = _orders(mode, search, guardrails, line)
    searching = _searching(search, line, orders.rails, seed)
    for table in (search, guardrails, file):
        table.done()
    orders.safety.check(mode, find_policy(scheduler.policy).space)
    return Settings(
        path=path,
        digest=digest,
        journal=journal,
        retention=retention,
        scheduler=scheduler,
        server=server,
        orders=orders,
        searching=searching,
        asked=asked,
    )


def _scheduler(table: _Table, folder: Path) -> SchedulerSettings:
    address = table.take("address", _text)
    kind, _, rest = address.partition(":")
    if kind not in ("grpc", "simulated", "slurm", "dispatch") or not rest:
        raise ConfigError(
            f"scheduler.address = {address!r:.60}: it must be grpc://HOST:PORT, slurm:CONF, "
            "dispatch:FILE or simulated:SOURCE"
        )
    policy = table.take("policy", _text)
    find_policy(policy)
    ca_file = _file(table, "ca_file", folder)
    if kind == "grpc":
        check_address(
            rest.removeprefix("//"),
            is_secret=ca_file is not None,
            what=f"scheduler.address = {address!r:.60}",
            remedy="name scheduler.ca_file, or use 127.0.0.1",
        )
    found = SchedulerSettings(
        address=address,
        policy=policy,
        pace=table.take("pace", _number(0.001, 100_000), 1.0),
        start_ms=table.take("start", _span, None),
        placement=cast(Placement, table.take("placement", _one_of("placement", PLACEMENTS), "consolidated")),
        restart_cost_s=table.take("restart_cost_s", _number(0, 86_400), 62.0),
        estimates=table.take("estimates", _one_of("kind of estimates", _ESTIMATES), "predicted"),
        cluster=Cluster.pool(
            table.take("nodes", _whole(1, 100_000), 80), table.take("gpus_per_node", _whole(1, 1000), 8)
        ),
        token_file=_file(table, "token_file", folder),
        ca_file=ca_file,
        file=_file(table, "file", folder),
        past_ms=table.take("past", _span_or_none, 14 * 86_400_000),
        site=_file(table, "site", folder),
    )
    if kind == "grpc" and found.token_file is None:
        raise ConfigError("scheduler.token_file is missing: a scheduler is not asked without a token")
    table.done()
    return found


def _file(table: _Table, key: str, folder: Path) -> Path | None:
    name = table.take(key, _text, None)
    return None if name is None else folder / name


def _server(table: _Table, folder: Path) -> ServerSettings:
    listen = table.take("listen", _text, "127.0.0.1:8765")
    certificate, key = _file(table, "certificate_file", folder), _file(table, "key_file", folder)
    if (certificate is None) != (key is None):
        missing = "certificate_file" if certificate is None else "key_file"
        raise ConfigError(f"server.{missing} is missing: a certificate and its key go together")
    check_address(
        listen,
        is_secret=certificate is not None,
        what=f"server.listen = {listen!r:.60}",
        remedy="name server.certificate_file and server.key_file, or use 127.0.0.1",
    )
    found = ServerSettings(
        listen=listen,
        read_token_file=_file(table, "read_token_file", folder),
        write_token_file=_file(table, "write_token_file", folder),
        certificate_file=certificate,
        key_file=key,
        ca_file=_file(table, "ca_file", folder),
    )
    table.done()
    return found


def _retention(told: Mapping[str, Any] | None, folder: Path) -> Retention | None:
    if told is None:
        return None
    table = _Table(told, "retention.")
    found = Retention(table.take("after", _span), folder / table.take("folder", _text))
    table.done()
    return found


def _orders(mode: Mode, search: _Table, table: _Table, line: str) -> Orders:
    usual = Safety()
    safety = Safety(
        read_only=table.take("read_only", _names, frozenset()),
        canary=table.take("canary", _text, None),
        steps=table.table("steps").each(_step),
        confirm_ms=table.take("confirm", _span, usual.confirm_ms),
        state_age_max_ms=table.take("state_age", _span, usual.state_age_max_ms),
        history_min_ms=table.take("history", _span_or_none, usual.history_min_ms),
        score_ms=table.take("score_after", _span, usual.score_ms),
        losses_max=table.take("losses", _whole(1, 1000), usual.losses_max),
        loss_below=table.take("loss_below", _number(0, 1), usual.loss_below),
        failures_max=table.take("failures", _whole(1, 1000), usual.failures_max),
        proposal_ms=table.take("proposal", _span, usual.proposal_ms),
    )
    rails = Guardrails(
        gain_min=table.take("gain_min", _number(1, 100), 1.1 if line == "trimtab" else 1.0),
        dwell_ms=table.take("dwell", _span, 1_800_000),
        return_ms=table.take("return", _span_or_none, 10_800_000),
        belief_min=table.take("belief_min", _number(0, 1), 0.6),
    )
    background_ms = search.take("background", _background, 300_000)
    interval_ms = search.take("interval", _span, 3_600_000)
    if rails.dwell_ms <= safety.confirm_ms:
        raise ConfigError("guardrails.dwell must be longer than guardrails.confirm")
    return Orders(
        mode=mode,
        rails=rails,
        safety=safety,
        interval_ms=interval_ms,
        background_ms=background_ms,
        poll_ms=search.take("poll", _span, 60_000),
    )


def _searching(table: _Table, line: str, rails: Guardrails, seed: int) -> Searching:
    own = LINES[line]
    forecasting = replace(
        own,
        futures=table.take("futures", _whole(1, 64), own.futures),
        arrivals=table.take("arrivals", _one_of("arrival forecaster", (*ARRIVALS, DAY_BY_DAY)), own.arrivals),
        arrivals_ms=table.take("arrivals_horizon", _span, own.arrivals_ms),
        run_on_ms=table.take("run_on", _span, own.run_on_ms),
    )
    tuning = Tuning(
        objective=find_objective(table.take("objective", _text, "wait")),
        sampler=table.take("sampler", _one_of("sampler", SAMPLERS), "bluefin"),
        budget=table.take("budget", _whole(1, _BUDGET_MAX), 80),
    )
    return Searching(line=line, tuning=tuning, rails=rails, forecasting=forecasting, seed=seed)


def server_of(path: Path) -> tuple[ServerSettings, Tokens]:
    """Return where a running server of a settings file answers, and what to show it.

    Raises:
        ConfigError: If the file or a token cannot be read.
    """
    server = read_settings(path).server
    files = server.read_token_file, server.write_token_file
    read, write = (read_token(one) if one and os.access(one, os.R_OK) else "" for one in files)
    return server, Tokens(read, write)
