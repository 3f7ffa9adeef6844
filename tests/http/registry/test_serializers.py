"""Confluent's serializers, unchanged, with values that go through a topic's bytes and back."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from moldau.schemas import RegisteredAvroSerializer, RegistryClient, SchemaStore
from moldau.schemas.header import VALUE_HEADER, pack_guid
from moldau.testing import Broker

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
}
# Confluent's deserializers take nothing shorter than six bytes, even if no id is in front.
POT = {"id": 1, "item": "a pot of tea"}
JSON_ORDER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "item": {"type": "string"}},
    "required": ["id"],
}


@pytest.fixture
def context() -> SerializationContext:
    return SerializationContext(f"t-{uuid.uuid4().hex[:8]}", MessageField.VALUE)


def test_avro(client: SchemaRegistryClient, context: SerializationContext) -> None:
    serialize = AvroSerializer(client, json.dumps(ORDER))
    payload = serialize({"id": 1, "item": "tea"}, context)
    assert payload is not None
    client.clear_caches()
    assert AvroDeserializer(client)(payload, context) == {"id": 1, "item": "tea"}
    fields = [*ORDER["fields"], {"name": "price", "type": "double", "default": 0.5}]
    newer = json.dumps({**ORDER, "fields": fields})
    AvroSerializer(client, newer)({"id": 1, "item": "tea", "price": 2.0}, context)
    assert client.get_versions(f"{context.topic}-value") == [1, 2]
    read = AvroDeserializer(client, newer)(payload, context)
    assert read == {"id": 1, "item": "tea", "price": 0.5}


def test_avro_that_may_not_register(
    client: SchemaRegistryClient, context: SerializationContext
) -> None:
    AvroSerializer(client, json.dumps(ORDER))({"id": 1, "item": "tea"}, context)
    client.clear_caches()
    for conf in (
        {"auto.register.schemas": False},
        {"auto.register.schemas": False, "use.latest.version": True},
        {"normalize.schemas": True},
    ):
        again = AvroSerializer(client, json.dumps(ORDER), conf=conf)
        assert again({"id": 2, "item": "tea"}, context)


def test_json(client: SchemaRegistryClient, context: SerializationContext) -> None:
    serialize = JSONSerializer(json.dumps(JSON_ORDER), client)
    payload = serialize({"id": 1, "item": "tea"}, context)
    assert payload is not None
    client.clear_caches()
    deserialize = JSONDeserializer(None, schema_registry_client=client)
    assert deserialize(payload, context) == {"id": 1, "item": "tea"}
    with pytest.raises(SerializationError):
        serialize({"item": "no id"}, context)


def message_classes() -> tuple[Any, Any]:
    """Two messages in two files, of which one imports the other."""
    inner = descriptor_pb2.FileDescriptorProto(name="place.proto", package="shop", syntax="proto3")
    place = inner.message_type.add(name="Place")
    place.field.add(name="city", number=1, type=9, label=1)
    outer = descriptor_pb2.FileDescriptorProto(
        name="order.proto", package="shop", syntax="proto3",
        dependency=["place.proto", "google/protobuf/timestamp.proto"],
    )  # fmt: skip
    order = outer.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=3, label=1)
    order.field.add(name="at", number=2, type=11, label=1, type_name=".shop.Place")
    order.field.add(name="when", number=3, type=11, label=1, type_name=".google.protobuf.Timestamp")
    pool = descriptor_pool.DescriptorPool()
    from google.protobuf import timestamp_pb2

    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for file in (inner, outer):
        pool.AddSerializedFile(file.SerializeToString())
    names = ("shop.Order", "shop.Place")
    found = [message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names]
    return found[0], found[1]


def test_protobuf_with_imports(client: SchemaRegistryClient, context: SerializationContext) -> None:
    order, _ = message_classes()
    value = order(id=7)
    value.at.city = "Praha"
    value.when.seconds = 5
    serialize = ProtobufSerializer(order, client, {"use.deprecated.format": False})
    payload = serialize(value, context)
    assert payload is not None
    subject = f"{context.topic}-value"
    client.clear_caches()
    kept = client.get_latest_version(subject)
    assert kept.schema.schema_type == "PROTOBUF"
    # What every compiler knows is not sent.
    references = kept.schema.references or []
    assert [reference.name for reference in references] == ["place.proto"]
    assert "message Order {" in (kept.schema.schema_str or "")
    deserialize = ProtobufDeserializer(order, {"use.deprecated.format": False}, client)
    read = deserialize(payload, context)
    assert (read.id, read.at.city, read.when.seconds) == (7, "Praha", 5)
    # The same message again finds the same version.
    assert serialize(value, context) == payload
    assert client.get_versions(subject) == [1]


def test_guids_in_headers(client: SchemaRegistryClient, context: SerializationContext) -> None:
    """All three serializers, told to put the name of the schema into a header."""
    in_header = {"schema.id.serializer": header_schema_id_serializer}
    order, _ = message_classes()
    deprecated = {"use.deprecated.format": False}
    for serialize, deserialize, value in (
        (
            AvroSerializer(client, json.dumps(ORDER), conf=in_header),
            AvroDeserializer(client),
            POT,
        ),
        (
            JSONSerializer(json.dumps(JSON_ORDER), client, conf=in_header),
            JSONDeserializer(None, schema_registry_client=client),
            POT,
        ),
        (
            ProtobufSerializer(order, client, in_header | deprecated),
            ProtobufDeserializer(order, deprecated, client),
            order(id=7, at={"city": "Praha"}),
        ),
    ):
        topic = f"{context.topic}-{type(value).__name__}-{type(serialize).__name__}"
        headers: list[Any] = []
        where = SerializationContext(topic, MessageField.VALUE, headers)
        payload = serialize(value, where)
        assert payload is not None
        client.clear_caches()
        assert deserialize(payload, where) == value
        ((key, name),) = headers
        guid = client.get_latest_version(f"{topic}-value").guid
        assert guid is not None
        assert key == VALUE_HEADER
        assert name.startswith(pack_guid(guid))


def test_our_serializer_and_confluents_read_each_others_headers(
    registry_broker: Broker, client: SchemaRegistryClient
) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    value = POT
    with RegistryClient(registry_broker.http_url) as ours:
        serializer = RegisteredAvroSerializer(ours, ORDER, in_headers=True)
        assert serializer.headers is not None
        payload = serializer.serialize(topic, value)
        headers: list[Any] = list(serializer.headers(topic))
        where = SerializationContext(topic, MessageField.VALUE, headers=headers)
        assert AvroDeserializer(client)(payload, where) == value
        theirs = SerializationContext(topic, MessageField.VALUE, headers=[])
        conf = {"schema.id.serializer": header_schema_id_serializer}
        written = AvroSerializer(client, json.dumps(ORDER), conf=conf)(value, theirs)
        assert (written, theirs.headers) == (payload, headers)
        assert serializer.deserialize(topic, payload, headers) == value
    # A store that reads the topic itself knows the same guids.
    with SchemaStore(registry_broker.bootstrap) as store:
        reading = RegisteredAvroSerializer(store)
        assert reading.deserialize(topic, payload, headers) == value
