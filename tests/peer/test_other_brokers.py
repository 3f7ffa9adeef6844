"""Against brokers that are not ours: librdkafka's mock cluster, of a lineage of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from moldau.peer.cluster import EARLIEST, LATEST, Cluster
from moldau.peer.fetcher import PartitionFetcher
from moldau.peer.retries import PeerSettings
from moldau.records.batch import batches
from moldau.records.record import records_of
from tests.peer.peers import taken

RECORDS = 40


@pytest.fixture(scope="module")
def mock_cluster() -> Iterator[list[tuple[str, int]]]:
    """Three brokers in this process, and a topic with partitions led by any of them."""
    producer = Producer({"test.mock.num.brokers": 3, "linger.ms": 0})
    for number in range(RECORDS):
        producer.produce("orders", b"%d" % number, partition=number % 4)
    assert producer.flush(60) == 0
    found = producer.list_topics(timeout=60).brokers.values()
    yield [(broker.host, broker.port) for broker in found]
    producer.close()


def test_records_are_read_from_their_leaders(mock_cluster: list[tuple[str, int]]) -> None:
    settings = PeerSettings(retry_within_s=10, reach_within_s=5)
    with Cluster(mock_cluster[:1], settings) as cluster:
        topic = cluster.metadata(["orders"]).topics["orders"]
        assert all(leader.node_id in (1, 2, 3) for leader in topic.leaders.values())
        keys = [("orders", partition) for partition in topic.leaders]
        ends = cluster.list_offsets(dict.fromkeys(keys, LATEST))
        starts = cluster.list_offsets(dict.fromkeys(keys, EARLIEST))
        assert sum(end.offset for end in ends.values()) == RECORDS
        values: list[int] = []
        for key in keys:
            fetcher = PartitionFetcher(cluster, *key, topic.id)
            position = starts[key].offset
            while position < ends[key].offset:
                records = taken(fetcher.fetch(position))
                for at, header in batches(records):
                    position = header.last_offset + 1
                    values += [int(record.value or b"") for record in records_of(records, at)]
        assert sorted(values) == list(range(RECORDS))


def test_progress_can_be_committed(mock_cluster: list[tuple[str, int]]) -> None:
    with Cluster(mock_cluster, PeerSettings(retry_within_s=10)) as cluster:
        cluster.commit_offsets("lag", {("orders", 0): 5, ("orders", 1): 6}, within_s=10)
