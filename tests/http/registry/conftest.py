"""A broker with a registry, and the client that most programs use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from moldau.testing import Broker


@pytest.fixture(scope="session")
def registry_broker() -> Iterator[Broker]:
    with Broker(http_listen="127.0.0.1:0") as broker:
        yield broker


@pytest.fixture
def client(registry_broker: Broker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry_broker.http_url}) as client:
        yield client
