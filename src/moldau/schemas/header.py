"""The name of a record's schema, in front of its key or value, or in a header of the record.

    0, id (4 bytes)       what serializers write in front, unless told otherwise
    1, guid (16 bytes)    what they write into a header: `__key_schema_id`, `__value_schema_id`

Behind either, Protobuf has the index of its message. The header goes before what is in front: a
value that another names may begin with any byte.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable
from typing import NamedTuple

KEY_HEADER, VALUE_HEADER = "__key_schema_id", "__value_schema_id"

_HEADER = struct.Struct(">bI")
HEADER_SIZE = _HEADER.size
GUID_SIZE = 17
_GUID = 1


class SchemaName(NamedTuple):
    """The schema of a payload by its id or guid, and where the payload begins behind that.

    `path` is what a header has behind the name.
    """

    schema: int | str
    start: int
    path: bytes = b""


def pack_header(schema_id: int) -> bytes:
    return _HEADER.pack(0, schema_id)


def pack_guid(guid: str) -> bytes:
    return bytes((_GUID,)) + uuid.UUID(guid).bytes


def unpack_header(payload: bytes) -> int:
    """Return the schema's id; ValueError if the payload does not begin with a header."""
    if len(payload) < HEADER_SIZE:
        raise ValueError(f"{len(payload)} bytes are too few for a schema id")
    magic, schema_id = _HEADER.unpack_from(payload)
    if magic != 0:
        raise ValueError(
            f"a value with a schema id begins with 0, but this one begins with {payload[0]}"
        )
    return int(schema_id)


def read_name(payload: bytes, header: bytes | None = None) -> SchemaName:
    """Return the name of a payload's schema; ValueError if it has none."""
    if header is not None:
        schema, size, _ = read_name(header)
        return SchemaName(schema, 0, header[size:])
    if payload[:1] == b"\x01":
        if len(payload) < GUID_SIZE:
            raise ValueError(f"{len(payload)} bytes are too few for a schema guid")
        return SchemaName(str(uuid.UUID(bytes=payload[1:GUID_SIZE])), GUID_SIZE)
    return SchemaName(unpack_header(payload), HEADER_SIZE)


def name_in(headers: Iterable[tuple[str, bytes | None]] | None, name: str) -> bytes | None:
    """Return the last of a record's headers with this name: Java's clients take that one."""
    found = None
    for key, value in headers or ():
        if key == name:
            found = value
    return found
