"""Group protocols: which of the two a consumer speaks."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from typing import Any

import pytest

import moldau.broker.api.cluster.api_versions as api_versions
from moldau import Admin, Consumer, Message, MessageSet, Producer, Queue
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from tests.client.reading import WITHIN_S, take


def fill(bootstrap: str, topic: str, count: int, **settings: Any) -> None:
    with Producer(bootstrap, **settings) as producer:
        producer.send(topic, MessageSet(*(Message(b"%d" % n) for n in range(count)))).result(60)


def kind_of(bootstrap: str, group: str) -> str:
    with Admin(bootstrap) as admin:
        return admin.group(group).kind


def values(consumer: Consumer, count: int) -> list[bytes]:
    return sorted(message.value for message in take(consumer.messages(WITHIN_S), count))


def test_a_member_lets_the_brokers_assign_where_they_can(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 3)
    with Consumer(bootstrap, group=topic) as consumer:
        consumer.subscribe(topic)
        assert values(consumer, 3) == [b"0", b"1", b"2"]
        assert kind_of(bootstrap, topic) == "consumer"
    # What was done is committed, whichever protocol the next one speaks.
    fill(bootstrap, topic, 1)
    with Consumer(bootstrap, group=topic, group_protocol="classic") as consumer:
        consumer.subscribe(topic)
        assert values(consumer, 1) == [b"0"]
        assert kind_of(bootstrap, topic) == "classic"


@pytest.mark.parametrize(
    "settings",
    [{"session_timeout_ms": 10_000}, {"settings": {"partition.assignment.strategy": "range"}}],
    ids=["session timeout", "strategy"],
)
def test_settings_of_the_classic_protocol_choose_it(
    bootstrap: str, topic: str, settings: dict[str, Any]
) -> None:
    fill(bootstrap, topic, 1)
    with Consumer(bootstrap, group=topic, **settings) as consumer:
        consumer.subscribe(topic)
        assert values(consumer, 1) == [b"0"]
        assert kind_of(bootstrap, topic) == "classic"


def test_a_pattern_takes_what_it_begins_with_at_once_also_after_names(
    bootstrap: str, topic: str
) -> None:
    with Admin(bootstrap) as admin:
        for suffix in ("-eu", "-us"):
            admin.create_topic(topic + suffix, 1)
            fill(bootstrap, topic + suffix, 1)
    fill(bootstrap, topic, 2)
    with Consumer(bootstrap, group=topic) as consumer:
        consumer.subscribe(topic)
        assert values(consumer, 2) == [b"0", b"1"]
        consumer.subscribe(pattern=f"{topic}-")
        assert values(consumer, 2) == [b"0", b"0"]
        assert consumer.assignment() == [(f"{topic}-eu", 0), (f"{topic}-us", 0)]
        assert kind_of(bootstrap, topic) == "classic"


@pytest.mark.parametrize("lacking", ["the API", "the feature"])
def test_brokers_that_cannot_assign_are_not_asked_to(
    monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    """librdkafka would wait for ever, or give up for good."""
    served = api_versions.served_versions

    def without(**what: bool) -> dict[int, tuple[int, int]]:
        ranges = served(**what)
        del ranges[Api.CONSUMER_GROUP_HEARTBEAT]
        return ranges

    api_versions._encode.cache_clear()
    if lacking == "the API":
        monkeypatch.setattr(api_versions, "served_versions", without)
    else:
        monkeypatch.setattr(api_versions, "group_version", lambda state: 0)
    try:
        with Broker() as broker:
            broker.create_topic("t")
            fill(broker.bootstrap, "t", 1)
            with Consumer(broker.bootstrap, group="g") as consumer:
                consumer.subscribe("t")
                assert values(consumer, 1) == [b"0"]
                assert kind_of(broker.bootstrap, "g") == "classic"
    finally:
        api_versions._encode.cache_clear()


def test_members_hand_over_cleanly_where_brokers_assign() -> None:
    settings = {
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "100",
        "group.consumer.assignment.interval.ms": "0",
    }
    seen: Counter[bytes] = Counter()

    def run(consumer: Consumer) -> None:
        for message in consumer:
            seen[message.value] += 1

    with Broker(settings) as broker:
        broker.create_topic("t", partitions=4)
        consumers = [Consumer(broker.bootstrap, group="g") for _ in range(2)]
        threads = [threading.Thread(target=run, args=(consumer,)) for consumer in consumers]
        with Producer(broker.bootstrap) as producer:

            def send(first: int) -> None:
                for n in range(first, first + 1000):
                    producer.send("t", b"%d" % n, partition=n % 4)

            send(0)
            for number, (consumer, thread) in enumerate(zip(consumers, threads, strict=True), 1):
                consumer.subscribe("t")
                thread.start()
                until(partial(is_shared, consumers, number))
                send(1000 * number)
            consumers[0].stop()
            threads[0].join(WITHIN_S)
            consumers[0].close()
            send(3000)
            producer.flush()
        until(lambda: len(seen) == 4000)
        consumers[1].stop()
        threads[1].join(WITHIN_S)
        consumers[1].close()
    assert set(seen.values()) == {1}


def is_shared(consumers: list[Consumer], number: int) -> bool:
    """Return whether so many of the consumers have as many of the four partitions each."""
    found = [len(each.assignment()) for each in consumers if each.assignment()]
    return found == [4 // number] * number


def test_a_broker_that_comes_later_is_waited_for() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        fill(broker.bootstrap, "t", 1)
        broker.stop()
        with Consumer(broker.bootstrap, group="g") as consumer:
            consumer.subscribe("t")
            broker.start()
            assert values(consumer, 1) == [b"0"]


def test_a_locked_broker_is_asked_with_the_settings_of_the_client() -> None:
    with Broker(secure=True) as broker:
        settings = broker.client_settings
        with Admin(settings=settings) as admin:
            admin.create_topic("t", 1)
        fill(broker.bootstrap, "t", 2, settings=settings)
        with Consumer(group="g", settings=settings) as consumer:
            consumer.subscribe("t")
            assert values(consumer, 2) == [b"0", b"1"]
            with Admin(settings=settings) as admin:
                assert admin.group("g").kind == "consumer"
        # A queue has to be told where to begin, over a connection of our own.
        with Queue("t", group="q", start="earliest", settings=settings) as queue:
            taken = [queue.take(WITHIN_S), queue.take(WITHIN_S)]
        assert [job.value for job in taken if job is not None] == [b"0", b"1"]
