"""Transactions on a cluster whose brokers die: what was decided is done, and nothing else."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from moldau.testing import Cluster, Ensemble
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.wire_client import Client, make_batch, produce_values
from tests.scenarios.clients import IMPATIENT
from tests.transactions.replica import read_replica

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

WITHIN_S = 60.0


def client_of(cluster: Cluster, broker: int) -> Client:
    host, _, port = cluster.address(broker).rpartition(":")
    return Client((host, int(port)))


def coordinator_of(cluster: Cluster, id: str) -> int:
    """The broker that coordinates a transactional id, once there is one."""
    found = -1

    def is_found() -> bool:
        nonlocal found
        for broker in cluster.running:
            with client_of(cluster, broker) as client:
                answer = client.ask(Api.FIND_COORDINATOR, 1, key=id, key_type=1)
            if not answer.error_code and answer.node_id in cluster.running:
                found = answer.node_id
                return True
        return False

    cluster.wait_until(is_found, f"a coordinator of {id}")
    return found


def state_of(cluster: Cluster, id: str) -> str:
    """The state of a transaction, wherever it is coordinated; empty if nobody says."""
    for broker in cluster.running:
        with client_of(cluster, broker) as client:
            for each in client.ask(Api.LIST_TRANSACTIONS, 0).transaction_states:
                if each.transactional_id == id:
                    return str(each.transaction_state)
    return ""


def coordinated_elsewhere(cluster: Cluster, leader: int) -> str:
    """A transactional id that another broker coordinates."""
    return next(
        id
        for id in (f"txn-{number}" for number in itertools.count())
        if coordinator_of(cluster, id) != leader
    )


def newest(cluster: Cluster, topic: str) -> dict[bytes, bytes]:
    """The newest value of each key that a read-committed consumer sees."""
    return {key: value.strip() for key, value in committed_records(cluster, topic, 1)}


def committed(cluster: Cluster, topic: str, partitions: int = 1) -> list[str]:
    """Everything that a read-committed consumer sees, to the end of each partition."""
    return [value.decode() for _, value in committed_records(cluster, topic, partitions)]


def committed_records(cluster: Cluster, topic: str, partitions: int) -> list[tuple[bytes, bytes]]:
    consumer = Consumer(
        {
            **IMPATIENT,
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    found: list[tuple[bytes, bytes]] = []
    ended: set[int] = set()
    deadline = time.monotonic() + WITHIN_S
    try:
        while len(ended) < partitions:
            assert time.monotonic() < deadline, f"{len(found)} messages in {WITHIN_S:g} s"
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append((message.key() or b"", message.value() or b""))
            elif error.name() == "_PARTITION_EOF":
                ended.add(message.partition() or 0)
    finally:
        consumer.close()
    return found


def test_a_coordinator_is_killed_between_its_decision_and_the_markers(ensemble: Ensemble) -> None:
    with Cluster(3, ensemble) as cluster:
        cluster.create_topic("orders", partitions=1, replication_factor=1)
        leader = cluster.leader_of("orders")
        id = coordinated_elsewhere(cluster, leader)
        cluster.wait_until_in_sync("__transaction_state")
        producer = Producer(
            {**IMPATIENT, "bootstrap.servers": cluster.bootstrap, "transactional.id": id}
        )
        producer.init_transactions(WITHIN_S)
        producer.begin_transaction()
        producer.produce("orders", b"decided")
        assert producer.flush(WITHIN_S) == 0
        # Nobody leads the partition now, so no marker can be written.
        cluster.kill(leader)
        producer.commit_transaction(WITHIN_S)
        assert state_of(cluster, id) == "PrepareCommit"
        coordinator = coordinator_of(cluster, id)
        assert coordinator != leader
        cluster.kill(coordinator)
        cluster.start(leader)
        cluster.wait_until(
            lambda: state_of(cluster, id) == "CompleteCommit", "the next coordinator to finish"
        )
        assert committed(cluster, "orders") == ["decided"]
        cluster.start(coordinator)
        producer.begin_transaction()
        producer.produce("orders", b"next")
        producer.commit_transaction(WITHIN_S)
        cluster.wait_until(lambda: state_of(cluster, id) == "CompleteCommit", "the next commit")
        assert committed(cluster, "orders") == ["decided", "next"]


def test_a_leader_asks_a_coordinator_elsewhere_before_it_takes_a_write(ensemble: Ensemble) -> None:
    """The newer dialect: the partition is added by its leader."""
    with Cluster(2, ensemble) as cluster:
        cluster.create_topic("orders", partitions=1, replication_factor=1)
        leader = cluster.leader_of("orders")
        id = coordinated_elsewhere(cluster, leader)
        with (
            client_of(cluster, leader) as data,
            client_of(cluster, coordinator_of(cluster, id)) as coordinator,
        ):
            values: dict[str, Any] = {"transactional_id": id, "transaction_timeout": 60_000}
            who = coordinator.ask(Api.INIT_PRODUCER_ID, 1, **values)
            assert who.error_code == 0

            def produce(epoch: int, version: int) -> int:
                batch = make_batch(
                    b"x", producer_id=who.producer_id, producer_epoch=epoch, base_sequence=0,
                    is_transactional=True,
                )  # fmt: skip
                asked = produce_values({"orders": {0: batch}}) | {"transactional_id": id}
                answer = data.ask(Api.PRODUCE, version, **asked)
                return int(answer.responses[0].partition_responses[0].error_code)

            assert produce(0, 11) == Error.TRANSACTION_ABORTABLE
            assert produce(7, 12) == Error.INVALID_PRODUCER_EPOCH
            assert produce(0, 12) == 0
            assert state_of(cluster, id) == "Ongoing"
            end = {"transactional_id": id, "producer_id": who.producer_id, "producer_epoch": 0}
            answer = coordinator.ask(Api.END_TXN, 5, **end, committed=True)
            assert (answer.error_code, answer.producer_epoch) == (0, 1)
            cluster.wait_until(lambda: state_of(cluster, id) == "CompleteCommit", "its markers")
        assert committed(cluster, "orders") == ["x"]


def test_a_transaction_that_was_taken_over_takes_no_late_write_at_any_leader(
    ensemble: Ensemble,
) -> None:
    """KIP-939: neither the leader that heard of it from a coordinator elsewhere, nor the next."""
    with Cluster(3, ensemble) as cluster:
        cluster.create_topic("orders", partitions=1, replication_factor=3)
        leader = cluster.leader_of("orders")
        id = coordinated_elsewhere(cluster, leader)
        coordinator = coordinator_of(cluster, id)
        cluster.wait_until_in_sync("orders", "__transaction_state")
        values: dict[str, Any] = {"transactional_id": id, "transaction_timeout": 60_000}
        values |= {"producer_id": -1, "producer_epoch": -1, "enable2_pc": True}

        def produce(broker: int, value: bytes, sequence: int) -> int:
            batch = make_batch(
                value, producer_id=who.producer_id, producer_epoch=who.producer_epoch,
                base_sequence=sequence, is_transactional=True,
            )  # fmt: skip
            asked = produce_values({"orders": {0: batch}}) | {"transactional_id": id}
            with client_of(cluster, broker) as client:
                answer = client.ask(Api.PRODUCE, 12, **asked)
            return int(answer.responses[0].partition_responses[0].error_code)

        with client_of(cluster, coordinator) as client:
            who = client.ask(Api.INIT_PRODUCER_ID, 6, **values)
            assert who.error_code == 0
            assert produce(leader, b"staged", 0) == 0
            heir = client.ask(Api.INIT_PRODUCER_ID, 6, **values, keep_prepared_txn=True)
            assert heir.error_code == 0
            assert produce(leader, b"late", 1) == Error.INVALID_PRODUCER_EPOCH
            cluster.kill(leader)
            cluster.wait_until(lambda: cluster.leader_of("orders") != leader, "another leader")
            following = cluster.leader_of("orders")
            assert produce(following, b"late", 1) == Error.INVALID_PRODUCER_EPOCH
            end = {"transactional_id": id, "producer_id": heir.producer_id}
            end["producer_epoch"] = heir.producer_epoch
            answer = client.ask(Api.END_TXN, 5, **end, committed=True)
            assert answer.error_code == 0
            cluster.wait_until(lambda: state_of(cluster, id) == "CompleteCommit", "its markers")
        assert committed(cluster, "orders") == ["staged"]


def insist(call: Callable[..., None], *arguments: Any) -> None:
    """Call what a client may have to be told again, which finds out what came of it."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            call(*arguments, WITHIN_S)
        except KafkaException as problem:
            if not problem.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return


