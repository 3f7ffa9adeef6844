"""The consumer without a group, against a real broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from moldau import (
    Admin,
    ClientError,
    ConsumedMessage,
    Consumer,
    DecodeError,
    JsonSerializer,
    MessageSet,
    Producer,
)
from moldau.testing.waiting import until
from tests.client.reading import WITHIN_S, read, take


def fill(bootstrap: str, topic: str, count: int, first: int = 0, partition: int = 0) -> None:
    with Producer(bootstrap, offsets=True) as producer:
        for n in range(first, first + count):
            producer.send(topic, b"%d" % n, partition=partition, timestamp=1000 * (n + 1))


def numbers(messages: list[ConsumedMessage]) -> list[int]:
    return [int(message.value) for message in messages]


def test_two_consumers_without_a_group_both_see_everything(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 20)
    assert numbers(read(bootstrap, topic, 20)) == list(range(20))
    assert numbers(read(bootstrap, topic, 20)) == list(range(20))


def test_a_consumer_that_starts_at_the_end_sees_what_comes_after(
    bootstrap: str, topic: str
) -> None:
    fill(bootstrap, topic, 5)
    with Consumer(bootstrap, start="latest") as consumer:
        consumer.subscribe(topic)
        # Where the end is turns out at some time.
        written, found = 5, consumer.poll(0.1)
        while found is None:
            fill(bootstrap, topic, 1, first=written)
            written, found = written + 1, consumer.poll(0.1)
        fill(bootstrap, topic, 3, first=written)
        first = int(found.value)
        assert first >= 5
        rest = list(range(first + 1, written + 3))
        assert numbers(take(consumer.messages(WITHIN_S), len(rest))) == rest


def test_an_iteration_that_is_broken_off_goes_on_with_the_next_message(
    bootstrap: str, topic: str
) -> None:
    fill(bootstrap, topic, 100)
    found: list[int] = []
    with Consumer(bootstrap) as consumer:
        consumer.subscribe(topic)
        while len(found) < 100:
            for message in consumer:
                found.append(int(message.value))
                if len(found) % 7 == 0 or len(found) == 100:
                    break
        assert consumer.position() == {(topic, 0): 100}
    assert found == list(range(100))


def test_an_iteration_waits_for_more_and_is_stopped_from_another_thread(
    bootstrap: str, topic: str
) -> None:
    fill(bootstrap, topic, 50)
    found: list[int] = []
    with Consumer(bootstrap) as consumer:
        consumer.subscribe(topic)

        def run() -> None:
            for message in consumer:
                found.append(int(message.value))

        thread = threading.Thread(target=run)
        thread.start()
        until(lambda: len(found) == 50)
        fill(bootstrap, topic, 1, first=50)
        until(lambda: len(found) == 51)
        consumer.stop()
        thread.join(WITHIN_S)
        assert not thread.is_alive()


def test_a_stop_ends_the_iteration_after_the_message_in_hand(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 50)
    with Consumer(bootstrap) as consumer:
        consumer.subscribe(topic)
        first = []
        for message in consumer:
            first.append(int(message.value))
            if len(first) == 3:
                consumer.stop()
        rest = numbers(take(consumer.messages(WITHIN_S), 47))
    assert first + rest == list(range(50))


def test_a_deadline_ends_the_iteration(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 3)
    with Consumer(bootstrap) as consumer:
        consumer.subscribe(topic)
        assert len(take(consumer.messages(WITHIN_S), 3)) == 3
        started = time.monotonic()
        assert list(consumer.messages(0.5)) == []
        assert time.monotonic() - started >= 0.5


def test_an_undecodable_message_is_told_and_reading_goes_on(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        producer.send(topic, MessageSet([b"1", b"{", b"2", b"\xff", b"3"]))
    found: list[object] = []
    problems: list[DecodeError] = []
    with Consumer(bootstrap, value_deserializer=JsonSerializer()) as consumer:
        consumer.subscribe(topic)
        messages = iter(consumer)
        while len(found) < 5:
            try:
                found.append(next(messages).value)
            except DecodeError as problem:
                problems.append(problem)
                found.append(problem.value)
    assert found == [1, b"{", 2, b"\xff", 3]
    places = [(problem.topic, problem.partition, problem.offset) for problem in problems]
    assert places == [(topic, 0, 1), (topic, 0, 3)]
    assert f"{topic} [0] at offset 1" in str(problems[0])


def test_undecodable_messages_can_be_handed_over(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        producer.send(topic, b"1", key=b"k")
        producer.send(topic, b"{")
        producer.send(topic, b"2", key=b"\xff")
        producer.send(topic, b"3")
    problems: list[DecodeError] = []
    found = read(
        bootstrap,
        topic,
        2,
        key_deserializer=bytes.decode,
        value_deserializer=int,
        on_undecodable=problems.append,
    )
    assert [(m.key, m.value) for m in found] == [("k", 1), (None, 3)]
    assert [(p.field, p.offset) for p in problems] == [("value", 1), ("key", 2)]


def test_partitions_that_come_later_are_read(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=1)
    with Consumer(bootstrap, start="latest", partition_refresh_s=0.1) as consumer:
        consumer.subscribe(topic)
        assert consumer.assignment() == [(topic, 0)]
        with Admin(bootstrap) as admin:
            admin.add_partitions(topic, 2)
        fill(bootstrap, topic, 1, first=9, partition=1)
        assert numbers(take(consumer.messages(WITHIN_S), 1)) == [9]
        assert consumer.assignment() == [(topic, 0), (topic, 1)]


def test_a_topic_that_comes_later_is_read_from_its_beginning(bootstrap: str, topic: str) -> None:
    later = f"{topic}-later"
    came: list[list[tuple[str, int]]] = []
    with Consumer(bootstrap, start="latest") as consumer:
        consumer.subscribe(topic, later, on_assign=came.append)
        assert consumer.poll(0.1) is None
        with Admin(bootstrap) as admin:
            admin.create_topic(later, 1)
        fill(bootstrap, later, 2)
        assert numbers(take(consumer.messages(WITHIN_S), 2)) == [0, 1]
    assert came == [[(topic, 0)], [(later, 0)]]


def test_a_pattern_takes_the_topics_that_match(bootstrap: str, topic: str) -> None:
    with Admin(bootstrap) as admin:
        for suffix in ("-eu", "-us", "-no"):
            admin.create_topic(topic + suffix, 1)
    with Consumer(bootstrap) as consumer:
        consumer.subscribe(pattern=f"{topic}-[eu]")
        assert consumer.assignment() == [(f"{topic}-eu", 0), (f"{topic}-us", 0)]


def test_assign_reads_exactly_what_was_asked_for(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=3)
    for partition in range(3):
        fill(bootstrap, topic, 5, first=10 * partition, partition=partition)
    with Consumer(bootstrap) as consumer:
        consumer.assign((topic, 0, 3), (topic, 2))
        found = take(consumer.messages(WITHIN_S), 7)
        assert consumer.poll(0.1) is None
    assert sorted(numbers(found)) == [3, 4, 20, 21, 22, 23, 24]


def test_seek_goes_to_an_offset_or_a_time(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 30)
    with Consumer(bootstrap) as consumer:
        consumer.subscribe(topic)
        consumer.seek(topic, offset=10)
        assert numbers(take(consumer.messages(WITHIN_S), 3)) == [10, 11, 12]
        consumer.seek(topic, 0, time=25_000)
        assert numbers(take(consumer.messages(WITHIN_S), 3)) == [24, 25, 26]
        consumer.seek(topic, offset="earliest")
        assert numbers(take(consumer.messages(WITHIN_S), 1)) == [0]
        consumer.seek(topic, time=10**9)
        assert consumer.poll(0.2) is None
        with pytest.raises(ClientError, match="not assigned"):
            consumer.seek("another", offset=0)
        with pytest.raises(ValueError, match="give either"):
            consumer.seek(topic)


def test_a_paused_partition_gives_nothing_until_it_is_resumed(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    fill(bootstrap, topic, 20)
    fill(bootstrap, topic, 20, first=100, partition=1)
    found: list[ConsumedMessage] = []
    with Consumer(bootstrap) as consumer:
        consumer.subscribe(topic)
        found += take(consumer.messages(WITHIN_S), 3)
        consumer.pause((topic, 0))
        paused = [m for m in found if m.partition == 0]
        while len([m for m in found if m.partition == 1]) < 20:
            found += take(consumer.messages(WITHIN_S), 1)
        assert [m for m in found if m.partition == 0] == paused
        assert consumer.poll(0.2) is None
        consumer.resume()
        found += take(consumer.messages(WITHIN_S), 20 - len(paused))
    assert numbers([m for m in found if m.partition == 0]) == list(range(20))
    assert numbers([m for m in found if m.partition == 1]) == list(range(100, 120))


def test_without_a_group_there_is_nothing_to_commit_to(bootstrap: str, topic: str) -> None:
    with Consumer(bootstrap) as consumer:
        consumer.subscribe(topic)
        with pytest.raises(ClientError, match="without a group"):
            consumer.commit()


def test_a_closed_consumer_is_of_no_use(bootstrap: str, topic: str) -> None:
    consumer = Consumer(bootstrap)
    consumer.subscribe(topic)
    consumer.close()
    consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll()
    with pytest.raises(ValueError, match="earliest or latest"):
        Consumer(bootstrap, start="middle")


def test_seek_works_on_assigned_partitions(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 10)
    with Consumer(bootstrap) as consumer:
        consumer.assign((topic, 0, 5))
        assert numbers(take(consumer.messages(WITHIN_S), 2)) == [5, 6]
        consumer.seek(topic, 0, offset=1)
        assert numbers(take(consumer.messages(WITHIN_S), 2)) == [1, 2]
