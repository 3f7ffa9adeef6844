"""The times of messages, by their timestamps."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as Position

from moldau.topic_partition import TopicPartition

POLL_S = 0.1
WITHIN_S = 5.0


class MessageTimes:
    """Looks up the timestamps of messages, as often as asked, over the same connections.

    What was asked for the last time is remembered: somebody who watches a group that stands still
    reads nothing twice. Any thread may use it.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._consumer: confluent_kafka.Consumer | None = None
        self._known: dict[tuple[TopicPartition, int], int] = {}

    def at(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the timestamp of the first message at or after each offset, in milliseconds.

        One that does not come in time is left out.
        """
        with self._lock:
            known = {at: self._known[at] for at in offsets.items() if at in self._known}
            unknown = {place: at for place, at in offsets.items() if (place, at) not in known}
            for place, stamp in self._read(unknown).items():
                known[place, unknown[place]] = stamp
            self._known = known
        return {place: stamp for (place, _), stamp in known.items()}

    def close(self) -> None:
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None

    def _read(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not offsets:
            return {}
        if self._consumer is None:
            self._consumer = self._connect()
        consumer = self._consumer
        consumer.assign([Position(*place, at) for place, at in offsets.items()])
        found: dict[TopicPartition, int | None] = {}
        deadline = time.monotonic() + WITHIN_S
        while len(found) < len(offsets) and time.monotonic() < deadline:
            for message in consumer.consume(500, POLL_S):
                topic, partition = message.topic(), message.partition()
                error = message.error()
                is_end = error is not None and error.code() == KafkaError._PARTITION_EOF
                if topic is None or partition is None or (error is not None and not is_end):
                    continue
                if (topic, partition) not in found:
                    # The markers of transactions have offsets, but are no messages.
                    found[topic, partition] = None if is_end else message.timestamp()[1]
                    consumer.incremental_unassign([Position(topic, partition)])
        consumer.unassign()
        return {place: stamp for place, stamp in found.items() if stamp is not None}

    def _connect(self) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {
                **self._settings,
                "group.id": "moldau-no-group",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                # One message of each partition is all that is wanted.
                "queued.min.messages": 1,
                "fetch.message.max.bytes": 16384,
                # By default a consumer whose queue was full pauses for a second.
                "fetch.queue.backoff.ms": 5,
                # A partition that joins late waits for the fetch under way.
                "fetch.wait.max.ms": 100,
            }
        )
