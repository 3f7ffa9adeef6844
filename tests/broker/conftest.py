from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.testing import Broker
from tests.broker.asking import Asker
from tests.broker.wire_client import Client


@pytest.fixture
def asker(moldau_session_broker: Broker) -> Iterator[Asker]:
    """A connection to the broker that the whole session shares."""
    with Asker(moldau_session_broker) as asker:
        yield asker


@pytest.fixture
def client(moldau_session_broker: Broker) -> Iterator[Client]:
    """The same, for tests that send several requests at once, or nonsense."""
    with Client(moldau_session_broker) as client:
        yield client
