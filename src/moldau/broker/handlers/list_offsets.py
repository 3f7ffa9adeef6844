"""ListOffsets: where a partition begins and ends, and where a time lies in it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from moldau.broker.errors import code_and_message
from moldau.broker.handlers import Answer, Request, handles
from moldau.broker.handlers.fetch import READ_COMMITTED
from moldau.broker.partition import Partition
from moldau.log.errors import LogError
from moldau.wire.apis import Api
from moldau.wire.errors import Error

if TYPE_CHECKING:
    from moldau.broker.server import Broker

# Timestamps that stand for a place (KIP-734, KIP-405, KIP-1005).
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_FIRST_VERSION = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


@handles(Api.LIST_OFFSETS)
async def list_offsets(broker: Broker, request: Request) -> Answer:
    """One answer per partition, in the order asked."""
    committed = getattr(request.body, "isolation_level", 0) == READ_COMMITTED
    topics = []
    for topic in request.body.topics:
        partitions = [
            await _answer(broker, topic.name, wanted, committed, request.version)
            for wanted in topic.partitions
        ]
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


async def _answer(
    broker: Broker, topic: str, wanted: Any, committed: bool, version: int
) -> dict[str, Any]:
    answer: dict[str, Any] = {"partition_index": wanted.partition_index}
    partition = broker.partitions.get((topic, wanted.partition_index))
    if partition is None:
        return answer | {"error_code": Error.UNKNOWN_TOPIC_OR_PARTITION}
    if not partition.is_leader:
        return answer | {"error_code": Error.NOT_LEADER_OR_FOLLOWER}
    fence = partition.check_epoch(getattr(wanted, "current_leader_epoch", -1))
    if fence:
        return answer | {"error_code": fence}
    if version < _FIRST_VERSION.get(wanted.timestamp, 0):
        return answer | {"error_code": Error.UNSUPPORTED_VERSION}
    try:
        offset, timestamp, epoch = await _find(broker, partition, wanted.timestamp, committed)
    except LogError as error:
        return answer | {"error_code": code_and_message(error)[0]}
    return answer | {"offset": offset, "timestamp": timestamp, "leader_epoch": epoch}


async def _find(
    broker: Broker, partition: Partition, timestamp: int, committed: bool
) -> tuple[int, int, int]:
    log = partition.log
    if timestamp == LATEST:
        end = log.last_stable if committed else log.high_watermark
        return end, -1, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.log_start, -1, log.epochs.epoch_at(log.log_start)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1
    async with broker.lookups:
        if timestamp == MAX_TIMESTAMP:
            found = await asyncio.to_thread(log.max_timestamp)
        else:
            found = await asyncio.to_thread(log.offset_for_time, timestamp)
    end = log.last_stable if committed else log.high_watermark
    if found is None or found[0] >= end:
        return -1, -1, -1
    return found
