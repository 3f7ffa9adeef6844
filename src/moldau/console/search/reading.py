"""Reading for a search: fetches ranges of partitions in turn, and makes Arrow batches of them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from moldau.arrow.decode import Aborted, Decoder
from moldau.arrow.pieces import pieces
from moldau.console.search.columns import DECODED
from moldau.console.search.request import Range
from moldau.peer.cluster import Cluster
from moldau.peer.errors import ConnectionLost, OffsetOutOfRange
from moldau.peer.fetcher import FetchSettings, PartitionFetcher

# Small enough that others whom the broker serves do not wait for it.
_FETCH_BYTES = 512 << 10
# Large enough that a query over a batch is worth its cost.
_BATCH_BYTES = 2 << 20
_NEVER = (1 << 63) - 1


class RangeReader:
    """One range, read piece by piece. A range that follows has no end."""

    def __init__(self, cluster: Cluster, topic: str, wanted: Range, follows: bool) -> None:
        settings = FetchSettings(_FETCH_BYTES, 200 if follows else 100, read_committed=True)
        self._fetcher = PartitionFetcher(cluster, topic, wanted.partition, None, settings)
        self._decoder = Decoder(DECODED, topic, wanted.partition, target_bytes=_BATCH_BYTES)
        self.partition = wanted.partition
        self.position = wanted.start
        self._end = _NEVER if follows else wanted.end
        self._follows = follows
        self.bytes = 0
        self._is_stuck = False

    @property
    def is_done(self) -> bool:
        return self.position >= self._end or self._is_stuck

    def close(self) -> None:
        self._fetcher.close()

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield what fetches bring until it was enough for a query; `position` is behind it then.

        A range that follows is fetched from once: nobody waits for what is there.
        """
        found: list[pa.RecordBatch] = []
        size = 0
        is_enough = self._follows
        while True:
            before = self.position
            for batch in self._fetch():
                found.append(batch)
                size += batch.nbytes
                if size >= _BATCH_BYTES:
                    yield _as_one(found)
                    found, size, is_enough = [], 0, True
            if is_enough or self.is_done or self.position == before:
                break
        if found:
            yield _as_one(found)

    def _fetch(self) -> Iterator[pa.RecordBatch]:
        """Yield what one fetch brings; `position` is behind it afterwards."""
        try:
            stream = self._fetcher.fetch(self.position)
        except OffsetOutOfRange as gap:
            self.position = gap.log_start if self.position < gap.log_start else self._end
            return
        self.bytes += stream.size
        aborted = Aborted(stream.partition.aborted or ())
        before = self.position
        try:
            for piece in pieces(stream, _FETCH_BYTES):
                following = max(self.position, piece.next_offset)
                if not stream.left and self.position < following < self._end:
                    self._fetcher.ask_ahead(following)
                yield from self._decoder.decode(piece, self.position, self._end, aborted)
                self.position = following
        except ConnectionLost:
            self._fetcher.close()
            return
        if self.position == before and not self._follows:
            # What follows belongs to an open transaction, or is not there any more.
            self._is_stuck = True


def _as_one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def in_turn(readers: list[RangeReader]) -> Iterator[tuple[RangeReader, pa.RecordBatch | None]]:
    """Yield batches of all ranges, some of each after the other; None where none came."""
    left = list(readers)
    while left:
        for reader in list(left):
            yielded = False
            for batch in reader.read():
                yielded = True
                yield reader, batch
            if not yielded:
                yield reader, None
            if reader.is_done:
                reader.close()
                left.remove(reader)
