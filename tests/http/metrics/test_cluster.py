"""Metrics of a cluster: what its brokers show together."""

from __future__ import annotations

import re
from importlib.util import find_spec

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.testing import Cluster
from tests.http.scraping import Scrape

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(find_spec("pyspark") is None, reason="no ZooKeeper without pyspark"),
]


def url_of(cluster: Cluster, broker: int) -> str:
    found = re.findall(r"HTTP on (\S+)", cluster.log(broker).read_text())
    assert found, cluster.logs()
    return str(found[-1])


def test_sums_over_brokers_are_right_and_lag_is_known_of_partitions_elsewhere() -> None:
    with Cluster(3, settings={"http.listen": "127.0.0.1:0"}) as cluster:
        cluster.create_topic("orders", partitions=6, replication_factor=1)
        cluster.create_topic("copies", partitions=2, replication_factor=3)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        long_ago = 1_600_000_000_000
        for number in range(60):
            producer.produce("orders", b"x", partition=number % 6, timestamp=long_ago)
            producer.produce("copies", b"x", partition=number % 2)
        assert producer.flush(60) == 0
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "billing"})
        offsets = [TopicPartition("orders", index, 4) for index in range(6)]
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()
        scrapes = [Scrape(url_of(cluster, broker)) for broker in cluster.brokers]

        def total(name: str, **labels: str) -> float:
            return sum(each.value for scrape in scrapes for each in scrape.find(name, **labels))

        assert total("kafka_topic_partitions", topic="orders") == 6
        assert total("kafka_brokers") == 3
        assert total("kafka_controller_kafkacontroller_activecontrollercount") == 1
        traffic = "kafka_server_brokertopicmetrics_"
        assert total(f"{traffic}messagesin_total", topic="orders") == 60
        assert total(f"{traffic}messagesin_total", topic="copies") == 60
        written = total(f"{traffic}bytesin_total", topic="copies")
        assert total(f"{traffic}replicationbytesin_total", topic="copies") == 2 * written
        assert total(f"{traffic}replicationbytesout_total", topic="copies") == 2 * written
        # One broker coordinates the group, and leads a third of what it reads.
        assert total("kafka_consumergroup_lag", consumergroup="billing") == 6 * 6
        lags = [
            each.value
            for scrape in scrapes
            for each in scrape.find("moldau_consumergroup_lag_seconds", consumergroup="billing")
        ]
        assert len(lags) == 6
        assert min(lags) > 100_000_000

        first = cluster.brokers[0]
        cluster.kill(first)
        others = [broker for broker in cluster.brokers if broker != first]
        cluster.wait_until(
            lambda: (
                sum(
                    each.value
                    for broker in others
                    for each in Scrape(url_of(cluster, broker)).find(
                        "kafka_controller_kafkacontroller_offlinepartitionscount"
                    )
                )
                == 2
            ),
            "the partitions without a leader to be told",
        )
