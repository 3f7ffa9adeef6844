"""The controller's changes to topics that are there: partitions, settings."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from moldau.cluster.decisions.assignment import NewPartitions, NewTopic
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.topics import Topic
from moldau.wire.errors import Error
from tests.cluster.controlled import controlled, create


def test_partitions_are_added_after_the_existing_ones(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controlled(tmp_path, 3) as (controller, store):
            topic = await create(controller, NewTopic("a", 2, 2))
            [planned] = await controller.add_partitions([NewPartitions("a", 6)], validate_only=True)
            assert planned == topic
            assert store.state.topics["a"] is topic
            [grown] = await controller.add_partitions([NewPartitions("a", 6)])
            assert isinstance(grown, Topic)
            assert grown.partitions[:2] == topic.partitions
            leaders = Counter(partition.leader for partition in grown.partitions)
            assert leaders == {0: 2, 1: 2, 2: 2}
            [manual] = await controller.add_partitions([NewPartitions("a", 7, [(2, 0)])])
            assert isinstance(manual, Topic)
            assert manual.partitions[6].replicas == (2, 0)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        (NewPartitions("b", 3), Error.UNKNOWN_TOPIC_OR_PARTITION, "does not host"),
        (NewPartitions("a", 2), Error.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (
            NewPartitions("a", 1),
            Error.INVALID_PARTITIONS,
            "The topic a currently has 2 partition(s); 1 would not be an increase.",
        ),
        (NewPartitions("a", -5), Error.INVALID_PARTITIONS, "would not be an increase"),
        (NewPartitions("a", 2**31 - 1), Error.POLICY_VIOLATION, "at most"),
        (NewPartitions("a", 4, [(0,)]), Error.INVALID_REPLICA_ASSIGNMENT, "only 1 assignment(s)"),
        (NewPartitions("a", 3, [(9,)]), Error.INVALID_REPLICA_ASSIGNMENT, "broker 9"),
        (NewPartitions("a", 3, [(0, 1)]), Error.INVALID_REPLICA_ASSIGNMENT, "2 replica(s)"),
    ],
)
def test_partitions_that_cannot_be_added_are_refused_with_the_reason(
    tmp_path: Path, request_: NewPartitions, error: Error, message: str
) -> None:
    async def scenario() -> None:
        async with controlled(tmp_path, 2) as (controller, store):
            topic = await create(controller, NewTopic("a", 2))
            [result] = await controller.add_partitions([request_])
            assert isinstance(result, ClusterError)
            assert result.error is error
            assert message in result.message
            assert store.state.topics["a"] is topic

    asyncio.run(scenario())


def test_topic_settings_are_checked_before_they_are_kept(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controlled(tmp_path) as (controller, store):
            await create(controller, NewTopic("a", configs={"retention.ms": "5"}))

            async def alter(name: str, add: dict[str, str], validate_only: bool = False) -> None:
                await controller.alter_topic_configs(
                    name, lambda current: current | add, validate_only=validate_only
                )

            await alter("a", {"segment.ms": "7"}, validate_only=True)
            assert store.state.topics["a"].configs == {"retention.ms": "5"}
            await alter("a", {"segment.ms": "7"})
            assert store.state.topics["a"].configs == {"retention.ms": "5", "segment.ms": "7"}
            for name, add, error in (
                ("a", {"segment.ms": "0"}, Error.INVALID_CONFIG),
                ("a", {"nope": "0"}, Error.INVALID_CONFIG),
                ("b", {"segment.ms": "7"}, Error.UNKNOWN_TOPIC_OR_PARTITION),
                ("", {"segment.ms": "7"}, Error.INVALID_REQUEST),
                ("a b", {"segment.ms": "7"}, Error.INVALID_TOPIC_EXCEPTION),
            ):
                with pytest.raises(ClusterError) as raised:
                    await alter(name, add)
                assert raised.value.error is error

    asyncio.run(scenario())


def test_concurrent_edits_of_one_topic_all_count(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controlled(tmp_path) as (controller, store):
            await create(controller, NewTopic("a"))
            settings = ["retention.ms", "segment.ms", "flush.ms", "delete.retention.ms"]

            async def set_(key: str) -> None:
                await controller.alter_topic_configs("a", lambda current: current | {key: "9"})

            await asyncio.gather(*(set_(key) for key in settings))
            assert store.state.topics["a"].configs == dict.fromkeys(settings, "9")

    asyncio.run(scenario())


def test_broker_settings_are_kept_per_broker_and_for_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controlled(tmp_path) as (controller, store):
            await controller.alter_broker_configs(None, lambda current: current | {"a": "1"})
            await controller.alter_broker_configs(0, lambda current: current | {"a": "2"})
            assert store.state.broker_configs == {None: {"a": "1"}, 0: {"a": "2"}}
        async with controlled(tmp_path) as (controller, store):
            assert store.state.broker_configs == {None: {"a": "1"}, 0: {"a": "2"}}

    asyncio.run(scenario())