def test_coordinators_are_killed_and_frozen_under_load(ensemble: Ensemble) -> None:
    with Cluster(3, ensemble) as cluster:
        cluster.create_topic("orders", partitions=3, replication_factor=3)
        coordinator = coordinator_of(cluster, "txn")
        cluster.wait_until_in_sync("__transaction_state")
        producer = Producer(
            {**IMPATIENT, "bootstrap.servers": cluster.bootstrap, "transactional.id": "txn"}
        )
        producer.init_transactions(WITHIN_S)
        group = Consumer({**IMPATIENT, "bootstrap.servers": cluster.bootstrap, "group.id": "group"})
        wanted: list[str] = []

        def transact(number: int, *, commits: bool) -> None:
            producer.begin_transaction()
            value = f"{number} {commits}"
            for partition in range(3):
                producer.produce("orders", value, partition=partition)
            assert producer.flush(WITHIN_S) == 0
            # librdkafka #5511: this must not hang when the group's coordinator goes.
            position = [TopicPartition("orders", 0, number + 1)]
            insist(producer.send_offsets_to_transaction, position, group.consumer_group_metadata())
            insist(producer.commit_transaction if commits else producer.abort_transaction)
            if commits:
                wanted.append(value)

        numbers = itertools.count()
        for round_ in range(3):
            for commits in (True, False, True):
                transact(next(numbers), commits=commits)
            coordinator = coordinator_of(cluster, "txn")
            if round_ == 1:
                cluster.freeze(coordinator)
            else:
                cluster.kill(coordinator)
            for commits in (True, False):
                transact(next(numbers), commits=commits)
            if round_ == 1:
                cluster.thaw(coordinator)
            else:
                cluster.start(coordinator)
            cluster.wait_until_in_sync("__transaction_state")
        cluster.wait_until(lambda: state_of(cluster, "txn").startswith("Complete"), "the last end")
        assert Counter(committed(cluster, "orders", 3)) == Counter(dict.fromkeys(wanted, 3))


