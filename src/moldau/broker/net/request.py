"""Requests: what every API is given, Produce and Fetch included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moldau.broker.net.context import Context


@dataclass(slots=True)
class Request:
    """One request: its header, its connection's context, and its body.

    `context` says who asks and from where. The body begins at `start` in a frame of `size` bytes.
    Who reads that by hand (Produce, Fetch, ApiVersions) is given it beside the request, since its
    memory is reused afterwards. For all others `raw` has the bytes of the body, and `body` kio's
    object of them. `received_at` is a time of `time.monotonic`.

    One that `is_forwarded` came in another broker's envelope: then `context` is that of the client.
    """

    api: int
    version: int
    correlation_id: int
    client_id: str
    context: Context
    start: int = 0
    size: int = 0
    received_at: float = 0.0
    raw: bytes = b""
    body: Any = None
    is_forwarded: bool = False
