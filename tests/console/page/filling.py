"""Topics with messages in them, and groups that have read some."""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.testing import Broker

Written = tuple[str | None, str | bytes | None]


def fill(broker: Broker, topic: str, messages: Iterable[Written], age_ms: int = 0) -> None:
    """Write messages, which look as old as that."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for key, value in messages:
        now = int(time.time() * 1000)
        producer.produce(topic, value, key=key, timestamp=now - age_ms)
        producer.poll(0)
    assert producer.flush(30) == 0


def commit(broker: Broker, group: str, topic: str, offset: int) -> None:
    """Have a group go on at an offset of partition 0."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()
