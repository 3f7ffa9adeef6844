"""The columns of the source, named and typed as those of Spark's own Kafka source."""

from __future__ import annotations

from collections.abc import Sequence

HEADERS = "headers"

# A struct of these, where rows have to tell which of them is newer: see `moldau.spark.lake.order`.
RECORD_ORDER = "_moldau_order"
ORDER_FIELDS = {"time": "timestamp", "topic": "topic", "partition": "partition", "offset": "offset"}

SPARK_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key:string,value:binary>>",
}

ALL = tuple(SPARK_TYPES)
WITHOUT_HEADERS = tuple(name for name in ALL if name != HEADERS)


def spark_schema(columns: Sequence[str]) -> str:
    """Return the schema of these columns as Spark reads it."""
    return ", ".join(f"`{name}` {SPARK_TYPES[name]}" for name in columns)
