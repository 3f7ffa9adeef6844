"""`moldau produce --avro-schema` and `moldau consume --avro` against a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moldau.schemas import SchemaStore
from moldau.testing import Broker
from tests.cli.conftest import QUICKLY, Run


def order(*more: dict[str, Any]) -> dict[str, Any]:
    fields = [{"name": "item", "type": "string"}, {"name": "count", "type": "int"}, *more]
    return {"type": "record", "name": "Order", "fields": fields}


ORDER = order()
WITH_PRICE = order({"name": "price", "type": "double", "default": 1.5})
WITH_NEEDED_PRICE = order({"name": "price", "type": "double"})
EVERYTHING = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "when", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "maybe", "type": ["null", "string"]},
        {"name": "many", "type": {"type": "array", "items": "double"}},
    ],
}


def schema_file(folder: Path, schema: object, name: str = "schema.avsc") -> str:
    file = folder / name
    file.write_text(schema if isinstance(schema, str) else json.dumps(schema))
    return str(file)


def test_json_lines_go_out_as_avro_and_come_back_as_json(
    moldau: Run, topic: str, tmp_path: Path, moldau_session_broker: Broker
) -> None:
    file = schema_file(tmp_path, ORDER)
    typed = '{"item": "tea", "count": 3}\n\n{"item": "Kölsch", "count": -1}\n'
    produced = moldau("produce", topic, "--partition", "0", "--avro-schema", file, typed=typed)
    assert (produced.status, produced.out) == (0, f"{topic}: 2 messages delivered\n"), produced.err

    with SchemaStore(moldau_session_broker.bootstrap) as store:
        registered = store.version(f"{topic}-value")
    raw = moldau("consume", topic, "--from-beginning", "--max", "1", "--format", "{value}")
    assert raw.out.encode() == b"\0" + registered.id.to_bytes(4, "big") + b"\x06tea\x06\n"

    options = ("--from-beginning", "--max", "2", "--avro")
    shown = moldau("consume", topic, *options, "--format", "{offset} {value}")
    assert shown.status == 0, shown.err
    assert shown.out == '0 {"item": "tea", "count": 3}\n1 {"item": "Kölsch", "count": -1}\n'
    first, second = moldau("consume", topic, *options, "--json").json_lines
    assert first["value"] == {"item": "tea", "count": 3}
    assert second["value"] == {"item": "Kölsch", "count": -1}
    assert "value_base64" not in first


def test_keys_and_json_envelopes_go_with_avro(moldau: Run, topic: str, tmp_path: Path) -> None:
    file = schema_file(tmp_path, ORDER)
    where = ("--partition", "0", "--avro-schema", file)
    line = '{"item": "tea", "count": 3}'
    moldau("produce", topic, *where, "--key-separator", "|", *QUICKLY, typed=f"anna|{line}\n")
    envelope = json.dumps({"key": "ben", "value": json.loads(line), "headers": {"a": "b"}})
    ended = moldau("produce", topic, *where, "--json", typed=f'{envelope}\n{{"key": "gone"}}\n')
    assert ended.json == {"topic": topic, "delivered": 2, "failed": 0}, ended.err
    shown = moldau("consume", topic, "--from-beginning", "--max", "3", "--avro", "--json")
    assert shown.status == 0, shown.err
    assert [(m["key"], m["value"]) for m in shown.json_lines] == [
        ("anna", json.loads(line)),
        ("ben", json.loads(line)),
        ("gone", None),
    ]


def test_what_json_lacks_is_shown_as_text(moldau: Run, topic: str, tmp_path: Path) -> None:
    file = schema_file(tmp_path, EVERYTHING)
    value: dict[str, Any] = {"when": 1_700_000_000_123, "maybe": None, "many": [1, 2.5]}
    ended = moldau("produce", topic, "--avro-schema", file, typed=json.dumps(value) + "\n")
    assert ended.status == 0, ended.err
    shown = moldau("consume", topic, "--from-beginning", "--max", "1", "--avro").json
    assert shown == value | {"when": "2023-11-14T22:13:20.123000+00:00"}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("{", "not JSON"),
        ('{"item": "tea"}', "does not match its schema"),
        ('{"item": "tea", "count": "three"}', "does not match its schema"),
        ("17", "does not match its schema"),
    ],
)
def test_a_bad_line_is_named_with_its_reason(
    moldau: Run, topic: str, tmp_path: Path, bad: str, reason: str
) -> None:
    file = schema_file(tmp_path, ORDER)
    good = '{"item": "tea", "count": 3}\n'
    ended = moldau("produce", topic, "--avro-schema", file, *QUICKLY, typed=f"{good}{bad}\n{good}")
    assert ended.status == 1
    assert "error: line 2: " in ended.err
    assert reason in ended.err
    assert ended.out == f"{topic}: 1 message delivered\n"


def test_messages_of_two_versions_are_read_as_they_were_written(
    moldau: Run, topic: str, tmp_path: Path
) -> None:
    line = '{"item": "tea", "count": 3, "price": 2.0}\n'
    options = ("--subject", f"orders of {topic}", "--partition", "0")
    for schema in (ORDER, WITH_PRICE):
        file = schema_file(tmp_path, schema)
        ended = moldau("produce", topic, "--avro-schema", file, *options, *QUICKLY, typed=line)
        assert ended.status == 0, ended.err
    shown = moldau("consume", topic, "--from-beginning", "--max", "2", "--avro").out.splitlines()
    assert [json.loads(each) for each in shown] == [
        {"item": "tea", "count": 3},
        {"item": "tea", "count": 3, "price": 2.0},
    ]


def test_an_incompatible_schema_is_refused_with_the_reason(
    moldau: Run, topic: str, tmp_path: Path
) -> None:
    first = schema_file(tmp_path, ORDER)
    assert moldau("produce", topic, "--avro-schema", first).status == 0
    second = schema_file(tmp_path, WITH_NEEDED_PRICE)
    refused = moldau("produce", topic, "--avro-schema", second, typed="{}\n")
    assert refused.status == 1
    assert f"not registered under {topic}-value" in refused.err
    assert "price" in refused.err


def test_a_value_that_is_no_avro_is_shown_as_it_is_and_said(
    moldau: Run, topic: str, tmp_path: Path
) -> None:
    file = schema_file(tmp_path, ORDER)
    moldau("produce", topic, "--partition", "0", *QUICKLY, typed="plain\n")
    line = '{"item": "tea", "count": 3}'
    moldau("produce", topic, "--partition", "0", "--avro-schema", file, *QUICKLY, typed=f"{line}\n")
    unknown_id = json.dumps({"partition": 0, "value_base64": "AH////8="})
    moldau("produce", topic, "--json", *QUICKLY, typed=f"{unknown_id}\n")
    ended = moldau("consume", topic, "--from-beginning", "--max", "3", "--avro", "--json")
    assert ended.status == 1
    plain, tea, unknown = ended.json_lines
    assert (plain["value"], tea["value"]) == ("plain", json.loads(line))
    assert unknown["value_base64"] == "AH////8="
    assert f"{topic} partition 0 offset 0 is printed undecoded" in ended.err
    assert "no schema has the id 2147483647" in ended.err
    assert "2 values were not decoded as Avro" in ended.err


@pytest.mark.parametrize(
    ("content", "said"),
    [("{", "is not JSON"), ('{"type": "recrod"}', "not an Avro schema"), ("7", "not an Avro")],
)
def test_a_file_that_is_no_schema_is_wrong_usage(
    moldau: Run, topic: str, tmp_path: Path, content: str, said: str
) -> None:
    file = schema_file(tmp_path, content)
    ended = moldau("produce", topic, "--avro-schema", file, typed="{}\n")
    assert ended.status == 2
    assert said in " ".join(ended.err.replace("│", " ").split())


def test_a_subject_needs_a_schema(moldau: Run, topic: str) -> None:
    assert moldau("produce", topic, "--subject", "orders").status == 2
