"""Fetch requests and responses, by hand: this is the hot path.

A response is a list of parts: bytes that were built here, and whatever object the caller gave as
the records of a partition (a slice of a segment file), which leaves by sendfile.
"""

from __future__ import annotations

from functools import cache
from struct import Struct, error
from typing import Any, NamedTuple
from uuid import UUID

from moldau.wire.errors import Error
from moldau.wire.primitives import (
    INT32,
    MOST_ELEMENTS,
    Endpoint,
    MalformedRequest,
    TopicKey,
    count,
    endpoint_tags,
    read_count,
    read_string,
    read_uvarint,
    skip_tags,
    string,
    uvarint,
)

_TWO_INT32 = Struct(">ii")
_SIZE_AND_CORRELATION = Struct(">ii")
_HEAD = Struct(">ihi")
_EPOCH_END = Struct(">iq")
_ABORTED = Struct(">qq")
_REPLICA_STATE = Struct(">iq")


class FetchPartition(NamedTuple):
    """What is wanted of one partition; epochs and log start are -1 where not given."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start: int
    max_bytes: int


class FetchRequest(NamedTuple):
    """What a consumer or follower asks. `replica_id` is -1 for a consumer.

    `replica_epoch` is that of a follower's registration (KIP-903), -1 where not given.
    """

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[tuple[TopicKey, list[FetchPartition]]]
    forgotten: list[tuple[TopicKey, list[int]]]
    rack_id: str
    replica_epoch: int = -1


class FetchedPartition:
    """The answer for one partition. `records` is anything with a `size`, or None for no bytes."""

    __slots__ = (
        "aborted",
        "diverging",
        "error",
        "high_watermark",
        "index",
        "last_stable",
        "leader",
        "log_start",
        "preferred_replica",
        "records",
    )

    def __init__(
        self,
        index: int,
        error: int = Error.NONE,
        high_watermark: int = -1,
        last_stable: int = -1,
        log_start: int = -1,
        records: Any = None,
        aborted: list[tuple[int, int]] | None = None,
        leader: tuple[int, int] | None = None,
        diverging: tuple[int, int] | None = None,
        preferred_replica: int = -1,
    ) -> None:
        self.index = index
        self.error = error
        self.high_watermark = high_watermark
        self.last_stable = last_stable
        self.log_start = log_start
        self.records = records
        self.aborted = aborted
        self.leader = leader
        self.diverging = diverging
        self.preferred_replica = preferred_replica


class FetchCodec:
    """The layout of one version."""

    def __init__(self, version: int) -> None:
        self.flexible = version >= 12
        self.by_id = version >= 13
        self.has_sessions = version >= 7
        self._has_replica_id = version < 15
        self._has_rack = version >= 11
        self._names_leader = version >= 16
        head = "iiiib" if self._has_replica_id else "iiib"
        self._request = Struct(">" + head + ("ii" if self.has_sessions else ""))
        # partition, [current leader epoch], fetch offset, [last fetched epoch], [log start], size
        layout = ["i", "i" if version >= 9 else "", "q", "i" if version >= 12 else ""]
        layout += ["q" if version >= 5 else "", "i"]
        self._partition = Struct(">" + "".join(layout))
        self._present = [bool(code) for code in layout]
        self._plain_partition = all(self._present)
        self._result = Struct(">ihqqq" if version >= 5 else ">ihqq")
        self._has_log_start = version >= 5

    def decode(self, frame: memoryview, position: int) -> FetchRequest:
        """The request whose body starts at `position`; MalformedRequest if it is not one."""
        try:
            return self._decode(frame, position)
        except (error, IndexError):
            raise MalformedRequest("a Fetch request ends too early") from None

    def _decode(self, frame: memoryview, position: int) -> FetchRequest:
        compact = self.flexible
        head: tuple[int, ...] = self._request.unpack_from(frame, position)
        if not self._has_replica_id:
            head = (-1, *head)
        if not self.has_sessions:
            head = (*head, 0, -1)
        topic_count, position = read_count(frame, position + self._request.size, compact)
        topics = []
        left = MOST_ELEMENTS - topic_count
        for _ in range(topic_count):
            key, position = self._read_key(frame, position)
            partition_count, position = read_count(frame, position, compact)
            left -= partition_count
            if left < 0:
                raise MalformedRequest(f"more than {MOST_ELEMENTS} topics and partitions")
            partitions = []
            for _ in range(partition_count):
                partitions.append(self._read_partition(frame, position))
                position += self._partition.size
                if compact:
                    position = position + 1 if frame[position] == 0 else skip_tags(frame, position)
            topics.append((key, partitions))
            if compact:
                position = position + 1 if frame[position] == 0 else skip_tags(frame, position)
        forgotten: list[tuple[TopicKey, list[int]]] = []
        rack_id: str | None = ""
        replica_epoch = -1
        if self.has_sessions:
            forgotten, position = self._read_forgotten(frame, position)
        if self._has_rack:
            rack_id, position = read_string(frame, position, compact)
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, epoch = head
        if compact and not self._has_replica_id and frame[position] != 0:
            replica_id, replica_epoch = _replica_in_tags(frame, position)
        return FetchRequest(
            replica_id,
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation_level,
            session_id,
            epoch,
            topics,
            forgotten,
            rack_id or "",
            replica_epoch,
        )

    def _read_key(self, frame: memoryview, position: int) -> tuple[TopicKey, int]:
        if self.by_id:
            key = UUID(bytes=bytes(frame[position : position + 16]).ljust(16, b"\0"))
            return key, position + 16
        name, position = read_string(frame, position, self.flexible)
        return name or "", position

    def _read_partition(self, frame: memoryview, position: int) -> FetchPartition:
        values = self._partition.unpack_from(frame, position)
        if self._plain_partition:
            return FetchPartition(*values)
        given = iter(values)
        return FetchPartition(*(next(given) if there else -1 for there in self._present))

    def _read_forgotten(
        self, frame: memoryview, position: int
    ) -> tuple[list[tuple[TopicKey, list[int]]], int]:
        topic_count, position = read_count(frame, position, self.flexible)
        forgotten = []
        left = MOST_ELEMENTS - topic_count
        for _ in range(topic_count):
            key, position = self._read_key(frame, position)
            size, position = read_count(frame, position, self.flexible)
            left -= size
            if left < 0:
                raise MalformedRequest(f"more than {MOST_ELEMENTS} forgotten partitions")
            indexes = list(Struct(f">{size}i").unpack_from(frame, position))
            position += 4 * size
            if self.flexible:
                position = skip_tags(frame, position)
            forgotten.append((key, indexes))
        return forgotten, position

    def encode(
        self,
        correlation_id: int,
        error_code: int,
        session_id: int,
        topics: list[tuple[TopicKey, list[FetchedPartition]]],
        endpoints: list[Endpoint] | None = None,
    ) -> list[Any]:
        """The whole response as parts: bytes, and the records objects between them.

        `endpoints` are the addresses of the leaders that partitions name (KIP-951).
        """
        compact = self.flexible
        tags = b"\x00" if compact else b""
        data = bytearray(8)
        parts: list[Any] = [data]
        payload = 0
        data += tags
        data += _HEAD.pack(0, error_code, session_id) if self.has_sessions else bytes(4)
        data += count(len(topics), compact)
        for key, partitions in topics:
            data += key.bytes if isinstance(key, UUID) else string(key, compact)
            data += count(len(partitions), compact)
            for partition in partitions:
                self._encode_partition(data, partition)
                if partition.records is not None:
                    payload += partition.records.size
                    parts.append(partition.records)
                    data = bytearray()
                    parts.append(data)
                if compact:
                    data += self._partition_tags(partition)
            data += tags
        if compact:
            data += endpoint_tags(endpoints) if self._names_leader and endpoints else b"\x00"
        size = payload - 4
        for part in parts:
            if part.__class__ is bytearray:
                size += len(part)
        _SIZE_AND_CORRELATION.pack_into(parts[0], 0, size, correlation_id)
        return parts

    def _encode_partition(self, data: bytearray, partition: FetchedPartition) -> None:
        compact = self.flexible
        head = (
            partition.index,
            partition.error,
            partition.high_watermark,
            partition.last_stable,
        )
        if self._has_log_start:
            data += self._result.pack(*head, partition.log_start)
        else:
            data += self._result.pack(*head)
        if partition.aborted is None:
            data += b"\x00" if compact else b"\xff\xff\xff\xff"
        else:
            data += count(len(partition.aborted), compact)
            for aborted in partition.aborted:
                data += _ABORTED.pack(*aborted)
                if compact:
                    data += b"\x00"
        if self._has_rack:
            data += INT32.pack(partition.preferred_replica)
        size = 0 if partition.records is None else partition.records.size
        data += uvarint(size + 1) if compact else INT32.pack(size)

    def _partition_tags(self, partition: FetchedPartition) -> bytes:
        leader = partition.leader if self._names_leader else None
        if leader is None and partition.diverging is None:
            return b"\x00"
        data = b""
        if partition.diverging is not None:
            data += b"\x00\x0d" + _EPOCH_END.pack(*partition.diverging) + b"\x00"
        if leader is not None:
            data += b"\x01\x09" + _TWO_INT32.pack(*leader) + b"\x00"
        tags = (leader is not None) + (partition.diverging is not None)
        return bytes((tags,)) + data


def _replica_in_tags(frame: memoryview, position: int) -> tuple[int, int]:
    """The id and the epoch of a follower, which v15 moved into tag 1 (KIP-903)."""
    tag_count, position = read_uvarint(frame, position)
    for _ in range(tag_count):
        tag, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        if tag == 1 and size >= _REPLICA_STATE.size:
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(frame, position)
            return replica_id, replica_epoch
        position += size
    return -1, -1


@cache
def fetch_codec(version: int) -> FetchCodec:
    """The codec of a version."""
    return FetchCodec(version)
