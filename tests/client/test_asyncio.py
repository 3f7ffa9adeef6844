"""The asyncio faces, against a real broker."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

import pytest

from moldau import AsyncConsumer, AsyncProducer, DecodeError, DeliveryFailed, MessageSet, QueueFull
from tests.client.reading import WITHIN_S


def run(main: Callable[[], object]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await main()  # type: ignore[misc]

    asyncio.run(bounded())


def test_messages_are_sent_and_read_in_a_loop(bootstrap: str, topic: str) -> None:
    async def main() -> None:
        async with AsyncProducer(bootstrap) as producer:
            delivery = await producer.send(topic, b"0", key=b"k")
            assert (delivery.partition, delivery.offset) == (0, 0)
            under_way = [await producer.enqueue(topic, b"%d" % n) for n in range(1, 100)]
            assert [(await one).offset for one in under_way] == list(range(1, 100))
            done = await producer.send(topic, MessageSet(b"%d" % n for n in range(100, 200)))
            assert done.written == 100
            await producer.post(topic, b"200")
            await producer.flush(WITHIN_S)
        found = []
        async with AsyncConsumer(bootstrap) as consumer:
            await consumer.subscribe(topic)
            async for message in consumer:
                found.append(int(message.value))
                if len(found) == 50:
                    break
            async for message in consumer:
                found.append(int(message.value))
                if len(found) == 201:
                    consumer.stop()
        assert found == list(range(201))

    run(main)


def test_a_full_buffer_holds_up_the_task_and_not_the_loop(bootstrap: str, topic: str) -> None:
    async def main() -> None:
        async with AsyncProducer(bootstrap, queue_buffering_max_messages=5) as producer:
            done = await asyncio.gather(*(producer.send(topic, b"x") for _ in range(100)))
        assert sorted(one.offset for one in done) == list(range(100))

    run(main)


def test_failures_are_raised_where_they_are_awaited() -> None:
    async def main() -> None:
        producer = AsyncProducer("127.0.0.1:1", message_timeout_ms=100)
        with pytest.raises(DeliveryFailed, match="_MSG_TIMED_OUT"):
            await producer.send("t", b"x")
        await producer.close()
        full = AsyncProducer("127.0.0.1:1", queue_buffering_max_messages=1, max_block_s=0.05)
        waiting = await full.enqueue("t", b"x")
        with pytest.raises(QueueFull):
            await full.enqueue("t", b"y")
        await full.close(timeout=0)
        with pytest.raises(DeliveryFailed):
            await waiting

    run(main)


def test_a_read_that_is_cancelled_loses_nothing(bootstrap: str, topic: str) -> None:
    async def main() -> None:
        async with AsyncConsumer(bootstrap, value_deserializer=int) as consumer:
            await consumer.subscribe(topic)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await anext(aiter(consumer))
            async with AsyncProducer(bootstrap) as producer:
                await producer.send(topic, MessageSet([b"1", b"x", b"2"]))
            one = await consumer.poll(WITHIN_S)
            assert one is not None
            assert one.value == 1
            with pytest.raises(DecodeError, match="offset 1"):
                await consumer.poll(WITHIN_S)
            two = await consumer.poll(WITHIN_S)
            assert two is not None
            assert two.value == 2
            await consumer.seek(topic, offset="earliest")
            again = await consumer.poll(WITHIN_S)
            assert again is not None
            assert again.offset == 0

    run(main)


def test_a_group_commits_in_a_loop(bootstrap: str, topic: str) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"

    async def main() -> None:
        async with AsyncProducer(bootstrap) as producer:
            await producer.send(topic, MessageSet([b"1", b"2", b"3"]))
        async with AsyncConsumer(bootstrap, group) as consumer:
            await consumer.subscribe(topic)
            message = await consumer.poll(WITHIN_S)
            await consumer.commit(message)
            assert await consumer.committed((topic, 0)) == {(topic, 0): 1}

    run(main)
