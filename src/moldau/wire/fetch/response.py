"""Fetch responses, by hand: this is the hot path.

A broker's response is a list of parts: bytes that were built here, and whatever object it gave as
the records of a partition (a slice of a segment file), which leaves by sendfile. Whoever asked
reads the same response with the records left where they are, as views of what came in.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import Any, NamedTuple
from uuid import UUID

from moldau.wire.errors import Error
from moldau.wire.primitives import (
    INT32,
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
    uvarint,
)

_TWO_INT32 = Struct(">ii")
_SIZE_AND_CORRELATION = Struct(">ii")
_ERROR_AND_SESSION = Struct(">hi")
_HEAD = Struct(">ihi")
_EPOCH_END = Struct(">iq")
_ABORTED = Struct(">qq")


class FetchedPartition:
    """The answer for one partition, on both sides.

    `records` is None where there are none. To send them it is anything with a `size`; whoever asked
    finds a memoryview, whose last batch may be cut short. `aborted` has the producer id and the
    first offset of aborted transactions, in the order of the log; `diverging` is an epoch and where
    it ended, `leader` a broker id and its epoch.
    """

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


Fetched = Sequence[tuple[TopicKey, Sequence[FetchedPartition]]]


class FetchAnswer(NamedTuple):
    """A whole response as whoever asked reads it; `error` concerns the request as such."""

    throttle_ms: int
    error: int
    session_id: int
    topics: list[tuple[TopicKey, list[FetchedPartition]]]


class FetchBeginning(NamedTuple):
    """The part of a response for one partition that precedes the records.

    `partition` has no records, and is None when there is none in the response, as when an `error`
    concerns the request as such; they are `records_size` bytes from `records_at` on.
    """

    error: int
    partition: FetchedPartition | None
    records_at: int
    records_size: int


class FetchResponseCodec:
    """The layout of a response in one version."""

    def __init__(self, version: int) -> None:
        self._flexible = version >= 12
        self._by_id = version >= 13
        self._has_sessions = version >= 7
        self._has_log_start = version >= 5
        self._has_preferred_replica = version >= 11
        self._names_leader = version >= 16
        self._result = Struct(">ihqqq" if self._has_log_start else ">ihqq")

    def encode(
        self,
        correlation_id: int,
        error_code: int,
        session_id: int,
        topics: Fetched,
        endpoints: list[Endpoint] | None = None,
        throttle_ms: int = 0,
    ) -> list[Any]:
        """Return the whole response as parts: bytes, and the records objects between them.

        `endpoints` are the addresses of the leaders that partitions name (KIP-951).
        """
        compact = self._flexible
        tags = b"\x00" if compact else b""
        data = bytearray(8)
        parts: list[Any] = [data]
        payload = 0
        data += tags
        if self._has_sessions:
            data += _HEAD.pack(throttle_ms, error_code, session_id)
        else:
            data += INT32.pack(throttle_ms)
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

    def decode(self, body: memoryview) -> FetchAnswer:
        """Return the response in `body`; MalformedRequest where it is none."""
        try:
            return self._decode(body)
        except (error, IndexError):
            raise MalformedRequest("it ends too early") from None

    def decode_beginning(self, body: memoryview) -> FetchBeginning:
        """Parse a response up to its records; `body` need not contain any.

        MalformedRequest where it is not for one partition, or has not come that far.
        """
        try:
            return self._decode_beginning(body)
        except (error, IndexError):
            raise MalformedRequest("it ends too early") from None

    def _encode_partition(self, data: bytearray, partition: FetchedPartition) -> None:
        compact = self._flexible
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
        if self._has_preferred_replica:
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

    def _decode(self, body: memoryview) -> FetchAnswer:
        compact = self._flexible
        throttle_ms, code, session_id, position = self._decode_head(body)
        topics: list[tuple[TopicKey, list[FetchedPartition]]] = []
        topic_count, position = read_count(body, position, compact)
        for _ in range(topic_count):
            key, position = self._decode_key(body, position)
            partition_count, position = read_count(body, position, compact)
            partitions: list[FetchedPartition] = []
            topics.append((key, partitions))
            for _ in range(partition_count):
                partition, size, position = self._decode_partition(body, position)
                partitions.append(partition)
                end = position + size
                if end > len(body):
                    raise MalformedRequest(f"{size} bytes of records extend beyond it")
                if size:
                    partition.records = body[position:end]
                position = _read_tags(body, end, partition) if compact else end
            if compact:
                position = skip_tags(body, position)
        return FetchAnswer(throttle_ms, code, session_id, topics)

    def _decode_beginning(self, body: memoryview) -> FetchBeginning:
        _, code, _, position = self._decode_head(body)
        topics, position = read_count(body, position, self._flexible)
        if code or not topics:
            return FetchBeginning(code, None, position, 0)
        if topics != 1:
            raise MalformedRequest(f"it is for {topics} topics instead of one")
        _, position = self._decode_key(body, position)
        partitions, position = read_count(body, position, self._flexible)
        if partitions != 1:
            raise MalformedRequest(f"it is for {partitions} partitions instead of one")
        partition, size, position = self._decode_partition(body, position)
        return FetchBeginning(code, partition, position, size)

    def _decode_head(self, body: memoryview) -> tuple[int, int, int, int]:
        (throttle_ms,) = INT32.unpack_from(body)
        if not self._has_sessions:
            return throttle_ms, 0, 0, 4
        code, session_id = _ERROR_AND_SESSION.unpack_from(body, 4)
        return throttle_ms, code, session_id, 10

    def _decode_key(self, body: memoryview, position: int) -> tuple[TopicKey, int]:
        if not self._by_id:
            name, position = read_string(body, position, self._flexible)
            return name or "", position
        if position + 16 > len(body):
            raise MalformedRequest("it ends inside a topic id")
        return topic_id(bytes(body[position : position + 16])), position + 16

    def _decode_partition(
        self, body: memoryview, position: int
    ) -> tuple[FetchedPartition, int, int]:
        """Return a partition without its records, their size, and where they begin."""
        compact = self._flexible
        partition = FetchedPartition(*self._result.unpack_from(body, position))
        position += self._result.size
        aborted_count, position = read_count(body, position, compact)
        if aborted_count:
            partition.aborted = []
        for _ in range(aborted_count):
            partition.aborted.append(_ABORTED.unpack_from(body, position))  # type: ignore[union-attr]
            position += _ABORTED.size
            if compact:
                position = skip_tags(body, position)
        if self._has_preferred_replica:
            (partition.preferred_replica,) = INT32.unpack_from(body, position)
            position += 4
        if compact:
            size, position = read_uvarint(body, position)
            return partition, max(size - 1, 0), position
        (size,) = INT32.unpack_from(body, position)
        return partition, max(size, 0), position + 4


def _read_tags(body: memoryview, position: int, partition: FetchedPartition) -> int:
    """Take in a partition's tagged fields; the position after them."""
    tags, position = read_uvarint(body, position)
    for _ in range(tags):
        tag, position = read_uvarint(body, position)
        size, position = read_uvarint(body, position)
        end = position + size
        if end > len(body):
            raise MalformedRequest("a tagged field extends beyond it")
        if tag == 0 and size >= _EPOCH_END.size:
            partition.diverging = _EPOCH_END.unpack_from(body, position)
        elif tag == 1 and size >= _TWO_INT32.size:
            partition.leader = _TWO_INT32.unpack_from(body, position)
        position = end
    return position
