"""Locks on names: only one decision at a time may concern each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager


class NameLocks:
    """Locks by name: a holder keeps others waiting. Event loop only."""

    def __init__(self) -> None:
        self._held: dict[str, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def hold(self, names: Iterable[str]) -> AsyncIterator[None]:
        """Hold all of the names, which are taken at once: no deadlock."""
        wanted = dict.fromkeys(sorted(names))
        while busy := next((self._held[name] for name in wanted if name in self._held), None):
            await asyncio.shield(busy)
        released = asyncio.get_running_loop().create_future()
        self._held.update(dict.fromkeys(wanted, released))
        try:
            yield
        finally:
            for name in wanted:
                del self._held[name]
            released.set_result(None)
