from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster.decisions.reassignment import begun, cancelled, finished, is_moving, target_of
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.topics import NO_LEADER, BrokerInfo, PartitionState
from moldau.wire.errors import Error

IDS = range(6)
BROKERS = {id: BrokerInfo(id, "localhost", 9092 + id) for id in IDS}
SETTLED = PartitionState((1, 2, 3), (1, 2, 3), 2, 5)


def grown(partition: PartitionState, *members: int) -> PartitionState:
    """The same with more replicas in sync, as its leader makes it."""
    isr = partition.isr + members
    return PartitionState(
        partition.replicas,
        isr,
        partition.leader,
        partition.leader_epoch,
        partition.adding,
        partition.removing,
    )


def test_a_move_begins_with_the_old_and_the_new_replicas() -> None:
    moving = begun(SETTLED, (4, 1), BROKERS)
    assert moving == PartitionState((4, 1, 2, 3), (1, 2, 3), 2, 5, (4,), (2, 3))
    assert finished(moving, IDS) is None
    assert target_of(moving) == (4, 1)


def test_a_move_ends_when_the_target_is_in_sync_and_leadership_goes_there() -> None:
    moving = grown(begun(SETTLED, (4, 1), BROKERS), 4)
    assert finished(moving, IDS) == PartitionState((4, 1), (1, 4), 4, 6)


def test_a_leader_that_stays_keeps_its_epoch_while_no_replica_is_given_up() -> None:
    moving = grown(begun(SETTLED, (4, 1, 2, 3), BROKERS), 4)
    assert finished(moving, IDS) == PartitionState((4, 1, 2, 3), (1, 2, 3, 4), 2, 5)


def test_a_leader_begins_an_epoch_in_which_it_knows_nothing_of_a_replica_that_was_given_up() -> (
    None
):
    moving = grown(begun(SETTLED, (4, 2), BROKERS), 4)
    assert finished(moving, IDS) == PartitionState((4, 2), (2, 4), 2, 6)
    # It may be back before the leader has heard that it was gone.
    out = begun(SETTLED, (2, 3), BROKERS)
    back = begun(out, (1, 2, 3), BROKERS)
    assert back == PartitionState((1, 2, 3), (2, 3), 2, 6, (1,), ())
    # So may one that was never in sync.
    again = begun(cancelled(back, "t-0", IDS, unclean=False), (1, 2, 3), BROKERS)
    assert again == PartitionState((1, 2, 3), (2, 3), 2, 7, (1,), ())
    assert begun(back, (5, 2, 3), BROKERS) == PartitionState((5, 2, 3), (2, 3), 2, 7, (5,), ())


def test_another_order_or_fewer_replicas_are_there_at_once() -> None:
    assert begun(SETTLED, (3, 2, 1), BROKERS) == PartitionState((3, 2, 1), (1, 2, 3), 2, 5)
    assert begun(SETTLED, (3, 2), BROKERS) == PartitionState((3, 2), (2, 3), 2, 6)
    assert begun(SETTLED, (1, 2, 3), BROKERS) == SETTLED


def test_a_cancelled_move_goes_back_to_the_replicas_there_were() -> None:
    moving = begun(SETTLED, (4, 5), BROKERS)
    back = cancelled(moving, "t-0", IDS, unclean=False)
    assert set(back.replicas) == {1, 2, 3}
    assert (back.isr, back.leader, back.leader_epoch) == ((1, 2, 3), 2, 6)
    assert not is_moving(back)


def test_what_is_not_moving_cannot_be_cancelled() -> None:
    with pytest.raises(ClusterError) as refused:
        cancelled(SETTLED, "t-0", IDS, unclean=False)
    assert refused.value.error is Error.NO_REASSIGNMENT_IN_PROGRESS


def test_going_back_to_replicas_of_which_none_is_in_sync_needs_permission() -> None:
    moving = PartitionState((4, 1), (4,), 4, 7, (4,), (1,))
    with pytest.raises(ClusterError) as refused:
        cancelled(moving, "t-0", IDS, unclean=False)
    assert refused.value.error is Error.INVALID_REPLICA_ASSIGNMENT
    assert cancelled(moving, "t-0", IDS, unclean=True) == PartitionState((1,), (1,), 1, 8)


def test_a_second_target_replaces_the_first() -> None:
    first = begun(SETTLED, (4, 5, 1), BROKERS)
    second = begun(first, (0, 5), BROKERS)
    assert second == PartitionState((0, 5, 1, 2, 3), (1, 2, 3), 2, 6, (0, 5), (1, 2, 3))
    back = cancelled(second, "t-0", IDS, unclean=False)
    assert set(back.replicas) == {1, 2, 3}


def test_the_replication_factor_stays_where_it_must() -> None:
    with pytest.raises(ClusterError) as refused:
        begun(SETTLED, (4, 1), BROKERS, may_resize=False)
    assert refused.value.error is Error.INVALID_REPLICATION_FACTOR
    assert refused.value.message == "The replication factor is changed from 3 to 2"
    assert is_moving(begun(SETTLED, (4, 1, 2), BROKERS, may_resize=False))


@pytest.mark.parametrize("target", [(), (1, 1), (9,)])
def test_targets_that_cannot_be_are_refused(target: tuple[int, ...]) -> None:
    with pytest.raises(ClusterError) as refused:
        begun(SETTLED, target, BROKERS)
    assert refused.value.error is Error.INVALID_REPLICA_ASSIGNMENT


targets = st.lists(st.sampled_from(IDS), min_size=1, max_size=4, unique=True).map(tuple)


@given(targets, st.lists(targets, min_size=1, max_size=3), st.data())
def test_however_a_partition_moves_it_keeps_its_leader_in_sync_and_arrives(
    start: tuple[int, ...], ways: list[tuple[int, ...]], data: st.DataObject
) -> None:
    partition = PartitionState(start, start, start[0])
    for target in ways:
        epoch = partition.leader_epoch
        partition = begun(partition, target, BROKERS)
        assert target_of(partition) == target
        for member in data.draw(st.permutations(partition.adding)):
            in_sync = set(target) <= set(partition.isr)
            assert (finished(partition, IDS) is not None) == in_sync
            if data.draw(st.booleans()):
                break
            partition = grown(partition, *({member} - set(partition.isr)))
        partition = finished(partition, IDS) or partition
        assert partition.leader in partition.isr
        assert set(partition.isr) <= set(partition.replicas)
        assert len(set(partition.replicas)) == len(partition.replicas)
        assert partition.leader_epoch >= epoch
    partition = grown(partition, *(set(partition.adding) - set(partition.isr)))
    partition = finished(partition, IDS) or partition
    assert partition.replicas == ways[-1]
    assert set(partition.isr) <= set(ways[-1])
    assert partition.leader != NO_LEADER
