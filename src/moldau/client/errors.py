"""Errors of a client, with the data of what went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


class ClientError(Exception):
    """Anything that this library raises about messages, brokers or groups.

    `code` is Kafka's error code (librdkafka's own ones are negative) and `name` its name, where
    there is one.
    """

    def __init__(self, text: str, error: KafkaError | None = None) -> None:
        super().__init__(text)
        self.error = error

    @property
    def code(self) -> int | None:
        return None if self.error is None else self.error.code()

    @property
    def name(self) -> str | None:
        return None if self.error is None else self.error.name()


class DeliveryFailed(ClientError):
    """A message that was not written, after all retries; key and value are as they were sent.

    Of a set, or of a flush, it is the first such message, and `others` are the rest.
    """

    def __init__(
        self,
        text: str,
        error: KafkaError | None,
        *,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
    ) -> None:
        super().__init__(text, error)
        self.topic = topic
        self.partition = partition
        self.key = key
        self.value = value
        self.others: tuple[DeliveryFailed, ...] = ()


class QueueFull(ClientError):
    """The producer's buffer stayed full for as long as a send may block."""


class TransactionAborted(ClientError):
    """A transaction that was not committed and never will be: nothing of it is read. Try again."""


class ProducerFenced(ClientError):
    """A producer that can do nothing more, because another one has its transactional id."""


class ConsumeFailed(ClientError):
    """An error that librdkafka reports instead of a message; reading may continue unless the broker
    refuses.
    """

    def __init__(
        self, text: str, error: KafkaError, topic: str | None, partition: int | None
    ) -> None:
        super().__init__(text, error)
        self.topic = topic
        self.partition = partition


class DecodeError(ClientError):
    """A message that its deserializer cannot read. The next `next()` gives the message after it."""

    def __init__(
        self,
        reason: str,
        *,
        field: str,
        topic: str,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
    ) -> None:
        super().__init__(
            f"the {field} of {topic} [{partition}] at offset {offset} cannot be decoded: {reason}"
        )
        self.reason = reason
        self.field = field
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.key = key
        self.value = value


class SerializationError(ClientError):
    """A value that its serializer refuses: nothing was sent."""


def words_of(error: Any) -> str:
    """Return a `KafkaError` for people: what it says, and its name to look up."""
    return f"{error.str()} ({error.name()})"
