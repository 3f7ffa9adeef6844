"""Primitives: reading and writing the protocol's variable-length pieces in plain buffers."""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from uuid import UUID

INT8 = Struct(">b")
INT16 = Struct(">h")
INT32 = Struct(">i")
INT64 = Struct(">q")

# A bytearray can be written to in place where a batch arrived; tests and threads pass bytes.
Buffer = bytes | bytearray | memoryview

# The name of a topic, or its id where the version has ids.
TopicKey = str | UUID
# A partition by its topic's id (KIP-516).
TopicIdPartition = tuple[UUID, int]

# id, host, port and rack of a broker
Endpoint = tuple[int, str, int, str | None]


# How much a request may list, in all its arrays together: objects take many times their size on the
# wire, and reading them holds up all others.
MOST_ELEMENTS = 1 << 17
# The same for one block of tagged fields; no version has more than a few.
MOST_TAGS = 32
# Kafka's limit in every version, though compact lengths could say more.
LONGEST_STRING = 32767


class MalformedRequest(ValueError):
    """Bytes that are not what the protocol says; the sender loses its connection."""


@lru_cache(1024)
def topic_id(raw: bytes) -> UUID:
    """Return the id of these 16 bytes, the same object each time: making one takes long, and so
    does comparing two."""
    return UUID(bytes=raw)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the unsigned varint at `position` and the position after it."""
    byte = buffer[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = buffer[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
    raise MalformedRequest("a varint is longer than five bytes")


def uvarint(value: int) -> bytes:
    """Return the unsigned varint of `value`."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(buffer: Buffer, position: int) -> int:
    """Return the position after a block of tagged fields that nobody here reads."""
    if not buffer[position]:
        # Nearly all have none, which is not worth a call.
        return position + 1
    count, position = read_uvarint(buffer, position)
    if count > MOST_TAGS:
        raise MalformedRequest(f"{count} tagged fields in one place")
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > len(buffer):
            raise MalformedRequest("a tagged field extends beyond the request")
    return position


def read_string(buffer: memoryview, position: int, compact: bool) -> tuple[str | None, int]:
    """Return a nullable string and the position after it."""
    if compact:
        # Nearly all take one byte, which is not worth a call.
        size = buffer[position] - 1
        if size < 0x7F:
            position += 1
        else:
            size, position = read_uvarint(buffer, position)
            size -= 1
    else:
        (size,) = INT16.unpack_from(buffer, position)
        position += 2
    if size < 0:
        return None, position
    if size > LONGEST_STRING:
        raise MalformedRequest(f"a string of {size} bytes (at most {LONGEST_STRING})")
    end = position + size
    if end > len(buffer):
        raise MalformedRequest("a string extends beyond the request")
    try:
        return str(buffer[position:end], "utf-8"), end
    except UnicodeDecodeError:
        raise MalformedRequest("a string is not UTF-8") from None


def read_text(buffer: memoryview, position: int) -> tuple[str, int]:
    """Return a compact string that must not be null, and the position after it."""
    size = buffer[position] - 1
    end = position + 1 + size
    if 0 <= size < 0x7F and end <= len(buffer):
        # Nearly all are short, which is not worth a call.
        try:
            return str(buffer[position + 1 : end], "utf-8"), end
        except UnicodeDecodeError:
            raise MalformedRequest("a string is not UTF-8") from None
    found, position = read_string(buffer, position, True)
    if found is None:
        raise MalformedRequest("a string that must not be null is null")
    return found, position


def read_count(buffer: Buffer, position: int, compact: bool) -> tuple[int, int]:
    """Return the length of an array (null counts as empty) and the position after it."""
    if compact:
        count = buffer[position] - 1
        if count < 0x7F:
            position += 1
        else:
            count, position = read_uvarint(buffer, position)
            count -= 1
    else:
        (count,) = INT32.unpack_from(buffer, position)
        position += 4
    # Every element takes a byte at least, so a lying count is caught before anything is built.
    if count > len(buffer) - position:
        raise MalformedRequest(f"an array claims {count} elements")
    return count if count > 0 else 0, position


def string(value: str | None, compact: bool) -> bytes:
    """Return a nullable string as the protocol writes it."""
    if value is None:
        return b"\x00" if compact else b"\xff\xff"
    data = value.encode()
    return (count(len(data), True) if compact else INT16.pack(len(data))) + data


@lru_cache(256)
def count(value: int, compact: bool) -> bytes:
    """Return the length of an array as the protocol writes it."""
    return uvarint(value + 1) if compact else INT32.pack(value)


def endpoint_tags(endpoints: list[Endpoint]) -> bytes:
    """Return a block of tags with one: the addresses of the leaders that a response names
    (KIP-951)."""
    data = count(len(endpoints), True)
    for node_id, host, port, rack in endpoints:
        data += INT32.pack(node_id) + string(host, True) + INT32.pack(port)
        data += string(rack, True) + b"\x00"
    return b"\x01\x00" + uvarint(len(data)) + data
