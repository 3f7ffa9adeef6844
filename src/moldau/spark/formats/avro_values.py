"""Avro with a header that names the writer's schema, to columns and back."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from moldau.client.avro import decode_avro, encode_avro, parse_avro
from moldau.schemas import SchemaNotFound, SchemaStore, unpack_header
from moldau.schemas.extra_fields import extra_fields
from moldau.schemas.header import HEADER_SIZE
from moldau.spark.formats.arrow_columns import Reasons, to_column
from moldau.spark.formats.avro_types import without_times_of_day
from moldau.spark.formats.errors import NewFields

# The text of the schema with an id; SchemaNotFound if there is none.
LookUp = Callable[[int], str]

_stores: dict[tuple[int, str], SchemaStore] = {}


class AvroDecoder:
    """Reads records as those of the reader's schema, whatever version they were written with.

    Fields that the reader's schema lacks are left out of versions that are `known`: whoever chose
    that schema could see them. In any other version they are NewFields.
    """

    def __init__(
        self,
        schema: StructType,
        reader_schema: str,
        known: Mapping[int, str],
        look_up: LookUp,
        remedy: str = "",
    ) -> None:
        self._names = schema.fieldNames()
        self._kinds = [field.type for field in to_arrow_schema(schema, timezone="UTC")]
        self._reader_schema = reader_schema
        self._reader = _parsed(reader_schema)
        self._known = known
        self._look_up = look_up
        self._remedy = remedy
        self._writers: dict[int, Any] = {}

    def decode(self, values: Sequence[bytes | None]) -> tuple[list[pa.Array], Reasons]:
        """Return the columns, with nulls in the rows that do not parse, and why those do not.

        A record without a value is a row of nulls.
        """
        bad: Reasons = {}
        found = [self._one(row, value, bad) for row, value in enumerate(values)]
        columns = [
            to_column(name, [record.get(name) for record in found], kind, bad)
            for name, kind in zip(self._names, self._kinds, strict=True)
        ]
        return columns, bad

    def _one(self, row: int, value: bytes | None, bad: Reasons) -> dict[str, Any]:
        if value is None:
            return {}
        try:
            writer = self._writer(row, unpack_header(value))
            record = decode_avro(value, HEADER_SIZE, writer, self._reader)
        except (ValueError, SchemaNotFound) as problem:
            bad[row] = str(problem)
            return {}
        if not isinstance(record, dict):
            bad[row] = "not a record"
            return {}
        return {name: _plain(field) for name, field in record.items()}

    def _writer(self, row: int, schema_id: int) -> Any:
        found = self._writers.get(schema_id)
        if found is None:
            text = self._known.get(schema_id)
            if text is None:
                text = self._look_up(schema_id)
                fields = extra_fields(json.loads(self._reader_schema), json.loads(text))
                if fields:
                    raise NewFields(row, schema_id, fields, self._remedy)
            found = self._writers[schema_id] = _parsed(text)
        return found


class AvroEncoder:
    """Writes rows with one schema, behind the header that names it."""

    def __init__(self, schema: str, header: bytes, topic: str) -> None:
        self._schema = parse_avro(json.loads(schema))
        self._header = header
        self._topic = topic

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> list[bytes]:
        return [encode_avro(self._schema, row, self._topic, self._header) for row in rows]


def quiet_store(bootstrap: str) -> SchemaStore:
    """Return the schema store; what librdkafka would print of lost connections comes as errors."""
    logger = logging.Logger("moldau.spark.schemas")
    logger.addHandler(logging.NullHandler())
    return SchemaStore(bootstrap, logger=logger)


def store_of(bootstrap: str) -> SchemaStore:
    """Return the process's own connection to the schema store: workers are used again."""
    key = (os.getpid(), bootstrap)
    found = _stores.get(key)
    if found is None:
        found = _stores[key] = quiet_store(bootstrap)
    return found


def looking_up(bootstrap: str) -> LookUp:
    """Ask the store, and connect to it only for a schema that is not known yet."""
    return lambda schema_id: store_of(bootstrap).by_id(schema_id).text


def _parsed(text: str) -> Any:
    return parse_avro(without_times_of_day(json.loads(text)))


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value
