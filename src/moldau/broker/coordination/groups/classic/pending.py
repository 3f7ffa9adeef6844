"""Pending members: ids that were given out and not joined with yet (KIP-394)."""

from __future__ import annotations

from moldau.broker.coordination.deadlines import NEVER

# An id that was given out is used at once or never; rebalances wait for it, and it takes memory.
_GOOD_FOR_MS = 45_000
_MOST = 10_000


class Pending:
    """The ids by how long they are good; beyond ten thousand the oldest is forgotten."""

    __slots__ = ("_good_until",)

    def __init__(self) -> None:
        self._good_until: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._good_until)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._good_until

    @property
    def due_at(self) -> int:
        return min(self._good_until.values(), default=NEVER)

    def give_out(self, member_id: str, session_timeout_ms: int, now: int) -> int:
        """Expect somebody to join with this id; until when is returned."""
        if len(self._good_until) >= _MOST:
            del self._good_until[next(iter(self._good_until))]
        good_until = now + min(session_timeout_ms, _GOOD_FOR_MS)
        self._good_until[member_id] = good_until
        return good_until

    def take(self, member_id: str) -> bool:
        """Expect it no more; whether it was expected."""
        return self._good_until.pop(member_id, None) is not None

    def expire(self, now: int) -> None:
        for member_id, good_until in list(self._good_until.items()):
            if good_until <= now:
                del self._good_until[member_id]
