"""DeleteRecords: moves the beginning of a partition forward."""

from __future__ import annotations

import asyncio
from typing import Any

from moldau.broker.api.records.parts import RecordParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_topics
from moldau.broker.errors import code_and_message
from moldau.broker.net.request import Request
from moldau.broker.partitions.partition import Partition
from moldau.broker.security.authorizer import Operation
from moldau.cluster.state.internal_topics import INTERNAL_TOPICS
from moldau.log.errors import LogError
from moldau.log.retention import delete_records_before
from moldau.wire.apis import Api
from moldau.wire.errors import Error

# The offset that stands for "everything that consumers can see".
HIGH_WATERMARK = -1


@handles(Api.DELETE_RECORDS, (0, 2), on_topics(Operation.DELETE))
async def delete_records(parts: RecordParts, request: Request) -> Answer:
    """Per partition, the offset before which no live replica holds anything any more."""
    deadline = parts.node.loop.time() + max(request.body.timeout.total_seconds(), 0.0)
    topics = [
        (topic.name, [_delete(parts, topic.name, each, may_delete) for each in topic.partitions])
        for topic in request.body.topics
        if topic.partitions
        for may_delete in (request.may_on_topic(Operation.DELETE, topic.name),)
    ]
    return {
        "topics": [
            {"name": name, "partitions": [await _settled(parts, each, deadline) for each in begun]}
            for name, begun in topics
        ]
    }


def _delete(
    parts: RecordParts, topic: str, wanted: Any, may_delete: bool
) -> dict[str, Any] | tuple[Partition, int]:
    """Delete here; return what to wait for elsewhere, or the refusal."""
    index = wanted.partition_index

    def refuse(error: Error) -> dict[str, Any]:
        return {"partition_index": index, "low_watermark": -1, "error_code": error}

    if not may_delete:
        return refuse(Error.TOPIC_AUTHORIZATION_FAILED)
    if parts.node.state.partition(topic, index) is None:
        return refuse(Error.UNKNOWN_TOPIC_OR_PARTITION)
    if topic in INTERNAL_TOPICS:
        return refuse(Error.INVALID_TOPIC_EXCEPTION)
    partition = parts.partitions.get((topic, index))
    if partition is None or not partition.is_leader:
        return refuse(Error.NOT_LEADER_OR_FOLLOWER)
    log = partition.log
    if not log.config.deletes:
        return refuse(Error.POLICY_VIOLATION)
    offset = log.high_watermark if wanted.offset == HIGH_WATERMARK else wanted.offset
    if not 0 <= offset <= log.high_watermark:
        return refuse(Error.OFFSET_OUT_OF_RANGE)
    try:
        if offset > log.log_start:
            delete_records_before(log, offset)
            partition.start_moved()
    except LogError as error:
        return refuse(code_and_message(error)[0])
    return partition, offset


async def _settled(
    parts: RecordParts, begun: dict[str, Any] | tuple[Partition, int], deadline: float
) -> dict[str, Any]:
    """Return the answer once the live followers have deleted it too, or time is up."""
    if isinstance(begun, dict):
        return begun
    partition, offset = begun
    low = _low_watermark(parts, partition)
    if low < offset:
        change = _Change(partition)
        try:
            async with asyncio.timeout_at(deadline):
                while partition.is_leader and low < offset:
                    await change.wait()
                    low = _low_watermark(parts, partition)
        except TimeoutError:
            error = Error.REQUEST_TIMED_OUT
            return {"partition_index": partition.index, "low_watermark": low, "error_code": error}
        finally:
            partition.unwait(change)
        if not partition.is_leader:
            error = Error.NOT_LEADER_OR_FOLLOWER
            return {"partition_index": partition.index, "low_watermark": -1, "error_code": error}
    return {"partition_index": partition.index, "low_watermark": low}


def _low_watermark(parts: RecordParts, partition: Partition) -> int:
    start = partition.log.log_start
    if partition.in_sync is None:
        return start
    return partition.in_sync.low_watermark(start, parts.node.state.brokers)


class _Change:
    """Waits for a partition to change."""

    def __init__(self, partition: Partition) -> None:
        self._event = asyncio.Event()
        partition.wait(self)

    def notify(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()
        self._event.clear()
