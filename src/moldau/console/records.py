"""Records of partitions, fetched for people: a few at a time, committed ones unless told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from moldau.peer.cluster import Cluster
from moldau.peer.errors import OffsetOutOfRange
from moldau.peer.fetcher import FetchSettings, PartitionFetcher
from moldau.records.batch import HEADER_SIZE, CorruptBatch, read_header
from moldau.records.record import Record, decode_records, payload_of, read_end_marker

# The first batch is sent however large it is.
FETCH_BYTES = 1 << 20


class Fetched(NamedTuple):
    """Records of one answer, and where the next begins; `end` is where reading ends for now."""

    records: list[tuple[Record, bool]]
    following: int
    end: int


class PartitionReader:
    """Reads one partition forwards. For one thread, with connections of its own."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partition: int,
        *,
        read_committed: bool = True,
        max_wait_ms: int = 0,
        max_bytes: int = FETCH_BYTES,
    ) -> None:
        settings = FetchSettings(max_bytes, max_wait_ms, 1, read_committed)
        self._fetcher = PartitionFetcher(cluster, topic, partition, None, settings)
        self._read_committed = read_committed
        self.partition = partition

    def close(self) -> None:
        self._fetcher.close()

    def read(self, offset: int) -> Fetched:
        """Return records from `offset` on, or from where the log begins if that is later."""
        try:
            stream = self._fetcher.fetch(offset)
        except OffsetOutOfRange as gap:
            if offset < gap.log_start:
                return Fetched([], gap.log_start, gap.log_end)
            return Fetched([], offset, gap.log_end)
        buffer = bytearray(stream.size)
        stream.fill(memoryview(buffer))
        told = stream.partition
        end = told.last_stable if self._read_committed else told.high_watermark
        found, following = _records(buffer, offset, told.aborted or [])
        if following == offset and len(buffer) >= HEADER_SIZE:
            raise CorruptBatch(f"an incomplete batch at offset {offset}")
        return Fetched(found, following, end)


def _records(
    buffer: bytearray, first: int, aborted: list[tuple[int, int]]
) -> tuple[list[tuple[Record, bool]], int]:
    """Decode whole batches without those of aborted transactions; return where they end, too."""
    pending = sorted(aborted, key=lambda entry: entry[1], reverse=True)
    given_up: set[int] = set()
    found: list[tuple[Record, bool]] = []
    following, position = first, 0
    while position + HEADER_SIZE <= len(buffer):
        header = read_header(buffer, position)
        if header.size < HEADER_SIZE:
            raise CorruptBatch(f"batch length {header.length} does not fit", position)
        if position + header.size > len(buffer):
            break
        while pending and pending[-1][1] <= header.last_offset:
            given_up.add(pending.pop()[0])
        if header.is_control:
            marker = read_end_marker(buffer, position)
            if marker is not None and not marker.commits:
                given_up.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in given_up):
            body = payload_of(buffer, position, header)
            for record in decode_records(body, header, position):
                if record.offset >= first:
                    found.append((record, header.uses_append_time))
        following = max(following, header.last_offset + 1)
        position += header.size
    return found, following


def read_all(
    cluster: Cluster, topic: str, partition: int, start: int, *, read_committed: bool = True
) -> Iterator[tuple[Record, bool]]:
    """Yield what a partition has from `start` to its end of now."""
    reader = PartitionReader(cluster, topic, partition, read_committed=read_committed)
    offset, end = start, start + 1
    try:
        first = True
        while offset < end:
            fetched = reader.read(offset)
            if first:
                end, first = fetched.end, False
            yield from fetched.records
            if fetched.following == offset:
                return
            offset = fetched.following
    finally:
        reader.close()
