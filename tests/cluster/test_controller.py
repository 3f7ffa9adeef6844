from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from moldau.cluster.controller import Controller
from moldau.cluster.decisions.assignment import MAX_PARTITIONS_PER_REQUEST, NewPartitions, NewTopic
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.changes import AnyChange, TopicCreated
from moldau.cluster.state.topics import Topic
from moldau.cluster.store import StoreError
from moldau.wire.errors import Error
from tests.cluster.controlled import Defaults, controlled, create


async def refused(controller: Controller, request: NewTopic) -> ClusterError:
    [result] = await controller.create_topics([request])
    assert isinstance(result, ClusterError), result
    return result


def test_a_topic_gets_what_it_asks_for_and_defaults_for_the_rest(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controlled(tmp_path, 3, Defaults(4, 2)) as (controller, store):
            plain = await create(controller, NewTopic("plain"))
            assert len(plain.partitions) == 4
            assert plain.replication_factor == 2
            asked = await create(controller, NewTopic("asked", 6, 3, configs={"retention.ms": "5"}))
            assert len(asked.partitions) == 6
            assert asked.configs == {"retention.ms": "5"}
            assert store.state.topics == {"plain": plain, "asked": asked}
            for partition in asked.partitions:
                assert partition.leader == partition.replicas[0]
                assert partition.isr == partition.replicas
                assert partition.leader_epoch == 0
            leaders = Counter(partition.leader for partition in asked.partitions)
            assert leaders == {0: 2, 1: 2, 2: 2}

    asyncio.run(scenario())


def test_topics_with_one_partition_spread_over_the_brokers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controlled(tmp_path, 3) as (controller, _):
            topics = [await create(controller, NewTopic(f"t{n}")) for n in range(9)]
            leaders = Counter(topic.partitions[0].leader for topic in topics)
            assert leaders == {0: 3, 1: 3, 2: 3}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        (NewTopic("a b"), Error.INVALID_TOPIC_EXCEPTION, "Topic name is invalid"),
        (NewTopic(""), Error.INVALID_TOPIC_EXCEPTION, "empty string"),
        (NewTopic("old"), Error.TOPIC_ALREADY_EXISTS, "Topic 'old' already exists."),
        (NewTopic("o.ld"), Error.INVALID_TOPIC_EXCEPTION, "collides with existing topic: o_ld"),
        (NewTopic("__cluster_metadata"), Error.INVALID_REQUEST, "prohibited"),
        (NewTopic("a", 0), Error.INVALID_PARTITIONS, "non-positive"),
        (NewTopic("a", -2), Error.INVALID_PARTITIONS, "non-positive"),
        (NewTopic("a", 1, 0), Error.INVALID_REPLICATION_FACTOR, "larger than 0"),
        (NewTopic("a", 1, -2), Error.INVALID_REPLICATION_FACTOR, "larger than 0"),
        (NewTopic("a", 1, 4), Error.INVALID_REPLICATION_FACTOR, "only 3 broker(s)"),
        (NewTopic("a", 2**31 - 1), Error.POLICY_VIOLATION, "at most 10000"),
        (NewTopic("a", configs={"retention": "1"}), Error.INVALID_CONFIG, "did you mean"),
        (NewTopic("a", configs={"retention.ms": "x"}), Error.INVALID_CONFIG, "retention.ms=x"),
        (NewTopic("a", configs={"retention.ms": None}), Error.INVALID_CONFIG, "Null value"),
        (NewTopic("a", 1, assignments=[(0, (0,))]), Error.INVALID_REQUEST, "numPartitions"),
        (NewTopic("a", -1, 1, [(0, (0,))]), Error.INVALID_REQUEST, "replication factor"),
        (
            NewTopic("a", assignments=[(0, (0,)), (0, (1,))]),
            Error.INVALID_REPLICA_ASSIGNMENT,
            "multiple",
        ),
        (NewTopic("a", assignments=[(1, (0,))]), Error.INVALID_REPLICA_ASSIGNMENT, "consecutive"),
        (NewTopic("a", assignments=[(0, ())]), Error.INVALID_REPLICA_ASSIGNMENT, "empty"),
        (NewTopic("a", assignments=[(0, (7,))]), Error.INVALID_REPLICA_ASSIGNMENT, "broker 7"),
        (
            NewTopic("a", assignments=[(0, (1, 1))]),
            Error.INVALID_REPLICA_ASSIGNMENT,
            "more than once",
        ),
        (
            NewTopic("a", assignments=[(0, (1, 2)), (1, (1,))]),
            Error.INVALID_REPLICA_ASSIGNMENT,
            "not consistent",
        ),
    ],
)
def test_what_cannot_be_created_is_refused_with_the_reason(
    tmp_path: Path, request_: NewTopic, error: Error, message: str
) -> None:
    async def scenario() -> None:
        async with controlled(tmp_path, 3) as (controller, store):
            await create(controller, NewTopic("old"))
            await create(controller, NewTopic("o_ld"))
            refusal = await refused(controller, request_)
            assert refusal.error is error
            assert message in refusal.message
            assert set(store.state.topics) == {"old", "o_ld"}

    asyncio.run(scenario())


