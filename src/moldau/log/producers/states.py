"""Producer states: what a log remembers of its idempotent and transactional producers."""

from __future__ import annotations

import struct
from typing import NamedTuple

from moldau.log.errors import (
    CoordinatorFenced,
    CorruptFile,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
)
from moldau.records.checksum import crc32c
from moldau.records.record import EndMarker

KEPT_BATCHES = 5
NO_OFFSET = -1
_SEQUENCE_MASK = 0x7FFF_FFFF
_VERSION = 1
_PREFIX = struct.Struct(">hIi")
_CRC_START = 6
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch,
# first offset of the open transaction
_ENTRY = struct.Struct(">qhiqiqiq")
_new = tuple.__new__


class WrittenBatch(NamedTuple):
    """One batch that a producer wrote."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & _SEQUENCE_MASK

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class Producer(NamedTuple):
    """One producer id: its newest epoch and its last batches, oldest first.

    `written_ms` is when it last wrote to this log, whatever its records are dated.
    """

    epoch: int
    coordinator_epoch: int
    written_ms: int
    transaction_start: int
    batches: tuple[WrittenBatch, ...]


class ProducerStates:
    """Producer id to its state, for duplicate detection and fencing. Event loop only.

    Changes since the last `settle` can be undone by `rollback`, since a batch is only there once it
    has been written. `end` is the offset that a snapshot or a rebuild was for.

    A snapshot, `<end>.snapshot`, is Kafka's: version 1, the crc32c of what follows, a count, and
    46-byte entries of a producer and a batch. Kafka writes one a producer, for its last batch, and
    takes the last of several; here all batches that are remembered are written, oldest first, so
    that a producer that had several under way can repeat any of them after a restart. The timestamp
    of a producer's last entry is `written_ms`, where Kafka has that of its last record: who writes
    records from the past would be forgotten at once, and what it repeats be written twice.
    """

    __slots__ = ("_decided", "_open", "_producers", "end", "unsettled")

    def __init__(self, end: int = 0) -> None:
        self.end = end
        self._producers: dict[int, Producer] = {}
        # The entries noted since the last `settle`, with their previous values.
        self.unsettled: list[tuple[int, Producer | None]] = []
        # Open transactions: producer id to first offset.
        self._open: dict[int, int] = {}
        # Ended transactions whose marker may lie above the high watermark: (first offset, marker).
        self._decided: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    @property
    def producers(self) -> dict[int, Producer]:
        """A copy, for whoever describes them."""
        return dict(self._producers)

    def check(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        offset_delta: int,
        is_transactional: int,
    ) -> WrittenBatch | None:
        """May this batch be written next? Returns the earlier batch that it repeats, if it does.

        Raises InvalidProducerEpoch, OutOfOrderSequence or InvalidTransactionState. A producer
        nobody remembers may begin with any sequence: retention may have deleted its batches.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return None
        batches = producer.batches
        if epoch == producer.epoch:
            last = batches[-1].last_sequence if batches else -1
            expected = (last + 1) & _SEQUENCE_MASK
            if base_sequence != expected:
                for batch in batches:
                    if batch.offset_delta == offset_delta and batch.first_sequence == base_sequence:
                        return batch
                raise OutOfOrderSequence(producer_id, epoch, base_sequence, expected)
        elif epoch < producer.epoch:
            raise InvalidProducerEpoch(producer_id, epoch, producer.epoch)
        elif base_sequence:
            raise OutOfOrderSequence(producer_id, epoch, base_sequence, 0)
        if producer.transaction_start != NO_OFFSET and not is_transactional:
            raise InvalidTransactionState(producer_id)
        return None

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """The only check on what a coordinator writes; raises InvalidProducerEpoch."""
        producer = self._producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise InvalidProducerEpoch(producer_id, epoch, producer.epoch)

    def note(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        base_offset: int,
        offset_delta: int,
        timestamp: int,
        is_transactional: int,
        written_ms: int,
    ) -> None:
        """Remember a data batch as written."""
        written: WrittenBatch = _new(
            WrittenBatch,
            (
                (base_sequence + offset_delta) & _SEQUENCE_MASK if base_sequence >= 0 else -1,
                base_offset + offset_delta,
                offset_delta,
                timestamp,
            ),
        )
        producer = self._producers.get(producer_id)
        self.unsettled.append((producer_id, producer))
        start, coordinator_epoch = NO_OFFSET, -1
        batches: tuple[WrittenBatch, ...] = (written,)
        if producer is not None:
            start, coordinator_epoch = producer.transaction_start, producer.coordinator_epoch
            if producer.epoch == epoch:
                batches = (*producer.batches[1 - KEPT_BATCHES :], written)
        if is_transactional and start == NO_OFFSET:
            start = base_offset
            self._open[producer_id] = start
        self._producers[producer_id] = _new(
            Producer, (epoch, coordinator_epoch, written_ms, start, batches)
        )

    def check_marker(self, producer_id: int, epoch: int, marker: EndMarker) -> None:
        """May this end marker be written? InvalidProducerEpoch or CoordinatorFenced if not."""
        self.check_epoch(producer_id, epoch)
        producer = self._producers.get(producer_id)
        if producer is not None and marker.coordinator_epoch < producer.coordinator_epoch:
            raise CoordinatorFenced(
                producer_id, marker.coordinator_epoch, producer.coordinator_epoch
            )

    def note_marker(
        self, producer_id: int, epoch: int, offset: int, written_ms: int, marker: EndMarker
    ) -> None:
        """Remember that a marker at `offset` ended the producer's transaction."""
        producer = self._producers.get(producer_id)
        self.unsettled.append((producer_id, producer))
        batches: tuple[WrittenBatch, ...] = ()
        if producer is not None:
            if producer.epoch == epoch:
                batches = producer.batches
            if producer.transaction_start != NO_OFFSET:
                self._decided.append((producer.transaction_start, offset))
        self._open.pop(producer_id, None)
        self._producers[producer_id] = Producer(
            epoch, marker.coordinator_epoch, written_ms, NO_OFFSET, batches
        )

    def first_unstable(self, high_watermark: int) -> int | None:
        """Return the first offset of a transaction that is open, or ended at or above the
        watermark."""
        if not self._open and not self._decided:
            return None
        if self._decided:
            self._decided = [pair for pair in self._decided if pair[1] >= high_watermark]
        firsts = [*self._open.values(), *(first for first, _ in self._decided)]
        return min(firsts, default=None)

    def settle(self) -> None:
        """Keep what has been noted: it is written and can no longer be undone."""
        self.unsettled.clear()

    def rollback(self) -> None:
        """Undo what has been noted since the last `settle`."""
        if not self.unsettled:
            return
        markers = set()
        for producer_id, producer in reversed(self.unsettled):
            if producer is None:
                self._producers.pop(producer_id, None)
            else:
                self._producers[producer_id] = producer
                markers.add(producer.transaction_start)
        self.unsettled.clear()
        self._decided = [pair for pair in self._decided if pair[0] not in markers]
        self._reopen()

    def expire(self, now_ms: int, idle_ms: int) -> list[int]:
        """Forget producers that have written nothing for that long; returns their ids."""
        idle = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.transaction_start == NO_OFFSET and now_ms - producer.written_ms >= idle_ms
        ]
        for producer_id in idle:
            del self._producers[producer_id]
        return idle

    def _reopen(self) -> None:
        self._open = {
            producer_id: producer.transaction_start
            for producer_id, producer in self._producers.items()
            if producer.transaction_start != NO_OFFSET
        }

    def encode(self) -> bytes:
        """Return the content of a snapshot file."""
        out = bytearray(_PREFIX.size)
        count = 0
        for producer_id, producer in self._producers.items():
            *older, last = producer.batches or (WrittenBatch(-1, -1, 0, -1),)
            for batch in (*older, last._replace(timestamp=producer.written_ms)):
                count += 1
                out += _ENTRY.pack(
                    producer_id,
                    producer.epoch,
                    batch.last_sequence,
                    batch.last_offset,
                    batch.offset_delta,
                    batch.timestamp,
                    producer.coordinator_epoch,
                    producer.transaction_start,
                )
        _PREFIX.pack_into(out, 0, _VERSION, 0, count)
        _PREFIX.pack_into(out, 0, _VERSION, crc32c(out[_CRC_START:]), count)
        return bytes(out)

    @classmethod
    def decode(cls, content: bytes, path: str, end: int) -> ProducerStates:
        """Return the states of a snapshot taken at `end`; CorruptFile if it is none."""
        if len(content) < _PREFIX.size:
            raise CorruptFile(path, f"{len(content)} bytes are too few for a snapshot")
        version, crc, count = _PREFIX.unpack_from(content)
        if version != _VERSION:
            raise CorruptFile(path, f"snapshot version {version} is not {_VERSION}")
        if crc32c(content[_CRC_START:]) != crc:
            raise CorruptFile(path, "wrong CRC")
        if len(content) != _PREFIX.size + count * _ENTRY.size:
            raise CorruptFile(path, f"{count} entries do not match {len(content)} bytes")
        states = cls(end)
        for entry in _ENTRY.iter_unpack(content[_PREFIX.size :]):
            producer_id, epoch, sequence, offset, delta, timestamp, coordinator, start = entry
            batches: tuple[WrittenBatch, ...] = ()
            if offset >= 0:
                batches = (WrittenBatch(sequence, offset, delta, timestamp),)
            older = states._producers.get(producer_id)
            if older is not None and older.epoch == epoch:
                batches = (*older.batches[1 - KEPT_BATCHES :], *batches)
            states._producers[producer_id] = Producer(
                epoch, coordinator, timestamp, start if start >= 0 else NO_OFFSET, batches
            )
        states._reopen()
        return states
