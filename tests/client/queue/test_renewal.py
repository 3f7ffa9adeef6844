"""Renewable queues: a worker keeps a message for longer than its lock."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from moldau import AsyncQueue, ClientError, Queue
from moldau.broker.server import Broker as Server
from moldau.broker.sharing.shares import Shares
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.broker.wire_client import fresh_name, inside

LOCK_S = 30

Pass = Callable[[float], None]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"share.coordinator.state.topic.num.partitions": "3"}) as broker:
        yield broker


@pytest.fixture
def let_pass(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Pass:
    """Moves the broker's clock of locks on."""
    passed_ms = 0
    now = Shares.now

    def move(seconds: float) -> None:
        nonlocal passed_ms
        passed_ms += int(seconds * 1000)

        def expire(server: Server) -> None:
            for shared in server.shares:
                shared.expire()

        inside(broker, expire)

    monkeypatch.setattr(Shares, "now", lambda self: now(self) + passed_ms)
    return move


def put(broker: Broker, *values: bytes, transaction: bool = False) -> str:
    topic = fresh_name("jobs")
    broker.create_topic(topic)
    config = {"bootstrap.servers": broker.bootstrap}
    producer = Producer(config | ({"transactional.id": topic} if transaction else {}))
    if transaction:
        producer.init_transactions(30)
        producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, headers=[("h", b"1")], key=b"k")
    if transaction:
        producer.commit_transaction(30)
    assert producer.flush(30) == 0
    return topic


def queue_of(broker: Broker, topic: str, group: str, *, renewable: bool = True) -> Queue:
    return Queue(
        topic, group=group, bootstrap=broker.bootstrap, start="earliest", renewable=renewable
    )


def waiting(broker: Broker, group: str) -> int:
    """How many messages the group's next worker would be given again."""
    reports = inside(broker, lambda server: server.shares.report(group))
    return sum(int(each["waiting"]) for each in reports)


def test_a_message_whose_lock_was_renewed_is_not_given_to_another(
    broker: Broker, let_pass: Pass
) -> None:
    topic, group = put(broker, b"long work"), fresh_name("queue")
    with queue_of(broker, topic, group) as queue:
        message = queue.take(60)
        assert message is not None
        for _ in range(4):
            let_pass(LOCK_S * 0.9)
            message.renew()
        assert waiting(broker, group) == 0
        let_pass(LOCK_S * 1.1)
        assert waiting(broker, group) == 1
        with pytest.raises(ClientError, match="INVALID_RECORD_STATE"):
            message.renew()
        with queue_of(broker, topic, group, renewable=False) as other:
            again = other.take(60)
            assert again is not None
            assert (again.value, again.deliveries) == (b"long work", 2)


def test_a_renewed_message_is_settled_as_any_other(broker: Broker, let_pass: Pass) -> None:
    topic, group = put(broker, b"long work"), fresh_name("queue")
    with queue_of(broker, topic, group) as queue:
        message = queue.take(60)
        assert message is not None
        let_pass(LOCK_S * 0.9)
        message.renew()
        let_pass(LOCK_S * 0.9)
        message.done()
        queue.flush()
        with pytest.raises(ClientError, match="already settled"):
            message.renew()
    assert inside(broker, lambda server: server.shares.report(group)) == []


def test_locks_are_renewed_in_asyncio(broker: Broker, let_pass: Pass) -> None:
    topic, group = put(broker, b"long work"), fresh_name("queue")

    async def work() -> None:
        async with AsyncQueue(
            topic, group=group, bootstrap=broker.bootstrap, start="earliest", renewable=True
        ) as queue:
            async for message in queue:
                await asyncio.to_thread(let_pass, LOCK_S * 0.9)
                await message.renew()
                await asyncio.to_thread(let_pass, LOCK_S * 0.9)
                assert await asyncio.to_thread(waiting, broker, group) == 0
                break

    asyncio.run(work())


def test_messages_of_a_renewable_queue_have_all_that_others_have(broker: Broker) -> None:
    topic, group = put(broker, b"a", b"b", transaction=True), fresh_name("queue")
    before_ms = int(time.time() * 1000)
    with queue_of(broker, topic, group) as queue:
        messages = [queue.take(60), queue.take(60)]
        for number, message in enumerate(messages):
            assert message is not None
            assert (message.topic, message.partition, message.offset) == (topic, 0, number)
            assert (message.key, message.value) == (b"k", b"ab"[number : number + 1])
            assert message.headers == [("h", b"1")]
            assert message.deliveries == 1
            assert message.timestamp is not None
            assert 0 < message.timestamp <= before_ms
        # The marker that ends the transaction is nothing to work on.
        assert queue.take(0.3) is None
    until(lambda: inside(broker, lambda server: server.shares.report(group)) == [])


def test_a_queue_on_librdkafka_says_that_it_cannot_renew(broker: Broker) -> None:
    topic, group = put(broker, b"a"), fresh_name("queue")
    with queue_of(broker, topic, group, renewable=False) as queue:
        message = queue.take(60)
        assert message is not None
        with pytest.raises(ClientError, match="renewable=True"):
            message.renew()


def test_settings_that_only_librdkafka_has_are_refused(broker: Broker) -> None:
    with pytest.raises(ClientError, match=r"fetch\.max\.bytes"):
        Queue("t", group="g", bootstrap=broker.bootstrap, renewable=True, fetch_max_bytes=1)


def test_a_renewable_queue_that_is_let_go_of_leaves_its_group(broker: Broker) -> None:
    topic, group = put(broker, b"a"), fresh_name("queue")
    queue = queue_of(broker, topic, group)
    assert queue.take(60) is not None

    def members(server: Server) -> int:
        held = server.groups.find(group)
        return len(held.group.members)  # type: ignore[union-attr]

    assert inside(broker, members) == 1
    del queue
    gc.collect()
    until(lambda: inside(broker, members) == 0)


def test_a_renewable_queue_lives_on_when_its_connections_are_cut(broker: Broker) -> None:
    topic, group = put(broker, b"a"), fresh_name("queue")
    with queue_of(broker, topic, group) as queue:
        first = queue.take(60)
        assert first is not None

        def hang_up(server: Server) -> None:
            for connection in list(server.connections):
                connection.close("the network is cut")

        inside(broker, hang_up)
        with pytest.raises(ClientError):
            first.renew()
        again = queue.take(60)
        assert again is not None
        assert (again.value, again.deliveries) == (b"a", 2)
