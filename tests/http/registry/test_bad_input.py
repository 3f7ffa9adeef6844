"""Bad input to the registry: a clear refusal, and nobody else notices."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau import Producer
from moldau.http.registry import routes
from moldau.http.registry.routes import JSON_V1
from moldau.schemas.avro.schema import AvroSchema
from moldau.schemas.json_schema.schema import JsonSchema
from moldau.schemas.protobuf.schema import ProtobufSchema
from moldau.schemas.registry.records import SchemaKey, SchemaValue, encode_key, encode_value
from moldau.schemas.schema import Reference, SchemaType
from moldau.schemas.worker.process import SchemaWorker
from moldau.testing import Broker
from moldau.testing.waiting import until


@pytest.fixture(scope="module")
def http(registry_broker: Broker) -> Any:
    with httpx.Client(base_url=registry_broker.http_url, timeout=60) as client:
        yield client


def register(http: httpx.Client, schema: str, kind: str = "AVRO", **more: Any) -> httpx.Response:
    body = {"schema": schema, "schemaType": kind, **more}
    return http.post(f"/subjects/bad-{uuid.uuid4().hex[:8]}/versions", json=body)


def deep(opening: str, closing: str, depth: int) -> str:
    return opening * depth + '"int"' + closing * depth


EXPLODING = json.dumps({"type": "string", "pattern": "(a+)+" * 50 + "$"})
MANY_BRANCHES = json.dumps(["null", *({"type": "enum", "name": f"E{i}", "symbols": ["A"]}
                                      for i in range(2000))])  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "schema", "reason"),
    [
        ("AVRO", "", "empty"),
        ("AVRO", "{", "not JSON"),
        ("AVRO", '{"type": "recrd"}', "not an Avro schema"),
        ("AVRO", deep('{"type":"array","items":', "}", 101), "deep"),
        ("AVRO", deep('{"type":"array","items":', "}", 50_000), "deep"),
        ("AVRO", '"' + "a" * 300_000 + '"', "not an Avro schema"),
        ("AVRO", '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}',
         "must match schema type"),
        ("JSON", "[" * 100_000, "deep"),
        ("JSON", '{"$ref": "#"}', "circular"),
        ("JSON", '{"type": "nonsense"}', "not a JSON Schema"),
        ("PROTOBUF", "message A {" * 1000 + "}" * 1000, "recursion limit"),
        ("PROTOBUF", 'syntax = "proto3"; import "../../etc/passwd";', "not a Protobuf schema"),
        ("PROTOBUF", "A" * 300_000, "not a Protobuf schema"),
        ("THRIFT", "struct A {}", "no schema type"),
    ],
)  # fmt: skip
def test_a_bad_schema_is_refused_with_the_reason(
    http: httpx.Client, kind: str, schema: str, reason: str
) -> None:
    answer = register(http, schema, kind)
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42201)
    assert reason in answer.json()["message"]
    assert len(answer.content) < 10_000
    assert answer.headers["content-type"] == JSON_V1


def test_what_is_only_unusual_is_taken(http: httpx.Client) -> None:
    assert register(http, EXPLODING, "JSON").status_code == 200
    assert register(http, MANY_BRANCHES).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/subjects/s/versions", b"{", 400, 400),
        ("POST", "/subjects/s/versions", b"[]", 422, 422),
        ("POST", "/subjects/s/versions", b"{}", 422, 42201),
        ("POST", "/subjects/s/versions", b'{"schema": 3}', 422, 422),
        ("POST", "/subjects/s/versions", b"[" * 100_000, 422, 422),
        ("POST", "/subjects/s/versions", b'{"schema": "\xff"}', 400, 400),
        ("POST", "/subjects//versions", b'{"schema": "\\"int\\""}', 422, 42208),
        ("POST", "/subjects/a%00b/versions", b'{"schema": "\\"int\\""}', 422, 42208),
        ("POST", f"/subjects/{'x' * 2000}/versions", b'{"schema": "\\"int\\""}', 422, 42208),
        ("GET", "/subjects/s/versions/x", b"", 422, 42202),
        ("GET", "/subjects/s/versions/99999999999999999999", b"", 422, 42202),
        ("GET", "/subjects/s/versions/٣", b"", 422, 42202),
        ("GET", "/schemas/ids/x", b"", 400, 400),
        ("GET", "/schemas/ids/1/nonsense", b"", 404, 404),
        ("GET", "/subjects?offset=x", b"", 400, 400),
        ("PUT", "/subjects", b"", 405, 405),
        ("PUT", "/config", b'{"compatibility": "SIDEWAYS"}', 422, 42203),
        ("PUT", "/mode/s", b'{"mode": "FORWARD"}', 422, 42204),
    ],
)
def test_a_bad_request_is_refused(
    http: httpx.Client, method: str, path: str, body: bytes, status: int, code: int
) -> None:
    answer = http.request(method, path, content=body, headers={"content-type": JSON_V1})
    assert (answer.status_code, answer.json()["error_code"]) == (status, code)


def test_a_body_of_another_kind_or_too_large(http: httpx.Client) -> None:
    answer = http.post("/subjects/s/versions", content=b"{}", headers={"content-type": "text/css"})
    assert answer.status_code == 415
    answer = http.post("/subjects/s/versions", json={"schema": "x" * (9 << 20)})
    assert answer.status_code == 413
    # It fits into the request, but not into a record of the topic.
    answer = register(http, json.dumps({"description": "x" * (1 << 20)}), "JSON")
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42209)


def test_pages_of_other_sites_change_nothing(http: httpx.Client) -> None:
    body = json.dumps({"schema": '"int"'}).encode()
    # A page may send this from the browser of whoever visits it, without asking first.
    for origin in ("http://evil.example", "null", f"http://{http.base_url.host}:1"):
        answer = http.post("/subjects/lured/versions", content=body, headers={"origin": origin})
        assert answer.status_code == 403, origin
    assert "lured" not in http.get("/subjects", headers={"origin": "null"}).json()
    own = f"http://{http.base_url.host}:{http.base_url.port}"
    answer = http.post("/subjects/own-page/versions", content=body, headers={"origin": own})
    assert answer.status_code == 200


def test_who_wants_plain_json_gets_it(http: httpx.Client) -> None:
    answer = http.get("/subjects", headers={"accept": "application/json"})
    assert answer.headers["content-type"] == "application/json"


def test_who_only_looks_whether_it_is_up_gets_an_answer(http: httpx.Client) -> None:
    answer = http.get("/")
    assert (answer.status_code, answer.json()) == (200, {})
    assert answer.headers["content-type"] == JSON_V1


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    first=st.sampled_from(["subjects", "schemas", "config", "mode", "compatibility", "contexts"]),
    rest=st.text(max_size=20),
    body=st.binary(max_size=60),
)
def test_nothing_that_comes_makes_it_fail(
    http: httpx.Client, method: str, first: str, rest: str, body: bytes
) -> None:
    content = body if method in ("POST", "PUT") else None
    for safe in ("", "/"):
        path = f"/{first}/{quote(rest, safe=safe, errors='replace')}"
        answer = http.request(method, path, content=content)
        assert answer.status_code < 500, answer.text


def test_references_that_lead_too_far_are_refused(http: httpx.Client) -> None:
    """Each schema refers to the one before; without a limit the loop would follow them all."""
    name = f"chain-{uuid.uuid4().hex[:8]}"
    references: list[dict[str, Any]] = []
    text = 'syntax = "proto3";'
    for number in range(110):
        subject = f"{name}-{number}"
        body = {"schema": text, "schemaType": "PROTOBUF", "references": references}
        answer = http.post(f"/subjects/{subject}/versions", json=body)
        if answer.status_code != 200:
            break
        references = [{"name": f"p{number}.proto", "subject": subject, "version": 1}]
        text = f'syntax = "proto3"; import "p{number}.proto"; message M{number} {{}}'
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42201)
    assert "levels deep" in answer.json()["message"]
    assert number > 50


def test_references_in_a_ring_are_refused(registry_broker: Broker, http: httpx.Client) -> None:
    """No request can make one, but whoever may write to the topic can."""
    one, other, name = (f"ring-{uuid.uuid4().hex[:8]}" for _ in range(3))
    with Producer(registry_broker.bootstrap) as producer:
        for subject, next_one, schema_id in ((one, other, 900_001), (other, one, 900_002)):
            value = SchemaValue(
                subject, 1, schema_id, '{"$ref": "next"}', schema_type=SchemaType.JSON,
                references=[Reference("next", next_one, 1)],
            )  # fmt: skip
            key, payload = encode_key(SchemaKey(subject, 1)), encode_value(value)
            producer.send("_schemas", payload, key=key).result(60)

    def known() -> bool:
        return http.get(f"/subjects/{other}/versions").status_code == 200

    until(known, "the registry to read its topic")
    for path in (f"/subjects/{one}/versions/1", "/schemas/ids/900001"):
        assert http.get(path).json()["schema"] == '{"$ref": "next"}'
    references = [{"name": "next", "subject": one, "version": 1}]
    body = {"schema": '{"$ref": "next"}', "schemaType": "JSON", "references": references}
    answer = http.post(f"/subjects/{name}/versions", json=body)
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42201)
    assert "circular" in answer.json()["message"]
    # Whatever it is compared with cannot be read either; that is said, and others go on.
    refused = http.post(f"/subjects/{one}/versions", json={"schema": "{}", "schemaType": "JSON"})
    assert refused.status_code in (409, 422), refused.text
    assert register(http, '"int"').status_code == 200


def test_no_schema_is_parsed_or_compared_on_the_loop(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a schema costs, it costs a process of its own."""
    threads = []
    for schema in (AvroSchema, JsonSchema, ProtobufSchema):
        monkeypatch.setattr(schema, "__init__", lambda *_, **__: threads.append(1))
    subject = f"loop-{uuid.uuid4().hex[:8]}"
    for text, kind in (
        ('"int"', "AVRO"),
        ('"long"', "AVRO"),
        (deep('{"type":"array","items":', "}", 101), "AVRO"),
        (MANY_BRANCHES, "AVRO"),
        (EXPLODING, "JSON"),
        ('{"$ref": "#"}', "JSON"),
        ('syntax = "proto3"; message A { int32 a = 1; }', "PROTOBUF"),
    ):
        body = {"schema": text, "schemaType": kind}
        for path in (
            f"/subjects/{subject}-{kind}/versions",
            f"/subjects/{subject}-{kind}/versions?normalize=true",
            f"/subjects/{subject}-{kind}",
            f"/compatibility/subjects/{subject}-{kind}/versions?verbose=true",
        ):
            assert http.post(path, json=body).status_code < 500
    for path in (
        f"/subjects/{subject}-PROTOBUF/versions/1?format=serialized",
        f"/subjects/{subject}-AVRO/versions/latest",
        "/schemas?latestOnly=true",
    ):
        assert http.get(path).status_code == 200
    assert not threads


