"""Records of `__transaction_state` in Kafka's format, over plain bytes.

    key    int16 version 0, string transactional id
    value  int16 version 0 or 1
           int64 producer id, int16 its epoch, int32 time-out, int8 state
           nullable array of (string topic, array of int32 partitions); null if the state is Empty
           int64 last update, int64 start
           version 1 is flexible, with tagged fields: 0 previous producer id, 1 next producer id,
           2 the client's transaction version, 3 the epoch of the next producer id

Written is version 1. A record without a value is a tombstone: the transactional id expired.
"""

from __future__ import annotations

from struct import Struct

from moldau.broker.coordination.records import Fields, InvalidRecord
from moldau.broker.coordination.transactions.transaction import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    NOBODY,
    Identity,
    State,
    Transaction,
)
from moldau.topic_partition import TopicPartition
from moldau.wire.primitives import INT16, INT32, INT64, count, string, uvarint

_KEY = 0
_VALUE = 1
_FLEXIBLE_VALUE = 1
_FIXED = Struct(">hqhib")
_TWO_TIMES = Struct(">qq")
_INT8 = Struct(">b")

_PREVIOUS_ID, _NEXT_ID, _VERSION, _NEXT_EPOCH = range(4)


# Writing


def key_of(transactional_id: str) -> bytes:
    return INT16.pack(_KEY) + string(transactional_id, False)


def value_of(transaction: Transaction) -> bytes:
    out = bytearray(
        _FIXED.pack(_VALUE, *transaction.producer, transaction.timeout_ms, transaction.state)
    )
    if transaction.state is State.EMPTY:
        out += uvarint(0)
    else:
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(transaction.partitions):
            topics.setdefault(topic, []).append(index)
        out += count(len(topics), True)
        for topic, indexes in topics.items():
            out += string(topic, True) + count(len(indexes), True)
            out += b"".join(INT32.pack(index) for index in indexes) + uvarint(0)
    out += _TWO_TIMES.pack(transaction.updated_ms, transaction.started_ms)
    return bytes(out + _tags(transaction))


def _tags(transaction: Transaction) -> bytes:
    tags: list[tuple[int, bytes]] = []
    if transaction.previous_id != NO_PRODUCER_ID:
        tags.append((_PREVIOUS_ID, INT64.pack(transaction.previous_id)))
    if transaction.next != NOBODY:
        tags.append((_NEXT_ID, INT64.pack(transaction.next.producer_id)))
    if transaction.version:
        tags.append((_VERSION, INT16.pack(transaction.version)))
    if transaction.next != NOBODY:
        tags.append((_NEXT_EPOCH, INT16.pack(transaction.next.epoch)))
    encoded = [uvarint(tag) + uvarint(len(value)) + value for tag, value in tags]
    return uvarint(len(tags)) + b"".join(encoded)


# Reading


def read_key(data: bytes) -> str | None:
    """Return the transactional id that a record is about; None for a key of a later version."""
    fields = Fields(data)
    version = fields.fixed(INT16)
    if version < 0:
        raise InvalidRecord(f"a key of version {version}")
    return fields.text() if version == _KEY else None


def read_value(transactional_id: str, data: bytes) -> Transaction:
    """Return the transaction that a value of either version says."""
    fields = Fields(data)
    fields.version(_VALUE, _FLEXIBLE_VALUE)
    producer = Identity(fields.fixed(INT64), fields.fixed(INT16))
    timeout_ms = fields.fixed(INT32)
    number = fields.fixed(_INT8)
    try:
        state = State(number)
    except ValueError:
        raise InvalidRecord(f"a transaction in state {number}") from None
    partitions: set[TopicPartition] = set()
    for _ in range(fields.nullable_count() or 0):
        topic = fields.text()
        partitions.update((topic, fields.fixed(INT32)) for _ in range(fields.count()))
        fields.skip_tags()
    updated_ms, started_ms = fields.fixed(INT64), fields.fixed(INT64)
    tags = fields.tags()
    next_id = _tag(tags, _NEXT_ID, INT64, NO_PRODUCER_ID)
    # Kafka says no epoch where it is 0.
    next_epoch = max(_tag(tags, _NEXT_EPOCH, INT16, NO_EPOCH), 0)
    return Transaction(
        transactional_id,
        producer,
        state,
        timeout_ms,
        updated_ms,
        started_ms,
        frozenset(partitions),
        _tag(tags, _VERSION, INT16, 0),
        _tag(tags, _PREVIOUS_ID, INT64, NO_PRODUCER_ID),
        NOBODY if next_id == NO_PRODUCER_ID else Identity(next_id, next_epoch),
    )


def _tag(tags: dict[int, bytes], tag: int, kind: Struct, default: int) -> int:
    if tag not in tags:
        return default
    if len(tags[tag]) != kind.size:
        raise InvalidRecord(f"tagged field {tag} has {len(tags[tag])} bytes")
    value: int = kind.unpack(tags[tag])[0]
    return value
