"""Pipelines that read and write by a registry over HTTP, on a real Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory
from google.protobuf.json_format import ParseDict
from pyspark.sql import SparkSession

from moldau.schemas import RegistryClient, pack_header
from moldau.schemas.schema import Reference, SchemaType
from moldau.spark.formats.protobuf_types import message_of
from moldau.spark.pipeline import PipelineError
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.spark.lake.iceberg.tables import rows_of
from tests.spark.pipeline.files import load, table
from tests.spark.pipeline.following import followed
from tests.spark.topics import fresh_topic, produce, read_by_librdkafka

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

JSON_ORDER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "item": {"type": "string"}},
    "additionalProperties": False,
}
PLACE = 'syntax = "proto3"; message Place { string city = 1; }'
TRIP = 'syntax = "proto3"; import "place.proto"; message Trip { int64 id = 1; Place to = 2; }'
PIPELINE = """
[sources.orders]
topic = "{topic}"
format = "json-schema"
[sources.trips]
topic = "{topic}-trips"
format = "protobuf"
[tables.both]
sql = "SELECT o.id, item, to.city AS city FROM orders o JOIN trips t ON o.id = t.id"
[sinks.lake]
from = "orders"
type = "delta"
path = "lake/orders"
[sinks.avro]
from = "trips"
type = "topic"
topic = "{topic}-avro"
format = "avro"
[sinks.json]
from = "trips"
type = "topic"
topic = "{topic}-json"
format = "json-schema"
[sinks.proto]
from = "orders"
type = "topic"
topic = "{topic}-proto"
format = "protobuf"
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http_listen="127.0.0.1:0") as broker:
        yield broker


