"""Debezium's events as rows, in JSON and Avro, of several databases."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from moldau.client.avro import encode_avro, parse_avro
from moldau.spark.formats.arrow_columns import Reasons
from moldau.spark.formats.avro_types import spark_schema_of
from moldau.spark.formats.avro_values import AvroDecoder
from moldau.spark.formats.debezium import (
    DebeziumDecoder,
    change_columns,
    events_of_records,
    json_events,
    position,
    row_of_envelope,
)
from moldau.spark.formats.errors import FormatError, Truncated

ROW = (
    StructType().add("id", "long", False).add("name", "string", False).add("price", "double", True)
)
COLUMNS = change_columns(ROW)
TEA = {"id": 1, "name": "tea", "price": 2.5}


def event(op: str | None, **more: Any) -> dict[str, Any]:
    source = {"connector": "postgresql", "ts_ms": 1_700_000_000_000, "lsn": 33, "table": "menu"}
    return {"before": None, "after": None, "source": source, "op": op, "ts_ms": 1, **more}


def read(
    *events: Any, decoder: DebeziumDecoder | None = None
) -> tuple[list[dict[str, Any]], Reasons]:
    values = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in events]
    decoder = decoder or DebeziumDecoder(COLUMNS, json_events(COLUMNS))
    columns, bad = decoder.decode(values)
    table = pa.table(columns, names=COLUMNS.fieldNames())
    return table.to_pylist(), bad


@pytest.mark.parametrize("op", ["r", "c", "u"])
def test_a_row_is_read_with_a_schema_around_it_or_without(op: str) -> None:
    plain = event(op, after=TEA, before=TEA if op == "u" else None)
    rows, bad = read(plain, {"schema": {"type": "struct", "fields": []}, "payload": plain})
    assert bad == {}
    assert rows[0] == rows[1]
    assert rows[0] == TEA | {
        "_deleted": False,
        "_changed": datetime.fromtimestamp(1_700_000_000, UTC),
        "_position": "00000000000000000033",
    }


def test_a_delete_has_what_is_known_of_the_row_before() -> None:
    (row,), bad = read(event("d", before={"id": 7, "name": None}))
    assert bad == {}
    assert (row["id"], row["name"], row["_deleted"]) == (7, None, True)


def test_the_time_of_a_change_is_as_precise_as_the_event_has_it() -> None:
    source = {"ts_ms": 1000, "ts_us": 1_000_001, "lsn": 1}
    rows, _ = read(event("c", after=TEA, source=source), event("c", after=TEA, source=None))
    times = [row["_changed"].timestamp() for row in rows]
    assert times == [1.000001, 0.001]


def test_what_is_no_change_of_a_row_is_bad_and_says_why() -> None:
    rows, bad = read(
        event("c", after=TEA),
        b"no JSON",
        {"id": 1},
        event("m"),
        event("c"),
        event("d"),
        event("c", after={"id": 1}),
        event("c", after={"id": "x", "name": "y"}),
        event("c", after=TEA, source={}, ts_ms=None),
        b"[1]",
    )
    assert sorted(bad) == list(range(1, 10))
    wanted = [
        "not JSON",
        "it has no op",
        "the op 'm' does not change a row",
        "comes without the new row",
        "a delete without the deleted row",
        "name is missing",
        "Expected `int`, got `str`",
        "has no time of the change",
        "Expected `object`",
    ]
    for number, text in enumerate(wanted, 1):
        assert text in bad[number]
    assert rows[0]["id"] == 1
    assert all(row["id"] is None and row["_deleted"] is None for row in rows[1:])


def test_a_truncated_table_stops_the_pipeline_unless_told_otherwise() -> None:
    with pytest.raises(Truncated) as stopped:
        read(event("c", after=TEA), event("t"))
    assert "at menu-0 offset 17 says that the table was truncated" in str(
        stopped.value.at("menu", 0, 17)
    )
    aside = DebeziumDecoder(COLUMNS, json_events(COLUMNS), "dead-letter")
    assert "truncated" in read(event("t"), decoder=aside)[1][0]


SOURCES = [
    # PostgreSQL.
    [{"lsn": 9}, {"lsn": 10}, {"lsn": 123_456_789_012}],
    # MySQL: a snapshot, rows of one statement, the next file.
    [
        {"file": "mysql-bin.000009", "pos": 154, "row": 0},
        {"file": "mysql-bin.000009", "pos": 1200, "row": 1},
        {"file": "mysql-bin.000009", "pos": 1200, "row": 2},
        {"file": "mysql-bin.000010", "pos": 4, "row": 0},
    ],
    # SQL Server: a snapshot has no change_lsn.
    [
        {"commit_lsn": "00000027:00000758:0003", "change_lsn": None},
        {
            "commit_lsn": "00000027:00000758:0005",
            "change_lsn": "00000027:00000758:0002",
            "event_serial_no": 1,
        },
        {
            "commit_lsn": "00000027:00000758:0005",
            "change_lsn": "00000027:00000758:0002",
            "event_serial_no": 2,
        },
    ],
    # Oracle: what a transaction did counts from its commit.
    [
        {"scn": "99", "commit_scn": None},
        {"scn": "98", "commit_scn": "100", "ssn": 0},
        {"scn": "98", "commit_scn": "100", "ssn": 1},
        {"scn": "1000", "commit_scn": "1001"},
    ],
    # MongoDB.
    [{"ts_ms": 999, "ord": 9}, {"ts_ms": 1000, "ord": 1}, {"ts_ms": 1000, "ord": 11}],
]


@pytest.mark.parametrize("sources", SOURCES)
def test_positions_sort_as_the_databases_made_the_changes(sources: list[dict[str, Any]]) -> None:
    places = [position({"source": source}) for source in sources]
    assert None not in places
    assert places == sorted(places, key=str)
    assert len(set(places)) == len(places)


def test_events_of_one_transaction_sort_by_their_order_in_it_and_others_have_no_position() -> None:
    both = [
        position({"source": {"lsn": 5}, "transaction": {"id": "x", "total_order": order}})
        for order in (9, 10)
    ]
    assert both == sorted(both, key=str)
    assert position({"source": {"connector": "unknown", "ts_ms": 5}}) is None


def test_events_in_avro_are_read_by_the_schema_of_their_envelopes() -> None:
    row = {
        "type": "record",
        "name": "Value",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": ["null", "string"], "default": None},
        ],
    }
    source = {
        "type": "record",
        "name": "Source",
        "fields": [{"name": "ts_ms", "type": "long"}, {"name": "lsn", "type": ["null", "long"]}],
    }
    envelope = {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.menu",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }
    text = json.dumps(envelope)
    columns = change_columns(row_of_envelope(spark_schema_of(text)))
    inner = AvroDecoder(spark_schema_of(text), text, {7: text}, lambda _: text)
    decoder = DebeziumDecoder(columns, events_of_records(inner))
    where = {"ts_ms": 2000, "lsn": 5}
    header = b"\0\0\0\0\x07"
    events: list[dict[str, Any]] = [
        {"before": None, "after": {"id": 1, "name": "tea"}, "source": where, "op": "c"},
        {"before": {"id": 1, "name": None}, "after": None, "source": where, "op": "d"},
    ]
    values = [encode_avro(parse_avro(envelope), each, "t", header) for each in events]
    found, bad = decoder.decode([*values, None, b"{}"])
    rows = pa.table(found, names=columns.fieldNames()).to_pylist()
    assert list(bad) == [3]
    assert [(row["id"], row["name"], row["_deleted"]) for row in rows] == [
        (1, "tea", False),
        (1, None, True),
        (None, None, None),
        (None, None, None),
    ]
    assert rows[0]["_position"] == "00000000000000000005"


def test_schemas_that_are_none_of_envelopes_are_refused() -> None:
    with pytest.raises(FormatError, match="not one of a Debezium envelope"):
        row_of_envelope(ROW)
    with pytest.raises(FormatError, match="_changed is a column of the change"):
        change_columns(StructType().add("_changed", "integer"))
