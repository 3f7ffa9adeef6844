"""A Delta table as the target of a merge, and what a merge changes as actions of its log."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable, Transaction
from deltalake.transaction import AddAction, RemoveAction

from moldau.spark.lake.delta_files import DeltaFile, files_of
from moldau.spark.lake.files import FileWritten, WritePlan
from moldau.spark.lake.merge.staged import Staged
from moldau.spark.lake.merge.target import Changes

# The transaction identifier whose version is the list of deleted keys that counts.
DELETED_KEYS = "moldau/deleted-keys"


@dataclass(frozen=True, slots=True)
class DeltaTarget:
    """One version of a Delta table; `plan` says how its files are written."""

    table: DeltaTable
    plan: WritePlan

    @property
    def deleted_keys(self) -> int | None:
        return self.table.transaction_version(DELETED_KEYS)

    def files(
        self, staged: Staged, written: Sequence[FileWritten], keys: Sequence[str]
    ) -> list[DeltaFile]:
        return files_of(self.table, _key_ranges(written, keys))


def actions_of(changes: Changes) -> list[AddAction | RemoveAction]:
    """Return the actions that make these changes."""
    now_ms = time.time_ns() // 1_000_000
    gone = [file for file in changes.removed if isinstance(file, DeltaFile)]
    assert len(gone) == len(changes.removed)
    return [
        *(file.remove_action(now_ms) for file in gone),
        *(
            AddAction(
                path=file.path,
                size=file.size,
                partition_values=file.partition_values,
                modification_time=file.modified_ms,
                data_change=True,
                stats=file.stats,
            )
            for file in changes.added
        ),
    ]


def transactions_of(changes: Changes) -> list[Transaction]:
    """Return the transaction identifiers of these changes, beside those of the batch."""
    number = changes.deleted_keys
    return [] if number is None else [Transaction(DELETED_KEYS, number)]


def _key_ranges(
    written: Sequence[FileWritten], keys: Sequence[str]
) -> Mapping[str, tuple[Any, Any]]:
    """Return the least and greatest of each key in the batch, where the files' stats have them."""
    stats = [json.loads(file.stats) for file in written]
    ranges = {}
    for key in keys:
        lows = [each["minValues"].get(key) for each in stats]
        highs = [each["maxValues"].get(key) for each in stats]
        if lows and None not in lows and None not in highs:
            ranges[key] = min(lows), max(highs)
    return ranges
