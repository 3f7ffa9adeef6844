"""End markers: how a coordinator ends a transaction in a log. Event loop only."""

from __future__ import annotations

from typing import NamedTuple

from moldau.log.log import Log
from moldau.log.producers.states import EPOCH_BUMPS, MAX_EPOCH
from moldau.records.record import EndMarker, build_end_marker


class TransactionEnd(NamedTuple):
    """The end of a producer's transaction as its coordinator decided it.

    `coordinator_epoch` is the leader epoch of the coordinator's partition; `version` the version of
    transactions that the producer speaks (`transaction.version`).
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commits: bool
    version: int = 0


def append_marker(log: Log, end: TransactionEnd, leader_epoch: int, now_ms: int) -> int:
    """Stage a marker as the leader; returns its offset.

    Raises InvalidProducerEpoch or CoordinatorFenced for what is late, StorageError as `append`. A
    marker may be repeated: without an open transaction it ends nothing.
    """
    marker = EndMarker(end.commits, end.coordinator_epoch)
    verifications = log.producers.verifications
    guard = verifications.get(end.producer_id)
    log.producers.check_marker(end.producer_id, end.producer_epoch, marker, end.version)
    batch = build_end_marker(
        commits=end.commits,
        coordinator_epoch=end.coordinator_epoch,
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
        timestamp=now_ms,
    )
    offset, _ = log.append(memoryview(batch), leader_epoch, now_ms, from_client=False)
    if (
        guard is not None
        and end.version >= EPOCH_BUMPS
        and end.producer_epoch <= guard.epoch
        and end.producer_epoch < MAX_EPOCH
    ):
        # The marker ended a transaction of an earlier epoch than its own. The guard is one of the
        # next transaction, for which the coordinator may be waiting until this marker is written.
        verifications[end.producer_id] = guard
    return offset
