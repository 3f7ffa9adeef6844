"""From librdkafka's messages to ours, with the deserializers in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import msgspec

from moldau.client.errors import DecodeError
from moldau.client.message import ConsumedMessage
from moldau.client.serializers import Deserialize, deserialize_with

RawMessage = confluent_kafka.Message

DecodeErrorHandler = Callable[[DecodeError], object]


class Decoder:
    """Makes messages of what was fetched.

    An undecodable message raises `DecodeError`, or is skipped when a handler takes the error; the
    iterators made here go on with the next message in either case.
    """

    def __init__(
        self, key: Any = None, value: Any = None, on_error: DecodeErrorHandler | None = None
    ) -> None:
        self._key = deserialize_with(key)
        self._value = deserialize_with(value)
        # Those that find something in a message's headers are given these, too.
        self._with_headers = tuple(
            function
            for given, function in ((key, self._key), (value, self._value))
            if getattr(given, "takes_headers", False)
        )
        self._on_error = on_error

    def messages(self, raws: list[RawMessage], rest: Iterator[RawMessage]) -> Iterator[Any]:
        """Return an iterator over `rest`, which is one over `raws`, at C's speed where that is
        possible.

        Takes from `rest` one by one, so that it shows how many messages have been given out.
        """
        if self._key is None and self._value is None:
            return map(ConsumedMessage, map(RawMessage.value, raws), rest)
        if self._on_error is None:
            return map(self.decode, rest)
        return filter(None, map(self._decode_or_hand_over, rest))

    def decode(self, raw: RawMessage) -> ConsumedMessage:
        key: Any = msgspec.UNSET
        if self._key is not None:
            key = self._decoded(self._key, raw.key(), raw, "key")
        value = raw.value()
        if self._value is not None:
            value = self._decoded(self._value, value, raw, "value")
        return ConsumedMessage(value, raw, key)

    def _decode_or_hand_over(self, raw: RawMessage) -> ConsumedMessage | None:
        assert self._on_error is not None
        try:
            return self.decode(raw)
        except DecodeError as problem:
            self._on_error(problem)
            return None

    def _decoded(
        self, deserialize: Deserialize, payload: bytes | None, raw: RawMessage, field: str
    ) -> Any:
        if payload is None:
            return None
        topic = raw.topic() or ""
        try:
            if deserialize in self._with_headers:
                return deserialize(topic, payload, raw.headers())
            return deserialize(topic, payload)
        except Exception as problem:
            raise DecodeError(
                str(problem) or type(problem).__name__,
                field=field,
                topic=topic,
                partition=raw.partition() or 0,
                offset=raw.offset() or 0,
                key=raw.key(),
                value=raw.value(),
            ) from problem
