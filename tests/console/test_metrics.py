"""Bytes out, as brokers' metrics tell them."""

from __future__ import annotations

import confluent_kafka

from moldau.console.sampling.metrics import BytesOut, total_of
from moldau.testing import Broker
from moldau.testing.waiting import until

NAME = b"kafka_server_brokertopicmetrics_bytesout_total"


def test_the_total_is_that_of_all_topics_or_the_sum_of_each() -> None:
    of_each = NAME + b'{topic="a"} 5.0\n' + NAME + b'{topic="b"} 7\n'
    assert total_of(of_each) == 12
    assert total_of(of_each + NAME + b" 100\n") == 100
    assert total_of(NAME + b" nonsense\n") is None
    assert total_of(b"something_else 1\n") is None


def test_a_brokers_metrics_give_the_rate_since_the_last_look() -> None:
    with Broker(http_listen="127.0.0.1:0") as broker:
        broker.create_topic("read")
        out = BytesOut([f"{broker.http_url}/metrics?per_partition=false", "http://127.0.0.1:1/"])
        assert out.rate() is None
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("read", b"x" * 10_000)
        producer.flush(30)
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.assign([confluent_kafka.TopicPartition("read", 0, 0)])
        try:
            until(lambda: consumer.poll(0.2), "the message")
        finally:
            consumer.close()
        assert (out.rate() or 0) > 0
