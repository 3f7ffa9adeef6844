"""The request of a search, and what its worker answers: frames with a length in front."""

from __future__ import annotations

import struct
from typing import BinaryIO, TypeVar

import msgspec

from moldau.schemas.registry_settings import RegistrySettings

LENGTH = struct.Struct(">I")
LARGEST_FRAME = 256 << 20

T = TypeVar("T")


class Range(msgspec.Struct, array_like=True):
    """The offsets of one partition to look at: from `start`, up to `end`."""

    partition: int
    start: int
    end: int


class SearchRequest(msgspec.Struct):
    """What a worker is to look for. It comes by a pipe: a password has no place elsewhere.

    A search that `follows` does not end, but looks at what comes.
    """

    bootstrap: str
    security: dict[str, str]
    topic: str
    ranges: list[Range]
    filter: str
    limit: int
    within_s: float
    registry: str = ""
    registry_user: str | None = None
    masks: list[str] = []
    follows: bool = False
    most_bytes: int = 64 << 20
    # A broker's token for the visitor's address, if it gives one.
    origin: str = ""
    # What the console's own settings say about the registry.
    registry_own: RegistrySettings | None = None


class FoundRecord(msgspec.Struct, array_like=True):
    """A record that passed the filter."""

    partition: int
    offset: int
    timestamp: int
    uses_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Found(msgspec.Struct, tag="found", array_like=True):
    records: list[FoundRecord]


class Progress(msgspec.Struct, tag="progress", array_like=True):
    """How far the worker has come; `positions` is where it is in each partition.

    `unreadable` values name a schema by which they cannot be read: no filter sees their fields.
    """

    scanned: int
    total: int
    bytes: int
    found: int
    elapsed_ms: int
    positions: dict[int, int]
    unreadable: int = 0


class Done(msgspec.Struct, tag="done", array_like=True):
    """The end, and why: all was looked at (`end`), or a limit was reached."""

    reason: str
    positions: dict[int, int]


class Failed(msgspec.Struct, tag="failed", array_like=True):
    """Why the worker could not go on; whether the filter is at fault."""

    message: str
    is_bad_filter: bool = False


Answer = Found | Progress | Done | Failed

encode = msgspec.msgpack.Encoder().encode
decode_answer = msgspec.msgpack.Decoder(Answer).decode


def write_frame(out: BinaryIO, content: object) -> None:
    body = encode(content)
    out.write(LENGTH.pack(len(body)) + body)
    out.flush()


def read_frame(source: BinaryIO, kind: type[T]) -> T | None:
    """Return the next frame; None at the end."""
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    return msgspec.msgpack.decode(source.read(LENGTH.unpack(head)[0]), type=kind)
