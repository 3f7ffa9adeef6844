"""Keys and certificates: read from PEM, PKCS12 or inline text, and handed to OpenSSL.

Python's ssl takes a private key only from a file. A key that is in none is given to it through
memory that has a name only as long as it is open; where the system has no such memory, through a
file that only its owner can read and that is gone at once.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_JKS_MAGICS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_PEM_MARK = b"-----BEGIN "


class TlsError(Exception):
    """Settings of TLS that cannot be used; `setting` is the one to look at."""

    def __init__(self, setting: str, reason: str) -> None:
        super().__init__(f"{setting}: {reason}")
        self.setting = setting
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Pem:
    """The text of a key, of certificates or of both, with the password of an encrypted key.

    `setting` is where it came from, for messages.
    """

    setting: str
    text: bytes
    password: str

    def __repr__(self) -> str:
        return f"Pem(from {self.setting})"


def read_store(setting: str, path: str, kind: str, password: str) -> Pem:
    """Return what a keystore or truststore file holds, in PEM; TlsError if it cannot be read."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as reason:
        raise TlsError(setting, f"{path} could not be read: {reason.strerror}") from None
    if data.startswith(_JKS_MAGICS):
        raise TlsError(
            setting,
            f"{path} is in JKS format, which only Java can read; convert it: keytool "
            f"-importkeystore -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12",
        )
    if kind == "PEM" or (not kind and _PEM_MARK in data):
        if _PEM_MARK not in data:
            raise TlsError(setting, f"{path} is not PEM: it has no line that begins '-----BEGIN'")
        return Pem(setting, data, password)
    # What Java calls a JKS store has been PKCS12 inside since Java 9.
    return Pem(setting, _from_pkcs12(setting, path, data, password), "")


def _from_pkcs12(setting: str, path: str, data: bytes, password: str) -> bytes:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        store = load_pkcs12(data, password.encode() if password else None)
    except (ValueError, TypeError):
        reason = f"{path} is not PKCS12, or the password is wrong"
        raise TlsError(setting, reason) from None
    parts = []
    if store.key is not None:
        parts.append(store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    own = [] if store.cert is None else [store.cert]
    for each in (*own, *store.additional_certs):
        parts.append(each.certificate.public_bytes(Encoding.PEM))
    return b"".join(parts)


def load_key(context: ssl.SSLContext, pem: Pem) -> None:
    """Give a context its private key and certificates; TlsError if they do not fit."""
    # Without a password OpenSSL would ask for one on the terminal.
    password = pem.password
    try:
        with _private_file(pem.text) as path:
            context.load_cert_chain(path, password=lambda: password)
    except ssl.SSLError as reason:
        raise TlsError(pem.setting, _key_problem(reason, pem)) from None


def _key_problem(reason: ssl.SSLError, pem: Pem) -> str:
    if reason.reason == "KEY_VALUES_MISMATCH":
        return "the first certificate does not belong to the private key"
    if b"PRIVATE KEY-----" not in pem.text:
        return "it contains no private key"
    if b"-----BEGIN CERTIFICATE" not in pem.text:
        return "it contains no certificate"
    if b"ENCRYPTED" in pem.text:
        return "the private key is encrypted, and ssl.key.password does not decrypt it"
    return f"the key or a certificate cannot be used: {reason.reason or reason}"


def load_trust(context: ssl.SSLContext, pem: Pem) -> None:
    """Have a context trust these authorities; TlsError if they are none."""
    try:
        context.load_verify_locations(cadata=pem.text.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError) as reason:
        raise TlsError(pem.setting, f"it contains no certificate: {reason}") from None


@contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("moldau", os.MFD_CLOEXEC)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    # Made with mode 0600.
    descriptor, path = tempfile.mkstemp(prefix="moldau-")
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        yield path
    finally:
        os.unlink(path)
