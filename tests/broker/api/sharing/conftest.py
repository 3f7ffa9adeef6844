"""A broker with share groups, and a group of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.testing import Broker
from tests.broker.api.sharing.member import initialize
from tests.broker.api.sharing.queues import Queue
from tests.broker.wire_client import Client, fresh_name


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "share.coordinator.state.topic.num.partitions": "3",
        "group.share.min.record.lock.duration.ms": "100",
        "group.share.max.share.sessions": "20",
    }
    with Broker(settings) as broker:
        yield broker


@pytest.fixture
def queue(broker: Broker) -> Iterator[Queue]:
    with Client(broker) as client:
        topic = client.create(partitions=2)
        queue = Queue(client, broker, topic, fresh_name("group"), client.topic_id(topic))
        for index in (0, 1):
            initialize(client, queue.group, queue.id, 0, index)
        yield queue
