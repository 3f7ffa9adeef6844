"""The journal of batches in an Iceberg table: in its snapshots, and in its properties.

Every batch is one snapshot, whose summary says what it was:

    moldau.app      the application        moldau.took-ms   how long it took
    moldau.query    the query              moldau.offsets   {"orders": {"0": [100, 250]}}
    moldau.batch    the batch's number

Snapshots expire. So the same transaction also sets a property of the table, one for each
application, with its last batch and the last of each of its queries:

    moldau.batches.APP   {"query": …, "batch": 7, "took_ms": 912, "offsets": {…}, "queries": {…}}

A batch is in the table if either of them says so. Both come with the snapshot, and a snapshot is
refused once another has come since the table was loaded: see `moldau.spark.lake.iceberg.commit`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from moldau.spark.lake.journal import Entry
from moldau.spark.lake.offsets import Offsets

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Summary

PROPERTY = "moldau.batches."
APP, QUERY, BATCH = "moldau.app", "moldau.query", "moldau.batch"
TOOK, OFFSETS = "moldau.took-ms", "moldau.offsets"


class Marks:
    """The batches that one application has in a table, as it is in this moment."""

    def __init__(self, table: Table, app_id: str) -> None:
        self._app_id = app_id
        self._queries: dict[str, int] = {}
        self.last: Entry | None = None
        text = table.properties.get(PROPERTY + app_id)
        if text is not None:
            content = json.loads(text)
            self._queries = {name: int(batch) for name, batch in content["queries"].items()}
            self.last = _entry(app_id, content)
        for entry in entries(table):
            if entry.app_id == app_id:
                self.last = self.last or entry
                known = self._queries.get(entry.query_id, -1)
                self._queries[entry.query_id] = max(known, entry.batch_id)

    def transaction_version(self, name: str, /) -> int | None:
        """Return the last batch of a query of the application, by its id or that of the app."""
        if name == self._app_id:
            return None if self.last is None else self.last.batch_id
        return self._queries.get(name.removeprefix(f"{self._app_id}/"))

    def property_with(self, entry: Entry) -> dict[str, str]:
        """Return the table's property once this batch is in it too."""
        content = {
            "query": entry.query_id,
            "batch": entry.batch_id,
            "took_ms": entry.took_ms,
            "offsets": None if entry.offsets is None else entry.offsets.to_json(),
            "queries": self._queries | {entry.query_id: entry.batch_id},
        }
        return {PROPERTY + self._app_id: json.dumps(content)}


def summary_of(entry: Entry) -> dict[str, str]:
    """Return what a snapshot's summary says of its batch."""
    found = {
        APP: entry.app_id,
        QUERY: entry.query_id,
        BATCH: str(entry.batch_id),
        TOOK: str(entry.took_ms),
    }
    if entry.offsets is not None:
        found[OFFSETS] = json.dumps(entry.offsets.to_json())
    return found


def entries(table: Table) -> Iterator[Entry]:
    """Yield the batches of all applications whose snapshots are still there, latest first."""
    from pyiceberg.table.snapshots import ancestors_of

    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        summary = snapshot.summary
        if summary is not None and summary.get(BATCH) is not None:
            yield _of_summary(summary)


def _of_summary(summary: Summary) -> Entry:
    offsets = summary.get(OFFSETS)
    return Entry(
        app_id=str(summary.get(APP)),
        query_id=str(summary.get(QUERY) or ""),
        batch_id=int(summary.get(BATCH) or 0),
        took_ms=int(summary.get(TOOK) or 0),
        offsets=None if offsets is None else Offsets.of_json(json.loads(offsets)),
    )


def _entry(app_id: str, content: dict[str, Any]) -> Entry:
    offsets = content["offsets"]
    return Entry(
        app_id=app_id,
        query_id=str(content["query"]),
        batch_id=int(content["batch"]),
        took_ms=int(content["took_ms"]),
        offsets=None if offsets is None else Offsets.of_json(offsets),
    )
