"""Certificates for tests, signed by an authority that lives as long as the tests do."""

from __future__ import annotations

import ssl
from functools import cache
from pathlib import Path

from moldau.security.authority import Authority, Issued

HOSTS = ("127.0.0.1", "localhost")


@cache
def authority() -> Authority:
    """The one that everybody trusts."""
    return Authority.create("Authority of the tests")


@cache
def stranger() -> Authority:
    """One that nobody trusts, by the same name."""
    return Authority.create("Authority of the tests")


@cache
def of_broker() -> Issued:
    return authority().issue("broker", HOSTS)


@cache
def of_user(name: str) -> Issued:
    return authority().issue(name)


def tls_settings(folder: Path, issued: Issued | None = None) -> dict[str, str]:
    """The settings of a TLS listener, from PEM files in `folder`."""
    keystore, truststore = folder / "broker.pem", folder / "authority.pem"
    keystore.write_text((issued or of_broker()).pem)
    truststore.write_text(authority().certificate)
    return {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.location": str(truststore),
    }


def client_context(issued: Issued | None = None, folder: Path | None = None) -> ssl.SSLContext:
    """What a client trusts, and the certificate that it shows."""
    context = ssl.create_default_context(cadata=authority().certificate)
    if issued is not None:
        assert folder is not None
        path = folder / "client.pem"
        path.write_text(issued.pem)
        context.load_cert_chain(path)
    return context
