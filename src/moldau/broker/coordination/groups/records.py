"""Kafka's record format of the topic `__consumer_offsets`, over plain bytes.

A key begins with a version that says what it is a key of; a record without a value is a tombstone.

    key 0, 1   an offset: group, topic, partition       value 0..4   see `CommittedOffset`
    key 2      a group: its id                          value 0..4   see `GroupMetadata`

Keys of other versions belong to kinds of groups that are not served here; they are left alone.
Values up to version 3 have plain lengths, version 4 has compact ones and tagged fields. Written are
version 3, and 1 for an offset with an expiry of its own, as Kafka does.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from moldau.wire.primitives import INT16, INT32, INT64, string

_OFFSET_KEY = 1
_GROUP_KEY = 2
_VALUE = 3
_VALUE_WITH_EXPIRY = 1
_LAST_VALUE = 4
_FLEXIBLE_VALUE = 4

_OFFSET_AND_EPOCH = Struct(">hqi")
_VERSION_AND_OFFSET = Struct(">hq")
_TWO_TIMES = Struct(">qq")
_TWO_TIMEOUTS = Struct(">ii")


class InvalidGroupRecord(ValueError):
    """Bytes that are no record of this topic."""


class OffsetKey(NamedTuple):
    """Which partition of which topic a group's committed offset is of."""

    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """Which group the metadata is of."""

    group: str


class CommittedOffset(NamedTuple):
    """How far a group has read a partition; -1 where a time or an epoch is not known."""

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


def read_key(data: bytes) -> OffsetKey | GroupKey | None:
    """What a record is about; None for a kind that is not served here."""
    fields = _Fields(data)
    version = fields.fixed(INT16)
    if version in (0, 1):
        return OffsetKey(fields.text(), fields.text(), fields.fixed(INT32))
    if version == _GROUP_KEY:
        return GroupKey(fields.text())
    if version < 0:
        raise InvalidGroupRecord(f"a key of version {version}")
    return None


def read_offset(data: bytes) -> CommittedOffset:
    """The value of a committed offset, in any version."""
    fields = _Fields(data)
    version = fields.version()
    offset = fields.fixed(INT64)
    leader_epoch = fields.fixed(INT32) if version >= 3 else -1
    metadata = fields.text()
    committed_at = fields.fixed(INT64)
    expires_at = fields.fixed(INT64) if version == 1 else -1
    return CommittedOffset(offset, leader_epoch, metadata, committed_at, expires_at)


def read_group(data: bytes) -> GroupMetadata:
    """The value of a group's metadata, in any version."""
    fields = _Fields(data)
    version = fields.version()
    protocol_type = fields.text()
    generation = fields.fixed(INT32)
    protocol, leader = fields.nullable_text(), fields.nullable_text()
    timestamp = fields.fixed(INT64) if version >= 2 else -1
    members = tuple(_read_member(fields, version) for _ in range(fields.count()))
    return GroupMetadata(protocol_type, generation, protocol, leader, timestamp, members)


def _read_member(fields: _Fields, version: int) -> MemberMetadata:
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


class _Fields:
    """Reads one field after the other; InvalidGroupRecord where the bytes end too early."""

    __slots__ = ("_compact", "_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self._compact = False

    def version(self) -> int:
        version = self.fixed(INT16)
        if not 0 <= version <= _LAST_VALUE:
            raise InvalidGroupRecord(f"a value of version {version}")
        self._compact = version >= _FLEXIBLE_VALUE
        return version

    def fixed(self, kind: Struct) -> int:
        position = self._advance(kind.size)
        value: int = kind.unpack_from(self._data, position)[0]
        return value

    def count(self) -> int:
        count = self._uvarint() - 1 if self._compact else self.fixed(INT32)
        # Every element takes a byte at least, so a lying count is caught before anything is built.
        if count < 0 or count > len(self._data) - self._position:
            raise InvalidGroupRecord(f"{count} elements do not fit")
        return count

    def text(self) -> str:
        text = self.nullable_text()
        if text is None:
            raise InvalidGroupRecord("a string is null that may not be")
        return text

    def nullable_text(self) -> str | None:
        size = self._uvarint() - 1 if self._compact else self.fixed(INT16)
        if size == -1:
            return None
        position = self._advance(size)
        try:
            return self._data[position : position + size].decode()
        except UnicodeDecodeError:
            raise InvalidGroupRecord("a string is not UTF-8") from None

    def blob(self) -> bytes:
        size = self._uvarint() - 1 if self._compact else self.fixed(INT32)
        position = self._advance(size)
        return self._data[position : position + size]

    def skip_tags(self) -> None:
        if self._compact:
            for _ in range(self._uvarint()):
                self._uvarint()
                self._advance(self._uvarint())

    def _uvarint(self) -> int:
        value = 0
        for shift in (0, 7, 14, 21, 28):
            byte = self._data[self._advance(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise InvalidGroupRecord("a varint is longer than five bytes")

    def _advance(self, size: int) -> int:
        position = self._position
        if size < 0 or size > len(self._data) - position:
            raise InvalidGroupRecord(f"a field of {size} bytes does not fit")
        self._position = position + size
        return position
