"""A producer that is known already: a batch is refused, and the one sent behind it arrives."""

from __future__ import annotations

import struct

import pytest

from moldau.broker.server import Broker as Server
from moldau.testing import Broker
from moldau.wire.errors import Error
from tests.broker.partitions.refusals import (
    OUT_OF_ORDER,
    TOO_FEW,
    assert_empty,
    numbered,
    run,
)
from tests.broker.wire_client import Client

NOT_LEADER = Error.NOT_LEADER_OR_FOLLOWER

# A log that knows the producer would call what follows out of order, and librdkafka then begins a
# new epoch, in which it sends everything again that it has not seen acknowledged.


@pytest.fixture
def known(client: Client) -> tuple[Client, str]:
    """A topic whose log knows the producer, and that has refused sequence 1 for now."""
    topic = client.create(min_insync_replicas="2")
    client.alter(topic, min_insync_replicas="1")
    assert client.produce(topic, numbered(0)).base_offset == 0
    client.alter(topic, min_insync_replicas="2")
    for sequence in (1, 2):
        assert client.produce(topic, numbered(sequence)).error_code == TOO_FEW
    client.alter(topic, min_insync_replicas="1")
    return client, topic


def test_a_known_producer_is_told_to_try_again_too(known: tuple[Client, str]) -> None:
    client, topic = known
    for sequence in (3, 4):
        assert client.produce(topic, numbered(sequence)).error_code == TOO_FEW
    for sequence in range(1, 5):
        assert client.produce(topic, numbered(sequence)).base_offset == sequence


def test_one_that_repeats_what_is_written_first(known: tuple[Client, str]) -> None:
    """The acknowledgement of sequence 0 was lost."""
    client, topic = known
    assert client.produce(topic, numbered(0)).base_offset == 0
    assert client.produce(topic, numbered(2)).error_code == TOO_FEW
    for sequence in range(1, 3):
        assert client.produce(topic, numbered(sequence)).base_offset == sequence


def test_one_that_jumps_over_what_nobody_refused_is_out_of_order(client: Client) -> None:
    topic = client.create()
    assert client.produce(topic, numbered(0)).base_offset == 0
    assert client.produce(topic, numbered(2)).error_code == OUT_OF_ORDER


def test_one_that_has_given_the_refused_one_up_is_out_of_order(known: tuple[Client, str]) -> None:
    client, topic = known
    for _ in range(4):
        assert client.produce(topic, numbered(2)).error_code == TOO_FEW
    assert client.produce(topic, numbered(2)).error_code == OUT_OF_ORDER


def test_one_that_begins_a_new_epoch_is_taken(known: tuple[Client, str]) -> None:
    client, topic = known
    assert client.produce(topic, numbered(0, epoch=1)).base_offset == 1
    assert client.produce(topic, numbered(2, epoch=1)).error_code == OUT_OF_ORDER
    assert client.produce(topic, numbered(1, epoch=1)).base_offset == 2


def test_one_whose_refused_batch_another_leader_has_written(moldau_broker: Broker) -> None:
    with Client(moldau_broker) as client:
        client.create("t")
        assert client.produce("t", numbered(0)).base_offset == 0
        run(moldau_broker, lambda server: server.replicas.fence(True))
        assert client.produce("t", numbered(1)).error_code == NOT_LEADER

        def follow(server: Server) -> None:
            batch = numbered(1)
            struct.pack_into(">q", batch, 0, 1)
            server.partitions["t", 0].append_replica(memoryview(batch), 1)

        run(moldau_broker, follow)
        run(moldau_broker, lambda server: server.replicas.fence(False))
        assert client.produce("t", numbered(2)).base_offset == 2
        assert client.produce("t", numbered(1)).base_offset == 1
        run(moldau_broker, assert_empty)


def test_one_that_has_lost_what_is_missing_is_told_so_however_few_it_sends(
    moldau_broker: Broker,
) -> None:
    """Another leader acknowledged sequence 1, and lost it; this one has refused what follows."""
    with Client(moldau_broker) as client:
        client.create("t")
        assert client.produce("t", numbered(0)).base_offset == 0
        run(moldau_broker, lambda server: server.replicas.fence(True))
        for sequence in (2, 3):
            assert client.produce("t", numbered(sequence)).error_code == NOT_LEADER
        run(moldau_broker, lambda server: server.replicas.fence(False))
        told = [client.produce("t", numbered(2 + each % 3)).error_code for each in range(7)]
        assert told == [NOT_LEADER] * 4 + [OUT_OF_ORDER] * 3
