from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster.decisions.placement import broker_order, place
from moldau.cluster.state.topics import BrokerInfo

racks = st.none() | st.sampled_from(["a", "b", "c"])
clusters = st.lists(racks, min_size=1, max_size=9).map(
    lambda racks: [BrokerInfo(id, "h", 1, rack) for id, rack in enumerate(racks)]
)


@given(clusters, st.integers(1, 40), st.integers(0, 1000), st.data())
def test_replicas_are_distinct_and_leaders_are_even(
    brokers: list[BrokerInfo], partitions: int, start: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    order = broker_order(brokers)
    placed = place(order, partitions, factor, start)
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
    leaders = Counter(replicas[0] for replicas in placed)
    counts = [leaders[broker.id] for broker in brokers]
    assert max(counts) - min(counts) <= 1


@given(clusters, st.integers(1, 40), st.integers(0, 1000), st.data())
def test_no_rack_has_two_replicas_while_another_has_none(
    brokers: list[BrokerInfo], partitions: int, start: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    rack_of = {broker.id: broker.rack for broker in brokers}
    for replicas in place(broker_order(brokers), partitions, factor, start):
        used = {rack_of[id] for id in replicas}
        assert len(used) == min(factor, len(set(rack_of.values())))


def test_the_followers_of_one_leader_spread_over_all_others() -> None:
    order = broker_order([BrokerInfo(id, "h", 1) for id in range(5)])
    placed = place(order, 100, 2, 0)
    followers = Counter(replicas[1] for replicas in placed if replicas[0] == 0)
    assert followers == {1: 5, 2: 5, 3: 5, 4: 5}
