"""Requests: what every API is given, Produce and Fetch included."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from moldau.broker.net.context import Context

# What a broker calls itself that passes on a client's request; its id follows.
FORWARDED_BY = "moldau-forwarded-by-"
_FORWARDED = re.compile(FORWARDED_BY + r"([0-9]{1,10})")


@dataclass(slots=True)
class Request:
    """One request: its header, its connection's context, and its body.

    `context` says who asks and from where. The body begins at `start` in a frame of `size` bytes.
    Who reads that by hand (Produce, Fetch, ApiVersions) is given it beside the request, since its
    memory is reused afterwards. For all others `raw` has the bytes of the body, and `body` kio's
    object of them. `received_at` is a time of `time.monotonic`.
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

    @property
    def forwarded_by(self) -> int | None:
        """The broker that the client asked, where that passed the request on to this one."""
        match = _FORWARDED.fullmatch(self.client_id)
        return None if match is None else int(match[1])
