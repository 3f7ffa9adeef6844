"""Messages as our own share consumer takes them, with the methods of librdkafka's."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import msgspec

from moldau.records.batch import batches, check_batch
from moldau.records.record import Record, records_of

_CREATE_TIME, _APPEND_TIME = 1, 2


class TakenMessage(msgspec.Struct, frozen=True, gc=False):
    """A record of which this member has the lock."""

    topic_name: str
    topic_id: UUID
    index: int
    record: Record
    has_append_time: bool
    deliveries: int

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return self.topic_name

    def partition(self) -> int:
        return self.index

    def offset(self) -> int:
        return self.record.offset

    def key(self) -> bytes | None:
        return self.record.key

    def value(self) -> bytes | None:
        return self.record.value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return list(self.record.headers) or None

    def timestamp(self) -> tuple[int, int]:
        return (_APPEND_TIME if self.has_append_time else _CREATE_TIME), self.record.timestamp

    def delivery_count(self) -> int:
        return self.deliveries


def records_in(data: bytes) -> Iterator[tuple[Record, bool]]:
    """Yield the records of whole batches, and whether their time is that of the append. BatchError
    where the bytes are none."""
    for position, header in batches(data):
        check_batch(data, position, from_producer=False)
        if not header.is_control:
            for record in records_of(data, position):
                yield record, header.uses_append_time
