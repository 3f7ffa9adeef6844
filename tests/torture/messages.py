"""Messages: what was sent, and what must be found; numbers that say where they belong."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from typing import NamedTuple

_NUMBER = struct.Struct(">Q")
_LARGEST = 900


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class Wrong(Exception):
    """A promise was broken; the message says which."""


def payload(place: TopicPartition, number: int) -> bytes:
    """The bytes of message `number`: its number, then what only that message has."""
    seed = f"{place.topic} {place.partition} {number}".encode()
    digest = hashlib.blake2b(seed).digest()
    size = int.from_bytes(digest[:2], "big") % _LARGEST
    return _NUMBER.pack(number) + (digest * (size // len(digest) + 1))[:size]


def check_payload(place: TopicPartition, offset: int, content: bytes | None) -> int:
    """The number of a message; Wrong unless its bytes are those that were sent."""
    if content is None or len(content) < _NUMBER.size:
        raise Wrong(f"{place} offset {offset} holds {content!r}")
    number: int = _NUMBER.unpack_from(content)[0]
    if content != payload(place, number):
        raise Wrong(f"{place} offset {offset}: the bytes of message {number} have changed")
    return number


@dataclass(slots=True)
class Ledger:
    """One partition: what was sent, acknowledged and seen.

    A producer that repeats nothing and loses nothing puts message n at offset n, so the offset is
    all that there is to compare.
    """

    place: TopicPartition
    sent: int = 0
    acknowledged: int = 0
    seen: int = 0
    # Of a compacted topic: key to the number of its newest message.
    newest: dict[bytes, int] = field(default_factory=dict)

    @property
    def promised(self) -> int:
        """Everything before it was acknowledged or shown to a reader, so it may never vanish."""
        return max(self.acknowledged, self.seen)

    def on_acknowledged(self, number: int, offset: int | None) -> None:
        """Without an offset where librdkafka lost the answer and took a later one for it."""
        if offset not in (None, number):
            raise Wrong(f"{self.place}: message {number} was acknowledged at offset {offset}")
        self.acknowledged = max(self.acknowledged, number + 1)

    def on_seen(self, offset: int, content: bytes | None) -> None:
        """A reader that reads everything in order got this next."""
        number = check_payload(self.place, offset, content)
        if offset != self.seen or number != offset:
            raise Wrong(
                f"{self.place}: a reader at {self.seen} saw message {number} at offset {offset}"
            )
        self.seen = offset + 1
