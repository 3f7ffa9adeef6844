"""Confluent's own client, unchanged, through every call that it has."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.common.schema_registry_client import (
    AssociationCreateOrUpdateInfo,
    AssociationCreateOrUpdateRequest,
)
from confluent_kafka.schema_registry.error import SchemaRegistryError

from moldau.testing import Broker


def avro(**fields: Any) -> Schema:
    return Schema(json.dumps(record(**fields)), "AVRO")


def record(**fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": name, "type": kind[0], "default": kind[1]}
            if isinstance(kind, tuple)
            else {"name": name, "type": kind}
            for name, kind in fields.items()
        ],
    }


V1, V2 = avro(id="int"), avro(id="int", price=("double", 0.0))
BROKEN = avro(id="int", item="string")


@pytest.fixture
def client(either_client: SchemaRegistryClient) -> SchemaRegistryClient:
    return either_client


@pytest.fixture
def subject() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


def code(error: pytest.ExceptionInfo[SchemaRegistryError]) -> tuple[int, int]:
    return error.value.http_status_code, error.value.error_code


def test_versions_ids_and_lookups(client: SchemaRegistryClient, subject: str) -> None:
    own = subject.replace("-", "_")
    one, other = avro(**{own: "int"}), avro(**{own: "int"}, price=("double", 0.0))
    first = client.register_schema(subject, one)
    assert client.register_schema(subject, one) == first
    full = client.register_schema_full_response(subject, other)
    assert full.schema_id == first + 1
    client.clear_caches()
    assert json.loads(client.get_schema(first).schema_str or "") == record(**{own: "int"})
    assert client.get_versions(subject) == [1, 2]
    assert client.get_latest_version(subject).version == 2
    found = client.lookup_schema(subject, one)
    assert (found.schema_id, found.version, found.subject) == (first, 1, subject)
    assert found.guid
    by_guid = client.get_schema_by_guid(found.guid)
    assert by_guid.schema_str == client.get_version(subject, 1).schema.schema_str
    assert client.get_subjects_by_schema_id(first) == [subject]
    assert [(each.subject, each.version) for each in client.get_schema_versions(first)] == [
        (subject, 1)
    ]
    assert set(client.get_schema_types()) == {"AVRO", "JSON", "PROTOBUF"}
    assert subject in client.get_subjects()
    assert client.get_subjects(subject_prefix=subject) == [subject]
    assert client.get_subjects(subject_prefix=subject, limit=0) == []
    # Other tests make more of them.
    assert "." in client.get_contexts()
    # The same schema has the same id under another subject.
    assert client.register_schema(f"{subject}-2", one) == first
    assert client.get_subjects_by_schema_id(first) == [subject, f"{subject}-2"]


def test_what_is_not_there(client: SchemaRegistryClient, subject: str) -> None:
    for ask, expected in (
        (lambda: client.get_schema(987654), (404, 40403)),
        (lambda: client.get_latest_version(subject), (404, 40401)),
        (lambda: client.get_versions(subject), (404, 40401)),
        (lambda: client.lookup_schema(subject, V1), (404, 40401)),
        (lambda: client.delete_subject(subject), (404, 40401)),
        (lambda: client.get_schema_by_guid(str(uuid.uuid4())), (404, 40403)),
        (lambda: client.get_compatibility(subject), (404, 40408)),
        (lambda: client.get_mode(subject), (404, 40409)),
    ):
        with pytest.raises(SchemaRegistryError) as refused:
            ask()
        assert code(refused) == expected
    client.register_schema(subject, V1)
    with pytest.raises(SchemaRegistryError) as refused:
        client.get_version(subject, 2)
    assert code(refused) == (404, 40402)
    with pytest.raises(SchemaRegistryError) as refused:
        client.get_version(subject, 0)
    assert code(refused) == (422, 42202)
    with pytest.raises(SchemaRegistryError) as refused:
        client.lookup_schema(subject, V2)
    assert code(refused) == (404, 40403)


def test_an_incompatible_schema_is_refused_with_the_reasons(
    client: SchemaRegistryClient, subject: str
) -> None:
    client.register_schema(subject, V1)
    with pytest.raises(SchemaRegistryError, match="READER_FIELD_MISSING_DEFAULT_VALUE") as refused:
        client.register_schema(subject, BROKEN)
    assert code(refused) == (409, 409)
    assert "item" in str(refused.value)
    assert client.test_compatibility(subject, V2)
    assert not client.test_compatibility(subject, BROKEN)
    assert not client.test_compatibility(subject, BROKEN, version=1)
    assert not client.test_compatibility_all_versions(subject, BROKEN)
    assert client.test_compatibility(f"{subject}-none", BROKEN)
    client.set_compatibility(subject, "NONE")
    assert client.get_compatibility(subject) == "NONE"
    assert client.test_compatibility(subject, BROKEN)
    client.register_schema(subject, BROKEN)


@pytest.mark.parametrize(
    ("level", "admits"),
    [
        ("BACKWARD", True), ("BACKWARD_TRANSITIVE", False), ("FORWARD", True),
        ("FORWARD_TRANSITIVE", True), ("FULL", True), ("FULL_TRANSITIVE", False), ("NONE", True),
    ],
)  # fmt: skip
def test_levels_look_at_the_versions_they_name(
    client: SchemaRegistryClient, subject: str, level: str, admits: bool
) -> None:
    client.register_schema(subject, V1)
    client.register_schema(subject, V2)
    client.set_compatibility(subject, level)
    third = avro(id="int", price="double")
    assert client.test_compatibility_all_versions(subject, third) is admits
    if admits:
        assert client.register_schema(subject, third)
    else:
        with pytest.raises(SchemaRegistryError):
            client.register_schema(subject, third)


def test_config_of_a_subject_and_of_all(client: SchemaRegistryClient, subject: str) -> None:
    assert client.get_config().compatibility_level is ConfigCompatibilityLevel.BACKWARD
    full = ConfigCompatibilityLevel.FULL
    owner = Metadata(None, MetadataProperties({"owner": "shop"}), None)
    given = ServerConfig(compatibility=full, compatibility_group="major", default_metadata=owner)
    client.set_config(subject, given)
    found = client.get_config(subject)
    assert found.compatibility_level is full
    assert found.compatibility_group == "major"
    # A group of its own is not compared with the others.
    for major in ("1", "2"):
        metadata = Metadata(None, MetadataProperties({"major": major}), None)
        text = json.dumps(record(id="int" if major == "1" else "string"))
        client.register_schema(subject, Schema(text, "AVRO", [], metadata))
    latest = client.get_latest_with_metadata(subject, {"major": "1"})
    assert latest.version == 1
    kept = latest.schema.metadata
    assert kept is not None
    assert kept.properties is not None
    assert kept.properties.properties == {"owner": "shop", "major": "1"}
    client.delete_config(subject)
    with pytest.raises(SchemaRegistryError):
        client.get_config(subject)
    with pytest.raises(SchemaRegistryError) as refused:
        client.set_compatibility(subject, "SIDEWAYS")
    assert code(refused) == (422, 42203)


def test_modes(client: SchemaRegistryClient, subject: str) -> None:
    assert client.get_global_mode() == "READWRITE"
    client.register_schema(subject, V1)
    assert client.update_mode(subject, "READONLY") == "READONLY"
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(subject, V2)
    assert code(refused) == (422, 42205)
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_subject(subject)
    assert code(refused) == (422, 42205)
    assert client.get_mode(subject) == "READONLY"
    assert client.delete_mode(subject) == "READONLY"
    with pytest.raises(SchemaRegistryError) as refused:
        client.update_mode(subject, "SIDEWAYS")
    assert code(refused) == (422, 42204)
    with pytest.raises(SchemaRegistryError) as refused:
        client.update_mode(subject, "IMPORT")
    assert code(refused) == (422, 42205)
    assert client.update_mode(subject, "IMPORT", force=True) == "IMPORT"
    client.delete_mode(subject)
    assert client.update_global_mode("READONLY") == "READONLY"
    try:
        with pytest.raises(SchemaRegistryError):
            client.register_schema(f"{subject}-other", V1)
    finally:
        assert client.update_global_mode("READWRITE") == "READWRITE"


def test_deletion_is_soft_and_then_permanent(client: SchemaRegistryClient, subject: str) -> None:
    first = client.register_schema(subject, V1)
    second = client.register_schema(subject, V2)
    assert client.delete_version(subject, 1) == 1
    client.clear_caches()
    assert client.get_versions(subject) == [2]
    assert client.get_versions(subject, deleted=True) == [1, 2]
    assert client.get_versions(subject, deleted_only=True) == [1]
    assert client.get_schema(first).schema_str
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_version(subject, 1)
    assert code(refused) == (404, 40406)
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_subject(subject, permanent=True)
    assert code(refused) == (404, 40405)
    assert client.delete_subject(subject) == [2]
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_subject(subject)
    assert code(refused) == (404, 40404)
    assert subject not in client.get_subjects()
    assert subject in client.get_subjects(deleted=True)
    assert subject in client.get_subjects(deleted_only=True)
    client.clear_caches()
    # Registered again, it goes on from there.
    again = client.register_schema_full_response(subject, V2)
    assert again.schema_id == second
    assert client.get_latest_version(subject).version == 3
    assert client.delete_subject(subject) == [3]
    assert client.delete_subject(subject, permanent=True) == [1, 2, 3]
    client.clear_caches()
    with pytest.raises(SchemaRegistryError):
        client.get_versions(subject, deleted=True)
    # An id is never given again.
    client.clear_caches()
    weight = {f"weight_{subject[2:]}": ("int", 1)}
    fresh = client.register_schema(subject, avro(id="int", **weight))
    assert fresh > second
    assert client.get_versions(subject) == [1]


def test_references(client: SchemaRegistryClient, subject: str) -> None:
    inner = json.dumps({"type": "record", "name": "Place", "fields": []})
    client.register_schema(f"{subject}-place", Schema(inner, "AVRO"))
    reference = SchemaReference("Place", f"{subject}-place", 1)
    outer = Schema(json.dumps(record(at="Place")), "AVRO", [reference])
    found = client.register_schema(subject, outer)
    client.clear_caches()
    assert client.get_schema(found).references == [reference]
    assert client.get_referenced_by(f"{subject}-place", 1) == [found]
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_subject(f"{subject}-place")
    assert code(refused) == (422, 42206)
    missing = SchemaReference("Place", f"{subject}-nowhere", 1)
    with pytest.raises(SchemaRegistryError, match="nowhere") as refused:
        client.register_schema(
            f"{subject}-2", Schema(json.dumps(record(at="Place")), "AVRO", [missing])
        )
    assert code(refused) == (422, 42201)
    client.delete_subject(subject)
    client.delete_subject(f"{subject}-place")


def test_contexts_have_ids_of_their_own(client: SchemaRegistryClient, subject: str) -> None:
    name = f":.lab-{subject}:orders"
    assert client.register_schema(name, V1) == 1
    assert f".lab-{subject}" in client.get_contexts()
    client.clear_caches()
    assert client.get_schema(1, subject_name=name).schema_str
    # All subjects, unless one asks for those of one context.
    assert name in client.get_subjects()
    assert name not in client.get_subjects(subject_prefix="")
    assert client.get_subjects(subject_prefix=f":.lab-{subject}:") == [name]
    assert name in client.get_subjects(subject_prefix=":*:")
    client.register_schema(subject, V1)
    assert client.get_versions(f":.:{subject}") == [1]


def test_normalized_schemas_are_the_same(client: SchemaRegistryClient, subject: str) -> None:
    one = Schema('{"type": "object", "properties": {}, "title": "x"}', "JSON")
    other = Schema('{"title": "x", "properties": {}, "type": "object"}', "JSON")
    found = client.register_schema(subject, one, normalize_schemas=True)
    client.clear_caches()
    assert client.register_schema(subject, other, normalize_schemas=True) == found
    assert client.lookup_schema(subject, other, normalize_schemas=True).version == 1


@pytest.mark.parametrize(
    "name", ["a/b", "übung 1", "a%2Fb", "a b?c=d&e#f", "..", "日本-value", ":x"]
)
def test_names_may_be_anything(client: SchemaRegistryClient, name: str) -> None:
    name = f"{name}-{uuid.uuid4().hex[:8]}"
    found = client.register_schema(name, V1)
    assert client.get_versions(name) == [1]
    assert name in client.get_subjects()
    assert client.lookup_schema(name, V1).schema_id == found
    client.set_compatibility(name, "FULL")
    assert client.get_compatibility(name) == "FULL"
    assert client.test_compatibility(name, V2)
    assert client.delete_subject(name) == [1]


def test_a_broker_that_starts_again_knows_everything(subject: str) -> None:
    with Broker(http_listen="127.0.0.1:0") as broker:
        client = SchemaRegistryClient({"url": broker.http_url})
        found = client.register_schema(subject, V1)
        client.set_compatibility(subject, "FULL")
        client.update_mode(subject, "READONLY")
        client.close()
        broker.stop()
        broker.start()
        with SchemaRegistryClient({"url": broker.http_url}) as client:
            assert client.lookup_schema(subject, V1).schema_id == found
            assert client.get_compatibility(subject) == "FULL"
            assert client.get_mode(subject) == "READONLY"


def test_associations_of_topics(client: SchemaRegistryClient, subject: str) -> None:
    def request(**more: Any) -> AssociationCreateOrUpdateRequest:
        info = AssociationCreateOrUpdateInfo(subject, "value", "STRONG", **more)
        return AssociationCreateOrUpdateRequest(subject, "lkc-1", f"id-{subject}", "topic", [info])

    with pytest.raises(SchemaRegistryError) as refused:
        client.create_association(request())
    assert code(refused) == (409, 40907)
    made = client.create_association(request(schema=V1, frozen=True))
    assert made.associations is not None
    assert [each.subject for each in made.associations] == [subject]
    assert client.get_versions(subject) == [1]
    for namespace in ("lkc-1", "-"):
        (found,) = client.get_associations_by_resource_name(subject, namespace, "topic", ["value"])
        assert (found.subject, found.resource_id, found.frozen) == (subject, f"id-{subject}", True)
    assert client.get_associations_by_resource_name(subject, "-", "topic", ["key"]) == []
    with pytest.raises(SchemaRegistryError) as refused:
        client.create_association(request(frozen=False))
    assert code(refused) == (409, 40903)
    again = client.create_association(request(frozen=True)).associations
    assert again is not None
    assert [each.subject for each in again] == [subject]
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_associations(f"id-{subject}")
    assert code(refused) == (409, 40908)
    client.delete_associations(f"id-{subject}", cascade_lifecycle=True)
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_associations(f"id-{subject}", cascade_lifecycle=True)
    assert code(refused) == (404, 40410)
    assert client.get_associations_by_resource_name(subject, "-") == []
    assert subject not in client.get_subjects()
