"""Files: a task writes its rows into Parquet files of the table and tells the driver.

Memory is bounded by the plan, not by the rows: a row group is written as soon as enough has come,
and a file ends when it is large enough. Names are never used twice, so an attempt that fails or is
repeated leaves files that nobody knows; vacuum removes them.
"""

from __future__ import annotations

import base64
import json
import re
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from io import BytesIO
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from moldau.spark.lake.location import Store
from moldau.spark.lake.stats import file_stats, null_counts, unordered_columns

if TYPE_CHECKING:
    from moldau.spark.lake.iceberg.transforms import Transform

ROW_NUMBER = "__row"
# The overhead of a few rows in memory.
BATCH_OVERHEAD = 1024
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_PLAIN = re.compile(r"[A-Za-z0-9_.\-]{1,80}")


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The instructions for tasks: location, columns and sizes.

    Columns in `partition_by` are in the folders and not in the files; what `transforms` make of
    columns is in the folders too, and the columns stay.
    """

    location: Store
    schema: pa.Schema
    partition_by: tuple[str, ...]
    prefix: str
    transforms: tuple[Transform, ...] = ()
    # For tables whose log wants to know more of a file than `stats`.
    keeps_footer: bool = False
    # Columns whose nulls are to be counted.
    counted: tuple[str, ...] = ()
    compression: str = "zstd"
    file_bytes: int = 128 << 20
    row_group_bytes: int = 32 << 20
    buffered_bytes: int = 64 << 20
    most_open: int = 100


class FileWritten(msgspec.Struct, frozen=True):
    """A file that is whole, and not yet part of the table."""

    path: str
    size: int
    rows: int
    modified_ms: int
    partition_values: dict[str, str | None]
    stats: str
    nulls: dict[str, int]
    # The values of the transforms, as JSON, and Parquet's own footer, in base64.
    transformed: str = "[]"
    footer: str = ""


RESULT_SCHEMA = pa.schema([pa.field("written", pa.string())])


def write_files(plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write files in a task, for `mapInArrow`, and yield a row of RESULT_SCHEMA for each."""
    written = [msgspec.json.encode(item).decode() for item in written_files(plan, batches)]
    yield pa.RecordBatch.from_arrays([pa.array(written, pa.string())], schema=RESULT_SCHEMA)


