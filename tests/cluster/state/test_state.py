from __future__ import annotations

import uuid

import pytest

from moldau.cluster.state.changes import (
    BrokerConfigured,
    BrokerJoined,
    BrokerLeft,
    DeletionsSettled,
    LeadersRestarted,
    PartitionsAdded,
    PartitionsChanged,
    ProducerIdsAllocated,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from moldau.cluster.state.state import ClusterState, ImpossibleChange
from moldau.cluster.state.topics import BrokerInfo, PartitionState, Topic

HERE = PartitionState((0,), (0,), 0)


def topic(name: str, partitions: int = 1) -> Topic:
    return Topic(name, uuid.uuid4(), (HERE,) * partitions)


def test_a_topic_is_found_by_name_and_id_from_creation_to_deletion() -> None:
    state = ClusterState()
    a = topic("a")
    state.apply(TopicCreated(a))
    assert state.topics["a"] is state.topics_by_id[a.id] is a
    state.apply(TopicDeleted("a", a.id))
    assert not state.topics
    assert not state.topics_by_id
    assert state.deleted == {a.id}


def test_every_change_raises_the_version() -> None:
    state = ClusterState()
    seen = {state.version}
    for change in (
        TopicCreated(topic("a")),
        PartitionsAdded("a", 1, (HERE,)),
        TopicConfigured("a", {"retention.ms": "1"}),
        BrokerJoined(BrokerInfo(0, "h", 1)),
        BrokerLeft(0),
    ):
        state.apply(change)
        seen.add(state.version)
    assert len(seen) == 6


def test_added_and_changed_partitions_show_under_name_and_id() -> None:
    state = ClusterState()
    a = topic("a", 2)
    state.apply(TopicCreated(a))
    state.apply(PartitionsAdded("a", 2, (HERE, HERE)))
    moved = PartitionState((0, 1), (1,), 1, 7)
    state.apply(PartitionsChanged("a", {3: moved, 0: moved}))
    assert state.topics["a"].partitions == (moved, HERE, HERE, moved)
    assert state.topics_by_id[a.id] is state.topics["a"]
    assert state.partition("a", 3) == moved
    assert state.partition("a", 4) is None
    assert state.partition("a", -1) is None
    assert state.partition("b", 0) is None


def test_a_change_that_contradicts_the_state_is_refused_and_changes_nothing() -> None:
    state = ClusterState()
    a = topic("a")
    state.apply(TopicCreated(a))
    state.apply(ProducerIdsAllocated(10))
    version = state.version
    for change in (
        TopicCreated(topic("a")),
        TopicCreated(Topic("b", a.id, (HERE,))),
        TopicDeleted("b", a.id),
        TopicDeleted("a", uuid.uuid4()),
        PartitionsAdded("a", 2, (HERE,)),
        PartitionsAdded("b", 0, (HERE,)),
        PartitionsChanged("a", {1: HERE}),
        TopicConfigured("b", {}),
        ProducerIdsAllocated(9),
    ):
        with pytest.raises(ImpossibleChange):
            state.apply(change)
    assert state.version == version
    assert state.topics == {"a": a}


def test_a_collision_is_seen_until_the_topic_is_gone() -> None:
    state = ClusterState()
    a = topic("a.b")
    state.apply(TopicCreated(a))
    assert state.colliding_topic("a_b") == "a.b"
    assert state.colliding_topic("ab") is None
    state.apply(TopicDeleted("a.b", a.id))
    assert state.colliding_topic("a_b") is None


def test_a_restarted_broker_leads_in_a_new_epoch_and_others_do_not() -> None:
    state = ClusterState()
    elsewhere = PartitionState((1, 0), (1, 0), 1, 4)
    state.apply(TopicCreated(Topic("a", uuid.uuid4(), (HERE, elsewhere))))
    state.apply(LeadersRestarted(0))
    assert [p.leader_epoch for p in state.topics["a"].partitions] == [1, 4]


def test_removing_a_brokers_last_setting_removes_its_entry() -> None:
    state = ClusterState()
    state.apply(BrokerConfigured(None, {"a": "1"}))
    state.apply(BrokerConfigured(0, {"b": "1"}))
    state.apply(BrokerConfigured(None, {}))
    assert state.broker_configs == {0: {"b": "1"}}


def test_its_own_changes_lead_to_the_same_state() -> None:
    state = ClusterState()
    gone = topic("gone")
    for change in (
        TopicCreated(topic("a.b", 3)),
        TopicCreated(gone),
        TopicDeleted("gone", gone.id),
        TopicConfigured("a.b", {"retention.ms": "5"}),
        BrokerConfigured(None, {"x": "y"}),
        ProducerIdsAllocated(1000),
    ):
        state.apply(change)
    copy = ClusterState()
    for step in state.changes():
        copy.apply(step)
    assert copy.topics == state.topics
    assert copy.topics_by_id == state.topics_by_id
    assert copy.broker_configs == state.broker_configs
    assert copy.next_producer_id == 1000
    assert copy.deleted == {gone.id}
    assert copy.colliding_topic("a_b") == "a.b"
    copy.apply(DeletionsSettled())
    assert not copy.deleted
