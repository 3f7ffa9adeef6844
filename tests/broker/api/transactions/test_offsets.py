"""Offsets that are committed with a transaction: when they count, and what wins over them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moldau.broker.server import Broker as Server
from moldau.cluster.state.topics import PartitionState
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.api.transactions.producing import TV1, TV2, Producer
from tests.broker.wire_client import Client, fresh_name, inside, versions


@pytest.fixture(params=[TV1, TV2])
def producer(request: pytest.FixtureRequest, moldau_broker: Broker) -> Iterator[Producer]:
    with Client(moldau_broker) as client:
        client.create("topic")
        client.ask(Api.FIND_COORDINATOR, 0, key="group")
    producer = Producer(moldau_broker, request.param).init()
    yield producer
    producer.client.close()


def fetched(broker: Broker, group: str = "group", *, stable: bool = False) -> tuple[int, int]:
    """The error and the offset that the group has committed."""
    topics = [{"name": "topic", "partition_indexes": [0]}]
    with Client(broker) as client:
        answer = client.ask(
            Api.OFFSET_FETCH, 7, group_id=group, topics=topics, require_stable=stable
        )
    if answer.error_code:
        # Groups are still being read back.
        return int(answer.error_code), -1
    found = answer.topics[0].partitions[0]
    return int(found.error_code), int(found.committed_offset)


def commit(broker: Broker, offset: int, group: str = "group") -> None:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    with Client(broker) as client:
        answer = client.ask(
            Api.OFFSET_COMMIT, 7, group_id=group, generation_id_or_member_epoch=-1, member_id="",
            topics=[{"name": "topic", "partitions": [partition]}],
        )  # fmt: skip
    assert answer.topics[0].partitions[0].error_code == 0


UNSTABLE = (int(Error.UNSTABLE_OFFSET_COMMIT), -1)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
def test_staged_offsets_count_when_the_transaction_is_committed(
    moldau_broker: Broker, producer: Producer, commits: bool, restarts: bool
) -> None:
    commit(moldau_broker, 3)
    assert producer.ask_commit_offset("group", "topic", 5) == 0
    assert fetched(moldau_broker) == (0, 3)
    assert fetched(moldau_broker, stable=True) == UNSTABLE
    if restarts:
        producer.client.close()
        moldau_broker.stop()
        moldau_broker.start()
        producer.client = Client(moldau_broker)
        until(lambda: fetched(moldau_broker, stable=True) == UNSTABLE, "groups to be read back")
        assert fetched(moldau_broker) == (0, 3)
        until(lambda: producer.state() == "Ongoing", "transactions to be read back")
    producer.end(commits=commits)
    # KAFKA-17507: the transaction is complete only when the offsets can be read.
    producer.until("CompleteCommit" if commits else "CompleteAbort")
    assert fetched(moldau_broker, stable=True) == (0, 5 if commits else 3)
    if restarts:
        producer.client.close()
        moldau_broker.stop()
        moldau_broker.start()
        producer.client = Client(moldau_broker)
        until(lambda: fetched(moldau_broker)[1] == (5 if commits else 3), "groups to be read back")


def test_markers_are_answered_when_the_offsets_can_be_read(
    moldau_broker: Broker, producer: Producer
) -> None:
    """KAFKA-17507, as another broker sees it that coordinates the transaction: until every in-sync
    replica has the marker the offsets do not count, and nobody is told that they do."""
    assert producer.ask_commit_offset("group", "topic", 5) == 0

    def follow(server: Server, isr: tuple[int, ...]) -> int:
        index = server.groups.shards.partition_of("group")
        partition = server.partitions["__consumer_offsets", index]
        epoch = partition.leader_epoch
        partition.become(PartitionState((0, 99), isr, 0, epoch))
        partition.wake()
        return index

    index = inside(moldau_broker, lambda server: follow(server, (0, 99)))
    marker = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch + (producer.dialect == TV2),
        "transaction_result": True,
        "topics": [{"name": "__consumer_offsets", "partition_indexes": [index]}],
        "coordinator_epoch": 0,
        "transaction_version": producer.dialect,
    }
    with Client(moldau_broker) as other:
        other.send(Api.WRITE_TXN_MARKERS, 2, markers=[marker])
        other.expect_nothing()
        assert fetched(moldau_broker, stable=True) == UNSTABLE
        inside(moldau_broker, lambda server: follow(server, (0,)))
        answer = other.receive()
    assert answer.markers[0].topics[0].partitions[0].error_code == 0
    assert fetched(moldau_broker, stable=True) == (0, 5)


def test_an_offset_committed_after_a_staged_one_wins_and_still_does_after_a_restart(
    moldau_broker: Broker, producer: Producer
) -> None:
    """redpanda #31483: the order is that of the records, which is all that compaction leaves."""
    assert producer.ask_commit_offset("group", "topic", 5) == 0
    commit(moldau_broker, 9)
    assert fetched(moldau_broker, stable=True) == UNSTABLE
    producer.end(commits=True)
    producer.until("CompleteCommit")
    assert fetched(moldau_broker) == (0, 9)
    producer.client.close()
    moldau_broker.stop()
    moldau_broker.start()
    producer.client = Client(moldau_broker)
    until(lambda: fetched(moldau_broker) == (0, 9), "groups to be read back")


