"""The topic `_schemas`, as a log that is appended to and read to its end."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition

from moldau.client.admin.admin import Admin
from moldau.client.connection import librdkafka_settings
from moldau.client.errors import ClientError, words_of
from moldau.client.producer.producer import Producer
from moldau.schemas.errors import SchemaError
from moldau.schemas.registry.records import (
    Key,
    Record,
    Value,
    decode,
    encode_key,
    encode_value,
)

TIMEOUT_S = 15.0


class SchemaTopic:
    """One compacted partition. Not for two threads at once."""

    def __init__(
        self, bootstrap: str | None, name: str, settings: dict[str, Any], replication_factor: int
    ) -> None:
        self.name = name
        # Asked for the end of the topic, too: the consumer's connection answers only after its
        # fetch, which waits for records that may never come.
        self._admin = Admin(bootstrap, **settings)
        if name not in self._admin.topics(internal=True):
            self._admin.create_topic(
                name,
                1,
                replication_factor=replication_factor,
                if_not_exists=True,
                cleanup_policy="compact",
            )
        self._producer = Producer(bootstrap, offsets=True, acks="all", linger_ms=0, **settings)
        self._consumer = confluent_kafka.Consumer(
            librdkafka_settings(
                bootstrap,
                settings,
                defaults={
                    "group.id": "moldau-no-group",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    # A position beyond a compacted or aborted tail is only seen as an end.
                    "enable.partition.eof": True,
                },
            )
        )
        # From a number: librdkafka asks for a named offset such as the beginning before it is
        # connected, and then only again after half a second.
        self._consumer.assign([TopicPartition(name, 0, 0)])
        self._read_to = 0

    def append(self, key: Key, value: Value | None) -> int:
        """Return the offset at which the record was written."""
        payload = None if value is None else encode_value(value)
        delivery = self._producer.send(self.name, payload, encode_key(key), 0)
        return delivery.result(TIMEOUT_S).offset

    def read(self, up_to: int | None = None) -> list[Record]:
        """Everything since the last time, to the end or at least to before this offset."""
        if up_to is None:
            up_to = self._admin.end_offset(self.name, 0)
        found: list[Record] = []
        deadline = time.monotonic() + TIMEOUT_S
        while self._read_to < up_to:
            message = self._consumer.poll(0.1)
            if message is None:
                if time.monotonic() > deadline:
                    raise SchemaError(f"{self.name} could not be read within {TIMEOUT_S:g} s")
                continue
            problem_found = message.error()
            if problem_found is None:
                record = decode(message.key(), message.value())
                if record is not None:
                    found.append(record)
                self._read_to = (message.offset() or 0) + 1
            elif problem_found.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                self._read_to = max(self._read_to, message.offset() or 0)
            else:
                raise ClientError(f"{self.name}: {words_of(problem_found)}", problem_found)
        return found

    def close(self) -> None:
        self._producer.close()
        self._consumer.close()
