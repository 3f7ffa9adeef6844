"""Raw records of a batch, for code that keeps or drops them unchanged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from moldau.records.batch import CODEC_MASK, BatchHeader, InvalidRecord
from moldau.records.compression import Codec, compress
from moldau.records.record import assemble, read_varint, write_varint

# Bit 6 of the attributes: the base timestamp is the time from which tombstones may go (KIP-534).
DELETE_HORIZON_BIT = 0x40

# A plain tuple, since millions of them come and go: offset delta, key, whether there is no value,
# then where the record lies in its payload: its length, its body, its end.
RawRecord: TypeAlias = tuple[int, bytes | None, bool, int, int, int]


def raw_records(payload: bytes, count: int) -> list[RawRecord]:
    """Return the records of a payload; InvalidRecord when their lengths lie.

    Varints of one and two bytes, which nearly all are, are read in place: a call costs more than
    all the rest.
    """
    found: list[RawRecord] = []
    position, end = 0, len(payload)
    try:
        for _ in range(count):
            start = position
            byte = payload[position]
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
                position += 1
            elif payload[position + 1] < 0x80:
                byte = byte & 0x7F | payload[position + 1] << 7
                length = (byte >> 1) ^ -(byte & 1)
                position += 2
            else:
                length, position = read_varint(payload, position)
            body = position
            stop = position + length
            if length < 0 or stop > end:
                raise InvalidRecord(f"record length {length} does not fit")
            # Behind the attributes comes the timestamp delta, of which only the end matters here.
            position += 1
            while payload[position] >= 0x80:
                position += 1
            position += 1
            byte = payload[position]
            if byte < 0x80:
                offset_delta = (byte >> 1) ^ -(byte & 1)
                position += 1
            elif payload[position + 1] < 0x80:
                byte = byte & 0x7F | payload[position + 1] << 7
                offset_delta = (byte >> 1) ^ -(byte & 1)
                position += 2
            else:
                offset_delta, position = read_varint(payload, position)
            byte = payload[position]
            if byte < 0x80:
                size = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                size, position = read_varint(payload, position)
            key = None
            if size >= 0:
                if position + size >= stop:
                    raise InvalidRecord(f"length {size} does not fit its record")
                key = payload[position : position + size]
                position += size
            # An odd number is a negative length: no value.
            is_tombstone = payload[position] & 1 == 1
            if position >= stop:
                raise InvalidRecord("a record ends too early")
            found.append((offset_delta, key, is_tombstone, start, body, stop))
            position = stop
    except IndexError:
        raise InvalidRecord("a record ends too early") from None
    return found


def rebuild(
    header: BatchHeader, payload: bytes, kept: Iterable[RawRecord], delete_horizon_ms: int | None
) -> bytearray:
    """Return the batch with only the records `kept`; offsets, timestamps and codec stay as they
    were.

    With a delete horizon the base timestamp gives way to it, and the records' deltas count from
    there, as KIP-534 has it. A batch of which nothing is kept still says when it was written:
    its producer's state is as old as that.
    """
    base_timestamp = header.base_timestamp
    attributes = header.attributes
    shift = 0
    if delete_horizon_ms is not None:
        shift = base_timestamp - delete_horizon_ms
        base_timestamp = delete_horizon_ms
        attributes |= DELETE_HORIZON_BIT
    section = bytearray()
    largest = None
    count = 0
    for _, _, _, start, body, stop in kept:
        count += 1
        timestamp_delta, rest = read_varint(payload, body + 1)
        timestamp = header.base_timestamp + timestamp_delta
        if largest is None or timestamp > largest:
            largest = timestamp
        if shift:
            record = bytearray(payload[body : body + 1])
            write_varint(record, timestamp_delta + shift)
            record += payload[rest:stop]
            write_varint(section, len(record))
            section += record
        else:
            section += payload[start:stop]
    if largest is None or header.uses_append_time:
        largest = header.max_timestamp
    changed = header._replace(
        attributes=attributes, base_timestamp=base_timestamp, max_timestamp=largest, count=count
    )
    codec = Codec.of(attributes & CODEC_MASK) if count else Codec.NONE
    if codec is Codec.NONE:
        changed = changed._replace(attributes=attributes & ~CODEC_MASK)
        return assemble(changed, section)
    return assemble(changed, compress(codec, section))
