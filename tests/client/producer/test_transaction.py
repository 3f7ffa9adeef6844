"""Transactions of our own producer, against a real broker."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from moldau import (
    AsyncConsumer,
    AsyncProducer,
    ClientError,
    Consumer,
    DeliveryFailed,
    Producer,
    ProducerFenced,
)

WAIT_S = 30.0


@pytest.fixture
def producer(bootstrap: str) -> Iterator[Producer]:
    with Producer(bootstrap, transactional_id=f"x-{uuid.uuid4().hex}") as producer:
        yield producer


def new_group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


def read_until(bootstrap: str, topic: str, last: bytes, **settings: Any) -> list[bytes]:
    """Return all values of a topic up to one that is known to be its last."""
    with Consumer(bootstrap, **settings) as consumer:
        consumer.subscribe(topic)
        values = []
        for message in consumer.messages(WAIT_S):
            values.append(message.value)
            if message.value == last:
                return values
    raise AssertionError(f"{last!r} did not come, only {values}")


def committed(bootstrap: str, group: str, topic: str) -> int | None:
    with Consumer(bootstrap, group, enable_auto_commit=False) as consumer:
        return consumer.committed((topic, 0))[topic, 0]


def test_what_a_block_sends_is_read_once_it_has_ended(
    producer: Producer, bootstrap: str, topic: str
) -> None:
    with producer.transaction():
        producer.send(topic, b"a")
        producer.post(topic, b"b")
        producer.flush(WAIT_S)
        uncommitted = read_until(bootstrap, topic, b"b", isolation_level="read_uncommitted")
        assert uncommitted == [b"a", b"b"]
        with Consumer(bootstrap) as consumer:
            consumer.subscribe(topic)
            assert consumer.poll(1.0) is None
    with producer.transaction():
        producer.send(topic, b"c")
    assert read_until(bootstrap, topic, b"c") == [b"a", b"b", b"c"]


def test_an_exception_takes_everything_back_and_the_producer_goes_on(
    producer: Producer, bootstrap: str, topic: str
) -> None:
    def fail() -> None:
        with producer.transaction():
            producer.send(topic, b"never")
            producer.post(topic, b"nor this")
            raise LookupError("no such table")

    with pytest.raises(LookupError, match="no such table"):
        fail()
    # What was thrown away is not told of as a failure now.
    producer.flush(WAIT_S)
    with producer.transaction():
        producer.send(topic, b"again")
    assert read_until(bootstrap, topic, b"again") == [b"again"]


def test_a_message_that_cannot_be_written_aborts_the_whole(
    producer: Producer, bootstrap: str, topic: str
) -> None:
    def fail() -> None:
        with producer.transaction():
            producer.post(topic, b"good")
            producer.post(topic, b"bad", partition=99)

    with pytest.raises(DeliveryFailed):
        fail()
    with producer.transaction():
        producer.send(topic, b"good again")
    assert read_until(bootstrap, topic, b"good again") == [b"good again"]


def test_offsets_are_committed_with_the_messages_or_read_again(
    producer: Producer, bootstrap: str, new_topic: object
) -> None:
    orders, bills = new_topic(), new_topic()  # type: ignore[operator]
    group = new_group()
    with Producer(bootstrap) as plain:
        for number in range(4):
            plain.send(orders, f"{number}".encode()).result(WAIT_S)
    with Consumer(bootstrap, group, enable_auto_commit=False) as consumer:
        consumer.subscribe(orders)

        def work(count: int, fails: bool) -> list[bytes]:
            seen: list[bytes] = []
            with producer.transaction(consumer):
                for message in consumer.messages(WAIT_S):
                    seen.append(message.value)
                    producer.send(bills, b"bill " + message.value)
                    if len(seen) == count:
                        break
                if fails:
                    raise LookupError("the kitchen is on fire")
            return seen

        with pytest.raises(LookupError):
            work(3, fails=True)
        assert committed(bootstrap, group, orders) is None
        assert work(2, fails=False) == [b"0", b"1"]
        assert committed(bootstrap, group, orders) == 2
        with pytest.raises(LookupError):
            work(2, fails=True)
        assert work(2, fails=False) == [b"2", b"3"]
    assert committed(bootstrap, group, orders) == 4
    assert read_until(bootstrap, bills, b"bill 3") == [f"bill {n}".encode() for n in range(4)]


def test_a_producer_whose_id_another_takes_can_do_nothing_more(bootstrap: str, topic: str) -> None:
    name = f"x-{uuid.uuid4().hex}"
    with Producer(bootstrap, transactional_id=name) as old:
        with old.transaction():
            old.send(topic, b"first")

        def go_on() -> None:
            with old.transaction():
                old.send(topic, b"of a zombie")
                with Producer(bootstrap, transactional_id=name) as new, new.transaction():
                    new.send(topic, b"second")

        with pytest.raises((ProducerFenced, DeliveryFailed)):
            go_on()
        with pytest.raises(ProducerFenced):
            old.transaction().__enter__()
    assert read_until(bootstrap, topic, b"second") == [b"first", b"second"]


def test_what_makes_no_sense_is_refused(producer: Producer, bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as plain, pytest.raises(ClientError, match="transactional_id"):
        plain.transaction()
    with (
        Consumer(bootstrap, new_group()) as commits,
        pytest.raises(ClientError, match="enable_auto_commit=False"),
    ):
        producer.transaction(commits)
    with Consumer(bootstrap) as alone, pytest.raises(ClientError, match="without a group"):
        producer.transaction(alone)


def test_the_same_for_asyncio(bootstrap: str, new_topic: object) -> None:
    orders, bills = new_topic(), new_topic()  # type: ignore[operator]
    group = new_group()

    async def main() -> None:
        name = f"x-{uuid.uuid4().hex}"
        async with (
            AsyncProducer(bootstrap, transactional_id=name) as producer,
            AsyncConsumer(bootstrap, group, enable_auto_commit=False) as consumer,
        ):
            async with producer.transaction():
                await producer.send(orders, b"tea")
            await consumer.subscribe(orders)

            async def bill(fails: bool) -> None:
                async with producer.transaction() as transaction:
                    message = await consumer.poll(WAIT_S)
                    assert message is not None
                    await producer.enqueue(bills, b"bill " + message.value)
                    await transaction.send_offsets(consumer)
                    if fails:
                        raise LookupError("no paper")

            with pytest.raises(LookupError):
                await bill(fails=True)
            await bill(fails=False)

    asyncio.run(main())
    # Behind the message, or behind the marker that ends its transaction.
    assert committed(bootstrap, group, orders) in (1, 2)
    assert read_until(bootstrap, bills, b"bill tea") == [b"bill tea"]
