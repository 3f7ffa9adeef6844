"""The records inside a batch: decode them one by one, build a batch from them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from moldau.records.batch import (
    APPEND_TIME_BIT,
    CONTROL_BIT,
    CRC_POSITION,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    NO_PRODUCER_ID,
    PREFIX_SIZE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Bytes,
    CorruptBatch,
    InvalidRecord,
    read_header,
)
from moldau.records.checksum import crc32c
from moldau.records.compression import Codec, compress, decompress

# A batch of max.message.bytes seldom expands this far; what does is more likely an attack.
MAX_DECOMPRESSED = 128 << 20

Header = tuple[str, bytes | None]

_CRC = struct.Struct(">I")
_CONTROL_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
ABORT_MARKER = 0
COMMIT_MARKER = 1


class Record(NamedTuple):
    """One record with its absolute offset and timestamp."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()


class EndMarker(NamedTuple):
    """The control record that ends a transaction."""

    commits: bool
    coordinator_epoch: int


def records_of(
    buffer: Bytes, position: int = 0, max_decompressed: int = MAX_DECOMPRESSED
) -> Iterator[Record]:
    """Yield the records of the batch at `position`, whose length and CRC have been checked before.

    Every length inside is checked against the bytes that there are: InvalidRecord when they lie,
    CorruptBatch when the codec cannot read them, BatchTooLarge beyond `max_decompressed`.
    """
    header = read_header(buffer, position)
    body = payload_of(buffer, position, header, max_decompressed)
    yield from decode_records(body, header, position)


def decode_records(body: Bytes, header: BatchHeader, position: int = 0) -> Iterator[Record]:
    """Yield the records of an uncompressed section; keys and values are slices of it."""
    try:
        yield from _decode(body, header)
    except (IndexError, UnicodeDecodeError) as error:
        raise InvalidRecord(f"a record is malformed: {error}", position) from None


def payload_of(
    buffer: Bytes, position: int, header: BatchHeader, max_decompressed: int = MAX_DECOMPRESSED
) -> bytes:
    """Return the uncompressed records section of a batch."""
    end = position + header.size
    if header.size < HEADER_SIZE or end > len(buffer):
        raise CorruptBatch(f"batch length {header.length} does not fit", position)
    with memoryview(buffer) as view:
        section = bytes(view[position + HEADER_SIZE : end])
    return bytes(decompress(Codec.of(header.codec), section, max_decompressed))


def _decode(body: Any, header: BatchHeader) -> Iterator[Record]:
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.uses_append_time else None
    position, end = 0, len(body)
    previous_delta = -1
    for _ in range(header.count):
        length, position = read_varint(body, position)
        stop = position + length
        if length < 0 or stop > end:
            raise InvalidRecord(f"record length {length} does not fit")
        timestamp_delta, position = read_varint(body, position + 1)
        offset_delta, position = read_varint(body, position)
        if not previous_delta < offset_delta <= header.last_offset_delta:
            raise InvalidRecord(
                f"offset delta {offset_delta} after {previous_delta} in a batch that ends at"
                f" {header.last_offset_delta}"
            )
        previous_delta = offset_delta
        key, position = _sized(body, position, stop)
        value, position = _sized(body, position, stop)
        count, position = read_varint(body, position)
        # A header takes two bytes at least, so a count cannot make us allocate.
        if not 0 <= count <= (stop - position) // 2:
            raise InvalidRecord(f"{count} headers do not fit")
        headers: list[Header] = []
        for _ in range(count):
            name, position = _sized(body, position, stop)
            if name is None:
                raise InvalidRecord("a header without a name")
            content, position = _sized(body, position, stop)
            headers.append((str(name, "utf-8"), content))
        if position != stop:
            raise InvalidRecord(f"a record ends {stop - position} bytes from where it should end")
        yield Record(
            base_offset + offset_delta,
            base_timestamp + timestamp_delta if append_time is None else append_time,
            key,
            value,
            headers,
        )
    if position != end:
        raise InvalidRecord(f"{end - position} bytes after the last record")


