"""Records of `__consumer_offsets` in Kafka's format, over plain bytes.

A key begins with a version that says what it is a key of; a record without a value is a tombstone.

    key 0, 1   an offset: group, topic, partition       value 0..4   see `CommittedOffset`
    key 2      a group: its id                          value 0..4   see `GroupMetadata`
    key 3..8, 16      parts of a consumer group         see `consumer.records`
    key 9..15         parts of a share group

All keys of groups go on with the group's id. Keys of other versions belong to kinds of groups that
are not served here; they are left alone. Values of offsets and classic groups up to version 3 have
plain lengths, version 4 has compact ones and tagged fields. Written are version 3, and 1 for an
offset with an expiry of its own, as Kafka does.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from moldau.broker.coordination.records import Fields, InvalidRecord
from moldau.wire.primitives import INT16, INT32, INT64, string

_OFFSET_KEY = 1
_GROUP_KEY = 2
_VALUE = 3
_VALUE_WITH_EXPIRY = 1
_LAST_VALUE = 4
_FLEXIBLE_VALUE = 4

_OFFSET_AND_EPOCH = Struct(">hqi")
_WITHOUT_METADATA = Struct(">hqihq")
_VERSION_AND_OFFSET = Struct(">hq")
_TWO_TIMES = Struct(">qq")
_TWO_TIMEOUTS = Struct(">ii")


class OffsetKey(NamedTuple):
    """The key of a committed offset: group, topic and partition."""

    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """The key of a group's metadata."""

    group: str


class KindKey(NamedTuple):
    """The key of a part of a group that is kept in several records."""

    group: str
    kind: str


# The kinds of groups that are kept in several records, by the versions of their keys.
KINDS = {
    **dict.fromkeys((3, 4, 5, 6, 7, 8, 16), "consumer"),
    **dict.fromkeys((9, 10, 11, 12, 13, 14, 15), "share"),
}


class CommittedOffset(NamedTuple):
    """A group's position in a partition; -1 where a time or an epoch is not known."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = -1


class MemberMetadata(NamedTuple):
    """A member as the last completed generation had it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadata(NamedTuple):
    """A group as its last completed generation left it; no members: it is empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp: int
    members: tuple[MemberMetadata, ...]


# Writing


def offset_key(group: str, topic: str, partition: int) -> bytes:
    names = string(group, False) + string(topic, False)
    return INT16.pack(_OFFSET_KEY) + names + INT32.pack(partition)


def group_key(group: str) -> bytes:
    return INT16.pack(_GROUP_KEY) + string(group, False)


def offset_value(committed: CommittedOffset) -> bytes:
    offset, leader_epoch, metadata, committed_at, expires_at = committed
    if expires_at != -1:
        head = _VERSION_AND_OFFSET.pack(_VALUE_WITH_EXPIRY, offset)
        return head + string(metadata, False) + _TWO_TIMES.pack(committed_at, expires_at)
    if not metadata:
        # As nearly always.
        return _WITHOUT_METADATA.pack(_VALUE, offset, leader_epoch, 0, committed_at)
    head = _OFFSET_AND_EPOCH.pack(_VALUE, offset, leader_epoch)
    return head + string(metadata, False) + INT64.pack(committed_at)


def group_value(group: GroupMetadata) -> bytes:
    out = bytearray(INT16.pack(_VALUE))
    out += string(group.protocol_type, False) + INT32.pack(group.generation)
    out += string(group.protocol, False) + string(group.leader, False)
    out += INT64.pack(group.state_timestamp) + INT32.pack(len(group.members))
    for member in group.members:
        out += string(member.member_id, False) + string(member.instance_id, False)
        out += string(member.client_id, False) + string(member.client_host, False)
        out += _TWO_TIMEOUTS.pack(member.rebalance_timeout_ms, member.session_timeout_ms)
        for data in (member.subscription, member.assignment):
            out += INT32.pack(len(data)) + data
    return bytes(out)


# Reading


def read_key(data: bytes) -> OffsetKey | GroupKey | KindKey | None:
    """Return the subject of a record; None for a kind that is not supported."""
    fields = Fields(data)
    version = fields.fixed(INT16)
    if version in (0, 1):
        return OffsetKey(fields.text(), fields.text(), fields.fixed(INT32))
    if version == _GROUP_KEY:
        return GroupKey(fields.text())
    if version in KINDS:
        return KindKey(fields.text(), KINDS[version])
    if version < 0:
        raise InvalidRecord(f"a key of version {version}")
    return None


def read_offset(data: bytes) -> CommittedOffset:
    """Return the value of a committed offset, in any version."""
    fields = Fields(data)
    version = fields.version(_LAST_VALUE, _FLEXIBLE_VALUE)
    offset = fields.fixed(INT64)
    leader_epoch = fields.fixed(INT32) if version >= 3 else -1
    metadata = fields.text()
    committed_at = fields.fixed(INT64)
    expires_at = fields.fixed(INT64) if version == 1 else -1
    return CommittedOffset(offset, leader_epoch, metadata, committed_at, expires_at)


def read_group(data: bytes) -> GroupMetadata:
    """Return the value of a group's metadata, in any version."""
    fields = Fields(data)
    version = fields.version(_LAST_VALUE, _FLEXIBLE_VALUE)
    protocol_type = fields.text()
    generation = fields.fixed(INT32)
    protocol, leader = fields.nullable_text(), fields.nullable_text()
    timestamp = fields.fixed(INT64) if version >= 2 else -1
    members = tuple(_read_member(fields, version) for _ in range(fields.count()))
    return GroupMetadata(protocol_type, generation, protocol, leader, timestamp, members)


def _read_member(fields: Fields, version: int) -> MemberMetadata:
    member_id = fields.text()
    instance_id = fields.nullable_text() if version >= 3 else None
    client_id, client_host = fields.text(), fields.text()
    rebalance_timeout_ms = fields.fixed(INT32) if version >= 1 else -1
    session_timeout_ms = fields.fixed(INT32)
    subscription, assignment = fields.blob(), fields.blob()
    fields.skip_tags()
    if rebalance_timeout_ms < 0:
        rebalance_timeout_ms = session_timeout_ms
    return MemberMetadata(
        member_id, instance_id, client_id, client_host,
        rebalance_timeout_ms, session_timeout_ms, subscription, assignment,
    )  # fmt: skip