def test_replicas_named_by_hand_are_taken_as_they_are(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controlled(tmp_path, 3) as (controller, _):
            topic = await create(controller, NewTopic("a", assignments=[(1, (2, 0)), (0, (1, 2))]))
            assert [partition.replicas for partition in topic.partitions] == [(1, 2), (2, 0)]

    asyncio.run(scenario())


def test_one_bad_topic_does_not_keep_the_others_from_being_created(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controlled(tmp_path) as (controller, store):
            results = await controller.create_topics(
                [
                    NewTopic("a"),
                    NewTopic("b", 0),
                    NewTopic("c"),
                    NewTopic("a"),
                    NewTopic("x.y"),
                    NewTopic("x_y"),
                ]
            )
            kinds = [getattr(result, "error", None) for result in results]
            assert kinds == [
                None,
                Error.INVALID_PARTITIONS,
                None,
                Error.INVALID_REQUEST,
                None,
                Error.INVALID_TOPIC_EXCEPTION,
            ]
            assert set(store.state.topics) == {"a", "c", "x.y"}

    asyncio.run(scenario())


def test_the_limit_of_partitions_counts_for_the_whole_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controlled(tmp_path) as (controller, _):
            results = await controller.create_topics(
                [NewTopic("a", MAX_PARTITIONS_PER_REQUEST), NewTopic("b")], validate_only=True
            )
            assert isinstance(results[0], Topic)
            assert isinstance(results[1], ClusterError)
            assert results[1].error is Error.POLICY_VIOLATION

    asyncio.run(scenario())


def test_validating_creates_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controlled(tmp_path) as (controller, store):
            version = store.state.version
            [ok, bad] = await controller.create_topics(
                [NewTopic("a"), NewTopic("b", 0)], validate_only=True
            )
            assert isinstance(ok, Topic)
            assert isinstance(bad, ClusterError)
            assert store.state.version == version

    asyncio.run(scenario())


def test_a_name_wanted_by_many_at_once_is_created_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controlled(tmp_path) as (controller, _):
            results = await asyncio.gather(
                *(controller.create_topics([NewTopic("a")]) for _ in range(20)),
                *(controller.create_topics([NewTopic("x.y")]) for _ in range(5)),
                *(controller.create_topics([NewTopic("x_y")]) for _ in range(5)),
            )
            outcomes = Counter(getattr(result, "error", "created") for [result] in results)
            assert outcomes["created"] == 2
            assert outcomes[Error.TOPIC_ALREADY_EXISTS] == 19 + 4
            assert outcomes[Error.INVALID_TOPIC_EXCEPTION] == 5

    asyncio.run(scenario())


def test_ensuring_a_topic_gives_everybody_the_same_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controlled(tmp_path) as (controller, store):
            wanted = [NewTopic("a"), NewTopic("b"), NewTopic("b"), NewTopic("not/good")]
            results = await asyncio.gather(*(controller.ensure_topics(wanted) for _ in range(20)))
            for a, b, again, bad in results:
                assert a is store.state.topics["a"]
                assert b is again is store.state.topics["b"]
                assert isinstance(bad, ClusterError)
                assert bad.error is Error.INVALID_TOPIC_EXCEPTION
            assert len(store.state.topics) == 2

    asyncio.run(scenario())


def test_deciding_on_many_names_at_once_neither_blocks_nor_contradicts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controlled(tmp_path) as (controller, store):
            names = [f"t{n}" for n in range(6)]

            async def churn(turn: int) -> None:
                some = [NewTopic(name) for name in names[turn % 3 : turn % 3 + 3]]
                await controller.create_topics(some)
                await controller.add_partitions([NewPartitions(name, turn + 2) for name in names])
                await controller.delete_topics([topic.name for topic in reversed(some)])

            await asyncio.wait_for(asyncio.gather(*(churn(turn) for turn in range(30))), 200)
            left = dict(store.state.topics)
        async with controlled(tmp_path) as (_, store):
            assert store.state.topics == left

    asyncio.run(scenario())


def test_topics_are_deleted_by_name_and_by_id(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controlled(tmp_path) as (controller, store):
            a = await create(controller, NewTopic("a"))
            b = await create(controller, NewTopic("b"))
            stranger = uuid.uuid4()
            results = await controller.delete_topics(["a", b.id, "a", stranger, "nobody"])
            assert results[:2] == [a, b]
            assert [getattr(result, "error", None) for result in results[2:]] == [
                Error.UNKNOWN_TOPIC_OR_PARTITION,
                Error.UNKNOWN_TOPIC_ID,
                Error.UNKNOWN_TOPIC_OR_PARTITION,
            ]
            assert not store.state.topics
            again = await create(controller, NewTopic("a"))
            assert again.id != a.id

    asyncio.run(scenario())


def test_what_the_store_cannot_keep_is_not_answered_as_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with controlled(tmp_path) as (controller, store):

            async def fails(changes: Sequence[AnyChange], *, as_controller: bool = True) -> None:
                assert isinstance(changes[0], TopicCreated)
                raise StoreError("disk full")

            monkeypatch.setattr(store, "commit", fails)
            [a, bad] = await controller.create_topics([NewTopic("a"), NewTopic("b", 0)])
            assert isinstance(a, ClusterError)
            assert a.error is Error.KAFKA_STORAGE_ERROR
            assert isinstance(bad, ClusterError)
            assert bad.error is Error.INVALID_PARTITIONS
            assert not store.state.topics

    asyncio.run(scenario())