def written_files(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> list[FileWritten]:
    """Write rows with the columns of the plan; whole files or none that count."""
    folders = Folders(plan)
    try:
        for batch in batches:
            folders.add(conformed(batch, plan.schema))
        return folders.finish()
    finally:
        folders.abandon()


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the same rows in the table's types: Spark's times carry the session's
    zone, for one."""
    arrays = [
        array if array.type == wanted.type else array.cast(wanted.type)
        for array, wanted in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


Values = tuple[Any, ...]


class Folders:
    """One file after another for every value of the partitioning columns.

    Rows wait in memory until there are enough for a row group of their file, or until there is too
    much of it in all: then the largest is written. So many folders do not mean many small files.
    """

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan
        named = set(plan.partition_by)
        self._stored = pa.schema([each for each in plan.schema if each.name not in named])
        self._files: dict[Values, _File] = {}
        self._begun: dict[Values, _File] = {}
        self._buffered = 0
        self._written: list[FileWritten] = []

    def add(self, batch: pa.RecordBatch) -> None:
        for values, rows in self._split(batch):
            file = self._files.get(values)
            if file is None:
                file = self._files[values] = _File(self._plan, self._stored, values)
            self._buffered += file.add(rows)
            if file.buffered >= self._plan.row_group_bytes:
                self._write_row_group(values, file)
            while self._buffered > self._plan.buffered_bytes:
                self._write_row_group(*max(self._files.items(), key=lambda each: each[1].buffered))

    def finish(self) -> list[FileWritten]:
        for values in list(self._files):
            self._end(values)
        return self._written

    def abandon(self) -> None:
        for file in self._begun.values():
            file.abandon()

    def _write_row_group(self, values: Values, file: _File) -> None:
        self._begun[values] = file
        self._buffered -= file.write_row_group()
        if file.written >= self._plan.file_bytes:
            self._end(values)
        elif len(self._begun) > self._plan.most_open:
            self._end(max(self._begun, key=lambda each: self._begun[each].written))

    def _end(self, values: Values) -> None:
        file = self._files[values]
        self._begun[values] = file
        self._buffered -= file.buffered
        self._written.append(file.finish())
        del self._files[values], self._begun[values]

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[Values, pa.RecordBatch]]:
        if batch.num_rows == 0:
            return
        keys = {name: batch.column(name) for name in self._plan.partition_by}
        for each in self._plan.transforms:
            keys[each.name] = each.values(batch.column(each.column))
        names = list(keys)
        stored = batch.select(self._stored.names)
        if not names:
            yield (), stored
            return
        numbers = pa.array(range(batch.num_rows), pa.int32())
        rows = pa.table([*keys.values(), numbers], [*names, ROW_NUMBER])
        groups = rows.group_by(names, use_threads=False).aggregate([(ROW_NUMBER, "list")])
        if groups.num_rows == 1:
            yield tuple(groups.column(name)[0].as_py() for name in names), stored
            return
        for group in groups.to_batches():
            found = group.column(f"{ROW_NUMBER}_list")
            for index in range(group.num_rows):
                values = tuple(group.column(name)[index].as_py() for name in names)
                yield values, stored.take(found[index].values)


class _File:
    """A Parquet file that is being written; there is none before its first row group."""

    def __init__(self, plan: WritePlan, schema: pa.Schema, values: Values) -> None:
        self._plan = plan
        self._schema = schema
        self._transformed = list(values) if plan.transforms else []
        if plan.transforms:
            pairs = zip(plan.transforms, values, strict=True)
            self._values = {each.name: each.text(value) for each, value in pairs}
        else:
            texts = [partition_text(value) for value in values]
            self._values = dict(zip(plan.partition_by, texts, strict=True))
        name = f"{plan.prefix}-{uuid.uuid4()}.{plan.compression}.parquet"
        self._path = "/".join([*_folders(self._values), name])
        self._sink: Any = None
        self._writer: Any = None
        self._footers: list[Any] = []
        self._waiting: list[pa.RecordBatch] = []
        self.buffered = 0
        self._nulls: dict[str, int] = dict.fromkeys(plan.counted, 0)
        self._unordered: set[str] = set()

    @property
    def written(self) -> int:
        return 0 if self._sink is None else int(self._sink.tell())

    def add(self, rows: pa.RecordBatch) -> int:
        """Take the rows; how much memory they need until they are written."""
        for name, count in null_counts(rows, self._plan.counted).items():
            self._nulls[name] += count
        for name in self._plan.counted:
            if name in self._plan.partition_by and self._values[name] is None:
                self._nulls[name] += rows.num_rows
        self._unordered |= unordered_columns(rows)
        self._waiting.append(rows)
        size = int(rows.nbytes) + BATCH_OVERHEAD
        self.buffered += size
        return size

    def write_row_group(self) -> int:
        """Write what waits; how much memory that frees."""
        if self._writer is None:
            self._sink = self._plan.location.create(self._path)
            self._writer = pq.ParquetWriter(
                self._sink,
                self._schema,
                compression=self._plan.compression,
                metadata_collector=self._footers,
            )
        rows = pa.Table.from_batches(self._waiting, schema=self._schema)
        if rows.num_rows > 0:
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        freed, self.buffered = self.buffered, 0
        self._waiting.clear()
        return freed

    def finish(self) -> FileWritten:
        self.write_row_group()
        self._writer.close()
        size = self.written
        self._sink.close()
        (footer,) = self._footers
        return FileWritten(
            path=self._path,
            size=size,
            rows=footer.num_rows,
            modified_ms=time.time_ns() // 1_000_000,
            partition_values=self._values,
            stats=json.dumps(file_stats(footer, self._schema, self._unordered)),
            nulls=self._nulls,
            transformed=json.dumps(self._transformed),
            footer=_encoded(footer) if self._plan.keeps_footer else "",
        )

    def abandon(self) -> None:
        if self._writer is not None:
            # A writer that goes away open would end its file with a footer, as if it were whole.
            self._writer.is_open = False
            self._sink.close()


def _encoded(footer: Any) -> str:
    content = BytesIO()
    footer.write_metadata_file(content)
    return base64.b64encode(content.getvalue()).decode()


def partition_text(value: Any) -> str | None:
    """Return a partition value as the log keeps it."""
    if value is None or value == "":
        # The log's form cannot tell the empty string from null, and says null.
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            value = value.astimezone(UTC).replace(tzinfo=None)
        return str(value.isoformat(sep=" ", timespec="microseconds"))
    return str(value)


def _folders(values: dict[str, str | None]) -> list[str]:
    """Folders for people: readers go by the log. What would need escaping is told by a digest.

    Names have only characters that no URL escapes: delta-rs cannot compact files elsewhere.
    """
    return [f"{_plain(name)}={_plain(value)}" for name, value in values.items()]


def _plain(text: str | None) -> str:
    if text is None:
        return NO_VALUE
    if _PLAIN.fullmatch(text):
        return text
    kept = re.sub(r"[^A-Za-z0-9_.\-]", "_", text)[:40]
    return f"{kept}-{blake2b(text.encode(), digest_size=6).hexdigest()}"
