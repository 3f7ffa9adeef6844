"""Message streams, against a real broker."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable

import pytest

from moldau import ClientError, Consumer, DecodeError, Message, MessageSet, MessageStream, Producer
from moldau.client.consumer.feeder import FULL
from moldau.testing.waiting import until
from tests.client.reading import WITHIN_S, take


def fill(bootstrap: str, topic: str, partitions: int, count: int) -> None:
    with Producer(bootstrap) as producer:
        for partition in range(partitions):
            messages = [Message(b"%d" % n, partition=partition) for n in range(count)]
            producer.send(topic, MessageSet(messages)).result(WITHIN_S)


def test_partitions_are_spread_evenly_and_each_feeds_one_stream_in_order(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=6)
    fill(bootstrap, topic, 6, 500)
    found: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))

    def run(stream: MessageStream) -> None:
        for message in stream:
            found[stream.number][message.partition].append(int(message.payload() or b""))

    with Consumer(bootstrap) as consumer:
        streams = consumer.createMessageStreams(topic, 3)
        threads = [threading.Thread(target=run, args=(stream,)) for stream in streams]
        for thread in threads:
            thread.start()
        until(
            lambda: (
                sum(len(got) for parts in list(found.values()) for got in list(parts.values()))
                == 3000
            )
        )
        consumer.stop()
        for thread in threads:
            thread.join(WITHIN_S)
            assert not thread.is_alive()
    assert [len(parts) for parts in found.values()] == [2, 2, 2]
    for parts in found.values():
        for got in parts.values():
            assert got == list(range(500))


def test_an_undrained_stream_stalls_no_other(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    count = 3 * FULL
    fill(bootstrap, topic, 2, count)
    with Consumer(bootstrap, fetch_message_max_bytes=2000) as consumer:
        idle, busy = consumer.create_message_streams(topic, 2)
        assert len(take(busy.messages(WITHIN_S), count)) == count
        until(lambda: idle.queued > 0)
        assert idle.queued < count
        assert [int(m.value) for m in take(idle.messages(WITHIN_S), count)] == list(range(count))


def test_one_stream_is_stopped_and_the_others_go_on(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    with Consumer(bootstrap) as consumer:
        one, other = consumer.create_message_streams(topic, 2)
        ended = threading.Thread(target=lambda: list(one))
        ended.start()
        one.stop()
        ended.join(WITHIN_S)
        assert not ended.is_alive()
        fill(bootstrap, topic, 2, 5)
        assert len(take(other, 5)) == 5
        assert list(other.messages(0.1)) == []


def test_next_goes_on_after_an_undecodable_message(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        producer.send(topic, MessageSet([b"1", b"x", b"2"]))
    with Consumer(bootstrap, value_deserializer=int) as consumer:
        (stream,) = consumer.create_message_streams(topic)
        assert next(stream).value == 1
        with pytest.raises(DecodeError, match="offset 1"):
            next(stream)
        assert next(stream).value == 2
        with pytest.raises(ClientError, match="read from those"):
            consumer.poll()
        with pytest.raises(ClientError, match="already has streams"):
            consumer.create_message_streams(topic)
        consumer.stop()
        with pytest.raises(StopIteration):
            next(stream)
