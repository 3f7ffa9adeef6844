from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster.decisions.elections import (
    Held,
    Loss,
    departed,
    elect,
    handed_over,
    to_preferred,
)
from moldau.cluster.state.changes import BrokerJoined, PartitionsChanged, TopicCreated
from moldau.cluster.state.state import ClusterState
from moldau.cluster.state.topics import NO_LEADER, BrokerInfo, PartitionState, Topic

BROKERS = range(5)


def clean() -> bool:
    return False


def unclean() -> bool:
    return True


def nothing_lost(topic: Topic, index: int) -> Held:
    return Held(Loss.NONE)


def cluster(partitions: Iterable[PartitionState], live: Iterable[int]) -> ClusterState:
    state = ClusterState()
    for broker in live:
        state.apply(BrokerJoined(BrokerInfo(broker, "localhost", 9092 + broker)))
    state.apply(TopicCreated(Topic("t", UUID(int=1), tuple(partitions))))
    return state


def apply(state: ClusterState, changes: Iterable[PartitionsChanged]) -> tuple[PartitionState, ...]:
    for change in changes:
        state.apply(change)
    return state.topics["t"].partitions


@st.composite
def partition_states(draw: st.DrawFn) -> PartitionState:
    replicas = draw(st.permutations(BROKERS))[: draw(st.integers(1, 4))]
    isr = tuple(member for member in replicas if draw(st.booleans()))
    leader = draw(st.sampled_from([NO_LEADER, *isr]))
    adding = tuple(member for member in replicas if draw(st.booleans()))
    return PartitionState(tuple(replicas), isr, leader, draw(st.integers(0, 9)), adding)


partition_lists = st.lists(partition_states(), min_size=1, max_size=6)
live_brokers = st.sets(st.sampled_from(BROKERS))


def check_step(before: PartitionState, after: PartitionState) -> None:
    """What holds for every election of any kind."""
    assert set(after.isr) <= set(after.replicas)
    assert len(set(after.isr)) == len(after.isr)
    assert after.leader == NO_LEADER or after.leader in after.isr
    assert after.leader_epoch - before.leader_epoch == (after.leader != before.leader)
    assert (after.replicas, after.adding) == (before.replicas, before.adding)


@given(partition_lists, live_brokers)
def test_a_clean_election_keeps_to_the_living_in_sync_replicas(
    partitions: list[PartitionState], live: set[int]
) -> None:
    for old in partitions:
        new = elect(old, live, clean) or old
        check_step(old, new)
        alive = [member for member in old.isr if member in live]
        if alive:
            assert new.leader == (old.leader if old.leader in live else new.leader)
            assert new.leader in alive
            assert set(new.isr) == set(alive)
        else:
            assert (new.leader, new.isr) == (NO_LEADER, old.isr)
        assert elect(new, live, clean) is None


@given(partition_lists, live_brokers)
def test_an_unclean_election_happens_only_where_no_in_sync_replica_lives(
    partitions: list[PartitionState], live: set[int]
) -> None:
    for old in partitions:
        clean_one = elect(old, live, clean) or old
        new = elect(old, live, unclean) or old
        check_step(old, new)
        if clean_one.leader != NO_LEADER or live.isdisjoint(old.replicas):
            assert new == clean_one
        else:
            assert new.isr == (new.leader,)
            assert new.leader in live
            assert new.leader not in old.adding or not live & (set(old.replicas) - set(old.adding))
        assert elect(new, live, unclean) is None


@given(partition_lists, live_brokers, st.sampled_from(BROKERS), st.sampled_from(Loss))
def test_who_comes_back_leads_nothing_and_is_in_sync_only_where_nobody_else_is(
    partitions: list[PartitionState], live: set[int], broker: int, loss: Loss
) -> None:
    state = cluster(partitions, live)
    after = apply(state, departed(state, broker, lambda topic, index: Held(loss)))
    for old, new in zip(partitions, after, strict=True):
        check_step(old, new)
        assert new.leader != broker
        assert [member for member in new.isr if member != broker] == [
            member for member in old.isr if member != broker
        ]
        stays = broker in old.isr and not loss and not (live - {broker}) & set(old.isr)
        is_last = old.isr == (broker,) and loss is Loss.TAIL
        assert (broker in new.isr) == (stays or is_last)
        assert (broker in dict(new.lost)) == (broker in old.replicas and loss is Loss.ALL)
        if not loss:
            assert new.isr or not old.isr
    assert departed(state, broker, lambda topic, index: Held(loss)) == []


@given(partition_lists, live_brokers)
def test_the_preferred_replica_leads_where_it_can(
    partitions: list[PartitionState], live: set[int]
) -> None:
    for old in partitions:
        new = to_preferred(old, live) or old
        check_step(old, new)
        first = old.replicas[0]
        able = first in live and first in old.isr
        assert new.leader == (first if able else old.leader)
        assert new.isr == old.isr
        assert to_preferred(new, live) is None


@given(partition_lists, live_brokers, st.sampled_from(BROKERS))
def test_a_stopping_broker_gives_away_all_that_others_can_take(
    partitions: list[PartitionState], live: set[int], broker: int
) -> None:
    live.add(broker)
    state = cluster(partitions, live)
    after = apply(state, handed_over(state, broker, live))
    for old, new in zip(partitions, after, strict=True):
        check_step(old, new)
        heirs = (live - {broker}) & set(old.isr)
        if old.leader == broker:
            assert new.leader in heirs if heirs else new == old
        elif old.leader not in live:
            assert new == old
        else:
            assert new.leader == old.leader
            assert broker not in new.isr
    assert handed_over(state, broker, live) == []


def test_the_first_replica_in_order_is_elected() -> None:
    new = elect(PartitionState((2, 0, 1), (0, 1, 2), 2, 7), {0, 1}, clean)
    assert new == PartitionState((2, 0, 1), (0, 1), 0, 8)


def test_the_last_in_sync_replica_stays_so_though_it_is_dead() -> None:
    one = elect(PartitionState((0, 1), (0, 1), 0), {1}, clean)
    assert one is not None
    assert (one.leader, one.isr) == (1, (1,))
    none = elect(one, {0}, clean)
    assert none is not None
    assert (none.leader, none.isr) == (NO_LEADER, (1,))
    back = elect(none, {0, 1}, clean)
    assert back is not None
    assert (back.leader, back.isr, back.leader_epoch) == (1, (1,), 3)


def test_whoever_is_known_to_be_dead_does_not_count_as_remaining() -> None:
    state = cluster([PartitionState((0, 1), (0, 1), 0)], [0, 1])
    [change] = departed(state, 0, nothing_lost, alive=())
    assert change.partitions[0] == PartitionState((0, 1), (0, 1), NO_LEADER, 1, last_known_elr=(0,))


def test_who_is_about_to_stop_is_elected_only_if_nobody_else_can_be() -> None:
    partition = PartitionState((0, 1, 2), (0, 1, 2), 0)
    new = elect(partition, {1, 2}, clean, stopping={1})
    assert new == PartitionState((0, 1, 2), (1, 2), 2, 1)
    new = elect(new, {1}, clean, stopping={1})
    assert new == PartitionState((0, 1, 2), (1,), 1, 2)
