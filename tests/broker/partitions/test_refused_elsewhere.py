"""Writes that the leader before may have refused: a new one waits for them, for a while."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.broker.server import Broker as Server
from moldau.cluster.state.topics import PartitionState
from moldau.testing import Broker
from moldau.wire.errors import Error
from tests.broker.partitions.refusals import (
    OUT_OF_ORDER,
    assert_empty,
    numbered,
    run,
)
from tests.broker.wire_client import Client

# The leader before refused a batch, and librdkafka sends the one behind it here first: it takes a
# partition for drained before it has put back what was refused.

NOT_LEADER = Error.NOT_LEADER_OR_FOLLOWER


def lead_anew(server: Server) -> None:
    partition = server.partitions["t", 0]
    partition.become(PartitionState((0,), (0,), 0, partition.leader_epoch + 1))


@pytest.fixture
def elected(moldau_broker: Broker) -> Iterator[tuple[Broker, Client]]:
    """A broker that has just begun to lead, and knows a producer that wrote sequence 0 before."""
    with Client(moldau_broker) as client:
        client.create("t")
        assert client.produce("t", numbered(0)).base_offset == 0
        run(moldau_broker, lead_anew)
        yield moldau_broker, client


def test_a_new_leader_waits_for_what_the_one_before_may_have_refused(
    elected: tuple[Broker, Client],
) -> None:
    broker, client = elected
    for sequence in range(2, 6):
        assert client.produce("t", numbered(sequence)).error_code == NOT_LEADER
    for sequence in range(6):
        assert client.produce("t", numbered(sequence)).base_offset == sequence
    run(broker, assert_empty)


def test_of_a_new_epoch_as_well(elected: tuple[Broker, Client]) -> None:
    _, client = elected
    assert client.produce("t", numbered(1, epoch=1)).error_code == NOT_LEADER
    for sequence in range(2):
        assert client.produce("t", numbered(sequence, epoch=1)).base_offset == sequence + 1


def test_not_for_ever(elected: tuple[Broker, Client]) -> None:
    _, client = elected
    for _ in range(4):
        assert client.produce("t", numbered(2)).error_code == NOT_LEADER
    for _ in range(3):
        assert client.produce("t", numbered(2)).error_code == OUT_OF_ORDER
    assert client.produce("t", numbered(1)).base_offset == 1


def test_what_comes_late_may_be_any_of_those_under_way(elected: tuple[Broker, Client]) -> None:
    """As librdkafka was seen to do it: the second before the first, then the fourth."""
    broker, client = elected
    assert client.produce("t", numbered(2)).error_code == NOT_LEADER
    assert client.produce("t", numbered(1)).base_offset == 1
    for sequence in (3, 4, 5):
        assert client.produce("t", numbered(sequence)).error_code == NOT_LEADER
    for sequence in (2, 3):
        assert client.produce("t", numbered(sequence)).base_offset == sequence
    for sequence in (5, 6):
        assert client.produce("t", numbered(sequence)).error_code == NOT_LEADER
    for sequence in range(4, 8):
        assert client.produce("t", numbered(sequence)).base_offset == sequence
    run(broker, assert_empty)


def test_not_after_as_many_as_can_have_been_under_way(elected: tuple[Broker, Client]) -> None:
    broker, client = elected
    for sequence in range(1, 5):
        assert client.produce("t", numbered(sequence)).base_offset == sequence
    assert client.produce("t", numbered(6)).error_code == NOT_LEADER
    for sequence in (5, 6):
        assert client.produce("t", numbered(sequence)).base_offset == sequence
    assert client.produce("t", numbered(8)).error_code == OUT_OF_ORDER
    run(broker, lead_anew)
    assert client.produce("t", numbered(8)).error_code == NOT_LEADER


def test_not_in_the_first_term_of_all(client: Client) -> None:
    topic = client.create()
    assert client.produce(topic, numbered(0)).base_offset == 0
    assert client.produce(topic, numbered(2)).error_code == OUT_OF_ORDER


def test_not_what_is_older_than_all_that_is_remembered(elected: tuple[Broker, Client]) -> None:
    broker, client = elected
    for sequence in range(1, 8):
        assert client.produce("t", numbered(sequence)).base_offset == sequence
    run(broker, lead_anew)
    assert client.produce("t", numbered(1)).error_code == OUT_OF_ORDER
    assert client.produce("t", numbered(7)).base_offset == 7
