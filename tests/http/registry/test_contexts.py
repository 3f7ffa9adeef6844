"""Contexts: what a path, a reference, an alias or a setting in one of them means."""

from __future__ import annotations

import json
import uuid
from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from moldau.schemas import RegistryClient
from moldau.testing import Broker
from tests.http.registry.test_client import V1, V2, record

PLACE = json.dumps({"type": "record", "name": "Place", "fields": []})
OTHER_PLACE = json.dumps({"type": "enum", "name": "Place", "symbols": ["A"]})


class Asking:
    """The API as it is, in a context of this test alone."""

    def __init__(self, broker: Broker) -> None:
        self.context = f".lab-{uuid.uuid4().hex[:8]}"
        self.inside = f":{self.context}:"
        self._url = broker.http_url

    def __call__(self, method: str, path: str, content: object = None) -> Any:
        answer = httpx.request(method, self._url + path, json=content, timeout=30)
        assert answer.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
        return answer.json()

    def here(self, method: str, path: str, content: object = None) -> Any:
        return self(method, f"/contexts/{self.context}{path}", content)


@pytest.fixture
def ask(registry_broker: Broker) -> Asking:
    return Asking(registry_broker)


def test_lists_are_of_the_context_in_the_path(ask: Asking, client: SchemaRegistryClient) -> None:
    name = f"{ask.inside}orders"
    client.register_schema(name, V1)
    client.register_schema(f"outside{ask.context}", V1)
    assert ask.here("GET", "/subjects") == [name]
    assert ask.here("GET", "/subjects?subjectPrefix=ord") == [name]
    assert ask.here("GET", "/subjects?subjectPrefix=x") == []
    assert [each["subject"] for each in ask.here("GET", "/schemas")] == [name]
    everywhere = ask("GET", "/subjects")
    assert name in everywhere
    assert f"outside{ask.context}" in everywhere
    assert name not in ask("GET", "/subjects?subjectPrefix=")
    assert name not in [each["subject"] for each in ask("GET", "/schemas")]


def test_what_is_deleted_can_be_listed_alone(ask: Asking, client: SchemaRegistryClient) -> None:
    name = f"{ask.inside}orders"
    client.register_schema(name, V1)
    client.register_schema(name, V2)
    client.delete_version(name, 1)
    assert ask("GET", f"/subjects/{name}/versions?deletedOnly=true") == [1]
    assert ask.here("GET", "/subjects?deletedOnly=true") == [name]


