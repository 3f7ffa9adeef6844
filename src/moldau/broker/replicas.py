"""The replicas that this broker holds, kept in line with what the cluster decided."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from moldau.broker.groups.topic import OFFSETS_TOPIC
from moldau.broker.partition import Partition
from moldau.cluster.changes import (
    AnyChange,
    BrokerConfigured,
    BrokerJoined,
    BrokerLeft,
    PartitionsAdded,
    PartitionsChanged,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from moldau.cluster.topics import Topic
from moldau.log.config import LogConfig
from moldau.log.errors import StorageError

if TYPE_CHECKING:
    from moldau.broker.server import Broker

logger = logging.getLogger("moldau.broker")


class Replicas:
    """Opens, gives roles to, and lets go of `broker.partitions`. Event loop only.

    While the broker is fenced no replica of its leads, whatever the state says.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._fenced = False
        # Topics of which the disk refused a partition.
        self._incomplete: set[str] = set()

    @property
    def is_fenced(self) -> bool:
        return self._fenced

    def reconcile(self) -> None:
        """Brings the data folder in line with the state, after whatever happened meanwhile."""
        broker = self._broker
        state, logs = broker.state, broker.logs
        for (name, index), log in list(logs.logs.items()):
            topic = state.topics.get(name)
            if topic is not None and log.topic_id is None:
                # A power failure may have taken the small file that says so.
                logs.claim(name, index, topic.id)
            if topic is not None and topic.id == log.topic_id and index < len(topic.partitions):
                if broker.id not in topic.partitions[index].replicas:
                    logger.info("%s-%d has moved to other brokers: deleted here", name, index)
                    logs.delete(name, index)
            elif log.topic_id in state.deleted:
                logs.delete(name, index)
            else:
                logs.set_aside(name, index)

    def take_up_all(self) -> None:
        for topic in self._broker.state.topics.values():
            self.take_up(topic)

    def take_up(self, topic: Topic, indexes: Iterable[int] | None = None) -> None:
        """Holds the partitions of a topic that are this broker's, in the roles they have now."""
        broker = self._broker
        config: LogConfig | None = None
        for index in range(len(topic.partitions)) if indexes is None else indexes:
            state = topic.partitions[index]
            partition = broker.partitions.get((topic.name, index))
            if broker.id not in state.replicas:
                if partition is not None:
                    logger.info("%s-%d has moved to other brokers", topic.name, index)
                    self._let_go(partition)
                continue
            if partition is None:
                if config is None:
                    config = LogConfig.parse(topic.configs, broker.settings.topic_defaults)
                try:
                    partition = self._open(topic, index, config)
                except StorageError as error:
                    self._incomplete.add(topic.name)
                    logger.error("%s-%d cannot be served yet: %s", topic.name, index, error)
                    continue
            if not self._fenced:
                partition.become(state)
                self._role_changed(partition)

    def complete(self) -> None:
        """Tries again to hold the partitions that the disk refused before."""
        names, self._incomplete = self._incomplete, set()
        for name in names & self._broker.state.topics.keys():
            self.take_up(self._broker.state.topics[name])

    def fence(self, fenced: bool) -> None:
        """Leads nothing from now on; or leads again what the state says."""
        self._fenced = fenced
        if not fenced:
            self.take_up_all()
            return
        for partition in self._broker.partitions.values():
            if partition.is_leader:
                partition.resign()
                self._role_changed(partition)

    def apply(self, changes: Sequence[AnyChange]) -> None:
        """Does what a batch of changes asks of this broker's replicas."""
        broker = self._broker
        for change in changes:
            match change:
                case TopicCreated(topic):
                    self.take_up(topic)
                case PartitionsAdded(name, first, added):
                    self.take_up(broker.state.topics[name], range(first, first + len(added)))
                case PartitionsChanged(name, partitions):
                    if name in broker.state.topics:
                        self.take_up(broker.state.topics[name], partitions)
                case TopicDeleted(name, _):
                    self._delete(name)
                case TopicConfigured(name):
                    self.configure(name)
                case BrokerConfigured():
                    broker.configure()
                case BrokerJoined() | BrokerLeft():
                    broker.replication.brokers_changed()
                    broker.repairs.look_again()
                case _:
                    pass

    def configure(self, name: str) -> None:
        """Takes a topic's settings as they are from now on."""
        broker = self._broker
        topic = broker.state.topics.get(name)
        if topic is None:
            return
        config = LogConfig.parse(topic.configs, broker.settings.topic_defaults)
        for index in range(len(topic.partitions)):
            partition = broker.partitions.get((name, index))
            if partition is not None:
                partition.configure(config)

    def _open(self, topic: Topic, index: int, config: LogConfig) -> Partition:
        broker = self._broker
        log = broker.logs.logs.get((topic.name, index))
        if log is None:
            log = broker.logs.create(topic.name, index, topic.id, config)
        log.config = config
        log.on_failure = broker.repairs.on_failure
        partition = broker.new_partition(topic, index, log)
        broker.partitions[topic.name, index] = partition
        return partition

    def _role_changed(self, partition: Partition) -> None:
        if partition.topic == OFFSETS_TOPIC:
            self._broker.groups.partition_changed(partition)
        self._broker.replication.partition_changed(partition)
        partition.wake()
        if partition.log.offline is not None:
            self._broker.repairs.consider(partition)

    def drop(self, partition: Partition) -> None:
        """Holds the partition no more; its log is the caller's to remove."""
        del self._broker.partitions[partition.topic, partition.index]
        partition.resign()
        self._broker.replication.partition_dropped(partition)
        if partition.topic == OFFSETS_TOPIC:
            self._broker.groups.partition_changed(partition)
        partition.wake()

    def _let_go(self, partition: Partition) -> None:
        self.drop(partition)
        self._broker.logs.delete(partition.topic, partition.index)

    def _delete(self, name: str) -> None:
        for key in [key for key in self._broker.partitions if key[0] == name]:
            self._let_go(self._broker.partitions[key])
        self._broker.groups.topic_deleted(name)
