"""The topic `_schemas`: its records, and programs that use it without the registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from moldau.schemas import IncompatibleSchema, SchemaStore
from moldau.schemas.registry.records import decode
from moldau.testing import Broker
from tests.http.registry.test_client import V1, V2, record


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(http_listen="127.0.0.1:0") as broker:
        yield broker


def records(broker: Broker) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """All records of the topic, as JSON."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "x", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition("_schemas", 0, 0)])
    found = []
    while True:
        message = consumer.poll(60)
        assert message is not None
        if message.error() is not None:
            break
        key, value = message.key(), message.value()
        assert decode(key, value) is not None
        found.append((json.loads(key or b""), None if value is None else json.loads(value)))
    consumer.close()
    return found


def test_records_are_those_of_confluents_registry(broker: Broker) -> None:
    with SchemaRegistryClient({"url": broker.http_url}) as client:
        client.register_schema("s", V1)
        client.register_schema("j", Schema('{"type": "object"}', "JSON"))
        client.set_compatibility("s", "FULL")
        client.update_mode("s", "READONLY")
        client.delete_mode("s")
        client.delete_subject("s")
        client.delete_subject("s", permanent=True)
    text = '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"}]}'
    schema_key = {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}
    found = records(broker)
    assert [list(key) for key, _ in found[:1]] == [["keytype", "subject", "version", "magic"]]
    assert found == [
        (schema_key, {"subject": "s", "version": 1, "id": 1, "schema": text, "deleted": False}),
        (
            {"keytype": "SCHEMA", "subject": "j", "version": 1, "magic": 1},
            {
                "subject": "j", "version": 1, "id": 2, "schemaType": "JSON",
                "schema": '{"type":"object"}', "deleted": False,
            },
        ),
        ({"keytype": "CONFIG", "subject": "s", "magic": 0}, {"compatibilityLevel": "FULL"}),
        ({"keytype": "MODE", "subject": "s", "magic": 0}, {"mode": "READONLY"}),
        ({"keytype": "MODE", "subject": "s", "magic": 0}, None),
        (
            {"keytype": "DELETE_SUBJECT", "subject": "s", "magic": 0},
            {"subject": "s", "version": 1},
        ),
        ({"keytype": "NOOP", "magic": 0}, {"highestIds": {".": 2}}),
        (schema_key, None),
        ({"keytype": "DELETE_SUBJECT", "subject": "s", "magic": 0}, None),
        ({"keytype": "CONFIG", "subject": "s", "magic": 0}, None),
    ]  # fmt: skip


def test_what_a_program_without_the_registry_has_kept_is_carried_over(broker: Broker) -> None:
    with SchemaStore(broker.bootstrap) as store:
        first = store.register("s", record(id="int"))
        store.set_mode("FULL", "s")
        with SchemaRegistryClient({"url": broker.http_url}) as client:
            assert client.lookup_schema("s", V1).schema_id == first.id
            assert client.get_compatibility("s") == "FULL"
            second = client.register_schema("s", V2)
            assert second == first.id + 1
            # Claims are gone, and what they said is there without them.
            keys = {json.dumps(key): value for key, value in records(broker)}
            assert all(value is None for key, value in keys.items() if "nonce" in key)
            assert sum(value is not None for key, value in keys.items() if "SCHEMA" in key) == 2
            # The program goes on, and sees what the registry has registered.
            assert store.find("s", record(id="int")) is not None
            assert store.version("s").id == second
            third = store.register("s", record(id="int", weight=("int", 1)))
            assert (third.version, third.id) == (3, second + 1)
            assert client.get_versions("s") == [1, 2, 3]
            with pytest.raises(IncompatibleSchema):
                store.register("s", record(id="string"))
            with pytest.raises(SchemaRegistryError):
                client.register_schema("s", Schema(json.dumps(record(id="string")), "AVRO"))
            client.delete_subject("s")
            assert store.versions("s") == []
            client.delete_subject("s", permanent=True)
    with SchemaStore(broker.bootstrap) as store:
        assert store.subjects() == []
        assert store.register("s", record(id="long")).id == third.id + 1
