"""Messages by kio's schemas: every request and response except the hot ones.

Requests are read by kio's native reader into its dataclasses, one class per version. Responses are
written from plain nested dicts by writers that are compiled once per version from the same
schemas: a handler gives the union of what all versions carry, the writer takes what its version
has and fills the rest with the schema's defaults. kio's own writer wants every nested object built
and type-checked first, which costs several times as much.

kio's modules are loaded on the first use of a version: all of them would take a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from functools import cache
from struct import Struct
from typing import Any
from uuid import UUID

from moldau.wire.apis import VERSIONS, Api
from moldau.wire.bounds import check_bounds, prepare_check
from moldau.wire.consumer_heartbeat import read_consumer_heartbeat, write_consumer_heartbeat
from moldau.wire.offset_commit import FIRST as FIRST_OFFSET_COMMIT
from moldau.wire.offset_commit import read_offset_commit, write_offset_commit
from moldau.wire.primitives import MOST_ELEMENTS, MalformedRequest, count, string, uvarint
from moldau.wire.schemas import (
    FIXED_TYPES,
    element_type,
    importing,
    is_array,
    is_optional,
    request_schema,
    response_schema,
)

Writer = Callable[[bytearray, Any], None]
Values = Mapping[str, Any]


# What is read and written by hand: since which version, and by what.
_BY_HAND: dict[
    int, tuple[int, Callable[[int, memoryview], Any], Callable[[int, Values], bytes]]
] = {
    Api.OFFSET_COMMIT: (FIRST_OFFSET_COMMIT, read_offset_commit, write_offset_commit),
    Api.CONSUMER_GROUP_HEARTBEAT: (0, read_consumer_heartbeat, write_consumer_heartbeat),
}

# The loaded schemas, by API and version.
_loaded: set[tuple[int, int]] = set()


def is_loaded(api: int, version: int) -> bool:
    """Return whether this request can be read and answered without loading kio's schemas first."""
    return (api, version) in _loaded


def is_by_hand(api: int, version: int) -> bool:
    """Return whether this request and its response have a codec of their own."""
    return api in _BY_HAND and version >= _BY_HAND[api][0]


def load(api: int, version: int) -> None:
    """Load what it takes to read this request and write its response. Any thread.

    The first time it takes longer than an event loop may be held.
    """
    schema = request_schema(api, version)
    prepare_check(schema)
    _reader(schema)
    _writer(api, version, response_schema)
    _loaded.add((api, version))


def decode_request(api: int, version: int, body: memoryview) -> Any:
    """kio's object for a request; MalformedRequest where the bytes are not one."""
    by_hand = _BY_HAND.get(api)
    if by_hand is not None and version >= by_hand[0]:
        return by_hand[1](version, body)
    return _read(request_schema(api, version), body, MOST_ELEMENTS)


def decode_response(api: int, version: int, body: memoryview) -> Any:
    """kio's object for a response; MalformedRequest where the bytes are not one."""
    return _read(response_schema(api, version), body, len(body))


def encode_request(api: int, version: int, values: Values) -> bytes:
    """Return the bytes of a request's body, of the fields that this version has."""
    return _write(_writer(api, version, request_schema), values)


def encode_response(api: int, version: int, values: Values) -> bytes:
    """Return the bytes of a response's body, of the fields that this version has."""
    by_hand = _BY_HAND.get(api)
    if by_hand is not None and version >= by_hand[0]:
        return by_hand[2](version, values)
    return _write(_writer(api, version, response_schema), values)


def milliseconds(value: timedelta) -> int:
    """kio reads durations as timedeltas; the broker counts milliseconds."""
    return value // timedelta(milliseconds=1)


def _read(schema: type, body: memoryview, most_elements: int) -> Any:
    body = check_bounds(schema, body, most_elements)
    read, errors = _reader(schema)
    try:
        value, _ = read(body, 0)
    except errors as reason:
        raise MalformedRequest(f"not a {schema.__name__}: {reason}") from None
    return value


def _write(writer: Writer, values: Values) -> bytes:
    out = bytearray()
    writer(out, values)
    return bytes(out)


@cache
def _reader(schema: type) -> tuple[Any, tuple[type[Exception], ...]]:
    """kio's reader, and what it raises for bytes that are not such a message."""
    with importing:
        from kio.serial import entity_reader
        from kio.serial.errors import SerialError

    errors = (SerialError, ValueError, LookupError, OverflowError, TypeError)
    return entity_reader(schema), errors


