"""Fetch requests, by hand: this is the hot path."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import NamedTuple
from uuid import UUID

from moldau.wire.primitives import (
    MOST_ELEMENTS,
    MalformedRequest,
    TopicKey,
    count,
    read_count,
    read_string,
    read_uvarint,
    skip_tags,
    string,
    topic_id,
)

_REPLICA_STATE = Struct(">iq")


class FetchPartition(NamedTuple):
    """A request for one partition; epochs and log start are -1 if not given."""

    partition: int
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start: int = -1
    max_bytes: int = 1 << 20


class FetchRequest(NamedTuple):
    """The request of a consumer or follower. `replica_id` is -1 for a consumer.

    `replica_epoch` is that of a follower's registration (KIP-903), -1 where not given. Without a
    session unless an epoch is given (KIP-227): then `topics` are what is new or changed since the
    session's last request, and `forgotten` what to leave out from now on.
    """

    topics: Sequence[tuple[TopicKey, Sequence[FetchPartition]]]
    replica_id: int = -1
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    forgotten: Sequence[tuple[TopicKey, Sequence[int]]] = ()
    rack_id: str = ""
    replica_epoch: int = -1


class FetchRequestCodec:
    """The layout of a request in one version."""

    def __init__(self, version: int) -> None:
        self._flexible = version >= 12
        self._by_id = version >= 13
        self._has_sessions = version >= 7
        self._has_replica_id = version < 15
        self._has_rack = version >= 11
        head = "iiiib" if self._has_replica_id else "iiib"
        self._head = Struct(">" + head + ("ii" if self._has_sessions else ""))
        # partition, [current leader epoch], fetch offset, [last fetched epoch], [log start], size
        layout = ["i", "i" if version >= 9 else "", "q", "i" if version >= 12 else ""]
        layout += ["q" if version >= 5 else "", "i"]
        self._partition = Struct(">" + "".join(layout))
        self._present = [bool(code) for code in layout]
        self._has_all = all(self._present)

    def decode(self, frame: memoryview, position: int) -> FetchRequest:
        """Return the request whose body starts at `position`; MalformedRequest if it is not one."""
        try:
            return self._decode(frame, position)
        except (error, IndexError):
            raise MalformedRequest("a Fetch request ends too early") from None

    def encode(self, request: FetchRequest) -> bytes:
        """Return the body of a request; its topics are named by id or by name, as the version has
        it."""
        compact, tags = self._flexible, b"\x00" if self._flexible else b""
        head: tuple[int, ...] = request[1:6] if self._has_replica_id else request[2:6]
        if self._has_sessions:
            head += (request.session_id, request.session_epoch)
        out = bytearray(self._head.pack(*head))
        out += count(len(request.topics), compact)
        for key, partitions in request.topics:
            out += self._key(key) + count(len(partitions), compact)
            for wanted in partitions:
                out += self._packed(wanted) + tags
            out += tags
        if self._has_sessions:
            out += count(len(request.forgotten), compact)
            for key, indexes in request.forgotten:
                out += self._key(key) + count(len(indexes), compact)
                out += Struct(f">{len(indexes)}i").pack(*indexes) + tags
        if self._has_rack:
            out += string(request.rack_id, compact)
        if not self._has_replica_id and request.replica_id >= 0:
            state = _REPLICA_STATE.pack(request.replica_id, request.replica_epoch) + b"\x00"
            return bytes(out + b"\x01\x01" + bytes((len(state),)) + state)
        return bytes(out + tags)

    def _key(self, key: TopicKey) -> bytes:
        if isinstance(key, UUID):
            assert self._by_id
            return key.bytes
        assert not self._by_id
        return string(key, self._flexible)

    def _packed(self, wanted: FetchPartition) -> bytes:
        if self._has_all:
            return self._partition.pack(*wanted)
        present = zip(wanted, self._present, strict=True)
        return self._partition.pack(*(value for value, there in present if there))

    def _decode(self, frame: memoryview, position: int) -> FetchRequest:
        compact = self._flexible
        head: tuple[int, ...] = self._head.unpack_from(frame, position)
        if not self._has_replica_id:
            head = (-1, *head)
        if not self._has_sessions:
            head = (*head, 0, -1)
        topic_count, position = read_count(frame, position + self._head.size, compact)
        topics: list[tuple[TopicKey, list[FetchPartition]]] = []
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
        if self._has_sessions:
            forgotten, position = self._read_forgotten(frame, position)
        if self._has_rack:
            rack_id, position = read_string(frame, position, compact)
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, epoch = head
        if compact and not self._has_replica_id and frame[position] != 0:
            replica_id, replica_epoch = _replica_in_tags(frame, position)
        return FetchRequest(
            topics,
            replica_id,
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation_level,
            session_id,
            epoch,
            forgotten,
            rack_id or "",
            replica_epoch,
        )

    def _read_key(self, frame: memoryview, position: int) -> tuple[TopicKey, int]:
        if self._by_id:
            key = topic_id(bytes(frame[position : position + 16]).ljust(16, b"\0"))
            return key, position + 16
        name, position = read_string(frame, position, self._flexible)
        return name or "", position

    def _read_partition(self, frame: memoryview, position: int) -> FetchPartition:
        values = self._partition.unpack_from(frame, position)
        if self._has_all:
            return FetchPartition(*values)
        given = iter(values)
        return FetchPartition(*(next(given) if there else -1 for there in self._present))

    def _read_forgotten(
        self, frame: memoryview, position: int
    ) -> tuple[list[tuple[TopicKey, list[int]]], int]:
        topic_count, position = read_count(frame, position, self._flexible)
        forgotten = []
        left = MOST_ELEMENTS - topic_count
        for _ in range(topic_count):
            key, position = self._read_key(frame, position)
            size, position = read_count(frame, position, self._flexible)
            left -= size
            if left < 0:
                raise MalformedRequest(f"more than {MOST_ELEMENTS} forgotten partitions")
            indexes = list(Struct(f">{size}i").unpack_from(frame, position))
            position += 4 * size
            if self._flexible:
                position = skip_tags(frame, position)
            forgotten.append((key, indexes))
        return forgotten, position


def _replica_in_tags(frame: memoryview, position: int) -> tuple[int, int]:
    """Return the id and the epoch of a follower, which v15 moved into tag 1 (KIP-903)."""
    tag_count, position = read_uvarint(frame, position)
    for _ in range(tag_count):
        tag, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        if tag == 1 and size >= _REPLICA_STATE.size:
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(frame, position)
            return replica_id, replica_epoch
        position += size
    return -1, -1
