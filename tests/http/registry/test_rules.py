"""Rules of the registry's API, where Confluent's is particular."""

from __future__ import annotations

import json
import uuid
from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import (
    Metadata,
    MetadataProperties,
    Rule,
    RuleKind,
    RuleMode,
    RuleParams,
    RuleSet,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
)

from moldau.testing import Broker
from tests.http.registry.test_client import V1, V2, record

PLACE = json.dumps({"type": "record", "name": "Place", "fields": []})
INT = {"schema": '"int"'}


class Asking:
    """The API as it is; an answer is its error code, or what it says."""

    def __init__(self, broker: Broker) -> None:
        self._url = broker.http_url

    def __call__(self, method: str, path: str, content: object = None) -> Any:
        answer = httpx.request(method, self._url + path, json=content, timeout=30)
        found = answer.json()
        assert (answer.status_code == 200) is not (
            isinstance(found, dict) and "error_code" in found
        )
        return found["error_code"] if answer.status_code != 200 else found


@pytest.fixture
def ask(registry_broker: Broker) -> Asking:
    return Asking(registry_broker)


@pytest.fixture
def subject() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


def referring(subject: str) -> Schema:
    """A schema that has a place, version 1 of a subject, in it."""
    return Schema(json.dumps(record(at="Place")), "AVRO", [SchemaReference("Place", subject, 1)])


def test_what_a_deleted_schema_refers_to_stays_for_those_who_read_old_messages(
    ask: Asking, client: SchemaRegistryClient, subject: str
) -> None:
    place = f"{subject}-place"
    client.register_schema(place, Schema(PLACE, "AVRO"))
    found = client.register_schema(subject, referring(place))
    client.delete_subject(subject)
    assert ask("GET", f"/subjects/{place}/versions/1/referencedby") == []
    assert ask("GET", f"/subjects/{place}/versions/1/referencedby?deleted=true") == [found]
    # It may be deleted, since nobody may begin to use it any more, but not for ever.
    client.delete_subject(place)
    assert ask("DELETE", f"/subjects/{place}?permanent=true") == 42206
    assert ask("DELETE", f"/subjects/{place}/versions/1?permanent=true") == 42206
    assert ask("DELETE", f"/subjects/{subject}?permanent=true") == [1]
    assert ask("DELETE", f"/subjects/{place}?permanent=true") == [1]


def test_a_subject_whose_versions_refer_to_each_other_goes_as_a_whole(
    ask: Asking, client: SchemaRegistryClient, subject: str
) -> None:
    client.set_compatibility(subject, "NONE")
    client.register_schema(subject, Schema(PLACE, "AVRO"))
    client.register_schema(subject, referring(subject))
    assert ask("DELETE", f"/subjects/{subject}/versions/1") == 42206
    assert client.delete_subject(subject) == [1, 2]
    assert client.delete_subject(subject, permanent=True) == [1, 2]


def test_settings_go_with_the_last_version(
    ask: Asking, client: SchemaRegistryClient, subject: str
) -> None:
    for schema in (V1, V2):
        client.register_schema(subject, schema)
    client.set_compatibility(subject, "FULL")
    client.update_mode(subject, "READWRITE")
    client.delete_subject(subject)
    assert client.delete_version(subject, 1, permanent=True) == 1
    assert client.get_compatibility(subject) == "FULL"
    assert client.delete_version(subject, 2, permanent=True) == 2
    assert ask("GET", f"/config/{subject}") == 40408
    assert ask("GET", f"/mode/{subject}") == 40409


def test_a_version_that_is_asked_for_is_the_next_one_or_refused(ask: Asking, subject: str) -> None:
    path = f"/subjects/{subject}/versions"
    assert ask("POST", path, INT | {"version": 2}) == 42201
    assert ask("POST", path, INT | {"version": 1})["version"] == 1
    assert ask("POST", path, {"schema": '"long"', "version": 1}) == 42201
    assert ask("POST", path, {"schema": '"long"', "version": 2})["version"] == 2
    assert ask("GET", f"{path}/LATEST")["version"] == 2
    assert ask("POST", path, INT | {"id": 5}) == 42205


def test_a_subject_that_may_only_be_read(ask: Asking, subject: str) -> None:
    path = f"/subjects/{subject}/versions"
    assert ask("POST", path, INT)["version"] == 1
    for mode in ("READONLY", "READONLY_OVERRIDE"):
        assert ask("PUT", f"/mode/{subject}", {"mode": mode}) == {"mode": mode}
        assert ask("GET", f"/mode/{subject}") == {"mode": mode}
        assert ask("POST", path, {"schema": '"long"'}) == 42205
        assert ask("PUT", f"/config/{subject}", {"compatibility": "NONE"}) == 42205
        assert ask("DELETE", f"/subjects/{subject}") == 42205
    assert ask("DELETE", f"/mode/{subject}") == {"mode": "READONLY_OVERRIDE"}
    assert ask("DELETE", f"/subjects/{subject}") == [1]


