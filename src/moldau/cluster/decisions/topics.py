"""Topics: decisions about requests to create, change and delete them, as values.

A decision may be made again, on a later state, because another broker changed something in between.
Part of the former attempt may have happened by then. So each of these is an object that remembers
what it tried, and takes its own work for done instead of refusing it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from moldau.cluster.decisions.assignment import (
    MAX_PARTITIONS_PER_REQUEST,
    USE_DEFAULT,
    NewPartitions,
    NewTopic,
    additional_partitions,
    assigned_partitions,
    check_brokers_have_room,
    check_counts,
    check_room,
    placed_partitions,
)
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.changes import AnyChange, PartitionsAdded, TopicCreated, TopicDeleted
from moldau.cluster.state.internal_topics import CLUSTER_METADATA_TOPIC
from moldau.cluster.state.state import ClusterState
from moldau.cluster.state.topics import (
    InvalidTopicName,
    PartitionState,
    Topic,
    check_topic_name,
    collision_key,
)
from moldau.log.config import LogConfig
from moldau.settings import InvalidSetting
from moldau.wire.errors import Error

Outcome = Topic | ClusterError


class Decided(NamedTuple):
    """The changes to commit, and what then to answer for each thing that was asked, in order."""

    changes: list[AnyChange]
    outcomes: list[Outcome]


class TopicDefaults(Protocol):
    """The defaults of a new topic; read again at each decision."""

    @property
    def num_partitions(self) -> int: ...

    @property
    def default_replication_factor(self) -> int: ...

    @property
    def topic_defaults(self) -> LogConfig: ...

    @property
    def max_broker_partitions(self) -> int: ...


class Creation:
    """Creates each topic unless it exists. `place` gives the position of the first leader."""

    def __init__(
        self,
        requests: Sequence[NewTopic],
        defaults: TopicDefaults,
        new_id: Callable[[], UUID],
        place: Callable[[int], int],
    ) -> None:
        self._requests = requests
        self._defaults = defaults
        self._new_id = new_id
        self._place = place
        self._ids: dict[str, UUID] = {}

    def decide(self, state: ClusterState) -> Decided:
        decided = Decided([], [])
        taken: dict[str, str] = {}
        room = MAX_PARTITIONS_PER_REQUEST
        counts = state.replica_counts.copy()
        for request in self._requests:
            existing = state.topics.get(request.name)
            if existing is not None and existing.id == self._ids.get(request.name):
                decided.outcomes.append(existing)
                continue
            try:
                topic = self._new_topic(state, request, taken, room)
                if not topic.is_internal:
                    most = self._defaults.max_broker_partitions
                    check_brokers_have_room(topic.partitions, counts, most)
            except ClusterError as error:
                decided.outcomes.append(error)
                continue
            taken[collision_key(topic.name)] = topic.name
            room -= len(topic.partitions)
            decided.changes.append(TopicCreated(topic))
            decided.outcomes.append(topic)
        return decided

    def _new_topic(
        self, state: ClusterState, request: NewTopic, taken: Mapping[str, str], room: int
    ) -> Topic:
        name = request.name
        if name in state.topics:
            raise ClusterError(Error.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        check_name(name)
        if name == CLUSTER_METADATA_TOPIC:
            raise ClusterError(
                Error.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
            )
        if taken.get(collision_key(name)) == name:
            raise _duplicate()
        other = state.colliding_topic(name) or taken.get(collision_key(name))
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
        check_configs(configs, self._defaults)
        partitions = self._partitions(state, request, room)
        if name not in self._ids:
            self._ids[name] = self._new_id()
        return Topic(name, self._ids[name], partitions, configs)

    def _partitions(
        self, state: ClusterState, request: NewTopic, room: int
    ) -> tuple[PartitionState, ...]:
        brokers = state.brokers
        if request.assignments:
            check_room(len(request.assignments), room)
            return assigned_partitions(request, brokers)
        check_counts(request)
        count, factor = request.partitions, request.replication_factor
        if count == USE_DEFAULT:
            count = self._defaults.num_partitions
        if factor == USE_DEFAULT:
            factor = self._defaults.default_replication_factor
        check_room(count, room)
        return placed_partitions(count, factor, brokers, self._place(count))


class Growth:
    """A decision that gives topics more partitions."""

    def __init__(self, requests: Sequence[NewPartitions], defaults: TopicDefaults) -> None:
        self._requests = requests
        self._defaults = defaults
        self._tried: dict[str, UUID] = {}

    def decide(self, state: ClusterState) -> Decided:
        decided = Decided([], [])
        room = MAX_PARTITIONS_PER_REQUEST
        grown: set[str] = set()
        counts = state.replica_counts.copy()
        for request in self._requests:
            try:
                topic = state.topics.get(request.name)
                if topic is None:
                    raise unknown_topic(request.name)
                if request.name in grown:
                    raise _duplicate()
                grown.add(request.name)
                done = len(topic.partitions) == request.total
                if not done or self._tried.get(topic.name) != topic.id:
                    added = additional_partitions(topic, request, state.brokers, room)
                    most = self._defaults.max_broker_partitions
                    check_brokers_have_room(added, counts, most)
                    room -= len(added)
                    self._tried[topic.name] = topic.id
                    first = len(topic.partitions)
                    decided.changes.append(PartitionsAdded(topic.name, first, added))
                decided.outcomes.append(topic)
            except ClusterError as error:
                decided.outcomes.append(error)
        return decided


class Deletion:
    """Deletes topics by name or id; the outcome is the topic that was."""

    def __init__(self, topics: Sequence[str | UUID]) -> None:
        self._topics = topics
        self._tried: dict[str | UUID, Topic] = {}

    def decide(self, state: ClusterState) -> Decided:
        decided = Decided([], [])
        gone: set[UUID] = set()
        for wanted in self._topics:
            topic = find_topic(state, wanted)
            tried = self._tried.get(wanted)
            if tried is not None and tried.id not in state.topics_by_id:
                decided.outcomes.append(tried)
            elif topic is None or topic.id in gone:
                decided.outcomes.append(unknown_topic(wanted))
            else:
                gone.add(topic.id)
                self._tried[wanted] = topic
                decided.changes.append(TopicDeleted(topic.name, topic.id))
                decided.outcomes.append(topic)
        return decided


def find_topic(state: ClusterState, wanted: str | UUID) -> Topic | None:
    if isinstance(wanted, UUID):
        return state.topics_by_id.get(wanted)
    return state.topics.get(wanted)


def check_name(name: str) -> None:
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        raise ClusterError(Error.INVALID_TOPIC_EXCEPTION, str(error)) from error


def check_configs(configs: Mapping[str, str], defaults: TopicDefaults) -> None:
    if configs:
        try:
            LogConfig.parse(configs, defaults.topic_defaults)
        except InvalidSetting as error:
            raise ClusterError(Error.INVALID_CONFIG, str(error)) from error


def unknown_topic(topic: str | UUID) -> ClusterError:
    if isinstance(topic, UUID):
        return ClusterError(Error.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    return ClusterError(
        Error.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
    )


def _duplicate() -> ClusterError:
    return ClusterError(Error.INVALID_REQUEST, "Duplicate topic name.")
