"""What a producer's batch must satisfy beyond being intact, and what the topic makes of it."""

from __future__ import annotations

import struct

from moldau.log.errors import InvalidTimestamp
from moldau.records.batch import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_POSITION,
    CRC_START,
    HEADER_SIZE,
    MAGIC,
    NO_TIMESTAMP,
    CorruptBatch,
    InvalidRecord,
    NotOneBatch,
)
from moldau.records.checksum import crc32c
from moldau.records.compression import Codec

_CRC = struct.Struct(">I")
_ATTRIBUTES_LOW_BYTE = 22
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_POSITION = 35
_MAX_CODEC = max(Codec)
_OLD_MAGICS = (0, 1)


def wrong_length(claimed: int, size: int) -> NotOneBatch | CorruptBatch:
    """The error for a batch that says it has `claimed` bytes in a buffer of `size`."""
    if claimed < HEADER_SIZE:
        return CorruptBatch(f"a batch of {claimed} bytes is too small for its header")
    return NotOneBatch(f"exactly one batch is expected: it says {claimed} bytes, here are {size}")


def wrong_magic(magic: int) -> NotOneBatch | CorruptBatch:
    """The error for another format than ours: one of old, or none at all."""
    if magic in _OLD_MAGICS:
        return NotOneBatch(f"magic {magic} is not supported, only {MAGIC}")
    return CorruptBatch(f"there is no magic {magic}")


def check_attributes(
    attributes: int,
    base_offset: int,
    producer_id: int,
    sequence: int,
    *,
    append_time: bool,
    from_client: bool,
) -> None:
    """InvalidRecord or InvalidTimestamp for what only a broker or a coordinator may write."""
    if attributes & CODEC_MASK > _MAX_CODEC:
        raise InvalidRecord(f"unknown compression codec {attributes & CODEC_MASK}")
    if attributes & APPEND_TIME_BIT and not append_time:
        raise InvalidTimestamp(NO_TIMESTAMP, "claims to be the append time, which brokers set")
    if from_client:
        if base_offset:
            raise InvalidRecord(f"the base offset of a new batch is {base_offset}, not 0")
        if attributes & CONTROL_BIT:
            raise InvalidRecord("clients may not write control records")
        if producer_id >= 0 and sequence < 0:
            raise InvalidRecord(f"producer {producer_id} sent sequence {sequence}")


def check_timestamps(base_timestamp: int, max_timestamp: int, earliest: int, latest: int) -> None:
    """InvalidTimestamp unless both are unset or within [earliest, latest]."""
    for timestamp in (base_timestamp, max_timestamp):
        if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            raise InvalidTimestamp(timestamp, f"is outside of [{earliest}, {latest}]")


def set_append_time(batch: memoryview | bytearray, now_ms: int) -> None:
    """Stamp a batch with the time of its append, in place."""
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_POSITION, now_ms)
    batch[_ATTRIBUTES_LOW_BYTE] |= APPEND_TIME_BIT
    with memoryview(batch) as view:
        _CRC.pack_into(batch, CRC_POSITION, crc32c(view[CRC_START:]))
