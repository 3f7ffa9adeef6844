"""pyiceberg's projection of rows to a table's schema, but a null list or map stays null.

pyiceberg makes an empty one of it if it holds structs and something of the schema has changed since
the file was written. Whatever rewrites the file would store that.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyiceberg.io.pyarrow
from pyiceberg.io.pyarrow import ArrowProjectionVisitor


class Projection(ArrowProjectionVisitor):
    def list(self, list_type: Any, list_array: Any, value_array: Any) -> Any:
        found: Any = super().list(list_type, list_array, value_array)
        if not _lacks_nulls_of(list_array, found):
            return found
        arguments = _offsets_of(found), found.values
        return type(found).from_arrays(*arguments, type=found.type, mask=list_array.is_null())

    def map(self, map_type: Any, map_array: Any, key_result: Any, value_result: Any) -> Any:
        found: Any = super().map(map_type, map_array, key_result, value_result)
        if not _lacks_nulls_of(map_array, found):
            return found
        arguments = _offsets_of(found), found.keys, found.items
        return pa.MapArray.from_arrays(*arguments, type=found.type, mask=map_array.is_null())


def _lacks_nulls_of(array: Any, found: Any) -> bool:
    return found is not None and bool(found.null_count != array.null_count)


def _offsets_of(array: Any) -> pa.Array:
    # Arrow takes no mask for a slice.
    return pa.array(array.offsets.to_numpy())


def use_in_scans() -> None:
    """Let pyiceberg's own scans, which cannot be given one, use this projection."""
    pyiceberg.io.pyarrow.ArrowProjectionVisitor = Projection  # type: ignore[misc]
