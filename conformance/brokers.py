"""Both brokers, each in a process of its own, with the same node id and settings."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.kafka.broker import KafkaBroker
from bench.kafka.setup import Setup
from conformance.connection import Connection
from conformance.session import Broker
from moldau.bench.child import Children
from moldau.wire.apis import Api

NODE_ID = 1
_READY_TIMEOUT_S = 30.0
# What is set on both, so that the cases are quick and deal with small things.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "4",
    "message.max.bytes": "100000",
    # Given in another unit than topics have it.
    "log.roll.hours": "100",
}
_SMALL_HEAP = ("-Xms512m", "-Xmx512m", "-XX:+UseSerialGC")


@contextmanager
def both() -> Iterator[tuple[Broker, Broker]]:
    """Kafka and Moldau, ready; nothing is left of them afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="moldau-conformance-"))
    try:
        with Children(folder) as children:
            setup = Setup("small", _SMALL_HEAP)
            kafka = KafkaBroker(
                children, folder / "kafka", setup, node_id=NODE_ID, settings=SETTINGS
            )
            kafka.start()
            data = folder / "moldau"
            words = [sys.executable, "-m", "moldau", "broker", "--listen", "127.0.0.1:0"]
            words += ["--data-dir", str(data), "--id", str(NODE_ID)]
            for key, value in SETTINGS.items():
                words += ["--set", f"{key}={value}"]
            moldau = children.start(words)
            host, _, port = moldau.line(_READY_TIMEOUT_S).rpartition(" ")[2].rpartition(":")
            kafka.wait_ready()
            brokers = (
                Broker("Kafka", kafka.host, kafka.port, NODE_ID, kafka.data_dir),
                Broker("Moldau", host, int(port), NODE_ID, data),
            )
            for broker in brokers:
                broker.versions = _offered(broker)
            yield brokers
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _offered(broker: Broker) -> dict[int, tuple[int, int]]:
    connection = Connection(broker.host, broker.port)
    try:
        answer = connection.ask(Api.API_VERSIONS, 0, {})
    finally:
        connection.close()
    return {int(key.api_key): (key.min_version, key.max_version) for key in answer.api_keys}
