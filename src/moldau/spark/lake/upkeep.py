"""Upkeep of a table: merges small files and removes unused ones.

Both are transactions of their own, after the batch's. When one fails, the batch is in the table all
the same, so it is logged and done at the next turn.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, WriterProperties
from deltalake.exceptions import DeltaError

from moldau.spark.errors import log
from moldau.spark.lake.delta_target import DELETED_KEYS
from moldau.spark.lake.journal import longest_batch_ms
from moldau.spark.lake.location import Location
from moldau.spark.lake.merge.deleted_keys import sweep

# Fewer than this in a folder are not worth a rewrite.
MANY_FILES = 8
SHORTEST_RETENTION = timedelta(hours=1)
RETENTION_PROPERTY = "delta.deletedFileRetentionDuration"
_INTERVAL = re.compile(r"(?:interval\s+)?(\d+)\s+(week|day|hour|minute|second)s?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The schedule of upkeep, in batches (0 means never), and its settings."""

    optimize_every: int
    vacuum_every: int
    retention: timedelta
    file_bytes: int
    # Where keys that were deleted are remembered, if this sink does.
    deleted: Location | None = None

    def __post_init__(self) -> None:
        if self.retention < SHORTEST_RETENTION:
            raise ValueError(
                f"retention is {self.retention}, but must be {SHORTEST_RETENTION} "
                "or more: otherwise files that are being written or read would be "
                "removed"
            )

    def after(self, table: DeltaTable, batch_id: int, longest_batch_ms: int) -> None:
        """Do what is due after that batch; a query that restarts goes on counting."""
        name = table.table_uri
        if self.optimize_every and (batch_id + 1) % self.optimize_every == 0:
            try:
                self.compact(table)
            except DeltaError as problem:
                log.warning(
                    "%s: small files could not be merged; trying again later: %s", name, problem
                )
        if self.vacuum_every and (batch_id + 1) % self.vacuum_every == 0:
            try:
                self.vacuum(table, longest_batch_ms)
            except DeltaError as problem:
                log.warning(
                    "%s: old files could not be removed; trying again later: %s", name, problem
                )

    def compact(self, table: DeltaTable) -> bool:
        """Join small files, where some folder has many; whether it did."""
        table.update_incremental()
        if most_small_files(table, self.file_bytes // 2) < MANY_FILES:
            return False
        table.optimize.compact(
            target_size=self.file_bytes,
            max_concurrent_tasks=2,
            writer_properties=WriterProperties(compression="ZSTD"),
        )
        return True

    def vacuum(self, table: DeltaTable, known_longest_ms: int) -> list[str]:
        """Remove files that no version within the retention has, those of failed batches too."""
        longest_ms = max(known_longest_ms, longest_batch_ms(table))
        retention = max(
            self.retention,
            _retention_of(table),
            # A file may be as old as its batch when it is committed; twice that, for clocks differ.
            timedelta(milliseconds=2 * longest_ms) + SHORTEST_RETENTION,
        )
        table.update_incremental()
        if self.deleted is not None:
            oldest_ms = time.time_ns() // 1_000_000 - int(retention / timedelta(milliseconds=1))
            sweep(self.deleted, table.transaction_version(DELETED_KEYS), oldest_ms)
        return table.vacuum(
            retention_hours=math.ceil(retention / timedelta(hours=1)),
            dry_run=False,
            enforce_retention_duration=False,
            full=True,
        )


def most_small_files(table: DeltaTable, small_bytes: int) -> int:
    """Return how many files smaller than that the folder has which has most of them."""
    actions: Any = pa.table(table.get_add_actions(flatten=True))
    names = [name for name in actions.column_names if name.startswith("partition.")]
    sizes = actions.column("size_bytes").to_pylist()
    folders = zip(*(actions.column(name).to_pylist() for name in names), strict=True)
    keys = list(folders) if names else [()] * len(sizes)
    small = (key for key, size in zip(keys, sizes, strict=True) if size < small_bytes)
    return max(Counter(small).values(), default=0)


def _retention_of(table: DeltaTable) -> timedelta:
    text = table.metadata().configuration.get(RETENTION_PROPERTY)
    if text is None:
        return timedelta()
    found = _INTERVAL.fullmatch(text.strip())
    if found is None:
        raise DeltaError(f"{RETENTION_PROPERTY} is {text!r}, which is not like 'interval 7 days'")
    return timedelta(**{f"{found[2].lower()}s": int(found[1])})
