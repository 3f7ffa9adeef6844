"""The cluster for tests: what it does to its brokers, and that nothing of it is left."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from confluent_kafka import Producer

from moldau.local.process import BrokerFailed
from moldau.testing import Cluster

pytestmark = [
    pytest.mark.skipif(
        find_spec("pyspark") is None, reason="no clusters without pyspark, which brings ZooKeeper"
    ),
    pytest.mark.timeout(400),
]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_brokers_come_and_go_and_nothing_is_left(tmp_path: Path) -> None:
    with Cluster(brokers=2, num_partitions=3) as cluster:
        folder, address = cluster.folder, cluster.address(0)
        pids = [cluster.pid(broker) for broker in cluster.brokers]
        cluster.create_topic("words", partitions=2)
        with pytest.raises(RuntimeError, match="already exists, with 2 partitions, not 3"):
            cluster.create_topic("words", partitions=3)
        cluster.wait_until_in_sync("words")
        view = cluster.view(0)
        assert view.brokers == {0, 1}
        assert {len(each.replicas) for each in view.partitions.values()} == {2}
        assert {cluster.leader_of("words", 0), cluster.leader_of("words", 1)} == {0, 1}

        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        producer.produce("words", b"hello", partition=0)
        assert producer.flush(60) == 0

        cluster.kill(0)
        assert cluster.running == [1]
        assert cluster.controller() == 1
        with pytest.raises(RuntimeError, match="broker 0 is not running"):
            cluster.pid(0)
        with pytest.raises(RuntimeError, match="broker 1 is running"):
            cluster.wipe(1)
        cluster.start(0)
        assert cluster.address(0) == address
        cluster.wait_until_in_sync("words")

        assert cluster.add() == 2
        cluster.wait_until(lambda: cluster.view(0).brokers == {0, 1, 2}, "the third is seen")
        pids += [cluster.pid(broker) for broker in cluster.brokers]
        with pytest.raises(RuntimeError, match="can_be_cut"):
            cluster.cut(0)
        cluster.freeze(1)
        assert cluster.running == [0, 2]
    assert not [pid for pid in pids if is_alive(pid)]
    assert not folder.exists()


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(BrokerFailed, match=r"num\.partition\b"), Cluster(1, num_partition=3):
        pass
