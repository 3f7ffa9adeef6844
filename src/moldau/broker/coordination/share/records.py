"""Records of `__share_group_state` in Kafka's format, over plain bytes.

    key 0   a snapshot of a share partition: group, topic id, partition
    key 1   an update of one: the same
    value   int16 version 0, and then
            snapshot: int32 snapshot epoch, int32 state epoch, int32 leader epoch, int64 start
                      offset, int64 created, int64 written, batches
            update:   int32 snapshot epoch, int32 leader epoch, int64 start offset, batches
            each with the tagged field 0: int32 finished records from the start offset on
    batch   int64 first offset, int64 last offset, int8 state, int16 deliveries

A snapshot without a value says that the state was deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from moldau.broker.coordination.records import Fields, InvalidRecord, KeyValue
from moldau.broker.coordination.share.batches import RecordState, StateBatch
from moldau.broker.coordination.share.state import UNKNOWN, ShareKey, ShareState, Update
from moldau.wire.primitives import INT16, INT32, INT64, count, string, uvarint

_SNAPSHOT, _UPDATE = 0, 1
_FINISHED_TAG = 0
_SNAPSHOT_HEAD = Struct(">hiiiqqq")
_UPDATE_HEAD = Struct(">hiiq")
_BATCH = Struct(">qqbh")
_INT8 = Struct(">b")
_STATES = frozenset(RecordState)


class UpdateRecord(NamedTuple):
    """An update, and the snapshot that it belongs to."""

    snapshot_epoch: int
    update: Update


# Writing


def snapshot_record(key: ShareKey, state: ShareState) -> KeyValue:
    head = _SNAPSHOT_HEAD.pack(
        0, state.snapshot_epoch, state.state_epoch, state.leader_epoch, state.start,
        state.created_ms, state.written_ms,
    )  # fmt: skip
    return _key(_SNAPSHOT, key), head + _batches(state.batches) + _tags(state.finished)


def update_record(key: ShareKey, snapshot_epoch: int, update: Update) -> KeyValue:
    head = _UPDATE_HEAD.pack(0, snapshot_epoch, update.leader_epoch, update.start)
    return _key(_UPDATE, key), head + _batches(update.batches) + _tags(update.finished)


def tombstone(key: ShareKey) -> KeyValue:
    return _key(_SNAPSHOT, key), None


def _key(kind: int, key: ShareKey) -> bytes:
    group = string(key.group, False)
    return INT16.pack(kind) + group + key.topic_id.bytes + INT32.pack(key.partition)


def _batches(batches: Sequence[StateBatch]) -> bytes:
    return count(len(batches), True) + b"".join(_BATCH.pack(*batch) + b"\x00" for batch in batches)


def _tags(finished: int) -> bytes:
    if finished == UNKNOWN:
        return b"\x00"
    return b"\x01" + uvarint(_FINISHED_TAG) + uvarint(INT32.size) + INT32.pack(finished)


# Reading


def read_record(
    key: bytes, value: bytes | None
) -> tuple[ShareKey, ShareState | UpdateRecord | None] | None:
    """Return whom a record is about, and what it says; None for one of a later kind."""
    fields = Fields(key)
    kind = fields.fixed(INT16)
    if kind not in (_SNAPSHOT, _UPDATE):
        return None
    where = ShareKey(fields.text(), UUID(bytes=fields.raw(16)), fields.fixed(INT32))
    if value is None:
        return where, None
    return where, (_snapshot if kind == _SNAPSHOT else _update)(Fields(value))


def _snapshot(fields: Fields) -> ShareState:
    fields.version(0, 0)
    epochs = [fields.fixed(INT32) for _ in range(3)]
    start, created_ms, written_ms = (fields.fixed(INT64) for _ in range(3))
    batches = _read_batches(fields)
    finished = _finished(fields)
    snapshot_epoch, state_epoch, leader_epoch = epochs
    return ShareState(
        snapshot_epoch, state_epoch, leader_epoch, start, finished, created_ms, written_ms, batches
    )


def _update(fields: Fields) -> UpdateRecord:
    fields.version(0, 0)
    snapshot_epoch, leader_epoch = fields.fixed(INT32), fields.fixed(INT32)
    start = fields.fixed(INT64)
    batches = _read_batches(fields)
    return UpdateRecord(snapshot_epoch, Update(leader_epoch, start, _finished(fields), batches))


def _read_batches(fields: Fields) -> tuple[StateBatch, ...]:
    batches = []
    for _ in range(fields.count()):
        first, last = fields.fixed(INT64), fields.fixed(INT64)
        state, deliveries = fields.fixed(_INT8), fields.fixed(INT16)
        fields.skip_tags()
        if state not in _STATES or last < first:
            raise InvalidRecord(f"records {first} to {last} in state {state}")
        batches.append(StateBatch(first, last, state, deliveries))
    return tuple(batches)


def _finished(fields: Fields) -> int:
    value = fields.tags().get(_FINISHED_TAG)
    if value is None:
        return UNKNOWN
    if len(value) != INT32.size:
        raise InvalidRecord(f"tagged field {_FINISHED_TAG} has {len(value)} bytes")
    finished: int = INT32.unpack(value)[0]
    return finished
