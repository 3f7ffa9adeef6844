"""Authentication over HTTP: Basic by the users of PLAIN and SCRAM, Bearer by OAUTHBEARER's tokens.

The same users, and the same settings, as on a listener with SASL.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import os
import time

from moldau.broker.security.audit import Audit
from moldau.broker.security.principal import Principal
from moldau.broker.security.sasl.mechanism import AuthenticationFailed
from moldau.broker.security.sasl.oauthbearer import Oauthbearer
from moldau.broker.security.sasl.plain import Plain
from moldau.broker.security.sasl.sasl import SaslDoor
from moldau.broker.security.sasl.scram import HASHES, Scram
from moldau.broker.settings.http import HTTP

# How long a password that was right is remembered, and how many: to check one takes milliseconds,
# and a client sends it with each request.
_REMEMBERED_S = 30.0
_MOST_REMEMBERED = 1000
# How many passwords are checked at once; the others wait, so that guessing costs the broker little.
_AT_ONCE = 2


class SaslAuthenticator:
    """Finds out who sent a request, by the mechanisms of a SASL door. Event loop only.

    `audit` hears of those who prove nothing.
    """

    def __init__(self, door: SaslDoor, audit: Audit) -> None:
        self._audit = audit
        self._mechanisms = door.mechanisms
        self._delay_s = door.delay_s
        self._key = os.urandom(32)
        # By a digest of the header and the credential that it was checked against.
        self._right: dict[bytes, float] = {}
        self._checks = asyncio.Semaphore(_AT_ONCE)
        schemes = []
        if any(isinstance(each, Plain | Scram) for each in self._mechanisms.values()):
            schemes.append('Basic realm="moldau", charset="UTF-8"')
        if any(isinstance(each, Oauthbearer) for each in self._mechanisms.values()):
            schemes.append("Bearer")
        self.challenge = ", ".join(schemes)

    async def authenticate(self, authorization: str, address: str) -> Principal | None:
        """Return the sender; None if the header proves nobody."""
        if not authorization:
            return None
        scheme, _, given = authorization.partition(" ")
        by = {"basic": self._by_password, "bearer": self._by_token}.get(scheme.lower(), _by_nothing)
        shown = scheme.capitalize() if by is not _by_nothing else ""
        try:
            found = Principal("User", await by(given.strip()))
            self._audit.login_admitted(address, HTTP, shown, found)
            return found
        except AuthenticationFailed as problem:
            self._audit.login_refused(address, HTTP, shown, problem.reason, problem.user)
        # As on the other doors: whoever guesses has to wait.
        await asyncio.sleep(self._delay_s)
        return None

    async def _by_token(self, token: str) -> str:
        for mechanism in self._mechanisms.values():
            if isinstance(mechanism, Oauthbearer):
                try:
                    return mechanism.check(token)[0]
                except ValueError as problem:
                    raise AuthenticationFailed("", f"its token: {problem}") from None
        return await _by_nothing(token)

    async def _by_password(self, encoded: str) -> str:
        try:
            user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise AuthenticationFailed("", "not a user name and a password") from None
        if not colon or not user or "\0" in user or "\0" in password:
            raise AuthenticationFailed("", "not a user name and a password")
        for mechanism in self._mechanisms.values():
            if isinstance(mechanism, Plain) and _is_plain(mechanism, user, password):
                return user
            if isinstance(mechanism, Scram) and await self._is_scram(mechanism, user, password):
                return user
        raise AuthenticationFailed("", "is unknown or gave a wrong password", user)

    async def _is_scram(self, scram: Scram, user: str, password: str) -> bool:
        credential, exists = scram.find(user)
        known_by = f"{scram.name}\0{user}\0{password}\0".encode() + credential.stored_key
        digest = hmac.digest(self._key, known_by, "sha256")
        now = time.monotonic()
        if self._right.get(digest, 0.0) > now:
            return True
        name = HASHES[scram.name]
        async with self._checks:
            salted = await asyncio.to_thread(
                hashlib.pbkdf2_hmac, name, password.encode(), credential.salt, credential.iterations
            )
        client_key = hmac.digest(salted, b"Client Key", name)
        stored_key = hashlib.new(name, client_key).digest()
        is_right = hmac.compare_digest(stored_key, credential.stored_key) and exists
        if is_right:
            self._remember(digest, now)
        return is_right

    def _remember(self, digest: bytes, now: float) -> None:
        if len(self._right) >= _MOST_REMEMBERED:
            self._right = {key: until for key, until in self._right.items() if until > now}
        if len(self._right) < _MOST_REMEMBERED:
            self._right[digest] = now + _REMEMBERED_S


async def _by_nothing(given: str) -> str:
    raise AuthenticationFailed("", "neither a password nor a token that this listener accepts")


def _is_plain(plain: Plain, user: str, password: str) -> bool:
    try:
        plain.begin().respond(f"\0{user}\0{password}".encode())
    except AuthenticationFailed:
        return False
    return True
