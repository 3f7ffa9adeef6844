"""The five bytes before a value that name its schema: a zero, and the id in four bytes."""

from __future__ import annotations

import struct

_HEADER = struct.Struct(">bI")
HEADER_SIZE = _HEADER.size


def pack_header(schema_id: int) -> bytes:
    return _HEADER.pack(0, schema_id)


def unpack_header(payload: bytes) -> int:
    """Return the schema's id; ValueError if the payload does not begin with a header."""
    if len(payload) < HEADER_SIZE:
        raise ValueError(f"{len(payload)} bytes are too few for a schema id")
    magic, schema_id = _HEADER.unpack_from(payload)
    if magic != 0:
        raise ValueError(f"a value with a schema id begins with 0, but this one with {payload[0]}")
    return int(schema_id)
