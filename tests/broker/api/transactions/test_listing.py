"""Transactions as tools see them: listed, described, and in their topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moldau.broker.server import Broker as Server
from moldau.records.batch import batches
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.api.transactions.producing import TV1, TV2, Producer
from tests.broker.wire_client import Client, inside, versions


@pytest.fixture(params=[TV1, TV2])
def producer(request: pytest.FixtureRequest, moldau_session_broker: Broker) -> Iterator[Producer]:
    producer = Producer(moldau_session_broker, request.param).init()
    yield producer
    producer.client.close()


# Lists


def test_transactions_are_listed_by_state_producer_duration_and_pattern(
    moldau_broker: Broker,
) -> None:
    with Client(moldau_broker) as client:
        topic = client.create()
        idle, busy = Producer(moldau_broker, id="idle").init(), Producer(moldau_broker, id="busy-1")
        busy.init().produce(topic, b"x")

        def listed(version: int = 2, **filters: Any) -> list[str]:
            answer = client.ask(Api.LIST_TRANSACTIONS, version, **filters)
            assert answer.error_code == 0
            return sorted(each.transactional_id for each in answer.transaction_states)

        for version in versions(Api.LIST_TRANSACTIONS):
            assert listed(version) == ["busy-1", "idle"]
            assert listed(version, state_filters=["Ongoing"]) == ["busy-1"]
            assert listed(version, producer_id_filters=[idle.producer_id]) == ["idle"]
        answer = client.ask(Api.LIST_TRANSACTIONS, 2, state_filters=["Ongoing", "Nonsense"])
        assert answer.unknown_state_filters == ("Nonsense",)
        assert listed(state_filters=["Nonsense"]) == []
        assert listed(duration_filter=3_600_000) == []
        until(lambda: listed(duration_filter=0) == ["busy-1"], "a millisecond to pass")
        assert listed(transactional_id_pattern="busy-[0-9]") == ["busy-1"]
        assert listed(transactional_id_pattern="busy") == [], "the whole id has to match"
        assert listed(transactional_id_pattern="") == ["busy-1", "idle"]
        for pattern in ("(", r"(a)\1", "(?<!x)idle"):
            answer = client.ask(Api.LIST_TRANSACTIONS, 2, transactional_id_pattern=pattern)
            assert answer.error_code == Error.INVALID_REGULAR_EXPRESSION
        for each in (idle, busy):
            each.client.close()


def test_a_transaction_is_described(producer: Producer, client: Client) -> None:
    topic = client.create(partitions=2)
    for partition in (1, 0):
        producer.produce(topic, b"x", partition=partition)
    described = producer.describe()
    assert (described.error_code, described.transaction_state) == (0, "Ongoing")
    assert (described.producer_id, described.producer_epoch) == (producer.producer_id, 0)
    assert described.transaction_timeout.total_seconds() == 60
    (found,) = described.topics
    assert (found.topic, found.partitions) == (topic, (0, 1))
    answer = client.ask(Api.DESCRIBE_TRANSACTIONS, transactional_ids=["none-such", ""])
    assert [each.error_code for each in answer.transaction_states] == [
        Error.TRANSACTIONAL_ID_NOT_FOUND,
        Error.INVALID_REQUEST,
    ]


def test_the_state_topic_is_made_as_kafka_makes_it(moldau_session_broker: Broker) -> None:
    producer = Producer(moldau_session_broker).init()

    def look(server: Server) -> tuple[int, dict[str, str]]:
        topic = server.state.topics["__transaction_state"]
        return len(topic.partitions), topic.configs

    partitions, configs = inside(moldau_session_broker, look)
    assert partitions == 50
    assert configs == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "unclean.leader.election.enable": "false",
        "segment.bytes": str(100 << 20),
        "min.insync.replicas": "1",
    }
    index = inside(
        moldau_session_broker, lambda server: server.transactions.shards.partition_of(producer.id)
    )
    answer = producer.client.fetch("__transaction_state", 0, partition=index)
    assert [header.producer_id for _, header in batches(answer.records)][-1] == -1
    producer.client.close()
