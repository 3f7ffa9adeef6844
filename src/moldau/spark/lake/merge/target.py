"""The target of a merge: a table as it is at one moment, whatever keeps its log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from moldau.spark.lake.files import FileWritten, WritePlan
from moldau.spark.lake.merge.staged import Staged


class OpenFile(Protocol):
    """A file of the table that a task reads, in the table's types, a group of rows at a time."""

    def __enter__(self) -> OpenFile: ...

    def __exit__(self, *_: object) -> None: ...

    @property
    def groups(self) -> range: ...

    def rows_before(self, group: int) -> int:
        """Return how many rows are in the groups before this one."""

    def has(self, columns: Sequence[str]) -> bool:
        """Return whether the file has these columns; False means that they are null in it."""

    def bounds(self, group: int, name: str) -> tuple[pa.Scalar, pa.Scalar] | None:
        """Return the least and greatest value of a column in a group, where they are known."""

    def read(self, group: int, columns: Sequence[str]) -> pa.Table:
        """Return these columns of a group: few, for it may be large."""

    def batches(self, group: int) -> Iterator[pa.RecordBatch]:
        """Return all columns of a group's rows, some rows at a time, in the same order."""


class TableFile(Protocol):
    """A file of the table, for tasks."""

    @property
    def identity(self) -> str:
        """What names the rows: as long as it is the same, they are."""

    @property
    def size(self) -> int: ...

    def open(self, plan: WritePlan) -> OpenFile:
        """Open the file; the plan is of the table."""


class Target(Protocol):
    """What a merge asks of a table."""

    @property
    def plan(self) -> WritePlan:
        """How files of the table are written, in all its columns."""

    @property
    def deleted_keys(self) -> int | None:
        """The list of deleted keys that counts; None where there has been none."""

    def files(
        self, staged: Staged, written: Sequence[FileWritten], keys: Sequence[str]
    ) -> Sequence[TableFile]:
        """Return the files that may have keys of the staged rows, which are in `written`."""


@dataclass(slots=True)
class Changes:
    """What a commit changes, in one step: files out and in, and the list of deleted keys that
    counts from then on; None leaves that as it is."""

    removed: list[TableFile] = field(default_factory=list)
    added: list[FileWritten] = field(default_factory=list)
    deleted_keys: int | None = None
