"""Writes: what each change writes to ZooKeeper, decided on values alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from moldau.cluster.state.access import (
    AccessChange,
    AccessEntry,
    AclsChanged,
    GroupConfigured,
    QuotasChanged,
    ScramChanged,
)
from moldau.cluster.state.changes import (
    AnyChange,
    BrokerConfigured,
    DeletionsSettled,
    LeadersRestarted,
    PartitionsAdded,
    PartitionsChanged,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from moldau.cluster.state.state import ClusterState
from moldau.cluster.state.topics import Topic
from moldau.cluster.store import Conflict, StoreError
from moldau.cluster.zookeeper.sessions.operations import (
    Check,
    Create,
    Delete,
    Operation,
    SetData,
)
from moldau.cluster.zookeeper.znodes import Paths, encode_access, encode_configs, encode_topic

# ZooKeeper refuses requests above 1 MB as a whole.
BATCH_BYTES = 400 << 10
_MOST_BYTES = 1_000_000
_OPERATION_BYTES = 64

_TopicChange = TopicCreated | TopicDeleted | PartitionsAdded | PartitionsChanged | TopicConfigured


@dataclass(frozen=True, slots=True)
class TopicWrite:
    """The change to one topic: None before is a creation, None after is a deletion."""

    name: str
    old: Topic | None
    new: Topic | None

    def operations(self, paths: Paths, version: int) -> list[Operation]:
        """Return the parts of a transaction that bring it about if the topic's version is still
        this."""
        path = paths.topic(self.name)
        found: list[Operation] = []
        same = self.old is not None and self.new is not None and self.old.id == self.new.id
        if self.old is not None and not same:
            found.append(Delete(paths.topic_id(self.old.id)))
            found.append(Create(paths.deleted_topic(self.old.id), self.name.encode()))
        if self.new is None:
            return [Delete(path, version), *found]
        if same:
            found.append(Check(paths.topic_id(self.new.id)))
        else:
            found.append(Create(paths.topic_id(self.new.id), self.name.encode()))
        data = encode_topic(self.new)
        if len(data) > _MOST_BYTES:
            raise StoreError(
                f"topic '{self.name}' takes {len(data)} bytes with its "
                f"{len(self.new.partitions)} partitions, but ZooKeeper stores at most "
                f"{_MOST_BYTES} in one node"
            )
        if self.old is None:
            return [Create(path, data), *found]
        return [SetData(path, data, version), *found]


@dataclass(frozen=True, slots=True)
class ConfigWrite:
    """The dynamic settings of one broker, or those of all (None)."""

    broker: int | None
    configs: dict[str, str]

    def operations(self, paths: Paths, version: int | None) -> list[Operation]:
        path, data = paths.broker_config(self.broker), encode_configs(self.configs)
        # Never deleted, only emptied: so the version tells all states of it apart.
        return [Create(path, data) if version is None else SetData(path, data, version)]


@dataclass(frozen=True, slots=True)
class AccessWrite:
    """One entry of who may do what; an empty one is deleted.

    Only the controller writes these, so that a version tells all states apart that it can meet.
    """

    change: AccessEntry

    def operations(self, paths: Paths, version: int | None) -> list[Operation]:
        path = paths.access_entry(self.change.key)
        if self.change.is_empty:
            return [] if version is None else [Delete(path, version)]
        data = encode_access(self.change)
        if len(data) > _MOST_BYTES:
            raise StoreError(
                f"'{self.change.key}' takes {len(data)} bytes, but ZooKeeper stores at most "
                f"{_MOST_BYTES} in one node"
            )
        return [Create(path, data) if version is None else SetData(path, data, version)]


Write = TopicWrite | ConfigWrite | AccessWrite


class Draft:
    """Changes that somebody decided on, and what they were decided on.

    They wait for their turn, and when it comes the state may be another. They still hold if
    nothing that they touch has changed: a partition, a topic's settings, its existence.
    """

    def __init__(self, state: ClusterState, changes: Sequence[AnyChange]) -> None:
        self.changes = list(_spelled_out(state, changes))
        self._topics = {
            name: state.topics.get(name)
            for change in self.changes
            if (name := _topic_name(change)) is not None
        }
        self._configs = {
            change.broker: state.broker_configs.get(change.broker, {})
            for change in self.changes
            if isinstance(change, BrokerConfigured)
        }
        self._access = {
            change.key: state.access.entries.get(change.key)
            for change in self.changes
            if isinstance(change, AccessChange)
        }

    @property
    def only_changes_partitions(self) -> bool:
        return all(isinstance(change, PartitionsChanged) for change in self.changes)

    def joining(self) -> set[int]:
        """Return the brokers that become in-sync replicas of something."""
        found: set[int] = set()
        for change in self.changes:
            topic = self._topics.get(change.name) if isinstance(change, PartitionsChanged) else None
            if topic is None or not isinstance(change, PartitionsChanged):
                continue
            for index, partition in change.partitions.items():
                if index < len(topic.partitions):
                    found |= set(partition.isr) - set(topic.partitions[index].isr)
        return found

    def writes(self, state: ClusterState) -> list[Write]:
        """Return what has to be written for the changes; raise Conflict if they no longer hold."""
        topics: dict[str, Topic | None] = {}
        configs: dict[int | None, dict[str, str]] = {}
        access: dict[str, AccessEntry] = {}
        for change in self.changes:
            match change:
                case BrokerConfigured(broker, values):
                    if self._configs[broker] != state.broker_configs.get(broker, {}):
                        raise Conflict(
                            f"the settings of broker {broker} have changed in the meantime"
                        )
                    configs[broker] = values
                case AclsChanged() | QuotasChanged() | ScramChanged() | GroupConfigured():
                    if self._access[change.key] != state.access.entries.get(change.key):
                        raise Conflict(f"'{change.key}' has changed in the meantime")
                    access[change.key] = change
                case (
                    TopicCreated()
                    | TopicDeleted()
                    | PartitionsAdded()
                    | PartitionsChanged()
                    | TopicConfigured()
                ):
                    name = _topic_name(change)
                    assert name is not None
                    if name not in topics:
                        self._check(name, state)
                    topic = topics[name] if name in topics else state.topics.get(name)
                    topics[name] = _changed(topic, change)
                case _:
                    raise ValueError(
                        f"{type(change).__name__} cannot be committed: the brokers make this "
                        "change themselves"
                    )
        found: list[Write] = [
            TopicWrite(name, state.topics.get(name), topic)
            for name, topic in topics.items()
            if state.topics.get(name) != topic
        ]
        found += [ConfigWrite(broker, values) for broker, values in configs.items()]
        found += [
            AccessWrite(change)
            for key, change in access.items()
            if not change.is_empty or key in state.access.entries
        ]
        return found

    def _check(self, name: str, state: ClusterState) -> None:
        """Conflict unless what the changes touch of the topic is as it was."""
        base, now = self._topics[name], state.topics.get(name)
        if base is now:
            return
        if base is None or now is None or base.id != now.id:
            raise Conflict(f"topic '{name}' was created or deleted in the meantime")
        for change in self.changes:
            if _topic_name(change) != name:
                continue
            match change:
                case PartitionsChanged(_, partitions):
                    for index in partitions:
                        if base.partitions[index : index + 1] != now.partitions[index : index + 1]:
                            raise Conflict(f"{name}-{index} has changed in the meantime")
                case TopicConfigured() if base.configs != now.configs:
                    raise Conflict(f"the settings of topic '{name}' have changed in the meantime")
                case _:
                    pass


def batches(
    writes: Sequence[tuple[Write, list[Operation]]],
) -> Iterator[list[tuple[Write, list[Operation]]]]:
    """Writes in parts that fit into one transaction each, a topic's own never apart."""
    batch: list[tuple[Write, list[Operation]]] = []
    size = 0
    for write, operations in writes:
        own = sum(_size(operation) for operation in operations)
        if batch and size + own > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append((write, operations))
        size += own
    if batch:
        yield batch


