"""pyiceberg's projection of rows to a table's schema, but a null list or map stays null.

pyiceberg makes an empty one of it if it holds structs and something of the schema has changed since
the file was written. Whatever rewrites the file would store that.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyiceberg.io.pyarrow
from pyiceberg.io.pyarrow import ArrowProjectionVisitor


class Projection(ArrowProjectionVisitor):
    def list(self, list_type: Any, list_array: Any, value_array: Any) -> Any:
        return _with_nulls_of(list_array, super().list(list_type, list_array, value_array))

    def map(self, map_type: Any, map_array: Any, key_result: Any, value_result: Any) -> Any:
        found = super().map(map_type, map_array, key_result, value_result)
        return _with_nulls_of(map_array, found)


def _with_nulls_of(array: Any, found: Any) -> Any:
    if found is None or not array.null_count or found.null_count == array.null_count:
        return found
    return pc.if_else(array.is_valid(), found, pa.scalar(None, found.type))


def use_in_scans() -> None:
    """Let pyiceberg's own scans, which cannot be given one, use this projection."""
    pyiceberg.io.pyarrow.ArrowProjectionVisitor = Projection  # type: ignore[misc]
