"""Delta tables as readers see them that have nothing to do with Moldau or with `deltalake`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta


def duckdb_rows(path: Path | str, sql: str) -> list[Any]:
    """What DuckDB answers about the table, which the SQL calls `it`."""
    assert duckdb_extension_delta.__file__ is not None
    folder = Path(duckdb_extension_delta.__file__).parent
    (extension,) = folder.glob("extensions/*/*.duckdb_extension")
    with duckdb.connect() as connection:
        connection.execute(f"LOAD '{extension}'")
        connection.execute(f"CREATE VIEW it AS SELECT * FROM delta_scan('{path}')")
        return connection.execute(sql).fetchall()
