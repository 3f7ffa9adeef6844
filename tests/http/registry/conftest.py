"""A broker with a registry, and the client that most programs use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from moldau.testing import Broker
from tests.http.registry.asynchronous import AwaitedClient


@pytest.fixture(scope="session")
def registry_broker() -> Iterator[Broker]:
    with Broker(http_listen="127.0.0.1:0") as broker:
        yield broker


@pytest.fixture(params=[SchemaRegistryClient, AwaitedClient], ids=["sync", "async"])
def either_client(
    request: pytest.FixtureRequest, registry_broker: Broker
) -> Iterator[SchemaRegistryClient]:
    """Confluent's client in both of its forms."""
    with request.param({"url": registry_broker.http_url}) as client:
        yield client


@pytest.fixture
def client(registry_broker: Broker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry_broker.http_url}) as client:
        yield client
