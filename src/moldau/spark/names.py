"""Names: the columns of the source, as those of Spark's own Kafka source, and our own topics."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.arrow.names import HEADERS as HEADERS

# The topic of the sink's claims and decisions.
COMMITS = "__moldau_commits"
# The topics in which Moldau keeps accounts: also the status of pipelines, and what was redriven. No
# pattern means them.
OWN_TOPICS = frozenset((COMMITS, "__moldau_pipelines", "__moldau_redrives"))

# A struct of these, where rows have to tell which of them is newer: see `moldau.spark.lake.order`.
RECORD_ORDER = "_moldau_order"
ORDER_FIELDS = {"time": "timestamp", "topic": "topic", "partition": "partition", "offset": "offset"}

# What Debezium says of a change besides the row: whether it is gone, when that was, and where in
# the database's log.
DELETED, CHANGED, POSITION = "_deleted", "_changed", "_position"
CHANGES = {DELETED: "boolean", CHANGED: "timestamp", POSITION: "string"}

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
