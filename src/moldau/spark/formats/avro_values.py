"""Avro that names the writer's schema, to columns and back."""

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
from moldau.schemas import RegistryClient, SchemaNotFound, SchemaStore
from moldau.schemas.avro.extra_fields import extra_fields
from moldau.schemas.catalog import SchemaCatalog
from moldau.schemas.header import read_name
from moldau.schemas.registry_settings import RegistrySettings
from moldau.security.client import ClientSecurity
from moldau.spark.formats.arrow_columns import Reasons, to_column
from moldau.spark.formats.avro_types import without_times_of_day
from moldau.spark.formats.errors import NewFields

# The text of the schema with an id or guid; SchemaNotFound if there is none.
LookUp = Callable[[int | str], str]
# The headers that name the schemas of values, where any has one.
Names = list[bytes | None] | None

_stores: dict[tuple[int, str | RegistrySettings, ClientSecurity | None], SchemaCatalog] = {}


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
        guids: Mapping[str, int] | None = None,
    ) -> None:
        self._names = schema.fieldNames()
        self._kinds = [field.type for field in to_arrow_schema(schema, timezone="UTC")]
        self._reader_schema = reader_schema
        self._reader = _parsed(reader_schema)
        self._known = known
        self._look_up = look_up
        self._remedy = remedy
        self._guids = guids or {}
        self._writers: dict[int | str, Any] = {}

    def decode(
        self, values: Sequence[bytes | None], names: Names = None
    ) -> tuple[list[pa.Array], Reasons]:
        """Return the columns, with nulls in the rows that do not parse, and why those do not.

        A record without a value is a row of nulls.
        """
        bad: Reasons = {}
        found = self.records(values, names, bad)
        columns = [
            to_column(name, [record.get(name) for record in found], kind, bad)
            for name, kind in zip(self._names, self._kinds, strict=True)
        ]
        return columns, bad

    def records(
        self, values: Sequence[bytes | None], names: Names, bad: Reasons
    ) -> list[dict[str, Any]]:
        """Return the records, empty ones in place of those that do not parse."""
        pairs = zip(values, names or [None] * len(values), strict=True)
        return [self._one(row, *pair, bad) for row, pair in enumerate(pairs)]

    def _one(
        self, row: int, value: bytes | None, header: bytes | None, bad: Reasons
    ) -> dict[str, Any]:
        if value is None:
            return {}
        try:
            schema, start, _ = read_name(value, header)
            writer = self._writers.get(schema) or self._writer(row, schema)
            record = decode_avro(value, start, writer, self._reader)
        except (ValueError, SchemaNotFound) as problem:
            bad[row] = str(problem)
            return {}
        if not isinstance(record, dict):
            bad[row] = "not a record"
            return {}
        return {name: _plain(field) for name, field in record.items()}

    def _writer(self, row: int, name: int | str) -> Any:
        known = self._guids.get(name) if isinstance(name, str) else name
        text = None if known is None else self._known.get(known)
        if text is None:
            text = self._look_up(name)
            fields = extra_fields(json.loads(self._reader_schema), json.loads(text))
            if fields:
                raise NewFields(row, name, fields, self._remedy)
        found = self._writers[name] = _parsed(text)
        return found


class AvroEncoder:
    """Writes rows with one schema, behind the header that names it."""

    def __init__(self, schema: str, header: bytes, topic: str) -> None:
        self._schema = parse_avro(json.loads(schema))
        self._header = header
        self._topic = topic

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> list[bytes]:
        return [encode_avro(self._schema, row, self._topic, self._header) for row in rows]


def quiet_store(
    bootstrap: str, registry: RegistrySettings | None = None, security: ClientSecurity | None = None
) -> SchemaCatalog:
    """Return the schema store; what librdkafka would print of lost connections comes as errors."""
    if registry is not None:
        return RegistryClient.of(registry)
    logger = logging.Logger("moldau.spark.schemas")
    logger.addHandler(logging.NullHandler())
    settings = {} if security is None else security.properties()
    return SchemaStore(bootstrap, logger=logger, settings=settings)


def store_of(
    bootstrap: str, registry: RegistrySettings | None = None, security: ClientSecurity | None = None
) -> SchemaCatalog:
    """Return the process's own connection to the schema store: workers are used again."""
    key = (os.getpid(), registry or bootstrap, security)
    found = _stores.get(key)
    if found is None:
        found = _stores[key] = quiet_store(bootstrap, registry, security)
    return found


def looking_up(
    bootstrap: str, registry: RegistrySettings | None = None, security: ClientSecurity | None = None
) -> LookUp:
    """Ask the store, and connect to it only for a schema that is not known yet."""
    return lambda name: store_of(bootstrap, registry, security).named(name).self_contained


def _parsed(text: str) -> Any:
    return parse_avro(without_times_of_day(json.loads(text)))


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value
