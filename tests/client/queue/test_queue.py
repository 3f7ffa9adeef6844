"""Queues: messages worked off one by one."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from moldau import AsyncQueue, ClientError, JsonSerializer, Producer, Queue
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from tests.broker.wire_client import Client, fresh_name

Put = Callable[..., str]


@pytest.fixture
def put(moldau_session_broker: Broker) -> Put:
    """Makes a topic with these messages."""

    def make(*values: bytes) -> str:
        with Client(moldau_session_broker) as client:
            topic = client.create()
        with Producer(moldau_session_broker.bootstrap) as producer:
            for value in values:
                producer.send(topic, value)
        return topic

    return make


def queue_of(broker: Broker, topic: str, group: str, **more: Any) -> Queue:
    return Queue(topic, group=group, bootstrap=broker.bootstrap, start="earliest", **more)


def lag_of(broker: Broker, group: str) -> int:
    with Client(broker) as client:
        groups = [{"group_id": group, "topics": None}]
        answer = client.ask(Api.DESCRIBE_SHARE_GROUP_OFFSETS, groups=groups)
        lag: int = answer.groups[0].topics[0].partitions[0].lag
        return lag


@pytest.mark.parametrize("renewable", [False, True])
def test_messages_are_done_retried_or_rejected(
    moldau_session_broker: Broker, put: Put, renewable: bool
) -> None:
    topic, group = put(b"good", b"later", b"bad"), fresh_name("queue")
    seen = []
    with queue_of(moldau_session_broker, topic, group, renewable=renewable) as queue:
        for message in queue:
            seen.append((message.value, message.deliveries))
            if message.value == b"bad":
                message.reject()
            elif message.value == b"later" and message.deliveries == 1:
                message.retry()
            else:
                message.done()
            if len(seen) == 4:
                break
        queue.flush()
        assert lag_of(moldau_session_broker, group) == 0
    assert sorted(seen) == [(b"bad", 1), (b"good", 1), (b"later", 1), (b"later", 2)]


@pytest.mark.parametrize("renewable", [False, True])
def test_who_says_nothing_is_done_with_it_unless_something_goes_wrong(
    moldau_session_broker: Broker, put: Put, renewable: bool
) -> None:
    topic, group = put(b"a", b"b", b"c"), fresh_name("queue")

    def work() -> None:
        with queue_of(moldau_session_broker, topic, group, renewable=renewable) as queue:
            for message in queue:
                if message.value == b"b":
                    raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        work()
    with queue_of(moldau_session_broker, topic, group) as queue:
        again = [message for message in (queue.take(60), queue.take(60)) if message]
    assert [(each.value, each.deliveries) for each in again] == [(b"b", 2), (b"c", 2)]


def test_the_last_word_counts_until_the_broker_has_it(
    moldau_session_broker: Broker, put: Put
) -> None:
    topic, group = put(b"a"), fresh_name("queue")
    with queue_of(moldau_session_broker, topic, group) as queue:
        message = queue.take(60)
        assert message is not None
        message.reject()
        message.done()
        queue.flush()
        with pytest.raises(ClientError, match="already settled"):
            message.retry()


def test_what_cannot_be_decoded_is_rejected(moldau_session_broker: Broker, put: Put) -> None:
    topic, group = put(b"{", b'{"a": 1}'), fresh_name("queue")
    problems: list[object] = []
    with queue_of(
        moldau_session_broker,
        topic,
        group,
        value_deserializer=JsonSerializer(),
        on_undecodable=problems.append,
    ) as queue:
        message = queue.take(60)
        assert message is not None
        assert message.value == json.loads('{"a": 1}')
    assert len(problems) == 1
    until(lambda: lag_of(moldau_session_broker, group) == 0)


def test_a_queue_can_be_stopped_from_another_thread(
    moldau_session_broker: Broker, put: Put
) -> None:
    topic, group = put(), fresh_name("queue")
    with queue_of(moldau_session_broker, topic, group) as queue:
        timer = threading.Timer(0.3, queue.stop)
        timer.start()
        assert list(queue) == []
        timer.join()


def test_queues_for_asyncio(moldau_session_broker: Broker, put: Put) -> None:
    topic, group = put(b"a", b"b"), fresh_name("queue")

    async def work() -> list[bytes]:
        seen = []
        async with AsyncQueue(
            topic, group=group, bootstrap=moldau_session_broker.bootstrap, start="earliest"
        ) as queue:
            async for message in queue:
                seen.append(message.value)
                message.done()
                if len(seen) == 2:
                    break
            await queue.flush()
        return seen

    assert asyncio.run(work()) == [b"a", b"b"]
    assert lag_of(moldau_session_broker, group) == 0


def test_a_queue_that_makes_no_sense_is_refused(moldau_session_broker: Broker) -> None:
    with pytest.raises(ValueError, match="topic"):
        Queue(group="g", bootstrap=moldau_session_broker.bootstrap)
    with pytest.raises(ClientError, match="cannot begin"):
        Queue("t", group="g", bootstrap=moldau_session_broker.bootstrap, start="sometime")
