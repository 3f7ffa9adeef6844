"""Changes of rows, as a source with `format = "debezium"` gives them: what a sink takes from them.

Such a source has columns that say how each row changed. A table with `keys` goes by these, unless
its settings say otherwise.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

import msgspec

from moldau.spark.names import CHANGED, CHANGES, DELETED, POSITION
from moldau.spark.pipeline.file.settings import LakeSinkSettings

S = TypeVar("S", bound=LakeSinkSettings)


def with_defaults(sink: S, columns: Collection[str]) -> S:
    """Return the settings of a sink for rows with these columns."""
    if not sink.keys or not set(CHANGES) <= set(columns):
        return sink
    given: dict[str, object] = {}
    if not sink.orders:
        given["order_by"] = POSITION
        if sink.scd == 2 and not sink.valid_from:
            given["valid_from"] = CHANGED
    if not sink.delete_where:
        given["delete_where"] = DELETED
    return msgspec.structs.replace(sink, **given)
