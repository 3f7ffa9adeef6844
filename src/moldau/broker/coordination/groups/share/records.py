"""Records of share groups in `__consumer_offsets`, in Kafka's format.

    key 10   a member: group, member id            its rack, client, host and topics
    key 11   the group: its id                     its epoch, and a hash of its topics
    key 12   the target: the group's id            the epoch of the target assignment
    key 13   a member's target: group, member id   partitions
    key 14   a member's current: group, member id  its epoch, the one before, state, partitions
    key 15   states: the group's id                the topics whose partitions have a state

Values are of version 0, with compact lengths and tagged fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from moldau.broker.coordination.groups.assignors.assignor import Assignment
from moldau.broker.coordination.records import Fields
from moldau.wire.primitives import INT16, INT32, INT64, count, string, uvarint

_INT8 = Struct(">b")
_VERSION = b"\x00\x00"
_STABLE = 0
_TIMESTAMP_TAG = 0


class Part(IntEnum):
    """The parts of a share group, by the versions of their keys."""

    MEMBER = 10
    GROUP = 11
    TARGET = 12
    TARGET_MEMBER = 13
    CURRENT_MEMBER = 14
    STATES = 15


_OF_MEMBERS = (Part.MEMBER, Part.TARGET_MEMBER, Part.CURRENT_MEMBER)


class MemberMetadata(NamedTuple):
    """What a member says of itself."""

    rack: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]


class Current(NamedTuple):
    """What a member has, and in which epoch."""

    epoch: int
    previous_epoch: int
    assigned: Assignment


class KnownTopic(NamedTuple):
    """A topic that the group has read, or was assigned."""

    name: str
    partitions: frozenset[int]


# Writing


def part_key(part: Part, group: str, member: str = "") -> bytes:
    key = INT16.pack(part) + string(group, False)
    return key + string(member, False) if part in _OF_MEMBERS else key


def member_value(member: MemberMetadata) -> bytes:
    names = b"".join(string(name, True) for name in member.topics)
    return (
        _VERSION + string(member.rack, True) + string(member.client_id, True)
        + string(member.client_host, True) + count(len(member.topics), True) + names + b"\x00"
    )  # fmt: skip


def group_value(epoch: int, metadata_hash: int) -> bytes:
    return _VERSION + INT32.pack(epoch) + INT64.pack(metadata_hash) + b"\x00"


def target_value(epoch: int, at_ms: int) -> bytes:
    tag = uvarint(_TIMESTAMP_TAG) + uvarint(INT64.size) + INT64.pack(at_ms)
    return _VERSION + INT32.pack(epoch) + b"\x01" + tag


def target_member_value(assignment: Assignment) -> bytes:
    return _VERSION + _partitions(assignment) + b"\x00"


def current_value(current: Current) -> bytes:
    epochs = INT32.pack(current.epoch) + INT32.pack(current.previous_epoch) + _INT8.pack(_STABLE)
    return _VERSION + epochs + _partitions(current.assigned) + b"\x00"


def states_value(initialized: Mapping[UUID, KnownTopic]) -> bytes:
    out = bytearray(_VERSION + count(0, True) + count(len(initialized), True))
    for id, topic in sorted(initialized.items(), key=lambda item: item[1].name):
        out += id.bytes + string(topic.name, True) + _indexes(topic.partitions) + b"\x00"
    return bytes(out + count(0, True) + b"\x00")


def _partitions(assignment: Assignment) -> bytes:
    out = bytearray(count(len(assignment), True))
    for id, indexes in sorted(assignment.items(), key=lambda item: item[0].bytes):
        out += id.bytes + _indexes(indexes) + b"\x00"
    return bytes(out)


def _indexes(indexes: Iterable[int]) -> bytes:
    ordered = sorted(indexes)
    return count(len(ordered), True) + b"".join(INT32.pack(index) for index in ordered)


# Reading


def read_part(key: bytes) -> tuple[Part, str] | None:
    """Return which part a record is, and of which member; None for one that is of no use now."""
    fields = Fields(key)
    number = fields.fixed(INT16)
    if number not in Part.__members__.values():
        return None
    part = Part(number)
    fields.text()
    return part, fields.text() if part in _OF_MEMBERS else ""


def _value(data: bytes) -> Fields:
    fields = Fields(data)
    fields.version(0, 0)
    return fields


def read_member(data: bytes) -> MemberMetadata:
    fields = _value(data)
    rack, client_id, client_host = fields.nullable_text(), fields.text(), fields.text()
    return MemberMetadata(
        rack, client_id, client_host, tuple(fields.text() for _ in range(fields.count()))
    )


def read_group(data: bytes) -> tuple[int, int]:
    fields = _value(data)
    return fields.fixed(INT32), fields.fixed(INT64)


def read_target(data: bytes) -> int:
    return _value(data).fixed(INT32)


def read_target_member(data: bytes) -> Assignment:
    return _read_partitions(_value(data))


def read_current(data: bytes) -> Current:
    fields = _value(data)
    epoch, previous = fields.fixed(INT32), fields.fixed(INT32)
    fields.fixed(_INT8)
    return Current(epoch, previous, _read_partitions(fields))


def read_states(data: bytes) -> dict[UUID, KnownTopic]:
    """Return the topics whose partitions have states, or are about to have."""
    fields = _value(data)
    found: dict[UUID, KnownTopic] = {}
    for _ in range(2):
        for _ in range(fields.count()):
            id, name = UUID(bytes=fields.raw(16)), fields.text()
            indexes = frozenset(fields.fixed(INT32) for _ in range(fields.count()))
            fields.skip_tags()
            before = found.get(id, KnownTopic(name, frozenset()))
            found[id] = KnownTopic(name, before.partitions | indexes)
    return found


def _read_partitions(fields: Fields) -> dict[UUID, frozenset[int]]:
    found: dict[UUID, frozenset[int]] = {}
    for _ in range(fields.count()):
        id = UUID(bytes=fields.raw(16))
        found[id] = frozenset(fields.fixed(INT32) for _ in range(fields.count()))
        fields.skip_tags()
    return found
