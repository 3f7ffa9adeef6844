"""Confluent's serializers, unchanged, with values that go through a topic's bytes and back."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    AssociationCreateOrUpdateInfo,
    AssociationCreateOrUpdateRequest,
    Metadata,
    MetadataProperties,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import (
    AsyncAvroDeserializer,
    AsyncAvroSerializer,
    AvroDeserializer,
    AvroSerializer,
)
from confluent_kafka.schema_registry.common.serde import SubjectNameStrategyType
from confluent_kafka.schema_registry.json_schema import (
    AsyncJSONDeserializer,
    AsyncJSONSerializer,
    JSONDeserializer,
    JSONSerializer,
)
from confluent_kafka.schema_registry.protobuf import (
    AsyncProtobufDeserializer,
    AsyncProtobufSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
)
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from moldau.schemas import RegisteredAvroSerializer, RegistryClient, SchemaStore
from moldau.schemas.header import VALUE_HEADER, pack_guid
from moldau.testing import Broker
from tests.http.registry.asynchronous import AwaitedClient

Make = Callable[..., Callable[..., Any]]
ASYNCHRONOUS = {
    AvroSerializer: AsyncAvroSerializer,
    AvroDeserializer: AsyncAvroDeserializer,
    JSONSerializer: AsyncJSONSerializer,
    JSONDeserializer: AsyncJSONDeserializer,
    ProtobufSerializer: AsyncProtobufSerializer,
    ProtobufDeserializer: AsyncProtobufDeserializer,
}

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
def client(either_client: SchemaRegistryClient) -> SchemaRegistryClient:
    return either_client


@pytest.fixture
def make(client: SchemaRegistryClient) -> Make:
    """Makes a serializer of the kind that fits the client."""
    found: Any = client
    if isinstance(found, AwaitedClient):
        awaited = found.make
        return lambda kind, *arguments, **more: awaited(ASYNCHRONOUS[kind], *arguments, **more)
    return lambda kind, *arguments, **more: kind(*arguments, **more)


@pytest.fixture
def context() -> SerializationContext:
    return SerializationContext(f"t-{uuid.uuid4().hex[:8]}", MessageField.VALUE)


def test_avro(client: SchemaRegistryClient, make: Make, context: SerializationContext) -> None:
    serialize = make(AvroSerializer, client, json.dumps(ORDER))
    payload = serialize({"id": 1, "item": "tea"}, context)
    assert payload is not None
    client.clear_caches()
    assert make(AvroDeserializer, client)(payload, context) == {"id": 1, "item": "tea"}
    fields = [*ORDER["fields"], {"name": "price", "type": "double", "default": 0.5}]
    newer = json.dumps({**ORDER, "fields": fields})
    make(AvroSerializer, client, newer)({"id": 1, "item": "tea", "price": 2.0}, context)
    assert client.get_versions(f"{context.topic}-value") == [1, 2]
    read = make(AvroDeserializer, client, newer)(payload, context)
    assert read == {"id": 1, "item": "tea", "price": 0.5}


def test_avro_that_may_not_register(
    client: SchemaRegistryClient, make: Make, context: SerializationContext
) -> None:
    make(AvroSerializer, client, json.dumps(ORDER))({"id": 1, "item": "tea"}, context)
    client.clear_caches()
    for conf in (
        {"auto.register.schemas": False},
        {"auto.register.schemas": False, "use.latest.version": True},
        {"normalize.schemas": True},
    ):
        again = make(AvroSerializer, client, json.dumps(ORDER), conf=conf)
        assert again({"id": 2, "item": "tea"}, context)


def test_json(client: SchemaRegistryClient, make: Make, context: SerializationContext) -> None:
    serialize = make(JSONSerializer, json.dumps(JSON_ORDER), client)
    payload = serialize({"id": 1, "item": "tea"}, context)
    assert payload is not None
    client.clear_caches()
    deserialize = make(JSONDeserializer, None, schema_registry_client=client)
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


def test_protobuf_with_imports(
    client: SchemaRegistryClient, make: Make, context: SerializationContext
) -> None:
    order, _ = message_classes()
    value = order(id=7)
    value.at.city = "Praha"
    value.when.seconds = 5
    serialize = make(ProtobufSerializer, order, client, {"use.deprecated.format": False})
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
    deserialize = make(ProtobufDeserializer, order, {"use.deprecated.format": False}, client)
    read = deserialize(payload, context)
    assert (read.id, read.at.city, read.when.seconds) == (7, "Praha", 5)
    # The same message again finds the same version.
    assert serialize(value, context) == payload
    assert client.get_versions(subject) == [1]


def test_guids_in_headers(
    client: SchemaRegistryClient, make: Make, context: SerializationContext
) -> None:
    """All three serializers, told to put the name of the schema into a header."""
    in_header = {"schema.id.serializer": header_schema_id_serializer}
    order, _ = message_classes()
    deprecated = {"use.deprecated.format": False}
    for serialize, deserialize, value in (
        (
            make(AvroSerializer, client, json.dumps(ORDER), conf=in_header),
            make(AvroDeserializer, client),
            POT,
        ),
        (
            make(JSONSerializer, json.dumps(JSON_ORDER), client, conf=in_header),
            make(JSONDeserializer, None, schema_registry_client=client),
            POT,
        ),
        (
            make(ProtobufSerializer, order, client, in_header | deprecated),
            make(ProtobufDeserializer, order, deprecated, client),
            order(id=7, at={"city": "Praha"}),
        ),
    ):
        topic = f"t-{uuid.uuid4().hex[:8]}"
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


def test_serializers_choose_a_schema_as_they_are_told(
    client: SchemaRegistryClient, make: Make, context: SerializationContext
) -> None:
    subject = f"{context.topic}-value"
    owner = Metadata(None, MetadataProperties({"owner": "shop"}), None)
    first = client.register_schema(subject, Schema(json.dumps(ORDER), "AVRO", [], owner))
    fields = [*ORDER["fields"], {"name": "price", "type": "double", "default": 0.5}]
    newer = json.dumps({**ORDER, "fields": fields})
    second = client.register_schema(subject, Schema(newer, "AVRO"))
    choices: tuple[tuple[dict[str, Any], int], ...] = (
        ({"use.schema.id": first}, first),
        ({"use.latest.with.metadata": {"owner": "shop"}}, first),
        ({"use.latest.version": True}, second),
    )
    for choice, expected in choices:
        client.clear_caches()
        conf = {"auto.register.schemas": False, **choice}
        payload = make(AvroSerializer, client, conf=conf)(POT, context)
        assert payload[1:5] == expected.to_bytes(4, "big"), conf
        read = make(AvroDeserializer, client, conf={"use.latest.version": True})(payload, context)
        assert read == POT | {"price": 0.5}
    assert client.get_versions(subject) == [1, 2]


@pytest.mark.parametrize("strategy", ["TOPIC", "RECORD", "TOPIC_RECORD", "ASSOCIATED"])
def test_subjects_are_named_by_any_strategy(
    client: SchemaRegistryClient, make: Make, context: SerializationContext, strategy: str
) -> None:
    topic, name = context.topic, f"Order_{uuid.uuid4().hex[:8]}"
    schema = json.dumps({**ORDER, "name": name})
    subject = {
        "TOPIC": f"{topic}-value",
        "RECORD": f"shop.{name}",
        "TOPIC_RECORD": f"{topic}-shop.{name}",
        "ASSOCIATED": f"orders-of-{topic}",
    }[strategy]
    if strategy == "ASSOCIATED":
        client.register_schema(subject, Schema(schema, "AVRO"))
        info = AssociationCreateOrUpdateInfo(subject, "value", "WEAK")
        client.create_association(
            AssociationCreateOrUpdateRequest(topic, "lkc-1", f"id-{topic}", "topic", [info])
        )
    conf = {"subject.name.strategy.type": SubjectNameStrategyType[strategy]}
    payload = make(AvroSerializer, client, schema, conf=conf)(POT, context)
    assert client.get_versions(subject) == [1]
    client.clear_caches()
    assert make(AvroDeserializer, client, conf=conf)(payload, context) == POT


def test_schemas_that_refer_to_others(
    client: SchemaRegistryClient, make: Make, context: SerializationContext
) -> None:
    """Serializers ask for each of them by its subject and version."""
    city = {"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]}
    place = {"type": "record", "name": "Place", "fields": [{"name": "in", "type": "City"}]}
    order = {**ORDER, "namespace": "", "fields": [{"name": "at", "type": "Place"}]}
    json_city = {"type": "object", "properties": {"name": {"type": "string"}}}
    json_place = {"type": "object", "properties": {"in": {"$ref": "City"}}}
    json_order = {"title": "Order", "type": "object", "properties": {"at": {"$ref": "Place"}}}
    value = {"at": {"in": {"name": "Praha"}}}
    for kind, schemas in (
        ("AVRO", (city, place, order)),
        ("JSON", (json_city, json_place, json_order)),
    ):
        references: list[SchemaReference] = []
        for name, schema in zip(("City", "Place"), schemas, strict=False):
            subject = f"{context.topic}-{kind}-{name}"
            client.register_schema(subject, Schema(json.dumps(schema), kind, references))
            references = [SchemaReference(name, subject, 1)]
        top = Schema(json.dumps(schemas[2]), kind, references)
        where = SerializationContext(f"{context.topic}-{kind}", MessageField.VALUE)
        if kind == "AVRO":
            serialize, deserialize = (
                make(AvroSerializer, client, top),
                make(AvroDeserializer, client),
            )
        else:
            serialize = make(JSONSerializer, top, client)
            deserialize = make(JSONDeserializer, top, schema_registry_client=client)
        payload = serialize(value, where)
        client.clear_caches()
        assert deserialize(payload, where) == value
        if kind == "JSON":
            with pytest.raises(SerializationError):
                serialize({"at": {"in": {"name": 3}}}, where)


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
