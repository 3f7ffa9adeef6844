"""Topics: listed, described, created, changed and deleted."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from moldau.console.call import Call
from moldau.console.endpoint import Done, endpoint
from moldau.console.errors import ApiError, check
from moldau.console.sampling.groups import committed_offsets, lags
from moldau.console.sampling.state import (
    ClusterState,
    bounds,
    node_of,
    operation_names,
    read_state,
    read_topic,
    sizes,
)
from moldau.peer.errors import PeerError, Refused
from moldau.peer.groups import Groups
from moldau.peer.share_groups import SHARE
from moldau.schemas.errors import SchemaError
from moldau.wire.apis import Api
from moldau.wire.errors import Error

# Of so few partitions, leaders are asked each time; of more, the last sample is shown.
_FEW = 500
_TIMEOUT_MS = 10_000
_TOPIC_RESOURCE = 2
_SET, _DELETE = 0, 1
_SOURCES = {
    1: "topic", 2: "broker", 3: "brokers", 4: "file", 5: "default", 6: "logger", 7: "client",
    8: "group",
}  # fmt: skip
_TYPES = {
    1: "boolean", 2: "string", 3: "int", 4: "short", 5: "long", 6: "double", 7: "list", 8: "class",
    9: "password",
}  # fmt: skip
# Groups whose offsets are looked at for the consumers of a topic.
_MOST_GROUPS = 200

Name = Annotated[str, Meta(min_length=1, max_length=249)]


class TopicRow(msgspec.Struct):
    """A topic in the list. `messages` counts offsets: compacted and control ones are among them."""

    name: str
    internal: bool
    partitions: int
    replication: int
    messages: int | None
    bytes: int | None
    under_replicated: int
    rate_msgs: float | None


class TopicList(msgspec.Struct):
    topics: list[TopicRow]


class TopicFilter(msgspec.Struct):
    """`q` is part of the name; `internal` shows the brokers' own topics, too."""

    q: str = ""
    internal: bool = False


class PartitionInfo(msgspec.Struct):
    partition: int
    leader: int
    epoch: int
    replicas: list[int]
    in_sync: list[int]
    eligible: list[int]
    start: int | None
    end: int | None
    bytes: int | None


class Config(msgspec.Struct):
    """A setting in force, and where its value comes from."""

    name: str
    value: str | None
    source: str
    is_default: bool
    read_only: bool
    sensitive: bool
    type: str
    documentation: str


class TopicGroup(msgspec.Struct):
    group: str
    lag: int


class TopicSubject(msgspec.Struct):
    subject: str
    type: str
    version: int


class TopicInfo(msgspec.Struct):
    name: str
    id: str
    internal: bool
    partitions: list[PartitionInfo]
    configs: list[Config]
    groups: list[TopicGroup]
    subjects: list[TopicSubject]
    operations: list[str] | None


class NewTopic(msgspec.Struct):
    """A topic to create; -1 leaves a number to the brokers. `preview` only checks it."""

    name: Name
    partitions: Annotated[int, Meta(ge=-1, le=100_000)] = -1
    replication_factor: Annotated[int, Meta(ge=-1, le=1000)] = -1
    configs: dict[str, str] = {}
    preview: bool = False


class Created(msgspec.Struct):
    name: str
    partitions: int
    replication: int


class ConfigChange(msgspec.Struct):
    """Settings to give a value, and those to put back to their defaults."""

    set: dict[str, str] = {}
    delete: list[str] = []


class PartitionCount(msgspec.Struct):
    count: Annotated[int, Meta(ge=1, le=100_000)]


@endpoint("GET", "api/topics")
def list_topics(call: Call, asked: TopicFilter) -> TopicList:
    """List topics, by name."""
    state = read_state(call.cluster)
    wanted = asked.q.lower()
    names = [
        name
        for name, topic in sorted(state.topics.items())
        if wanted in name.lower() and (asked.internal or not topic.is_internal)
    ]
    sample = call.console.watch.fresh()
    places = state.places(names)
    known: dict[Any, tuple[int, int]] = {}
    if len(places) <= _FEW or sample is None:
        known = bounds(call.cluster, state, places)
    else:
        known = {place: sample.bounds[place] for place in places if place in sample.bounds}
        missing = [place for place in places if place not in known]
        known |= bounds(call.cluster, state, missing)
    rows = []
    for name in names:
        topic = state.topics[name]
        at = [(name, index) for index in topic.partitions]
        is_known = all(place in known for place in at)
        is_sized = sample is not None and all(place in sample.sizes for place in at)
        rows.append(
            TopicRow(
                name,
                topic.is_internal,
                len(topic.partitions),
                max((len(each.replicas) for each in topic.partitions.values()), default=0),
                sum(known[place][1] - known[place][0] for place in at) if is_known else None,
                sum(sample.sizes[place] for place in at) if sample and is_sized else None,
                sum(each.is_under_replicated for each in topic.partitions.values()),
                None if sample is None else sample.rates.get(name),
            )
        )
    return TopicList(rows)


