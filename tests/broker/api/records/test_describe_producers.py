"""DescribeProducers over the wire: what a partition remembers of its producers."""

from __future__ import annotations

from typing import Any

from moldau.broker.server import Broker as Server
from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.wire_client import Client, append_open, inside, make_batch, now_ms


def describe(client: Client, topic: str, *indexes: int) -> list[Any]:
    wanted = {"name": topic, "partition_indexes": indexes or (0,)}
    answer = client.ask(Api.DESCRIBE_PRODUCERS, topics=[wanted])
    assert answer.topics[0].name == topic
    return list(answer.topics[0].partitions)


def test_producers_and_their_open_transactions_are_described(
    moldau_session_broker: Broker, client: Client
) -> None:
    topic = client.create()
    before = now_ms()
    client.produce(topic, make_batch(b"plain"))
    client.produce(topic, make_batch(b"a", b"b", producer_id=7, producer_epoch=3, base_sequence=0))
    append_open(moldau_session_broker, topic, b"x")
    (answer,) = describe(client, topic)
    assert (answer.error_code, answer.error_message) == (0, None)
    seven, nine = sorted(answer.active_producers, key=lambda each: each.producer_id)
    assert (seven.producer_id, seven.producer_epoch, seven.last_sequence) == (7, 3, 1)
    assert (seven.coordinator_epoch, seven.current_txn_start_offset) == (-1, -1)
    assert before <= seven.last_timestamp <= now_ms()
    assert (nine.producer_id, nine.current_txn_start_offset) == (9, 3)
    marker = {
        "producer_id": 9,
        "producer_epoch": 1,
        "transaction_result": False,
        "topics": [{"name": topic, "partition_indexes": [0]}],
        "coordinator_epoch": 5,
        "transaction_version": 2,
    }
    client.ask(Api.WRITE_TXN_MARKERS, markers=[marker])
    (answer,) = describe(client, topic)
    (nine,) = [each for each in answer.active_producers if each.producer_id == 9]
    assert (nine.producer_epoch, nine.last_sequence) == (1, -1)
    assert (nine.coordinator_epoch, nine.current_txn_start_offset) == (5, -1)


def test_partitions_that_are_not_there_are_refused_one_by_one(client: Client) -> None:
    topic = client.create(partitions=2)
    answers = describe(client, topic, 1, 2, -1)
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert [(each.partition_index, each.error_code) for each in answers] == [
        (1, 0),
        (2, unknown),
        (-1, unknown),
    ]
    assert [each.active_producers for each in answers] == [(), (), ()]
    assert describe(client, "nobody-made-this")[0].error_code == unknown
    (bad,) = describe(client, "not/a name")
    assert bad.error_code == Error.INVALID_TOPIC_EXCEPTION
    assert "not/a name" in bad.error_message


def test_many_producers_are_all_described(moldau_session_broker: Broker, client: Client) -> None:
    topic = client.create()

    def note(server: Server) -> None:
        producers = server.partitions[topic, 0].log.producers
        for number in range(1000):
            producers.note(number, 0, 0, number, 0, 1, False, now_ms())
        producers.settle()

    inside(moldau_session_broker, note)
    (answer,) = describe(client, topic)
    assert sorted(each.producer_id for each in answer.active_producers) == list(range(1000))
