"""Cipher suites by their standard names and by OpenSSL's."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest

from moldau.security.cipher_suites import for_openssl, limit_suites
from moldau.security.key_material import TlsError
from moldau.security.tls import server_context
from moldau.security.tls_settings import TlsSettings
from tests.certificates import client_context, of_broker

ALL_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")


def of_any_version() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_3
    return context


@pytest.mark.parametrize(
    ("standard", "by_openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA", "DHE-RSA-AES128-SHA"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA256", "AES256-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CCM_8", "ECDHE-ECDSA-AES256-CCM8"),
        ("TLS_DHE_RSA_WITH_AES_128_CCM", "DHE-RSA-AES128-CCM"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_standard_names_are_turned_into_those_of_openssl(standard: str, by_openssl: str) -> None:
    assert for_openssl([standard, *ALL_1_3]) == by_openssl
    context = of_any_version()
    limit_suites(context, (standard,))
    assert by_openssl in {each["name"] for each in context.get_ciphers()}


def spoken(folder: Path, *suites: str) -> tuple[str, str]:
    """The suite and the version that a client and a listener with these suites agree on."""
    path = folder / "broker.pem"
    path.write_text(of_broker().pem)
    settings = TlsSettings(ssl_keystore_location=str(path), ssl_cipher_suites=suites)
    context = server_context(settings)
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with context.wrap_socket(ours, server_side=True) as encrypted:
            encrypted.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client_context().wrap_socket(theirs, server_hostname="localhost") as client:
            client.sendall(b"x")
            suite = client.cipher()
            assert suite is not None
            return suite[0], str(client.version())
    finally:
        theirs.close()
        thread.join()


def test_only_the_suites_that_are_named_are_spoken(tmp_path: Path) -> None:
    one, other = "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"
    # Those of TLS 1.2 alone leave that version alone, as in Java.
    assert spoken(tmp_path, one) == (one, "TLSv1.2")
    assert spoken(tmp_path, other) == (other, "TLSv1.2")
    assert spoken(tmp_path, *ALL_1_3)[1] == "TLSv1.3"
    assert spoken(tmp_path, *ALL_1_3, one)[1] == "TLSv1.3"


@pytest.mark.parametrize(
    ("protocols", "suites", "reason"),
    [
        (("TLSv1.2",), ("TLS_RSA_WITH_NOTHING",), "has no cipher suite"),
        (("TLSv1.2",), ALL_1_3, "none of them belongs to a version"),
        (("TLSv1.3",), ("AES256-SHA256",), "none of them belongs to a version"),
    ],
)
def test_suites_that_cannot_be_spoken_are_refused(
    tmp_path: Path, protocols: tuple[str, ...], suites: tuple[str, ...], reason: str
) -> None:
    path = tmp_path / "broker.pem"
    path.write_text(of_broker().pem)
    settings = TlsSettings(
        ssl_keystore_location=str(path), ssl_enabled_protocols=protocols, ssl_cipher_suites=suites
    )
    with pytest.raises(TlsError, match=reason):
        server_context(settings)


@pytest.mark.skipif(
    hasattr(ssl.SSLContext, "set_ciphersuites"), reason="this Python chooses among them"
)
def test_a_choice_that_python_cannot_make_is_refused() -> None:
    with pytest.raises(TlsError, match="name all of"):
        limit_suites(of_any_version(), ALL_1_3[:1])
