"""ConsumerGroupHeartbeat by hand (KIP-848): every member sends one every few seconds, for ever.

Mostly it says nothing but that the member lives, and so does the answer. Reading it by kio's schema
and writing the answer by a compiled one takes several times as long.
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

FIRST, LAST = 0, 1
# The version since which a member may subscribe by a regular expression.
_REGEX = 1
_NO_TOPIC = bytes(16)
_RESULT = Struct(">ih")
_EPOCH_AND_INTERVAL = Struct(">ii")
_NO_ASSIGNMENT = b"\xff\x00"


class OwnedTopic(NamedTuple):
    """The partitions of one topic that a member says to have."""

    topic_id: UUID | None
    partitions: tuple[int, ...]


class ConsumerHeartbeatRequest(NamedTuple):
    """A request with the names that kio has for its fields, but for the unit of the timeout."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: tuple[str, ...] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: tuple[OwnedTopic, ...] | None


def read_consumer_heartbeat(version: int, body: memoryview) -> ConsumerHeartbeatRequest:
    """Return the request; MalformedRequest where the bytes are not one."""
    try:
        return _read(version, body)
    except (IndexError, error):
        raise MalformedRequest("a ConsumerGroupHeartbeat ends too early") from None


def _read(version: int, body: memoryview) -> ConsumerHeartbeatRequest:
    group_id, position = read_text(body, 0)
    member_id, position = read_text(body, position)
    (epoch,) = INT32.unpack_from(body, position)
    instance_id, position = read_string(body, position + 4, True)
    rack_id, position = read_string(body, position, True)
    (timeout_ms,) = INT32.unpack_from(body, position)
    left = MOST_ELEMENTS
    number, position = _count(body, position + 4, left)
    names: list[str] | None = None
    if number >= 0:
        left -= number
        names = []
        for _ in range(number):
            name, position = read_text(body, position)
            names.append(name)
    regex: str | None = None
    if version >= _REGEX:
        regex, position = read_string(body, position, True)
    assignor, position = read_string(body, position, True)
    number, position = _count(body, position, left)
    owned: list[OwnedTopic] | None = None
    if number >= 0:
        left -= number
        owned = []
        for _ in range(number):
            topic, position = _owned(body, position, left)
            left -= len(topic.partitions)
            owned.append(topic)
    skip_tags(body, position)
    return ConsumerHeartbeatRequest(
        group_id, member_id, epoch, instance_id, rack_id, timeout_ms,
        None if names is None else tuple(names), regex, assignor,
        None if owned is None else tuple(owned),
    )  # fmt: skip


def _owned(body: memoryview, position: int, left: int) -> tuple[OwnedTopic, int]:
    data = bytes(body[position : position + 16])
    if len(data) < 16:
        raise IndexError
    number, position = _count(body, position + 16, left)
    if number < 0:
        raise MalformedRequest("an array that must not be null is null")
    layout = Struct(f">{number}i")
    partitions = layout.unpack_from(body, position)
    position = skip_tags(body, position + layout.size)
    return OwnedTopic(None if data == _NO_TOPIC else topic_id(data), partitions), position


def _count(body: memoryview, position: int, most: int) -> tuple[int, int]:
    """Return the length of an array, -1 for null, and the position after it."""
    number, position = read_uvarint(body, position)
    number -= 1
    # Every element takes a byte at least, so a lying count is caught before anything is built.
    if number > len(body) - position or number > most:
        raise MalformedRequest(f"an array claims {number} elements")
    return number, position


def write_consumer_heartbeat(version: int, values: Mapping[str, Any]) -> bytes:
    """Return the body of the answer."""
    out = bytearray(_RESULT.pack(values.get("throttle_time", 0), values.get("error_code", 0)))
    out += string(values.get("error_message"), True)
    out += string(values.get("member_id"), True)
    out += _EPOCH_AND_INTERVAL.pack(
        values.get("member_epoch", 0), values.get("heartbeat_interval", 0)
    )
    assignment = values.get("assignment")
    if assignment is None:
        out += _NO_ASSIGNMENT
        return bytes(out)
    topics = assignment["topic_partitions"]
    out += b"\x01"
    out += count(len(topics), True)
    for topic in topics:
        partitions = topic["partitions"]
        out += topic["topic_id"].bytes
        out += count(len(partitions), True)
        out += Struct(f">{len(partitions)}i").pack(*partitions)
        out += b"\x00"
    out += b"\x00\x00"
    return bytes(out)
