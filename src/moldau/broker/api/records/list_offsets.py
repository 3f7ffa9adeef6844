"""ListOffsets: where a partition begins and ends, and where a time lies in it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from moldau.broker.api.records.fetch import READ_COMMITTED
from moldau.broker.api.records.parts import RecordParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_topics
from moldau.broker.errors import code_and_message
from moldau.broker.net.request import Request
from moldau.broker.partitions.partition import Partition
from moldau.broker.partitions.refusals import absent
from moldau.broker.security.authorizer import Operation
from moldau.log.errors import LogError
from moldau.log.lookup import max_timestamp, offset_for_time
from moldau.wire.apis import Api
from moldau.wire.errors import Error

# Timestamps that stand for a place (KIP-734, KIP-405, KIP-1005).
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_FIRST_VERSION = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_NO_VERSION = 1 << 15
_FIRST_WITH_NOT_AVAILABLE = 5


class _NotKnownYet(Exception):
    """The leader's high watermark may be lower than the one that consumers have seen."""


@handles(Api.LIST_OFFSETS, (1, 11), on_topics(Operation.DESCRIBE))
async def list_offsets(parts: RecordParts, request: Request) -> Answer:
    """Return one answer per partition, in the order asked; one that is asked for twice is
    refused."""
    committed = getattr(request.body, "isolation_level", 0) == READ_COMMITTED
    is_follower = request.body.replica_id >= 0
    counts = Counter(
        (topic.name, wanted.partition_index)
        for topic in request.body.topics
        for wanted in topic.partitions
    )
    answers: dict[str, dict[int, dict[str, Any]]] = {}
    known: list[Any] = []
    hidden: list[Any] = []
    for topic in request.body.topics:
        may_know = request.may_on_topic(Operation.DESCRIBE, topic.name)
        (known if may_know else hidden).append(topic)
    for topic in known:
        for wanted in topic.partitions:
            index = wanted.partition_index
            if counts[topic.name, index] > 1:
                answer = {"partition_index": index, "error_code": Error.INVALID_REQUEST}
            else:
                answer = await _answer(
                    parts, topic.name, wanted, committed, is_follower, request.version
                )
            answers.setdefault(topic.name, {})[index] = answer
    found: list[dict[str, Any]] = [
        {"name": name, "partitions": list(partitions.values())}
        for name, partitions in answers.items()
    ]
    return {"topics": [*found, *map(_refused, hidden)]}


def _refused(topic: Any) -> dict[str, Any]:
    denied = Error.TOPIC_AUTHORIZATION_FAILED
    indexes = [wanted.partition_index for wanted in topic.partitions]
    partitions = [{"partition_index": index, "error_code": denied} for index in indexes]
    return {"name": topic.name, "partitions": partitions}


async def _answer(
    parts: RecordParts, topic: str, wanted: Any, committed: bool, is_follower: bool, version: int
) -> dict[str, Any]:
    answer: dict[str, Any] = {"partition_index": wanted.partition_index}
    partition = parts.partitions.get((topic, wanted.partition_index))
    if wanted.timestamp < 0 and version < _FIRST_VERSION.get(wanted.timestamp, _NO_VERSION):
        return answer | {"error_code": Error.UNSUPPORTED_VERSION}
    if partition is None:
        return answer | {"error_code": absent(parts.partitions, topic, wanted.partition_index)[0]}
    if not partition.is_leader:
        return answer | {"error_code": Error.NOT_LEADER_OR_FOLLOWER}
    fence = partition.check_epoch(getattr(wanted, "current_leader_epoch", -1))
    if fence:
        return answer | {"error_code": fence}
    if partition.log.offline is not None:
        return answer | {"error_code": Error.KAFKA_STORAGE_ERROR}
    if is_follower and wanted.timestamp == LATEST:
        # A follower is to have what is not committed yet, too.
        end = partition.log.log_end
        return answer | {"offset": end, "timestamp": -1, "leader_epoch": partition.leader_epoch}
    try:
        offset, timestamp, epoch = await _find(parts, partition, wanted.timestamp, committed)
    except _NotKnownYet:
        code = Error.OFFSET_NOT_AVAILABLE
        if version < _FIRST_WITH_NOT_AVAILABLE:
            code = Error.LEADER_NOT_AVAILABLE
        return answer | {"error_code": code}
    except LogError as error:
        return answer | {"error_code": code_and_message(error)[0]}
    return answer | {"offset": offset, "timestamp": timestamp, "leader_epoch": epoch}


async def _find(
    parts: RecordParts, partition: Partition, timestamp: int, committed: bool
) -> tuple[int, int, int]:
    log = partition.log
    if timestamp == LATEST:
        await _check_watermark(partition)
        end = log.last_stable if committed else log.high_watermark
        return end, -1, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.log_start, -1, log.epochs.epoch_at(log.log_start)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1
    async with parts.partitions.lookups:
        if timestamp == MAX_TIMESTAMP:
            found = await asyncio.to_thread(max_timestamp, log)
        else:
            found = await asyncio.to_thread(offset_for_time, log, timestamp)
    end = log.last_stable if committed else log.high_watermark
    if found is None or found[0] >= end:
        await _check_watermark(partition)
        return -1, -1, -1
    return found


async def _check_watermark(partition: Partition) -> None:
    """KIP-207: a new leader may not know yet how much its consumers have seen of the old one."""
    if partition.log.high_watermark < partition.epoch_start and partition.in_sync is None:
        # The only replica of a topic with a flush policy, after a crash: what that left is being
        # forced to disk. Clients do not all ask again.
        await partition.force()
    if partition.log.high_watermark < partition.epoch_start:
        raise _NotKnownYet
