"""Fences: how a coordinator shuts a producer out of a transaction that stays open.

Whoever takes an open transaction over (KIP-939) is to decide about what is in it then. The producer
that wrote it may still be alive, and a partition whose transaction is open asks nobody about the
next write. So the log has to know a higher epoch of the producer, on every replica and after every
restart: a batch without records, such as compaction leaves behind, says so. It is the coordinator's
epoch and never a client's, and that of the marker is higher. Event loop only.
"""

from __future__ import annotations

from typing import NamedTuple

from moldau.log.errors import InvalidProducerEpoch
from moldau.log.log import Log
from moldau.records.batch import BatchError, check_batch
from moldau.records.record import build_batch


class Fence(NamedTuple):
    """The lowest epoch that a producer needs to write again."""

    producer_id: int
    producer_epoch: int

    def encode(self) -> bytearray:
        """Return the batch that says so."""
        return build_batch([], producer_id=self.producer_id, producer_epoch=self.producer_epoch)


def fence_in(batch: memoryview) -> Fence | None:
    """Return the fence that a batch is; None for any other."""
    try:
        header = check_batch(batch, from_producer=False)
    except BatchError:
        return None
    is_fence = (
        header.size == len(batch)
        and header.producer_id >= 0
        and header.producer_epoch >= 0
        and header.base_sequence < 0
        and not (header.count or header.last_offset_delta or header.is_control)
    )
    return Fence(header.producer_id, header.producer_epoch) if is_fence else None


def batch_of(log: Log, fence: Fence) -> memoryview | None:
    """Return the batch that a leader has to append for a fence; None if the log knows it already.

    Raises InvalidProducerEpoch if the log knows a later epoch.
    """
    producer_id, epoch = fence
    producer = log.producers.get(producer_id)
    if producer is not None and epoch < producer.epoch:
        raise InvalidProducerEpoch(producer_id, epoch, producer.epoch)
    guard = log.producers.verifications.get(producer_id)
    if guard is not None and guard.epoch < epoch:
        # The coordinator's answer to a first write that is under way has become worthless.
        del log.producers.verifications[producer_id]
    if producer is not None and epoch == producer.epoch:
        return None
    return memoryview(fence.encode())
