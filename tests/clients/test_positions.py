"""Positions where clients begin to read: an offset, a time, the beginning, the end."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from moldau.testing import Broker
from tests.clients.client import CODECS, NOON_MS, WITHIN_S, Client, Codec, Message, read_all

# One message a second, in one batch or several.
MESSAGES = [
    Message(b"value %d" % number, timestamp_ms=NOON_MS + 1000 * number) for number in range(100)
]


def consumer_of(broker: Broker, reset: str = "earliest") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
        }
    )


@pytest.mark.parametrize("start", [0, 1, 37, 99])
def test_reading_begins_at_an_offset_also_within_a_batch(
    client: Client, topic: str, start: int
) -> None:
    client.produce(topic, MESSAGES)
    with client.reader(topic, start) as reader:
        read = reader.read(100 - start)
    assert [each.offset for each in read] == list(range(start, 100))
    assert [each.message for each in read] == MESSAGES[start:]


def test_reading_from_the_beginning_sees_all_and_then_what_comes(
    client: Client, topic: str
) -> None:
    client.produce(topic, MESSAGES)
    with client.reader(topic, "beginning") as reader:
        assert [each.message for each in reader.read(100)] == MESSAGES
        client.produce(topic, [Message(b"more")])
        (more,) = reader.read(1)
    assert (more.offset, more.message.value) == (100, b"more")


def test_reading_from_the_end_sees_only_what_comes(client: Client, topic: str) -> None:
    client.produce(topic, MESSAGES)
    with client.reader(topic, "end") as reader:
        assert reader.position() == 100
        client.produce(topic, [Message(b"more")])
        (more,) = reader.read(1)
    assert (more.offset, more.message.value) == (100, b"more")


def test_an_empty_partition_begins_and_ends_at_0(client: Client, topic: str) -> None:
    assert client.watermarks(topic) == (0, 0)
    assert client.offsets_at(topic, NOON_MS) == {NOON_MS: None}
    with client.reader(topic, "end") as reader:
        assert reader.position() == 0


def test_watermarks_are_those_of_the_partition_asked(client: Client, topic: str) -> None:
    client.produce(topic, MESSAGES, partition=1)
    client.produce(topic, MESSAGES[:7], partition=2)
    assert [client.watermarks(topic, partition) for partition in range(3)] == [
        (0, 0),
        (0, 100),
        (0, 7),
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_a_time_is_found_to_the_message_within_a_compressed_batch(
    client: Client, topic: str, codec: Codec
) -> None:
    client.produce(topic, MESSAGES, codec=codec)
    times = {
        NOON_MS - 1: 0,
        NOON_MS: 0,
        NOON_MS + 1: 1,
        NOON_MS + 50_000: 50,
        NOON_MS + 50_500: 51,
        NOON_MS + 99_000: 99,
        NOON_MS + 99_001: None,
    }
    assert client.offsets_at(topic, *times) == times


def test_a_time_out_of_order_is_found_where_it_first_occurs(client: Client, topic: str) -> None:
    def hour(number: int) -> int:
        return NOON_MS + 3_600_000 * number

    for number in (5, 1, 9, 3, 9, 7):
        client.produce(topic, [Message(b"", key=b"", timestamp_ms=hour(number))])
    expected = {hour(0): 0, hour(5): 0, hour(6): 2, hour(9): 2, hour(10): None}
    assert client.offsets_at(topic, *expected) == expected


@pytest.mark.parametrize("offset", [11, 1_000_000])
def test_an_offset_beyond_the_end_is_out_of_range(
    broker: Broker, clients: dict[str, Client], topic: str, offset: int
) -> None:
    clients["confluent-kafka"].produce(topic, MESSAGES[:10])
    consumer = consumer_of(broker, reset="error")
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        polled = consumer.poll(WITHIN_S)
    finally:
        consumer.close()
    assert polled is not None
    error = polled.error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    assert "out of range" in error.str()


def test_a_reader_of_deleted_messages_is_sent_to_the_new_beginning(
    broker: Broker, clients: dict[str, Client], topic: str
) -> None:
    clients["confluent-kafka"].produce(topic, MESSAGES)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 60)]).values()
    deleted.result(WITHIN_S)

    consumer = consumer_of(broker)
    try:
        consumer.assign([TopicPartition(topic, 0, 5)])
        first = consumer.poll(WITHIN_S)
    finally:
        consumer.close()
    assert first is not None
    assert first.offset() == 60

    other = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(WITHIN_S * 1000),
    )
    try:
        at = KafkaPythonPartition(topic, 0)
        other.assign([at])
        other.seek(at, 5)
        assert next(other).offset == 60
    finally:
        other.close(autocommit=False)


def test_small_fetches_still_bring_everything(
    broker: Broker, clients: dict[str, Client], topic: str
) -> None:
    """A limit below one batch's size still gives a whole batch (KIP-74)."""
    sent = [Message(b"%d" % number * 1000) for number in range(10)]
    for message in sent:
        clients["confluent-kafka"].produce(topic, [message])
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=1,
        fetch_max_bytes=1,
        consumer_timeout_ms=int(WITHIN_S * 1000),
    )
    try:
        consumer.assign([KafkaPythonPartition(topic, 0)])
        values = [next(consumer).value for _ in sent]
    finally:
        consumer.close(autocommit=False)
    assert values == [message.value for message in sent]


def test_one_consumer_reads_many_partitions(
    broker: Broker, clients: dict[str, Client], fresh_name: str
) -> None:
    """More partitions than messages, so that most answers of the fetch session stay empty."""
    broker.create_topic(fresh_name, partitions=50)
    writer = clients["confluent-kafka"]
    for partition in range(0, 50, 7):
        writer.produce(fresh_name, MESSAGES[:3], partition=partition)
    consumer = consumer_of(broker)
    expected = {(partition, offset) for partition in range(0, 50, 7) for offset in range(3)}
    try:
        consumer.assign([TopicPartition(fresh_name, partition, 0) for partition in range(50)])
        polled = consumer.consume(len(expected), WITHIN_S)
        assert {(each.partition(), each.offset()) for each in polled} == expected
        writer.produce(fresh_name, [Message(b"late")], partition=1)
        (late,) = consumer.consume(1, WITHIN_S)
        assert (late.partition(), late.value()) == (1, b"late")
    finally:
        consumer.close()


def test_two_clients_read_the_same_partition_at_their_own_pace(
    clients: dict[str, Client], topic: str
) -> None:
    clients["aiokafka"].produce(topic, MESSAGES)
    ahead, behind = clients["confluent-kafka"], clients["kafka-python"]
    with behind.reader(topic) as slow:
        first = slow.read(10)
        assert [each.message for each in read_all(ahead, topic, 100)] == MESSAGES
        rest = slow.read(90)
    assert [each.message for each in first + rest] == MESSAGES
