"""Real clients that reach a broker by one listener or another, each at an address of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

from moldau.testing import Broker
from tests.broker.wire_client import inside
from tests.clients.client import WITHIN_S
from tests.clients.retries.lossy_proxy import LossyProxy

NAMES = ("OUTSIDE", "INSIDE")


@pytest.fixture
def addresses() -> Iterator[dict[str, tuple[str, str]]]:
    """By listener: where it listens, and what it advertises, which is another port."""
    with ExitStack() as stack:
        proxies = {name: stack.enter_context(LossyProxy()) for name in NAMES}
        settings = {
            "listeners": ",".join(f"{name}://127.0.0.1:0" for name in NAMES),
            "advertised.listeners": ",".join(
                f"{name}://{proxy.address}" for name, proxy in proxies.items()
            ),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in NAMES),
        }
        broker = stack.enter_context(Broker(settings))
        found = {}
        for name, proxy in proxies.items():
            listener = inside(broker, lambda server: server.listener(name))  # noqa: B023
            proxy.forward_to(listener.host, listener.port)
            found[name] = (listener.address, proxy.address)
        yield found


def test_librdkafka_finds_the_addresses_of_the_listener_that_it_began_with(
    addresses: dict[str, tuple[str, str]],
) -> None:
    for bootstrap, advertised in addresses.values():
        admin = AdminClient({"bootstrap.servers": bootstrap})
        (node,) = admin.list_topics(timeout=WITHIN_S).brokers.values()
        assert f"{node.host}:{node.port}" == advertised
    producer = Producer({"bootstrap.servers": addresses["OUTSIDE"][0]})
    producer.produce("t", b"x")
    assert producer.flush(WITHIN_S) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": addresses["INSIDE"][0],
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe(["t"])
        message = consumer.poll(WITHIN_S)
        assert message is not None
        assert message.value() == b"x"
    finally:
        consumer.close()


def test_kafka_python_finds_the_addresses_of_the_listener_that_it_began_with(
    addresses: dict[str, tuple[str, str]],
) -> None:
    producer = KafkaProducer(bootstrap_servers=addresses["INSIDE"][0])
    producer.send("t", b"x").get(WITHIN_S)
    producer.close()
    consumer = KafkaConsumer(
        "t",
        bootstrap_servers=addresses["OUTSIDE"][0],
        group_id="g",
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(WITHIN_S * 1000),
    )
    try:
        assert next(consumer).value == b"x"
        told = {f"{node.host}:{node.port}" for node in consumer._client.cluster.brokers()}
        assert told == {addresses["OUTSIDE"][1]}
    finally:
        consumer.close()
