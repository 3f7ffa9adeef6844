"""Shards of one internal topic: kept for the partitions that this broker leads, and for no others.

    what happens to a partition         what happens to its shard
    this broker comes to lead it        is made and read back; whoever asks is told to wait
    everything is read back             serves, once every in-sync replica has it too: whoever leads
                                        next must know what was said because of it
    it leads in another epoch           ends; another is made and read back
    it leads no more, or stops          ends: who waits is sent to the new leader

Reading back takes a while, and by its end the partition may have another leader or epoch. The shard
that it was for has ended then, and what was read is dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Generic

from moldau.broker.coordination.host import Host
from moldau.broker.coordination.journal import Journal
from moldau.broker.coordination.loading import load
from moldau.broker.coordination.placement import Size, new_topic, partition_of
from moldau.broker.coordination.shard import Compacted, S, Shard
from moldau.broker.partitions.partition import Partition
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.internal_topics import InternalTopic
from moldau.cluster.state.topics import NO_LEADER
from moldau.log.errors import LogError
from moldau.log.log import Log
from moldau.records.batch import BatchError
from moldau.wire.errors import Error

logger = logging.getLogger("moldau.coordination")


class Shards(Generic[S]):
    """The shards of one internal topic on this broker. Event loop only.

    `size` says how large the topic is made if it is not there; `new_state` makes the state of a
    shard, which writes to the journal that it is given. `read_back` gives a state what a log says,
    if the last value of each key is not all that counts.
    """

    def __init__(
        self,
        topic: InternalTopic,
        host: Host,
        *,
        size: Callable[[], Size],
        write_timeout_ms: Callable[[], int],
        new_state: Callable[[Journal], S],
        read_back: Callable[[Log, S], Awaitable[None]] | None = None,
    ) -> None:
        self.topic = topic
        self._host = host
        self._size = size
        self._write_timeout_ms = write_timeout_ms
        self._new_state = new_state
        self._read_log: Callable[[Log, Any], Awaitable[None]] = read_back or _read_latest
        self._shards: dict[int, Shard[S]] = {}

    # Where a key belongs

    @property
    def has_topic(self) -> bool:
        return self.topic.name in self._host.state.topics

    async def ensure_topic(self) -> ClusterError | None:
        """Create the topic on first use; the error says why that cannot be."""
        if self.has_topic:
            return None
        brokers = len(self._host.state.brokers)
        # A client that learns its coordinator asks it at once.
        return await self._host.ensure_topic(new_topic(self.topic, self._size(), brokers))

    def partition_of(self, key: str) -> int:
        """Find the partition of the topic that a key belongs to."""
        topic = self._host.state.topics.get(self.topic.name)
        partitions = self._size().partitions if topic is None else len(topic.partitions)
        return partition_of(key, partitions)

    def leader_of(self, key: str) -> int:
        """Find the broker that coordinates a key; -1 while there is none."""
        state = self._host.state
        partition = state.partition(self.topic.name, self.partition_of(key))
        if partition is None or partition.leader not in state.brokers:
            return NO_LEADER
        return partition.leader

    def find(self, key: str) -> S | Error:
        """Find what is kept here of the shard of a key, or say why it is not."""
        return self.at(self.partition_of(key))

    def at(self, index: int) -> S | Error:
        """Find what is kept here of the shard of a partition, or say why it is not."""
        shard = self._shards.get(index)
        if shard is None:
            return Error.NOT_COORDINATOR
        return shard.state if shard.is_loaded else Error.COORDINATOR_LOAD_IN_PROGRESS

    @property
    def is_loading(self) -> bool:
        """Whether some of them are still being read back."""
        return not all(shard.is_loaded for shard in self._shards.values())

    def __iter__(self) -> Iterator[S]:
        """Go through what is read back by now."""
        for shard in list(self._shards.values()):
            if shard.is_loaded:
                yield shard.state

    # What becomes of the partitions

    def partition_changed(self, partition: Partition) -> None:
        """Follow the role that a partition of the topic has been given."""
        shard = self._shards.get(partition.index)
        if not partition.is_leader:
            self._end(partition.index)
        elif shard is None or shard.journal.leader_epoch != partition.leader_epoch:
            self._end(partition.index)
            self._begin(partition)

    def topic_deleted(self, name: str) -> None:
        """End them all if it is their topic that is gone."""
        if name == self.topic.name:
            self.close()

    def close(self) -> None:
        """End them all: the topic is gone, or the broker is about to stop."""
        for index in list(self._shards):
            self._end(index)

    def _begin(self, partition: Partition) -> None:
        journal = Journal(partition, self._host.loop, self._write_timeout_ms() / 1000)
        shard = Shard(partition.index, journal, self._new_state(journal))
        self._shards[partition.index] = shard
        if partition.log.log_start == partition.log.log_end:
            shard.is_loaded = True
        else:
            self._host.spawn(self._read_back(shard, partition))

    async def _read_back(self, shard: Shard[S], partition: Partition) -> None:
        started = self._host.loop.time()
        name = f"{self.topic.name}-{shard.index}"
        try:
            await self._read_log(partition.log, shard.state)
        except (LogError, BatchError, OSError) as problem:
            # If the shard has ended, the log is being made like another leader's.
            if self._shards.get(shard.index) is shard:
                logger.error("%s could not be read and stays unavailable: %s", name, problem)
            return
        if self._shards.get(shard.index) is not shard:
            return

        def serve() -> None:
            shard.is_loaded = True
            shard.state.begin()
            took_ms = (self._host.loop.time() - started) * 1000
            logger.info("coordinating %s of %s, read in %.0f ms", shard.state, name, took_ms)

        shard.journal.when_replicated(serve)

    def _end(self, index: int) -> None:
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.end()


async def _read_latest(log: Log, state: Compacted) -> None:
    await load(log, state.read_back, state.read_back_open)
