"""The cluster as this broker knows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from uuid import UUID

import msgspec

from moldau.cluster.state.access import (
    Access,
    AccessDamaged,
    AclsChanged,
    GroupConfigured,
    QuotasChanged,
    ScramChanged,
)
from moldau.cluster.state.changes import (
    AnyChange,
    BrokerConfigured,
    BrokerJoined,
    BrokerLeft,
    ClusterCreated,
    ControllerElected,
    DeletionsSettled,
    LeadersRestarted,
    PartitionsAdded,
    PartitionsChanged,
    ProducerIdsAllocated,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from moldau.cluster.state.topics import BrokerInfo, PartitionState, Topic, collision_key


class ImpossibleChange(ValueError):
    """A change that contradicts the state: it was decided on another state than this."""


class ClusterState:
    """The sum of the changes so far. Event loop only.

    Only `apply` changes it; everybody else reads. `version` goes up with each change, so whatever
    was computed from the state (an encoded Metadata response) is good while `version` stays.

    `deleted` holds the ids of topics whose folders may still lie on disk: the deletion is decided
    here first and carried out after. A folder of any other unknown topic was not deleted by anyone
    and is not to be removed.
    """

    def __init__(self) -> None:
        self.version = 0
        self.cluster_id = ""
        self.controller_id = -1
        self.brokers: dict[int, BrokerInfo] = {}
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[UUID, Topic] = {}
        self.broker_configs: dict[int | None, dict[str, str]] = {}
        self.access = Access()
        self.next_producer_id = 0
        self.deleted: set[UUID] = set()
        # How many replicas each broker is to hold.
        self.replica_counts: Counter[int] = Counter()
        self._names_by_collision_key: dict[str, str] = {}

    def partition(self, topic: str, index: int) -> PartitionState | None:
        """Return the partition's state, or None if there is no such partition."""
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def colliding_topic(self, name: str) -> str | None:
        """Return the existing topic, if any, that `name` may not exist beside (itself included)."""
        return self._names_by_collision_key.get(collision_key(name))

    def apply(self, change: AnyChange) -> None:
        """Take one change in; ImpossibleChange, and nothing done, if it contradicts the state."""
        match change:
            case TopicCreated(topic):
                self._create(topic)
            case TopicDeleted(name, id):
                self._delete(name, id)
            case PartitionsAdded(name, first, partitions):
                self._add_partitions(name, first, partitions)
            case PartitionsChanged(name, changed):
                self._change_partitions(name, changed)
            case TopicConfigured(name, configs):
                self._put(msgspec.structs.replace(self._known(name), configs=configs))
            case BrokerConfigured(broker, configs):
                if configs:
                    self.broker_configs[broker] = configs
                else:
                    self.broker_configs.pop(broker, None)
            case (
                AclsChanged()
                | QuotasChanged()
                | ScramChanged()
                | GroupConfigured()
                | AccessDamaged()
            ):
                self.access.apply(change)
            case ProducerIdsAllocated(next_id):
                if next_id < self.next_producer_id:
                    raise ImpossibleChange(
                        f"producer ids below {self.next_producer_id} are already taken; the next "
                        f"cannot be {next_id}"
                    )
                self.next_producer_id = next_id
            case LeadersRestarted(broker):
                self._restart_leaders(broker)
            case DeletionsSettled():
                self.deleted.clear()
            case BrokerJoined(broker):
                self.brokers[broker.id] = broker
            case BrokerLeft(id):
                self.brokers.pop(id, None)
            case ControllerElected(id):
                self.controller_id = id
            case ClusterCreated(cluster_id):
                self.cluster_id = cluster_id
        self.version += 1

    def changes(self) -> Iterator[AnyChange]:
        """Yield the shortest changes that lead to this state, but for who is alive now."""
        if self.next_producer_id:
            yield ProducerIdsAllocated(self.next_producer_id)
        for broker, configs in self.broker_configs.items():
            yield BrokerConfigured(broker, configs)
        yield from self.access.changes()
        for id in self.deleted:
            yield TopicDeleted("", id)
        for topic in self.topics.values():
            yield TopicCreated(topic)

    def _known(self, name: str) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            raise ImpossibleChange(f"there is no topic '{name}'")
        return topic

    def _put(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self.topics_by_id[topic.id] = topic

    def _count(self, partitions: Iterable[PartitionState], by: int) -> None:
        counts = self.replica_counts
        for partition in partitions:
            for broker in partition.replicas:
                counts[broker] += by

    def _create(self, topic: Topic) -> None:
        if topic.name in self.topics or topic.id in self.topics_by_id:
            raise ImpossibleChange(f"topic '{topic.name}' already exists")
        self._put(topic)
        self._count(topic.partitions, 1)
        self._names_by_collision_key[collision_key(topic.name)] = topic.name

    def _delete(self, name: str, id: UUID) -> None:
        # A deletion without a name only recalls an earlier one, whose topic is long gone.
        if name:
            topic = self._known(name)
            if topic.id != id:
                raise ImpossibleChange(f"topic '{name}' has the id {topic.id}, not {id}")
            del self.topics[name], self.topics_by_id[id]
            self._count(topic.partitions, -1)
            self._names_by_collision_key.pop(collision_key(name), None)
        self.deleted.add(id)

    def _add_partitions(self, name: str, first: int, added: tuple[PartitionState, ...]) -> None:
        topic = self._known(name)
        if first != len(topic.partitions):
            raise ImpossibleChange(
                f"topic '{name}' has {len(topic.partitions)} partitions; {first} is not the next"
            )
        self._put(msgspec.structs.replace(topic, partitions=topic.partitions + added))
        self._count(added, 1)

    def _change_partitions(self, name: str, changed: dict[int, PartitionState]) -> None:
        topic = self._known(name)
        partitions = list(topic.partitions)
        for index, partition in changed.items():
            if not 0 <= index < len(partitions):
                raise ImpossibleChange(f"topic '{name}' has no partition {index}")
            partitions[index] = partition
        self._count([topic.partitions[index] for index in changed], -1)
        self._count(changed.values(), 1)
        self._put(msgspec.structs.replace(topic, partitions=tuple(partitions)))

    def _restart_leaders(self, broker: int) -> None:
        for topic in list(self.topics.values()):
            restarted = tuple(
                msgspec.structs.replace(partition, leader_epoch=partition.leader_epoch + 1)
                if partition.leader == broker
                else partition
                for partition in topic.partitions
            )
            self._put(msgspec.structs.replace(topic, partitions=restarted))
