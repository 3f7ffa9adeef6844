"""Transactions in partitions with several replicas, as scripts."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from typing import Any

import pytest

from moldau.log.log import Log
from moldau.records.record import Record, build_batch
from moldau.testing.waiting import until_async
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.replication.brokers import Brokers
from tests.broker.replication.conftest import Tell
from tests.log.transactions.transacting import values

COMMITTED = 1
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def begin(cluster: Brokers, number: int, value: bytes, sequence: int = 0) -> int:
    """Write to a transaction of producer 9 at a leader, which asks nobody; the offset."""
    partition = cluster.partition(number, "t")
    now = time.time_ns() // 1_000_000
    batch = build_batch(
        [Record(0, now, b"k", value)],
        producer_id=9,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )
    guard = partition.log.producers.verifications.begin(9, 0, sequence, now, False)
    offset, _ = partition.append(memoryview(batch), now, guard=guard)
    cluster[number].partitions.commit([])
    return offset


async def end(cluster: Brokers, number: int, *, commits: bool, coordinator_epoch: int = 0) -> Error:
    marker = {
        "producer_id": 9,
        "producer_epoch": 0,
        "transaction_result": commits,
        "topics": [{"name": "t", "partition_indexes": [0]}],
        "coordinator_epoch": coordinator_epoch,
        "transaction_version": 0,
    }
    answer = await cluster.ask(number, Api.WRITE_TXN_MARKERS, markers=[marker])
    return Error(answer.markers[0].topics[0].partitions[0].error_code)


def log_of(cluster: Brokers, number: int) -> Log:
    return cluster.partition(number, "t").log


async def until_stable(cluster: Brokers, offset: int, *numbers: int) -> None:
    await until_async(
        lambda: all(log_of(cluster, number).last_stable == offset for number in numbers),
        f"the last stable offset {offset}",
    )


def indexed(log: Log) -> list[Any]:
    return [
        each
        for segment in log.segments
        if segment.aborted is not None
        for each in segment.aborted.transactions()
    ]


def test_every_replica_knows_what_was_aborted(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        for sequence in range(3):
            begin(cluster, 0, b"%d" % sequence, sequence)
            assert await end(cluster, 0, commits=sequence == 1) is Error.NONE
        await cluster.until_same("t", 0, 1, watermark=6)
        await until_stable(cluster, 6, 0, 1)
        assert indexed(log_of(cluster, 0)) == indexed(log_of(cluster, 1)) != []
        assert values(log_of(cluster, 1)) == [b"1"]
        # A consumer that reads from the replica in its own rack is told so, too.
        fetched = await cluster.fetch(
            1, "t", isolation_level=COMMITTED, rack_id="r1", max_wait_ms=0
        )
        assert not fetched.error
        assert (fetched.last_stable, fetched.aborted) == (6, [(9, 0), (9, 4)])

    tell(story, replica_selector_class=RACK_AWARE)


def test_a_new_leader_takes_the_marker_of_what_the_old_one_wrote(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        start = begin(cluster, 0, b"x")
        await cluster.until_same("t", 0, 1, watermark=1)
        await cluster.lead("t", 1, (0, 1))
        assert log_of(cluster, 1).last_stable == start
        assert await end(cluster, 0, commits=False) is Error.NOT_LEADER_OR_FOLLOWER
        assert await end(cluster, 1, commits=False, coordinator_epoch=4) is Error.NONE
        await until_stable(cluster, 2, 0, 1)
        assert values(log_of(cluster, 0)) == values(log_of(cluster, 1)) == []
        # What fences a coordinator moves along with the partition.
        await cluster.lead("t", 0, (0, 1))
        fenced = await end(cluster, 0, commits=True, coordinator_epoch=3)
        assert fenced is Error.TRANSACTION_COORDINATOR_FENCED

    tell(story)


def test_a_marker_that_only_the_old_leader_had_never_happened(tell: Tell) -> None:
    """It is not answered, ends nothing for readers, and gives way to the new leader's."""

    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        start = begin(cluster, 0, b"x")
        await cluster.until_same("t", 0, 1, watermark=1)
        cluster.deafen(1)
        lost = asyncio.create_task(end(cluster, 0, commits=False))
        await until_async(lambda: log_of(cluster, 0).log_end == 2, "the marker")
        assert indexed(log_of(cluster, 0)) != []
        assert log_of(cluster, 0).last_stable == start
        await cluster.lead("t", 1, (0, 1))
        assert await lost is Error.NOT_LEADER_OR_FOLLOWER
        assert await end(cluster, 1, commits=True) is Error.NONE
        await cluster.until_same("t", 0, 1, watermark=2)
        await until_stable(cluster, 2, 0, 1)
        assert indexed(log_of(cluster, 0)) == []
        assert values(log_of(cluster, 0)) == [b"x"]

    tell(story)


@pytest.mark.parametrize("commits", [True, False])
def test_a_replica_is_made_of_the_rest_of_a_transaction(tell: Tell, commits: bool) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        begin(cluster, 0, b"deleted")
        await cluster.write(0, "t", "plain", acks=-1)
        second = begin(cluster, 0, b"kept", 1)
        await cluster.until_same("t", 0, 1, watermark=3)
        assert (await cluster.delete_records(0, "t", second))[0] is Error.NONE
        folder = log_of(cluster, 1).folder
        await cluster.stop(1)
        shutil.rmtree(folder)
        await cluster.start(1)
        await until_async(lambda: log_of(cluster, 1).log_end == 3, "a copy")
        await until_stable(cluster, second, 0, 1)
        assert log_of(cluster, 1).log_start == second
        await cluster.until_in_sync("t", (0, 1))
        assert await end(cluster, 0, commits=commits) is Error.NONE
        await until_stable(cluster, 4, 0, 1)
        expected = [b"kept"] if commits else []
        assert values(log_of(cluster, 0)) == values(log_of(cluster, 1)) == expected

    tell(story)


def test_a_restarted_replica_finds_its_transactions_again(tell: Tell) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t")
        begin(cluster, 0, b"aborted")
        assert await end(cluster, 0, commits=False) is Error.NONE
        start = begin(cluster, 0, b"open", 1)
        await cluster.until_same("t", 0, 1, watermark=3)
        folder = log_of(cluster, 1).folder
        await cluster.stop(1)
        # After a clean stop nothing is read again, unless something is missing.
        os.truncate(f"{folder}/00000000000000000000.txnindex", 0)
        await cluster.start(1)
        await cluster.until_in_sync("t", (0, 1))
        await until_stable(cluster, start, 0, 1)
        assert indexed(log_of(cluster, 1)) == indexed(log_of(cluster, 0)) != []
        await cluster.lead("t", 1, (0, 1))
        assert await end(cluster, 1, commits=True) is Error.NONE
        await until_stable(cluster, 4, 0, 1)
        assert values(log_of(cluster, 1)) == [b"open"]

    tell(story)
