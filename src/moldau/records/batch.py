"""The header of a record batch v2 (magic 2), and the checks on it.

    offset  size  field
         0     8  base offset            of the first record
         8     4  batch length           of what follows this field
        12     4  partition leader epoch
        16     1  magic                  always 2
        17     4  crc                    crc32c of everything after this field
        21     2  attributes             bits 0-2 codec, 3 append time, 4 transactional, 5 control
        23     4  last offset delta
        27     8  base timestamp
        35     8  max timestamp
        43     8  producer id
        51     2  producer epoch
        53     4  base sequence
        57     4  record count
        61        records, compressed as a whole

A broker may set base offset and leader epoch without touching the crc.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from moldau.records.checksum import crc32c

Bytes: TypeAlias = bytes | bytearray | memoryview

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
# Base offset and batch length precede what the batch length counts.
PREFIX_SIZE = 12
# The crc covers everything from the attributes on.
CRC_POSITION = 17
CRC_START = 21
MAGIC = 2
# length, attributes, timestamp delta, offset delta, key length, value length, header count
SMALLEST_RECORD = 7

CODEC_MASK = 0x07
APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20

NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1


class BatchError(Exception):
    """A record batch that cannot be taken; `position` is where it begins in its buffer."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.position = position


class CorruptBatch(BatchError):
    """The bytes are not what was once written: a length that does not fit, or a wrong CRC."""


class InvalidRecord(BatchError):
    """The bytes are intact, but say something that no producer may say."""


class InvalidRecords(InvalidRecord):
    """Some records of an intact batch may not be written.

    `errors` are (index in the batch, why), lowest first.
    """

    def __init__(self, message: str, errors: list[tuple[int, str]]) -> None:
        super().__init__(message)
        self.errors = errors


class NotChecked(BatchError):
    """Nobody could look into the records yet; the same batch may be taken when it is sent again."""


class NotOneBatch(InvalidRecord):
    """The bytes are less or more than one batch, or one of a format that is no longer spoken."""


class BatchTooLarge(BatchError):
    """A batch of `size` bytes where at most `limit` are allowed."""

    def __init__(
        self, size: int, limit: int, what: str = "record batch", position: int = 0
    ) -> None:
        super().__init__(f"{what} of {size} bytes exceeds the limit of {limit}", position)
        self.size = size
        self.limit = limit


class BatchHeader(NamedTuple):
    """The fixed part of a batch, as it lies in the buffer."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # the field's name; nobody counts values in a header

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return PREFIX_SIZE + self.length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def uses_append_time(self) -> bool:
        return bool(self.attributes & APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)


def read_header(buffer: Bytes, position: int = 0) -> BatchHeader:
    """Return the header at `position`, unchecked; CorruptBatch if the buffer is too
    short for one."""
    try:
        return BatchHeader._make(HEADER.unpack_from(buffer, position))
    except struct.error:
        raise CorruptBatch("the buffer ends inside a batch header", position) from None


def check_batch(
    buffer: Bytes,
    position: int = 0,
    available: int | None = None,
    *,
    from_producer: bool = True,
    is_intact: bool = False,
) -> BatchHeader:
    """Return the header of the batch at `position`, of which at most `available` bytes may be used.

    Raises CorruptBatch for a length that does not fit or a wrong CRC, InvalidRecord for a wrong
    magic or counts that lie. Compaction leaves batches with fewer records than offsets, or none:
    those pass only with `from_producer=False`. The CRC of what is known to be `is_intact` is not
    computed again.
    """
    if available is None:
        available = len(buffer) - position
    if available < HEADER_SIZE:
        raise CorruptBatch(f"{available} bytes are too few for a batch header", position)
    header = read_header(buffer, position)
    size = PREFIX_SIZE + header.length
    if size < HEADER_SIZE or size > available:
        raise CorruptBatch(f"batch length {header.length} does not fit {available} bytes", position)
    if header.magic != MAGIC:
        raise InvalidRecord(f"magic {header.magic} is not supported, only {MAGIC}", position)
    if not is_intact:
        with memoryview(buffer) as view:
            actual = crc32c(view[position + CRC_START : position + size])
        if actual != header.crc:
            reason = f"CRC is {actual:#010x}, the header says {header.crc:#010x}"
            raise CorruptBatch(reason, position)
    count = header.count
    span = header.last_offset_delta + 1
    if span < 1 or (count != span if from_producer else not 0 <= count <= span):
        raise InvalidRecord(f"{count} records for {span} offsets", position)
    if not header.codec and count * SMALLEST_RECORD > size - HEADER_SIZE:
        raise InvalidRecord(f"{count} records do not fit in {size - HEADER_SIZE} bytes", position)
    return header


def batches(buffer: Bytes, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch of a buffer of whole batches, CRCs unchecked.

    CorruptBatch when the lengths do not lead exactly to the buffer's end.
    """
    end = len(buffer)
    while position < end:
        header = read_header(buffer, position)
        following = position + header.size
        if header.size < HEADER_SIZE or following > end:
            raise CorruptBatch(f"batch length {header.length} does not fit", position)
        yield position, header
        position = following