@endpoint("GET", "api/topics/{topic}")
def get_topic(call: Call) -> TopicInfo:
    """Describe a topic: partitions, settings, groups that read it, schemas."""
    name = call.path["topic"]
    state, topic = read_topic(call.cluster, name)
    known = bounds(call.cluster, state, state.places())
    by_broker = sizes(call.cluster, state)
    eligible = _eligible(call, name)
    partitions = []
    for index, part in topic.partitions.items():
        start, end = known.get((name, index), (None, None))
        size = by_broker.get(part.leader, {}).get((name, index))
        partitions.append(
            PartitionInfo(
                index, part.leader, part.epoch, list(part.replicas), list(part.in_sync),
                eligible.get(index, []), start, end, size,
            )
        )  # fmt: skip
    return TopicInfo(
        name,
        topic.id,
        topic.is_internal,
        partitions,
        read_configs(call, name),
        _groups_of(call, state, name),
        _subjects_of(call, name),
        operation_names(topic.operations),
    )


@endpoint("GET", "api/topics/{topic}/configs")
def get_configs(call: Call) -> list[Config]:
    """List the settings in force for a topic, with what each means."""
    read_topic(call.cluster, call.path["topic"])
    return read_configs(call, call.path["topic"])


def _eligible(call: Call, name: str) -> dict[int, list[int]]:
    """Return the replicas out of sync that may lead all the same (KIP-966), where brokers tell."""
    values = {"topics": [{"name": name}], "response_partition_limit": 2000, "cursor": None}
    try:
        answer = call.cluster.some_broker().ask(Api.DESCRIBE_TOPIC_PARTITIONS, values)
    except PeerError:
        return {}
    return {
        int(part.partition_index): list(map(int, part.eligible_leader_replicas or ()))
        for topic in answer.topics
        for part in topic.partitions
    }


def read_configs(call: Call, name: str) -> list[Config]:
    """Return the settings of a topic; none if we may not see them."""
    resource = {
        "resource_type": _TOPIC_RESOURCE, "resource_name": name, "configuration_keys": None,
    }  # fmt: skip
    values = {"resources": [resource], "include_synonyms": False, "include_documentation": True}
    cluster = call.cluster
    answer = cluster.insist(lambda: cluster.some_broker().ask(Api.DESCRIBE_CONFIGS, values))
    (told,) = answer.results
    if told.error_code == Error.TOPIC_AUTHORIZATION_FAILED:
        return []
    check(told.error_code, f"settings of {name!r}", told.error_message)
    return [
        Config(
            str(each.name),
            each.value,
            _SOURCES.get(int(each.config_source), "other"),
            int(each.config_source) == 5,
            bool(each.read_only),
            bool(each.is_sensitive),
            _TYPES.get(int(getattr(each, "config_type", 0)), "string"),
            str(getattr(each, "documentation", None) or ""),
        )
        for each in sorted(told.configs, key=lambda each: str(each.name))
    ]


def _groups_of(call: Call, state: ClusterState, topic: str) -> list[TopicGroup]:
    """Return the groups that have committed offsets of a topic, and how far each is behind."""
    found: dict[str, int] = {}
    sample = call.console.watch.fresh() if call.is_own else None
    try:
        listed = [each for each in Groups(call.cluster).listed() if each.kind != SHARE]
        if sample is not None and len(listed) > _MOST_GROUPS:
            known = {each.name for each in listed}
            names = [
                name
                for name, lag in sample.lags.items()
                if name in known and topic in _topics(lag.partitions)
            ]
        else:
            names = [each.name for each in listed[:_MOST_GROUPS]]
        committed = {
            name: {place: at for place, at in offsets.items() if place[0] == topic}
            for name, offsets in committed_offsets(call.cluster, names).items()
        }
        committed = {name: offsets for name, offsets in committed.items() if offsets}
        for name, lag in lags(call.cluster, state, committed, most_looks=0).items():
            found[name] = lag.lag
    except PeerError:
        # We may not see groups; the topic can be shown without them.
        return []
    return [TopicGroup(name, lag) for name, lag in sorted(found.items())]


