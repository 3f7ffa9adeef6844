"""Damage: decisions about a partition with a replica whose log can no longer be trusted.

Functions over values. The replica leaves the in-sync replicas by a new leader epoch, even where it
keeps the leader: whatever it told a leader about its log it told in an earlier epoch, and that
counts no more (it would otherwise be taken for in sync again by what it had).
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from moldau.cluster.decisions.elections import first_of, without
from moldau.cluster.state.topics import NO_LEADER, PartitionState


def heir(partition: PartitionState, broker: int, live: Collection[int]) -> int:
    """Return who is to lead in the place of a broker: another in-sync replica, or else an eligible
    one; NO_LEADER if none lives."""
    for candidates in (partition.isr, partition.elr):
        others = [member for member in candidates if member != broker and member in live]
        if others:
            return first_of(partition.replicas, others)
    return NO_LEADER


def struck_off(partition: PartitionState, broker: int, leader: int) -> PartitionState:
    """Return the partition led by another, without a replica that has nothing to be trusted."""
    isr = without(partition.isr, broker)
    return msgspec.structs.replace(
        partition,
        leader=leader,
        isr=isr if leader in isr else (leader,),
        elr=without(without(partition.elr, broker), leader),
        leader_epoch=partition.leader_epoch + 1,
    )
