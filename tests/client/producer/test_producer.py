"""The producer against a real broker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from moldau import (
    DeliveryFailed,
    JsonSerializer,
    Message,
    MessageSet,
    Producer,
    ProducerRecord,
    QueueFull,
    SerializationError,
)
from moldau.client import partition_for_key
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.client.reading import read

NOWHERE = "127.0.0.1:1"


def test_a_result_says_where_the_message_was_written(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        first = producer.send(topic, b"a").result(60)
        second = producer.send(topic, b"b").result(60)
    assert (first.topic, first.partition, first.offset) == (topic, 0, 0)
    assert second.offset == 1
    assert second.timestamp >= first.timestamp > 0
    assert second.done
    assert second.exception() is None


def test_everything_that_is_sent_with_a_message_comes_out_again(bootstrap: str, topic: str) -> None:
    when = datetime(2024, 5, 1, tzinfo=UTC)
    with Producer(bootstrap) as producer:
        producer.send(topic, b"v", b"k", 0, {"a": b"1", "b": None}, when)
        producer.send(ProducerRecord(topic, "text", headers=[("a", "1"), ("a", "2")]))
        producer.send(topic, Message(None, b"deleted"))
    first, second, third = read(bootstrap, topic, 3)
    assert (first.value, first.key, first.partition) == (b"v", b"k", 0)
    assert first.headers == [("a", b"1"), ("b", None)]
    assert first.timestamp == int(when.timestamp() * 1000)
    assert second.payload() == b"text"
    assert second.headers == [("a", b"1"), ("a", b"2")]
    assert (third.value, third.key) == (None, b"deleted")


def test_a_set_has_one_result(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        result = producer.send(topic, MessageSet(Message(b"hello"))).result(60)
        assert (result.count, result.written, result.failures) == (1, 1, [])
        mixed = producer.send(topic, MessageSet([b"a", Message(b"b", b"k"), "c"]))
        assert mixed.result(60).written == 3
        empty = producer.send(topic, MessageSet([]))
        assert empty.result(60).written == 0
    assert [m.value for m in read(bootstrap, topic, 4)] == [b"hello", b"a", b"b", b"c"]


def test_a_set_is_larger_than_the_buffer(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, queue_buffering_max_messages=10) as producer:
        assert (
            producer.send(topic, MessageSet(b"%d" % n for n in range(500))).result(60).written
            == 500
        )
        more = MessageSet([Message(b"%d" % n) for n in range(500, 600)])
        assert producer.send(topic, more).result(60).written == 100
    assert [int(m.payload() or b"") for m in read(bootstrap, topic, 600)] == list(range(600))


def test_order_is_kept_when_results_with_offsets_are_asked_for_later(
    bootstrap: str, topic: str
) -> None:
    with Producer(bootstrap, linger_ms=50) as producer:
        for n in range(50):
            producer.post(topic, b"%d" % n)
        results = [producer.send(topic, b"%d" % n) for n in range(50, 100)]
        assert results[-1].result(60).offset == 99
        producer.send(topic, MessageSet([b"100", b"101"])).result(60)
        producer.post(topic, b"102")
    assert [int(m.payload() or b"") for m in read(bootstrap, topic, 103)] == list(range(103))


def test_threads_lose_nothing_while_one_of_them_asks_for_offsets_first(
    bootstrap: str, topic: str
) -> None:
    with Producer(bootstrap) as producer:

        def post(number: int) -> None:
            for n in range(300):
                if number == 0 and n == 100:
                    producer.send(topic, b"0-100").result(60)
                elif n % 10 == 5:
                    producer.send(topic, MessageSet([b"%d-%d" % (number, n)]))
                else:
                    producer.post(topic, b"%d-%d" % (number, n))

        threads = [threading.Thread(target=post, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    found = [(m.payload() or b"").decode() for m in read(bootstrap, topic, 900)]
    for number in range(3):
        own = [int(text.split("-")[1]) for text in found if text.startswith(f"{number}-")]
        assert own == list(range(300))


def test_a_full_buffer_makes_a_sender_wait(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, queue_buffering_max_messages=5, linger_ms=1) as producer:
        results = [producer.send(topic, b"%d" % n) for n in range(100)]
        for n in range(100, 200):
            producer.post(topic, b"%d" % n)
        assert [result.result(60).offset for result in results] == list(range(100))
    assert [int(m.payload() or b"") for m in read(bootstrap, topic, 200)] == list(range(200))


def test_a_buffer_that_stays_full_is_an_error() -> None:
    failures: list[DeliveryFailed] = []
    producer = Producer(
        NOWHERE,
        queue_buffering_max_messages=1,
        max_block_s=0.05,
        message_timeout_ms=300000,
        on_error=failures.append,
    )
    producer.post("t", b"1")
    with pytest.raises(QueueFull, match=r"queue\.buffering\.max\.messages"):
        producer.post("t", b"2")
    result = producer.send("t", MessageSet([b"3", Message(b"4")]))
    assert [failure.value for failure in result.failures] == [b"3", b"4"]
    producer.close(timeout=0)
    assert [failure.value for failure in failures] == [b"1"]
    assert result.exception(10) is result.failures[0]


def test_a_failure_reaches_whoever_asked_for_the_result() -> None:
    producer = Producer(NOWHERE, message_timeout_ms=100)
    result = producer.send("t", b"value", b"key")
    with pytest.raises(DeliveryFailed) as failed:
        result.result(60)
    assert (failed.value.topic, failed.value.key, failed.value.value) == ("t", b"key", b"value")
    assert failed.value.name == "_MSG_TIMED_OUT"
    producer.close()


def test_a_failure_nobody_asked_about_is_raised_by_flush() -> None:
    producer = Producer(NOWHERE, message_timeout_ms=100)
    producer.post("t", b"1")
    producer.post("t", b"2")
    with pytest.raises(DeliveryFailed) as failed:
        producer.flush(60)
    assert [failed.value.value, *(other.value for other in failed.value.others)] == [b"1", b"2"]
    producer.flush(60)
    producer.send("t", b"3")
    with pytest.raises(DeliveryFailed):
        producer.close()


def test_a_failure_goes_to_the_error_handler_without_any_further_call() -> None:
    failures: list[DeliveryFailed] = []
    producer = Producer(NOWHERE, message_timeout_ms=100, on_error=failures.append)
    producer.post("t", b"1")
    until(lambda: failures)
    assert failures[0].value == b"1"
    producer.close()


def test_a_message_that_is_refused_at_once_says_why(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, message_max_bytes=2000) as producer:
        with pytest.raises(DeliveryFailed, match="MSG_SIZE_TOO_LARGE"):
            producer.send(topic, b"x" * 3000)
        result = producer.send(topic, MessageSet([b"small", b"x" * 3000, b"also small"]))
        with pytest.raises(DeliveryFailed, match="MSG_SIZE_TOO_LARGE"):
            result.result(60)
        assert result.written == 2
        with pytest.raises(TypeError):
            producer.send(topic, 5)
    assert [m.value for m in read(bootstrap, topic, 2)] == [b"small", b"also small"]


def test_an_unknown_partition_is_an_error_of_its_message(bootstrap: str, topic: str) -> None:
    # Known only after the first answer: before it, the message is queued and fails later.
    with Producer(bootstrap) as producer, pytest.raises(DeliveryFailed, match="PARTITION"):
        producer.send(topic, b"x", partition=7).result(60)


def test_keys_land_where_javas_client_puts_them(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=7)
    keys = [b"%d" % n for n in range(50)]
    with Producer(bootstrap) as producer:
        results = [producer.send(topic, b"", key) for key in keys]
        found = [result.result(60).partition for result in results]
    assert found == [partition_for_key(key, 7) for key in keys]


def test_a_partitioner_of_ones_own_decides(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=4)

    def by_length(key: bytes | None, value: bytes | None, partitions: int) -> int | None:
        return len(value or b"") % partitions

    with Producer(bootstrap, partitioner=by_length) as producer:
        found = [producer.send(topic, "x" * n).result(60).partition for n in range(6)]
        assert producer.send(topic, "xx", partition=0).result(60).partition == 0
        assert producer.partitions(topic) == 4
    assert found == [0, 1, 2, 3, 0, 1]


def test_a_partitioner_that_is_wrong_stops_the_send(bootstrap: str, topic: str) -> None:
    producer = Producer(bootstrap, partitioner=lambda key, value, partitions: 3)
    with producer, pytest.raises(ValueError, match="has 1 partitions"):
        producer.send(topic, b"x")


def test_a_set_with_a_value_that_cannot_be_serialized_sends_nothing(
    bootstrap: str, topic: str
) -> None:
    with Producer(bootstrap, value_serializer=JsonSerializer()) as producer:
        with pytest.raises(SerializationError):
            producer.send(topic, MessageSet([{"a": 1}, {"b": object()}]))
        producer.send(topic, {"c": 3}, key="k")
    (message,) = read(bootstrap, topic, 1, value_deserializer=JsonSerializer())
    assert (message.value, message.key) == ({"c": 3}, b"k")


def test_a_plain_function_is_a_serializer(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, value_serializer=str.encode, key_serializer=str) as producer:
        producer.send(topic, "ü", 5)
    (message,) = read(bootstrap, topic, 1, value_deserializer=bytes.decode, key_deserializer=int)
    assert (message.value, message.key) == ("ü", 5)


def test_a_producer_that_is_forgotten_still_sends(bootstrap: str, topic: str) -> None:
    producer = Producer(bootstrap, linger_ms=100)
    producer.post(topic, b"x")
    del producer
    assert read(bootstrap, topic, 1)[0].value == b"x"


def test_a_closed_producer_sends_no_more(bootstrap: str, topic: str) -> None:
    producer = Producer(bootstrap)
    producer.send(topic, b"x").result(60)
    producer.close()
    producer.close()
    for send in (producer.send, producer.post):
        with pytest.raises(RuntimeError, match="closed"):
            send(topic, b"y")
    with pytest.raises(RuntimeError, match="closed"):
        producer.send(topic, MessageSet([b"y"]))


def test_callbacks_come_when_a_message_is_through(bootstrap: str, topic: str) -> None:
    through: list[int] = []
    with Producer(bootstrap) as producer:
        result = producer.send(topic, b"x")
        result.add_done_callback(lambda delivery: through.append(delivery.offset))
        result.add_done_callback(lambda delivery: 1 // 0)
        until(lambda: through == [0])
        result.add_done_callback(lambda delivery: through.append(99))
        assert through == [0, 99]
        producer.send(topic, b"y").result(60)


def test_the_address_comes_from_the_environment(
    moldau_session_broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOLDAU_BOOTSTRAP", moldau_session_broker.bootstrap)
    with Producer(settings={"linger.ms": 1}) as producer:
        assert producer.send(topic, b"x").result(60).offset == 0
