"""Principals as bytes: what Kafka calls DefaultPrincipalData, after two bytes with its version."""

from __future__ import annotations

from struct import error

from moldau.wire.primitives import INT16, MalformedRequest, read_string, skip_tags, string

_VERSION = 0


def encode_principal(kind: str, name: str) -> bytes:
    """Return the bytes of a principal that was not authenticated by a delegation token."""
    return INT16.pack(_VERSION) + string(kind, True) + string(name, True) + b"\x00\x00"


def decode_principal(data: bytes) -> tuple[str, str]:
    """Return the kind and the name; MalformedRequest where the bytes are not a principal."""
    view = memoryview(data)
    try:
        (version,) = INT16.unpack_from(view)
        kind, position = read_string(view, 2, True)
        name, position = read_string(view, position, True)
        position = skip_tags(view, position + 1)
    except (error, IndexError):
        raise MalformedRequest("a principal ends too early") from None
    if version != _VERSION or kind is None or name is None or position != len(data):
        raise MalformedRequest(f"{len(data)} bytes are not a principal")
    return kind, name
