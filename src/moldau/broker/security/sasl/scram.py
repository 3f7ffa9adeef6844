"""SCRAM: a password that neither side ever sends (RFC 5802), by scramp.

A user that does not exist gets a salt, too, always the same one, and fails where a wrong password
does: nobody learns from the broker who exists. Salts and iterations are sent to whoever gives a
name. So those of nobody look like those of the cluster's users, and users from the settings have
the salts that they would have if they did not exist, at every broker and after every start.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Mapping

from scramp import ScramException, ScramMechanism

from moldau.broker.security.credentials import LONGEST_SALT, Credentials, ScramCredential
from moldau.broker.security.sasl.mechanism import AuthenticationFailed, Step
from moldau.cluster.state import access

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS = 4096
_SALT = 24


def credential_of(
    mechanism: str, password: str, salt: bytes | None = None
) -> access.ScramCredential:
    """Return the credential for a password, with this salt or one of its own."""
    hash_name, salt = HASHES[mechanism], os.urandom(_SALT) if salt is None else salt
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    return access.ScramCredential(salt, stored_key, server_key, ITERATIONS)


class Scram:
    """One of SCRAM's mechanisms for a listener.

    `own` are users from the settings, `credentials` those of the cluster. `secret` gives users that
    do not exist their salts, the same on every broker.
    """

    def __init__(
        self,
        name: str,
        own: Mapping[str, str],
        credentials: Callable[[], Credentials],
        secret: Callable[[], bytes],
    ) -> None:
        self.name = name
        self.mechanism = ScramMechanism(name)
        self._credentials = credentials
        self._secret = secret
        self._passwords = dict(own)
        # By the secret that their salts were made with.
        self._own: tuple[bytes, dict[str, ScramCredential]] | None = None

    def begin(self) -> ScramExchange:
        return ScramExchange(self)

    def prepare(self) -> None:
        """Hash the passwords from the settings, which takes some milliseconds each. Any thread."""
        secret = self._secret()
        found: dict[str, ScramCredential] = {
            user: credential_of(self.name, password, self._drawn(secret, user)[:_SALT])
            for user, password in self._passwords.items()
        }
        self._own = secret, found

    def find(self, user: str) -> tuple[ScramCredential, bool]:
        """Return a user's credential and True, or one that no password fits and False."""
        if self._own is None or self._own[0] != self._secret():
            # The cluster was not known before.
            self.prepare()
        assert self._own is not None
        nobodys = self._nobodys(user)
        # A password that was changed since replaces that of the settings.
        found = self._credentials().scram(user, self.name) or self._own[1].get(user)
        return (nobodys, False) if found is None else (found, True)

    def _nobodys(self, user: str) -> ScramCredential:
        drawn = self._drawn(self._secret(), user)
        shapes = self._credentials().shapes(self.name)
        if self._passwords or not shapes:
            shapes = (*shapes, (ITERATIONS, _SALT))
        iterations, size = shapes[drawn[-1] % len(shapes)]
        digest = self.mechanism.hf().digest_size
        return access.ScramCredential(
            drawn[:size], os.urandom(digest), os.urandom(digest), iterations
        )

    def _drawn(self, secret: bytes, user: str) -> bytes:
        """Return the bytes that stand for a user, as long as any salt, and one more to choose
        by."""
        return hashlib.shake_256(
            hmac.digest(secret, f"{self.name} {user}".encode(), "sha512")
        ).digest(LONGEST_SALT + 1)


class ScramExchange:
    """Two messages of a client: who it is, and the proof."""

    def __init__(self, scram: Scram) -> None:
        self._scram = scram
        self._server = scram.mechanism.make_server(self._find)
        self._user = self._given = ""
        self._exists = False
        self._is_begun = False

    def respond(self, message: bytes) -> Step:
        try:
            text = message.decode()
            if not self._is_begun:
                self._is_begun = True
                self._given = _name_in(text)
                self._server.set_client_first(text)
                return Step(self._server.get_server_first().encode())
            self._server.set_client_final(text)
            final = self._server.get_server_final().encode()
        except (ScramException, UnicodeDecodeError, ValueError) as problem:
            raise self._refusal(str(problem)) from None
        if not self._exists:
            raise self._refusal("unknown user")
        return Step(final, self._user)

    def _find(self, prepared: str) -> tuple[bytes, bytes, bytes, int]:
        # As it was sent, which is how users are named: Kafka does without SASLprep.
        self._user = user = self._given
        found, self._exists = self._scram.find(user)
        return found.salt, found.stored_key, found.server_key, found.iterations

    def _refusal(self, problem: str) -> AuthenticationFailed:
        message = (
            "Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {self._scram.name}"
        )
        if not self._user:
            return AuthenticationFailed(message, f"not a SCRAM message: {problem}")
        return AuthenticationFailed(message, "is unknown or gave a wrong password", self._user)


def _name_in(first: str) -> str:
    """Return the name in a client's first message, `n,,n=NAME,r=NONCE`, if it is one."""
    name = first.partition(",")[2].partition(",n=")[2].partition(",")[0]
    return name.replace("=2C", ",").replace("=3D", "=")
