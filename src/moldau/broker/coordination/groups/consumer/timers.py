"""Timers: until when members have to do what is expected of them."""

from __future__ import annotations

from enum import Enum

from moldau.broker.coordination.deadlines import NEVER

# A member that could not be removed, for want of replicas, is tried again after this.
_AGAIN_MS = 1_000


class Wait(Enum):
    """What a member is waited for."""

    SESSION = "to be heard of"
    REVOKE = "to give up partitions"
    JOIN = "to join again by the classic protocol"
    SYNC = "to ask for its assignment by the classic protocol"


class Timers:
    """The deadlines of a group's members. Setting one costs nothing but a place in a table; which
    is the next is found out when one may be due."""

    __slots__ = ("_at", "due_at")

    def __init__(self) -> None:
        self._at: dict[str, dict[Wait, int]] = {}
        self.due_at = NEVER

    def set(self, member_id: str, wait: Wait, at: int) -> None:
        self._at.setdefault(member_id, {})[wait] = at
        if at < self.due_at:
            self.due_at = at

    def set_if_absent(self, member_id: str, wait: Wait, at: int) -> None:
        if wait not in self._at.get(member_id, {}):
            self.set(member_id, wait, at)

    def cancel(self, member_id: str, wait: Wait) -> None:
        self._at.get(member_id, {}).pop(wait, None)

    def forget(self, member_id: str) -> None:
        self._at.pop(member_id, None)

    def expire(self, now: int) -> dict[str, Wait]:
        """Return the members whose time is up by `now`, with what they were waited for, and find
        out when the next one's is."""
        expired: dict[str, Wait] = {}
        due_at = NEVER
        for member_id, waits in self._at.items():
            for wait, at in waits.items():
                if at <= now:
                    expired.setdefault(member_id, wait)
                    waits[wait] = at = now + _AGAIN_MS
                if at < due_at:
                    due_at = at
        self.due_at = due_at
        return expired
