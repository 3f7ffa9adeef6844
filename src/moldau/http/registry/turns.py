"""Turns: of each sender one request at a time is at work, and the others of the same one wait.

Schemas are parsed and compared by one process, and registered one after another. A schema may keep
that process busy for seconds; with a turn of its own, nobody waits for all that somebody else has
sent at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class Turns:
    """Event loop only."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, asyncio.Lock] = {}
        self._counts: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def of(self, sender: Hashable) -> AsyncIterator[None]:
        """Wait for those before it from the same sender."""
        lock = self._locks.setdefault(sender, asyncio.Lock())
        self._counts[sender] = self._counts.get(sender, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._counts[sender] -= 1
            if not self._counts[sender]:
                del self._counts[sender], self._locks[sender]
