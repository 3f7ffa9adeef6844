"""CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from moldau.broker.api.mutations import Mutations
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import Right, on_topics, refusal
from moldau.broker.api.topics.config_entries import ConfigEntry, topic_entries
from moldau.broker.api.topics.parts import TopicParts, handles
from moldau.broker.api.topics.quarantine_rights import check_quarantine
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation, Resource
from moldau.broker.security.principal import BROKER
from moldau.cluster.decisions.assignment import NewPartitions, NewTopic
from moldau.cluster.decisions.topics import find_topic
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.internal_topics import CLUSTER_METADATA_TOPIC
from moldau.cluster.state.topics import Topic
from moldau.wire.apis import Api
from moldau.wire.errors import Error

_NO_ID = UUID(int=0)
_DUPLICATE_NAME = ClusterError(Error.INVALID_REQUEST, "Duplicate topic name.")
_NOT_AUTHORIZED = ClusterError(Error.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
_ALREADY_SUPPLIED = ClusterError(
    Error.INVALID_REQUEST, "the topic is given both by name and by id; give one"
)


def _refuse_creation(request: Request, error: ClusterError) -> Answer:
    topics = request.body.topics
    return {"topics": [{"name": t.name, "configs": (), **_failure(error)} for t in topics]}


@handles(
    Api.CREATE_TOPICS,
    (2, 7),
    Right(Operation.CREATE, Resource.CLUSTER),
    on_topics(Operation.CREATE),
    on_topics(Operation.DESCRIBE_CONFIGS),
    at_controller=_refuse_creation,
)
async def create_topics(parts: TopicParts, request: Request) -> Answer:
    """Return one answer per name: the topic with all its settings, or why it was refused."""
    body = request.body
    counts = Counter(topic.name for topic in body.topics)
    may_create_all = request.may_on_cluster(Operation.CREATE, quietly=True)
    # What brokers need themselves, and nobody else asked for.
    is_broker = request.is_forwarded and request.context.principal.kind == BROKER
    denied = {
        name
        for name, count in counts.items()
        if count == 1
        and not may_create_all
        and name != CLUSTER_METADATA_TOPIC
        and not is_broker
        and not request.may_on_topic(Operation.CREATE, name)
    }
    wanted = [
        _new_topic(topic)
        for topic in body.topics
        if counts[topic.name] == 1 and topic.name not in denied
    ]
    mutations = Mutations(parts.quotas, request, strict_since=6)
    refused: dict[str, ClusterError] = {}
    for topic in wanted:
        partitions = len(topic.assignments) or topic.partitions
        # -1 asks for the default.
        count = partitions if partitions > 0 else parts.node.settings.num_partitions
        error = None if body.validate_only else mutations.take(count)
        if error is not None:
            refused[topic.name] = error
        try:
            check_quarantine(request, parts.node.state, topic.name, topic.configs, {})
        except ClusterError as problem:
            refused.setdefault(topic.name, problem)
    wanted = [topic for topic in wanted if topic.name not in refused]
    results = await parts.controller.create_topics(wanted, validate_only=body.validate_only)
    await parts.replicas.caught_up()
    by_name = {topic.name: result for topic, result in zip(wanted, results, strict=True)}
    plain = _config_answers(parts, {})
    topics = []
    for name in counts:
        result = by_name.get(name) or refused.get(name, _DUPLICATE_NAME)
        if name in denied:
            result = _NOT_AUTHORIZED
        if isinstance(result, ClusterError):
            topics.append({"name": name, "configs": (), **_failure(result)})
        elif not request.may(Operation.DESCRIBE_CONFIGS, Resource.TOPIC, name, quietly=True):
            topics.append(_created_out_of_sight(result))
        else:
            configs = _config_answers(parts, result.configs) if result.configs else plain
            topics.append(_created(result, configs))
    return mutations.told({"topics": topics})


def _new_topic(topic: Any) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(each.partition_index, tuple(each.broker_ids)) for each in topic.assignments],
        {config.name: config.value for config in topic.configs},
    )


def _created(topic: Topic, configs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.id,
        "num_partitions": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "configs": configs,
    }


def _created_out_of_sight(topic: Topic) -> dict[str, Any]:
    """Return what somebody is told who may create a topic, but not describe its settings."""
    return {
        "name": topic.name,
        "topic_id": topic.id,
        "topic_config_error_code": Error.TOPIC_AUTHORIZATION_FAILED,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": (),
    }


def _config_answers(parts: TopicParts, configs: dict[str, str]) -> list[dict[str, Any]]:
    def answer(entry: ConfigEntry) -> dict[str, Any]:
        return {
            "name": entry.name,
            "value": entry.value,
            "read_only": entry.read_only,
            "config_source": entry.source,
        }

    dynamic = parts.node.state.broker_configs
    entries = topic_entries(configs, parts.node.settings, dynamic, all_units=True)
    return [answer(entry) for entry in sorted(entries, key=lambda entry: entry.name)]


def _refuse_deletion(request: Request, error: ClusterError) -> Answer:
    return {"responses": [_deleted(name, id, error) for name, id in _names_and_ids(request)]}


@handles(
    Api.DELETE_TOPICS,
    (1, 6),
    Right(Operation.DELETE, Resource.CLUSTER),
    on_topics(Operation.DELETE),
    on_topics(Operation.DESCRIBE),
    at_controller=_refuse_deletion,
)
async def delete_topics(parts: TopicParts, request: Request) -> Answer:
    """Topics by name, and since v6 by id; each at most once."""
    pairs = _names_and_ids(request)
    if not parts.node.settings.delete_topic_enable:
        # The code is unknown to clients that speak older versions.
        code = Error.TOPIC_DELETION_DISABLED if request.version >= 3 else Error.INVALID_REQUEST
        disabled = ClusterError(code, "Topic deletion is disabled.")
        return {"responses": [_deleted(name, id, disabled) for name, id in pairs]}
    counts = Counter(pairs)
    responses = []
    wanted: dict[str | UUID, tuple[str | None, UUID]] = {}
    for name, id in counts:
        denied = _deletion_denied(parts, request, name, id, counts)
        if denied is not None:
            responses.append(denied)
            continue
        if name is None and _is_named_too(parts, id, counts):
            continue
        problem = _refusal(parts, name, id, counts)
        if name is not None and problem is _ALREADY_SUPPLIED:
            responses.append(_deleted(name, parts.node.state.topics[name].id, problem))
        elif problem is not None:
            responses.append(_deleted(name, id, problem))
        else:
            wanted[id if name is None else name] = (name, id)
    mutations = Mutations(parts.quotas, request, strict_since=5)
    for key in list(wanted):
        topic = find_topic(parts.node.state, key)
        error = mutations.take(0 if topic is None else len(topic.partitions))
        if error is not None:
            responses.append(_deleted(*wanted.pop(key), error))
    results = await parts.controller.delete_topics(list(wanted))
    for (name, id), result in zip(wanted.values(), results, strict=True):
        if isinstance(result, Topic):
            responses.append({"name": result.name, "topic_id": result.id})
        else:
            responses.append(_deleted(name, id, result))
    return mutations.told({"responses": responses})


def _names_and_ids(request: Request) -> list[tuple[str | None, UUID]]:
    if request.version >= 6:
        return [(topic.name, topic.topic_id or _NO_ID) for topic in request.body.topics]
    return [(name, _NO_ID) for name in request.body.topic_names]


def _deletion_denied(
    parts: TopicParts,
    request: Request,
    name: str | None,
    id: UUID,
    counts: Counter[tuple[str | None, UUID]],
) -> dict[str, Any] | None:
    """Return the answer for a topic that may not be deleted. One that may not even be seen is
    answered alike whether it exists or not."""
    if request.authorizer is None or (name is None) == (id == _NO_ID) or counts[name, id] > 1:
        return None
    if request.may_on_cluster(Operation.DELETE, quietly=True):
        return None
    topic = parts.node.state.topics_by_id.get(id) if name is None else None
    if name is None and topic is None:
        return None
    known = topic.name if topic is not None else str(name)
    if request.may_on_topic(Operation.DELETE, known):
        return None
    if name is None:
        may_know = request.may(Operation.DESCRIBE, Resource.TOPIC, known, quietly=True)
        return _deleted(known if may_know else None, id, refusal(Resource.TOPIC))
    if known not in parts.node.state.topics and request.may(
        Operation.DESCRIBE, Resource.TOPIC, known, quietly=True
    ):
        return None
    return _deleted(name, _NO_ID, refusal(Resource.TOPIC))


def _refusal(
    parts: TopicParts, name: str | None, id: UUID, counts: Counter[tuple[str | None, UUID]]
) -> ClusterError | None:
    if name is None and id == _NO_ID:
        return ClusterError(Error.INVALID_REQUEST, "a topic has neither a name nor an id")
    if name is not None and id != _NO_ID:
        return ClusterError(Error.INVALID_REQUEST, "a topic has both a name and an id; give one")
    if counts[name, id] > 1:
        what = "id" if name is None else "name"
        return ClusterError(Error.INVALID_REQUEST, f"Duplicate topic {what}.")
    if name is not None:
        topic = parts.node.state.topics.get(name)
        if topic is not None and (None, topic.id) in counts:
            return _ALREADY_SUPPLIED
    return None


def _is_named_too(parts: TopicParts, id: UUID, counts: Counter[tuple[str | None, UUID]]) -> bool:
    """Return whether the topic is given by name as well, and is refused under that."""
    topic = parts.node.state.topics_by_id.get(id)
    return topic is not None and counts[None, id] == counts[topic.name, _NO_ID] == 1


def _deleted(name: str | None, id: UUID, error: ClusterError) -> dict[str, Any]:
    return {"name": name, "topic_id": id, **_failure(error)}


def _refuse_growth(request: Request, error: ClusterError) -> Answer:
    return {"results": [{"name": t.name, **_failure(error)} for t in request.body.topics]}


@handles(
    Api.CREATE_PARTITIONS,
    (0, 3),
    on_topics(Operation.ALTER),
    at_controller=_refuse_growth,
)
async def create_partitions(parts: TopicParts, request: Request) -> Answer:
    """Add partitions to topics."""
    body = request.body
    counts = Counter(topic.name for topic in body.topics)
    denied = {
        name
        for name, count in counts.items()
        if count == 1 and not request.may_on_topic(Operation.ALTER, name)
    }
    wanted = [
        _new_partitions(topic)
        for topic in body.topics
        if counts[topic.name] == 1 and topic.name not in denied
    ]
    mutations = Mutations(parts.quotas, request, strict_since=3)
    refused: dict[str, ClusterError] = {}
    for topic in wanted:
        known = parts.node.state.topics.get(topic.name)
        added = 0 if known is None else max(topic.total - len(known.partitions), 0)
        error = None if body.validate_only else mutations.take(added)
        if error is not None:
            refused[topic.name] = error
    wanted = [topic for topic in wanted if topic.name not in refused]
    results = await parts.controller.add_partitions(wanted, validate_only=body.validate_only)
    await parts.replicas.caught_up()
    by_name = {topic.name: result for topic, result in zip(wanted, results, strict=True)}
    answers = []
    for name in counts:
        if name in denied:
            answers.append({"name": name, "error_code": Error.TOPIC_AUTHORIZATION_FAILED})
            continue
        result = by_name.get(name) or refused.get(name, _DUPLICATE_NAME)
        failure = _failure(result) if isinstance(result, ClusterError) else {}
        answers.append({"name": name, **failure})
    return mutations.told({"results": answers})


def _new_partitions(topic: Any) -> NewPartitions:
    assignments = topic.assignments
    if assignments is not None:
        assignments = [tuple(each.broker_ids) for each in assignments]
    return NewPartitions(topic.name, topic.count, assignments)


def _failure(error: ClusterError) -> dict[str, Any]:
    return {"error_code": error.error, "error_message": error.message}