@cache
def _writer(api: int, version: int, schema: Callable[[int, int], type]) -> Writer:
    versions = VERSIONS[Api(api)]
    known: dict[str, set[str]] = {}
    for each in range(versions.first, versions.last + 1):
        _collect_names(schema(api, each), known)
    return _struct_writer(schema(api, version), known)


def _collect_names(schema: type, known: dict[str, set[str]]) -> None:
    """The names of every struct's fields over all versions, to tell a typo from an old version."""
    names = known.setdefault(schema.__name__, set())
    for field in fields(schema):
        names.add(field.name)
        inner = element_type(field.type)
        if is_dataclass(inner):
            _collect_names(inner, known)  # type: ignore[arg-type]


def _struct_writer(schema: type, known: dict[str, set[str]]) -> Writer:
    flexible: bool = schema.__flexible__  # type: ignore[attr-defined]
    names = known[schema.__name__]
    plain: list[tuple[str, Writer, Any]] = []
    tagged: list[tuple[int, str, Writer, Any]] = []
    for field in fields(schema):
        writer = _field_writer(field, flexible, known)
        if "tag" in field.metadata:
            tagged.append((field.metadata["tag"], field.name, writer, _default(field)))
        else:
            plain.append((field.name, writer, _default(field)))
    tagged.sort(key=lambda entry: entry[0])

    def write(out: bytearray, values: Values) -> None:
        if not values.keys() <= names:
            raise KeyError(f"{schema.__name__} has no {sorted(values.keys() - names)}")
        for name, writer, default in plain:
            writer(out, values.get(name, default))
        if flexible:
            present = [t for t in tagged if t[1] in values and values[t[1]] not in (t[3], None)]
            out += uvarint(len(present))
            for tag, name, writer, _ in present:
                data = bytearray()
                writer(data, values[name])
                out += uvarint(tag) + uvarint(len(data)) + data

    return write


def _field_writer(field: Field[Any], flexible: bool, known: dict[str, set[str]]) -> Writer:
    kind: Any = field.type
    inner = element_type(kind)
    if is_dataclass(inner):
        writer = _struct_writer(inner, known)  # type: ignore[arg-type]
        nullable_struct = not is_array(kind) and is_optional(kind) and "tag" not in field.metadata
        if nullable_struct:
            return _nullable(writer)
    else:
        writer = _primitive_writer(field.metadata["kafka_type"], flexible)
    return _array_writer(writer, flexible) if is_array(kind) else writer


def _primitive_writer(kafka_type: str, flexible: bool) -> Writer:
    if kafka_type in FIXED_TYPES:
        pack = Struct(">" + FIXED_TYPES[kafka_type]).pack

        def write_fixed(out: bytearray, value: Any) -> None:
            out += pack(value)

        return write_fixed
    if kafka_type == "string":

        def write_string(out: bytearray, value: str | None) -> None:
            out += string(value, flexible)

        return write_string
    if kafka_type == "uuid":

        def write_uuid(out: bytearray, value: UUID | None) -> None:
            out += bytes(16) if value is None else value.bytes

        return write_uuid
    assert kafka_type in ("bytes", "records"), kafka_type

    def write_bytes(out: bytearray, value: bytes | None) -> None:
        out += count(-1 if value is None else len(value), flexible)
        out += value or b""

    return write_bytes


def _array_writer(writer: Writer, flexible: bool) -> Writer:
    def write(out: bytearray, values: Any) -> None:
        if values is None:
            out += count(-1, flexible)
            return
        out += count(len(values), flexible)
        for value in values:
            writer(out, value)

    return write


def _nullable(writer: Writer) -> Writer:
    # KIP-893: a nullable struct is preceded by one signed byte.
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out += b"\xff"
        else:
            out += b"\x01"
            writer(out, value)

    return write


def _default(field: Field[Any]) -> Any:
    kind: Any = field.type
    if field.default is not MISSING:
        default = field.default
        if isinstance(default, timedelta):
            return milliseconds(default)
        return {} if is_dataclass(default) else default
    if is_optional(kind):
        return None
    if is_array(kind):
        return ()
    if is_dataclass(kind):
        return {}
    kafka_type = field.metadata["kafka_type"]
    if kafka_type in FIXED_TYPES:
        return 0
    return {"string": "", "uuid": None}.get(kafka_type, b"")
