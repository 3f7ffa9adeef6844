"""Redrives, killed or at once: every dead letter is moved, and none twice."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.client.errors import ProducerFenced
from moldau.client.queue.redrive import PREFIX, Choose, Letter, Redrive
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.broker.wire_client import fresh_name

LETTERS = 3000


def bury(broker: Broker, dead: str, topic: str, group: str, letters: int = LETTERS) -> None:
    """Write dead letters of two groups, as a broker would."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(letters):
        for who in (group, "another"):
            told = {"topic": topic, "partition": "0", "group": who, "message": "why"}
            headers: list[tuple[str, str | bytes | None]] = [("own", b"x")]
            headers += [(PREFIX + key, text) for key, text in told.items()]
            producer.produce(dead, str(number).encode(), headers=headers, partition=number % 2)
            producer.poll(0)
    assert producer.flush(60) == 0


def values(broker: Broker, topic: str) -> Counter[bytes]:
    """All that was committed to a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: Counter[bytes] = Counter()
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.name() == "_PARTITION_EOF"
                return found
            assert message.headers() == [("own", b"x")]
            found[message.value() or b""] += 1
    finally:
        consumer.close()


@pytest.mark.slow
def test_a_redrive_that_is_killed_at_any_time_moves_each_letter_once(
    moldau_session_broker: Broker,
) -> None:
    broker = moldau_session_broker
    topic, group = fresh_name("jobs"), fresh_name("share")
    dead = f"dlq.{topic}"
    broker.create_topic(topic)
    broker.create_topic(dead, partitions=2)
    bury(broker, dead, topic, group)
    words = [sys.executable, "-m", "moldau", "groups", "redrive", group, "--from", dead]
    words += ["--yes", "--bootstrap", broker.bootstrap]
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "look"})

    def written() -> int:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), 30)[1])

    try:
        for _ in range(2):
            _kill_amid(words, written)
    finally:
        consumer.close()
    with Redrive(group, dead, bootstrap=broker.bootstrap) as last:
        last.claim()
        left = sum(last.plan().values())
        assert last.move() == left
    with Redrive(group, dead, bootstrap=broker.bootstrap) as none:
        assert not none.plan()
    assert values(broker, topic) == Counter({str(number).encode(): 1 for number in range(LETTERS)})


def test_of_two_who_move_the_same_letter_only_the_later_one_does(
    moldau_session_broker: Broker,
) -> None:
    broker = moldau_session_broker
    topic, group = fresh_name("jobs"), fresh_name("share")
    dead = f"dlq.{topic}"
    broker.create_topic(topic)
    broker.create_topic(dead, partitions=2)
    bury(broker, dead, topic, group, 6)

    def chosen(letter: Letter) -> Letter | None:
        return letter if letter.value in (b"2", b"5") else None

    def redrive(choose: Choose | None) -> Redrive:
        return Redrive(group, dead, choose=choose, bootstrap=broker.bootstrap)

    with redrive(chosen) as first, redrive(chosen) as second:
        for each in (first, second):
            each.claim()
            assert sum(each.plan().values()) == 2
        with pytest.raises(ProducerFenced):
            first.move()
        assert second.move() == 2
    assert values(broker, topic) == Counter({b"2": 1, b"5": 1})
    with redrive(None) as others:
        others.claim()
        assert sum(others.plan().values()) == 4
        assert others.move() == 4
    assert values(broker, topic) == Counter({str(number).encode(): 1 for number in range(6)})
    with redrive(chosen) as none:
        assert not none.plan()


def _kill_amid(words: list[str], written: Callable[[], int]) -> None:
    """Kill a redrive once its transaction has written something; perhaps that is committed then."""
    before = written()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        until(lambda: written() > before or process.poll() is not None, "it moves letters")
    finally:
        process.kill()
        process.wait(30)
