"""Divergence: where a follower cuts its log to a prefix of its leader's (KIP-101, KIP-279).

A follower asks the leader for what follows its last record, and names that record's leader epoch.
The leader looks up where that epoch ended in its own log. If the follower's record lies beyond, or
the leader never had the epoch, they part somewhere before, and the leader answers with its largest
epoch up to the one asked for, and where that ended. The follower cuts, and asks again:

    leader    1@0  2@10          4@20  (ends at 30)      the follower asks for 28, epoch 3
    follower  1@0  2@10  3@15          (ends at 28)      the leader: epoch 2 ended at 20
                                                         the follower's ended at 15: cut there

Each round takes away at least one epoch that the leader does not have, so it ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.partitions.refusals import named
from moldau.log.epochs import LeaderEpochs
from moldau.wire.errors import Error
from moldau.wire.fetch.request import FetchPartition
from moldau.wire.fetch.response import FetchedPartition

if TYPE_CHECKING:
    from moldau.broker.partitions.partition import Partition


def common_end(epochs: LeaderEpochs, log_end: int, epoch: int, leader_end: int) -> int:
    """Return where to cut, when the leader says that its `epoch` ended at `leader_end`."""
    own_epoch, own_end = epochs.end_of(epoch, log_end)
    if own_epoch == epoch:
        return min(own_end, leader_end, log_end)
    if own_epoch >= 0:
        # The leader's epoch is unknown here: what follows the one before it is not the leader's.
        return min(own_end, log_end)
    return min(leader_end, log_end)


def diverging(partition: Partition, wanted: FetchPartition) -> FetchedPartition | None:
    """Return where a reader's log parts from ours, by the epoch of its last record (KIP-595)."""
    if wanted.last_fetched_epoch < 0:
        return None
    if partition.log.offline is not None:
        return FetchedPartition(wanted.partition, Error.KAFKA_STORAGE_ERROR)
    epoch, end = partition.log.epochs.end_of(wanted.last_fetched_epoch, partition.log.log_end)
    if epoch < 0:
        return FetchedPartition(wanted.partition, Error.OFFSET_OUT_OF_RANGE)
    if epoch < wanted.last_fetched_epoch or end < wanted.fetch_offset:
        log = partition.log
        return FetchedPartition(
            wanted.partition,
            0,
            log.high_watermark,
            log.last_stable,
            log.log_start,
            diverging=(epoch, end),
        )
    return None


def fenced(partition: Partition, fence: Error) -> FetchedPartition:
    """Return the answer to a reader with another leader epoch; one that is behind is told ours."""
    leader = None
    if fence is Error.FENCED_LEADER_EPOCH:
        leader = named(partition.leader, partition.leader_epoch)
    return FetchedPartition(partition.index, fence, leader=leader)
