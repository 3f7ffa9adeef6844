"""Delta tables by name in AWS Glue, where Athena, EMR, Trino and Spark look for them.

A Delta table is its folder; the entry says where that is, and which columns there are. Readers take
rows and files from the table's own log, so the entry changes only with the columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa

from moldau.spark.lake.errors import LakeError
from moldau.spark.lake.location import Location

# How engines tell a Delta table from a folder of files: Spark by the first, Athena by the second.
_PARAMETERS = {
    "spark.sql.sources.provider": "delta",
    "table_type": "DELTA",
    "classification": "delta",
    "EXTERNAL": "TRUE",
}
_SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
_SIMPLE = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
}


class GlueEntry:
    """The entry of one Delta table, `database.table`. For one thread.

    `catalog` has pyiceberg's settings for Glue, which are those of Iceberg tables there.
    """

    def __init__(self, name: str, catalog: Mapping[str, str], location: Location) -> None:
        parts = name.split(".")
        if len(parts) != 2 or not all(parts):
            raise LakeError(f"{name!r} is not a Glue table name; write database.table")
        if catalog.get("type") != "glue":
            raise LakeError(
                f"{name}: Delta tables are registered in AWS Glue only: give the catalog type = "
                "'glue'"
            )
        self.name = name
        self._database, self._table = parts
        self._catalog = dict(catalog)
        self._location = location.uri
        self._registered: pa.Schema | None = None
        self._opened: Any = None

    def require_free(self) -> None:
        """LakeError if the name is that of another table, or Glue does not answer."""
        found = self._ask(self._find)
        where = _location_of(found)
        if found is not None and where.rstrip("/") != self._location:
            raise LakeError(
                f"{self.name} is a table at {where} in Glue, not at {self._location}; choose "
                "another name, or remove the table from Glue"
            )

    def register(self, schema: pa.Schema) -> None:
        """Make the entry, or bring its columns up to date."""
        if schema == self._registered:
            return
        self.require_free()
        self._ask(lambda: self._put(schema))
        self._registered = schema

    def _put(self, schema: pa.Schema) -> None:
        columns = [{"Name": each.name, "Type": hive_type(each.type)} for each in schema]
        found = self._find()
        if found is not None and found["StorageDescriptor"].get("Columns") == columns:
            return
        storage = {
            "Location": self._location,
            "Columns": columns,
            "SerdeInfo": {
                "SerializationLibrary": _SERDE,
                "Parameters": {"path": self._location},
            },
        }
        entry = {
            "Name": self._table,
            "TableType": "EXTERNAL_TABLE",
            "Parameters": (found or {}).get("Parameters", {}) | _PARAMETERS,
            "StorageDescriptor": storage,
        }
        glue = self._client
        if found is not None:
            glue.update_table(DatabaseName=self._database, TableInput=entry)
            return
        # Of sinks that start together one makes it.
        with suppress(glue.exceptions.AlreadyExistsException):
            glue.create_database(DatabaseInput={"Name": self._database})
        with suppress(glue.exceptions.AlreadyExistsException):
            glue.create_table(DatabaseName=self._database, TableInput=entry)

    def _find(self) -> dict[str, Any] | None:
        glue = self._client
        try:
            found = glue.get_table(DatabaseName=self._database, Name=self._table)["Table"]
        except glue.exceptions.EntityNotFoundException:
            return None
        return dict(found)

    @property
    def _client(self) -> Any:
        if self._opened is None:
            from pyiceberg.catalog import load_catalog

            catalog: Any = load_catalog("glue", **self._catalog)
            self._opened = catalog.glue
        return self._opened

    def _ask(self, ask: Any) -> Any:
        try:
            return ask()
        except LakeError:
            raise
        except Exception as problem:
            # The client of AWS has classes of errors that it makes as it goes.
            words = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
            raise LakeError(f"{self.name}: Glue failed: {words}") from problem


def hive_type(kind: pa.DataType) -> str:
    """Return a type of a column in Hive's words, which Glue's are."""
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{hive_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{hive_type(kind.key_type)},{hive_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        fields = ",".join(f"{each.name}:{hive_type(each.type)}" for each in kind)
        return f"struct<{fields}>"
    is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return "binary" if is_binary or pa.types.is_binary_view(kind) else "string"


def _location_of(found: Mapping[str, Any] | None) -> str:
    return "" if found is None else str(found.get("StorageDescriptor", {}).get("Location", ""))
