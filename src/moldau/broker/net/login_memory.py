"""Memory for requests of clients that have not authenticated, apart from that of all others.

Anybody can connect and stop in the middle of a request. So nobody waits here: when there is too
little, the one that has been at it longest is closed. A login takes a few round trips, so that is
one that stalls. Event loop only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from moldau.records.scratch import Scratch

_REASON = (
    "too many clients are sending long requests before they authenticate, and this one is the "
    "slowest"
)


class Stranger(Protocol):
    """A connection whose client has not authenticated."""

    def close(self, reason: str) -> None:
        """End the connection at once and log why."""


class LoginMemory:
    """The memory in use, by connection, in the order in which it was taken."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._held: dict[Stranger, int] = {}
        self.taken = 0

    def share_of(self, connection: Stranger) -> Share:
        """Return what the input of a connection takes its memory from."""
        return Share(self, connection)

    def hold(self, connection: Stranger, size: int) -> None:
        """Let a connection have so much in all, and close as many others as that takes."""
        held = self._held
        self.taken -= held.pop(connection, 0)
        if not size:
            return
        limit = self._limit()
        while held and self.taken + size > limit:
            oldest = next(iter(held))
            # Its end comes later, and finds nothing to give back.
            self.taken -= held.pop(oldest)
            oldest.close(_REASON)
        held[connection] = size
        self.taken += size


class Share:
    """One connection's."""

    __slots__ = ("_all", "_connection")

    def __init__(self, memory: LoginMemory, connection: Stranger) -> None:
        self._all = memory
        self._connection = connection

    def take(self, size: int, instead_of: int) -> bool:
        self._all.hold(self._connection, size)
        return True

    def hold(self, size: int) -> None:
        self._all.hold(self._connection, size)

    def dispose(self, buffer: Scratch, position: int = 0) -> None:
        """Leave it to the collector: what strangers may send is not large."""
