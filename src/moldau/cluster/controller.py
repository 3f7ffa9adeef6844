"""Decides what becomes of topics, and has it made durable."""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol
from uuid import UUID

from moldau.cluster.assignment import (
    MAX_PARTITIONS_PER_REQUEST,
    USE_DEFAULT,
    NewPartitions,
    NewTopic,
    additional_partitions,
    assigned_partitions,
    check_counts,
    check_room,
    placed_partitions,
)
from moldau.cluster.changes import (
    AnyChange,
    BrokerConfigured,
    LeadersRestarted,
    PartitionsAdded,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from moldau.cluster.errors import ClusterError
from moldau.cluster.producer_ids import ProducerIds
from moldau.cluster.store import MetadataStore, StoreError
from moldau.cluster.topics import (
    InvalidTopicName,
    PartitionState,
    Topic,
    check_topic_name,
    collision_key,
)
from moldau.log.config import LogConfig
from moldau.settings import InvalidSetting
from moldau.wire.errors import Error

CLUSTER_METADATA_TOPIC = "__cluster_metadata"

MAX_LOGGED = 10

Configs = dict[str, str]


logger = logging.getLogger(__name__)


class TopicDefaults(Protocol):
    """What a topic gets that asks for nothing else; read anew at each decision."""

    @property
    def num_partitions(self) -> int: ...

    @property
    def default_replication_factor(self) -> int: ...

    @property
    def topic_defaults(self) -> LogConfig: ...


class Controller:
    """The one who decides on topics, partitions and configs. Event loop only.

    Several things asked for at once get one answer each, in order: the outcome, or the
    ClusterError it was refused with. Nothing is answered that is not durable.

    A decision reads the state and then waits for its commit. Meanwhile no other may be made on the
    same names, so each takes hold of its names first; those on other names go on and share the
    store's next write.
    """

    def __init__(
        self,
        store: MetadataStore,
        defaults: TopicDefaults,
        *,
        new_id: Callable[[], UUID] = uuid.uuid4,
    ) -> None:
        self._store = store
        self._state = store.state
        self.defaults = defaults
        self._new_id = new_id
        self.producer_ids = ProducerIds(store)
        self._held: dict[str, asyncio.Future[None]] = {}
        # Where leadership of the next topic begins: random, so that several controllers' topics
        # even out, and then onwards, so that this one's do exactly.
        self._start = random.randrange(1 << 16)

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[Topic | ClusterError]:
        """Create each topic unless it exists, or only say what would come of it."""
        async with self._hold(collision_key(topic.name) for topic in topics):
            return await self._create(topics, validate_only)

    async def ensure_topics(self, topics: Sequence[NewTopic]) -> list[Topic | ClusterError]:
        """The topics of these names, created where they do not exist yet.

        However many ask at the same time, each topic is created once and all get the same one.
        """
        missing = [topic for topic in topics if topic.name not in self._state.topics]
        errors: dict[str, ClusterError] = {}
        if missing:
            unique = list({topic.name: topic for topic in missing}.values())
            async with self._hold(collision_key(topic.name) for topic in unique):
                still = [topic for topic in unique if topic.name not in self._state.topics]
                for topic, result in zip(still, await self._create(still, False), strict=True):
                    if isinstance(result, ClusterError):
                        errors[topic.name] = result
        return [self._state.topics.get(t.name) or errors.get(t.name, _gone()) for t in topics]

    async def add_partitions(
        self, requests: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[Topic | ClusterError]:
        """Give each topic more partitions; the outcome is the topic as it then is."""
        async with self._hold(collision_key(request.name) for request in requests):
            changes: list[AnyChange] = []
            results: list[Topic | ClusterError] = []
            room = MAX_PARTITIONS_PER_REQUEST
            grown: set[str] = set()
            for request in requests:
                try:
                    topic = self._state.topics.get(request.name)
                    if topic is None:
                        raise _unknown_topic(request.name)
                    if request.name in grown:
                        raise _duplicate()
                    added = additional_partitions(topic, request, self._state.brokers, room)
                    room -= len(added)
                    grown.add(request.name)
                    changes.append(PartitionsAdded(topic.name, len(topic.partitions), added))
                    results.append(topic)
                except ClusterError as error:
                    results.append(error)
            if validate_only:
                return results
            results = await self._commit(changes, results)
            return [
                result if isinstance(result, ClusterError) else self._state.topics[result.name]
                for result in results
            ]

    async def delete_topics(self, topics: Sequence[str | UUID]) -> list[Topic | ClusterError]:
        """Delete topics by name or id; the outcome is the topic that was."""
        async with self._hold(self._names(topics)):
            changes: list[AnyChange] = []
            results: list[Topic | ClusterError] = []
            gone: set[UUID] = set()
            for wanted in topics:
                topic = self._find(wanted)
                if topic is None or topic.id in gone:
                    results.append(_unknown_topic(wanted))
                    continue
                gone.add(topic.id)
                changes.append(TopicDeleted(topic.name, topic.id))
                results.append(topic)
            return await self._commit(changes, results)

    async def alter_topic_configs(
        self, name: str, edit: Callable[[Configs], Configs], *, validate_only: bool = False
    ) -> None:
        """Replace a topic's own settings by what `edit` makes of them; ClusterError if refused."""
        if not name:
            raise ClusterError(Error.INVALID_REQUEST, "Default topic resources are not allowed.")
        _check_name(name)
        async with self._hold([collision_key(name)]):
            topic = self._state.topics.get(name)
            if topic is None:
                raise _unknown_topic(name)
            configs = edit(dict(topic.configs))
            self._check_configs(configs)
            if not validate_only and configs != topic.configs:
                await self._commit_or_raise([TopicConfigured(name, configs)])

    async def alter_broker_configs(
        self,
        broker: int | None,
        edit: Callable[[Configs], Configs],
        *,
        validate_only: bool = False,
    ) -> None:
        """The same for the dynamic settings of one broker, or (None) of all; `edit` checks them."""
        async with self._hold([f"broker {broker}"]):
            current = self._state.broker_configs.get(broker, {})
            configs = edit(dict(current))
            if not validate_only and configs != current:
                await self._commit_or_raise([BrokerConfigured(broker, configs)])

    async def restart_leaders(self, broker: int) -> None:
        """Begin a new leader epoch wherever `broker` leads, after it stopped without a flush."""
        await self._commit_or_raise([LeadersRestarted(broker)])

    async def _create(
        self, topics: Sequence[NewTopic], validate_only: bool
    ) -> list[Topic | ClusterError]:
        changes: list[AnyChange] = []
        results: list[Topic | ClusterError] = []
        taken: dict[str, str] = {}
        room = MAX_PARTITIONS_PER_REQUEST
        for request in topics:
            try:
                topic = self._new_topic(request, taken, room)
            except ClusterError as error:
                results.append(error)
                continue
            taken[collision_key(topic.name)] = topic.name
            room -= len(topic.partitions)
            changes.append(TopicCreated(topic))
            results.append(topic)
        return results if validate_only else await self._commit(changes, results)

    def _new_topic(self, request: NewTopic, taken: Mapping[str, str], room: int) -> Topic:
        name = request.name
        if name in self._state.topics:
            raise ClusterError(Error.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        _check_name(name)
        if name == CLUSTER_METADATA_TOPIC:
            raise ClusterError(
                Error.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
            )
        if taken.get(collision_key(name)) == name:
            raise _duplicate()
        other = self._state.colliding_topic(name) or taken.get(collision_key(name))
        if other is not None:
            raise ClusterError(
                Error.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other}",
            )
        nulls = [key for key, value in request.configs.items() if value is None]
        if nulls:
            raise ClusterError(
                Error.INVALID_CONFIG,
                f"Null value not supported for topic configs: {','.join(nulls)}",
            )
        configs = {key: value for key, value in request.configs.items() if value is not None}
        self._check_configs(configs)
        return Topic(name, self._new_id(), self._partitions(request, room), configs)

    def _partitions(self, request: NewTopic, room: int) -> tuple[PartitionState, ...]:
        brokers = self._state.brokers
        if request.assignments:
            check_room(len(request.assignments), room)
            return assigned_partitions(request, brokers)
        check_counts(request)
        count, factor = request.partitions, request.replication_factor
        if count == USE_DEFAULT:
            count = self.defaults.num_partitions
        if factor == USE_DEFAULT:
            factor = self.defaults.default_replication_factor
        check_room(count, room)
        self._start += count
        return placed_partitions(count, factor, brokers, self._start)

    def _check_configs(self, configs: Mapping[str, str]) -> None:
        if configs:
            try:
                LogConfig.parse(configs, self.defaults.topic_defaults)
            except InvalidSetting as error:
                raise ClusterError(Error.INVALID_CONFIG, str(error)) from error

    def _names(self, topics: Iterable[str | UUID]) -> Iterator[str]:
        for topic in topics:
            if isinstance(topic, str):
                yield collision_key(topic)
            elif (found := self._state.topics_by_id.get(topic)) is not None:
                yield collision_key(found.name)

    def _find(self, topic: str | UUID) -> Topic | None:
        if isinstance(topic, UUID):
            return self._state.topics_by_id.get(topic)
        return self._state.topics.get(topic)

    async def _commit(
        self, changes: Sequence[AnyChange], results: list[Topic | ClusterError]
    ) -> list[Topic | ClusterError]:
        """`results`, once the changes that they speak of are durable; else the reason for each."""
        try:
            await self._commit_or_raise(changes)
        except ClusterError as error:
            return [result if isinstance(result, ClusterError) else error for result in results]
        return results

    async def _commit_or_raise(self, changes: Sequence[AnyChange]) -> None:
        try:
            await self._store.commit(changes)
        except StoreError as error:
            raise ClusterError(Error.KAFKA_STORAGE_ERROR, str(error)) from error
        for change in changes[:MAX_LOGGED]:
            logger.info("%s", _told(change))
        if len(changes) > MAX_LOGGED:
            logger.info("and %d more changes like these", len(changes) - MAX_LOGGED)

    @asynccontextmanager
    async def _hold(self, names: Iterable[str]) -> AsyncIterator[None]:
        """Keep other decisions on these names waiting. All are taken at once: no deadlock."""
        wanted = set(names)
        while busy := next((self._held[name] for name in wanted if name in self._held), None):
            await asyncio.shield(busy)
        released = asyncio.get_running_loop().create_future()
        self._held.update(dict.fromkeys(wanted, released))
        try:
            yield
        finally:
            for name in wanted:
                del self._held[name]
            released.set_result(None)


def _told(change: AnyChange) -> str:
    match change:
        case TopicCreated(topic):
            return f"topic {topic.name} created with {len(topic.partitions)} partitions"
        case TopicDeleted(name):
            return f"topic {name} deleted"
        case PartitionsAdded(name, first, partitions):
            return f"topic {name} grew from {first} to {first + len(partitions)} partitions"
        case TopicConfigured(name, configs):
            return f"topic {name} now has the settings {configs}"
        case BrokerConfigured(None, configs):
            return f"all brokers now have the dynamic settings {configs}"
        case BrokerConfigured(broker, configs):
            return f"broker {broker} now has the dynamic settings {configs}"
        case LeadersRestarted(broker):
            return f"broker {broker} leads in new epochs, since it did not stop cleanly"
        case _:
            return str(change)


def _check_name(name: str) -> None:
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        raise ClusterError(Error.INVALID_TOPIC_EXCEPTION, str(error)) from error


def _unknown_topic(topic: str | UUID) -> ClusterError:
    if isinstance(topic, UUID):
        return ClusterError(Error.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    return ClusterError(
        Error.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
    )


def _duplicate() -> ClusterError:
    return ClusterError(Error.INVALID_REQUEST, "Duplicate topic name.")


def _gone() -> ClusterError:
    return ClusterError(Error.UNKNOWN_TOPIC_OR_PARTITION, "The topic was deleted meanwhile.")
