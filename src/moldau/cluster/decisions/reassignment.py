"""Moving a partition to other brokers. Functions over values.

    replicas         adding   removing
    1 2 3            -        -           as it was
    4 1 2 3          4        2 3         begun: the target first, then those to be removed
    4 1              -        -           finished, once all of the target is in sync

While it moves, the partition has the old and the new replicas, so nothing that was acknowledged
depends on the move. A cancelled one goes back to the replicas that it had.

Wherever a replica is given up, a new leader epoch begins. Its broker deletes it, and may soon be
given an empty one: the leader must not take that for the one that it knew.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from moldau.cluster.decisions.assignment import Brokers, check_replicas
from moldau.cluster.decisions.elections import first_of
from moldau.cluster.decisions.placement import Replicas
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.topics import NO_LEADER, PartitionState
from moldau.wire.errors import Error


def is_moving(partition: PartitionState) -> bool:
    return bool(partition.adding or partition.removing)


def target_of(partition: PartitionState) -> Replicas:
    """Return where the partition will be, which is where it is if it does not move."""
    return _without(partition.replicas, partition.removing)


def begun(
    partition: PartitionState, target: Replicas, brokers: Brokers, *, may_resize: bool = True
) -> PartitionState:
    """Return the partition on its way to `target`, or there already if that only changes the order.

    A target given while it moves replaces the former one. ClusterError if it cannot be.
    """
    check_replicas(target, brokers, None)
    size = len(target_of(partition))
    if not may_resize and len(target) != size:
        raise ClusterError(
            Error.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {size} to {len(target)}",
        )
    original = _without(partition.replicas, partition.adding)
    # Replicas that an earlier move began to make are given up, unless they already count.
    kept = [
        member for member in partition.replicas if member in original or member in partition.isr
    ]
    removing = _without(kept, target)
    moving = _with(
        partition,
        replicas=target + removing,
        adding=_without(target, original),
        removing=removing,
    )
    return finished(moving, brokers) or moving


def finished(partition: PartitionState, live: Collection[int]) -> PartitionState | None:
    """Return the partition at the end of its move; None while somebody of the target is not in
    sync."""
    if not is_moving(partition):
        return None
    target = target_of(partition)
    if not target or not set(target) <= set(partition.isr):
        return None
    return _settled(partition, target, _without(partition.isr, partition.removing), live)


def cancelled(
    partition: PartitionState, name: str, live: Collection[int], *, unclean: bool
) -> PartitionState:
    """Return the partition where it was before it began to move; ClusterError if it
    cannot go back."""
    if not is_moving(partition):
        raise ClusterError(
            Error.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
        )
    replicas = _without(partition.replicas, partition.adding)
    isr = _without(partition.isr, partition.adding)
    if isr:
        return _settled(partition, replicas, isr, live)
    leader = first_of(replicas, live) if unclean else NO_LEADER
    if leader == NO_LEADER:
        raise ClusterError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {name} because it would require an unclean"
            " leader election.",
        )
    return _settled(partition, replicas, (leader,), live)


def _settled(
    partition: PartitionState, replicas: Replicas, isr: Replicas, live: Collection[int]
) -> PartitionState:
    leader = partition.leader
    if leader not in isr:
        leader = first_of(replicas, [member for member in isr if member in live])
    epoch = _epoch_with(partition, replicas, leader)
    return PartitionState(replicas, isr, leader, epoch, (), (), *_kept(partition, replicas, isr))


def _with(
    partition: PartitionState, *, replicas: Replicas, adding: Replicas, removing: Replicas
) -> PartitionState:
    isr = tuple(member for member in partition.isr if member in replicas)
    return PartitionState(
        replicas,
        isr,
        partition.leader,
        _epoch_with(partition, replicas, partition.leader),
        adding,
        removing,
        *_kept(partition, replicas, isr),
    )


def _kept(
    partition: PartitionState, replicas: Replicas, isr: Replicas
) -> tuple[Replicas, Replicas, tuple[tuple[int, int], ...]]:
    """Return what is still true of replicas that are not in sync: `elr`, `last_known_elr`, `lost`.
    The leader sees to it that nobody is eligible any more where enough are in sync."""
    away = {member for member in replicas if member not in isr}
    return (
        tuple(member for member in partition.elr if member in away),
        tuple(member for member in partition.last_known_elr if member in away),
        tuple(each for each in partition.lost if each[0] in away),
    )


def _epoch_with(partition: PartitionState, replicas: Replicas, leader: int) -> int:
    is_new = leader != partition.leader or bool(_without(partition.replicas, replicas))
    return partition.leader_epoch + is_new


def _without(members: Sequence[int], others: Collection[int]) -> Replicas:
    return tuple(member for member in members if member not in others)
