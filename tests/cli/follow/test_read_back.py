"""Reading back: what a collector finds in a topic that transactions write to as well."""

from __future__ import annotations

from confluent_kafka import Producer

from moldau.cli.clients import connect_consumer
from moldau.cli.follow.read_back import POSITION_HEADER, position_header, read_back
from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.broker.wire_client import Client, append_open


def test_the_marker_of_a_transaction_ends_a_topic_like_any_record(
    moldau_session_broker: Broker,
) -> None:
    """Its offset is the last one, and no message ever comes for it."""
    broker = moldau_session_broker
    with Client(broker) as client:
        topic = client.create(partitions=2)
        producer = Producer({"bootstrap.servers": f"{broker.host}:{broker.port}"})
        headers: dict[str, str | bytes | None] = {
            POSITION_HEADER: position_header("a" * 32, 5, 3, 7)
        }
        producer.produce(topic, b"one", partition=0, headers=headers)
        producer.flush()
        append_open(broker, topic, b"aborted")
        marker = {
            "producer_id": 9,
            "producer_epoch": 0,
            "transaction_result": False,
            "topics": [{"name": topic, "partition_indexes": [0, 1]}],
            "coordinator_epoch": 0,
            "transaction_version": 0,
        }
        client.ask(Api.WRITE_TXN_MARKERS, markers=[marker])
    consumer = connect_consumer(f"{broker.host}:{broker.port}", enable_partition_eof=True)
    try:
        found = read_back(consumer, topic, {0: 0, 1: 0}, ["a" * 32])
    finally:
        consumer.close()
    assert found == {"a" * 32: {5: (3, 7)}}
