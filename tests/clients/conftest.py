"""The clients, and a broker that most of these tests share; each takes topics of its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from moldau.testing import Broker
from tests.clients.aio import AioClient
from tests.clients.client import Client
from tests.clients.confluent import ConfluentClient
from tests.clients.java import JavaProducer
from tests.clients.kafka_python import KafkaPythonClient

CLIENTS: dict[str, type[ConfluentClient] | type[KafkaPythonClient] | type[AioClient]] = {
    "confluent-kafka": ConfluentClient,
    "kafka-python": KafkaPythonClient,
    "aiokafka": AioClient,
}


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """One broker for all tests; it keeps messages of any age, since many here are dated."""
    with Broker(log_retention_ms=-1) as broker:
        yield broker


@pytest.fixture
def clients(broker: Broker) -> dict[str, Client]:
    """One client of each kind."""
    return {name: kind(broker.bootstrap) for name, kind in CLIENTS.items()}


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, clients: dict[str, Client]) -> Client:
    """Each kind of client in turn."""
    return clients[request.param]


@pytest.fixture(scope="session")
def java_producer() -> JavaProducer:
    """Java's producer, where there is Java and Maven can fetch it."""
    return JavaProducer()


@pytest.fixture
def fresh_name() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(broker: Broker, fresh_name: str) -> str:
    """The name of a fresh topic with three partitions."""
    broker.create_topic(fresh_name, partitions=3)
    return fresh_name
