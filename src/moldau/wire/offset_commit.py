"""OffsetCommit by hand, in the versions that clients of today send.

It comes after nearly every batch that a group reads, and mostly for one partition. Reading it by
kio's schema and writing the answer by a compiled one takes three times as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct, error
from typing import Any, NamedTuple
from uuid import UUID

from moldau.wire.primitives import (
    INT32,
    MOST_ELEMENTS,
    MalformedRequest,
    count,
    read_string,
    read_text,
    read_uvarint,
    skip_tags,
    string,
    topic_id,
)

FIRST, LAST = 8, 10
# The version since which topics go by their ids.
_TOPIC_IDS = 10
_PARTITION = Struct(">iqi")
_RESULT = Struct(">ihb")
_NO_TOPIC = bytes(16)
# The length of an empty compact string.
_EMPTY = 1


class CommittedPartition(NamedTuple):
    """One offset that is to be committed."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class CommittedTopic(NamedTuple):
    """Offsets of one topic, by its name or its id."""

    name: str
    topic_id: UUID | None
    partitions: list[CommittedPartition]


class OffsetCommitRequest(NamedTuple):
    """A request with the names that kio has for its fields."""

    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    topics: list[CommittedTopic]


def read_offset_commit(version: int, body: memoryview) -> OffsetCommitRequest:
    """Return the request; MalformedRequest where the bytes are not one."""
    try:
        return _read(version, body)
    except (IndexError, error):
        raise MalformedRequest("an OffsetCommit ends too early") from None


def _read(version: int, body: memoryview) -> OffsetCommitRequest:
    group_id, position = read_text(body, 0)
    (epoch,) = INT32.unpack_from(body, position)
    member_id, position = read_text(body, position + 4)
    instance_id, position = read_string(body, position, True)
    left = MOST_ELEMENTS
    number, position = _count(body, position, left)
    left -= number
    topics: list[CommittedTopic] = []
    for _ in range(number):
        name, id = "", None
        if version < _TOPIC_IDS:
            name, position = read_text(body, position)
        else:
            data = bytes(body[position : position + 16])
            if len(data) < 16:
                raise IndexError
            id = None if data == _NO_TOPIC else topic_id(data)
            position += 16
        size, position = _count(body, position, left)
        left -= size
        partitions: list[CommittedPartition] = []
        for _ in range(size):
            index, offset, leader_epoch = _PARTITION.unpack_from(body, position)
            position += _PARTITION.size
            if body[position] == _EMPTY:
                # As in nearly all.
                metadata: str | None = ""
                position += 1
            else:
                metadata, position = read_string(body, position, True)
            position = skip_tags(body, position)
            partitions.append(CommittedPartition(index, offset, leader_epoch, metadata))
        position = skip_tags(body, position)
        topics.append(CommittedTopic(name, id, partitions))
    skip_tags(body, position)
    return OffsetCommitRequest(group_id, epoch, member_id, instance_id, topics)


def _count(body: memoryview, position: int, most: int) -> tuple[int, int]:
    number = body[position] - 1
    if number < 0x7F:
        # Nearly all take one byte, which is not worth a call.
        position += 1
    else:
        number, position = read_uvarint(body, position)
        number -= 1
    if number < 0:
        raise MalformedRequest("an array that must not be null is null")
    # Every element takes a byte at least, so a lying count is caught before anything is built.
    if number > len(body) - position or number > most:
        raise MalformedRequest(f"an array claims {number} elements")
    return number, position


def write_offset_commit(version: int, values: Mapping[str, Any]) -> bytes:
    """Return the body of the answer."""
    topics = values.get("topics", ())
    out = bytearray(INT32.pack(values.get("throttle_time", 0)))
    out += count(len(topics), True)
    for topic in topics:
        if version < _TOPIC_IDS:
            out += string(topic["name"], True)
        else:
            id = topic["topic_id"]
            out += _NO_TOPIC if id is None else id.bytes
        partitions = topic["partitions"]
        out += count(len(partitions), True)
        for each in partitions:
            out += _RESULT.pack(each["partition_index"], each["error_code"], 0)
        out += b"\x00"
    out += b"\x00"
    return bytes(out)