def group_coordinator_of(cluster: Cluster, group: str) -> int:
    """The broker that coordinates a group, once there is one."""
    found = -1

    def is_found() -> bool:
        nonlocal found
        with client_of(cluster, cluster.running[0]) as client:
            answer = client.ask(Api.FIND_COORDINATOR, 1, key=group, key_type=0)
        found = answer.node_id
        return not answer.error_code and found in cluster.running

    cluster.wait_until(is_found, f"a coordinator of {group}")
    return found


def test_offsets_are_sent_while_the_groups_coordinators_are_restarted(ensemble: Ensemble) -> None:
    """librdkafka #5511: it hangs where a group's coordinator is gone for good."""
    with Cluster(3, ensemble) as cluster:
        cluster.create_topic("orders", partitions=1)
        producer = Producer(
            {**IMPATIENT, "bootstrap.servers": cluster.bootstrap, "transactional.id": "txn"}
        )
        producer.init_transactions(WITHIN_S)
        group = Consumer({**IMPATIENT, "bootstrap.servers": cluster.bootstrap, "group.id": "group"})
        metadata = group.consumer_group_metadata()

        def committed_offset() -> int:
            (found,) = group.committed([TopicPartition("orders", 0)], WITHIN_S)
            return int(found.offset)

        offsets = itertools.count(1)
        for restarts in range(3):
            coordinator = group_coordinator_of(cluster, "group")
            producer.begin_transaction()
            producer.produce("orders", b"x")
            insist(
                producer.send_offsets_to_transaction,
                [TopicPartition("orders", 0, next(offsets))],
                metadata,
            )
            cluster.stop(coordinator)
            # The next coordinator has the staged offset, and takes another one.
            offset = next(offsets)
            position = [TopicPartition("orders", 0, offset)]
            insist(producer.send_offsets_to_transaction, position, metadata)
            insist(producer.commit_transaction)
            cluster.wait_until(
                lambda offset=offset: committed_offset() == offset,  # type: ignore[misc]
                f"the offset of transaction {restarts}",
            )
            cluster.start(coordinator)
            cluster.wait_until_in_sync()
        group.close()


