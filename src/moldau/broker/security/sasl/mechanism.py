"""Mechanisms of SASL: what they have in common."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from moldau.broker.security.principal import shortened


class AuthenticationFailed(Exception):
    """A proof that proves nothing.

    `message` is for the client, and the same whether a user exists or not. `reason` is for those
    who count failures: it has nothing that the client may choose at will. `user` is who was tried,
    if the client said so. As text it is for the log, with all of this but no secret.
    """

    def __init__(self, message: str, reason: str, user: str = "", told: str = "") -> None:
        self.message = message
        self.reason = reason
        self.user = user
        super().__init__(told or (f"user {shortened(user)!r} {reason}" if user else reason))


class Step(NamedTuple):
    """The answer to a client's message; with a `user` it is the last one.

    `expires_at_ms` is when the proof ceases to count, if it does. A `problem` is why the client
    will be refused with its next message: it may close the connection instead.
    """

    challenge: bytes
    user: str | None = None
    expires_at_ms: int | None = None
    problem: AuthenticationFailed | None = None


class Exchange(Protocol):
    """One client's exchange by one mechanism. Event loop only."""

    def respond(self, message: bytes) -> Step:
        """Return the next step; AuthenticationFailed ends the exchange."""


class Mechanism(Protocol):
    """A mechanism with what a listener checks proofs against."""

    def begin(self) -> Exchange: ...