def read_varint(data: Bytes, position: int) -> tuple[int, int]:
    """Return a zigzag varint of at most ten bytes, and the position after it."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = byte & 0x7F
    for shift in range(7, 70, 7):
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFF_FFFF_FFFF_FFFF
            return (value >> 1) ^ -(value & 1), position + 1
    raise InvalidRecord("a varint is longer than ten bytes")


def _sized(data: Any, position: int, stop: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        if length != -1:
            raise InvalidRecord(f"length {length} is negative")
        return None, position
    end = position + length
    if end > stop:
        raise InvalidRecord(f"length {length} does not fit its record")
    return data[position:end], end


def write_varint(out: bytearray, value: int) -> None:
    value = ((value << 1) ^ (value >> 63)) & 0xFFFF_FFFF_FFFF_FFFF
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _put_sized(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)
    else:
        write_varint(out, len(data))
        out += data


def build_batch(
    records: Iterable[Record],
    codec: Codec = Codec.NONE,
    *,
    base_offset: int | None = None,
    last_offset_delta: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    append_time_ms: int | None = None,
    level: int | None = None,
) -> bytearray:
    """Return a whole batch of `records`, whose offsets must rise.

    The base offset is the first record's unless given; compaction gives both `base_offset` and
    `last_offset_delta`, so that the batch still spans the offsets that it once had.
    """
    items = list(records)
    if base_offset is None:
        base_offset = items[0].offset if items else 0
    if last_offset_delta is None:
        last_offset_delta = items[-1].offset - base_offset if items else 0
    base_timestamp = items[0].timestamp if items else -1
    max_timestamp = max((item.timestamp for item in items), default=-1)
    attributes = int(codec)
    if append_time_ms is not None:
        attributes |= APPEND_TIME_BIT
        max_timestamp = append_time_ms
    if is_transactional:
        attributes |= TRANSACTIONAL_BIT
    if is_control:
        attributes |= CONTROL_BIT
    body = bytearray()
    record = bytearray()
    for item in items:
        record.clear()
        record.append(0)
        write_varint(record, item.timestamp - base_timestamp)
        write_varint(record, item.offset - base_offset)
        _put_sized(record, item.key)
        _put_sized(record, item.value)
        write_varint(record, len(item.headers))
        for name, content in item.headers:
            _put_sized(record, name.encode())
            _put_sized(record, content)
        write_varint(body, len(record))
        body += record
    header = BatchHeader(
        base_offset, 0, leader_epoch, MAGIC, 0, attributes, last_offset_delta, base_timestamp,
        max_timestamp, producer_id, producer_epoch, base_sequence, len(items),
    )  # fmt: skip
    return assemble(header, compress(codec, body, level))


def build_plain_batch(
    pairs: Sequence[tuple[bytes, bytes | None]],
    timestamp: int,
    *,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """Return the batch that `build_batch` makes of keys and values of one moment, in a third of the
    time: coordinators write one for nearly every request."""
    out = bytearray(HEADER_SIZE)
    for delta, (key, value) in enumerate(pairs):
        # No attributes, and no time after the first; no headers in the end.
        head = b"\x00\x00" + _varint(delta) + _varint(len(key)) + key
        tail = b"\x01\x00" if value is None else _varint(len(value)) + value + b"\x00"
        out += _varint(len(head) + len(tail)) + head + tail
    number = len(pairs)
    HEADER.pack_into(
        out, 0, 0, len(out) - PREFIX_SIZE, -1, MAGIC, 0,
        TRANSACTIONAL_BIT if is_transactional else 0,
        max(number - 1, 0), timestamp, timestamp, producer_id, producer_epoch, -1, number,
    )  # fmt: skip
    with memoryview(out) as view:
        _CRC.pack_into(out, CRC_POSITION, crc32c(view[CRC_START:]))
    return out


@lru_cache(4096)
def _varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def assemble(header: BatchHeader, section: Bytes) -> bytearray:
    """Return a batch of that header and (compressed) records, its length and CRC put right."""
    out = bytearray(HEADER_SIZE)
    out += section
    HEADER.pack_into(out, 0, *header._replace(length=len(out) - PREFIX_SIZE))
    with memoryview(out) as view:
        _CRC.pack_into(out, CRC_POSITION, crc32c(view[CRC_START:]))
    return out


def build_end_marker(
    *,
    commits: bool,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
) -> bytearray:
    """Return the control batch that commits or aborts a producer's open transaction."""
    kind = COMMIT_MARKER if commits else ABORT_MARKER
    key = _CONTROL_KEY.pack(0, kind)
    record = Record(0, timestamp, key, _MARKER_VALUE.pack(0, coordinator_epoch))
    return build_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def read_end_marker(buffer: Bytes, position: int = 0) -> EndMarker | None:
    """Return the end marker in a control batch; None for control records of another
    kind, or none."""
    for record in records_of(buffer, position):
        return end_marker_of(record, position)
    return None


def end_marker_of(record: Record, position: int = 0) -> EndMarker | None:
    """Return the end marker in a control record; None for one of another kind."""
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise InvalidRecord("a control record without a control key", position)
    _, kind = _CONTROL_KEY.unpack_from(record.key)
    if kind not in (ABORT_MARKER, COMMIT_MARKER):
        return None
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        raise InvalidRecord("an end marker without a coordinator epoch", position)
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    return EndMarker(kind == COMMIT_MARKER, coordinator_epoch)
