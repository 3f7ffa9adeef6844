"""Differences: what is published between two states leads from the one to the other."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster.state.changes import BrokerJoined, BrokerLeft, TopicCreated
from moldau.cluster.state.state import ClusterState, ImpossibleChange
from moldau.cluster.state.topics import BrokerInfo, PartitionState, Topic
from moldau.cluster.zookeeper.differences import (
    broker_differences,
    config_differences,
    topic_differences,
)

IDS = [uuid.UUID(int=n) for n in (1, 2)]

partitions = st.builds(
    PartitionState,
    replicas=st.just((1, 2)),
    isr=st.sampled_from([(), (1,), (1, 2)]),
    leader=st.sampled_from([-1, 1, 2]),
    leader_epoch=st.integers(0, 2),
)
configs = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"]))
topics = st.none() | st.builds(
    Topic,
    name=st.just("t"),
    id=st.sampled_from(IDS),
    partitions=st.lists(partitions, min_size=1, max_size=4).map(tuple),
    configs=configs,
)
brokers = st.dictionaries(
    st.integers(1, 4),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
).map(
    lambda found: {
        id: BrokerInfo(id, "h", port, epoch=epoch) for id, (port, epoch) in found.items()
    }
)
broker_configs = st.dictionaries(st.none() | st.integers(1, 3), configs)


@given(topics, topics)
def test_the_differences_of_topics_lead_from_old_to_new(
    old: Topic | None, new: Topic | None
) -> None:
    state = ClusterState()
    if old is not None:
        state.apply(TopicCreated(old))
    if old and new and old.id == new.id and len(new.partitions) < len(old.partitions):
        with pytest.raises(ImpossibleChange):
            topic_differences(old, new)
        return
    changes = topic_differences(old, new)
    for change in changes:
        state.apply(change)
    assert state.topics.get("t") == new
    assert bool(changes) == (old != new)
    gone = old is not None and (new is None or new.id != old.id)
    assert state.deleted == ({old.id} if gone and old is not None else set())


@given(brokers, brokers)
def test_the_differences_of_brokers_lead_from_old_to_new(
    old: dict[int, BrokerInfo], new: dict[int, BrokerInfo]
) -> None:
    state = ClusterState()
    state.brokers = dict(old)
    changes = broker_differences(old, new)
    for change in changes:
        state.apply(change)
    assert state.brokers == new
    assert bool(changes) == (old != new)


def test_a_broker_that_registered_anew_left_and_joined() -> None:
    before, after = (BrokerInfo(1, "h", 1, epoch=epoch) for epoch in (5, 9))
    assert broker_differences({1: before}, {1: after}) == [BrokerLeft(1), BrokerJoined(after)]


@given(broker_configs, broker_configs)
def test_the_differences_of_settings_lead_from_old_to_new(
    old: dict[int | None, dict[str, str]], new: dict[int | None, dict[str, str]]
) -> None:
    state = ClusterState()
    state.broker_configs = {id: values for id, values in old.items() if values}
    for change in config_differences(state.broker_configs, new):
        state.apply(change)
    assert state.broker_configs == {id: values for id, values in new.items() if values}
