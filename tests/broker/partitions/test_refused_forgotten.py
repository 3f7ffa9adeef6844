"""Refusals are remembered no longer than they matter: no producer that does right is held up."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.broker.partitions import refused_writes
from moldau.broker.server import Broker as Server
from moldau.broker.upkeep.upkeep import Upkeep
from moldau.cluster.state.topics import PartitionState
from moldau.log.truncation import restart_at, truncate_to
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.partitions.refusals import (
    DAY_MS,
    OUT_OF_ORDER,
    TOO_FEW,
    assert_empty,
    numbered,
    run,
)
from tests.broker.wire_client import Client, inside, make_batch, now_ms

# A refusal that is over holds up nobody: this error on the oldest batch is fatal to librdkafka.


@pytest.fixture
def refusing(moldau_broker: Broker) -> Iterator[tuple[Broker, Client]]:
    """A broker that has refused sequence 0, and takes everything from now on."""
    with Client(moldau_broker) as client:
        client.create("t", min_insync_replicas="2")
        assert client.produce("t", numbered(0)).error_code == TOO_FEW
        client.alter("t", min_insync_replicas="1")
        assert client.produce("t", numbered(1)).error_code == TOO_FEW
        yield moldau_broker, client


def forget_producers(server: Server) -> None:
    producers = server.partitions["t", 0].log.producers
    assert producers.expire(now_ms() + 2 * DAY_MS, DAY_MS) == [77]


@pytest.mark.parametrize("forgets", [False, True], ids=["", "forgotten"])
def test_after_retention_and_deleted_records(
    refusing: tuple[Broker, Client], forgets: bool
) -> None:
    broker, client = refusing
    for sequence in range(3):
        assert client.produce("t", numbered(sequence)).error_code == 0
    wanted = {"partition_index": 0, "offset": 3}
    client.ask(Api.DELETE_RECORDS, topics=[{"name": "t", "partitions": [wanted]}], timeout=100)
    broker._call(_upkeep(broker).delete_expired())
    if forgets:
        run(broker, forget_producers)
    assert client.produce("t", numbered(3)).base_offset == 3


def _upkeep(broker: Broker) -> Upkeep:
    assert broker._server is not None
    return broker._server._upkeep


def test_after_a_new_topic_of_the_same_name(refusing: tuple[Broker, Client]) -> None:
    """What was written to the old one went to another leader, which this broker cannot know."""
    _, client = refusing
    client.ask(Api.DELETE_TOPICS, topics=[{"name": "t", "topic_id": None}], timeout=5000)
    client.create("t")
    assert client.produce("t", numbered(100)).base_offset == 0


def test_after_a_topic_was_deleted_under_the_producer(moldau_broker: Broker) -> None:
    with Client(moldau_broker) as client:
        client.create("t")
        assert client.produce("t", numbered(0)).base_offset == 0
        client.ask(Api.DELETE_TOPICS, topics=[{"name": "t", "topic_id": None}], timeout=5000)
        for sequence in (1, 2):
            answer = client.produce("t", numbered(sequence))
            assert answer.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        client.create("t")
        assert client.produce("t", numbered(2)).error_code == answer.error_code
        assert client.produce("t", numbered(1)).base_offset == 0
        assert client.produce("t", numbered(2)).base_offset == 1


def test_after_another_leader_has_written_it(refusing: tuple[Broker, Client]) -> None:
    broker, client = refusing

    def follow(server: Server) -> None:
        partition = server.partitions["t", 0]
        for sequence in range(3):
            batch = numbered(sequence)
            struct.pack_into(">q", batch, 0, sequence)
            partition.append_replica(memoryview(batch), sequence)

    run(broker, follow)
    assert client.produce("t", numbered(3)).base_offset == 3


@pytest.mark.moldau(producer_id_expiration_ms=1)
def test_after_another_leader_has_written_it_and_it_was_forgotten(
    refusing: tuple[Broker, Client],
) -> None:
    broker, client = refusing

    def follow(server: Server) -> None:
        server.partitions["t", 0].append_replica(memoryview(numbered(0)), 0)

    def forgets(server: Server) -> bool:
        return server.partitions["t", 0].log.producers.get(77) is None

    def is_forgotten() -> bool:
        broker._call(_upkeep(broker).delete_expired())
        return inside(broker, forgets)

    run(broker, follow)
    until(is_forgotten, "the producer to be forgotten")
    assert client.produce("t", numbered(1)).base_offset == 1


def test_after_the_refused_batch_alone_was_written_and_forgotten(
    refusing: tuple[Broker, Client],
) -> None:
    broker, client = refusing
    assert client.produce("t", numbered(0)).base_offset == 0
    run(broker, forget_producers)
    assert client.produce("t", numbered(1)).base_offset == 1


def test_after_a_leader_change_to_a_fresh_copy(refusing: tuple[Broker, Client]) -> None:
    """The records were deleted where they had been written, and so are in no copy."""
    broker, client = refusing
    run(broker, lambda server: restart_at(server.partitions["t", 0].log, 3))
    assert client.produce("t", numbered(3)).base_offset == 3


def test_after_a_cut(refusing: tuple[Broker, Client]) -> None:
    """A follower of a leader that was elected uncleanly loses what both had acknowledged."""
    broker, client = refusing
    assert client.produce("t", make_batch(b"x")).base_offset == 0

    def cut(server: Server) -> None:
        truncate_to(server.partitions["t", 0].log, 0)

    run(broker, cut)
    assert client.produce("t", numbered(3)).base_offset == 0


def test_after_an_unclean_election(refusing: tuple[Broker, Client]) -> None:
    """The leader in between took the batch and died; this broker was not in sync."""
    broker, client = refusing

    def elect(server: Server) -> None:
        partition = server.partitions["t", 0]
        epoch = partition.leader_epoch
        partition.become(PartitionState((0, 5), (5,), 5, epoch + 1))
        partition.become(PartitionState((0,), (0,), 0, epoch + 2))

    run(broker, elect)
    assert client.produce("t", numbered(3)).base_offset == 0


def test_after_a_clean_election_it_still_counts(refusing: tuple[Broker, Client]) -> None:
    """Nobody can have written it meanwhile, or this broker would have a copy."""
    broker, client = refusing

    def elect(server: Server) -> None:
        partition = server.partitions["t", 0]
        epoch = partition.leader_epoch
        partition.become(PartitionState((0, 5), (0, 5), 5, epoch + 1))
        partition.become(PartitionState((0,), (0,), 0, epoch + 2))

    run(broker, elect)
    assert client.produce("t", numbered(1)).error_code == TOO_FEW
    assert client.produce("t", numbered(0)).base_offset == 0


def test_after_a_restart_that_lost_the_snapshot(refusing: tuple[Broker, Client]) -> None:
    broker, client = refusing
    for sequence in range(3):
        assert client.produce("t", numbered(sequence)).error_code == 0
    wanted = {"partition_index": 0, "offset": 3}
    client.ask(Api.DELETE_RECORDS, topics=[{"name": "t", "partitions": [wanted]}], timeout=100)
    folder = Path(broker.data_dir) / "t-0"
    broker.stop()
    for file in (*folder.glob("*.snapshot"), *folder.glob("*.log")):
        file.unlink()
    broker.start()
    with Client(broker) as again:
        assert again.produce("t", numbered(3)).error_code == 0


def test_two_rounds_later_it_is_forgotten(refusing: tuple[Broker, Client]) -> None:
    broker, client = refusing
    broker._call(_upkeep(broker).forget_refusals())
    assert client.produce("t", numbered(1)).error_code == TOO_FEW
    broker._call(_upkeep(broker).forget_refusals())
    assert client.produce("t", numbered(1)).base_offset == 0


def test_a_client_that_goes_on_regardless_is_believed_after_five(client: Client) -> None:
    """It cannot have had more under way when it learned that the first was refused."""
    topic = client.create(cleanup_policy="compact")
    assert client.produce(topic, numbered(0, key=None)).error_code == Error.INVALID_RECORD
    for sequence in (1, 2, 3, 4, 4, 1):
        assert client.produce(topic, numbered(sequence)).error_code == OUT_OF_ORDER
    assert client.produce(topic, numbered(5)).base_offset == 0
    assert client.produce(topic, numbered(6)).base_offset == 1


def test_a_client_that_tries_a_later_one_again_before_the_refused_one_is_believed_too(
    client: Client,
) -> None:
    """It was told to try again, and has given the refused one up: clients that have not begin with
    that."""
    topic = client.create(min_insync_replicas="2")
    assert client.produce(topic, numbered(0)).error_code == TOO_FEW
    client.alter(topic, min_insync_replicas="1")
    for _ in range(4):
        assert client.produce(topic, numbered(1)).error_code == TOO_FEW
    assert client.produce(topic, numbered(1)).base_offset == 0
    assert client.produce(topic, numbered(2)).base_offset == 1


def test_a_client_that_is_refused_again_and_again_is_not_given_up(client: Client) -> None:
    topic = client.create(cleanup_policy="compact")
    for _ in range(4):
        assert client.produce(topic, numbered(0, key=None)).error_code == Error.INVALID_RECORD
        for sequence in (1, 2, 3, 4):
            assert client.produce(topic, numbered(sequence)).error_code == OUT_OF_ORDER
    assert client.produce(topic, numbered(0)).base_offset == 0


def test_the_memory_is_bounded(moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_writes, "MOST_REFUSALS", 50)
    with Client(moldau_broker) as client:
        for number in range(100):
            client.produce(f"missing-{number % 7}", numbered(0, producer=number))
            client.produce(uuid.UUID(int=number + 1), numbered(0, producer=number), version=13)
        client.produce("x" * 300, numbered(0))
        client.produce("missing", make_batch(b"no producer"))
        assert inside(moldau_broker, lambda server: len(server.partitions.refused_writes)) == 50
        client.produce("t", numbered(0))
        client.create("t")
        assert client.produce("t", numbered(1)).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        for number in range(7):
            client.create(f"missing-{number}")
            topics = [{"name": f"missing-{number}", "topic_id": None}]
            client.ask(Api.DELETE_TOPICS, topics=topics, timeout=5000)
        broker_rounds = _upkeep(moldau_broker)
        moldau_broker._call(broker_rounds.forget_refusals())
        moldau_broker._call(broker_rounds.forget_refusals())
        run(moldau_broker, assert_empty)
