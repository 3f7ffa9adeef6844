"""Partitions that nobody leads: librdkafka crashes, or waits for ever, if told of a leader -1."""

from __future__ import annotations

from uuid import UUID

import pytest

from moldau.broker.server import Broker as Server
from moldau.cluster.state.topics import NO_LEADER
from moldau.testing import Broker
from moldau.wire.errors import Error
from tests.broker.wire_client import Client, inside, make_batch


@pytest.fixture
def topic_id(moldau_broker: Broker) -> UUID:
    moldau_broker.create_topic("t")
    with Client(moldau_broker) as client:
        found: UUID = client.topic_id("t")

    def resign(server: Server) -> None:
        partition = server.partitions["t", 0]
        partition.is_leader = False
        partition.leader, partition.leader_epoch = NO_LEADER, 9

    inside(moldau_broker, resign)
    return found


def test_a_producer_is_told_of_no_leader(moldau_broker: Broker, topic_id: UUID) -> None:
    with Client(moldau_broker) as client:
        client.send_produce(topic_id, make_batch(b"x"), version=13)
        answer = client.receive()
    (result,) = answer.responses[0].partition_responses
    assert result.error_code == Error.NOT_LEADER_OR_FOLLOWER
    assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (-1, -1)
    assert not answer.node_endpoints


def test_a_consumer_is_told_of_no_leader(moldau_broker: Broker, topic_id: UUID) -> None:
    with Client(moldau_broker) as client:
        client.send_fetch({topic_id: [0]}, version=17)
        answer = client.receive()
    (found,) = answer.responses[0].partitions
    assert found.error_code == Error.NOT_LEADER_OR_FOLLOWER
    assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (-1, -1)
    assert not answer.node_endpoints
