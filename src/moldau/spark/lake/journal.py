"""The journal of batches in the table's own log.

Every batch is one commit. It carries the batch id under two transaction identifiers, which Delta
keeps for good: that of the application with the query, by which a replay is known, and that of the
application, by which its last batch is known to have been. And in the commit's own information,
which is kept for as long as the log goes back:

    "moldau": {"app_id": …, "query_id": …, "batch_id": 7, "took_ms": 912,
               "offsets": {"orders": {"0": [100, 250]}}}

with every partition that was ever read, those without news as empty ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import TableNotFoundError

from moldau.spark.lake.errors import LakeError, OffsetConflict
from moldau.spark.lake.location import Location
from moldau.spark.lake.offsets import UNKNOWN, Offsets

KEY = "moldau"
# How far to look back, in steps: what is sought is nearly always among the last commits.
STEPS = (8, 64, 512, None)


class Batches(Protocol):
    """The last batch of an application or one of its queries, by the id that Entry has for it."""

    def transaction_version(self, app_id: str, /) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A batch, as its commit describes it; `query_id` is empty outside of a streaming query."""

    app_id: str
    query_id: str
    batch_id: int
    took_ms: int = 0
    offsets: Offsets | None = None

    @property
    def transaction_id(self) -> str:
        """Batches are counted by each query anew, so a query of the same application is another."""
        return f"{self.app_id}/{self.query_id}"

    @classmethod
    def of_commit(cls, commit: Mapping[str, Any]) -> Entry | None:
        content = commit.get(KEY)
        if not isinstance(content, dict) or "batch_id" not in content:
            return None
        offsets = content.get("offsets")
        return cls(
            app_id=str(content["app_id"]),
            query_id=str(content["query_id"]),
            batch_id=int(content["batch_id"]),
            took_ms=int(content["took_ms"]),
            offsets=None if offsets is None else Offsets.of_json(offsets),
        )

    def commit_properties(self, more: Sequence[Transaction] = ()) -> CommitProperties:
        """For a commit that fails if anybody has committed since the table was loaded.

        `more` are transaction identifiers beside the batch's own.
        """
        content = {
            "app_id": self.app_id,
            "query_id": self.query_id,
            "batch_id": self.batch_id,
            "took_ms": self.took_ms,
            "offsets": None if self.offsets is None else self.offsets.to_json(),
        }
        return CommitProperties(
            custom_metadata={KEY: content},
            max_commit_retries=0,
            app_transactions=[
                Transaction(self.transaction_id, self.batch_id),
                Transaction(self.app_id, self.batch_id),
                *more,
            ],
        )

    def is_in(self, table: Batches) -> bool:
        """Return whether the table holds this batch already, or a later one of the same query."""
        last = table.transaction_version(self.transaction_id)
        return last is not None and self.batch_id <= last


class Journal:
    """The last batch of an application, looked up in the log once and then followed."""

    def __init__(self, app_id: str) -> None:
        self._app_id = app_id
        self._table_id: Any = None
        self._version = -1
        self._last: Entry | None = None

    def last(self, table: DeltaTable) -> Entry | None:
        version = table.version()
        table_id = table.metadata().id
        if table_id != self._table_id or version < self._version:
            self._table_id, self._version, self._last = table_id, -1, None
        if version > self._version:
            fresh = version - self._version
            found = next(_entries(table, self._app_id, fresh), None)
            self._last = found or self._last
            self._version = version
        return self._last


def require_continuation(name: str, table: Batches, last: Entry | None, entry: Entry) -> list[str]:
    """Refuse what the table already has from an earlier query; say which records are left out.

    Only the first batch of a query can be at fault, but each is checked: it costs nothing.
    """
    if table.transaction_version(entry.transaction_id) is not None:
        return []
    if last is None:
        _require_unknown(name, table, entry.app_id)
        return []
    if last.offsets is None or entry.offsets is None:
        raise OffsetConflict(
            f"{name} has batches of {entry.app_id!r} up to {last.batch_id} from "
            f"another query (id {last.query_id or 'none'}), perhaps one whose "
            "checkpoint is lost, and without offsets we cannot know whether "
            f"batch {entry.batch_id} is among them; restore the checkpoint, or "
            "use another app_id if these are other records"
        )
    begun = {(topic, partition): first for topic, partition, (first, _) in entry.offsets}
    missed = []
    for topic, partition, (_, end) in last.offsets:
        first = begun.get((topic, partition))
        if first is None or first == end:
            continue
        if first < end:
            where = "an unknown offset" if first == UNKNOWN else str(first)
            raise OffsetConflict(
                f"{name} has {topic}-{partition} up to offset {end - 1} from "
                f"another query of {entry.app_id!r} (id {last.query_id or 'none'}), "
                f"and batch {entry.batch_id} begins at {where}; to continue after a "
                "lost checkpoint, start the query with "
                f"startingOffsets={last.offsets.starting_offsets()}, as "
                "committed_offsets returns it"
            )
        missed.append(f"{topic}-{partition}: offsets {end} to {first - 1}")
    return missed


def open_table(location: Location) -> DeltaTable | None:
    """Return the table as it is now; None where there is none."""
    try:
        return DeltaTable(location.uri, storage_options=dict(location.options) or None)
    except TableNotFoundError:
        return None


def committed_offsets(
    path: str, app_id: str, storage_options: Mapping[str, str] | None = None
) -> tuple[int, Offsets] | None:
    """Return the last batch of the application in the table, and how far each partition is in
    there.

    The source's option `startingOffsets` takes `offsets.starting_offsets()`, to go on with a lost
    checkpoint. None when the table does not exist, or has nothing of this application.
    """
    table = open_table(Location.parse(path, storage_options))
    if table is None:
        return None
    last = Journal(app_id).last(table)
    if last is None:
        _require_unknown(path, table, app_id)
        return None
    if last.offsets is None:
        raise LakeError(
            f"{path} has batches of {app_id!r} up to {last.batch_id}, but they "
            "were written without offsets; pass offsets to DeltaSink.write"
        )
    return last.batch_id, Offsets.at(last.offsets.ends)


def _require_unknown(name: str, table: Batches, app_id: str) -> None:
    """Refuse to take an application for a new one when only the log has forgotten it."""
    batch_id = table.transaction_version(app_id)
    if batch_id is not None:
        raise OffsetConflict(
            f"{name} has batches of {app_id!r} up to {batch_id}, but its log "
            "does not go back far enough to say where they ended "
            "(delta.logRetentionDuration); restore the checkpoint, or find out "
            "from the rows where to continue, and use another app_id"
        )


def longest_batch_ms(table: DeltaTable) -> int:
    """Return how long the slowest of the last batches took, whose ever it was."""
    entries = map(Entry.of_commit, table.history(STEPS[-2]))
    return max((each.took_ms for each in entries if each is not None), default=0)


def _entries(table: DeltaTable, app_id: str, most: int) -> Iterator[Entry]:
    seen = 0
    for step in STEPS:
        limit = most if step is None else min(step, most)
        for commit in table.history(limit)[seen:]:
            seen += 1
            entry = Entry.of_commit(commit)
            if entry is not None and entry.app_id == app_id:
                yield entry
        if limit == most:
            return
