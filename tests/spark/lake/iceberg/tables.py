"""Iceberg tables as readers see them that have nothing to do with Moldau."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import polars
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

NAME = "shop.orders"
EXTENSIONS = (duckdb_extension_avro, duckdb_extension_iceberg)


def catalog_of(warehouse: Path) -> Catalog:
    """The catalog that a sink makes without being told of another."""
    uri = f"sqlite:///{warehouse / 'catalog.db'}"
    return load_catalog("default", type="sql", uri=uri, warehouse=warehouse.as_uri())


def table_of(warehouse: Path, name: str = NAME) -> Table:
    return catalog_of(warehouse).load_table(name)


def rows_of(warehouse: Path, name: str = NAME) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table_of(warehouse, name).scan().to_arrow().to_pylist()
    return rows


def values_of(warehouse: Path, column: str, name: str = NAME) -> list[Any]:
    return sorted(row[column] for row in rows_of(warehouse, name))


def data_files(warehouse: Path) -> set[str]:
    """All Parquet files below, whether a table knows of them or not."""
    return {str(file.relative_to(warehouse)) for file in warehouse.rglob("*.parquet")}


def duckdb_rows(table: Table, sql: str) -> list[Any]:
    """What DuckDB answers about the table, which the SQL calls `it`."""
    with duckdb.connect() as connection:
        for extension in EXTENSIONS:
            assert extension.__file__ is not None
            folder = Path(extension.__file__).parent
            (path,) = folder.glob("extensions/*/*.duckdb_extension")
            connection.execute(f"LOAD '{path}'")
        location = table.metadata_location
        connection.execute(f"CREATE VIEW it AS SELECT * FROM iceberg_scan('{location}')")
        return connection.execute(sql).fetchall()


def polars_rows(table: Table) -> list[dict[str, Any]]:
    with warnings.catch_warnings():
        # It says that it would plan faster with a package of its own.
        warnings.simplefilter("ignore")
        rows: list[dict[str, Any]] = polars.scan_iceberg(table).collect().to_dicts()
    return rows
