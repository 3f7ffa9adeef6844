"""Preparation: what a producer does to a message before it is queued."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import confluent_kafka

from moldau.client.message import Headers
from moldau.client.producer.handles import Closed
from moldau.client.producer.partitioner import Partitioner
from moldau.client.producer.placement import Placement
from moldau.client.serializers import serialize_with


class Preparation:
    """Serializers, the headers that they add, and a partitioner of the user's.

    False where there is nothing to do.
    """

    def __init__(self, key: Any, value: Any, partitioner: Partitioner | None) -> None:
        self._key = serialize_with(key)
        self._value = serialize_with(value)
        self._key_headers = _adder(key)
        self._value_headers = _adder(value)
        self._place = None if partitioner is None else Placement(partitioner)
        self._is_needed = bool(self._key or self._value or self._place)

    def __bool__(self) -> bool:
        return self._is_needed

    def __call__(
        self,
        handle: confluent_kafka.Producer | Closed,
        topic: str,
        key: Any,
        value: Any,
        partition: int | None,
        headers: Headers | None,
    ) -> tuple[Any, Any, int | None, Headers | None]:
        if self._key is not None and key is not None:
            key = self._key(topic, key)
            if self._key_headers is not None:
                headers = _joined(headers, self._key_headers(topic))
        if self._value is not None and value is not None:
            value = self._value(topic, value)
            if self._value_headers is not None:
                headers = _joined(headers, self._value_headers(topic))
        if self._place is not None and partition is None:
            partition = self._place.partition(handle, topic, key, value)
        return key, value, partition, headers


def _adder(serializer: Any) -> Callable[[str], list[tuple[str, bytes]]] | None:
    found = getattr(serializer, "headers", None)
    return found if callable(found) else None


def _joined(headers: Headers | None, more: list[tuple[str, bytes]]) -> Headers:
    given = headers.items() if isinstance(headers, dict) else headers or ()
    return [*given, *more]