def test_an_import_may_be_sent_again(ask: Asking, subject: str) -> None:
    """Its ids are those of this test: in a context of its own."""
    name = f":.{subject}:orders"
    path = f"/subjects/{name}/versions"
    assert ask("PUT", f"/mode/{name}", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    for _ in range(2):
        assert ask("POST", path, INT | {"id": 7})["version"] == 1
    assert ask("GET", path) == [1]
    # An id stands for one schema: text, references, metadata and rules.
    owned = INT | {"id": 7, "metadata": {"properties": {"owner": "shop"}}}
    assert ask("POST", path, owned) == 42205
    assert ask("POST", path, {"schema": '"long"', "id": 7}) == 42205
    assert ask("POST", path, {"schema": '"long"', "id": 9, "version": 4})["version"] == 4
    # It is in that mode already.
    assert ask("PUT", f"/mode/{name}", {"mode": "IMPORT"}) == {"mode": "IMPORT"}


def test_what_was_deleted_makes_place_for_an_import(ask: Asking, subject: str) -> None:
    inside = f":.{subject}:"
    path = f"/subjects/{inside}orders/versions"
    first = ask("POST", path, INT)["id"]
    assert ask("PUT", f"/mode/{inside}", {"mode": "IMPORT"}) == 42205
    assert ask("DELETE", f"/subjects/{inside}orders") == [1]
    assert ask("PUT", f"/mode/{inside}", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    assert ask("POST", path, {"schema": '"long"', "id": first, "version": 1})["id"] == first
    assert json.loads(ask("GET", f"{path}/1")["schema"]) == "long"
    # Ids that are given later are still new ones.
    assert ask("DELETE", f"/mode/{inside}") == {"mode": "IMPORT"}
    assert ask("POST", f"/subjects/{inside}new/versions", {"schema": '"bytes"'})["id"] > first


def test_a_subject_that_a_topic_is_associated_with_is_not_deleted(
    ask: Asking, client: SchemaRegistryClient, subject: str
) -> None:
    client.register_schema(subject, V1)
    info = {"subject": subject, "associationType": "value", "lifecycle": "WEAK"}
    body = {"resourceName": subject, "resourceNamespace": "lkc-1", "associations": [info]}
    path = f"/associations/resources/id-{subject}"
    ask("PUT", path, body)
    assert ask("DELETE", f"/subjects/{subject}") == 40904
    ask("DELETE", path)
    assert ask("DELETE", f"/subjects/{subject}") == [1]


def test_metadata_and_rules_that_a_client_sends_back_are_the_same(
    client: SchemaRegistryClient, subject: str
) -> None:
    """The client adds what is empty to what it got."""
    metadata = Metadata(None, MetadataProperties({"owner": "shop"}), None)
    params = RuleParams({"k": "v"})
    rule = Rule("check", None, RuleKind.CONDITION, RuleMode.WRITE, "CEL", None, params, "true",
                None, None, False)  # fmt: skip
    text = json.dumps(record(**{subject.replace("-", "_"): "int"}))
    first = client.register_schema_full_response(
        subject, Schema(text, "AVRO", [], metadata, RuleSet(None, [rule]))
    )
    client.clear_caches()
    got = client.get_latest_version(subject).schema
    client.clear_caches()
    again = client.register_schema_full_response(subject, got)
    assert (again.schema_id, again.version) == (first.schema_id, 1)
    client.clear_caches()
    assert client.lookup_schema(subject, got).version == 1
    assert client.get_versions(subject) == [1]


RULE = {"name": "check", "kind": "CONDITION", "mode": "WRITE", "type": "CEL"}


@pytest.mark.parametrize(
    "rules",
    [
        {"domainRules": [RULE, RULE]},
        {"domainRules": [RULE | {"name": "1st"}]},
        {"domainRules": [RULE | {"name": "x" * 300}]},
        {"domainRules": [RULE | {"name": ""}]},
        {"domainRules": [{each: RULE[each] for each in ("name", "mode")}]},
        {"domainRules": [RULE | {"mode": "UPGRADE"}]},
        {"migrationRules": [RULE]},
        {"encodingRules": [RULE | {"onFailure": "NONE,ERROR"}]},
        {"domainRules": "all"},
        {"domainRules": ["all"]},
    ],
)
def test_rules_that_no_client_could_run_are_refused(
    ask: Asking, subject: str, rules: dict[str, Any]
) -> None:
    path = f"/subjects/{subject}/versions"
    assert ask("POST", path, INT | {"ruleSet": rules}) == 42210
    for part in ("defaultRuleSet", "overrideRuleSet"):
        assert ask("PUT", f"/config/{subject}", {part: rules}) == 42210
    both = RULE | {"name": "both", "mode": "WRITEREAD", "onFailure": "NONE,ERROR"}
    fine = {
        "domainRules": [RULE, both],
        "migrationRules": [RULE | {"name": "up", "mode": "UPDOWN"}],
    }
    assert ask("POST", path, INT | {"ruleSet": fine})["version"] == 1


@pytest.mark.parametrize("depth", [101, 700, 968, 980])
@pytest.mark.parametrize("part", ["metadata", "ruleSet"])
def test_metadata_that_is_nested_too_deeply_is_refused(
    registry_broker: Broker, subject: str, part: str, depth: int
) -> None:
    """Parsers of JSON take a little less than 1,000 levels, and writers less."""
    deep = '{"a":' * depth + "1" + "}" * depth
    for method, path, name in (
        ("POST", f"/subjects/{subject}/versions", part),
        ("POST", f"/subjects/{subject}-other", part),
        ("POST", f"/compatibility/subjects/{subject}/versions", part),
        ("PUT", f"/config/{subject}", f"default{part[0].upper()}{part[1:]}"),
    ):
        if path.endswith("-other"):
            httpx.post(f"{registry_broker.http_url}{path}/versions", json=INT)
        body = f'{{"schema": "\\"int\\"", "{name}": {deep}}}'
        answer = httpx.request(method, f"{registry_broker.http_url}{path}", content=body)
        assert answer.json()["error_code"] in (400, 42201), (path, answer.text[:200])
