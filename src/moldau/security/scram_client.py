"""SCRAM from a client's side: a proof that both sides know the password (RFC 5802, RFC 7677).

Name and password count as the bytes of their UTF-8, as with Kafka's own tools and librdkafka: they
do without the SASLprep of the standard, by which the same password would be another.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# Fewer are no protection, as in Kafka; many more would only keep us busy.
LEAST_ITERATIONS = 4096
MOST_ITERATIONS = 10_000_000

_HEADER = "n,,"
_FIRST = re.compile(r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=([0-9]{1,9})(?:,.*)?")
_FINAL = re.compile(r"v=([A-Za-z0-9+/=]+)(?:,.*)?")


class ServerNotTrusted(Exception):
    """A server that did not prove that it knows the password, or sent nonsense."""


class Scram:
    """One authentication; UnicodeEncodeError for what is no text."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str = "") -> None:
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce or secrets.token_hex()
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}"
        self._first = f"{_HEADER}{self._bare}".encode()
        # What the server has to prove itself with; empty before it was asked for that.
        self._signature = b""

    def first(self) -> bytes:
        return self._first

    def respond(self, challenge: bytes) -> bytes | None:
        """Prove the password, then check the server's proof; ServerNotTrusted if it is none."""
        try:
            text = challenge.decode()
            if not self._signature:
                return self._prove(text)
            self._check(text)
        except ValueError as problem:
            raise ServerNotTrusted(f"the broker broke the SCRAM protocol: {problem}") from None
        return None

    def _prove(self, message: str) -> bytes:
        found = _FIRST.fullmatch(message)
        if found is None:
            raise ValueError("its first message is not a SCRAM message")
        nonce, salt, iterations = found[1], b64decode(found[2], validate=True), int(found[3])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ValueError("its nonce does not continue ours")
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise ValueError(f"it asks for {iterations} iterations")
        name = self._hash
        salted = hashlib.pbkdf2_hmac(name, self._password, salt, iterations)
        key = hmac.digest(salted, b"Client Key", name)
        final = f"c={b64encode(_HEADER.encode()).decode()},r={nonce}"
        said = f"{self._bare},{message},{final}".encode()
        signature = hmac.digest(hashlib.new(name, key).digest(), said, name)
        proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", name), said, name)
        return f"{final},p={b64encode(proof).decode()}".encode()

    def _check(self, message: str) -> None:
        found = _FINAL.fullmatch(message)
        if found is None:
            raise ValueError("its last message is not a SCRAM message")
        if not hmac.compare_digest(b64decode(found[1], validate=True), self._signature):
            raise ValueError("it does not know the password")
