"""Admission: when a followed partition is part of its fetcher's session, and when it has to wait.

One that must wait (for the disk, after an error, for its share of the bandwidth) is left out of the
session meanwhile, and holds up no other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from moldau.broker.node import Node
from moldau.broker.replication.follower.fetch_session import FetcherSession
from moldau.broker.replication.follower.followed import Followed
from moldau.broker.replication.follower.throttle import Throttle
from moldau.log.errors import StorageError
from moldau.log.truncation import promises_more
from moldau.wire.primitives import TopicIdPartition

logger = logging.getLogger("moldau.replication")


class Admission:
    """Takes the followed partitions of one fetcher in and out of its session. Event loop only.

    `changed` is called when the leader is to hear of it.
    """

    def __init__(
        self,
        node: Node,
        session: FetcherSession,
        followed: Mapping[TopicIdPartition, Followed],
        throttle: Throttle,
        changed: Callable[[], None],
    ) -> None:
        self._node = node
        self._session = session
        self._followed = followed
        self._throttle = throttle
        self._changed = changed
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def stop(self) -> None:
        """End what is being done for partitions that wait."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def admit(self, followed: Followed) -> None:
        """Have the leader asked for a partition, once this disk holds what that tells it.

        An earlier life, role or term may have left something to write down first.
        """
        if followed.partition.is_cut:
            self._session.remove(followed.key)
            self.checkpoint([followed])
        elif followed.is_unflushed:
            self._session.remove(followed.key)
            self.flush(followed)
        else:
            self._session.add(followed.key)
        self._changed()

    def retry(self, waiting: list[Followed]) -> None:
        """Admit partitions again after `replica.fetch.backoff.ms`."""
        self._admit_later(waiting, self._node.settings.replica_fetch_backoff_ms / 1000)

    def flush(self, followed: Followed) -> None:
        """Force a partition to disk, and then admit it."""
        self._aside(self._flush(followed))

    def checkpoint(self, cut: list[Followed]) -> None:
        """Write down that logs are shorter, and then admit them."""
        self._aside(self._checkpoint(cut))

    def slow_down(self, followed: Followed, size: int) -> None:
        """Keep a partition that is moving here from taking more than its share."""
        rate = self._node.settings.follower_replication_throttled_rate
        wait_s = self._throttle.take(size, rate, time.monotonic())
        if wait_s > 0.001 and followed.key in self._session:
            self._session.remove(followed.key)
            self._admit_later([followed], wait_s)

    def _admit_later(self, waiting: list[Followed], after_s: float) -> None:
        self._node.loop.call_later(after_s, self._admit_all, waiting)

    def _admit_all(self, waiting: Iterable[Followed]) -> None:
        for followed in waiting:
            if self._followed.get(followed.key) is followed:
                self.admit(followed)

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._node.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _flush(self, followed: Followed) -> None:
        await followed.partition.force()
        if not followed.is_unflushed:
            self._admit_all([followed])
        elif followed.partition.log.offline is None:
            self.retry([followed])

    async def _checkpoint(self, cut: list[Followed]) -> None:
        """A crash must not find less than the recovery points promise."""
        try:
            await asyncio.to_thread(self._node.logs.prepare_checkpoint())
        except StorageError as error:
            logger.error("could not save a checkpoint after a truncation, trying again: %s", error)
            await asyncio.sleep(1)
            self.checkpoint(cut)
            return
        for followed in cut:
            partition = followed.partition
            partition.is_cut = promises_more(partition.log, partition.log.log_end)
        self._admit_all(cut)
