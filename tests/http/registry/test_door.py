"""Topics that take only records of registered schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from moldau.records.record import Record, build_batch
from moldau.schemas.header import pack_header
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.asking import Asker, fresh_name
from tests.http.registry.test_client import record
from tests.spark.topics import read_by_librdkafka

pytest.importorskip("numba", reason="the check is compiled by numba, which is not installed")

# The first process on a machine compiles.
pytestmark = pytest.mark.timeout(400)

ORDER = record(id="long", item="string")


@pytest.fixture
def asker(registry_broker: Broker) -> Iterator[Asker]:
    with Asker(registry_broker) as asker:
        yield asker


def produce(asker: Asker, topic: str, values: list[bytes | None], **more: Any) -> Any:
    batch = build_batch([Record(i, 1, more.get("key"), each) for i, each in enumerate(values)])
    answer = asker.ask(
        Api.PRODUCE,
        9,
        acks=-1,
        timeout=20_000,
        topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": bytes(batch)}]}],
    )
    return answer.responses[0].partition_responses[0]


def test_values_are_checked_against_the_topics_subject(
    asker: Asker, registry_broker: Broker, client: SchemaRegistryClient
) -> None:
    topic, other = fresh_name("door"), fresh_name("door")
    asker.create(topic, moldau_value_schema_validation="true")
    asker.create(other)
    serialize = AvroSerializer(client, json.dumps(ORDER))
    fine = serialize({"id": 1, "item": "tea"}, SerializationContext(topic, MessageField.VALUE))
    assert fine is not None
    assert produce(asker, topic, [fine, None, fine]).error_code == 0
    foreign = client.register_schema(f"{other}-value", Schema('"string"', "AVRO"))
    answer = produce(asker, topic, [fine, fine[:-1], b"plain", pack_header(foreign) + b"\x02a"])
    assert answer.error_code == Error.INVALID_RECORD
    named = {each.batch_index: each.batch_index_error_message for each in answer.record_errors}
    assert list(named) == [1, 2, 3]
    assert "not a value of schema" in named[1]
    assert "does not begin with a zero" in named[2]
    assert f"schema {foreign} is not registered under {topic}-value" in named[3]
    # Nothing of the batch is there, and a topic without the setting takes anything.
    assert produce(asker, topic, [fine]).base_offset == 3
    assert produce(asker, other, [b"plain"]).error_code == 0
    # A schema that was registered since is known at once.
    newer = record(id="long", item="string", price=("double", 0.0))
    newest = AvroSerializer(client, json.dumps(newer))
    context = SerializationContext(topic, MessageField.VALUE)
    second = newest({"id": 1, "item": "tea", "price": 2.5}, context)
    assert produce(asker, topic, [second, fine]).error_code == 0


def test_keys_are_checked_where_that_is_wanted(asker: Asker, client: SchemaRegistryClient) -> None:
    topic = fresh_name("door")
    asker.create(topic, moldau_key_schema_validation="true")
    known = client.register_schema(f"{topic}-key", Schema('"long"', "AVRO"))
    assert produce(asker, topic, [b"anything"], key=pack_header(known) + b"\x02").error_code == 0
    answer = produce(asker, topic, [b"anything"], key=b"plain")
    assert answer.error_code == Error.INVALID_RECORD
    assert "the key" in answer.record_errors[0].batch_index_error_message


def test_an_idempotent_producer_goes_on_after_a_refusal(
    asker: Asker, registry_broker: Broker, client: SchemaRegistryClient
) -> None:
    topic = fresh_name("door")
    asker.create(topic, moldau_value_schema_validation="true")
    known = client.register_schema(f"{topic}-value", Schema('"string"', "AVRO"))
    fine = pack_header(known) + b"\x02a"
    problems: list[Any] = []
    producer = Producer(
        {"bootstrap.servers": registry_broker.bootstrap, "enable.idempotence": True, "linger.ms": 0}
    )
    for value in (fine, b"bad", fine, fine):
        producer.produce(topic, value, on_delivery=lambda error, _: problems.append(error))
        assert producer.flush(60) == 0
    assert [problem is None for problem in problems] == [True, False, True, True]
    assert problems[1].code() == Error.INVALID_RECORD
    assert produce(asker, topic, [fine]).base_offset == 3


def test_a_broker_without_a_registry_takes_no_unchecked_record() -> None:
    with Broker() as broker, Asker(broker) as asker:
        asker.create("t", moldau_value_schema_validation="true")
        answer = produce(asker, "t", [pack_header(1) + b"x"])
        assert answer.error_code == Error.INVALID_RECORD
        assert "http.listen" in answer.error_message


def test_bad_records_are_set_aside_where_that_is_wanted(
    asker: Asker, registry_broker: Broker, client: SchemaRegistryClient
) -> None:
    topic, aside = fresh_name("door"), fresh_name("aside")
    asker.create(
        topic,
        moldau_value_schema_validation="true",
        moldau_schema_validation_quarantine=aside,
    )
    known = client.register_schema(f"{topic}-value", Schema('"string"', "AVRO"))
    fine = pack_header(known) + b"\x02a"
    problems: list[Any] = []
    producer = Producer(
        {"bootstrap.servers": registry_broker.bootstrap, "enable.idempotence": True,
         "linger.ms": 200, "compression.type": "zstd"}
    )  # fmt: skip
    for values in ((fine, b"bad 1", fine), (b"bad 2",), (fine, fine)):
        for value in values:
            producer.produce(
                topic, value, key=b"k", headers=[("h", b"1")],
                on_delivery=lambda error, _: problems.append(error),
            )  # fmt: skip
        assert producer.flush(60) == 0
    assert problems == [None] * 6
    assert [
        (row["offset"], row["value"]) for row in read_by_librdkafka(registry_broker, topic)
    ] == [(offset, fine) for offset in (0, 2, 4, 5)]
    letters = read_by_librdkafka(registry_broker, aside)
    assert [(row["key"], row["value"]) for row in letters] == [(b"k", b"bad 1"), (b"k", b"bad 2")]
    headers = {item["key"]: item["value"] for item in letters[0]["headers"]}
    assert headers["h"] == b"1"
    assert headers["moldau.origin.topic"] == topic.encode()
    assert b"does not begin with a zero" in headers["moldau.reason"]
    # In a transaction, both are part of it.
    transactional = Producer(
        {"bootstrap.servers": registry_broker.bootstrap, "transactional.id": topic}
    )
    transactional.init_transactions(60)
    for value, ends in (
        (b"bad 3", transactional.abort_transaction),
        (b"bad 4", transactional.commit_transaction),
    ):
        transactional.begin_transaction()
        transactional.produce(topic, value, on_delivery=lambda error, _: problems.append(error))
        assert transactional.flush(60) == 0
        ends(30)
    assert problems == [None] * 8
    until(lambda: len(read_by_librdkafka(registry_broker, aside)) == 3, "the dead letter")
    assert read_by_librdkafka(registry_broker, aside)[-1]["value"] == b"bad 4"


def test_schemas_may_be_named_in_headers(
    asker: Asker, registry_broker: Broker, client: SchemaRegistryClient
) -> None:
    topic = fresh_name("door")
    asker.create(topic, moldau_value_schema_validation="true", moldau_key_schema_validation="true")
    conf = {"schema.id.serializer": header_schema_id_serializer}
    values = AvroSerializer(client, json.dumps(ORDER), conf=conf)
    keys = AvroSerializer(client, '"string"', conf=conf)
    producer = Producer({"bootstrap.servers": registry_broker.bootstrap, "linger.ms": 0})
    problems: list[Any] = []

    def send(key: bytes, value: bytes, headers: Any) -> Any:
        producer.produce(
            topic, value, key, headers=headers,
            on_delivery=lambda error, _: problems.append(error),
        )  # fmt: skip
        assert producer.flush(60) == 0
        return problems[-1]

    headers: list[Any] = []
    key = keys("k", SerializationContext(topic, MessageField.KEY, headers))
    context = SerializationContext(topic, MessageField.VALUE, headers)
    value = values({"id": 1, "item": "tea"}, context)
    assert key is not None
    assert value is not None
    assert [name for name, _ in headers] == ["__key_schema_id", "__value_schema_id"]
    assert send(key, value, headers) is None
    assert send(key, value[:-1], headers).code() == Error.INVALID_RECORD
    assert send(key, value, headers[:1]).code() == Error.INVALID_RECORD
    assert send(key, value, [headers[0], (headers[1][0], headers[0][1])]) is not None
