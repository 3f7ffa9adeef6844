"""What all mechanisms have in common."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class AuthenticationFailed(Exception):
    """A proof that proves nothing.

    `message` is for the client, and the same whether a user exists or not; `reason` is for the log,
    where it may name the user, but no secret.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(reason)
        self.message = message
        self.reason = reason


class Step(NamedTuple):
    """The answer to a client's message; with a `user` it is the last one.

    `expires_at_ms` is when the proof ceases to count, if it does. A `problem` is why the client
    will be refused with its next message, for the log: it may close the connection instead.
    """

    challenge: bytes
    user: str | None = None
    expires_at_ms: int | None = None
    problem: str | None = None


class Exchange(Protocol):
    """One client's exchange by one mechanism. Event loop only."""

    def respond(self, message: bytes) -> Step:
        """Return the next step; AuthenticationFailed ends the exchange."""


class Mechanism(Protocol):
    """A mechanism with what a listener checks proofs against."""

    def begin(self) -> Exchange: ...
