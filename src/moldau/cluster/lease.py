"""The lease of a broker: how long it may believe that its session lives, and so that it leads."""

from __future__ import annotations

import math
from collections.abc import Callable


class Lease:
    """The time for which the ensemble surely keeps a session, by this machine's own clock.

    ZooKeeper counts from when it last heard from a client, which is never before the client sent
    what was answered; so the lease runs from there. Times are those of `moldau.cluster.clock`.

    A timer alone cannot end a lease in time: a process that was frozen wakes up with requests in
    its sockets, and may come to them first. So whoever answers as a leader looks at the clock
    himself, before he acts and again before the answer leaves, and calls `expire` at `ends_at`
    or later. That ends the lease for everybody before anything else is done. Event loop only.
    """

    __slots__ = ("_duration", "_on_end", "_sent_at", "ends_at")

    def __init__(self, duration: float, now: float, on_end: Callable[[], None]) -> None:
        self._duration = duration
        self._sent_at = now
        self._on_end = on_end
        # Infinite once it is over, since there is nothing more to look out for.
        self.ends_at = now + duration

    @property
    def duration(self) -> float:
        return self._duration

    @duration.setter
    def duration(self, duration: float) -> None:
        self._duration = duration
        if not self.is_over:
            self.ends_at = self._sent_at + duration

    @property
    def is_over(self) -> bool:
        """Whether it has been found over, and not been renewed since."""
        return self.ends_at == math.inf

    def expire(self) -> None:
        """The clock has reached its end: tell whom it concerns, once."""
        if not self.is_over:
            self.ends_at = math.inf
            self._on_end()

    def renew(self, sent_at: float, now: float) -> bool:
        """Note that a request sent at this time was answered; return whether that restores a lost
        lease.

        If it was sent after the lease had run out, that is over first, whatever the answer says:
        what happened in between is not known yet.
        """
        was_late = sent_at >= self.ends_at
        self._sent_at = max(self._sent_at, sent_at)
        ends_at = self._sent_at + self._duration
        if was_late or now >= ends_at:
            self.expire()
        if now >= ends_at:
            return False
        was_over, self.ends_at = self.is_over, ends_at
        return was_over
