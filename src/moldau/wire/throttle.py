"""Throttle times in answers that are encoded already: cached, forwarded, or written by hand."""

from __future__ import annotations

from dataclasses import fields
from functools import cache

from moldau.wire.apis import Api
from moldau.wire.primitives import INT32, read_count
from moldau.wire.schemas import response_schema

_FIELD = "throttle_time"
# ApiVersions: an error code, the ranges, and then the throttle time.
_RANGES = 2
_FIRST_WITH_THROTTLE = 1
_FIRST_COMPACT = 3
_RANGE_BYTES = 6


def throttle_in(api: int, version: int, body: bytes) -> int:
    """Return the throttle time of an encoded answer; 0 if it has no place for one."""
    place = _place(api, version, body)
    return 0 if place is None else int(INT32.unpack_from(body, place)[0])


def with_throttle(api: int, version: int, body: bytes, throttle_ms: int) -> bytes:
    """Return an encoded answer with this throttle time, if it has a place for one."""
    place = _place(api, version, body)
    if place is None:
        return body
    return body[:place] + INT32.pack(throttle_ms) + body[place + INT32.size :]


def _place(api: int, version: int, body: bytes) -> int | None:
    if api == Api.API_VERSIONS:
        if version < _FIRST_WITH_THROTTLE or body[:2] != bytes(2):
            return None
        compact = version >= _FIRST_COMPACT
        number, start = read_count(memoryview(body), _RANGES, compact)
        return start + number * (_RANGE_BYTES + compact)
    place = 0 if _is_first(api, version) else None
    return place if len(body) >= INT32.size else None


@cache
def _is_first(api: int, version: int) -> bool:
    return fields(response_schema(api, version))[0].name == _FIELD