def _topics(places: Any) -> set[str]:
    return {topic for topic, _ in places}


def _subjects_of(call: Call, topic: str) -> list[TopicSubject]:
    registry = call.console.registry_of(call.visitor)
    found = []
    if registry is not None:
        for subject in (f"{topic}-key", f"{topic}-value"):
            with suppress(SchemaError):
                version = registry.version(subject)
                found.append(TopicSubject(subject, version.type.value, version.version))
    return found


@endpoint("POST", "api/topics", status=201)
def create_topic(call: Call, asked: NewTopic) -> Created:
    """Create a topic."""
    configs = [{"name": name, "value": text} for name, text in asked.configs.items()]
    topic = {
        "name": asked.name, "num_partitions": asked.partitions,
        "replication_factor": asked.replication_factor, "assignments": [], "configs": configs,
    }  # fmt: skip
    values = {"topics": [topic], "timeout": _TIMEOUT_MS, "validate_only": asked.preview}
    (told,) = at_controller(call, Api.CREATE_TOPICS, values).topics
    check(told.error_code, f"topic {asked.name!r}", told.error_message)
    if not asked.preview:
        call.note("created topic", topic=asked.name, configs=asked.configs)
    return Created(asked.name, int(told.num_partitions), int(told.replication_factor))


@endpoint("DELETE", "api/topics/{topic}")
def delete_topic(call: Call) -> Done:
    """Delete a topic with all its messages."""
    name = call.path["topic"]
    values = {
        "topics": [{"name": name, "topic_id": None}], "topic_names": [name], "timeout": _TIMEOUT_MS,
    }  # fmt: skip
    (told,) = at_controller(call, Api.DELETE_TOPICS, values).responses
    check(told.error_code, f"topic {name!r}", getattr(told, "error_message", None))
    call.note("deleted topic", topic=name)
    return Done()


@endpoint("PATCH", "api/topics/{topic}/configs")
def change_configs(call: Call, asked: ConfigChange) -> list[Config]:
    """Change settings of a topic; the others stay as they are."""
    name = call.path["topic"]
    both = sorted(asked.set.keys() & set(asked.delete))
    if both:
        raise ApiError(422, "invalid", f"{both[0]} is both set and deleted")
    changes = [
        {"name": key, "config_operation": _SET, "value": text} for key, text in asked.set.items()
    ]
    changes += [
        {"name": key, "config_operation": _DELETE, "value": None}
        for key in dict.fromkeys(asked.delete)
    ]
    if changes:
        resource = {
            "resource_type": _TOPIC_RESOURCE, "resource_name": name, "configs": changes,
        }  # fmt: skip
        values = {"resources": [resource], "validate_only": False}
        (told,) = at_controller(call, Api.INCREMENTAL_ALTER_CONFIGS, values).responses
        check(told.error_code, f"settings of {name!r}", told.error_message)
        call.note("changed settings", topic=name, set=asked.set, delete=asked.delete)
    return read_configs(call, name)


@endpoint("POST", "api/topics/{topic}/partitions")
def add_partitions(call: Call, asked: PartitionCount) -> Done:
    """Let a topic have so many partitions, which must be more than it has."""
    name = call.path["topic"]
    topic = {"name": name, "count": asked.count, "assignments": None}
    values = {"topics": [topic], "timeout": _TIMEOUT_MS, "validate_only": False}
    (told,) = at_controller(call, Api.CREATE_PARTITIONS, values).results
    check(told.error_code, f"topic {name!r}", told.error_message)
    call.note("added partitions", topic=name, count=asked.count)
    return Done()


def at_controller(call: Call, api: Api, values: dict[str, Any]) -> Any:
    """Ask the controller, wherever it is by now."""
    cluster = call.cluster

    def ask() -> Any:
        state = read_state(cluster, ())
        if state.controller not in state.brokers:
            raise Refused(Error.BROKER_NOT_AVAILABLE, "the controller")
        return cluster.to(node_of(state, state.controller)).ask(api, values)

    return cluster.insist(ask)
