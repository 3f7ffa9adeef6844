"""Record batches to Arrow: only the columns that are asked for, about a megabyte at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from moldau.arrow import kernels
from moldau.arrow.columns import Columns
from moldau.arrow.kernels import Bytes, Ints
from moldau.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER_SIZE,
    SMALLEST_RECORD,
    TRANSACTIONAL_BIT,
    CorruptBatch,
    InvalidRecord,
)
from moldau.records.compression import Codec, decompress
from moldau.records.record import MAX_DECOMPRESSED, read_end_marker

# Small enough for the processor's cache, large enough to spread the cost of a batch.
TARGET_BYTES = 1 << 20
# The usual number of batches in a buffer; if there are more, they are counted.
_FEW = 64

_WRONG = {
    kernels.BAD_MAGIC: "a batch is not in the format v2 (magic 2)",
    kernels.BAD_LENGTH: "the length of a batch is wrong",
    kernels.BAD_RECORD: "a record's lengths do not fit its bytes",
    kernels.BAD_OFFSET: "a record's offset is outside its batch",
    kernels.BAD_TIME: "a record's timestamp is not a time",
    kernels.BAD_HEADER: "a record's headers do not fit its bytes",
    kernels.NO_ROOM: "a batch has more records than it says",
}


class Scan(NamedTuple):
    """The whole batches of a buffer: what their headers say, and where the last one ends.

    `next_offset` is the one after the last batch, -1 if there is none.
    Of a buffer that `is_scratch`, decoding may leave something else behind.
    """

    buffer: memoryview
    array: Bytes
    table: Ints
    size: int
    next_offset: int
    is_scratch: bool


def scan(buffer: memoryview, is_scratch: bool = False) -> Scan:
    """Find the batches; one that is cut short at the end, as brokers may send it, is left out.

    InvalidRecord or CorruptBatch when something else than batches lies there.
    """
    array = _array(buffer)
    table: Ints = np.empty((_FEW, kernels.TABLE_WIDTH), np.int64)
    count = kernels.scan_batches(array, table)
    if count == _FEW:
        table = np.empty((kernels.count_batches(array), kernels.TABLE_WIDTH), np.int64)
        count = kernels.scan_batches(array, table)
    if count < 0:
        kind = InvalidRecord if count == -kernels.BAD_MAGIC else CorruptBatch
        raise kind(_WRONG[-count])
    if not count:
        return Scan(buffer, array, table[:0], 0, -1, is_scratch)
    last = table[count - 1].tolist()
    following = last[kernels.BASE_OFFSET] + last[kernels.LAST_DELTA] + 1
    return Scan(buffer, array, table[:count], last[kernels.END], following, is_scratch)


def _array(buffer: bytes | bytearray | memoryview) -> Bytes:
    return np.frombuffer(buffer, np.uint8) if len(buffer) else np.empty(0, np.uint8)


class Aborted:
    """Whose batches are those of aborted transactions, going along the records of one answer."""

    def __init__(self, transactions: Sequence[tuple[int, int]] = ()) -> None:
        """(producer id, first offset) of each that was aborted, as the broker says."""
        self._pending = sorted(transactions, key=lambda entry: entry[1], reverse=True)
        self._open: set[int] = set()

    def go_to(self, offset: int) -> None:
        while self._pending and self._pending[-1][1] <= offset:
            self._open.add(self._pending.pop()[0])

    def has(self, producer: int) -> bool:
        return producer in self._open

    def end(self, producer: int) -> None:
        self._open.discard(producer)


@dataclass(slots=True)
class _Run:
    """Batches whose records lie in one buffer: the one that was scanned, or what was packed in it.

    They are the rows `first` up to `end` of a table.
    """

    buffer: Bytes
    table: Ints
    first: int
    end: int


class Decoder:
    """Makes Arrow batches of `columns` (in that order) from one partition's record batches.

    Control batches are left out, and so are those of aborted transactions when they are told.
    Batches end where about `target_bytes` are full, so memory does not depend on how much is read;
    a single record batch is never split. Of records that lie in scratch memory, the values are not
    copied to a column but moved together where they are.
    """

    def __init__(
        self,
        columns: Sequence[str],
        topic: str,
        partition: int,
        *,
        check_crcs: bool = True,
        max_decompressed: int = MAX_DECOMPRESSED,
        target_bytes: int = TARGET_BYTES,
    ) -> None:
        self._columns = Columns(columns, topic, partition)
        self._check_crcs = check_crcs
        self._max_decompressed = max_decompressed
        self._target_bytes = target_bytes
        self._name = f"{topic}-{partition}"

    def decode(
        self, scan: Scan, first: int, until: int, aborted: Aborted | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records with `first <= offset < until`, and no empty Arrow batch."""
        aborted = aborted or Aborted()
        scratch = scan.array if scan.is_scratch else None
        runs: list[_Run] = []
        size = rows = 0
        for number, row in self._data_batches(scan, first, until, aborted):
            start, end, count, base, span, attributes = row[:6]
            codec = attributes & CODEC_MASK
            if not 0 <= count <= span + 1:
                raise self._wrong(f"{count} records for {span + 1} offsets", base)
            if codec == Codec.NONE:
                if runs and runs[-1].table is scan.table and runs[-1].end == number:
                    runs[-1].end = number + 1
                else:
                    runs.append(_Run(scan.array, scan.table, number, number + 1))
            else:
                packed = scan.buffer[start:end]
                body = _array(decompress(Codec.of(codec), packed, self._max_decompressed))
                start, end = 0, len(body)
                row[kernels.START], row[kernels.END] = start, end
                runs.append(_Run(body, np.array([row], np.int64), 0, 1))
            if count * SMALLEST_RECORD > end - start:
                raise self._wrong(f"{count} records do not fit in {end - start} bytes", base)
            size += end - start
            rows += count
            if size >= self._target_bytes:
                yield from self._arrow(runs, rows, size, first, until, scratch)
                runs, size, rows = [], 0, 0
        if rows:
            yield from self._arrow(runs, rows, size, first, until, scratch)

    def _data_batches(
        self, scan: Scan, first: int, until: int, aborted: Aborted
    ) -> Iterator[tuple[int, list[int]]]:
        """Yield the table's batches whose records are wanted, each with its number in there."""
        for number, row in enumerate(scan.table.tolist()):
            start, end, _, base, span, attributes, _, _, producer, crc = row
            if base >= until:
                return
            last = base + span
            aborted.go_to(last)
            if last < first and not attributes & CONTROL_BIT:
                continue
            position = start - HEADER_SIZE
            if self._check_crcs and crc32c(scan.buffer[position + CRC_START : end]) != crc:
                raise CorruptBatch(f"{self._name}: wrong CRC of the batch at offset {base}")
            if attributes & CONTROL_BIT:
                if aborted.has(producer):
                    marker = read_end_marker(scan.buffer, position)
                    if marker is not None and not marker.commits:
                        aborted.end(producer)
                continue
            if attributes & TRANSACTIONAL_BIT and aborted.has(producer):
                continue
            yield number, row

    def _arrow(
        self, runs: list[_Run], rows: int, size: int, first: int, until: int, scratch: Bytes | None
    ) -> list[pa.RecordBatch]:
        """Decode one batch; nothing if all its records are outside the range."""
        place: Bytes | None = None
        if len(runs) == 1 and runs[0].buffer is scratch:
            # From the first of them on: they only move towards its start.
            place = scratch[int(runs[0].table[runs[0].first, kernels.START]) :]
        self._columns.begin(rows, size, place)
        for run in runs:
            table = run.table[run.first : run.end]
            status = self._columns.append(run.buffer, table, first, until)
            if status != kernels.OK:
                bad = int(table[self._columns.bad_batch, kernels.BASE_OFFSET])
                raise self._wrong(_WRONG[status], bad)
        batch = self._columns.finish()
        return [batch] if batch.num_rows else []

    def _wrong(self, what: str, base_offset: int) -> InvalidRecord:
        return InvalidRecord(f"{self._name}: {what}, in the batch at offset {base_offset}")
