"""Transactional producers as a log sees them, and a reader of what they commit."""

from __future__ import annotations

import os

from moldau.log.log import Log
from moldau.log.markers import TransactionEnd, append_marker
from moldau.records.batch import batches
from moldau.records.record import Record, build_batch, read_end_marker, records_of
from tests.log.making import NOW, guard_of


class Transactional:
    """A producer of transactions and its coordinator.

    With `bumps_epoch` it speaks version 2: every end has a new epoch.
    """

    def __init__(self, log: Log, producer_id: int, *, bumps_epoch: bool = False) -> None:
        self.log = log
        self.id = producer_id
        self.epoch = 0
        self.sequence = 0
        self.bumps_epoch = bumps_epoch
        self.coordinator_epoch = 0

    def batch(self, *pairs: tuple[bytes, bytes | None]) -> bytearray:
        made = build_batch(
            [Record(place, NOW, key, value, ()) for place, (key, value) in enumerate(pairs)],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            is_transactional=True,
        )
        self.sequence += len(pairs)
        return made

    def write(self, *pairs: tuple[bytes, bytes | None], epoch: int = 0) -> int:
        """Append a batch; its first offset."""
        view = memoryview(self.batch(*pairs))
        guard = guard_of(self.log, view, bumps_epoch=self.bumps_epoch)
        offset, _ = self.log.append(view, epoch, NOW, guard=guard)
        self.log.commit()
        return offset

    def stage_end(self, *, commits: bool, epoch: int = 0) -> int:
        number = self.epoch + self.bumps_epoch
        version = 2 if self.bumps_epoch else 0
        end = TransactionEnd(self.id, number, self.coordinator_epoch, commits, version)
        return append_marker(self.log, end, epoch, NOW)

    def end(self, *, commits: bool, epoch: int = 0) -> int:
        """End the transaction; the marker's offset."""
        offset = self.stage_end(commits=commits, epoch=epoch)
        self.log.commit()
        if self.bumps_epoch:
            self.epoch += 1
            self.sequence = 0
        return offset


def see_all(log: Log) -> None:
    log.advance_high_watermark(log.log_end)


def committed(log: Log, offset: int | None = None, max_bytes: int = 300) -> list[Record]:
    """What a reader of committed records gets, with fetches of that size.

    It filters as Kafka's clients do: by the list of aborted transactions that comes with a fetch.
    """
    found: list[Record] = []
    at = start = log.log_start if offset is None else offset
    while (piece := log.read(at, max_bytes, log.last_stable)) is not None:
        aborted = sorted(
            log.aborted_transactions(at, log.reader.following), key=lambda each: each[1]
        )
        data = os.pread(piece.file.fd, piece.size, piece.position)
        skipped: set[int] = set()
        for position, header in batches(data):
            while aborted and aborted[0][1] <= header.last_offset:
                skipped.add(aborted.pop(0)[0])
            at = header.last_offset + 1
            if header.is_control:
                marker = read_end_marker(data, position) if header.count else None
                if marker is not None and not marker.commits:
                    skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                found += [each for each in records_of(data, position) if each.offset >= start]
    return found


def values(log: Log, offset: int | None = None, max_bytes: int = 300) -> list[bytes | None]:
    return [record.value for record in committed(log, offset, max_bytes)]
