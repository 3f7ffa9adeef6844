"""Offsets of share groups: how far each has come, as anybody may ask, and setting them anew."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from moldau.broker.coordination.host import Host
from moldau.broker.coordination.share.coordinator import Refused
from moldau.broker.coordination.share.state import UNKNOWN, ShareKey
from moldau.broker.partitions.partitions import Partitions
from moldau.broker.sharing.persister import Persister
from moldau.peer.errors import PeerError
from moldau.peer.peers import Peers, Purpose
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.primitives import MalformedRequest

ENDS = Purpose("moldau-share-lag")
_PATIENCE_S = 5.0
_LATEST = -1


class GroupOffset(NamedTuple):
    """How far a group has come in a partition; -1 where that is not known."""

    start: int
    leader_epoch: int
    lag: int
    error: Error = Error.NONE
    message: str | None = None


class GroupOffsets:
    """Asks coordinators of states, and leaders of partitions. Event loop only."""

    def __init__(
        self, host: Host, partitions: Partitions, peers: Peers, persister: Persister
    ) -> None:
        self._host = host
        self._partitions = partitions
        self._peers = peers
        self._persister = persister

    async def describe(self, group: str, topic: str, index: int) -> GroupOffset:
        """Return how far a group has come in a partition."""
        found = self._host.state.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            message = "This server does not host this topic-partition."
            unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
            return GroupOffset(UNKNOWN, 0, UNKNOWN, unknown, message)
        summary, end = await asyncio.gather(
            self._persister.summary(ShareKey(group, found.id, index)), self._end(topic, index)
        )
        if isinstance(summary, Refused):
            return GroupOffset(UNKNOWN, 0, UNKNOWN, summary.error, summary.message)
        lag = UNKNOWN
        if summary.start >= 0 and end >= 0:
            lag = max(end - summary.start - max(summary.finished, 0), 0)
        return GroupOffset(summary.start, max(summary.leader_epoch, 0), lag)

    async def _end(self, topic: str, index: int) -> int:
        """Return where a partition ends, as its leader says; -1 if it does not."""
        partition = self._partitions.get((topic, index))
        if partition is not None and partition.is_leader:
            return partition.log.high_watermark
        state = self._host.state.partition(topic, index)
        if state is None or state.leader < 0:
            return UNKNOWN
        wanted = {"partition_index": index, "timestamp": _LATEST, "current_leader_epoch": -1}
        values = {"topics": [{"name": topic, "partitions": [wanted]}]}
        try:
            async with asyncio.timeout(_PATIENCE_S):
                connection = await self._peers.lane(state.leader, ENDS).connection()
                answer = await connection.ask(Api.LIST_OFFSETS, values)
        except (PeerError, TimeoutError, MalformedRequest):
            return UNKNOWN
        told = answer.topics[0].partitions[0]
        return UNKNOWN if told.error_code else int(told.offset)

    async def set(
        self, group: str, epoch: int, topic: str, index: int, start: int
    ) -> Refused | None:
        """Have a group begin anew at an offset."""
        found = self._host.state.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return Refused(Error.UNKNOWN_TOPIC_OR_PARTITION)
        return await self._persister.initialize(ShareKey(group, found.id, index), epoch, start)

    async def delete(self, group: str, topic_id: UUID, indexes: Iterable[int]) -> Refused | None:
        """Delete what is written of a topic's partitions."""
        outcomes = await asyncio.gather(
            *(self._persister.delete(ShareKey(group, topic_id, index)) for index in indexes)
        )
        return next((each for each in outcomes if each is not None), None)
