"""Offsets in transactions whose coordinator is not the group's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moldau.testing import Cluster, Ensemble
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.wire_client import Client
from tests.scenarios.transactions.test_transactions import (
    client_of,
    coordinated_elsewhere,
    coordinator_of,
    group_coordinator_of,
)
from tests.transactions.replica import read_replica

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

# A follower that is frozen stays in sync for as long as the test takes.
_SETTINGS = {
    "zookeeper.session.timeout.ms": "40000",
    "replica.lag.time.max.ms": "60000",
    "transaction.state.log.replication.factor": "1",
    "offsets.topic.num.partitions": "3",
}
_OFFSET = 5
_LOOKS = 20


def fetched(groups: Client) -> tuple[int, int]:
    """The error and the offset, of a client that wants no offset that may still change."""
    topics = [{"name": "orders", "partition_indexes": [0]}]
    answer = groups.ask(Api.OFFSET_FETCH, 7, group_id="group", topics=topics, require_stable=True)
    found = answer.topics[0].partitions[0]
    return int(found.error_code), int(found.committed_offset)


def is_marked(folder: Path) -> bool:
    """Whether nothing is open in the offsets on one broker's disk, and something was."""
    entries = [
        entry for each in folder.glob("__consumer_offsets-*") for entry in read_replica(each)
    ]
    return bool(entries) and all(entry.commits is not None for entry in entries)


def test_a_transaction_is_not_complete_before_its_offsets_can_be_read_elsewhere(
    ensemble: Ensemble,
) -> None:
    """KAFKA-17507: the group's coordinator has the marker, but a follower lacks it."""
    with Cluster(3, ensemble, settings=_SETTINGS) as cluster:
        cluster.create_topic("orders", partitions=1)
        group = group_coordinator_of(cluster, "group")
        id = coordinated_elsewhere(cluster, group)
        coordinator = coordinator_of(cluster, id)
        (third,) = {*cluster.brokers} - {group, coordinator}
        cluster.wait_until_in_sync("__consumer_offsets")
        with (
            client_of(cluster, group) as groups,
            client_of(cluster, coordinator) as transactions,
        ):
            values: dict[str, Any] = {"transactional_id": id, "transaction_timeout": 60_000}
            begun = transactions.ask(Api.INIT_PRODUCER_ID, 1, **values)
            assert begun.error_code == 0
            who = {"transactional_id": id, "producer_id": begun.producer_id}
            who["producer_epoch"] = begun.producer_epoch
            partition = {
                "partition_index": 0, "committed_offset": _OFFSET, "committed_metadata": ""
            }  # fmt: skip
            topics = [{"name": "orders", "partitions": [partition]}]

            def is_staged() -> bool:
                answer = groups.ask(
                    Api.TXN_OFFSET_COMMIT, 5, **who, group_id="group", generation_id=-1,
                    member_id="", topics=topics,
                )  # fmt: skip
                return int(answer.topics[0].partitions[0].error_code) == 0

            def state() -> str:
                answer = transactions.ask(Api.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[id])
                return str(answer.transaction_states[0].transaction_state)

            cluster.wait_until(is_staged, "a staged offset")
            cluster.freeze(third)
            assert transactions.ask(Api.END_TXN, 5, **who, committed=True).error_code == 0
            cluster.wait_until(lambda: is_marked(cluster.data_dir(group)), "the marker")
            for _ in range(_LOOKS):
                assert fetched(groups) == (Error.UNSTABLE_OFFSET_COMMIT, -1)
                assert state() == "PrepareCommit"
            cluster.thaw(third)
            cluster.wait_until(lambda: state() == "CompleteCommit", "the end")
            assert fetched(groups) == (0, _OFFSET)
