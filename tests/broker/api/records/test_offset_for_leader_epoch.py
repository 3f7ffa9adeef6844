from __future__ import annotations

import asyncio

import pytest

from moldau.cluster.embedded import EmbeddedStore
from moldau.cluster.state.changes import LeadersRestarted
from moldau.cluster.state.topics import BrokerInfo
from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.asking import Asker, fresh_name, versions


def produce(broker: Broker, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, str(number))
    assert producer.flush(60) == 0


def end_of_epoch(
    asker: Asker, topic: str, index: int, epoch: int, current: int, version: int | None = None
) -> tuple[int, int, int]:
    """The error, the epoch and its end."""
    asked = {"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}
    answer = asker.ask(
        Api.OFFSET_FOR_LEADER_EPOCH,
        version,
        replica_id=-1,
        topics=[{"topic": topic, "partitions": [asked]}],
    )
    [topic_answer] = answer.topics
    assert topic_answer.topic == topic
    [result] = topic_answer.partitions
    assert result.partition == index
    return result.error_code, result.leader_epoch, result.end_offset


@pytest.mark.parametrize("version", versions(Api.OFFSET_FOR_LEADER_EPOCH))
def test_the_end_of_an_epoch_is_told_in_every_version(
    moldau_session_broker: Broker, asker: Asker, version: int
) -> None:
    name = fresh_name()
    asker.create(name)
    produce(moldau_session_broker, name, 7)

    def ask(topic: str, index: int, epoch: int, current: int = -1) -> tuple[int, int, int]:
        return end_of_epoch(asker, topic, index, epoch, current, version)

    assert ask(name, 0, 0) == (0, 0, 7)
    assert ask(name, 0, 0, current=0) == (0, 0, 7)
    assert ask(name, 0, 5) == (0, -1, -1)
    assert ask(name, 0, -1) == (0, -1, -1)
    assert ask(name, 0, -2) == (0, -2, 0)
    assert ask(name, 0, 0, current=-2) == (Error.FENCED_LEADER_EPOCH, -1, -1)
    assert ask(name, 0, 0, current=3) == (Error.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert ask(name, 4, 0) == (Error.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert ask(fresh_name(), 0, 0) == (Error.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def test_a_client_of_an_earlier_epoch_is_fenced(moldau_broker: Broker) -> None:
    async def start_new_epochs() -> None:
        store = EmbeddedStore(moldau_broker.data_dir, BrokerInfo(0, "localhost", 9092))
        await store.open()
        await store.commit([LeadersRestarted(0)])
        await store.close()

    with Asker(moldau_broker) as asker:
        asker.create("a")
    produce(moldau_broker, "a", 4)
    moldau_broker.stop()
    asyncio.run(start_new_epochs())
    moldau_broker.start()
    produce(moldau_broker, "a", 2)
    with Asker(moldau_broker) as asker:
        assert end_of_epoch(asker, "a", 0, 0, 0) == (Error.FENCED_LEADER_EPOCH, -1, -1)
        assert end_of_epoch(asker, "a", 0, 0, 1) == (0, 0, 4)
        assert end_of_epoch(asker, "a", 0, 1, 1) == (0, 1, 6)
        assert end_of_epoch(asker, "a", 0, 1, 2) == (Error.UNKNOWN_LEADER_EPOCH, -1, -1)
