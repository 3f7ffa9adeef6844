"""The schema-driven writers agree with kio's own, for every API and version."""

from __future__ import annotations

import io
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any, get_args
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_writer

from moldau.wire.apis import VERSIONS, Api, is_flexible
from moldau.wire.errors import Error
from moldau.wire.messages import (
    decode_request,
    encode_request,
    encode_response,
    is_by_hand,
    milliseconds,
)
from moldau.wire.primitives import MalformedRequest
from tests.examples import EXAMPLES

EVERY_VERSION = [
    (api, version)
    for api, versions in VERSIONS.items()
    for version in range(versions.first, versions.last + 1)
]


def example(schema: Any, depth: int = 0) -> Any:
    """A kio object whose every field has a value of its own."""
    values = {}
    for number, field in enumerate(fields(schema), 1):
        values[field.name] = _example_value(field, number, depth)
    return schema(**values)


def _example_value(field: Any, number: int, depth: int) -> Any:
    kind: Any = field.type
    inner = [arg for arg in get_args(kind) if arg is not type(None)]
    if inner and not hasattr(kind, "__origin__"):
        kind = inner[0]
    if getattr(kind, "__origin__", None) is tuple:
        element = get_args(kind)[0]
        if is_dataclass(element):
            return (example(element, depth + 1), example(element, depth + 1))
        one = _primitive(field.metadata["kafka_type"], number)
        return (one, one)
    if is_dataclass(kind):
        return example(kind, depth + 1)
    return _primitive(field.metadata["kafka_type"], number)


def _primitive(kafka_type: str, number: int) -> Any:
    if kafka_type == "string":
        return f"näme-{number}"
    if kafka_type in ("bytes", "records"):
        return bytes([number]) * 200
    if kafka_type == "uuid":
        return UUID(int=number)
    if kafka_type == "bool":
        return True
    if kafka_type == "error_code":
        return ErrorCode.unknown_topic_or_partition
    if kafka_type.startswith("timedelta"):
        return timedelta(milliseconds=number)
    if kafka_type == "datetime_i64":
        return datetime.fromisoformat("2026-01-02T03:04:05+00:00")
    if kafka_type == "float64":
        return number + 0.5
    return number


def plain(value: Any) -> Any:
    """A kio object as the dict that a handler would give."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, timedelta):
        return milliseconds(value)
    if isinstance(value, datetime):
        return int(value.timestamp() * 1000)
    return value


def written_by_kio(value: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(value))(buffer, value)
    return buffer.getvalue()


def test_every_version_is_written_as_kio_writes_it() -> None:
    for api, version in EVERY_VERSION:
        request = example(load_request_schema(api, version))
        written = encode_request(api, version, plain(request))
        assert written == written_by_kio(request), (api, version)
        response = example(load_response_schema(api, version))
        written = encode_response(api, version, plain(response))
        assert written == written_by_kio(response), (api, version)


def test_every_request_is_read_back() -> None:
    for api, version in EVERY_VERSION:
        request = example(load_request_schema(api, version))
        read = decode_request(api, version, memoryview(written_by_kio(request)))
        # What is read by hand has another class; tests of its own compare it.
        assert read == request or is_by_hand(api, version), (api, version)


def test_what_is_left_out_gets_the_default_of_the_schema() -> None:
    body = encode_response(Api.METADATA, 13, {"topics": [{"name": "a"}]})
    brokers, cluster_id, topics = body[4:5], body[5:6], body[10:11]
    assert (brokers, cluster_id, topics) == (b"\x01", b"\x00", b"\x02")


def test_a_field_that_an_old_version_lacks_is_left_out() -> None:
    values = {"topics": [{"name": "a", "topic_id": UUID(int=1)}], "cluster_id": "x"}
    assert b"x" not in encode_response(Api.METADATA, 1, values)


def test_a_field_that_no_version_knows_is_an_error() -> None:
    with pytest.raises(KeyError, match="topicz"):
        encode_response(Api.METADATA, 9, {"topicz": []})


def test_the_table_of_versions_is_kios() -> None:
    without_meaning_here = {Api.DESCRIBE_LOG_DIRS: 5}
    for api, versions in VERSIONS.items():
        known = set(schema_name_map[api_key_map[api]]) - {without_meaning_here.get(api, -1)}
        assert (versions.first, versions.last) == (min(known), max(known)), api
        for version in known:
            schema: Any = load_request_schema(api, version)
            assert is_flexible(api, version) == schema.__flexible__, (api, version)


def test_error_codes_have_kafkas_names() -> None:
    for error in Error:
        assert ErrorCode(error.value).name == error.name.lower()


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(EVERY_VERSION), st.binary(max_size=200))
def test_arbitrary_bytes_are_a_request_or_malformed(
    api_version: tuple[Api, int], body: bytes
) -> None:
    try:
        decode_request(*api_version, memoryview(body))
    except MalformedRequest:
        pass


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(EVERY_VERSION), st.data())
def test_a_damaged_request_is_a_request_or_malformed(
    api_version: tuple[Api, int], data: st.DataObject
) -> None:
    body = bytearray(written_by_kio(example(load_request_schema(*api_version))))
    if body:
        place = data.draw(st.integers(0, len(body) - 1))
        body[place] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(body)))
    try:
        decode_request(*api_version, memoryview(bytes(body[:end])))
    except MalformedRequest:
        pass
