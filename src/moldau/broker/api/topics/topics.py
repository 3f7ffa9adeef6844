"""CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import named_topics, on_topics
from moldau.broker.api.topics.config_entries import ConfigEntry, topic_entries
from moldau.broker.api.topics.parts import TopicParts, handles
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation
from moldau.cluster.decisions.assignment import NewPartitions, NewTopic
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.topics import Topic
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.primitives import TopicKey

_NO_ID = UUID(int=0)
_DUPLICATE_NAME = ClusterError(Error.INVALID_REQUEST, "Duplicate topic name.")
_ALREADY_SUPPLIED = ClusterError(
    Error.INVALID_REQUEST, "the topic is given both by name and by id; give one"
)


def _refuse_creation(request: Request, error: ClusterError) -> Answer:
    topics = request.body.topics
    return {"topics": [{"name": t.name, "configs": (), **_failure(error)} for t in topics]}


@handles(
    Api.CREATE_TOPICS,
    (2, 7),
    on_topics(Operation.CREATE, named_topics, unless=Operation.CREATE),
    at_controller=_refuse_creation,
)
async def create_topics(parts: TopicParts, request: Request) -> Answer:
    """Return one answer per name: the topic with all its settings, or why it was refused."""
    body = request.body
    counts = Counter(topic.name for topic in body.topics)
    wanted = [_new_topic(topic) for topic in body.topics if counts[topic.name] == 1]
    results = await parts.controller.create_topics(wanted, validate_only=body.validate_only)
    await parts.replicas.caught_up()
    by_name = {topic.name: result for topic, result in zip(wanted, results, strict=True)}
    plain = _config_answers(parts, {})
    topics = []
    for name in counts:
        result = by_name.get(name, _DUPLICATE_NAME)
        if isinstance(result, ClusterError):
            topics.append({"name": name, "configs": (), **_failure(result)})
        else:
            configs = _config_answers(parts, result.configs) if result.configs else plain
            topics.append(_created(result, configs))
    return {"topics": topics}


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


def _topics_to_delete(request: Request) -> list[TopicKey]:
    return [id if name is None else name for name, id in _names_and_ids(request)]


@handles(
    Api.DELETE_TOPICS,
    (1, 6),
    on_topics(Operation.DELETE, _topics_to_delete),
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
        if name is None and _is_named_too(parts, id, counts):
            continue
        refusal = _refusal(parts, name, id, counts)
        if name is not None and refusal is _ALREADY_SUPPLIED:
            responses.append(_deleted(name, parts.node.state.topics[name].id, refusal))
        elif refusal is not None:
            responses.append(_deleted(name, id, refusal))
        else:
            wanted[id if name is None else name] = (name, id)
    results = await parts.controller.delete_topics(list(wanted))
    for (name, id), result in zip(wanted.values(), results, strict=True):
        if isinstance(result, Topic):
            responses.append({"name": result.name, "topic_id": result.id})
        else:
            responses.append(_deleted(name, id, result))
    return {"responses": responses}


def _names_and_ids(request: Request) -> list[tuple[str | None, UUID]]:
    if request.version >= 6:
        return [(topic.name, topic.topic_id or _NO_ID) for topic in request.body.topics]
    return [(name, _NO_ID) for name in request.body.topic_names]


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
    on_topics(Operation.ALTER, named_topics),
    at_controller=_refuse_growth,
)
async def create_partitions(parts: TopicParts, request: Request) -> Answer:
    """Add partitions to topics."""
    body = request.body
    counts = Counter(topic.name for topic in body.topics)
    wanted = [_new_partitions(topic) for topic in body.topics if counts[topic.name] == 1]
    results = await parts.controller.add_partitions(wanted, validate_only=body.validate_only)
    await parts.replicas.caught_up()
    by_name = {topic.name: result for topic, result in zip(wanted, results, strict=True)}
    answers = []
    for name in counts:
        result = by_name.get(name, _DUPLICATE_NAME)
        failure = _failure(result) if isinstance(result, ClusterError) else {}
        answers.append({"name": name, **failure})
    return {"results": answers}


def _new_partitions(topic: Any) -> NewPartitions:
    assignments = topic.assignments
    if assignments is not None:
        assignments = [tuple(each.broker_ids) for each in assignments]
    return NewPartitions(topic.name, topic.count, assignments)


def _failure(error: ClusterError) -> dict[str, Any]:
    return {"error_code": error.error, "error_message": error.message}
