"""Records of consumer groups in `__consumer_offsets`, in Kafka's format, over plain bytes.

    key 3    the group: its epoch                       value 0    `GroupEpoch`
    key 5    a member: group, member id                 value 0    `Member`
    key 6    the target assignment: group               value 0    `TargetEpoch`
    key 7    a member's target: group, member id        value 0    the partitions
    key 8    what a member has: group, member id        value 0    `Current`
    key 16   a regular expression: group, expression    value 0    `ResolvedRegex`

Key 4 (the subscribed topics' metadata, before KIP-1101) is passed over: the hash of key 3 has taken
its place. All values have compact lengths and tagged fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from moldau.broker.coordination.groups.assignors.assignor import Assignment
from moldau.broker.coordination.groups.assignors.partitions import in_order, order_of
from moldau.broker.coordination.groups.consumer.parts import (
    ClassicMetadata,
    Current,
    GroupEpoch,
    Member,
    MemberState,
    Owned,
    Part,
    ResolvedRegex,
    TargetEpoch,
    Value,
)
from moldau.broker.coordination.records import Fields, InvalidRecord, KeyValue
from moldau.wire.primitives import INT8, INT16, INT32, INT64, count, string, uvarint

_VERSION = INT16.pack(0)
_NO_TAGS = b"\x00"
_NAMED = (Part.MEMBER, Part.TARGET, Part.CURRENT, Part.REGEX)
_SUBSCRIPTION_METADATA = 4

# Writing


def record(group_id: str, part: Part, name: str, value: Value) -> KeyValue:
    """Make the record of a part; `name` is the member id or the regular expression."""
    key = INT16.pack(part) + string(group_id, False)
    if part in _NAMED:
        key += string(name, False)
    return key, None if value is None else _VERSION + _WRITERS[part](value)


def _write_epoch(value: GroupEpoch) -> bytes:
    return INT32.pack(value.epoch) + _tagged_long(value.metadata_hash)


def _write_target_epoch(value: TargetEpoch) -> bytes:
    return INT32.pack(value.epoch) + _tagged_long(value.assigned_at_ms)


def _tagged_long(value: int) -> bytes:
    return b"\x01\x00\x08" + INT64.pack(value) if value else _NO_TAGS


def _write_member(value: Member) -> bytes:
    out = bytearray()
    for text in (value.instance_id, value.rack, value.client_id, value.client_host):
        out += string(text, True)
    out += _texts(value.topics) + string(value.regex, True)
    out += INT32.pack(value.rebalance_timeout_ms) + string(value.assignor, True)
    if value.classic is None:
        return bytes(out + _NO_TAGS)
    classic = bytearray(b"\x01" + INT32.pack(value.classic.session_timeout_ms))
    classic += count(len(value.classic.protocols), True)
    for name, data in value.classic.protocols:
        classic += string(name, True) + uvarint(len(data) + 1) + data + _NO_TAGS
    classic += _NO_TAGS
    return bytes(out + b"\x01\x00" + uvarint(len(classic)) + classic)


def _write_target(value: Assignment) -> bytes:
    out = bytearray(count(len(value), True))
    for topic in sorted(value):
        out += topic.bytes + _numbers(order_of(value[topic])) + _NO_TAGS
    return bytes(out + _NO_TAGS)


def _write_current(value: Current) -> bytes:
    out = bytearray(INT32.pack(value.epoch) + INT32.pack(value.previous_epoch))
    out += INT8.pack(value.state)
    for owned in (value.assigned, value.revoking):
        out += count(len(owned), True)
        for topic in sorted(owned):
            partitions = sorted(owned[topic])
            epochs = _numbers([owned[topic][each] for each in partitions])
            out += topic.bytes + _numbers(partitions)
            out += b"\x01\x00" + uvarint(len(epochs)) + epochs
    return bytes(out + _NO_TAGS)


def _write_regex(value: ResolvedRegex) -> bytes:
    return (
        _texts(value.topics)
        + INT64.pack(value.version)
        + INT64.pack(value.resolved_at_ms)
        + _NO_TAGS
    )


def _texts(texts: frozenset[str]) -> bytes:
    return count(len(texts), True) + b"".join(string(text, True) for text in sorted(texts))


def _numbers(numbers: Sequence[int]) -> bytes:
    return count(len(numbers), True) + b"".join(map(INT32.pack, numbers))


_WRITERS: dict[Part, Callable[[Any], bytes]] = {
    Part.EPOCH: _write_epoch,
    Part.MEMBER: _write_member,
    Part.TARGET_EPOCH: _write_target_epoch,
    Part.TARGET: _write_target,
    Part.CURRENT: _write_current,
    Part.REGEX: _write_regex,
}

# Reading


def read_record(key: bytes, value: bytes) -> tuple[Part, str, Value] | None:
    """Return the part of a consumer group that a record is about, with its name; None for one that
    says nothing any more."""
    fields = Fields(key)
    version = fields.fixed(INT16)
    fields.text()
    if version == _SUBSCRIPTION_METADATA:
        return None
    try:
        part = Part(version)
    except ValueError:
        raise InvalidRecord(f"a key of version {version} in a consumer group") from None
    name = fields.text() if part in _NAMED else ""
    fields = Fields(value)
    fields.version(0, 0)
    found: Value = _READERS[part](fields)
    return part, name, found


def _read_epoch(fields: Fields) -> GroupEpoch:
    return GroupEpoch(fields.fixed(INT32), _read_tagged_long(fields))


def _read_target_epoch(fields: Fields) -> TargetEpoch:
    return TargetEpoch(fields.fixed(INT32), _read_tagged_long(fields))


def _read_tagged_long(fields: Fields) -> int:
    data = fields.tags().get(0)
    return 0 if data is None else Fields(data).fixed(INT64)


def _read_member(fields: Fields) -> Member:
    instance_id, rack = fields.nullable_text(), fields.nullable_text()
    client_id, client_host = fields.text(), fields.text()
    topics = frozenset(fields.text() for _ in range(fields.count()))
    regex = fields.nullable_text() or ""
    timeout_ms, assignor = fields.fixed(INT32), fields.nullable_text()
    data = fields.tags().get(0)
    classic = None
    # A nullable struct in a tag begins with a byte that says whether it is there.
    if data is not None and data[:1] == b"\x01":
        classic = _read_classic(Fields(data[1:], compact=True))
    return Member(
        instance_id, rack, client_id, client_host, topics, regex, timeout_ms, assignor, classic
    )


def _read_classic(fields: Fields) -> ClassicMetadata:
    session_timeout_ms = fields.fixed(INT32)
    protocols = []
    for _ in range(fields.count()):
        protocols.append((fields.text(), fields.blob()))
        fields.skip_tags()
    return ClassicMetadata(session_timeout_ms, tuple(protocols))


def _read_target(fields: Fields) -> Assignment:
    found: dict[UUID, frozenset[int]] = {}
    for _ in range(fields.count()):
        topic = UUID(bytes=fields.raw(16))
        found[topic] = in_order(_read_numbers(fields))
        fields.skip_tags()
    return found


def _read_current(fields: Fields) -> Current:
    epoch, previous_epoch = fields.fixed(INT32), fields.fixed(INT32)
    number = fields.fixed(INT8)
    try:
        state = MemberState(number)
    except ValueError:
        state = MemberState.UNKNOWN
    assigned = _read_owned(fields, epoch)
    return Current(epoch, previous_epoch, state, assigned, _read_owned(fields, epoch))


def _read_owned(fields: Fields, epoch: int) -> Owned:
    found: dict[UUID, dict[int, int]] = {}
    for _ in range(fields.count()):
        topic = UUID(bytes=fields.raw(16))
        partitions = _read_numbers(fields)
        data = fields.tags().get(0)
        # Written before KIP-1251 there are none: the current one then counts for all.
        epochs = [epoch] * len(partitions)
        if data is not None:
            epochs = _read_numbers(Fields(data, compact=True))
        if len(epochs) != len(partitions):
            raise InvalidRecord(f"{len(epochs)} epochs for {len(partitions)} partitions")
        found[topic] = dict(zip(partitions, epochs, strict=True))
    return found


def _read_regex(fields: Fields) -> ResolvedRegex:
    topics = frozenset(fields.text() for _ in range(fields.count()))
    return ResolvedRegex(topics, fields.fixed(INT64), fields.fixed(INT64))


def _read_numbers(fields: Fields) -> list[int]:
    return [fields.fixed(INT32) for _ in range(fields.count())]


_READERS: dict[Part, Callable[[Fields], Any]] = {
    Part.EPOCH: _read_epoch,
    Part.MEMBER: _read_member,
    Part.TARGET_EPOCH: _read_target_epoch,
    Part.TARGET: _read_target,
    Part.CURRENT: _read_current,
    Part.REGEX: _read_regex,
}
