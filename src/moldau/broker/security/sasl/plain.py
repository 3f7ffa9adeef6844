"""PLAIN: a name and a password in clear (RFC 4616), so only over TLS or a network of one's own."""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping

from moldau.broker.security.sasl.mechanism import AuthenticationFailed, Step

_REFUSED = "Authentication failed: Invalid username or password"
_USER = "user_"


def users_of(options: Mapping[str, str]) -> dict[str, str]:
    """Return the users that a login module's options name: `user_NAME="PASSWORD"`."""
    return {
        key.removeprefix(_USER): password
        for key, password in options.items()
        if key.startswith(_USER)
    }


class Plain:
    """The users of a listener, with their passwords."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = {user: password.encode() for user, password in users.items()}
        # Compared with the passwords of those who do not exist.
        self._nobody = os.urandom(16)

    def begin(self) -> Plain:
        return self

    def respond(self, message: bytes) -> Step:
        """Check the only message that there is."""
        try:
            as_user, user, password = message.decode().split("\0")
        except ValueError:
            raise AuthenticationFailed(
                "Invalid SASL/PLAIN response: expected 3 tokens",
                "the message is not a PLAIN message",
            ) from None
        expected = self._users.get(user)
        is_right = hmac.compare_digest(
            self._nobody if expected is None else expected, password.encode()
        )
        if expected is None or not is_right:
            raise AuthenticationFailed(_REFUSED, "is unknown or gave a wrong password", user)
        if as_user not in ("", user):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username",
                "asked to act as another user",
                user,
            )
        return Step(b"", user)
