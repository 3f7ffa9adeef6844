"""Reading committed records: over the wire, and by the clients that people use."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import kafka
import pytest
from confluent_kafka import TopicPartition

from moldau.broker.server import Broker as Server
from moldau.log.markers import TransactionEnd
from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.broker.wire_client import (
    Client,
    inside,
    make_batch,
    now_ms,
    read_records,
    until_parked,
    versions,
)


class Writer:
    """A transactional producer inside of the broker, with its coordinator."""

    def __init__(self, broker: Broker, topic: str, producer_id: int = 9) -> None:
        self._broker = broker
        self._topic = topic
        self._id = producer_id
        self._sequence = 0

    def write(self, *values: bytes, timestamp: int | None = None) -> int:
        batch = make_batch(
            *values,
            timestamp=timestamp,
            producer_id=self._id,
            producer_epoch=0,
            base_sequence=self._sequence,
            is_transactional=True,
        )

        def append(server: Server) -> int:
            partition = server.partitions[self._topic, 0]
            producers = partition.log.producers
            guard = producers.verifications.begin(self._id, 0, self._sequence, now_ms(), False)
            offset, _ = partition.append(memoryview(batch), now_ms(), guard=guard)
            server.partitions.commit([])
            return offset

        offset = inside(self._broker, append)
        self._sequence += len(values)
        return offset

    def end(self, *, commits: bool) -> int:
        def append(server: Server) -> int:
            end = TransactionEnd(self._id, 0, 0, commits)
            offset = server.partitions[self._topic, 0].append_marker(end, now_ms())
            server.partitions.commit([])
            return offset

        return inside(self._broker, append)


@pytest.fixture
def topic(client: Client) -> str:
    return client.create()


@pytest.fixture
def writers(moldau_session_broker: Broker, topic: str) -> list[Writer]:
    return [Writer(moldau_session_broker, topic, number) for number in range(3)]


def test_every_version_names_the_aborted_transactions_of_what_it_returns(
    client: Client, topic: str, writers: list[Writer]
) -> None:
    one, two, three = writers
    one.write(b"a")
    two.write(b"b")
    one.end(commits=False)
    two.end(commits=True)
    three.write(b"c")
    three.end(commits=False)
    for version in versions(Api.FETCH):
        key = client.topic_id(topic) if version >= 13 else topic
        answer = client.fetch(key, 0, version=version, isolation_level=1)
        named = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions]
        assert named == [(0, 0), (2, 4)]
        later = client.fetch(key, 3, version=version, isolation_level=1)
        named = [(each.producer_id, each.first_offset) for each in later.aborted_transactions]
        assert named == [(2, 4)]
        uncommitted = client.fetch(key, 0, version=version)
        assert uncommitted.aborted_transactions is None
        assert uncommitted.records == answer.records


def test_a_small_fetch_names_only_what_it_returns(
    client: Client, topic: str, writers: list[Writer]
) -> None:
    for _ in range(20):
        writers[0].write(b"x" * 100)
        writers[0].end(commits=False)
    answer = client.fetch(topic, 10, isolation_level=1, partition_max_bytes=450)
    named = [each.first_offset for each in answer.aborted_transactions]
    assert named == [10, 12]
    assert [record.offset for record in read_records(answer.records)] == [10, 11, 12]


def test_a_fetch_of_committed_records_waits_for_the_end_of_a_transaction(
    moldau_session_broker: Broker, client: Client, topic: str, writers: list[Writer]
) -> None:
    one, two, _ = writers
    one.write(b"a")
    partition = inside(moldau_session_broker, lambda server: server.partitions[topic, 0])
    wanted = [{"partition": 0, "fetch_offset": 0}]
    client.send_fetch({topic: wanted}, isolation_level=1, max_wait=20_000, min_bytes=1)
    until_parked(partition)
    # Records come and a transaction begins, but nothing is stable.
    two.write(b"b")
    with Client(moldau_session_broker) as other:
        other.produce(topic, make_batch(b"plain"))
        other.fetch(topic, 0)
    until_parked(partition)
    client.expect_nothing()
    one.end(commits=True)
    (answer,) = client.receive().responses[0].partitions
    assert (answer.last_stable_offset, answer.high_watermark) == (1, 4)
    assert [record.value for record in read_records(answer.records)] == [b"a"]


def test_the_end_for_committed_readers_is_the_last_stable_offset(
    client: Client, topic: str, writers: list[Writer]
) -> None:
    client.produce(topic, make_batch(b"x", timestamp=now_ms() - 5000))
    writers[0].write(b"y")
    writers[1].write(b"z")
    writers[1].end(commits=True)

    def ends(isolation: int, timestamp: int = -1) -> Any:
        wanted = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
        answer = client.ask(
            Api.LIST_OFFSETS,
            replica_id=-1,
            topics=[{"name": topic, "partitions": [wanted]}],
            isolation_level=isolation,
        )
        return answer.topics[0].partitions[0].offset

    assert (ends(0), ends(1)) == (4, 1)
    assert (ends(0, now_ms() - 2000), ends(1, now_ms() - 2000)) == (1, -1)
    writers[0].end(commits=False)
    assert (ends(0), ends(1)) == (5, 5)


def consumed_by_confluent(broker: Broker, topic: str, isolation: str) -> list[bytes | None]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": f"{broker.host}:{broker.port}",
            "group.id": "g",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.message.max.bytes": 600,
        }
    )
    found: list[bytes | None] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(60)
            assert message is not None
            if message.error() is not None:
                return found
            found.append(message.value())
    finally:
        consumer.close()


def consumed_by_kafka_python(broker: Broker, topic: str, isolation: str) -> list[bytes | None]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=f"{broker.host}:{broker.port}",
        isolation_level=isolation,
        enable_auto_commit=False,
        max_partition_fetch_bytes=600,
        consumer_timeout_ms=10_000,
    )
    place = kafka.TopicPartition(topic, 0)
    found: list[bytes | None] = []
    try:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            for records in consumer.poll(1000).values():
                found += [record.value for record in records]
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("consume", [consumed_by_confluent, consumed_by_kafka_python])
def test_clients_see_what_was_committed(
    moldau_session_broker: Broker,
    client: Client,
    topic: str,
    writers: list[Writer],
    consume: Any,
) -> None:
    one, two, three = writers
    expected, everything = [], []
    for number in range(30):
        kept, dropped, plain = (b"%s-%d" % (name, number) for name in (b"kept", b"drop", b"plain"))
        one.write(kept)
        two.write(dropped, dropped)
        client.produce(topic, make_batch(plain))
        one.end(commits=True)
        two.end(commits=False)
        expected += [kept, plain]
        everything += [kept, dropped, dropped, plain]
    three.write(b"open")
    client.produce(topic, make_batch(b"behind"))
    broker = moldau_session_broker
    assert consume(broker, topic, "read_committed") == expected
    assert consume(broker, topic, "read_uncommitted") == [*everything, b"open", b"behind"]
    three.end(commits=True)
    assert consume(broker, topic, "read_committed") == [*expected, b"open", b"behind"]
