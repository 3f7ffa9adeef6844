"""The last reading of a source, against the versions of its schema when it is read again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moldau.schemas import RegisteredSchema
from moldau.schemas.schema import SchemaType

pytest.importorskip("pyspark", reason="needs the extra spark")

from pyspark.sql.types import StructType

from moldau.spark.formats.avro_types import spark_schema_of
from moldau.spark.formats.errors import FormatError
from moldau.spark.formats.registered_values import registered_columns
from moldau.spark.pipeline.plan.last_reading import LastReading

ID = {"name": "id", "type": "int"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
NO_DEFAULT = {"name": "note", "type": "string"}


def avro(version: int, *fields: Any) -> RegisteredSchema:
    text = json.dumps({"type": "record", "name": "R", "fields": list(fields)})
    return RegisteredSchema("r-value", version, version, text)


def json_schema(version: int, required: list[str], **properties: str) -> RegisteredSchema:
    kinds = {name: {"type": kind} for name, kind in properties.items()}
    text = json.dumps({"type": "object", "properties": kinds, "required": required})
    return RegisteredSchema("r-value", version, version, text, SchemaType.JSON)


def columns_of(version: RegisteredSchema) -> StructType:
    if version.type is SchemaType.AVRO:
        return spark_schema_of(version.text)
    return registered_columns("json-schema", version.text)


def chosen(
    *versions: RegisteredSchema, accepted: tuple[str, ...] = (), keeps: bool = True
) -> tuple[int, str]:
    """The version to read by after the first, and what is said of it."""
    last = LastReading(columns_of(versions[0]), ("r-value", 1))
    last = LastReading.of_json(json.loads(json.dumps(last.to_json())))
    found, said = last.version_to_read_by(
        versions[-1], versions, columns_of, accepted=accepted, keeps=keeps
    )
    return found.version, said


def test_a_version_with_all_columns_is_taken() -> None:
    assert chosen(avro(1, ID), avro(2, ID, NOTE)) == (2, "")
    assert chosen(avro(1, ID), avro(2, {**ID, "type": "long"})) == (2, "")


def test_where_the_latest_only_lacks_columns_the_version_before_is_kept() -> None:
    number, said = chosen(avro(1, ID, NOTE), avro(2, ID))
    assert number == 1
    assert "version 2 of r-value lacks what the last run read (gone: note (string))" in said
    assert chosen(json_schema(1, [], a="string"), json_schema(2, []))[0] == 1


@pytest.mark.parametrize(
    ("versions", "keeps", "said"),
    [
        ((avro(1, ID, NOTE), avro(2, ID)), False, r"gone: note \(string\)"),
        # Records of the latest would be dead letters by the version before.
        ((avro(1, ID, NO_DEFAULT), avro(2, ID)), True, r"gone: note \(string\)"),
        ((json_schema(1, ["a"], a="string"), json_schema(2, [])), True, r"gone: a \(string\)"),
        ((avro(1, ID), avro(2, NOTE)), True, r"new: note \(string\); gone: id \(int\)"),
        ((avro(1, ID), avro(2, {**ID, "type": "string"})), True, "another type: id"),
        ((avro(1, {**ID, "type": "long"}), avro(2, ID)), True, "another type: id"),
    ],
)
def test_otherwise_a_loss_is_refused(
    versions: tuple[RegisteredSchema, ...], keeps: bool, said: str
) -> None:
    with pytest.raises(FormatError, match=said):
        chosen(*versions, keeps=keeps)


def test_a_loss_that_is_accepted_is_none() -> None:
    assert chosen(avro(1, ID, NOTE), avro(2, ID), accepted=("note",)) == (2, "")
    with pytest.raises(FormatError, match="id"):
        chosen(avro(1, ID, NOTE), avro(2), accepted=("note",), keeps=False)
    inner = {"name": "place", "type": {"type": "record", "name": "P", "fields": [ID, NOTE]}}
    outer = {"name": "place", "type": {"type": "record", "name": "P", "fields": [ID]}}
    for accepted in ("place", "place.note"):
        assert chosen(avro(1, inner), avro(2, outer), accepted=(accepted,)) == (2, "")
    with pytest.raises(FormatError, match=r"place\.note"):
        chosen(avro(1, inner), avro(2, outer), accepted=("place.no",), keeps=False)
