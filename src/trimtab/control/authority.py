"""Who may ask a scheduler, and who may change it: addresses, tokens and certificates; needs nothing."""

from __future__ import annotations

import hmac
import ipaddress
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trimtab.errors import ConfigError

Scope = Literal["read", "write"]

# Long enough not to be guessed.
TOKEN_LEAST = 16
_TOKEN = re.compile(r"[!-~]+")
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):(\d{1,5})")


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a client must show: one token to read, another to read and write; an empty one lets nobody in.

    Raises:
        ConfigError: If both are empty, one is too short or not plain text, or they are the same.
    """

    read: str = field(default="", repr=False)
    write: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        given = [token for token in (self.read, self.write) if token]
        if not given:
            raise ConfigError("a server needs a token: without one anybody could ask; nothing was started.")
        for token in given:
            check_token("a token", token)
        if self.read == self.write:
            raise ConfigError("the tokens to read and to write are the same; nothing was started.")

    def scope(self, shown: str) -> Scope | None:
        """Return what a token allows, None for nothing; takes as long whatever is shown."""
        writes = _is_same(shown, self.write)
        reads = _is_same(shown, self.read)
        return "write" if writes else "read" if reads else None


def _is_same(shown: str, token: str) -> bool:
    return hmac.compare_digest(shown.encode(), token.encode()) and bool(token)


def check_token(what: str, token: str) -> None:
    """Refuse a token that could be guessed or cannot be sent; it is named by where it comes from.

    Raises:
        ConfigError: If so.
    """
    if len(token) < TOKEN_LEAST or not _TOKEN.fullmatch(token):
        raise ConfigError(
            f"{what} needs at least {TOKEN_LEAST} characters, none of them blank or beyond ASCII; "
            "nothing was started."
        )


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a server proves itself with: certificate chain and private key, both PEM."""

    chain: bytes
    key: bytes = field(repr=False)


def check_private(what: str, path: Path) -> None:
    """Refuse a file with a secret that others on this machine can read.

    Raises:
        ConfigError: If so. OSError: if it is not there.
    """
    if path.stat().st_mode & 0o077:
        raise ConfigError(f"{what} {path}: others can read it; chmod 600 it; nothing was started.")


def check_certificate(chain: Path, key: Path) -> None:
    """Refuse a certificate that a server cannot prove itself with.

    Raises:
        ConfigError: If a file cannot be read or is none, the key is another one's, or others can read it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        check_private("key file", key)
        chain.open("rb").close()
        context.load_cert_chain(chain, key, password=lambda: "")  # nobody is asked for one
    except ssl.SSLError as problem:
        is_others = problem.reason == "KEY_VALUES_MISMATCH"
        why = "is not the key of" if is_others else "cannot be used with"
        raise ConfigError(f"key file {key}: {why} certificate file {chain}; nothing was started.") from None
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise ConfigError(f"{problem.filename}: cannot be read ({reason}); nothing was started.") from None


def trusting(issuer: Path | None) -> ssl.SSLContext:
    """Return what a client checks a server's certificate with: its issuer's, or those the system trusts.

    Raises:
        ConfigError: If the file cannot be read, or has no certificate.
    """
    try:
        return ssl.create_default_context(cafile=issuer)
    except ssl.SSLError:
        raise ConfigError(f"CA file {issuer}: has no certificate; nothing was asked.") from None
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise ConfigError(f"CA file {issuer}: cannot be read ({reason}); nothing was asked.") from None


def check_address(
    address: str, *, is_secret: bool, what: str = "", remedy: str = "give certificates, or use 127.0.0.1"
) -> None:
    """Refuse an address that is none, and one beyond this machine for what is not kept secret on the way.

    Args:
        what: How it was told, if in other words. remedy: what makes it possible there.

    Raises:
        ConfigError: If so.
    """
    what = what or f"address {address!r:.100}"
    found = _ADDRESS.fullmatch(address)
    if found is None or int(found[2]) > 65_535:
        raise ConfigError(f"{what}: it must be HOST:PORT, ports up to 65535; nothing was started.")
    if not is_secret and not _is_loopback(found[1].strip("[]")):
        raise ConfigError(
            f"{what}: beyond this machine a token goes over TLS only; {remedy}; nothing was started."
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