def test_a_schema_that_takes_too_long_is_refused_for_that(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def think(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(routes, "_LEADER_WITHIN_S", 0.2)
    monkeypatch.setattr(SchemaWorker, "ask", think)
    answer = register(http, '"int"')
    assert (answer.status_code, answer.json()["error_code"]) == (500, 50002)
    assert "longer than 0.2 s" in answer.json()["message"]


@pytest.mark.parametrize(
    ("method", "path", "content"),
    [
        ("POST", "/subjects/large-value/versions", {"metadata": {"a": [{}] * 100_000}}),
        ("POST", "/subjects/large-value", {"ruleSet": {f"{i:x}": 1 for i in range(50_000)}}),
        ("POST", "/compatibility/subjects/large-value/versions", {"references": [{}] * 100_000}),
        ("PUT", "/config/large-value", {"defaultMetadata": {"a": [{}] * 100_000}}),
        ("POST", "/associations", {"associations": [{}] * 100_000}),
    ],
)
def test_a_body_of_many_small_things_is_refused_unread(
    http: httpx.Client, method: str, path: str, content: Any
) -> None:
    http.post("/subjects/large-value/versions", json={"schema": '"int"'})
    answer = http.request(method, path, json={"schema": '"int"', **content})
    assert answer.status_code == 413, answer.text[:200]
    # Whatever it hides behind.
    twice = json.dumps({"schema": "x" * 300_000, **content})[:-1] + ',"schema":"\\"int\\""}'
    assert http.request(method, path, content=twice).status_code == 413
    # The text of a schema may be larger.
    enum = {"type": "enum", "name": "E", "symbols": [f"S{i}" for i in range(40_000)]}
    assert register(http, json.dumps(enum)).status_code == 200
