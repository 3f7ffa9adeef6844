"""Clients: what the tests ask of one, whichever library it stands on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Acks = Literal["0", "1", "all"]
Start = int | Literal["beginning", "end"]
Headers = tuple[tuple[str, bytes | None], ...]

CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")

# Nothing here takes a second on a free machine; a busy one may need many.
WITHIN_S = 60.0
# A moment that every client sends unchanged.
NOON_MS = 1_700_000_000_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Message:
    """A message, as it is handed to one client and comes out of another."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int = NOON_MS


@dataclass(frozen=True, slots=True)
class Received:
    """A message that was read, where it was, and whose clock stamped it."""

    offset: int
    message: Message
    is_append_time: bool = False


class Reader(Protocol):
    """A consumer that has one partition assigned."""

    def position(self) -> int:
        """The offset of the next message; waits until a start at the end has become a number."""

    def read(self, count: int) -> list[Received]:
        """The next messages, exactly this many."""


class Client(Protocol):
    """One library, connected to one broker."""

    # What this library cannot send, though Kafka allows it.
    sends_null_headers: bool
    sends_null_key_and_value: bool

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: Codec = "none",
        acks: Acks = "all",
        idempotent: bool = False,
    ) -> list[int]:
        """Sends, waits for the answers; the offsets (with acks=0 the broker tells none)."""

    def reader(
        self, topic: str, start: Start = "beginning", *, partition: int = 0
    ) -> AbstractContextManager[Reader]: ...

    def watermarks(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """The first offset, and the next one to be given."""

    def offsets_at(self, topic: str, *times_ms: int) -> dict[int, int | None]:
        """For each time the offset of the first message of partition 0 then or later, if any."""


def read_all(client: Client, topic: str, count: int, partition: int = 0) -> list[Received]:
    """The first `count` messages of a partition."""
    with client.reader(topic, partition=partition) as reader:
        return reader.read(count)
