"""Lag: how far groups are behind, in messages and in seconds.

The coordinator of a group tells of its lag. Where a partition ends is known here if this broker has
a replica of it; else its leader is asked, as any client would. A leader that does not answer soon
leaves a gap in the series, not a guess.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING

from moldau.broker.partitions.partition import Partition
from moldau.log.errors import LogError
from moldau.log.lookup import time_at, written_ms
from moldau.peer.errors import PeerError
from moldau.peer.peers import Purpose
from moldau.records.batch import HEADER_SIZE, read_header
from moldau.topic_partition import TopicPartition
from moldau.wire.apis import Api
from moldau.wire.fetch.request import FetchPartition, FetchRequest

if TYPE_CHECKING:
    from moldau.broker.server import Broker

logger = logging.getLogger("moldau.http")

METRICS = Purpose("metrics")
_WITHIN_S = 2.0
_LATEST = -1
# Messages that other brokers are asked for in one scrape, each with the batch that holds it.
_MOST_ASKED = 100

Offsets = Mapping[TopicPartition, int]


class Ends:
    """Where partitions end and when their messages were written. Event loop only.

    The times of messages are remembered, so that a group that stands still costs nothing.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._times: dict[str, dict[tuple[TopicPartition, int], int]] = {}

    def forget_others(self, groups: Container[str]) -> None:
        """Remember nothing of groups other than these."""
        for gone in [each for each in self._times if each not in groups]:
            del self._times[gone]

    async def high_watermarks(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each partition, as consumers see it; not of those nobody tells of."""
        broker = self._broker
        found: dict[TopicPartition, int] = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for key in wanted:
            held = broker.partitions.get(key)
            state = broker.state.partition(*key)
            if held is not None and (held.is_leader or broker.id in held.isr):
                found[key] = held.log.high_watermark
            elif state is not None and state.leader in broker.state.brokers:
                by_leader.setdefault(state.leader, []).append(key)
        asking = (self._ask_ends(leader, keys) for leader, keys in by_leader.items())
        for answer in await asyncio.gather(*asking):
            found |= answer
        return found

    async def _ask_ends(self, leader: int, keys: list[TopicPartition]) -> dict[TopicPartition, int]:
        topics: dict[str, list[dict[str, int]]] = {}
        for topic, index in keys:
            entry = {"partition_index": index, "current_leader_epoch": -1, "timestamp": _LATEST}
            topics.setdefault(topic, []).append(entry)
        values = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": name, "partitions": entries} for name, entries in topics.items()],
            "timeout": int(_WITHIN_S * 1000),
        }
        try:
            async with asyncio.timeout(_WITHIN_S):
                connection = await self._broker.peers.lane(leader, METRICS).connection()
                answer = await connection.ask(Api.LIST_OFFSETS, values)
        except (PeerError, TimeoutError) as reason:
            logger.debug(
                "could not get the end offsets of broker %d's partitions: %s", leader, reason
            )
            return {}
        return {
            (str(topic.name), int(each.partition_index)): int(each.offset)
            for topic in answer.topics
            for each in topic.partitions
            if not each.error_code
        }

    async def times(self, wanted: Offsets, group: str) -> dict[TopicPartition, int]:
        """Return when the message at each offset was written, in milliseconds; not of those that
        cannot be read now. What was asked for the same group before is remembered."""
        before = self._times.get(group, {})
        known = {at: before[at] for at in wanted.items() if at in before}
        here: list[tuple[TopicPartition, Partition, int]] = []
        elsewhere: list[tuple[TopicPartition, int]] = []
        for key, offset in wanted.items():
            if (key, offset) in known:
                continue
            held = self._broker.partitions.get(key)
            if held is not None and held.log.log_end > offset:
                here.append((key, held, offset))
            else:
                elsewhere.append((key, offset))
        if here:
            known |= await asyncio.to_thread(_read_times, here)
        try:
            async with asyncio.timeout(_WITHIN_S):
                for key, offset in elsewhere[:_MOST_ASKED]:
                    stamp = await self._ask_time(key, offset)
                    if stamp is not None:
                        known[key, offset] = stamp
        except TimeoutError:
            logger.debug("other brokers took too long to report the age of messages")
        self._times[group] = known
        return {key: stamp for (key, _), stamp in known.items()}

    async def _ask_time(self, key: TopicPartition, offset: int) -> int | None:
        """Return the time of a message that another broker has: a fetch brings its batch."""
        broker = self._broker
        topic = broker.state.topics.get(key[0])
        state = broker.state.partition(*key)
        if topic is None or state is None or state.leader not in broker.state.brokers:
            return None
        one = FetchPartition(key[1], fetch_offset=offset, max_bytes=1)
        request = FetchRequest([(topic.id, [one])], max_wait_ms=0, max_bytes=1)
        try:
            connection = await broker.peers.lane(state.leader, METRICS).connection()
            answer = await connection.fetch(request)
        except PeerError:
            return None
        for _, partitions in answer.topics:
            for partition in partitions:
                records = partition.records
                if records is not None and len(records) >= HEADER_SIZE:
                    return written_ms(read_header(records))
        return None


def _read_times(
    wanted: list[tuple[TopicPartition, Partition, int]],
) -> dict[tuple[TopicPartition, int], int]:
    """On a thread: the disk may have to be read."""
    found: dict[tuple[TopicPartition, int], int] = {}
    for key, partition, offset in wanted:
        try:
            stamp = time_at(partition.log, offset)
        except LogError:
            continue
        if stamp is not None and stamp >= 0:
            found[key, offset] = stamp
    return found
