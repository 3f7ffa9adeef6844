"""Acceptance of a producer's batch: why one is refused, and the time that a topic stamps on it."""

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
    BatchError,
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    NotOneBatch,
    read_header,
)
from moldau.records.checksum import crc32c
from moldau.records.compression import Codec

_CRC = struct.Struct(">I")
_ATTRIBUTES_LOW_BYTE = 22
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_POSITION = 35
_MAX_CODEC = max(Codec)
_OLD_MAGICS = (0, 1)


def refusal(batch: memoryview, max_bytes: int) -> BatchError:
    """Return the error for bytes that are not exactly one intact batch of at most `max_bytes`."""
    size = len(batch)
    if size < HEADER_SIZE:
        return NotOneBatch(f"{size} bytes are too few for a batch header")
    header = read_header(batch)
    if header.size < HEADER_SIZE:
        return CorruptBatch(f"a batch of {header.size} bytes is too small for its header")
    if header.size != size:
        return NotOneBatch(
            f"expected exactly one batch: its header says {header.size} bytes, but there are {size}"
        )
    if header.magic in _OLD_MAGICS:
        return NotOneBatch(f"magic {header.magic} is not supported, only {MAGIC}")
    if header.magic != MAGIC:
        return CorruptBatch(f"there is no magic {header.magic}")
    if size > max_bytes:
        return BatchTooLarge(size, max_bytes)
    if crc32c(batch[CRC_START:]) != header.crc:
        return CorruptBatch("the CRC does not match")
    if header.count < 1 or header.last_offset_delta != header.count - 1:
        return InvalidRecord(f"{header.count} records over {header.last_offset_delta + 1} offsets")
    return InvalidRecord(f"{header.count} records do not fit in {size - HEADER_SIZE} bytes")


def check_attributes(
    attributes: int,
    base_offset: int,
    producer_id: int,
    sequence: int,
    append_time: bool,
    from_client: bool,
) -> None:
    """InvalidRecord or InvalidTimestamp for what only a broker or a coordinator may write."""
    if attributes & CODEC_MASK > _MAX_CODEC:
        raise InvalidRecord(f"unknown compression codec {attributes & CODEC_MASK}")
    if attributes & APPEND_TIME_BIT and not append_time:
        raise InvalidTimestamp(NO_TIMESTAMP, "claims to be the append time, which only brokers set")
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
            raise InvalidTimestamp(timestamp, f"is outside [{earliest}, {latest}]")


def set_append_time(batch: memoryview | bytearray, now_ms: int) -> None:
    """Stamp a batch with the time of its append, in place."""
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_POSITION, now_ms)
    batch[_ATTRIBUTES_LOW_BYTE] |= APPEND_TIME_BIT
    with memoryview(batch) as view:
        _CRC.pack_into(batch, CRC_POSITION, crc32c(view[CRC_START:]))
