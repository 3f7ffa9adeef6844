"""Bounds of the leader's log and of its epochs, for a follower that lies outside of the log, or
cannot see where an epoch began."""

from __future__ import annotations

from moldau.broker.replication.follower.followed import Followed
from moldau.peer.aio import AsyncConnection
from moldau.peer.errors import Refused
from moldau.wire.apis import Api

_TIMEOUT_MS = 5000
# ListOffsets
_LATEST = -1
_EARLIEST = -2


async def leader_bounds(
    connection: AsyncConnection, replica: int, followed: Followed
) -> tuple[int, int]:
    """Return the first offset and the end, as of the followed term; Refused by who does not lead in
    it."""
    start = await _offset_at(connection, replica, followed, _EARLIEST)
    return start, await _offset_at(connection, replica, followed, _LATEST)


async def _offset_at(
    connection: AsyncConnection, replica: int, followed: Followed, timestamp: int
) -> int:
    partition = followed.partition
    wanted = {
        "partition_index": partition.index,
        "current_leader_epoch": followed.epoch,
        "timestamp": timestamp,
    }
    values = {
        "replica_id": replica,
        "isolation_level": 0,
        "topics": [{"name": partition.topic, "partitions": [wanted]}],
        "timeout": _TIMEOUT_MS,
    }
    answer = await connection.ask(Api.LIST_OFFSETS, values)
    (found,) = answer.topics[0].partitions
    if found.error_code:
        raise Refused(found.error_code, f"{followed}: the bounds of the leader's log are unknown")
    return int(found.offset)


async def epoch_end(
    connection: AsyncConnection, replica: int, followed: Followed, epoch: int
) -> int:
    """Return where the last epoch up to this one ended in the leader's log, -1 if it knows of none;
    Refused by who does not lead in the followed term."""
    partition = followed.partition
    wanted = {
        "partition": partition.index,
        "current_leader_epoch": followed.epoch,
        "leader_epoch": epoch,
    }
    values = {
        "replica_id": replica,
        "topics": [{"topic": partition.topic, "partitions": [wanted]}],
    }
    answer = await connection.ask(Api.OFFSET_FOR_LEADER_EPOCH, values)
    (found,) = answer.topics[0].partitions
    if found.error_code:
        raise Refused(found.error_code, f"{followed}: the end of epoch {epoch} is unknown")
    return int(found.end_offset)
