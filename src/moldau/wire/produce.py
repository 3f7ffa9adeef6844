"""Produce requests and responses, by hand: this is the hot path.

A request is read where it arrived. The records of a partition come back as a view of the frame, so
that the log can patch and write them without a copy.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache, lru_cache
from struct import Struct, error
from typing import NamedTuple
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
    topic_id,
)

_ACKS_AND_TIMEOUT = Struct(">hi")
_INDEX_AND_SIZE = Struct(">ii")
_SIZE_AND_CORRELATION = Struct(">ii")
_LEADER = Struct(">ii")
_RECORD_INDEX = Struct(">i")
_LONGEST_NAME = 249
# A named tuple's own constructor takes three times as long.
_new = tuple.__new__


class ProduceRequest(NamedTuple):
    """The request of a producer: per topic, the partitions and the bytes of their records."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[TopicKey, list[tuple[int, memoryview | None]]]]

    def without(self, denied: Collection[TopicKey]) -> ProduceRequest:
        """Return the request but for some topics."""
        if not denied:
            return self
        return self._replace(topics=[each for each in self.topics if each[0] not in denied])


class PartitionResult:
    """The answer for one partition; offsets are -1 where there was an error.

    `record_errors` are (index in the batch, why) of the records that made it fail (KIP-467).
    """

    __slots__ = (
        "append_time_ms",
        "base_offset",
        "error",
        "index",
        "leader",
        "log_start",
        "message",
        "record_errors",
    )

    def __init__(
        self,
        index: int,
        error: int = Error.NONE,
        base_offset: int = -1,
        append_time_ms: int = -1,
        log_start: int = -1,
        message: str | None = None,
        leader: tuple[int, int] | None = None,
    ) -> None:
        self.index = index
        self.error = error
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        self.log_start = log_start
        self.message = message
        self.leader = leader
        self.record_errors: list[tuple[int, str]] | None = None

    def fail(self, error: int, message: str | None) -> None:
        """Turn the answer into an error."""
        self.error = error
        self.message = message
        self.base_offset = self.append_time_ms = self.log_start = -1


