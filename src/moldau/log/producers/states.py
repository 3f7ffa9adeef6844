"""Producer states: what a log remembers of its idempotent and transactional producers."""

from __future__ import annotations

from typing import NamedTuple

from moldau.log.errors import (
    CoordinatorFenced,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
)
from moldau.log.producers.verifications import Verification, Verifications
from moldau.log.segments.aborted_index import AbortedTransaction
from moldau.records.record import EndMarker

KEPT_BATCHES = 5
NO_OFFSET = -1
MAX_EPOCH = 32767
# From this version of the protocol on every transaction ends with a new producer epoch (KIP-890).
EPOCH_BUMPS = 2
_SEQUENCE_MASK = 0x7FFF_FFFF
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
    """

    __slots__ = ("_producers", "_verifications", "decided", "end", "open", "unsettled")

    def __init__(self, end: int = 0) -> None:
        self.end = end
        self._producers: dict[int, Producer] = {}
        # The entries noted since the last `settle`, with their previous values.
        self.unsettled: list[tuple[int, Producer | None]] = []
        # Open transactions: producer id to first offset, lowest first.
        self.open: dict[int, int] = {}
        # Ended transactions whose marker may lie above the high watermark: (first offset, marker),
        # in the order of their markers. None where there are none, as in nearly all of thousands of
        # logs; not a deque, which takes ten times the memory.
        self.decided: list[tuple[int, int]] | None = None
        self._verifications: Verifications | None = None

    @classmethod
    def restored(cls, producers: dict[int, Producer], end: int) -> ProducerStates:
        """Return the states as of `end`."""
        states = cls(end)
        states._producers = producers
        states._reopen()
        return states

    @property
    def verifications(self) -> Verifications:
        """The guards of transactions that are about to begin; most logs never have any."""
        if self._verifications is None:
            self._verifications = Verifications()
        return self._verifications

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

        Nobody waits any more for a batch of a transaction that has ended. So a batch of the next
        one that has its sequences is another one: librdkafka gives them out again after an abort,
        if the answer to the first was lost. It would take the second for written, and lose it.
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
                        if is_transactional and producer.transaction_start == NO_OFFSET:
                            self.verifications.pass_over(producer_id, epoch, expected)
                            raise InvalidTransactionState(
                                producer_id,
                                f"used sequence {base_sequence} again, which it wrote at offset "
                                f"{batch.first_offset} in a transaction that has ended",
                            )
                        return batch
                raise OutOfOrderSequence(producer_id, epoch, base_sequence, expected)
        elif epoch < producer.epoch:
            raise InvalidProducerEpoch(producer_id, epoch, producer.epoch)
        elif base_sequence:
            raise OutOfOrderSequence(producer_id, epoch, base_sequence, 0)
        if producer.transaction_start != NO_OFFSET and not is_transactional:
            raise InvalidTransactionState(producer_id)
        return None

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Return whether the producer has an open transaction in that epoch."""
        producer = self._producers.get(producer_id)
        return (
            producer is not None
            and producer.transaction_start != NO_OFFSET
            and producer.epoch == epoch
        )

    def is_written(
        self, producer_id: int, epoch: int, base_sequence: int, offset_delta: int
    ) -> bool:
        """Return whether a batch repeats one of the producer's last ones."""
        producer = self._producers.get(producer_id)
        return (
            producer is not None
            and producer.epoch == epoch
            and any(
                batch.offset_delta == offset_delta and batch.first_sequence == base_sequence
                for batch in producer.batches
            )
        )

    def check_begin(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        offset_delta: int,
        guard: Verification | None,
    ) -> None:
        """May this batch of a client begin a transaction, if none is open?

        Raises InvalidTransactionState where nobody has asked the coordinator, InvalidProducerEpoch,
        or OutOfOrderSequence where an earlier batch is to be sent again. One that was written
        before is for `check`.
        """
        producer = self._producers.get(producer_id)
        if producer is not None and producer.epoch == epoch:
            if producer.transaction_start != NO_OFFSET:
                return
            if self.is_written(producer_id, epoch, base_sequence, offset_delta):
                return
        self.verifications.check(producer_id, guard)
        if producer is not None and epoch < producer.epoch:
            raise InvalidProducerEpoch(producer_id, epoch, producer.epoch)
        is_known = producer is not None and bool(producer.batches)
        self.verifications.check_sequence(producer_id, epoch, base_sequence, is_known)

    def check_coordinator(
        self, producer_id: int, epoch: int, is_transactional: int, guard: Verification | None
    ) -> None:
        """May a coordinator write this batch for a producer? It has no sequence.

        Raises InvalidProducerEpoch or InvalidTransactionState.
        """
        if is_transactional and not self.is_open(producer_id, epoch):
            self.verifications.check(producer_id, guard)
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
        """Remember a data batch as written.

        One without a sequence (-1), which a broker wrote for the producer, leaves the sequences of
        the producer's own as they are.
        """
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
                batches = producer.batches
                if base_sequence >= 0 or not batches or batches[-1].last_sequence < 0:
                    batches = (*batches[1 - KEPT_BATCHES :], written)
        if is_transactional and start == NO_OFFSET:
            start = base_offset
            self.open[producer_id] = start
            guard = self.verifications.pop(producer_id, None)
            if guard is not None:
                guard.start = start
        self._producers[producer_id] = _new(
            Producer, (epoch, coordinator_epoch, written_ms, start, batches)
        )

    def check_marker(
        self, producer_id: int, epoch: int, marker: EndMarker, version: int = 0
    ) -> None:
        """May this end marker be written? InvalidProducerEpoch or CoordinatorFenced if not.

        In transactions of version 2 the marker's epoch is higher than that of the records which it
        ends, so one that is not is late and must not end the next transaction (KIP-1228). It is
        only repeated if none is open. Of the last epoch there can be no higher one.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        is_late = epoch < producer.epoch
        if epoch == producer.epoch and version >= EPOCH_BUMPS:
            is_late = producer.transaction_start != NO_OFFSET and epoch != MAX_EPOCH
        if is_late:
            raise InvalidProducerEpoch(producer_id, epoch, producer.epoch)
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise CoordinatorFenced(
                producer_id, marker.coordinator_epoch, producer.coordinator_epoch
            )

    def note_marker(
        self, producer_id: int, epoch: int, offset: int, written_ms: int, marker: EndMarker
    ) -> AbortedTransaction | None:
        """Remember that a marker at `offset` ended the producer's transaction.

        Returns the transaction if it was aborted, and has written anything.
        """
        producer = self._producers.get(producer_id)
        self.unsettled.append((producer_id, producer))
        batches: tuple[WrittenBatch, ...] = ()
        aborted = None
        if producer is not None and producer.epoch == epoch:
            batches = producer.batches
        start = self.open.pop(producer_id, None)
        if start is not None:
            if self.decided is None:
                self.decided = []
            self.decided.append((start, offset))
            if not marker.commits:
                last_stable = next(iter(self.open.values()), offset + 1)
                aborted = AbortedTransaction(producer_id, start, offset, last_stable)
        self.verifications.pop(producer_id, None)
        self._producers[producer_id] = Producer(
            epoch, marker.coordinator_epoch, written_ms, NO_OFFSET, batches
        )
        return aborted

    def first_unstable(self) -> int | None:
        """Return the first offset of a transaction that is open, or ended at or above the high
        watermark."""
        first = next(iter(self.open.values()), None)
        for begun, _ in self.decided or ():
            if first is None or begun < first:
                first = begun
        return first

    def replicated_to(self, high_watermark: int) -> None:
        """Every in-sync replica has what lies before: markers there end their transactions."""
        decided, ended = self.decided, 0
        if decided is None:
            return
        while ended < len(decided) and decided[ended][1] < high_watermark:
            ended += 1
        if ended == len(decided):
            self.decided = None
        else:
            del decided[:ended]

    def settle(self) -> None:
        """Keep what has been noted: it is written and can no longer be undone."""
        self.unsettled.clear()

    def rollback(self, log_end: int) -> None:
        """Undo what has been noted since the last `settle`, when the log ended there."""
        if not self.unsettled:
            return
        for producer_id, producer in reversed(self.unsettled):
            if producer is None:
                self._producers.pop(producer_id, None)
            else:
                self._producers[producer_id] = producer
        self.unsettled.clear()
        while self.decided and self.decided[-1][1] >= log_end:
            self.decided.pop()
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
        if self._verifications:
            self._verifications.expire(now_ms, idle_ms)
        return idle

    def _reopen(self) -> None:
        begun = [
            (producer.transaction_start, producer_id)
            for producer_id, producer in self._producers.items()
            if producer.transaction_start != NO_OFFSET
        ]
        self.open = {producer_id: start for start, producer_id in sorted(begun)}
