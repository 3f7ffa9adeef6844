"""Replication: what a broker does so that its partitions exist on others too."""

from __future__ import annotations

import asyncio
import logging
import time

from moldau.broker.partitions.partition import Partition
from moldau.broker.partitions.partitions import Partitions
from moldau.broker.replication.follower.fetcher import Fetcher
from moldau.broker.replication.follower.throttle import Throttle
from moldau.broker.replication.leader.follower_sessions import FollowerSessions
from moldau.broker.replication.leader.isr_changes import IsrChanges
from moldau.broker.replication.leader.replica_selector import check_selector
from moldau.cluster.state.topics import NO_LEADER
from moldau.log.errors import StorageError
from moldau.peer.peers import Peers

logger = logging.getLogger("moldau.replication")

# How many partitions are looked at before the loop serves others again.
_AT_A_TIME = 500
_LONGEST_ROUND_S = 2.5


class Replication:
    """Both sides of replication on one broker. Event loop only.

    As a leader it serves followers (`follower_sessions`) and has the cluster agree on who is in
    sync; as a follower it fetches, with `num.replica.fetchers` connections a leader. For a
    partition that has no other replica it does nothing at all.
    """

    def __init__(self, partitions: Partitions, peers: Peers) -> None:
        self._partitions = partitions
        self._node = partitions.node
        self._peers = peers
        check_selector(self._node.settings.replica_selector_class)
        self.follower_sessions = FollowerSessions(partitions, self.reconsider)
        self.isr_changes = IsrChanges(self._node)
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._following: dict[Partition, Fetcher] = {}
        # Partitions led with followers, and the log start that these were last told of.
        self._led: dict[Partition, int] = {}
        self._throttle = Throttle()
        self._rounds: list[asyncio.Task[None]] = []
        self._is_running = False

    def start(self) -> None:
        """Begin to follow: this broker is registered."""
        self._is_running = True
        for partition in list(self._partitions.values()):
            self.partition_changed(partition)

    async def stop(self) -> None:
        """End all fetching; nothing is appended to a followed partition after this."""
        self._is_running = False
        self._following.clear()
        for task in self._rounds:
            task.cancel()
        await asyncio.gather(
            *self._rounds,
            self.isr_changes.stop(),
            *(fetcher.stop() for fetcher in self._fetchers.values()),
            return_exceptions=True,
        )

    # What becomes of the partitions

    def partition_changed(self, partition: Partition) -> None:
        """A partition has been given its role, by `Partition.become` or `Partition.resign`."""
        if len(partition.replicas) > 1 and not self._rounds and self._is_running:
            self._begin_rounds()
        partition.lag_s = self._node.settings.replica_lag_time_max_ms / 1000
        if partition.is_leader and partition.in_sync is not None:
            self._led.setdefault(partition, partition.log.log_start)
            self.reconsider(partition)
        else:
            self._led.pop(partition, None)
        leader = partition.leader
        follows = self._is_running and not partition.is_leader
        if not follows or leader in (NO_LEADER, self._node.id) or partition.log.offline:
            self._unfollow(partition)
        else:
            self._follow(partition, leader)

    def partition_dropped(self, partition: Partition) -> None:
        """This broker no longer holds the partition; its folder may be removed after this."""
        self._led.pop(partition, None)
        self._unfollow(partition)

    def partition_configured(self, partition: Partition) -> None:
        """Who is in sync may be judged by other settings."""
        self.reconsider(partition)

    def brokers_changed(self) -> None:
        """A broker joined, left, or came back under another address or epoch."""
        for fetcher in self._fetchers.values():
            fetcher.leader_changed()
        for partition in self._led:
            partition.registered(self._node.state.brokers)
            self.reconsider(partition)

    def reconsider(self, partition: Partition) -> None:
        """Who is in sync may have changed."""
        in_sync, log = partition.in_sync, partition.log
        if in_sync is not None and not in_sync.is_right(
            log.log_end, log.high_watermark, time.monotonic(), partition.lag_s
        ):
            self.isr_changes.consider(partition)

    def _follow(self, partition: Partition, leader: int) -> None:
        number = (partition.topic_id.int + partition.index) % (
            self._node.settings.num_replica_fetchers
        )
        fetcher = self._fetchers.get((leader, number))
        if fetcher is None:
            fetcher = Fetcher(self._node, self._peers, leader, number, self._throttle)
            self._fetchers[leader, number] = fetcher
        if self._following.get(partition) is not fetcher:
            self._unfollow(partition)
            self._following[partition] = fetcher
        fetcher.follow(partition)

    def _unfollow(self, partition: Partition) -> None:
        fetcher = self._following.pop(partition, None)
        if fetcher is not None:
            fetcher.unfollow(partition)

    # Now and then

    def _begin_rounds(self) -> None:
        create = self._node.loop.create_task
        self._rounds = [create(self._tend_followers()), create(self._keep_watermarks())]

    async def _tend_followers(self) -> None:
        """Look for followers that lag or could join, and tell them about deleted records."""
        while True:
            lag_s = self._node.settings.replica_lag_time_max_ms / 1000
            await asyncio.sleep(min(lag_s / 2, _LONGEST_ROUND_S))
            self.follower_sessions.sweep()
            for count, (partition, start) in enumerate(list(self._led.items()), 1):
                if count % _AT_A_TIME == 0:
                    await asyncio.sleep(0)
                if partition not in self._led:
                    continue
                self.reconsider(partition)
                # One that is waited for though it is not in sync may have fallen behind.
                partition.count_followers()
                if partition.log.log_start != start:
                    self._led[partition] = partition.log.log_start
                    partition.start_moved()

    async def _keep_watermarks(self) -> None:
        """Save the high watermarks, so that a restart begins with them."""
        while True:
            interval_ms = self._node.settings.replica_high_watermark_checkpoint_interval_ms
            await asyncio.sleep(interval_ms / 1000)
            try:
                await asyncio.to_thread(self._node.logs.prepare_high_watermarks())
            except StorageError as error:
                logger.error("could not save the high watermarks: %s", error)