def _size(operation: Operation) -> int:
    data = operation.data if isinstance(operation, Create | SetData) else b""
    # A name is there twice: in the path, and in the notice of what changed.
    return _OPERATION_BYTES + 2 * len(operation.path) + len(data)


def _spelled_out(state: ClusterState, changes: Sequence[AnyChange]) -> Iterator[AnyChange]:
    for change in changes:
        if isinstance(change, DeletionsSettled):
            # One broker has removed its folders; others may still have to.
            continue
        if not isinstance(change, LeadersRestarted):
            yield change
            continue
        for topic in state.topics.values():
            restarted = {
                index: msgspec.structs.replace(partition, leader_epoch=partition.leader_epoch + 1)
                for index, partition in enumerate(topic.partitions)
                if partition.leader == change.broker
            }
            if restarted:
                yield PartitionsChanged(topic.name, restarted)


def _topic_name(change: AnyChange) -> str | None:
    match change:
        case TopicCreated(topic):
            return topic.name
        case TopicDeleted(name) | PartitionsAdded(name) | PartitionsChanged(name):
            return name
        case TopicConfigured(name):
            return name
        case _:
            return None


def _changed(topic: Topic | None, change: _TopicChange) -> Topic | None:
    """Return the topic after the change; Conflict if the change cannot follow."""
    if isinstance(change, TopicCreated):
        if topic is not None:
            raise Conflict(f"topic '{topic.name}' already exists")
        return change.topic
    if topic is None:
        raise Conflict(f"topic '{change.name}' no longer exists")
    match change:
        case TopicDeleted(name, id):
            if topic.id != id:
                raise Conflict(f"topic '{name}' was deleted and created again in the meantime")
            return None
        case PartitionsAdded(name, first, partitions):
            if len(topic.partitions) != first:
                raise Conflict(f"topic '{name}' now has {len(topic.partitions)} partitions")
            return msgspec.structs.replace(topic, partitions=topic.partitions + partitions)
        case PartitionsChanged(name, changed):
            whole = list(topic.partitions)
            for index, partition in changed.items():
                if not 0 <= index < len(whole):
                    raise Conflict(f"topic '{name}' has no partition {index}")
                if partition.leader_epoch < whole[index].leader_epoch:
                    raise Conflict(f"{name}-{index} has moved to a later leader epoch")
                whole[index] = partition
            return msgspec.structs.replace(topic, partitions=tuple(whole))
        case TopicConfigured(_, configs):
            return msgspec.structs.replace(topic, configs=configs)
