"""Consumers in groups, and what an admin sees of them."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable

import pytest

from moldau import Admin, ClientError, Consumer, Message, MessageSet, Producer
from moldau.testing.waiting import until
from tests.client.reading import WITHIN_S, take


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


def fill(bootstrap: str, topic: str, partitions: int, count: int) -> None:
    with Producer(bootstrap) as producer:
        for partition in range(partitions):
            messages = [
                Message(b"%d-%d" % (partition, n), partition=partition, timestamp=1000 * (n + 1))
                for n in range(count)
            ]
            producer.send(topic, MessageSet(messages)).result(WITHIN_S)


def test_a_group_goes_on_where_it_stopped(bootstrap: str, topic: str, group: str) -> None:
    fill(bootstrap, topic, 1, 50)
    with Consumer(bootstrap, group) as consumer:
        consumer.subscribe(topic)
        assert take(consumer.messages(WITHIN_S), 20)[-1].offset == 19
    with Consumer(bootstrap, group) as consumer:
        consumer.subscribe(topic)
        assert take(consumer.messages(WITHIN_S), 1)[0].offset == 20
        assert consumer.committed() == {(topic, 0): 20}
        consumer.commit()
        assert consumer.committed((topic, 0)) == {(topic, 0): 21}


def test_the_message_at_which_a_with_block_failed_is_read_again(
    bootstrap: str, topic: str, group: str
) -> None:
    fill(bootstrap, topic, 1, 10)

    def work() -> None:
        with Consumer(bootstrap, group) as consumer:
            consumer.subscribe(topic)
            for message in consumer.messages(WITHIN_S):
                1 // (message.offset - 4)

    with pytest.raises(ZeroDivisionError):
        work()
    with Consumer(bootstrap, group) as consumer:
        consumer.subscribe(topic)
        assert take(consumer.messages(WITHIN_S), 1)[0].offset == 4


def test_members_share_a_topic_and_hand_over_cleanly(
    bootstrap: str, new_topic: Callable[..., str], group: str
) -> None:
    topic, partitions, count = new_topic(partitions=6), 6, 500
    seen: Counter[bytes] = Counter()
    lock = threading.Lock()

    def run(consumer: Consumer) -> None:
        for message in consumer:
            with lock:
                seen[message.value] += 1

    settings = {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 500}
    consumers = [Consumer(bootstrap, group, settings=settings) for _ in range(3)]
    threads = [threading.Thread(target=run, args=(consumer,)) for consumer in consumers]
    fill(bootstrap, topic, partitions, count)
    for consumer, thread in zip(consumers, threads, strict=True):
        consumer.subscribe(topic)
        thread.start()
    until(lambda: [len(consumer.assignment()) for consumer in consumers] == [2, 2, 2])
    consumers[0].stop()
    threads[0].join(WITHIN_S)
    consumers[0].close()
    fill(bootstrap, topic, partitions, count)
    until(lambda: sum(seen.values()) >= 2 * partitions * count)
    for consumer, thread in zip(consumers[1:], threads[1:], strict=True):
        consumer.stop()
        thread.join(WITHIN_S)
        consumer.close()
    assert len(seen) == partitions * count
    assert set(seen.values()) == {2}


def test_streams_of_a_group_commit_what_is_done(
    bootstrap: str, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(partitions=2)
    fill(bootstrap, topic, 2, 100)
    with Consumer(bootstrap, group) as consumer:
        streams = consumer.create_message_streams(topic, 2)
        for stream in streams:
            take(stream, 30)
    with Admin(bootstrap) as admin:
        assert sorted(admin.group_offsets(group).values()) == [30, 30]


def test_an_admin_sees_groups_members_and_lag(
    bootstrap: str, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(partitions=2)
    fill(bootstrap, topic, 2, 10)
    with Admin(bootstrap) as admin, Consumer(bootstrap, group) as consumer:
        consumer.subscribe(topic)
        take(consumer.messages(WITHIN_S), 20)
        consumer.commit()
        assert group in [found.name for found in admin.groups()]
        found = admin.group(group)
        assert found.state == "stable"
        assert [member.partitions for member in found.members] == [((topic, 0), (topic, 1))]
        assert [at.lag for at in admin.lag(group)] == [0, 0]
        with pytest.raises(ClientError):
            admin.delete_group(group)
        consumer.close()
        admin.set_group_offsets(group, {(topic, 0): 4})
        first, second = admin.lag(group, seconds=True)
        assert (first.committed, first.end, first.lag) == (4, 10, 6)
        # Message 4 was written five seconds after 1970 began.
        assert first.seconds == pytest.approx(time.time() - 5, abs=WITHIN_S)
        assert (second.lag, second.seconds) == (0, 0.0)
        admin.delete_group(group)
        assert group not in [found.name for found in admin.groups()]


def test_a_lag_has_all_partitions_and_knows_nothing_without_a_commit(
    bootstrap: str, new_topic: Callable[..., str], group: str
) -> None:
    topic, gone = new_topic(partitions=2), new_topic()
    fill(bootstrap, topic, 2, 10)
    fill(bootstrap, gone, 1, 1)
    with Admin(bootstrap) as admin:
        admin.set_group_offsets(group, {(topic, 1): 2, (gone, 0): 0})
        admin.delete_records(topic, {1: 4})
        admin.delete_topic(gone)
        none, some = admin.lag(group, seconds=True)
        assert (none.committed, none.end, none.lag, none.seconds) == (None, 10, None, None)
        assert (some.committed, some.start, some.end, some.lag) == (2, 4, 10, 6)
        before = some.seconds or 0
        assert before == pytest.approx(time.time() - 5, abs=WITHIN_S)
        assert admin.lag(group)[1].seconds is None
        # Nobody reads, so it grows.
        until(lambda: (admin.lag(group, seconds=True)[1].seconds or 0) > before)


def test_many_groups_are_described_in_the_order_asked_for(
    bootstrap: str, topic: str, group: str
) -> None:
    with Admin(bootstrap) as admin:
        admin.set_group_offsets(group, {(topic, 0): 0})
        found = admin.describe_groups([f"{group}-none", group])
        assert [(each.name, each.state) for each in found] == [
            (f"{group}-none", "dead"),
            (group, "empty"),
        ]
        assert admin.group(group) == found[1]


def test_a_member_of_a_group_seeks(bootstrap: str, topic: str, group: str) -> None:
    fill(bootstrap, topic, 1, 20)
    with Consumer(bootstrap, group) as consumer:
        consumer.subscribe(topic)
        take(consumer.messages(WITHIN_S), 10)
        consumer.seek(topic, offset=3)
        assert [m.offset for m in take(consumer.messages(WITHIN_S), 2)] == [3, 4]
    with Admin(bootstrap) as admin:
        assert admin.group_offsets(group) == {(topic, 0): 5}
