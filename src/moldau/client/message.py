"""Messages: as they are sent, as sets, and as they are read.

These are msgspec structs because one is made per message on the hot paths: a struct is built in C,
several times faster than a class with an `__init__`. The collector need not look at them: a message
that contains itself makes no sense to anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from confluent_kafka import Message as RawMessage

HeaderValue = str | bytes | None
Headers = dict[str, HeaderValue] | list[tuple[str, HeaderValue]]
Timestamp = int | datetime


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message to send. Without a partition, the key decides; without a timestamp, it is now."""

    value: Any = None
    key: Any = None
    partition: int | None = None
    headers: Headers | None = None
    timestamp: Timestamp | None = None

    def payload(self) -> Any:
        return self.value


class ProducerRecord(msgspec.Struct, frozen=True, gc=False):
    """A message together with the topic it goes to."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    headers: Headers | None = None
    timestamp: Timestamp | None = None


class MessageSet:
    """Messages that are sent together and have one result.

    Made of messages, `MessageSet(Message(b"a"), Message(b"b"))`, or of one iterable of them,
    `MessageSet(messages)`. An item that is no `Message` is taken for the value of one.
    """

    __slots__ = ("messages",)

    def __init__(self, *messages: Any) -> None:
        if len(messages) == 1 and _is_collection(messages[0]):
            self.messages: list[Any] = list(messages[0])
        else:
            self.messages = list(messages)

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.messages)

    def __repr__(self) -> str:
        return f"MessageSet of {len(self.messages)} messages"


def _is_collection(item: object) -> bool:
    return isinstance(item, Iterable) and not isinstance(
        item, bytes | bytearray | str | Mapping | Message
    )


class ConsumedMessage(msgspec.Struct, gc=False, eq=False):
    """A message that was read.

    `value` and `key` are what the deserializers made of them (bytes without one); `payload()` is
    the value as it lies in the log. `timestamp` is in milliseconds.
    """

    value: Any
    raw: RawMessage
    decoded_key: Any = msgspec.UNSET

    def payload(self) -> bytes | None:
        return self.raw.value()

    @property
    def key(self) -> Any:
        return self.raw.key() if self.decoded_key is msgspec.UNSET else self.decoded_key

    @property
    def topic(self) -> str:
        topic = self.raw.topic()
        assert topic is not None
        return topic

    @property
    def partition(self) -> int:
        partition = self.raw.partition()
        assert partition is not None
        return partition

    @property
    def offset(self) -> int:
        offset = self.raw.offset()
        assert offset is not None
        return offset

    @property
    def timestamp(self) -> int | None:
        kind, timestamp = self.raw.timestamp()
        return timestamp if kind else None

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        return list(self.raw.headers() or ())  # type: ignore[arg-type]

    def __repr__(self) -> str:
        place = f"{self.topic} [{self.partition}] at {self.offset}"
        return f"<message of {place}: {self.key!r}={self.value!r}>"


def timestamp_ms(timestamp: Timestamp) -> int:
    """Milliseconds since 1970; a datetime without a zone is UTC, as everything in a log is."""
    if isinstance(timestamp, datetime):
        if timestamp.tzinfo is None:
            timestamp = timestamp.replace(tzinfo=UTC)
        return int(timestamp.timestamp() * 1000)
    return timestamp
