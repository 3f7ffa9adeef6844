"""Writes: which changes still hold when their turn comes."""

from __future__ import annotations

import msgspec
import pytest

from moldau.cluster.state.access import Acl, AclsChanged, ResourcePattern
from moldau.cluster.state.changes import (
    AnyChange,
    BrokerConfigured,
    BrokerLeft,
    PartitionsAdded,
    PartitionsChanged,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from moldau.cluster.state.state import ClusterState
from moldau.cluster.store import Conflict
from moldau.cluster.zookeeper.sessions.operations import (
    Check,
    Create,
    Delete,
    SetData,
)
from moldau.cluster.zookeeper.writes import Draft, TopicWrite, batches
from moldau.cluster.zookeeper.znodes import Paths
from tests.cluster.zookeeper.clusters import partition, topic

A = topic("a", 2)
ANOTHER_A = topic("a")
PATHS = Paths("/x")


def state_with(*changes: AnyChange) -> ClusterState:
    state = ClusterState()
    for change in changes:
        state.apply(change)
    return state


ORDERS, CLICKS = ResourcePattern(2, "orders", 3), ResourcePattern(2, "clicks", 3)
READER, WRITER = Acl("User:a", "*", 3, 3), Acl("User:a", "*", 4, 3)


def moved(index: int, epoch: int = 1) -> PartitionsChanged:
    return PartitionsChanged("a", {index: partition(2, 1, epoch=epoch)})


@pytest.mark.parametrize(
    ("draft", "meanwhile"),
    [
        (moved(0), [moved(0)]),
        (moved(0), [TopicDeleted("a", A.id)]),
        (moved(0), [TopicDeleted("a", A.id), TopicCreated(ANOTHER_A)]),
        (moved(2), []),
        (TopicCreated(ANOTHER_A), []),
        (TopicDeleted("a", ANOTHER_A.id), []),
        (TopicConfigured("a", {"x": "1"}), [TopicConfigured("a", {"y": "1"})]),
        (PartitionsAdded("a", 2, (partition(1),)), [PartitionsAdded("a", 2, (partition(1),))]),
        (BrokerConfigured(1, {"x": "1"}), [BrokerConfigured(1, {"y": "1"})]),
        (AclsChanged(ORDERS, (READER,)), [AclsChanged(ORDERS, (WRITER,))]),
    ],
)
def test_a_change_of_what_has_changed_is_a_conflict(
    draft: AnyChange, meanwhile: list[AnyChange]
) -> None:
    state = state_with(TopicCreated(A))
    waiting = Draft(state, [draft])
    for change in meanwhile:
        state.apply(change)
    with pytest.raises(Conflict):
        waiting.writes(state)


@pytest.mark.parametrize(
    ("draft", "meanwhile"),
    [
        (moved(0), [moved(1), TopicConfigured("a", {"y": "1"})]),
        (moved(0), [PartitionsAdded("a", 2, (partition(1),))]),
        (TopicConfigured("a", {"x": "1"}), [moved(0)]),
        (PartitionsAdded("a", 2, (partition(1),)), [moved(0)]),
        (TopicDeleted("a", A.id), [moved(0)]),
        (BrokerConfigured(1, {"x": "1"}), [BrokerConfigured(2, {"y": "1"})]),
        (AclsChanged(ORDERS, (READER,)), [AclsChanged(CLICKS, (WRITER,))]),
    ],
)
def test_a_change_of_something_else_still_holds(
    draft: AnyChange, meanwhile: list[AnyChange]
) -> None:
    state = state_with(TopicCreated(A))
    waiting = Draft(state, [draft])
    for change in meanwhile:
        state.apply(change)
    (write,) = waiting.writes(state)
    expected = state_with(TopicCreated(A), *meanwhile, draft)
    if isinstance(write, TopicWrite):
        assert write.new == expected.topics.get("a")


def test_a_leader_epoch_never_goes_back() -> None:
    state = state_with(TopicCreated(A), moved(0, epoch=5))
    with pytest.raises(Conflict, match="later leader epoch"):
        Draft(state, [moved(0, epoch=4)]).writes(state)


def test_several_changes_of_a_topic_are_one_write() -> None:
    state = state_with(TopicCreated(A))
    more = PartitionsAdded("a", 2, (partition(1),))
    draft = Draft(state, [moved(0), more, moved(2), TopicConfigured("a", {"x": "1"})])
    (write,) = draft.writes(state)
    assert isinstance(write, TopicWrite)
    assert write.new is not None
    assert len(write.new.partitions) == 3
    assert write.new.configs == {"x": "1"}
    operations = write.operations(PATHS, 4)
    assert isinstance(operations[0], SetData)
    assert operations[0].version == 4
    assert operations[1:] == [Check(PATHS.topic_id(A.id))]


def test_nothing_is_written_for_what_is_so_already() -> None:
    state = state_with(TopicCreated(A))
    assert Draft(state, [PartitionsChanged("a", {0: A.partitions[0]})]).writes(state) == []


def test_deleting_and_creating_anew_in_one_commit_keeps_the_node() -> None:
    state = state_with(TopicCreated(A))
    (write,) = Draft(state, [TopicDeleted("a", A.id), TopicCreated(ANOTHER_A)]).writes(state)
    assert isinstance(write, TopicWrite)
    kinds = [type(operation) for operation in write.operations(PATHS, 1)]
    assert kinds == [SetData, Delete, Create, Create]


def test_what_happens_by_itself_is_not_committed() -> None:
    state = ClusterState()
    with pytest.raises(ValueError, match="BrokerLeft"):
        Draft(state, [BrokerLeft(1)]).writes(state)


def test_writes_are_split_between_topics_only() -> None:
    large = msgspec.structs.replace(A, configs={"x": "y" * 150_000})
    write = TopicWrite("a", None, large)
    parts = [(write, write.operations(PATHS, -1))] * 5
    sizes = [len(batch) for batch in batches(parts)]
    assert sizes == [2, 2, 1]
    assert list(batches([])) == []
