"""Producers of all clients: acknowledgements, idempotence, partitioning, topics that come to be."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as Polled
from kafka import KafkaProducer

from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.clients.client import (
    CODECS,
    WITHIN_S,
    Acks,
    Client,
    Codec,
    Message,
    read_all,
)
from tests.clients.confluent import ConfluentClient, DeliveryFailed, send
from tests.clients.conftest import CLIENTS
from tests.clients.retries.lossy_proxy import LossyProxy
from tests.clients.segments import stored_batches

MESSAGES = [Message(b"value %d" % number, key=b"key %d" % number) for number in range(500)]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_delivers_in_order(
    client: Client, topic: str, acks: Acks
) -> None:
    offsets = client.produce(topic, MESSAGES, acks=acks)
    if acks != "0":
        assert offsets == list(range(len(MESSAGES)))
    assert [each.message for each in read_all(client, topic, len(MESSAGES))] == MESSAGES


@pytest.mark.parametrize("codec", CODECS)
def test_an_idempotent_producer_numbers_its_batches(
    broker: Broker, client: Client, topic: str, codec: Codec
) -> None:
    client.produce(topic, MESSAGES, codec=codec, idempotent=True)
    assert [each.message for each in read_all(client, topic, len(MESSAGES))] == MESSAGES
    batches = stored_batches(broker, topic)
    assert len({batch.producer_id for batch in batches}) == 1
    assert batches[0].producer_id >= 0
    assert [batch.base_sequence for batch in batches] == [batch.base_offset for batch in batches]


def test_every_idempotent_producer_has_an_id_of_its_own(
    broker: Broker, clients: dict[str, Client], topic: str
) -> None:
    for client in clients.values():
        client.produce(topic, [Message(b"x")], idempotent=True)
    batches = stored_batches(broker, topic)
    assert len({batch.producer_id for batch in batches}) == len(clients)


@contextmanager
def broker_behind(proxy: LossyProxy) -> Iterator[Broker]:
    """A broker that tells its clients the proxy's address."""
    with Broker(advertised_listeners=proxy.address) as broker:
        proxy.forward_to(broker.host, broker.port)
        yield broker


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_lost_answer_makes_no_duplicates_with_idempotence(kind: str) -> None:
    """The batch is written, its answer is lost with the connection, the client sends it again."""
    with LossyProxy() as proxy, broker_behind(proxy) as broker:
        broker.create_topic("t")
        writer = CLIENTS[kind](proxy.address)
        proxy.lose_answers_to_produce(2)
        offsets = writer.produce("t", MESSAGES, idempotent=True)
        assert proxy.lost == 2
        assert offsets == list(range(len(MESSAGES)))
        reader = CLIENTS[kind](proxy.address)
        assert reader.watermarks("t") == (0, len(MESSAGES))
        assert [each.message for each in read_all(reader, "t", len(MESSAGES))] == MESSAGES


def test_many_batches_in_flight_survive_lost_answers_in_order() -> None:
    with LossyProxy() as proxy, broker_behind(proxy) as broker:
        broker.create_topic("t")
        settings = {
            "bootstrap.servers": proxy.address,
            "enable.idempotence": True,
            "batch.num.messages": 10,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
            "message.timeout.ms": int(WITHIN_S * 1000),
        }
        proxy.lose_answers_to_produce(5)
        send(Producer(settings), "t", MESSAGES)
        assert proxy.lost == 5
        reader = ConfluentClient(proxy.address)
        assert reader.watermarks("t") == (0, len(MESSAGES))
        assert [each.message for each in read_all(reader, "t", len(MESSAGES))] == MESSAGES


def test_keys_choose_the_same_partition_in_every_client(broker: Broker, fresh_name: str) -> None:
    """kafka-python and aiokafka hash as Java's client does; librdkafka does when told to."""
    broker.create_topic(fresh_name, partitions=5)
    bootstrap = broker.bootstrap
    keys = [b"key-%d" % number for number in range(40)]

    chosen: dict[bytes, int] = {}
    confluent = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})

    def report(error: KafkaError | None, polled: Polled) -> None:
        key, partition = polled.key(), polled.partition()
        assert isinstance(key, bytes)
        assert partition is not None
        chosen[key] = partition

    for key in keys:
        confluent.produce(fresh_name, key=key, on_delivery=report)
    assert confluent.flush(WITHIN_S) == 0
    assert len(set(chosen.values())) == 5

    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        sent = {key: producer.send(fresh_name, b"", key=key) for key in keys}
        assert {key: each.get(WITHIN_S).partition for key, each in sent.items()} == chosen

    async def send_with_aiokafka() -> dict[bytes, int]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            answers = [await producer.send_and_wait(fresh_name, b"", key=key) for key in keys]
        return {key: answer.partition for key, answer in zip(keys, answers, strict=True)}

    assert asyncio.run(send_with_aiokafka()) == chosen


def test_a_topic_comes_to_be_when_a_client_writes_to_it(client: Client, fresh_name: str) -> None:
    assert client.produce(fresh_name, [Message(b"first")]) == [0]
    assert [each.message.value for each in read_all(client, fresh_name, 1)] == [b"first"]


@pytest.mark.moldau(auto_create_topics_enable=False)
def test_a_missing_topic_is_an_error_where_creation_is_off(moldau_broker: Broker) -> None:
    settings = {
        "bootstrap.servers": moldau_broker.bootstrap,
        "topic.metadata.propagation.max.ms": 0,
    }
    with pytest.raises(DeliveryFailed) as failure:
        send(Producer(settings), "missing", [Message(b"x")])
    assert failure.value.code in (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    )


def test_a_write_with_acks_0_that_fails_costs_the_connection_only(
    broker: Broker, fresh_name: str
) -> None:
    """There is no answer to carry the error, so the broker hangs up, as Kafka does."""
    broker.create_topic(fresh_name, max_message_bytes=1000)
    client = ConfluentClient(broker.bootstrap)
    client.produce(fresh_name, [Message(b"x" * 2000)], acks="0")
    client.produce(fresh_name, [Message(b"small")], acks="0")
    assert [each.message.value for each in read_all(client, fresh_name, 1)] == [b"small"]


def test_a_producer_that_hangs_up_at_once_leaves_what_it_sent(broker: Broker, topic: str) -> None:
    """With acks=0 the bytes are on their way when the client is gone."""
    client = ConfluentClient(broker.bootstrap)
    for number in range(5):
        client.produce(topic, [Message(b"%d" % number)], acks="0")
    until(lambda: client.watermarks(topic) == (0, 5), "five messages")


def test_a_connection_that_only_opens_disturbs_nobody(
    broker: Broker, client: Client, topic: str
) -> None:
    address = (broker.host, broker.port)
    with socket.create_connection(address), socket.create_connection(address) as second:
        second.sendall(b"\0\0")
        assert client.produce(topic, [Message(b"x")]) == [0]
