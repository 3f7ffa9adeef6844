"""Confluent's own client, unchanged, with every argument that its calls take."""

from __future__ import annotations

import ast
import base64
import inspect
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    AsyncSchemaRegistryClient,
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
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from tests.http.registry.test_client import avro, record

# What has nothing to do with a registry.
OF_THE_CLIENT_ALONE = {"close", "aclose", "config", "new_client"}
PLACE = {"type": "record", "name": "Place", "fields": []}
EXTENDED = """syntax = "proto2";
message Order {
  optional int32 id = 1;
  extensions 100 to 199;
}
extend Order {
  optional int32 more = 100;
}
"""


@pytest.fixture
def client(either_client: SchemaRegistryClient) -> SchemaRegistryClient:
    return either_client


@pytest.fixture
def subject() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


def own(subject: str, **more: Any) -> Schema:
    """A schema that no other test has."""
    return avro(**{subject.replace("-", "_"): "int"}, **more)


def test_every_call_and_every_argument_is_in_these_tests() -> None:
    used: dict[str, set[str]] = {}
    signatures: dict[str, list[str]] = {}
    for kind in (SchemaRegistryClient, AsyncSchemaRegistryClient):
        for name, function in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") and name not in OF_THE_CLIENT_ALONE:
                parameters = list(inspect.signature(function).parameters)[1:]
                assert signatures.setdefault(name, parameters) == parameters
    here = Path(__file__)
    for path in (here, here.with_name("test_client.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                name = node.func.attr
                found = used.setdefault(name, set())
                found.update(signatures.get(name, [])[: len(node.args)])
                found.update(each.arg for each in node.keywords if each.arg is not None)
    missing = [
        f"{name}({parameter})" if parameter else name
        for name, parameters in signatures.items()
        for parameter in ["", *parameters]
        if name not in used or (parameter and parameter not in used[name])
    ]
    assert not missing


def test_lists_come_in_pages(client: SchemaRegistryClient, subject: str) -> None:
    for number in range(3):
        client.register_schema(f"{subject}-{number}", own(subject))
    found = client.register_schema(f"{subject}-0", own(subject))
    names = [f"{subject}-{number}" for number in range(3)]
    assert client.get_subjects(subject_prefix=subject, offset=1, limit=1) == names[1:2]
    assert client.get_subjects_by_schema_id(found, offset=1) == names[1:]
    assert client.get_subjects_by_schema_id(found, limit=2) == names[:2]
    assert client.get_subjects_by_schema_id(found, subject_name=names[1]) == names[1:2]
    versions = client.get_schema_versions(found, offset=1, limit=1)
    assert [(each.subject, each.version) for each in versions] == [(names[1], 1)]
    (version,) = client.get_schema_versions(found, subject_name=names[2])
    assert version.subject == names[2]
    client.register_schema(names[0], own(subject, more=("int", 0)))
    assert client.get_versions(names[0], offset=1, limit=5) == [2]
    client.delete_subject(names[2])
    assert client.get_subjects_by_schema_id(found) == names[:2]
    assert client.get_subjects_by_schema_id(found, deleted=True) == names
    assert len(client.get_schema_versions(found, deleted=True)) == 3
    assert "." in client.get_contexts(offset=0, limit=1)
    assert client.get_contexts(offset=1_000) == []


def test_what_is_deleted_is_found_by_those_who_ask_for_it(
    client: SchemaRegistryClient, subject: str
) -> None:
    metadata = Metadata(None, MetadataProperties({"owner": "shop"}), None)
    text = json.dumps(record(**{subject.replace("-", "_"): "int"}))
    schema = Schema(text, "AVRO", [], metadata)
    first = client.register_schema(subject, schema)
    assert client.get_versions(subject, deleted_only=True) == []
    assert client.delete_version(subject, 1) == 1
    client.clear_caches()
    assert client.lookup_schema(subject, schema, deleted=True).schema_id == first
    assert client.get_version(subject, 1, deleted=True).schema_id == first
    client.clear_latest_caches()
    latest = client.get_latest_with_metadata(subject, {"owner": "shop"}, deleted=True)
    assert latest.schema_id == first
    assert client.get_subjects(subject_prefix=subject, deleted=True) == [subject]
    assert client.get_subjects(subject_prefix=subject, deleted_only=True) == [subject]
    assert client.delete_version(subject, 1, permanent=True) == 1
    assert client.get_subjects(subject_prefix=subject, deleted=True) == []


def test_normalized_by_every_call_that_can(client: SchemaRegistryClient, subject: str) -> None:
    one = Schema(f'{{"type": "object", "properties": {{}}, "title": "{subject}"}}', "JSON")
    other = Schema(f'{{"title": "{subject}", "properties": {{}}, "type": "object"}}', "JSON")
    found = client.register_schema_full_response(subject, one, normalize_schemas=True)
    client.clear_caches()
    again = client.register_schema_full_response(subject, other, normalize_schemas=True)
    assert again.schema_id == found.schema_id
    assert client.get_versions(subject) == [1]
    for version in ("latest", 1):
        assert client.test_compatibility(
            subject, other, version=version, normalize=True, verbose=True
        )
    assert client.test_compatibility_all_versions(subject, other, normalize=True, verbose=True)
    # Who asks for reasons is told that it is no schema, instead of being refused.
    for nonsense in (Schema("{", "AVRO"), Schema('{"type": "nonsense"}', "JSON")):
        assert not client.test_compatibility(subject, nonsense, verbose=True)
        assert not client.test_compatibility_all_versions(subject, nonsense, verbose=True)


def test_avro_with_the_types_of_others_in_it(client: SchemaRegistryClient, subject: str) -> None:
    place = f"{subject}-place"
    client.register_schema(place, Schema(json.dumps(PLACE), "AVRO"))
    reference = SchemaReference("Place", place, 1)
    text = json.dumps(record(**{subject.replace("-", "_"): "Place"}))
    found = client.register_schema(subject, Schema(text, "AVRO", [reference]))
    client.clear_caches()
    resolved = client.get_schema(found, subject_name=subject, fmt="resolved")
    (field,) = json.loads(resolved.schema_str or "")["fields"]
    assert field["type"] == PLACE
    # The client keeps what it got, in whatever form it asked for it.
    client.clear_caches()
    guid = client.get_latest_version(subject, fmt="resolved").guid
    client.clear_caches()
    for other in (
        client.get_version(subject, "latest", fmt="resolved").schema,
        client.get_schema_by_guid(guid or "", fmt="resolved"),
        client.get_latest_with_metadata(subject, {}, fmt="resolved").schema,
    ):
        assert other is not None
        assert other.schema_str == resolved.schema_str
    client.clear_caches()
    # One that a type does not have is the usual one, as in Confluent's registry.
    plain = client.get_schema(found, fmt="serialized", reference_format="qualified")
    assert json.loads(plain.schema_str or "") == json.loads(text)
    same = client.lookup_schema(subject, Schema(text, "AVRO", [reference]), fmt="resolved")
    assert same.schema_id == found
    assert client.get_referenced_by(place, version=1, offset=0, limit=1) == [found]
    assert client.get_referenced_by(place, 1, offset=1) == []


def test_protobuf_as_a_descriptor_and_without_extensions(
    client: SchemaRegistryClient, subject: str
) -> None:
    client.register_schema(subject, Schema(EXTENDED, "PROTOBUF"))
    text = client.get_latest_version(subject, fmt="serialized").schema.schema_str
    file = FileDescriptorProto.FromString(base64.b64decode(text or ""))
    assert [each.name for each in file.extension] == ["more"]
    client.clear_caches()
    text = client.get_latest_version(subject, fmt="ignore_extensions").schema.schema_str or ""
    assert "optional int32 id = 1;" in text
    assert "exten" not in text


def test_settings_of_all(client: SchemaRegistryClient, subject: str) -> None:
    try:
        assert client.set_compatibility(level="FULL")
        assert client.get_compatibility() == "FULL"
        full = ServerConfig(compatibility=ConfigCompatibilityLevel.FORWARD)
        client.set_config(config=full)
        assert client.get_config().compatibility_level is ConfigCompatibilityLevel.FORWARD
    finally:
        assert client.delete_config().compatibility_level is ConfigCompatibilityLevel.FORWARD
    assert client.get_compatibility() == "BACKWARD"
    client.register_schema(subject, own(subject))
    try:
        assert client.update_global_mode("IMPORT", force=True) == "IMPORT"
        assert client.get_global_mode() == "IMPORT"
    finally:
        assert client.update_global_mode("READWRITE") == "READWRITE"


def test_associations_by_type(client: SchemaRegistryClient, subject: str) -> None:
    infos = []
    for kind in ("key", "value"):
        name = f"{subject}-{kind}"
        client.register_schema(name, own(subject))
        infos.append(AssociationCreateOrUpdateInfo(name, kind, "WEAK"))
    identity = f"id-{subject}"
    client.create_association(
        AssociationCreateOrUpdateRequest(subject, "lkc-1", identity, "topic", infos)
    )

    def found(**more: Any) -> list[str]:
        page = client.get_associations_by_resource_name(subject, "-", **more)
        return sorted(each.association_type or "" for each in page)

    assert found() == ["key", "value"]
    assert found(resource_type="table") == []
    assert found(association_types=["key"]) == ["key"]
    assert client.get_associations_by_resource_name(
        subject, "lkc-1", resource_type="topic", association_types=["value"], offset=0, limit=5
    )
    assert len(found(offset=1)) == 1
    assert len(found(limit=1)) == 1
    client.delete_associations(identity, resource_type="topic", association_types=["key"])
    assert found() == ["value"]
    client.delete_associations(identity, cascade_lifecycle=False)
    assert found() == []
