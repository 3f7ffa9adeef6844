"""Tables as a reader sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable


def rows_of(path: Path | str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.table(DeltaTable(path).scan().read_all()).to_pylist()
    return rows


def values_of(path: Path | str, column: str) -> list[Any]:
    """The values of a column, in order."""
    return sorted(row[column] for row in rows_of(path))


def version_of(path: Path | str) -> int:
    """The version of the table; -1 where there is none."""
    return DeltaTable(path).version() if DeltaTable.is_deltatable(str(path)) else -1


def data_files(path: Path | str) -> set[str]:
    """All Parquet files in the table's folder, whether the table knows of them or not."""
    root = Path(path)
    return {
        str(file.relative_to(root))
        for file in root.rglob("*.parquet")
        if "_delta_log" not in file.parts
    }
