"""Record checks: the records of a batch, decoded where its topic requires it.

A compacted topic takes only records with a key, and a topic with a codec of its own has batches
compressed anew. A batch may hold a million records or expand to 128 MB, so this is done in steps:
a caller on the event loop can serve others between them, and have the long ones done by a thread.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from itertools import islice

from moldau.log.config import LogConfig
from moldau.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    BatchError,
    BatchHeader,
    BatchTooLarge,
    Bytes,
    CorruptBatch,
    InvalidRecords,
    NotChecked,
    read_header,
)
from moldau.records.compression import Codec, compress, decompress
from moldau.records.record import MAX_DECOMPRESSED, assemble, decode_records
from moldau.records.scratch import give_back

# The most that one step looks into.
RECORDS_A_STEP = 500
# A batch of at most this many uncompressed bytes is not worth a thread.
_SMALL = 1 << 20
# A small compressed batch may hold millions of records; an answer that named them all would be
# many times its size.
_MOST_NAMED = 10_000


class RecordCheck:
    """One batch on its way into a log.

    `batch` is what to append once `step` has answered False, unless `error` says why not. Nothing
    but the batch's length is taken for granted: whoever appends checks the rest.
    """

    __slots__ = (
        "_config", "_steps", "batch", "error", "is_long", "most_records", "needs_schemas",
    )  # fmt: skip

    def __init__(self, batch: memoryview, config: LogConfig) -> None:
        self.batch: memoryview | bytearray = batch
        self.error: BatchError | None = None
        # Whether the next step belongs on a thread.
        self.is_long = False
        # The most records that a step so far has looked into.
        self.most_records = 0
        # Whether somebody still has to check the records against their schemas, which is not done
        # here: without that the batch is not taken.
        self.needs_schemas = config.validates_schemas
        self._config = config
        self._steps = self._run()

    def step(self) -> bool:
        """Do the next step; whether there is another one. Any thread, one at a time."""
        try:
            self.is_long = next(self._steps)
        except StopIteration:
            return False
        except BatchError as error:
            self.error = error
            return False
        return True

    def finish(self) -> memoryview | bytearray:
        """Do all steps at once; what to append. BatchError where it is refused."""
        while self.step():
            pass
        if self.error is not None:
            raise self.error
        if self.needs_schemas:
            raise NotChecked("the records were not checked against their schemas; send again")
        return self.batch

    def _run(self) -> Iterator[bool]:
        """Yield, before each step, whether it belongs on a thread."""
        header = read_header(self.batch)
        codec = self._target(header.attributes)
        if codec is None and not self._config.compacts:
            return
        if header.size < HEADER_SIZE or header.size > len(self.batch):
            raise CorruptBatch(f"batch length {header.length} does not fit")
        yield False
        body = self._small_body(header)
        if body is None:
            yield True
            body = self._body(header, MAX_DECOMPRESSED)
            yield False
        yield from self._walk(body, header)
        if codec is not None:
            yield len(body) > _SMALL
            self.batch = self._compressed(body, header, codec)
        if isinstance(body, memoryview) and isinstance(body.obj, mmap.mmap):
            position = 0
            while position < len(body.obj):
                yield False
                position = give_back(body.obj, position)

    def _small_body(self, header: BatchHeader) -> Bytes | None:
        """Return the records if they take little room uncompressed, as nearly all do; else None."""
        if header.size > _SMALL:
            return None
        try:
            return self._body(header, _SMALL)
        except BatchTooLarge:
            return None

    def _body(self, header: BatchHeader, limit: int) -> Bytes:
        section = memoryview(self.batch)[HEADER_SIZE : header.size]
        return decompress(Codec.of(header.codec), section, limit)

    def _walk(self, body: Bytes, header: BatchHeader) -> Iterator[bool]:
        """Check every record, a few at a time; InvalidRecords names those without a key."""
        records = decode_records(body, header)
        compacts = self._config.compacts
        total = 0
        without: list[int] = []
        while True:
            before = total
            for record in islice(records, RECORDS_A_STEP):
                if compacts and record.key is None:
                    without.append(total)
                total += 1
            self.most_records = max(self.most_records, total - before)
            if total - before < RECORDS_A_STEP:
                break
            yield False
        if without:
            reason = "a compacted topic does not accept records without a key"
            raise InvalidRecords(
                f"{reason}: {len(without)} of {total} have none",
                [(index, reason) for index in without[:_MOST_NAMED]],
            )

    def _compressed(self, body: Bytes, header: BatchHeader, codec: Codec) -> bytearray:
        config = self._config
        level = {
            Codec.GZIP: config.compression_gzip_level,
            Codec.LZ4: config.compression_lz4_level,
            Codec.ZSTD: config.compression_zstd_level,
        }.get(codec)
        attributes = header.attributes & ~CODEC_MASK | codec
        out = assemble(header._replace(attributes=attributes), compress(codec, body, level))
        if len(out) > config.max_message_bytes:
            raise BatchTooLarge(len(out), config.max_message_bytes, "recompressed batch")
        return out

    def _target(self, attributes: int) -> Codec | None:
        """Return the codec that the batch has to be compressed with anew, if it has."""
        name = self._config.compression_type
        if name == "producer":
            return None
        codec = Codec.NONE if name == "uncompressed" else Codec[name.upper()]
        return None if attributes & CODEC_MASK == codec else codec
