"""A topic of each test's own, on one broker for all of them."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from moldau.testing import Broker


@pytest.fixture
def bootstrap(moldau_session_broker: Broker) -> str:
    return moldau_session_broker.bootstrap


@pytest.fixture
def new_topic(moldau_session_broker: Broker) -> Callable[..., str]:
    def create(partitions: int = 1, **configs: str | int) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        moldau_session_broker.create_topic(name, partitions, **configs)
        return name

    return create


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic()