class ProduceCodec:
    """The layout of one version."""

    def __init__(self, version: int) -> None:
        self.flexible = version >= 9
        self.by_id = version >= 13
        self._explains = version >= 8
        self._names_leader = version >= 10
        # index, error, base offset, log append time, log start offset
        self._fixed = Struct(">ihqqq" if version >= 5 else ">ihqq")
        self._has_log_start = version >= 5
        self._plain_tail = self._tail(PartitionResult(0))

    def decode(self, frame: memoryview, position: int) -> ProduceRequest:
        """Return the request whose body starts at `position`; MalformedRequest if it is not one."""
        try:
            return self._decode(frame, position)
        except (error, IndexError):
            raise MalformedRequest("a Produce request ends too early") from None

    def _decode(self, frame: memoryview, position: int) -> ProduceRequest:
        compact = self.flexible
        transactional_id = None
        if compact and frame[position] == 0:
            position += 1
        else:
            transactional_id, position = read_string(frame, position, compact)
        acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, position)
        topic_count, position = read_count(frame, position + 6, compact)
        topics = []
        left = MOST_ELEMENTS - topic_count
        for _ in range(topic_count):
            key: TopicKey
            if self.by_id:
                key = topic_id(bytes(frame[position : position + 16]).ljust(16, b"\0"))
                position += 16
            else:
                name, position = read_string(frame, position, compact)
                key = name or ""
            partition_count, position = read_count(frame, position, compact)
            left -= partition_count
            if left < 0:
                raise MalformedRequest(f"more than {MOST_ELEMENTS} topics and partitions")
            read = self._read_compact_partitions if compact else self._read_partitions
            partitions, position = read(frame, position, partition_count)
            topics.append((key, partitions))
        return _new(ProduceRequest, (transactional_id, acks, timeout_ms, topics))

    def _read_partitions(
        self, frame: memoryview, position: int, partition_count: int
    ) -> tuple[list[tuple[int, memoryview | None]], int]:
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(partition_count):
            index, size = _INDEX_AND_SIZE.unpack_from(frame, position)
            position += 8
            end = position + size
            if end > len(frame):
                raise MalformedRequest("records extend beyond the request")
            if size < 0:
                partitions.append((index, None))
            else:
                partitions.append((index, frame[position:end]))
                position = end
        return partitions, position

    def _read_compact_partitions(
        self, frame: memoryview, position: int, partition_count: int
    ) -> tuple[list[tuple[int, memoryview | None]], int]:
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(partition_count):
            (index,) = INT32.unpack_from(frame, position)
            size, position = read_uvarint(frame, position + 4)
            if size:
                end = position + size - 1
                if end > len(frame):
                    raise MalformedRequest("records extend beyond the request")
                partitions.append((index, frame[position:end]))
                position = end
            else:
                partitions.append((index, None))
            position = position + 1 if frame[position] == 0 else skip_tags(frame, position)
        # The tags of the topic.
        return partitions, position + 1 if frame[position] == 0 else skip_tags(frame, position)

    def encode(
        self,
        correlation_id: int,
        topics: list[tuple[TopicKey, list[PartitionResult]]],
        endpoints: list[Endpoint] | None = None,
        throttle_ms: int = 0,
    ) -> bytes:
        """Return the whole response, frame and header included.

        `endpoints` are the addresses of the leaders that results name (KIP-951).
        """
        compact = self.flexible
        parts = [b"\x00"] if compact else []
        parts.append(count(len(topics), compact))
        for key, results in topics:
            parts.append(_topic_head(key, len(results), compact))
            parts += [self._encode_result(result) for result in results]
            if compact:
                parts.append(b"\x00")
        parts.append(INT32.pack(throttle_ms) if throttle_ms else b"\x00\x00\x00\x00")
        if compact:
            parts.append(endpoint_tags(endpoints) if self._names_leader and endpoints else b"\x00")
        body = b"".join(parts)
        return _SIZE_AND_CORRELATION.pack(len(body) + 4, correlation_id) + body

    def _encode_result(self, result: PartitionResult) -> bytes:
        head = (result.index, result.error, result.base_offset, result.append_time_ms)
        if self._has_log_start:
            data = self._fixed.pack(*head, result.log_start)
        else:
            data = self._fixed.pack(*head)
        if result.message is None and result.leader is None:
            return data + self._plain_tail
        return data + self._tail(result)

    def _tail(self, result: PartitionResult) -> bytes:
        """Return the errors of single records, the message, and the leader as a tag."""
        compact = self.flexible
        data = b""
        if self._explains:
            data = self._record_errors(result.record_errors or []) + string(result.message, compact)
        if compact and self._names_leader and result.leader is not None:
            return data + b"\x01\x00\x09" + _LEADER.pack(*result.leader) + b"\x00"
        return data + b"\x00" if compact else data

    def _record_errors(self, errors: list[tuple[int, str]]) -> bytes:
        compact = self.flexible
        parts = [count(len(errors), compact)]
        for index, message in errors:
            parts += (_RECORD_INDEX.pack(index), string(message, compact))
            if compact:
                parts.append(b"\x00")
        return b"".join(parts)


def _topic_head(key: TopicKey, results: int, compact: bool) -> bytes:
    # No topic has a longer name, but a request may, and the cache would keep it.
    if isinstance(key, str) and len(key) > _LONGEST_NAME:
        return _cached_topic_head.__wrapped__(key, results, compact)
    return _cached_topic_head(key, results, compact)


@lru_cache(4096)
def _cached_topic_head(key: TopicKey, results: int, compact: bool) -> bytes:
    name = key.bytes if isinstance(key, UUID) else string(key, compact)
    return name + count(results, compact)


@cache
def produce_codec(version: int) -> ProduceCodec:
    """Return the codec of a version."""
    return ProduceCodec(version)
