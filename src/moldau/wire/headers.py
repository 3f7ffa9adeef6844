"""Frames and the headers of requests and responses."""

from __future__ import annotations

from struct import Struct, error

from moldau.wire.apis import VERSIONS, Api
from moldau.wire.primitives import INT32, MalformedRequest, skip_tags

_FIXED = Struct(">hhih")
_SIZE_AND_CORRELATION = Struct(">ii")
_NEVER = 1 << 15
_FIRST_FLEXIBLE = {int(api): versions.flexible for api, versions in VERSIONS.items()}


# Where the client's name begins in the header of a request.
CLIENT_ID = 10


def read_request_header(frame: memoryview) -> tuple[int, int, int, int, int]:
    """Return the header of a frame (without its four bytes of size); MalformedRequest if it has
    none.

    It is the API, its version, the correlation id, where the client's name ends, which begins at
    `CLIENT_ID`, and where the body begins.
    """
    try:
        api, version, correlation_id, size = _FIXED.unpack_from(frame)
        body = end = CLIENT_ID + size if size > 0 else CLIENT_ID
        # KIP-511: ApiVersions must be readable whatever version the client speaks, so its header
        # is flexible from v3 on, also in versions that nobody knows yet.
        if version >= _FIRST_FLEXIBLE.get(api, _NEVER):
            body = body + 1 if frame[body] == 0 else skip_tags(frame, body)
        elif body > len(frame):
            raise MalformedRequest("the client id extends beyond the request")
    except (error, IndexError):
        raise MalformedRequest(f"a request of {len(frame)} bytes has no header") from None
    return api, version, correlation_id, end, body


def response_frame(api: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """Return a whole response: size, header, body."""
    # KIP-511: the header of an ApiVersions response has no tags in any version.
    if version >= _FIRST_FLEXIBLE[api] and api != Api.API_VERSIONS:
        return _SIZE_AND_CORRELATION.pack(len(body) + 5, correlation_id) + b"\x00" + body
    return _SIZE_AND_CORRELATION.pack(len(body) + 4, correlation_id) + body


def request_frame(
    api: int, version: int, correlation_id: int, client_id: str | None, body: bytes
) -> bytes:
    """Return a whole request: size, header, body."""
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    header = _FIXED.pack(api, version, correlation_id, size) + name
    if version >= _FIRST_FLEXIBLE[api]:
        header += b"\x00"
    return INT32.pack(len(header) + len(body)) + header + body
