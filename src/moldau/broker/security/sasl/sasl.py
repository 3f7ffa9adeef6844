"""The state of one connection's authentication: which message of SASL may come next.

    HANDSHAKE      the client names a mechanism                            -> EXCHANGE
    EXCHANGE       its messages, each in a SaslAuthenticate, or bare after
                   a handshake of version 0                                -> DONE, or the end
    DONE           requests; another handshake is a re-authentication (KIP-368), of the same user
                   by the same mechanism                                   -> EXCHANGE
    EXPIRED        nothing but a handshake                                 -> EXCHANGE

No I/O and no clock here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

import msgspec

from moldau.broker.security.sasl.mechanism import AuthenticationFailed, Exchange, Mechanism, Step


class Phase(Enum):
    """Where a client stands."""

    HANDSHAKE = auto()
    EXCHANGE = auto()
    DONE = auto()
    EXPIRED = auto()


class IllegalState(Exception):
    """A message of SASL that may not come now."""


class SaslDoor(msgspec.Struct, frozen=True):
    """What the clients of a listener authenticate by, and within which bounds."""

    mechanisms: Mapping[str, Mechanism]
    max_receive_size: int
    timeout_s: float
    delay_s: float
    # How long a session lasts at most, in milliseconds, by mechanism; 0 is for ever.
    max_session_ms: Mapping[str, int]


class Authentication:
    """One connection's. Event loop only."""

    __slots__ = ("_exchange", "_user", "door", "is_bare", "mechanism", "phase", "requests")

    def __init__(self, door: SaslDoor) -> None:
        self.door = door
        self.phase = Phase.HANDSHAKE
        self.mechanism = ""
        # Whether messages come without a request around them.
        self.is_bare = False
        # Requests so far, before it is done.
        self.requests = 0
        self._exchange: Exchange | None = None
        self._user: str | None = None

    @property
    def was_done(self) -> bool:
        """Whether the client has authenticated before."""
        return self._user is not None

    def handshake(self, mechanism: str, *, is_bare: bool) -> bool:
        """Begin an exchange; False if there is no such mechanism."""
        if self.phase is Phase.EXCHANGE:
            raise IllegalState("a second handshake during the first")
        known = self.door.mechanisms.get(mechanism)
        if known is None or (self._user is not None and mechanism != self.mechanism):
            return False
        self.mechanism = mechanism
        self.is_bare = is_bare
        self._exchange = known.begin()
        self.phase = Phase.EXCHANGE
        return True

    def authenticate(self, message: bytes) -> Step:
        """Return the answer to a client's message; AuthenticationFailed if it proves nothing."""
        if self.phase is not Phase.EXCHANGE or self._exchange is None:
            raise IllegalState("SaslAuthenticate without a handshake before it")
        step = self._exchange.respond(message)
        if step.user is None:
            return step
        if self._user not in (None, step.user):
            raise AuthenticationFailed(
                f"Cannot change principals during re-authentication from User:{self._user} to "
                f"User:{step.user}",
                f"came back as {step.user!r}",
                str(self._user),
            )
        self._user = step.user
        self._exchange = None
        self.is_bare = False
        self.requests = 0
        self.phase = Phase.DONE
        return step

    def lifetime_ms(self, step: Step, now_ms: int) -> int:
        """Return how long the session lasts; 0 if for ever."""
        limits = []
        if self.door.max_session_ms.get(self.mechanism):
            limits.append(self.door.max_session_ms[self.mechanism])
        if step.expires_at_ms is not None:
            limits.append(max(step.expires_at_ms - now_ms, 1))
        return min(limits, default=0)

    def expire(self) -> None:
        """Note that the session is over: the client has to authenticate again."""
        if self.phase is Phase.DONE:
            self.phase = Phase.EXPIRED
