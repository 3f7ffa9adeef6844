from __future__ import annotations

from typing import Any

import pytest

from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.asking import Asker, fresh_name, versions


def produce(broker: Broker, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, str(number), partition=0, key="k")
    assert producer.flush(60) == 0


def delete(asker: Asker, topic: str, offset: int, index: int = 0, **more: Any) -> tuple[int, int]:
    """The error and the low watermark."""
    partitions = [{"partition_index": index, "offset": offset}]
    answer = asker.ask(
        Api.DELETE_RECORDS, topics=[{"name": topic, "partitions": partitions}], **more
    )
    [result] = answer.topics[0].partitions
    assert (answer.topics[0].name, result.partition_index) == (topic, index)
    return result.error_code, result.low_watermark


def earliest(asker: Asker, topic: str) -> int:
    partitions = [{"partition_index": 0, "timestamp": -2}]
    answer = asker.ask(
        Api.LIST_OFFSETS, replica_id=-1, topics=[{"name": topic, "partitions": partitions}]
    )
    return int(answer.topics[0].partitions[0].offset)


@pytest.mark.parametrize("version", versions(Api.DELETE_RECORDS))
def test_records_before_an_offset_are_gone_in_every_version(
    moldau_session_broker: Broker, asker: Asker, version: int
) -> None:
    name = fresh_name()
    asker.create(name)
    produce(moldau_session_broker, name, 10)
    assert delete(asker, name, 4, version=version) == (0, 4)
    assert earliest(asker, name) == 4
    assert delete(asker, name, 2, version=version) == (0, 4)
    assert delete(asker, name, -1, version=version) == (0, 10)
    assert earliest(asker, name) == 10


def test_what_cannot_be_deleted_is_refused(moldau_session_broker: Broker, asker: Asker) -> None:
    name, compacted = fresh_name(), fresh_name()
    asker.create(name)
    asker.create(compacted, cleanup_policy="compact")
    produce(moldau_session_broker, name, 3)
    produce(moldau_session_broker, compacted, 3)
    assert delete(asker, name, 4) == (Error.OFFSET_OUT_OF_RANGE, -1)
    assert delete(asker, name, -2) == (Error.OFFSET_OUT_OF_RANGE, -1)
    assert delete(asker, name, 1, index=7) == (Error.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete(asker, fresh_name(), 1) == (Error.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete(asker, compacted, 1) == (Error.POLICY_VIOLATION, -1)
    assert earliest(asker, name) == 0


def test_deleted_records_stay_deleted_after_a_restart(moldau_broker: Broker) -> None:
    with Asker(moldau_broker) as asker:
        asker.create("a")
        produce(moldau_broker, "a", 5)
        assert delete(asker, "a", 3) == (0, 3)
    moldau_broker.stop()
    moldau_broker.start()
    with Asker(moldau_broker) as asker:
        assert earliest(asker, "a") == 3


def test_confluents_admin_client_deletes_records(moldau_session_broker: Broker) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": moldau_session_broker.bootstrap})
    name = fresh_name()
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    produce(moldau_session_broker, name, 6)
    partition = TopicPartition(name, 0, 5)
    deleted = admin.delete_records([partition])[partition].result(60)
    assert deleted.low_watermark == 5
