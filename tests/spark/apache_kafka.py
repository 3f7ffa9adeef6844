"""An Apache Kafka for tests: that of MOLDAU_TEST_KAFKA_BOOTSTRAP (HOST:PORT, 4.0 or newer), or one
of our own from Maven Central."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.kafka.broker import KafkaBroker
from bench.kafka.setup import Setup
from moldau.bench.child import Children

# The topics that Kafka keeps for itself are small, and it looks often at what it does in its time.
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "100",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
JVM = ("-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@contextmanager
def running_kafka(folder: Path) -> Iterator[str]:
    """Yield where it listens; Unavailable where its jars cannot be had."""
    named = os.environ.get("MOLDAU_TEST_KAFKA_BOOTSTRAP", "")
    if named:
        yield named
        return
    with Children(folder) as children:
        broker = KafkaBroker(children, folder / "kafka", Setup("small", JVM, SETTINGS))
        broker.start()
        try:
            broker.wait_ready()
            yield broker.bootstrap
        finally:
            broker.discard()
