"""Several stores and one real ensemble."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from kazoo.client import KazooClient

from moldau.cluster.state.changes import (
    AnyChange,
    BrokerConfigured,
    BrokerLeft,
    ControllerElected,
    DeletionsSettled,
    LeadersRestarted,
    PartitionsAdded,
    PartitionsChanged,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from moldau.cluster.state.topics import BrokerInfo, Topic
from moldau.cluster.store import Conflict, MetadataStore, NotController, StoreError
from moldau.cluster.zookeeper import ZooKeeperStore, trimming, writes
from moldau.cluster.zookeeper.writes import Draft
from moldau.testing.waiting import until_async
from tests.cluster.zookeeper.clusters import Member, joined, partition, topic


def test_all_brokers_find_one_cluster_below_a_chroot_that_the_first_creates(connect: str) -> None:
    async def scenario() -> None:
        async with joined(f"{connect}/deeper/still", 1, 2) as (one, two):
            assert one.store.state.cluster_id == two.store.state.cluster_id
            assert len(one.store.state.cluster_id) == 22
            assert two.store.state.brokers == {1: one.registered, 2: two.registered}
            assert one.registered.epoch < two.registered.epoch
            assert one.store.folder_id_of(1) == "folder-1"
            assert one.store.folder_id_of(3) is None

    asyncio.run(scenario())


def test_it_is_a_metadata_store(connect: str) -> None:
    store: MetadataStore = ZooKeeperStore(connect, 1)
    assert store.state.topics == {}


def test_what_one_commits_is_part_of_its_state_at_once_and_seen_by_others_in_order(
    connect: str,
) -> None:
    async def scenario() -> None:
        async with joined(connect, 1, 2) as (one, two):
            a = topic("a", 2)
            changes: list[AnyChange] = [
                TopicCreated(a),
                PartitionsAdded("a", 2, (partition(2, 1),)),
                TopicConfigured("a", {"retention.ms": "5"}),
                PartitionsChanged("a", {1: partition(1, 2, epoch=1, isr=(1,))}),
                BrokerConfigured(None, {"log.retention.ms": "7"}),
                TopicDeleted("a", a.id),
            ]
            for mine in (one.changes, two.changes):
                mine.clear()
            for count, change in enumerate(changes, 1):
                await one.store.commit([change])
                assert one.changes == changes[:count]
                await until_async(lambda: len(two.changes) == count)  # noqa: B023
            assert two.changes == changes
            assert two.store.state.topics == {}
            assert two.store.state.broker_configs == {None: {"log.retention.ms": "7"}}
            assert a.id in two.store.state.deleted
            await one.store.commit([BrokerConfigured(None, {})])
            await until_async(lambda: two.store.state.broker_configs == {})

    asyncio.run(scenario())


def test_a_broker_that_comes_later_finds_everything(connect: str) -> None:
    async def scenario() -> None:
        async with joined(connect, 1, 2) as (one, _):
            gone = topic("gone")
            await one.store.commit(
                [TopicCreated(topic(f"t{i}", 3)) for i in range(20)]
                + [TopicCreated(gone), BrokerConfigured(2, {"log.retention.ms": "1"})]
            )
            await one.store.commit([TopicDeleted("gone", gone.id)])
            late = Member(connect, 3)
            await late.store.open()
            try:
                assert late.store.state.topics == one.store.state.topics
                assert late.store.state.broker_configs == {2: {"log.retention.ms": "1"}}
                assert late.store.state.brokers == one.store.state.brokers
                assert late.store.state.deleted == {gone.id}
                assert late.controller == 1
                await late.store.commit([DeletionsSettled()], as_controller=False)
                assert late.store.state.deleted == set()
            finally:
                await late.store.close()

    asyncio.run(scenario())


def test_of_two_commits_on_one_partition_one_fails_and_knows_the_other(connect: str) -> None:
    async def scenario() -> None:
        async with joined(connect, 1, 2) as (one, two):
            await one.store.commit([TopicCreated(topic("a", 2))])
            await until_async(lambda: "a" in two.store.state.topics)

            def shrink(member: Member, index: int) -> PartitionsChanged:
                return PartitionsChanged("a", {index: partition(1, 2, isr=(member.id,))})

            outcomes = await asyncio.gather(
                *(m.store.commit([shrink(m, 0)], as_controller=False) for m in (one, two)),
                return_exceptions=True,
            )
            assert sorted(type(outcome).__name__ for outcome in outcomes) == [
                "Conflict",
                "NoneType",
            ]
            assert one.topic("a") == two.topic("a")
            # Whoever lost decides anew, on what it knows by now.
            loser = one if isinstance(outcomes[0], Conflict) else two
            await loser.store.commit([shrink(loser, 0)], as_controller=False)
            assert loser.topic("a").partitions[0].isr == (loser.id,)

    asyncio.run(scenario())


def test_commits_of_one_broker_on_one_topic_do_not_disturb_each_other(connect: str) -> None:
    async def scenario() -> None:
        async with joined(connect, 1, 2) as (one, two):
            await one.store.commit([TopicCreated(topic("a", 8))])
            await asyncio.gather(
                *(
                    one.store.commit([PartitionsChanged("a", {i: partition(1, 2, epoch=i)})])
                    for i in range(8)
                ),
                one.store.commit([TopicConfigured("a", {"retention.ms": "1"})]),
            )
            expected = [partition(1, 2, epoch=i) for i in range(8)]
            assert list(one.topic("a").partitions) == expected
            await until_async(lambda: two.store.state.topics == one.store.state.topics)

    asyncio.run(scenario())


def test_a_change_that_waited_while_its_partition_changed_is_refused(connect: str) -> None:
    async def scenario() -> None:
        async with joined(connect, 1, 2) as (one, _):
            await one.store.commit([TopicCreated(topic("a"))])
            first = one.store.commit([PartitionsChanged("a", {0: partition(2, 1, epoch=1)})])
            second = one.store.commit([PartitionsChanged("a", {0: partition(1, 2, isr=(1,))})])
            outcomes = await asyncio.gather(first, second, return_exceptions=True)
            assert outcomes[0] is None
            assert isinstance(outcomes[1], Conflict)
            assert one.topic("a").partitions == (partition(2, 1, epoch=1),)

    asyncio.run(scenario())


def test_a_topic_created_anew_is_not_taken_for_the_deleted_one(connect: str) -> None:
    async def scenario() -> None:
        async with joined(connect, 1, 2) as (one, two):
            old, new = topic("a"), topic("a")
            await one.store.commit([TopicCreated(old)])
            await until_async(lambda: "a" in two.store.state.topics)
            # The other does not look for a while; both nodes are in their first version.
            async with two.store._lock:
                await one.store.commit([TopicDeleted("a", old.id)])
                await one.store.commit([TopicCreated(new)])
                assert two.topic("a") == old
                stale = Draft(
                    two.store.state, [PartitionsChanged("a", {0: partition(1, 2, isr=())})]
                )
                two.changes.clear()
                with pytest.raises(Conflict):
                    await two.store._commits.write(stale, [])
                assert two.changes == [TopicDeleted("a", old.id), TopicCreated(new)]
            assert one.topic("a") == new

    asyncio.run(scenario())


def test_only_the_controller_commits_more_than_partitions(connect: str) -> None:
    async def scenario() -> None:
        async with joined(connect, 1, 2) as (one, two):
            with pytest.raises(NotController):
                await two.store.commit([TopicCreated(topic("a"))])
            with pytest.raises(NotController):
                await two.store.commit([TopicCreated(topic("a"))], as_controller=False)
            await one.store.commit([TopicCreated(topic("a"))])
            await one.store.commit([LeadersRestarted(1)])
            assert one.topic("a").partitions[0].leader_epoch == 1

    asyncio.run(scenario())


def test_a_controller_that_was_replaced_commits_nothing_whatever_it_believes(connect: str) -> None:
    async def scenario() -> None:
        async with joined(connect, 1, 2) as (one, two):
            # It does not hear of it.
            async with one.store._lock:
                believed = one.store._election.guards
                await two.store.depose()
                await until_async(lambda: two.controller == 2)
                assert one.store._election.is_held
                draft = Draft(one.store.state, [TopicCreated(topic("a"))])
                with pytest.raises(NotController):
                    await one.store._commits.write(draft, believed)
            await until_async(lambda: one.controller == 2)
            with pytest.raises(NotController):
                await one.store.commit([TopicCreated(topic("a"))])
            await two.store.commit([TopicCreated(topic("a"))])
            await until_async(lambda: "a" in one.store.state.topics)

    asyncio.run(scenario())


def test_when_the_controller_leaves_another_is_elected_and_all_know(connect: str) -> None:
    async def scenario() -> None:
        async with joined(connect, 1, 2, 3) as (one, two, three):
            await one.store.commit([TopicCreated(topic("a"))])
            await one.store.close()
            await until_async(
                lambda: two.controller == three.controller and two.controller in (2, 3)
            )
            for member in (two, three):
                await until_async(lambda: set(member.store.state.brokers) == {2, 3})  # noqa: B023
                assert ControllerElected(member.controller) in member.changes
                assert BrokerLeft(1) in member.changes
            chosen = two if two.controller == 2 else three
            assert "a" in chosen.store.state.topics
            await chosen.store.commit([TopicCreated(topic("b"))])

    asyncio.run(scenario())


def test_who_is_not_registered_is_not_elected_though_there_is_no_controller(connect: str) -> None:
    async def scenario() -> None:
        store = ZooKeeperStore(connect, 1)
        await store.open()
        try:
            assert store.state.controller_id == -1
            await store.depose()
            with pytest.raises(NotController):
                await store.commit([TopicCreated(topic("a"))])
            await store.register(BrokerInfo(1, "localhost", 1))
            await until_async(lambda: store.state.controller_id == 1)
        finally:
            await store.close()

    asyncio.run(scenario())


def test_producer_ids_are_handed_out_once(connect: str) -> None:
    async def scenario() -> None:
        async with joined(connect, 1, 2, 3) as members:
            blocks = await asyncio.gather(
                *(m.store.allocate_producer_ids(100) for m in members for _ in range(4))
            )
            ids = [id for block in blocks for id in block]
            assert sorted(ids) == list(range(1200))

    asyncio.run(scenario())


def test_whoever_missed_notices_that_were_trimmed_reads_everything(
    connect: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trimming, "KEPT_NOTICES", 3)
    caplog.set_level("INFO", "moldau.cluster.zookeeper")

    async def scenario() -> None:
        async with joined(connect, 1, 2) as (one, two):
            await one.store.commit([TopicCreated(topic("first"))])
            await until_async(lambda: "first" in two.store.state.topics)
            async with two.store._lock:
                for i in range(12):
                    await one.store.commit([TopicCreated(topic(f"t{i}"))])
                await until_async(lambda: len(one.store._tree.notices) < 8)
                await one.store.commit([TopicDeleted("first", one.topic("first").id)])
                await until_async(
                    lambda: two.store._tree._last_notice < min(one.store._tree.notices)
                )
            await until_async(lambda: two.store.state.topics == one.store.state.topics)
            assert len(two.store.state.topics) == 12
            assert "reading everything" in caplog.text
            await one.store.commit([TopicCreated(topic("more"))])
            await until_async(lambda: "more" in two.store.state.topics)

    asyncio.run(scenario())


def test_a_large_commit_takes_several_transactions(
    connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "BATCH_BYTES", 4000)

    async def scenario() -> None:
        async with joined(connect, 1, 2) as (one, two):
            await one.store.commit([TopicCreated(topic(f"t{i}", 3)) for i in range(40)])
            assert len(one.store.state.topics) == 40
            assert len(one.store._tree.own_notices) + len(one.store._tree.notices) > 4
            await until_async(lambda: two.store.state.topics == one.store.state.topics)

    asyncio.run(scenario())


def test_a_thousand_topics_with_five_thousand_partitions(connect: str) -> None:
    async def scenario() -> None:
        async with joined(connect, 1, 2) as (one, two):
            await one.store.commit([TopicCreated(topic(f"t{i}", 5)) for i in range(1000)])
            await until_async(lambda: len(two.store.state.topics) == 1000)
            elected = {index: partition(2, 1, epoch=1) for index in range(5)}
            names = list(one.store.state.topics)
            await one.store.commit([PartitionsChanged(name, elected) for name in names])
            await until_async(lambda: two.store.state.topics == one.store.state.topics)

    asyncio.run(scenario())


def test_a_topic_too_large_for_zookeeper_is_refused_with_its_size(connect: str) -> None:
    async def scenario() -> None:
        async with joined(connect, 1) as (one,):
            with pytest.raises(StoreError, match="ZooKeeper stores at most"):
                await one.store.commit([TopicCreated(topic("huge", 60_000))])

    asyncio.run(scenario())


def test_an_ensemble_out_of_reach_is_named() -> None:
    async def scenario() -> None:
        store = ZooKeeperStore("127.0.0.1:1", 1, connection_timeout_ms=300)
        with pytest.raises(StoreError, match=r"no ZooKeeper server at 127\.0\.0\.1:1 answered"):
            await store.open()

    asyncio.run(scenario())


@pytest.mark.parametrize("connect", ["", "/chroot", "host:port", "a:1,,b:2", "a:1/x/../y"])
def test_a_connect_string_of_another_form_is_refused(connect: str) -> None:
    with pytest.raises(StoreError):
        ZooKeeperStore(connect, 1)


def test_a_chroot_that_belongs_to_something_else_is_refused(connect: str, raw: KazooClient) -> None:
    raw.ensure_path("/brokers/ids")

    async def scenario() -> None:
        with pytest.raises(StoreError, match="its own chroot"):
            await ZooKeeperStore(connect, 1).open()
        raw.create("/moldau-version", b"99")
        with pytest.raises(StoreError, match="another version created"):
            await ZooKeeperStore(connect, 1).open()

    asyncio.run(scenario())


def test_a_closed_store_commits_nothing(connect: str) -> None:
    async def scenario() -> None:
        async with joined(connect, 1) as (one,):
            await one.store.close()
            with pytest.raises(StoreError, match="closed"):
                await one.store.commit([TopicCreated(Topic("a", uuid.uuid4(), (partition(1),)))])

    asyncio.run(scenario())
