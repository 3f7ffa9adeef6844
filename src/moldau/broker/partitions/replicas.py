"""The replicas that this broker holds, kept in line with what the cluster decided.

A role is taken and left at once. Logs of new partitions are made, and those of deleted ones moved
out of the way, a few at a time, so that a topic of thousands does not hold the loop. Until a log is
there this broker does not lead its partition, and clients ask again. The same goes for a log whose
last truncation is not on disk yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from moldau.broker.partitions.fresh_cuts import FreshCuts, is_fresh
from moldau.broker.partitions.partition import Partition
from moldau.broker.partitions.partitions import Partitions
from moldau.broker.slices import Slices
from moldau.cluster.state.changes import (
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
from moldau.cluster.state.topics import PartitionState, Topic
from moldau.log.config import LogConfig
from moldau.log.errors import StorageError
from moldau.log.log import Log
from moldau.topic_partition import TopicPartition

logger = logging.getLogger("moldau.broker")

# How many logs are made at once where few are asked for, as nearly always.
LOGS_AT_ONCE = 20
# How many logs are made or moved before the loop serves others again, where there are more.
LOGS_AT_A_TIME = 5
# After how long a partition is tried again that the disk refused.
RETRY_S = 5.0


class Owner(Protocol):
    """Whoever keeps its state in the partitions of an internal topic: a coordinator."""

    def partition_changed(self, partition: Partition) -> None:
        """Follow the role that a partition of its topic has been given."""

    def topic_deleted(self, name: str) -> None:
        """Let go of a topic that is gone, its own or any other."""


class Watcher(Protocol):
    """Whoever follows the roles of this broker's partitions, and who the cluster's brokers are."""

    def partition_changed(self, partition: Partition) -> None:
        """Follow the role that a partition has been given."""

    def partition_dropped(self, partition: Partition) -> None:
        """Let go of a partition that this broker holds no more."""

    def partition_configured(self, partition: Partition) -> None:
        """Consider a partition whose settings have changed."""

    def brokers_changed(self) -> None:
        """Consider that a broker joined or left."""


class Replicas:
    """Opens, gives roles to, and lets go of partitions. Event loop only.

    While the broker is fenced no replica of its leads, whatever the state says. `owners` are the
    coordinators by the internal topic of each, `watchers` follow the roles of all partitions, and
    `on_failure` is told of logs that fail, by any thread. `on_configured` is called when settings
    of brokers have changed.
    """

    def __init__(self, partitions: Partitions, on_configured: Callable[[], None]) -> None:
        self._partitions = partitions
        self._node = partitions.node
        self._on_configured = on_configured
        self.owners: dict[str, Owner] = {}
        self.watchers: list[Watcher] = []
        self.on_failure: Callable[[Log, StorageError], None] | None = None
        self._fenced = False
        # Topics of which the disk refused a partition.
        self._incomplete: set[str] = set()
        self._is_retrying = False
        # No index of a topic that is held here is as high.
        self._widths: dict[str, int] = {}
        self._to_open: deque[tuple[str, UUID, int]] = deque()
        # Those of them whose names the checkpoints still have for deleted logs.
        self._to_forget: list[tuple[str, UUID, int]] = []
        self._to_delete: dict[TopicPartition, None] = {}
        # The last parsed configs, their defaults, and the resulting settings.
        self._parsed: tuple[Mapping[str, str], LogConfig, LogConfig] | None = None
        self._fresh_cuts = FreshCuts(self._node, self._cut_is_forced)
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @property
    def is_fenced(self) -> bool:
        return self._fenced

    @property
    def incomplete(self) -> Collection[str]:
        """The topics of which the disk refused a partition."""
        return self._incomplete

    def reconcile(self) -> None:
        """Bring the data folder in line with the state, after whatever happened in the meantime."""
        node = self._node
        state, logs = node.state, node.logs
        for (name, index), log in list(logs.logs.items()):
            topic = state.topics.get(name)
            lost_id = log.topic_id is None
            if lost_id and topic is not None and logs.may_claim(name, index, topic.id):
                # A power failure may have taken the small file that says so.
                logs.claim(name, index, topic.id)
            if topic is not None and topic.id == log.topic_id and index < len(topic.partitions):
                if node.id not in topic.partitions[index].replicas:
                    logger.info(
                        "%s-%d has moved to other brokers and was deleted here", name, index
                    )
                    logs.delete(name, index)
            elif log.topic_id in state.deleted:
                logs.delete(name, index)
            else:
                logs.set_aside(name, index)

    def take_up_all(self) -> None:
        """Hold all of this broker's partitions, before it serves anybody."""
        for topic in self._node.state.topics.values():
            self._enter(topic)
        self._open_some(len(self._to_open))

    def take_up(self, topic: Topic, indexes: Iterable[int]) -> None:
        """Hold those of a topic's partitions that are this broker's."""
        self._enter(topic, indexes)
        self._open_some()

    async def caught_up(self) -> None:
        """Return when every log that should exist is there."""
        await self._is_idle.wait()

    def _enter(self, topic: Topic, indexes: Iterable[int] | None = None) -> None:
        """Give the topic's partitions that are held here their current roles, and enter those that
        are missing.
        """
        node = self._node
        for index in range(len(topic.partitions)) if indexes is None else indexes:
            state = topic.partitions[index]
            partition = self._partitions.get((topic.name, index))
            if node.id not in state.replicas:
                if partition is not None:
                    logger.info("%s-%d has moved to other brokers", topic.name, index)
                    self._let_go(partition)
            elif partition is None:
                self._to_open.append((topic.name, topic.id, index))
            elif not self._fenced:
                self._give_role(partition, state)

    def _give_role(self, partition: Partition, state: PartitionState) -> None:
        if state.leader == self._node.id and is_fresh(partition):
            self._fresh_cuts.force(partition)
            return
        self._fresh_cuts.leave_out(partition)
        partition.become(state)
        self._role_changed(partition)

    def _cut_is_forced(self, partition: Partition) -> None:
        """Give a partition its current role that was kept from leading."""
        topic = self._node.state.topics.get(partition.topic)
        if topic is not None and topic.id == partition.topic_id:
            self._enter(topic, [partition.index])

    # Logs, a few at a time

    def _open_some(self, most: int = LOGS_AT_ONCE) -> None:
        """Open the partitions that were entered; those beyond `most` after others were served."""
        for _ in range(min(most, len(self._to_open))):
            self._open_next()
        if self._incomplete and not self._is_retrying:
            self._is_retrying = True
            self._node.spawn(self._retry())
        if (self._to_open or self._to_delete or self._to_forget) and self._is_idle.is_set():
            self._is_idle.clear()
            self._node.spawn(self._catch_up())

    async def _retry(self) -> None:
        """Retry until the disk accepts what it refused: it was full, or has been repaired."""
        try:
            while self._incomplete:
                await asyncio.sleep(RETRY_S)
                self.complete()
        finally:
            self._is_retrying = False

    async def _catch_up(self) -> None:
        try:
            slices = Slices()
            while self._to_open or self._to_delete or self._to_forget:
                await slices.rest()
                if not self._to_open and not self._to_delete:
                    await self._forget_deleted()
                for _ in range(min(LOGS_AT_A_TIME, len(self._to_open))):
                    self._open_next()
                for key in list(self._to_delete)[:LOGS_AT_A_TIME]:
                    self._delete_log(key)
        finally:
            self._is_idle.set()

    async def _forget_deleted(self) -> None:
        """Remove deleted logs from the checkpoints, so that there can be new ones."""
        waiting, self._to_forget = self._to_forget, []
        try:
            await asyncio.to_thread(self._node.logs.prepare_checkpoint())
        except StorageError as error:
            logger.error("new partitions cannot be served yet: %s", error)
            self._incomplete.update(name for name, _, _ in waiting)
        else:
            self._to_open.extend(waiting)
        self._open_some()

    def _open_next(self) -> None:
        """Open a partition in its current role, if it still belongs here."""
        node = self._node
        name, topic_id, index = self._to_open.popleft()
        topic = node.state.topics.get(name)
        if topic is None or topic.id != topic_id or index >= len(topic.partitions):
            return
        state = topic.partitions[index]
        if node.id not in state.replicas or (name, index) in self._partitions:
            return
        try:
            partition = self._open(topic, index)
        except StorageError as error:
            self._incomplete.add(name)
            level = logging.DEBUG if self._is_retrying else logging.ERROR
            logger.log(level, "%s-%d is not available yet: %s", name, index, error)
            return
        if partition is None:
            self._to_forget.append((name, topic_id, index))
        elif not self._fenced:
            self._give_role(partition, state)

    def _delete_log(self, key: TopicPartition) -> None:
        del self._to_delete[key]
        if key not in self._node.logs.logs:
            return
        try:
            self._node.logs.delete(*key)
        except StorageError as error:
            logger.error("%s-%d could not be deleted: %s", *key, error)

    def complete(self) -> None:
        """Retry the partitions that the disk refused."""
        names, self._incomplete = self._incomplete, set()
        for name in sorted(names & self._node.state.topics.keys()):
            self._enter(self._node.state.topics[name])
        self._open_some()

    def fence(self, fenced: bool) -> None:
        """Lead nothing from now on, or lead again what the state says."""
        self._fenced = fenced
        if not fenced:
            self.take_up_all()
            return
        for partition in self._partitions.values():
            if partition.is_leader:
                partition.resign()
                self._role_changed(partition)

    def apply(self, changes: Sequence[AnyChange]) -> None:
        """Apply a batch of changes to this broker's replicas."""
        node = self._node
        for change in changes:
            match change:
                case TopicCreated(topic):
                    self._enter(topic)
                case PartitionsAdded(name, first, added):
                    self._enter(node.state.topics[name], range(first, first + len(added)))
                case PartitionsChanged(name, partitions):
                    if name in node.state.topics:
                        self._enter(node.state.topics[name], partitions)
                case TopicDeleted(name, id):
                    self._delete(name)
                    self._partitions.refused_writes.topic_deleted(name, id)
                case TopicConfigured(name):
                    self.configure(name)
                case BrokerConfigured():
                    self._on_configured()
                case BrokerJoined() | BrokerLeft():
                    for watcher in self.watchers:
                        watcher.brokers_changed()
                case _:
                    pass
        self._open_some()

    def configure(self, name: str) -> None:
        """Apply a topic's new settings."""
        topic = self._node.state.topics.get(name)
        if topic is None:
            return
        config = self._config_of(topic)
        self._note_checks(topic, config)
        for index in range(len(topic.partitions)):
            partition = self._partitions.get((name, index))
            if partition is not None:
                partition.configure(config)
                for watcher in self.watchers:
                    watcher.partition_configured(partition)

    def _config_of(self, topic: Topic) -> LogConfig:
        """Return the settings of a topic's logs, parsed once for all that are opened in a row."""
        defaults = self._node.settings.topic_defaults
        parsed = self._parsed
        if parsed is None or parsed[0] is not topic.configs or parsed[1] is not defaults:
            config = LogConfig.parse(topic.configs, defaults) if topic.configs else defaults
            parsed = self._parsed = (topic.configs, defaults, config)
        return parsed[2]

    def _note_checks(self, topic: Topic, config: LogConfig) -> None:
        if config.looks_into_records and not topic.is_internal:
            self._partitions.checks_records = True
            self._partitions.reconsider()

    def _open(self, topic: Topic, index: int) -> Partition | None:
        """None where a deleted log has to be forgotten first."""
        node = self._node
        key = topic.name, index
        if key in self._to_delete:
            # It was here before, as another topic's or as one that had moved away.
            self._delete_log(key)
        log = node.logs.logs.get(key)
        if log is not None and log.topic_id not in (None, topic.id):
            # A topic of this name was deleted before anybody here listened.
            if log.topic_id in node.state.deleted:
                node.logs.delete(*key)
            else:
                node.logs.set_aside(*key)
            log = None
        config = self._config_of(topic)
        if log is None:
            if node.logs.remembers(key):
                return None
            log = node.logs.create(topic.name, index, topic.id, config)
        log.config = config
        log.on_failure = self.on_failure
        self._note_checks(topic, config)
        partition = self._partitions.open(topic, index, log)
        self._widths[topic.name] = max(index + 1, self._widths.get(topic.name, 0))
        return partition

    def _role_changed(self, partition: Partition) -> None:
        owner = self.owners.get(partition.topic)
        if owner is not None:
            owner.partition_changed(partition)
        for watcher in self.watchers:
            watcher.partition_changed(partition)
        partition.wake()

    def drop(self, partition: Partition) -> None:
        """Stop holding the partition; the caller removes its log."""
        del self._partitions[partition.topic, partition.index]
        self._fresh_cuts.leave_out(partition)
        partition.resign()
        for watcher in self.watchers:
            watcher.partition_dropped(partition)
        owner = self.owners.get(partition.topic)
        if owner is not None:
            owner.partition_changed(partition)
        partition.wake()

    def _let_go(self, partition: Partition) -> None:
        self.drop(partition)
        self._to_delete[partition.topic, partition.index] = None

    def _delete(self, name: str) -> None:
        for index in range(self._widths.pop(name, 0)):
            partition = self._partitions.get((name, index))
            if partition is not None:
                self._let_go(partition)
        for owner in self.owners.values():
            owner.topic_deleted(name)
