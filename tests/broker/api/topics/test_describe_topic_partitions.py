from __future__ import annotations

from typing import Any

from moldau.testing import Broker
from moldau.topic_partition import TopicPartition
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.asking import Asker


def page(
    asker: Asker, names: list[str], limit: int, cursor: TopicPartition | None
) -> tuple[list[TopicPartition], TopicPartition | None]:
    """The partitions of one page, and where the next begins."""
    at = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    answer = asker.ask(
        Api.DESCRIBE_TOPIC_PARTITIONS,
        topics=[{"name": name} for name in names],
        response_partition_limit=limit,
        cursor=at,
    )
    places = [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]
    after = answer.next_cursor
    return places, None if after is None else (after.topic_name, after.partition_index)


def pages(asker: Asker, names: list[str], limit: int) -> list[list[TopicPartition]]:
    found = []
    cursor: TopicPartition | None = None
    while True:
        places, cursor = page(asker, names, limit, cursor)
        found.append(places)
        if cursor is None:
            return found


def test_pages_show_every_partition_once_and_in_order(moldau_broker: Broker) -> None:
    with Asker(moldau_broker) as asker:
        sizes = {"b": 5, "a": 3, "c": 1, "d": 4}
        for name, count in sizes.items():
            asker.create(name, count)
        everything = [(name, index) for name in sorted(sizes) for index in range(sizes[name])]
        for limit in (1, 2, 3, 5, 8, 13, 100):
            found = pages(asker, [], limit)
            assert [place for places in found for place in places] == everything
            assert all(len(places) <= limit for places in found)
        some = [place for place in everything if place[0] in ("b", "d")]
        assert [place for places in pages(asker, ["d", "b"], 4) for place in places] == some
        assert page(asker, [], 0, None) == ([("a", 0)], ("a", 1))


def test_a_partition_is_described_whole(asker: Asker) -> None:
    from tests.broker.asking import fresh_name

    name = fresh_name()
    topic_id = asker.create(name).topic_id
    answer = asker.ask(
        Api.DESCRIBE_TOPIC_PARTITIONS, topics=[{"name": name}], response_partition_limit=9
    )
    [topic] = answer.topics
    assert (topic.name, topic.topic_id, topic.is_internal) == (name, topic_id, False)
    [partition] = topic.partitions
    assert (partition.leader_id, partition.leader_epoch) == (0, 0)
    assert partition.replica_nodes == partition.isr_nodes == (0,)
    assert partition.offline_replicas == ()


def test_unknown_topics_and_wrong_cursors_are_refused(asker: Asker) -> None:
    def codes(names: list[str], **more: Any) -> dict[str, int]:
        answer = asker.ask(
            Api.DESCRIBE_TOPIC_PARTITIONS,
            topics=[{"name": name} for name in names],
            response_partition_limit=9,
            **more,
        )
        return {topic.name: topic.error_code for topic in answer.topics}

    assert codes(["nobody", "not/good"]) == {
        "nobody": Error.UNKNOWN_TOPIC_OR_PARTITION,
        "not/good": Error.INVALID_TOPIC_EXCEPTION,
    }
    for cursor in (
        {"topic_name": "another", "partition_index": 0},
        {"topic_name": "nobody", "partition_index": -1},
    ):
        assert codes(["nobody"], cursor=cursor) == {"nobody": Error.INVALID_REQUEST}
