"""The lives of brokers: a second one, an id from another folder, who is expelled and returns."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from kazoo.client import KazooClient

from moldau.cluster.state.changes import (
    BrokerJoined,
    BrokerLeft,
    PartitionsChanged,
    TopicCreated,
)
from moldau.cluster.state.topics import BrokerInfo, Topic
from moldau.cluster.store import Conflict, NotController, StoreError
from moldau.testing.waiting import until_async
from tests.cluster.zookeeper.clusters import Member, joined, partition, topic


def test_a_second_life_ends_the_registration_and_the_election_of_the_first(connect: str) -> None:
    async def scenario() -> None:
        async with joined(connect, 1, 2, rejoins=False) as (first, other):
            second = Member(connect, 1)
            try:
                await second.join()
                assert second.registered.epoch > first.registered.epoch
                await until_async(lambda: first.fences == [True])
                await until_async(lambda: other.store.state.brokers.get(1) == second.registered)
                assert BrokerLeft(1) in other.changes
                # The first learns that it lost the election after it learns of its registration.
                await until_async(lambda: not first.store._election.is_held)
                await until_async(
                    lambda: second.store._election.is_held or other.store._election.is_held
                )
                assert not (second.store._election.is_held and other.store._election.is_held)
                await until_async(lambda: second.controller == other.controller != -1)
                with pytest.raises(StoreError):
                    await first.store.commit([TopicCreated(topic("a"))])
            finally:
                await second.store.close()

    asyncio.run(scenario())


def test_nobody_comes_into_sync_by_what_was_known_of_an_earlier_life(connect: str) -> None:
    async def scenario() -> None:
        async with joined(connect, 1, 2, rejoins=False) as (leader, first):
            out = partition(1, 2, isr=(1,))
            back = [PartitionsChanged("a", {0: partition(1, 2, isr=(1, 2))})]
            await leader.store.commit([TopicCreated(Topic("a", uuid.uuid4(), (out,)))])
            second, third = Member(connect, 2), Member(connect, 3)
            try:
                await second.store.open()
                await second.store.arrive(second.info.folder_id)
                assert second.topic("a").partitions[0].isr == (1,)
                # The leader has not heard of the arrival, and judges by the first life.
                assert leader.store.state.brokers[2] == first.registered
                with pytest.raises(Conflict):
                    await leader.store.commit(back, as_controller=False)
                # Nor has it when it reads anew who is there, since somebody else came.
                await third.join()
                await until_async(lambda: 3 in leader.store.state.brokers)
                assert leader.store.state.brokers[2] == first.registered
                with pytest.raises(Conflict):
                    await leader.store.commit(back, as_controller=False)
                registered = await second.store.register(second.info)
                await until_async(lambda: leader.store.state.brokers.get(2) == registered)
                await until_async(lambda: 2 in leader.store._tree.registrations)
                await leader.store.commit(back, as_controller=False)
                assert leader.topic("a").partitions[0].isr == (1, 2)
            finally:
                await third.store.close()
                await second.store.close()

    asyncio.run(scenario())


def test_an_id_in_use_from_another_folder_is_refused_while_its_holder_lives(connect: str) -> None:
    async def scenario() -> None:
        async with joined(connect, 1) as (one,):
            other = Member(connect, 1, session_ms=1500, folder="another")
            await other.store.open()
            try:
                with pytest.raises(StoreError, match="Give this broker another id"):
                    await other.store.register(other.info)
                assert one.fences == []
            finally:
                await other.store.close()

    asyncio.run(scenario())


def test_who_comes_with_the_id_of_a_living_broker_and_another_folder_changes_nothing_for_it(
    connect: str,
) -> None:
    async def scenario() -> None:
        async with joined(connect, 1, 2) as (one, _):
            await one.store.commit([TopicCreated(topic("a"))])
            number = one.store.registration
            other = Member(connect, 1, session_ms=1500, folder="another")
            await other.store.open()
            try:
                with pytest.raises(StoreError, match="Give this broker another id"):
                    await other.store.arrive(other.info.folder_id)
                assert other.store.registration == number
            finally:
                await other.store.close()
            shrunk = PartitionsChanged("a", {0: partition(1, 2, isr=(1,))})
            await one.store.commit([shrunk], as_controller=False)
            assert one.fences == []

    asyncio.run(scenario())


def test_who_comes_with_another_folder_waits_until_the_holder_of_its_id_is_gone(
    connect: str,
) -> None:
    async def scenario() -> None:
        async with joined(connect, 1) as (one,):
            number = one.store.registration
            other = Member(connect, 1, folder="another")
            await other.store.open()
            try:
                arriving = asyncio.create_task(other.store.arrive(other.info.folder_id))
                await asyncio.sleep(0)
                await one.store.close()
                await arriving
                assert other.store.registration == number + 1
            finally:
                await other.store.close()

    asyncio.run(scenario())


def test_a_broker_under_whose_id_another_arrived_notices_and_comes_back(
    connect: str, raw: KazooClient
) -> None:
    async def scenario() -> None:
        async with joined(connect, 1, 2) as (one, two):
            await one.store.commit([TopicCreated(topic("a"))])
            await until_async(lambda: "a" in two.store.state.topics)
            # As brokers do that do not look first who is there.
            data, _ = await asyncio.to_thread(raw.get, "/folders/2")
            await asyncio.to_thread(raw.set, "/folders/2", data)
            shrunk = [PartitionsChanged("a", {0: partition(1, 2, isr=(2,))})]
            with pytest.raises(Conflict):
                await two.store.commit(shrunk, as_controller=False)
            await until_async(lambda: two.fences == [True, False])
            assert two.rejoined == 1
            await two.store.commit(shrunk, as_controller=False)
            await until_async(lambda: one.topic("a") == two.topic("a"))

    asyncio.run(scenario())


def test_an_id_in_use_from_another_folder_is_free_when_its_holder_is_gone(connect: str) -> None:
    async def scenario() -> None:
        async with joined(connect, 1) as (one,):
            other = Member(connect, 1, folder="another")
            await other.store.open()
            try:
                assert other.store.folder_id_of(1) == "folder-1"
                registering = asyncio.create_task(other.store.register(other.info))
                await asyncio.sleep(0)
                await one.store.close()
                registered = await registering
                assert registered.folder_id == "another"
                assert other.store.folder_id_of(1) == "another"
            finally:
                await other.store.close()

    asyncio.run(scenario())


def test_only_the_same_incarnation_is_expelled_and_an_expelled_one_comes_back(connect: str) -> None:
    async def scenario() -> None:
        async with joined(connect, 1, 2) as (one, two):
            earlier = BrokerInfo(2, "127.0.0.1", 9002, epoch=two.registered.epoch - 1)
            await one.store.expel(earlier)
            assert 2 in one.store.state.brokers
            with pytest.raises(NotController):
                await two.store.expel(one.registered)
            dead = two.registered
            one.changes.clear()
            await one.store.expel(dead)
            assert one.changes[0] == BrokerLeft(2)
            await until_async(lambda: two.fences == [True, False])
            assert two.registered.epoch > dead.epoch
            await until_async(lambda: BrokerJoined(two.registered) in one.changes)

    asyncio.run(scenario())
