"""Sinks to tables of either kind, and their rows as a reader sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

from moldau.spark.lake import DeltaSink, IcebergSink
from tests.spark.lake import tables
from tests.spark.lake.iceberg import tables as iceberg

Kind = Literal["delta", "iceberg"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def sink_to(kind: Kind, path: Path, **settings: Any) -> DeltaSink | IcebergSink:
    """A sink to the table of that path; an Iceberg table has a warehouse of its own there."""
    if kind == "delta":
        return DeltaSink(str(path), **settings)
    return IcebergSink("shop.orders", warehouse=str(path), **settings)


def rows_of(kind: Kind, path: Path) -> list[dict[str, Any]]:
    return tables.rows_of(path) if kind == "delta" else iceberg.rows_of(path)


def versions_of(kind: Kind, path: Path) -> int:
    """How many commits the table has seen; 0 without a table."""
    if kind == "delta":
        return tables.version_of(path) + 1
    if not (path / "catalog.db").exists() or not iceberg.catalog_of(path).table_exists(
        iceberg.NAME
    ):
        return 0
    return len(iceberg.table_of(path).snapshots())