def test_settings_of_a_context_leave_all_others_alone(
    ask: Asking, client: SchemaRegistryClient
) -> None:
    client.register_schema(f"{ask.inside}orders", V1)
    assert ask.here("PUT", "/config", {"compatibility": "FULL"}) == {"compatibility": "FULL"}
    assert ask("GET", "/config")["compatibilityLevel"] == "BACKWARD"
    assert ask("GET", f"/config/{ask.inside}")["compatibilityLevel"] == "FULL"
    orders = f"/config/{ask.inside}orders?defaultToGlobal=true"
    assert ask("GET", orders)["compatibilityLevel"] == "FULL"
    assert ask.here("DELETE", "/config")["compatibilityLevel"] == "FULL"
    assert ask.here("GET", "/config")["error_code"] == 40408

    assert ask.here("PUT", "/mode", {"mode": "IMPORT"})["error_code"] == 42205
    assert ask.here("PUT", "/mode", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert ask("GET", "/mode") == {"mode": "READWRITE"}
    assert ask("DELETE", f"/subjects/{ask.inside}orders")["error_code"] == 42205
    assert ask.here("DELETE", "/mode") == {"mode": "READONLY"}
    assert ask("DELETE", f"/subjects/{ask.inside}orders") == [1]
    # Passing requests on is nothing that a single subject can do.
    forward = ask("PUT", f"/mode/{ask.inside}orders", {"mode": "FORWARD"})
    assert forward["error_code"] == 42204


def test_the_default_context_is_that_of_all(ask: Asking) -> None:
    assert ask("PUT", "/mode/:.:", {"mode": "READONLY"}) == {"mode": "READONLY"}
    try:
        assert ask("GET", "/mode") == {"mode": "READONLY"}
    finally:
        assert ask("DELETE", "/mode") == {"mode": "READONLY"}
    assert ask("GET", "/mode") == {"mode": "READWRITE"}
    assert ask("DELETE", "/mode")["error_code"] == 40401


def test_a_reference_means_a_subject_of_its_own_context(
    ask: Asking, client: SchemaRegistryClient, registry_broker: Broker
) -> None:
    place = f"place{ask.context}"
    client.register_schema(place, Schema(OTHER_PLACE, "AVRO"))
    client.register_schema(f"{ask.inside}{place}", Schema(PLACE, "AVRO"))
    reference = SchemaReference("Place", place, 1)
    outer = Schema(json.dumps(record(at="Place")), "AVRO", [reference])
    found = client.register_schema(f"{ask.inside}orders", outer)
    assert client.get_referenced_by(f"{ask.inside}{place}", 1) == [found]
    assert client.get_referenced_by(place, 1) == []
    assert client.delete_subject(place) == [1]
    refused = ask("DELETE", f"/subjects/{ask.inside}{place}")
    assert refused["error_code"] == 42206
    path = f"/subjects/{ask.inside}orders/versions/1"
    assert ask("GET", path)["references"][0]["subject"] == place
    (qualified,) = ask("GET", f"{path}?referenceFormat=qualified")["references"]
    assert qualified["subject"] == f"{ask.inside}{place}"
    with RegistryClient(registry_broker.http_url) as ours:
        (dependency,) = ours.version(f"{ask.inside}orders", 1).dependencies
    assert json.loads(dependency.schema)["type"] == "record"


def test_a_reference_to_the_latest_version_keeps_its_number(
    ask: Asking, client: SchemaRegistryClient
) -> None:
    place = f"{ask.inside}place"
    for symbols in ("A", "AB"):
        text = json.dumps({"type": "enum", "name": "Place", "symbols": list(symbols)})
        client.register_schema(place, Schema(text, "AVRO"))
    reference = SchemaReference("Place", place, -1)
    outer = Schema(json.dumps(record(at="Place")), "AVRO", [reference])
    client.register_schema(f"{ask.inside}orders", outer)
    found = client.get_latest_version(f"{ask.inside}orders").schema.references
    assert found is not None
    assert [each.version for each in found] == [2]


def test_a_new_schema_cannot_refer_to_one_that_is_deleted(
    ask: Asking, client: SchemaRegistryClient
) -> None:
    place = f"{ask.inside}place"
    client.register_schema(place, Schema(PLACE, "AVRO"))
    client.delete_subject(place)
    body = {
        "schema": json.dumps(record(at="Place")),
        "references": [{"name": "Place", "subject": place, "version": 1}],
    }
    refused = ask("POST", f"/subjects/{ask.inside}orders/versions", body)
    assert refused["error_code"] == 42201
    assert place in refused["message"]


def test_an_alias_stands_for_a_subject_of_its_own_context(
    ask: Asking, client: SchemaRegistryClient
) -> None:
    client.register_schema(f"{ask.inside}orders", V1)
    ask("PUT", f"/config/{ask.inside}short", {"alias": "orders"})
    found = ask("GET", f"/subjects/{ask.inside}short/versions/latest")
    assert found["subject"] == f"{ask.inside}orders"
    assert ask("DELETE", f"/subjects/{ask.inside}short") == [1]
    assert ask.here("GET", "/subjects") == []


def test_associations_are_found_by_the_id_of_their_resource(
    ask: Asking, client: SchemaRegistryClient
) -> None:
    subject = f"{ask.inside}orders"
    client.register_schema(subject, V1)
    info = {"subject": subject, "associationType": "value", "lifecycle": "WEAK"}
    body = {"resourceName": "orders", "resourceNamespace": "lkc-1", "associations": [info]}
    path = f"/associations/resources/id{ask.context}"
    assert ask("POST", "/associations", body)["error_code"] == 42212
    assert ask("PUT", path, body)["resourceId"] == f"id{ask.context}"
    (found,) = ask("GET", path)
    assert (found["subject"], found["lifecycle"]) == (subject, "WEAK")
    body["associations"] = [info | {"lifecycle": "STRONG"}]
    assert ask("PUT", path, body)["associations"][0]["lifecycle"] == "STRONG"
