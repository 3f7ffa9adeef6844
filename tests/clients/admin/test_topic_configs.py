"""Topic settings do what they say, as clients see it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import aiokafka.errors
import pytest
from confluent_kafka import KafkaError, Producer
from kafka import KafkaProducer
from kafka.errors import InvalidTimestampError, MessageSizeTooLargeError, NotEnoughReplicasError

from moldau.records.compression import Codec as StoredCodec
from moldau.testing import Broker
from tests.broker.wire_client import add_missing_replica
from tests.clients.client import (
    CODECS,
    NOON_MS,
    Client,
    Codec,
    Message,
    read_all,
)
from tests.clients.confluent import DeliveryFailed, send
from tests.clients.segments import segments, stored_batches
from tests.clients.topics import alter

HOUR_MS = 3_600_000

Create = Callable[..., str]


@pytest.fixture
def create(broker: Broker, fresh_name: str) -> Create:
    """Makes a topic with the settings given and tells its name."""

    def make(**configs: Any) -> str:
        broker.create_topic(fresh_name, **configs)
        return fresh_name

    return make


@pytest.fixture
def confluent(clients: dict[str, Client]) -> Client:
    return clients["confluent-kafka"]


def now_ms() -> int:
    return int(time.time() * 1000)


def refusal(client: Client, topic: str, message: Message) -> int | None:
    """The error that a message meets; None if it is taken."""
    try:
        client.produce(topic, [message])
    except DeliveryFailed as failure:
        return failure.code
    return None


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_replaces_the_producers(
    clients: dict[str, Client], create: Create, codec: Codec
) -> None:
    topic = create(message_timestamp_type="LogAppendTime")
    before = now_ms()
    for client in clients.values():
        client.produce(topic, [Message(b"x" * 500)] * 3, codec=codec)
    after = now_ms()
    for client in clients.values():
        read = read_all(client, topic, 3 * len(clients))
        assert all(each.is_append_time for each in read)
        assert all(before <= each.message.timestamp_ms <= after for each in read)


def test_a_producer_is_told_the_append_time(broker: Broker, create: Create) -> None:
    topic = create(message_timestamp_type="LogAppendTime")
    before = now_ms()
    with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        told = producer.send(topic, b"x", timestamp_ms=NOON_MS).get(60).timestamp
    assert before <= told <= now_ms()


def test_a_time_is_found_among_append_times(confluent: Client, create: Create) -> None:
    topic = create(message_timestamp_type="LogAppendTime")
    confluent.produce(topic, [Message(b"first")])
    (first,) = read_all(confluent, topic, 1)
    expected = {NOON_MS: 0, first.message.timestamp_ms: 0, now_ms() + HOUR_MS: None}
    assert confluent.offsets_at(topic, *expected) == expected


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("sent", CODECS)
def test_compression_type_recompresses_what_is_stored(
    broker: Broker,
    clients: dict[str, Client],
    create: Create,
    sent: Codec,
    wanted: str,
) -> None:
    topic = create(compression_type=wanted)
    messages = [
        Message(b"value %d " % number * 20, key=b"%d" % number, headers=(("h", b"%d" % number),))
        for number in range(50)
    ]
    clients["confluent-kafka"].produce(topic, messages, codec=sent)
    stored = StoredCodec.NONE if wanted == "uncompressed" else StoredCodec[wanted.upper()]
    assert {batch.codec for batch in stored_batches(broker, topic)} == {stored}
    for name, client in clients.items():
        read = read_all(client, topic, len(messages))
        assert [each.message for each in read] == messages, name


def test_an_idempotent_producer_keeps_its_sequence_through_recompression(
    broker: Broker, clients: dict[str, Client], create: Create
) -> None:
    topic = create(compression_type="zstd")
    messages = [Message(b"value %d" % number) for number in range(2000)]
    for client in clients.values():
        client.produce(topic, messages, idempotent=True)
    read = read_all(clients["aiokafka"], topic, 2000 * len(clients))
    assert [each.message for each in read] == messages * len(clients)


def test_max_message_bytes_is_exact(broker: Broker, confluent: Client, create: Create) -> None:
    topic = create()
    message = Message(b"x" * 5000, key=b"key")
    confluent.produce(topic, [message])
    (batch,) = stored_batches(broker, topic)

    alter(broker, topic, {"max.message.bytes": str(batch.size - 1)})
    assert refusal(confluent, topic, message) == KafkaError.MSG_SIZE_TOO_LARGE
    alter(broker, topic, {"max.message.bytes": str(batch.size)})
    assert refusal(confluent, topic, message) is None
    assert confluent.watermarks(topic) == (0, 2)


def test_a_default_topic_takes_a_batch_of_a_mebibyte_and_not_much_more(
    confluent: Client, topic: str
) -> None:
    assert refusal(confluent, topic, Message(b"x" * ((1 << 20) - 100))) is None
    assert refusal(confluent, topic, Message(b"x" * (1 << 20))) == KafkaError.MSG_SIZE_TOO_LARGE


def test_compression_counts_in_the_size_of_a_batch(
    clients: dict[str, Client], create: Create
) -> None:
    topic = create(max_message_bytes=5000)
    for client in clients.values():
        client.produce(topic, [Message(b"x" * 500_000)], codec="gzip")
    assert clients["kafka-python"].watermarks(topic) == (0, len(clients))


def test_timestamps_far_from_now_are_refused_in_both_directions(
    confluent: Client, create: Create
) -> None:
    topic = create(
        message_timestamp_before_max_ms=HOUR_MS, message_timestamp_after_max_ms=2 * HOUR_MS
    )

    def refused(timestamp_ms: int) -> bool:
        code = refusal(confluent, topic, Message(b"x", timestamp_ms=timestamp_ms))
        assert code in (None, KafkaError.INVALID_TIMESTAMP)
        return code is not None

    now = now_ms()
    minute = 60_000
    assert not refused(now)
    assert not refused(now - HOUR_MS + minute)
    assert refused(now - HOUR_MS - minute)
    assert not refused(now + 2 * HOUR_MS - minute)
    assert refused(now + 2 * HOUR_MS + minute)
    assert confluent.watermarks(topic) == (0, 3)


def test_an_hour_ahead_is_the_most_that_a_default_topic_takes(
    confluent: Client, topic: str
) -> None:
    late = Message(b"x", timestamp_ms=now_ms() + HOUR_MS + 60_000)
    assert refusal(confluent, topic, late) == KafkaError.INVALID_TIMESTAMP
    assert refusal(confluent, topic, Message(b"x", timestamp_ms=1)) is None


def test_the_other_clients_understand_the_refusals(
    clients: dict[str, Client], create: Create
) -> None:
    """The same three errors, in the words of kafka-python and aiokafka."""
    topic = create(max_message_bytes=1000, message_timestamp_before_max_ms=HOUR_MS)
    too_large = Message(b"x" * 2000, timestamp_ms=now_ms())
    too_old = Message(b"x", timestamp_ms=NOON_MS)
    with pytest.raises(MessageSizeTooLargeError):
        clients["kafka-python"].produce(topic, [too_large])
    with pytest.raises(InvalidTimestampError):
        clients["kafka-python"].produce(topic, [too_old])
    with pytest.raises(aiokafka.errors.MessageSizeTooLargeError):
        clients["aiokafka"].produce(topic, [too_large])
    with pytest.raises(aiokafka.errors.InvalidTimestampError):
        clients["aiokafka"].produce(topic, [too_old])


def test_min_insync_replicas_counts_for_acks_all_only(
    broker: Broker, clients: dict[str, Client], create: Create
) -> None:
    topic = create(min_insync_replicas=2)
    add_missing_replica(broker, topic)
    settings = {"bootstrap.servers": broker.bootstrap, "retries": 0}
    with pytest.raises(DeliveryFailed) as failure:
        send(Producer(settings), topic, [Message(b"x")])
    assert failure.value.code == KafkaError.NOT_ENOUGH_REPLICAS

    with (
        KafkaProducer(
            bootstrap_servers=broker.bootstrap,
            acks="all",
            retries=0,
            enable_idempotence=False,
        ) as producer,
        pytest.raises(NotEnoughReplicasError),
    ):
        producer.send(topic, b"x").get(60)

    for client in clients.values():
        client.produce(topic, [Message(b"x")], acks="1")
    # They are there, and not shown before enough replicas have them.
    assert clients["aiokafka"].watermarks(topic) == (0, 0)


def test_a_compacted_topic_takes_no_message_without_a_key(
    confluent: Client, create: Create
) -> None:
    topic = create(cleanup_policy="compact")
    assert refusal(confluent, topic, Message(b"x")) == KafkaError.INVALID_RECORD
    assert refusal(confluent, topic, Message(b"x", key=b"k")) is None


def test_segments_roll_at_their_size(
    broker: Broker, clients: dict[str, Client], create: Create
) -> None:
    topic = create(segment_bytes=20_000)
    messages = [Message(b"%d" % number + b"x" * 5000) for number in range(20)]
    for message in messages:
        clients["confluent-kafka"].produce(topic, [message])
    files = segments(broker, topic)
    assert len(files) >= 6
    assert all(file.stat().st_size <= 20_000 for file in files)
    assert [int(file.stem) for file in files] == [3 * number for number in range(len(files))]
    for client in clients.values():
        assert [each.message for each in read_all(client, topic, 20)] == messages
        with client.reader(topic, 7) as reader:
            assert [each.message for each in reader.read(13)] == messages[7:]
