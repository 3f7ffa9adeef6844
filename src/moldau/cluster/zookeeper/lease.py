"""How long a broker may believe that its session lives."""

from __future__ import annotations


class Lease:
    """The time for which the ensemble surely keeps a session, by this machine's own clock.

    ZooKeeper counts from when it last heard from a client, which is never before the client sent
    what was answered; so the lease runs from there. Times are seconds of one monotonic clock.
    """

    __slots__ = ("_sent_at", "duration")

    def __init__(self, duration: float, now: float) -> None:
        self.duration = duration
        self._sent_at = now

    @property
    def ends_at(self) -> float:
        return self._sent_at + self.duration

    def renew(self, sent_at: float) -> None:
        """What was sent at this time has been answered."""
        self._sent_at = max(self._sent_at, sent_at)

    def is_over(self, now: float) -> bool:
        return now >= self.ends_at
