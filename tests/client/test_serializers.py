"""Values to bytes and back, without a broker."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau import (
    AvroSerializer,
    BytesSerializer,
    JsonSerializer,
    SerializationError,
    StringSerializer,
)
from moldau.client import murmur2, partition_for_key
from moldau.client.avro import decode_avro, parse_avro
from moldau.client.connection import librdkafka_settings

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
PERSON: dict[str, Any] = {
    "type": "record",
    "name": "Person",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "age", "type": ["null", "int"], "default": None},
    ],
}


@given(st.binary())
def test_keys_hash_as_they_do_in_librdkafka(key: bytes) -> None:
    assert partition_for_key(key, 7) == confluent_kafka.murmur2(key, 7)


def test_the_hash_is_the_one_of_javas_client() -> None:
    # From the tests of Kafka's own client, where they are signed.
    assert murmur2(b"21") == -973932308 & 0xFFFFFFFF
    assert murmur2(b"foobar") == -790332482 & 0xFFFFFFFF
    assert murmur2(b"a-little-bit-long-string") == -985981536 & 0xFFFFFFFF


@given(JSON)
def test_json_comes_back_as_it_went(value: Any) -> None:
    serializer = JsonSerializer()
    assert serializer.deserialize("t", serializer.serialize("t", value)) == value


@given(st.binary())
def test_bytes_that_are_no_json_are_a_value_error(payload: bytes) -> None:
    try:
        expected = json.loads(payload)
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011 (any reason will do)
            JsonSerializer().deserialize("t", payload)
    else:
        assert repr(JsonSerializer().deserialize("t", payload)) == repr(expected)


def test_a_json_schema_is_checked_both_ways() -> None:
    serializer = JsonSerializer({"type": "object", "required": ["id"]})
    assert serializer.serialize("t", {"id": 1}) == b'{"id":1}'
    with pytest.raises(SerializationError, match="'id' is a required property"):
        serializer.serialize("t", {})
    with pytest.raises(ValueError, match="'id' is a required property"):
        serializer.deserialize("t", b"{}")
    with pytest.raises(ValueError, match="not a JSON schema"):
        JsonSerializer({"type": "nonsense"})


def test_text_and_bytes_take_nothing_else() -> None:
    assert StringSerializer().deserialize("t", StringSerializer().serialize("t", "ü")) == "ü"
    assert BytesSerializer().serialize("t", memoryview(b"x")) == b"x"
    with pytest.raises(SerializationError, match="takes text, not int"):
        StringSerializer().serialize("t", 5)  # type: ignore[arg-type]
    with pytest.raises(SerializationError, match="takes bytes, not str"):
        BytesSerializer().serialize("t", "x")  # type: ignore[arg-type]
    with pytest.raises(SerializationError, match="ascii"):
        StringSerializer("ascii").serialize("t", "ü")


def test_avro_comes_back_as_it_went() -> None:
    serializer = AvroSerializer(PERSON)
    payload = serializer.serialize("t", {"name": "Ada", "age": 36})
    assert serializer.deserialize("t", payload) == {"name": "Ada", "age": 36}
    with pytest.raises(SerializationError, match="does not match its schema"):
        serializer.serialize("t", {"name": 5})
    with pytest.raises(ValueError, match="left over"):
        serializer.deserialize("t", payload + b"x")
    with pytest.raises(ValueError, match="not an Avro schema"):
        AvroSerializer({"type": "nonsense"})


def test_avro_is_read_with_another_schema_than_it_was_written_with() -> None:
    names = {**PERSON, "fields": PERSON["fields"][:1]}
    payload = AvroSerializer(names).serialize("t", {"name": "Ada"})
    reader = AvroSerializer(PERSON, writer_schema=json.dumps(names))
    assert reader.deserialize("t", payload) == {"name": "Ada", "age": None}


@given(st.binary(max_size=64))
def test_bytes_that_are_no_avro_are_a_value_error(payload: bytes) -> None:
    schema = parse_avro(PERSON)
    try:
        found = decode_avro(payload, 0, schema, schema)
    except ValueError:
        return
    assert set(found) == {"name", "age"}


def test_settings_have_kafkas_names_with_dots_or_underscores() -> None:
    given = {"linger_ms": 5, "settings": {"acks": 1, "linger.ms": 7}, "error_cb": print}
    found = librdkafka_settings("host:1", given, defaults={"acks": "all", "client.id": "x"})
    found.pop("logger")
    assert found == {
        "bootstrap.servers": "host:1",
        "acks": 1,
        "client.id": "x",
        "linger.ms": 5,
        "error_cb": print,
    }


def test_importing_moldau_imports_no_client_library() -> None:
    program = (
        "import sys, moldau, moldau.client.connection;"
        "assert 'confluent_kafka' not in sys.modules;"
        "moldau.Producer; assert 'confluent_kafka' in sys.modules;"
        "assert not hasattr(moldau, 'Nonsense')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
