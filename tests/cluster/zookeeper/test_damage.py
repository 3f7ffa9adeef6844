"""Damage: what others may have written into the cluster's nodes."""

from __future__ import annotations

import asyncio
import json

import pytest
from kazoo.client import KazooClient

from moldau.cluster.state.changes import (
    BrokerConfigured,
    PartitionsChanged,
    TopicCreated,
    TopicDeleted,
)
from moldau.cluster.store import StoreError
from moldau.testing.waiting import until_async
from tests.cluster.zookeeper.clusters import joined, partition, tell, topic


def test_a_topic_that_makes_no_sense_is_complained_about_and_the_rest_serves(
    connect: str, raw: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with joined(connect, 1, 2) as (one, two):
            await one.store.commit([TopicCreated(topic("a")), TopicCreated(topic("b"))])
            await until_async(lambda: two.store.state.topics == one.store.state.topics)
            sound, _ = raw.get("/topics/a")
            raw.set("/topics/a", b"{half")
            tell(raw, topics=["a", "b"])
            await until_async(lambda: "/topics/a in ZooKeeper is damaged" in caplog.text)
            assert "a" in one.store.state.topics
            changed = {0: partition(2, 1, epoch=1)}
            await one.store.commit([PartitionsChanged("b", changed)])
            await until_async(lambda: two.topic("b").partitions[0].leader == 2)
            with pytest.raises(StoreError, match="damaged"):
                await one.store.commit([PartitionsChanged("a", changed)])
            raw.set("/topics/a", sound)
            tell(raw, topics=["a"])
            await until_async(lambda: not one.store._tree.damaged)
            await one.store.commit([PartitionsChanged("a", changed)])

    asyncio.run(scenario())


def test_a_damaged_topic_found_only_when_writing_is_an_error_and_no_conflict(
    connect: str, raw: KazooClient
) -> None:
    async def scenario() -> None:
        async with joined(connect, 1) as (one,):
            await one.store.commit([TopicCreated(topic("a"))])
            raw.set("/topics/a", b"[]")
            with pytest.raises(StoreError, match="damaged"):
                await one.store.commit([PartitionsChanged("a", {0: partition(2, 1, epoch=1)})])
            raw.create("/topics/b", b"")
            with pytest.raises(StoreError, match="damaged"):
                await one.store.commit([TopicCreated(topic("b"))])

    asyncio.run(scenario())


def test_a_topic_with_fewer_partitions_or_without_its_node_stays(
    connect: str, raw: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with joined(connect, 1) as (one,):
            await one.store.commit([TopicCreated(topic("a", 2)), TopicCreated(topic("b"))])
            shrunk = json.loads(raw.get("/topics/a")[0])
            del shrunk["partitions"][1:]
            raw.set("/topics/a", json.dumps(shrunk).encode())
            raw.delete("/topics/b")
            tell(raw, topics=["a", "b"])
            await until_async(lambda: "had 2 partitions and now has 1" in caplog.text)
            await until_async(lambda: "nobody deleted the topic" in caplog.text)
            assert set(one.store.state.topics) == {"a", "b"}
            assert not any(isinstance(change, TopicDeleted) for change in one.changes)

    asyncio.run(scenario())


def test_a_notice_that_makes_no_sense_lets_everything_be_read(
    connect: str, raw: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with joined(connect, 1) as (one,):
            await one.store.commit([TopicCreated(topic("a"))])
            data, _ = raw.get("/topics/a")
            raw.set("/topics/a", data.replace(b'"configs":{}', b'"configs":{"retention.ms":"1"}'))
            raw.create("/changes/c-", b"what?", sequence=True)
            await until_async(lambda: one.topic("a").configs == {"retention.ms": "1"})
            assert "reading everything instead" in caplog.text

    asyncio.run(scenario())


def test_registrations_and_settings_that_make_no_sense_are_left_out(
    connect: str, raw: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with joined(connect, 1) as (one,):
            await one.store.commit([BrokerConfigured(1, {"log.retention.ms": "1"})])
            raw.create("/brokers/5", b"nothing")
            raw.create("/brokers/six", b"{}")
            raw.set("/configs/brokers/1", b"7")
            raw.create("/configs/brokers/x", b"{}")
            raw.create("/configs/brokers/default", b'{"log.retention.ms": "2"}')
            tell(raw, brokers=True, configs=True)
            await until_async(lambda: None in one.store.state.broker_configs)
            assert one.store.state.broker_configs[1] == {"log.retention.ms": "1"}
            await until_async(lambda: "/brokers/six" in caplog.text and "/brokers/5" in caplog.text)
            assert set(one.store.state.brokers) == {1}
            await one.store.commit([BrokerConfigured(1, {})])
            assert json.loads(raw.get("/configs/brokers/1")[0]) == {}

    asyncio.run(scenario())


def test_a_controller_that_makes_no_sense_is_none_until_it_is_deleted(
    connect: str, raw: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with joined(connect, 1) as (one,):
            raw.delete("/controller")
            await until_async(lambda: raw.exists("/controller") is not None)
            await until_async(lambda: one.controller == 1)
            raw.set("/controller", b"me")
            await until_async(lambda: one.controller == -1)
            assert "there will be no controller" in caplog.text
            raw.delete("/controller")
            await until_async(lambda: one.controller == 1)
            raw.set("/producer-ids", b"many")
            with pytest.raises(StoreError, match="many"):
                await one.store.allocate_producer_ids(1)

    asyncio.run(scenario())
