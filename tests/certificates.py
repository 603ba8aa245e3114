"""Certificates, good and bad ones, of a server on this machine."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from trimtab.control.authority import Certificate


def issued(*, host: str = "127.0.0.1", days: tuple[int, int] = (-1, 1)) -> tuple[Certificate, bytes]:
    """Return a server's certificate, valid between two days from now, and its issuer's."""
    now = datetime.datetime.now(datetime.UTC)
    issuer_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer of the test")])
    issuer = (
        _certificate(issuer_name, issuer_name, issuer_key, now, (-400, 400))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(issuer_key, hashes.SHA256())
    )
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "scheduler")])
    known_as = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
    chain = (
        _certificate(name, issuer_name, key, now, days)
        .add_extension(known_as, critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Certificate(chain.public_bytes(pem), secret), issuer.public_bytes(pem)


def _certificate(
    name: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
    days: tuple[int, int],
) -> x509.CertificateBuilder:
    first, last = (now + datetime.timedelta(days=day) for day in days)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(first)
        .not_valid_after(last)
    )


def write_certificate(folder: Path, **more: Any) -> None:
    """Write a server's certificate, its key and its issuer's certificate."""
    certificate, roots = issued(**more)
    (folder / "server.pem").write_bytes(certificate.chain)
    (folder / "server.key").write_bytes(certificate.key)
    (folder / "server.key").chmod(0o600)
    (folder / "issuer.pem").write_bytes(roots)
