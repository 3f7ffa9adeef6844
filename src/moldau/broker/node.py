"""The node: who this broker is, and what all of its parts build on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

from moldau.broker.settings.broker import BrokerSettings
from moldau.cluster.state.state import ClusterState
from moldau.cluster.store import MetadataStore
from moldau.log.store.store import LogStore


class Node:
    """Its id, its loop, its settings, its logs, and the cluster's state. Event loop only.

    The settings are replaced when some are changed while the broker runs: read them anew each time.
    """

    def __init__(self, settings: BrokerSettings, logs: LogStore, store: MetadataStore) -> None:
        self.id = settings.node_id
        self.loop = asyncio.get_running_loop()
        self.settings = self.started_with = settings
        self.is_clustered = bool(settings.zookeeper_connect)
        self.logs = logs
        self.store = store
        self.state: ClusterState = store.state
        self._tasks: dict[asyncio.Task[None], None] = {}

    def now_ms(self) -> int:
        """Return the time of day."""
        return time.time_ns() // 1_000_000

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that ends with the broker."""
        task = self.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def end_tasks(self) -> None:
        """End whatever is still running."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
