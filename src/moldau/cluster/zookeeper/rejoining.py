"""Rejoining: a broker that lost its registration asks for a new one until it has it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger("moldau.cluster.zookeeper")

_RETRY_S = 0.1
_LONGEST_RETRY_S = 2.0


class Rejoining:
    """The task that calls `rejoin` until `is_registered`; one at a time. Event loop only."""

    def __init__(
        self, broker_id: int, is_registered: Callable[[], bool], on_end: Callable[[], None]
    ) -> None:
        self._broker_id = broker_id
        self._is_registered = is_registered
        self._on_end = on_end
        self._task: asyncio.Task[None] | None = None
        # The broker's own way back into its cluster.
        self.rejoin: Callable[[], Awaitable[None]] | None = None

    @property
    def is_under_way(self) -> bool:
        return self._task is not None

    def begin(self) -> None:
        """Begin, where a way back is known and nobody is on it yet."""
        if self.rejoin is not None and self._task is None:
            self._task = asyncio.create_task(self._run(self.rejoin), name="zookeeper-rejoin")
            self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, rejoin: Callable[[], Awaitable[None]]) -> None:
        pause = _RETRY_S
        while not self._is_registered():
            try:
                await rejoin()
            except Exception as error:
                logger.warning("broker %d could not rejoin: %s", self._broker_id, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_RETRY_S)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self._on_end()