def test_of_two_transactions_the_one_that_staged_last_wins(
    moldau_broker: Broker, producer: Producer
) -> None:
    other = Producer(moldau_broker, producer.dialect).init()
    assert producer.ask_commit_offset("group", "topic", 5) == 0
    assert other.ask_commit_offset("group", "topic", 7) == 0
    for each in (other, producer):
        each.end(commits=True)
        each.until("CompleteCommit")
    assert fetched(moldau_broker, stable=True) == (0, 7)
    for each in (other, producer):
        each.client.close()
    moldau_broker.stop()
    moldau_broker.start()
    producer.client = Client(moldau_broker)
    until(lambda: fetched(moldau_broker) == (0, 7), "groups to be read back")


def test_a_group_may_be_deleted_beside_a_staged_offset_which_then_never_counts(
    moldau_broker: Broker, producer: Producer
) -> None:
    assert producer.ask_commit_offset("group", "topic", 5) == 0
    answer = producer.client.ask(Api.DELETE_GROUPS, groups_names=["group"])
    assert answer.results[0].error_code == 0
    producer.end(commits=True)
    producer.until("CompleteCommit")
    assert fetched(moldau_broker) == (0, -1)
    producer.client.close()
    moldau_broker.stop()
    moldau_broker.start()
    producer.client = Client(moldau_broker)
    until(lambda: fetched(moldau_broker, stable=True) == (0, -1), "groups to be read back")


def test_offsets_of_an_open_transaction_do_not_expire() -> None:
    """redpanda #31483, the other half; nor does the committed one beneath."""
    with Broker(offsets_retention_minutes=1) as broker:
        with Client(broker) as client:
            client.create("topic")
            client.ask(Api.FIND_COORDINATOR, 0, key="group")
        producer = Producer(broker).init()
        commit(broker, 3)
        assert producer.ask_commit_offset("group", "topic", 5) == 0

        def expire(server: Server) -> Any:
            server.groups._host.now_ms = lambda: server.node.now_ms() + 3_600_000  # type: ignore[method-assign]
            return server.groups.expire_offsets()

        broker._call(inside(broker, expire))
        assert fetched(broker) == (0, 3)
        producer.end(commits=True)
        producer.until("CompleteCommit")
        assert fetched(broker) == (0, 5)
        producer.client.close()


def test_a_staged_offset_of_a_deleted_topic_never_counts(
    moldau_broker: Broker, producer: Producer
) -> None:
    assert producer.ask_commit_offset("group", "topic", 5) == 0
    producer.client.ask(Api.DELETE_TOPICS, topics=[{"name": "topic"}], timeout=5_000)
    producer.end(commits=True)
    producer.until("CompleteCommit")
    assert fetched(moldau_broker) == (0, -1)


@pytest.mark.parametrize("version", versions(Api.TXN_OFFSET_COMMIT))
def test_offsets_of_the_wrong_producer_or_member_are_refused(
    moldau_session_broker: Broker, version: int
) -> None:
    with Client(moldau_session_broker) as client:
        topic, group = client.create(), fresh_name("group")
        client.ask(Api.FIND_COORDINATOR, 0, key=group)
    producer = Producer(moldau_session_broker, TV2).init()
    if version < 5:
        # Nobody has told the coordinator.
        code = producer.ask_commit_offset(group, topic, 1, version)
        assert code == (Error.TRANSACTION_ABORTABLE if version == 4 else Error.INVALID_TXN_STATE)
        added = producer.client.ask(Api.ADD_OFFSETS_TO_TXN, 0, **producer.who, group_id=group)
        assert added.error_code == 0
    wrong = {"producer_epoch": 9}
    code = producer.ask_commit_offset(group, topic, 1, version, **wrong)
    assert code == Error.INVALID_PRODUCER_EPOCH
    code = producer.ask_commit_offset(group, topic, 1, version, producer_id=7_777)
    assert code == Error.INVALID_PRODUCER_ID_MAPPING
    assert producer.ask_commit_offset("", topic, 1, version) == Error.INVALID_GROUP_ID
    code = producer.ask_commit_offset(group, "none-such", 1, version)
    assert code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.ask_commit_offset(group, topic, 1, version) == 0
    if version >= 3:
        code = producer.ask_commit_offset(fresh_name("g"), topic, 1, version, generation_id=3)
        assert code in (Error.ILLEGAL_GENERATION, Error.INVALID_TXN_STATE, 120)
        code = producer.ask_commit_offset(group, topic, 1, version, member_id="x", generation_id=3)
        assert code in (Error.UNKNOWN_MEMBER_ID, Error.ILLEGAL_GENERATION)
    producer.client.close()


@pytest.mark.parametrize("version", versions(Api.ADD_OFFSETS_TO_TXN))
def test_a_group_is_added_by_the_right_producer_only(
    moldau_session_broker: Broker, version: int
) -> None:
    producer = Producer(moldau_session_broker, TV1).init()

    def code(**more: Any) -> int:
        values = {**producer.who, "group_id": "g"} | more
        return int(producer.client.ask(Api.ADD_OFFSETS_TO_TXN, version, **values).error_code)

    fenced = Error.PRODUCER_FENCED if version >= 2 else Error.INVALID_PRODUCER_EPOCH
    assert code(producer_epoch=9) == fenced
    assert code(producer_id=7_777) == Error.INVALID_PRODUCER_ID_MAPPING
    assert code(transactional_id="") == Error.INVALID_REQUEST
    assert code() == 0
    assert producer.state() == "Ongoing"
    producer.client.close()
