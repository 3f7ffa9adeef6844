from __future__ import annotations

from moldau.cluster.decisions.damage import heir, struck_off
from moldau.cluster.state.topics import NO_LEADER, PartitionState

WHOLE = PartitionState((1, 2, 3), (3, 1, 2), 1, 7)


def test_another_in_sync_replica_that_lives_is_the_heir() -> None:
    assert heir(WHOLE, 1, {1, 2, 3}) == 2
    assert heir(WHOLE, 1, {1, 3}) == 3
    assert heir(WHOLE, 1, {1}) == NO_LEADER
    alone = PartitionState((1, 2, 3), (1,), 1, 7)
    assert heir(alone, 1, {1, 2, 3}) == NO_LEADER
    # Who is not in sync but eligible has everything too.
    short = PartitionState((1, 2, 3), (1,), 1, 7, elr=(2, 3))
    assert heir(short, 1, {1, 3}) == 3
    assert struck_off(short, 1, 3) == PartitionState((1, 2, 3), (3,), 3, 8, elr=(2,))
    assert struck_off(short, 2, 1) == PartitionState((1, 2, 3), (1,), 1, 8, elr=(3,))


def test_whoever_is_struck_off_leaves_by_a_new_epoch_though_the_leader_stays() -> None:
    assert struck_off(WHOLE, 1, 2) == PartitionState((1, 2, 3), (3, 2), 2, 8)
    assert struck_off(WHOLE, 3, 1) == PartitionState((1, 2, 3), (1, 2), 1, 8)
    # One that was about to come back into sync is told of by nobody any more.
    assert struck_off(struck_off(WHOLE, 3, 1), 3, 1) == PartitionState((1, 2, 3), (1, 2), 1, 9)