def test_a_new_replica_of_a_compacted_topic_shows_what_was_committed(ensemble: Ensemble) -> None:
    """KAFKA-8351, redpanda #15672 and their kin: the leader has compacted transactions that were
    committed, aborted or still open; a new replica is made of what it left, and leads."""
    quick = {"log.cleaner.backoff.ms": "200", "transaction.state.log.num.partitions": "3"}
    with Cluster(3, ensemble, settings=quick) as cluster:
        cluster.create_topic(
            "keyed", partitions=1, replication_factor=2, cleanup_policy="compact",
            segment_bytes=2000, min_cleanable_dirty_ratio="0.01", delete_retention_ms=0,
        )  # fmt: skip
        producers = [
            Producer({**IMPATIENT, "bootstrap.servers": cluster.bootstrap, "transactional.id": id})
            for id in ("a", "b", "c")
        ]
        for each in producers:
            each.init_transactions(WITHIN_S)
        wanted: dict[bytes, bytes] = {}

        def write(producer: Producer, key: bytes, value: bytes) -> None:
            producer.produce("keyed", value + b" " * 80, key)
            assert producer.flush(WITHIN_S) == 0

        def transact(rounds: range) -> None:
            """Two producers' transactions lie across each other, and one is aborted."""
            for number in rounds:
                for producer in producers[:2]:
                    producer.begin_transaction()
                for turn in range(3):
                    for producer, name in zip(producers[:2], (b"a", b"b"), strict=True):
                        write(producer, b"%s%d" % (name, turn), b"%d" % number)
                insist(producers[0].commit_transaction)
                insist(producers[1].abort_transaction)
                wanted.update({b"a%d" % turn: b"%d" % number for turn in range(3)})

        transact(range(12))
        # From here on nothing may be compacted that the open one stands before.
        producers[2].begin_transaction()
        write(producers[2], b"c", b"open")
        transact(range(12, 24))
        leader = cluster.leader_of("keyed")
        folder = cluster.data_dir(leader) / "keyed-0"

        def is_compacted() -> bool:
            entries = read_replica(folder)
            kept = [each for each in entries if each.value.strip() == b"0"]
            return not kept and any(each.commits is None for each in entries)

        cluster.wait_until(is_compacted, "the cleaner")
        insist(producers[2].commit_transaction)
        wanted[b"c"] = b"open"
        (follower,) = (
            each
            for each in cluster.brokers
            if each != leader and (cluster.data_dir(each) / "keyed-0").exists()
        )
        cluster.kill(follower)
        cluster.wipe(follower)
        cluster.start(follower)
        cluster.wait_until_in_sync("keyed")
        cluster.kill(leader)
        assert cluster.leader_of("keyed") == follower
        assert newest(cluster, "keyed") == wanted
