"""Requests to leaders and followers, of clients and of brokers that are not what they say."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from moldau.cluster.state.topics import BrokerInfo
from moldau.log.errors import StorageError
from moldau.log.truncation import truncate_to
from moldau.testing.waiting import until_async
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.fetch.request import FetchPartition, FetchRequest
from moldau.wire.fetch.response import FetchAnswer
from tests.broker.replication.brokers import Brokers
from tests.broker.replication.conftest import Tell
from tests.peer.peers import partitions_of


async def list_offset(cluster: Brokers, number: int, timestamp: int, **more: Any) -> Any:
    wanted = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
    values = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": "t", "partitions": [wanted]}],
    }
    connection = await cluster.connection(number)
    answer = await connection.ask(Api.LIST_OFFSETS, values | more, 9)
    return answer.topics[0].partitions[0]


def test_who_does_not_lead_names_the_leader(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await until_async(lambda: "t" in cluster[2].state.topics, "the third knows the topic")
        # One is a follower, the other holds nothing of it.
        for number in (1, 2):
            produced = await cluster.produce(number, "t", "a")
            assert produced.error_code == Error.NOT_LEADER_OR_FOLLOWER
            leader = produced.current_leader
            assert (leader.leader_id, leader.leader_epoch) == (0, 0)
            fetched = await cluster.fetch(number, "t")
            assert fetched.error == Error.NOT_LEADER_OR_FOLLOWER
            assert fetched.leader == (0, 0)
            listed = await list_offset(cluster, number, -1)
            assert listed.error_code == Error.NOT_LEADER_OR_FOLLOWER
            deleted = await cluster.delete_records(number, "t", 0)
            assert deleted == (Error.NOT_LEADER_OR_FOLLOWER, -1)
            epoch = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
            asked = await cluster.ask(
                number,
                Api.OFFSET_FOR_LEADER_EPOCH,
                replica_id=-1,
                topics=[{"topic": "t", "partitions": [epoch]}],
            )
            assert asked.topics[0].partitions[0].error_code == Error.NOT_LEADER_OR_FOLLOWER
        lost = await cluster.fetch(2, "t", topic_id=UUID(int=5))
        assert lost.error == Error.UNKNOWN_TOPIC_ID

    tell(story, 3)


def test_a_new_leader_knows_the_end_once_its_followers_have_come_to_it(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.write(0, "t", "a", acks=-1)
        await cluster.until_same("t", 0, 1, watermark=1)
        # The follower has the message, but does not know that it is committed, when it leads.
        cluster.partition(1, "t").log.high_watermark = 0
        cluster.deafen(0)
        await cluster.lead("t", 1, (0, 1))
        latest = await list_offset(cluster, 1, -1)
        assert latest.error_code == Error.OFFSET_NOT_AVAILABLE
        later = await list_offset(cluster, 1, 10**15)
        assert later.error_code == Error.OFFSET_NOT_AVAILABLE
        assert (await list_offset(cluster, 1, -2)).offset == 0
        # A follower may know all of it.
        assert (await list_offset(cluster, 1, -1, replica_id=0)).offset == 1
        # Whoever has read the message from the old leader just waits for it here.
        assert (await cluster.fetch(1, "t", 1, max_wait_ms=0)).error == Error.NONE
        cluster.hear(0)
        await until_async(lambda: cluster.partition(1, "t").log.high_watermark == 1, "they came")
        assert (await list_offset(cluster, 1, -1)).offset == 1

    tell(story)


def test_only_replicas_of_this_life_and_this_epoch_are_fed(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.write(0, "t", "a")
        topic_id = cluster[0].state.topics["t"].id
        registered: BrokerInfo = cluster[0].state.brokers[1]

        async def ask(
            replica: int, broker_epoch: int, leader_epoch: int, offset: int = 0, last: int = -1
        ) -> Any:
            wanted = FetchPartition(0, leader_epoch, offset, last, 0)
            request = FetchRequest(
                [(topic_id, [wanted])],
                max_wait_ms=0,
                replica_id=replica,
                replica_epoch=broker_epoch,
            )
            (answer,) = partitions_of(await (await cluster.connection(0)).fetch(request))
            return answer

        cluster.deafen(1)
        await cluster.lead("t", 0, (0,))
        current = (registered.epoch, 1)
        assert (await ask(1, *current)).error == Error.NONE
        assert (await ask(1, registered.epoch - 1, 1)).error == Error.NOT_LEADER_OR_FOLLOWER
        # Whoever does not say which life or which term it is in may be in any.
        assert (await ask(1, -1, 1, offset=1, last=0)).error == Error.NOT_LEADER_OR_FOLLOWER
        unnamed = await ask(1, registered.epoch, -1, offset=1, last=0)
        assert unnamed.error == Error.NOT_LEADER_OR_FOLLOWER
        in_sync = cluster.partition(0, "t").in_sync
        assert in_sync is not None
        assert in_sync.followers[1].log_end == 0
        assert (await ask(2, registered.epoch, 1)).error == Error.UNKNOWN_LEADER_EPOCH
        assert (await ask(1, registered.epoch, 0)).error == Error.FENCED_LEADER_EPOCH
        assert (await ask(1, registered.epoch, 2)).error == Error.UNKNOWN_LEADER_EPOCH
        assert (await ask(1, *current, offset=5)).error == Error.OFFSET_OUT_OF_RANGE
        parted = await ask(1, *current, offset=3, last=0)
        assert (parted.error, parted.diverging, parted.records) == (0, (0, 1), None)
        # One of a life that the leader has not heard of may read, and counts for nothing: before
        # it registered it may have left the in-sync replicas.
        assert (await ask(1, registered.epoch + 1, 1, offset=1, last=0)).error == Error.NONE
        assert in_sync.followers[1].log_end == 0
        assert (await ask(1, *current, offset=1, last=0)).error == Error.NONE
        await cluster.until_in_sync("t", (0, 1))

    tell(story)


def test_a_leader_without_its_log_says_nothing_of_where_that_ends(tell: Tell) -> None:
    """One that finds no room while it starts leads with an empty log that is offline. A follower
    that took this for the leader's log would cut all that it has."""

    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        for value in "abc":
            assert not (await cluster.produce(0, "t", value)).error_code
        partition = cluster[0].partitions["t", 0]
        epoch, topic_id = partition.leader_epoch, partition.topic_id
        replica_epoch = cluster[0].state.brokers[1].epoch
        await cluster[1].replication.stop()
        log = partition.log
        truncate_to(log, 0)
        log.offline = StorageError(log.folder, "no room")
        connection = await cluster.connection(0)

        async def ask(last_epoch: int, replica: int) -> Any:
            wanted = FetchPartition(0, epoch, 3, last_epoch)
            request = FetchRequest([(topic_id, [wanted])], replica, max_wait_ms=0)
            answer = await connection.fetch(request._replace(replica_epoch=replica_epoch))
            return partitions_of(answer)[0]

        for last_epoch in (0, -1):
            assert (await ask(last_epoch, 1)).error == Error.KAFKA_STORAGE_ERROR
        # A consumer would take it for lost records.
        found = await ask(0, -1)
        assert (found.error, found.diverging) == (Error.KAFKA_STORAGE_ERROR, None)
        for timestamp in (-1, -2):
            for replica in (-1, 1):
                listed = await list_offset(cluster, 0, timestamp, replica_id=replica)
                assert listed.error_code == Error.KAFKA_STORAGE_ERROR
        wanted = {"partition": 0, "current_leader_epoch": epoch, "leader_epoch": 0}
        asked = await cluster.ask(
            0,
            Api.OFFSET_FOR_LEADER_EPOCH,
            replica_id=1,
            topics=[{"topic": "t", "partitions": [wanted]}],
        )
        assert asked.topics[0].partitions[0].error_code == Error.KAFKA_STORAGE_ERROR

    tell(story, 2)


