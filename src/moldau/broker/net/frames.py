"""Frames: Kafka's requests on the wire, each behind its size in four bytes."""

from __future__ import annotations

from moldau.wire.primitives import INT32, MalformedRequest

# The size before a frame.
PREFIX = 4
# The first bytes of a TLS handshake, without the minor version.
_TLS_HELLO = 0x160301


def end_of_frame(view: memoryview, start: int, limit: int) -> int:
    """Return where the frame ends whose size stands at `start`; MalformedRequest if no frame is so
    long.

    The end may lie beyond what was received.
    """
    (size,) = INT32.unpack_from(view, start)
    if not 0 < size <= limit:
        if size >> 8 == _TLS_HELLO:
            raise MalformedRequest("the client speaks TLS, which this listener does not")
        raise MalformedRequest(f"a request claims {size} bytes (at most {limit})")
    return start + PREFIX + int(size)


def first_frame(view: memoryview) -> memoryview:
    """Return the frame at the front, of which everything is there."""
    (size,) = INT32.unpack_from(view)
    return view[PREFIX : PREFIX + size]
