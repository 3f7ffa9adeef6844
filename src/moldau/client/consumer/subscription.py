"""Subscribing without a group: every partition of every topic asked for, new ones as they come."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

import confluent_kafka
from confluent_kafka import TopicPartition as Position

from moldau.cluster.state.internal_topics import is_internal_name
from moldau.topic_partition import TopicPartition

METADATA_TIMEOUT_S = 10.0
MISSING_AGE_S = 0.5


class WholeTopics:
    """The partitions of topics by name or pattern (a name that starts with `^`).

    The partitions that are there at first start where the consumer starts; those that come later
    start at their beginning, since everything in them is new.
    """

    def __init__(self, topics: Iterable[str], start: int, max_age_s: float) -> None:
        self._names = {name for name in topics if not name.startswith("^")}
        self._patterns = [re.compile(name) for name in topics if name.startswith("^")]
        self._start = start
        self._max_age_s = max_age_s
        self._known: set[TopicPartition] = set()
        self._asked: float | None = None

    def due(self) -> bool:
        missing = not self._names <= {topic for topic, _ in self._known}
        age = MISSING_AGE_S if missing else self._max_age_s
        return self._asked is None or time.monotonic() - self._asked > age

    def new_partitions(self, handle: confluent_kafka.Consumer) -> list[Position]:
        """Ask the brokers, and return the partitions that were not known."""
        start = self._start if self._asked is None else confluent_kafka.OFFSET_BEGINNING
        # All topics, because to ask for one by name may create it.
        found = handle.list_topics(timeout=METADATA_TIMEOUT_S).topics
        self._asked = time.monotonic()
        fresh = [
            (name, partition)
            for name, topic in found.items()
            if topic.error is None and self._wants(name)
            for partition in topic.partitions
            if (name, partition) not in self._known
        ]
        self._known.update(fresh)
        return [Position(name, partition, start) for name, partition in sorted(fresh)]

    def _wants(self, name: str) -> bool:
        if name in self._names:
            return True
        # As librdkafka does for groups: a pattern never means the brokers' own topics.
        return not is_internal_name(name) and any(found.match(name) for found in self._patterns)