def test_a_second_question_of_a_session_lets_go_of_the_first(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        cluster.deafen(1)
        await cluster.create("u")
        await cluster.write(0, "u", "x")
        connection = await cluster.connection(0, "follower")
        ids = {name: cluster[0].state.topics[name].id for name in "tu"}
        registered: BrokerInfo = cluster[0].state.brokers[1]

        def question(name: str | None, session: int, epoch: int, **more: Any) -> FetchRequest:
            wanted = [] if name is None else [(ids[name], [FetchPartition(0, 0, log_start=0)])]
            return FetchRequest(wanted, max_wait_ms=20_000, replica_id=1, session_id=session,
                                session_epoch=epoch, replica_epoch=registered.epoch,
                                **more)  # fmt: skip

        first = await connection.fetch(question("t", 0, 0))
        session = first.session_id
        assert session
        assert [each.high_watermark for each in partitions_of(first)] == [0]
        waiting = asyncio.ensure_future(connection.fetch(question(None, session, 1)))
        (found,) = [
            each
            for each in cluster[0].replication.follower_sessions._sessions.values()
            if each.id == session
        ]
        await until_async(lambda: found.is_parked, "it waits")
        second = await connection.fetch(question("u", session, 2))
        assert (await waiting).topics == []
        assert [each.records is not None for each in partitions_of(second)] == [True]
        # What was not taken is given again, and what is forgotten is not.
        again = await connection.fetch(question(None, session, 3))
        assert [each.records is not None for each in partitions_of(again)] == [True]
        out = [(ids["u"], [0])]
        waiting = asyncio.ensure_future(connection.fetch(question(None, session, 4, forgotten=out)))
        await until_async(lambda: found.is_parked, "it waits")
        await cluster.write(0, "u", "y")
        assert found.is_parked
        wrong = FetchRequest([], replica_id=1, session_id=session, session_epoch=9)
        other = await cluster.connection(0, "other")
        assert (await other.fetch(wrong)).error == Error.INVALID_FETCH_SESSION_EPOCH
        unknown = FetchRequest([], replica_id=1, session_id=1, session_epoch=9)
        assert (await other.fetch(unknown)).error == Error.FETCH_SESSION_ID_NOT_FOUND
        waiting.cancel()

    tell(story)


def test_a_follower_that_names_a_partition_again_is_told_its_offsets_again(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        cluster.deafen(1)
        topic_id = cluster[0].state.topics["t"].id
        connection = await cluster.connection(0, "follower")

        async def ask(is_named: bool, session: int, epoch: int) -> FetchAnswer:
            wanted = [(topic_id, [FetchPartition(0, 0, log_start=0)])] if is_named else []
            return await connection.fetch(
                FetchRequest(
                    wanted,
                    max_wait_ms=1,
                    replica_id=1,
                    session_id=session,
                    session_epoch=epoch,
                    replica_epoch=cluster[0].state.brokers[1].epoch,
                )
            )

        session = (await ask(True, 0, 0)).session_id
        assert (await ask(False, session, 1)).topics == []
        # It may have dropped what it was told, as the answer to another question.
        (again,) = partitions_of(await ask(True, session, 2))
        assert (again.error, again.high_watermark, again.log_start) == (0, 0, 0)
        assert (await ask(False, session, 3)).topics == []

    tell(story)


def test_a_session_that_a_follower_gave_up_does_not_speak_for_it(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        await cluster.write(0, "t", "a", acks=-1)
        cluster.deafen(1)
        partition = cluster.partition(0, "t")
        assert partition.in_sync is not None
        follower = partition.in_sync.followers[1]
        topic_id = cluster[0].state.topics["t"].id
        epoch = cluster[0].state.brokers[1].epoch

        def question(offset: int, session: int, number: int, is_named: bool) -> FetchRequest:
            wanted = FetchPartition(0, 0, offset, -1 if offset == 0 else 0, 0)
            return FetchRequest([(topic_id, [wanted])] if is_named else [], max_wait_ms=100,
                                replica_id=1, replica_epoch=epoch, session_id=session,
                                session_epoch=number)  # fmt: skip

        present = await cluster.connection(0, "present")
        session = (await present.fetch(question(1, 0, 0, True))).session_id
        assert follower.log_end == 1
        # The first question of a former session was on its way for long.
        former = await cluster.connection(0, "former")
        await former.fetch(question(0, 0, 0, True))
        assert follower.log_end == 0
        # What grows is still told to the session that goes on.
        waiting = asyncio.ensure_future(present.fetch(question(1, session, 1, False)))
        await cluster.write(0, "t", "b")
        assert [each.records is not None for each in partitions_of(await waiting)] == [True]
        # When the former connection ends, what the present session said counts again.
        former.close()
        await until_async(
            lambda: len(partition.follower_sessions or ()) == 1, "its session has ended too"
        )
        await present.fetch(question(1, session, 2, False))
        assert follower.log_end == 1

    tell(story)


def test_consumers_that_say_where_they_stand_may_read_from_a_replica_nearby(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.stop(1)
        await cluster.start(1, broker_rack="west")
        await cluster.create("t")
        await cluster.write(0, "t", "a", acks=-1)

        async def fetch(number: int, rack: str, offset: int = 0) -> Any:
            wanted = {
                "partition": 0,
                "fetch_offset": offset,
                "current_leader_epoch": -1,
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
                "partition_max_bytes": 1 << 20,
            }
            connection = await cluster.connection(number)
            values = {
                "replica_id": -1,
                "max_wait": 5_000,
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "isolation_level": 0,
                "session_id": 0,
                "session_epoch": -1,
                "topics": [{"topic": "t", "partitions": [wanted]}],
                "forgotten_topics_data": [],
                "rack_id": rack,
            }
            answer = await connection.ask(Api.FETCH, values, 12)
            return answer.responses[0].partitions[0]

        near = await fetch(0, "west")
        assert (near.preferred_read_replica, near.records or b"") == (1, b"")
        for rack in ("", "north"):
            found = await fetch(0, rack)
            assert found.preferred_read_replica == -1
            assert found.records
        assert (await fetch(0, "west", 7)).error_code == Error.OFFSET_OUT_OF_RANGE
        assert (await fetch(1, "")).error_code == Error.NOT_LEADER_OR_FOLLOWER
        # A follower's consumers hear of what is committed without delay, and of nothing else.
        assert (await fetch(1, "west")).records
        waiting = asyncio.ensure_future(fetch(1, "west", 1))
        await until_async(lambda: cluster.partition(1, "t").waiters, "it waits")
        await cluster.write(0, "t", "b", acks=-1)
        assert (await waiting).records
        # One that is out of sync is nobody's choice.
        cluster.deafen(1)
        await cluster.lead("t", 0, (0,))
        assert (await fetch(0, "west")).preferred_read_replica == -1

    tell(
        story,
        replica_selector_class="org.apache.kafka.common.replica.RackAwareReplicaSelector",
        replica_fetch_wait_max_ms="5000",
    )