def test_from_registered_schemas_to_registered_schemas(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = fresh_topic(broker)
    broker.create_topic(f"{topic}-trips")
    confluent = SchemaRegistryClient({"url": broker.http_url})
    context = SerializationContext(topic, MessageField.VALUE)
    serialize = JSONSerializer(json.dumps(JSON_ORDER), confluent)
    orders = [serialize({"id": number, "item": "tea"}, context) for number in range(3)]
    produce(broker, topic, [(None, order, []) for order in orders])
    client = RegistryClient(broker.http_url)
    client.register(f"{topic}-place", PLACE, SchemaType.PROTOBUF)
    reference = Reference("place.proto", f"{topic}-place", 1)
    trip = client.register(f"{topic}-trips-value", TRIP, SchemaType.PROTOBUF, [reference])
    payload = pack_header(trip.id) + b"\x00\x08\x01\x12\x07\x0a\x05Praha"
    produce(broker, f"{topic}-trips", [(None, payload, []), (None, b"nonsense", [])])
    pipeline = load(tmp_path, broker, topic, f'registry = "{broker.http_url}"\n', PIPELINE)
    done = pipeline.run(once=True, spark=spark)
    assert sum(each.dead_letters for each in done.values()) == 1
    rows = table(tmp_path / "lake" / "orders")
    assert sorted((row["id"], row["item"]) for row in rows) == [(n, "tea") for n in range(3)]

    def read(name: str) -> list[bytes]:
        return [row["value"] for row in read_by_librdkafka(broker, f"{topic}-{name}")]

    expected = {"id": 1, "to": {"city": "Praha"}}
    (avro,) = read("avro")
    assert AvroDeserializer(confluent)(avro, context) == expected
    (text,) = read("json")
    deserialize = JSONDeserializer(None, schema_registry_client=confluent)
    assert deserialize(text, context) == expected
    written = client.version(f"{topic}-proto-value")
    message: Any = message_of(written.text)
    assert [field.name for field in message.fields] == ["id", "item"]
    assert len(read("proto")) == 3

    # A newer version with a field more stops a run that began without it and is to fail then.
    newer = {**JSON_ORDER["properties"], "price": {"type": "number"}}  # type: ignore[dict-item]
    top = f'registry = "{broker.http_url}"\nevolution = "fail"\n'
    running = load(tmp_path, broker, topic, top, PIPELINE)
    with running.start(spark) as queries:
        schema = json.dumps({**JSON_ORDER, "properties": newer})
        priced = JSONSerializer(schema, confluent)({"id": 9, "item": "x", "price": 1.5}, context)
        produce(broker, topic, [(None, priced, [])])
        with pytest.raises(PipelineError, match=r"lacks: price \(double\)"):
            queries.wait()
    again = load(tmp_path, broker, topic, f'registry = "{broker.http_url}"\n', PIPELINE)
    again.run(once=True, spark=spark)
    prices = {row["id"]: row["price"] for row in table(tmp_path / "lake" / "orders")}
    assert prices == {0: None, 1: None, 2: None, 9: 1.5}
    # The number of a field stays what it was.
    assert "item = 2;" in client.version(f"{topic}-proto-value").text
    assert "price = 3;" in client.version(f"{topic}-proto-value").text


GROWING = """
[sources.orders]
topic = "{topic}"
format = "json-schema"
[sources.trips]
topic = "{topic}-trips"
format = "protobuf"
[sinks.orders]
from = "orders"
type = "delta"
path = "lake/orders"
[sinks.trips]
from = "trips"
type = "iceberg"
table = "shop.trips"
warehouse = "lake"
"""
TRIPS = (
    """syntax = "proto3";
    message Trip { int32 id = 1; Place to = 2; }
    message Place { string city = 1; }
    """,
    """syntax = "proto3";
    message Trip { int64 id = 1; Place to = 2; optional string by = 3; }
    message Place { string city = 1; int32 zip = 2; }
    """,
)


def json_order(**more: Any) -> str:
    place = {"type": "object", "properties": {"city": {"type": "string"}, **more}}
    properties = {"id": {"type": "integer"}, "to": {**place, "additionalProperties": False}, **more}
    return json.dumps({**JSON_ORDER, "properties": properties})


def trip(text: str, schema_id: int, **values: Any) -> bytes:
    message = message_factory.GetMessageClass(message_of(text))
    ParseDict(values, made := message())
    body: bytes = made.SerializeToString()
    return pack_header(schema_id) + b"\0" + body


def test_newer_schemas_of_json_and_protobuf_are_taken_up_by_the_batch_that_meets_them(
    spark: SparkSession,
    broker: Broker,
    tmp_path: Path,
) -> None:
    topic = fresh_topic(broker)
    broker.create_topic(f"{topic}-trips")
    client = RegistryClient(broker.http_url)

    def send(order_id: int, orders: list[Any], trip_id: int, text: str, trips: list[Any]) -> None:
        texts = [pack_header(order_id) + json.dumps(each).encode() for each in orders]
        produce(broker, topic, [(None, each, []) for each in texts])
        messages = [trip(text, trip_id, **each) for each in trips]
        produce(broker, f"{topic}-trips", [(None, each, []) for each in messages])

    order_1 = client.register(f"{topic}-value", json_order(), SchemaType.JSON).id
    trip_1 = client.register(f"{topic}-trips-value", TRIPS[0], SchemaType.PROTOBUF).id
    first = {"id": 1, "to": {"city": "Praha"}}
    send(order_1, [first], trip_1, TRIPS[0], [first])
    top = f'registry = "{broker.http_url}"\n'
    with load(tmp_path, broker, topic, top, GROWING).start(spark) as running:
        until(lambda: all(each.lastProgress for each in running.queries.values()), "a batch", 180)
        number = {"price": {"type": "number"}}
        order_2 = client.register(f"{topic}-value", json_order(**number), SchemaType.JSON).id
        trip_2 = client.register(f"{topic}-trips-value", TRIPS[1], SchemaType.PROTOBUF).id
        again = {"id": 2, "to": {"city": "Brno"}}
        send(order_1, [again], trip_1, TRIPS[0], [again])
        orders = [{"id": 3, "to": {"city": "Plzen", "price": 1.5}, "price": 2.5}]
        trips = [{"id": 1 << 40, "to": {"city": "Plzen", "zip": 30100}, "by": "rail"}]
        send(order_2, orders, trip_2, TRIPS[1], trips)
        followed(running, 3)
    rows = sorted(table(tmp_path / "lake" / "orders"), key=lambda row: int(row["id"]))
    assert rows == [
        {"id": 1, "to": {"city": "Praha", "price": None}, "price": None},
        {"id": 2, "to": {"city": "Brno", "price": None}, "price": None},
        *orders,
    ]
    found = sorted(rows_of(tmp_path / "lake", "shop.trips"), key=lambda row: int(row["id"]))
    # What is not there and has no presence is zero, from when the field is known.
    places = [row["to"] for row in found]
    assert places[0] == {"city": "Praha", "zip": None}
    assert places[1]["city"] == "Brno"
    assert places[1]["zip"] in (None, 0)
    assert [(row["id"], row["by"]) for row in found] == [(1, None), (2, None), (1 << 40, "rail")]
    assert places[2] == {"city": "Plzen", "zip": 30100}
    for name in (topic, f"{topic}-trips"):
        assert read_by_librdkafka(broker, f"{name}-dead-letters") == []
