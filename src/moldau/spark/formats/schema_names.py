"""The names of schemas that are in headers of records, where serializers are told to put them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from moldau.schemas.header import VALUE_HEADER
from moldau.spark.names import HEADERS


def schema_names(batch: pa.RecordBatch) -> list[bytes | None]:
    """Return the header of each row that names the schema of its value, if it has one.

    Of several the last counts, as for Java's clients.
    """
    lists = batch.column(HEADERS)
    headers = lists.flatten()
    names: list[bytes | None] = [None] * batch.num_rows
    if not len(headers):
        return names
    is_name = pc.equal(headers.field("key"), VALUE_HEADER)
    rows = pc.list_parent_indices(lists).filter(is_name).to_pylist()
    for row, value in zip(rows, headers.field("value").filter(is_name).to_pylist(), strict=True):
        names[row] = value
    return names
