"""Asking a partitioner, which needs to know how many partitions a topic has."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka

from moldau.client.errors import ClientError, words_of
from moldau.client.producer.handles import Closed
from moldau.client.producer.partitioner import Partitioner

METADATA_TIMEOUT_S = 10.0
# Partitions are added rarely; a partitioner learns of them after this long.
COUNT_AGE_S = 30.0


class Placement:
    """A partitioner and the partition counts that it works with."""

    def __init__(self, partitioner: Partitioner) -> None:
        self._partitioner = partitioner
        self._counts: dict[str, tuple[int, float]] = {}

    def partition(
        self, handle: confluent_kafka.Producer | Closed, topic: str, key: Any, value: Any
    ) -> int | None:
        partitions = self._count(handle, topic)
        chosen = self._partitioner(_bytes(key), _bytes(value), partitions)
        if chosen is not None and not 0 <= chosen < partitions:
            raise ValueError(f"the partitioner chose {chosen}; {topic} has {partitions} partitions")
        return chosen

    def _count(self, handle: confluent_kafka.Producer | Closed, topic: str) -> int:
        now = time.monotonic()
        count, asked = self._counts.get(topic, (0, 0.0))
        if not count or now - asked > COUNT_AGE_S:
            count = partition_count(handle, topic, METADATA_TIMEOUT_S)
            self._counts[topic] = (count, now)
        return count


def partition_count(handle: confluent_kafka.Producer | Closed, topic: str, timeout: float) -> int:
    """Return how many partitions a topic has, from the broker; one that does not exist may come to
    be."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            found = handle.list_topics(topic, timeout=timeout).topics[topic]
        except confluent_kafka.KafkaException as problem:
            raise ClientError(
                f"could not get the partitions of {topic}: {words_of(problem.args[0])}",
                problem.args[0],
            ) from None
        if found.error is None and found.partitions:
            return len(found.partitions)
        if time.monotonic() > deadline or (found.error and not found.error.retriable()):
            reason = words_of(found.error) if found.error else "it has no partitions"
            raise ClientError(f"topic {topic}: {reason}", found.error)
        # A topic that has just been created has no leaders yet.
        handle.poll(0.05)


def _bytes(data: Any) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
