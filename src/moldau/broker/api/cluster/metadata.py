"""Metadata: which brokers there are, and who leads what."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any
from uuid import UUID

from moldau.broker.api.cluster.parts import ClusterParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import Right, on_topics
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation, Resource
from moldau.cluster.decisions.assignment import NewTopic
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.internal_topics import INTERNAL_TOPICS
from moldau.cluster.state.topics import (
    NO_LEADER,
    InvalidTopicName,
    PartitionState,
    Topic,
    check_topic_name,
)
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.messages import encode_response
from moldau.wire.primitives import TopicKey

# The permitted operations, as Kafka's bit fields have them without an authorizer: bit n stands for
# operation n.
TOPIC_OPERATIONS = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))

_NO_ID = UUID(int=0)
# By one request, since creating holds up everybody else; the client asks again for the others.
_MOST_CREATED = 1000
# Before that, clients did not know the error for a leader without their listener.
_FIRST_WITH_LISTENERS = 6
# Before that, requests had room for ids, but answers none for topics without a name.
_FIRST_BY_ID = 12


def _named_or_by_id(request: Request) -> list[TopicKey]:
    """Return the topics that are asked for. Who asks for all is told of those that it may know
    of."""
    return [topic.name or topic.topic_id for topic in request.body.topics or ()]


@handles(
    Api.METADATA,
    (0, 13),
    on_topics(Operation.DESCRIBE, _named_or_by_id),
    Right(Operation.CREATE, Resource.TOPIC, unless=Operation.CREATE),
)
def metadata(parts: ClusterParts, request: Request) -> Answer | Awaitable[Answer]:
    """Answer from the cache, from the state, or after creating the topics that are missing."""
    context = request.context
    key = (request.version, context.local_host, context.local_port, request.raw)
    answer = parts.metadata_cache.get(parts.node.state.version, key)
    if answer is not None:
        return answer
    if request.version < _FIRST_BY_ID and _names_ids(request):
        return _refuse_ids(request)
    missing = _to_create(parts, request)
    if missing:
        return _create_and_answer(parts, request, missing)
    answer = encode_response(request.api, request.version, _describe(parts, request, {}))
    parts.metadata_cache.put(parts.node.state.version, key, answer)
    return answer


async def _create_and_answer(parts: ClusterParts, request: Request, missing: list[str]) -> Answer:
    results = await parts.controller.ensure_topics([NewTopic(name) for name in missing])
    await parts.replicas.caught_up()
    refused = {
        name: result
        for name, result in zip(missing, results, strict=True)
        if isinstance(result, ClusterError)
    }
    return _describe(parts, request, refused)


def _to_create(parts: ClusterParts, request: Request) -> list[str]:
    allowed = getattr(request.body, "allow_auto_topic_creation", True)
    if not allowed or not parts.node.settings.auto_create_topics_enable or _wants_all(request):
        return []
    names = (topic.name for topic in request.body.topics)
    known = parts.node.state.topics
    missing = [
        name
        for name in names
        # A coordinator creates its topic itself, with the settings that it needs.
        if name and name not in known and name not in INTERNAL_TOPICS and _is_legal(name)
    ]
    return missing[:_MOST_CREATED]


def _is_legal(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopicName:
        return False
    return True


def _wants_all(request: Request) -> bool:
    topics = request.body.topics
    # In v0 there is no null array; an empty one asked for everything.
    return topics is None or (request.version == 0 and not topics)


def _names_ids(request: Request) -> bool:
    return any(
        topic.name is None or getattr(topic, "topic_id", None) not in (None, _NO_ID)
        for topic in request.body.topics or ()
    )


def _refuse_ids(request: Request) -> Answer:
    topics = [
        {"error_code": Error.INVALID_REQUEST, "name": each.name or "", "topic_id": each.topic_id}
        for each in request.body.topics
    ]
    return {"brokers": (), "cluster_id": None, "controller_id": -1, "topics": topics}


def _describe(
    parts: ClusterParts, request: Request, refused: dict[str, ClusterError]
) -> dict[str, Any]:
    body = request.body
    operations = getattr(body, "include_topic_authorized_operations", False)
    leaders = _Leaders(parts, request)
    if _wants_all(request):
        topics = [_topic(leaders, topic, operations) for topic in parts.node.state.topics.values()]
    else:
        found = [
            _wanted_topic(parts, leaders, wanted, operations, refused) for wanted in body.topics
        ]
        # However often, and by name or by id, a topic is answered once.
        topics = list({(each["name"], each.get("topic_id")): each for each in found}.values())
    answer: dict[str, Any] = {
        "brokers": parts.brokers.describe(request.context, with_departed=bool(body.topics)),
        "cluster_id": parts.node.state.cluster_id,
        "controller_id": parts.node.state.controller_id,
        "topics": topics,
    }
    if getattr(body, "include_cluster_authorized_operations", False):
        answer["cluster_authorized_operations"] = CLUSTER_OPERATIONS
    return answer


class _Leaders:
    """The brokers that the client can reach, and the answer about a leader that it cannot."""

    def __init__(self, parts: ClusterParts, request: Request) -> None:
        self.reachable = parts.brokers.reachable(request.context.listener)
        self._registered = parts.node.state.brokers
        self._names_listeners = request.version >= _FIRST_WITH_LISTENERS

    def error(self, leader: int) -> Error:
        """Say why a leader cannot be reached."""
        if leader in self._registered and self._names_listeners:
            return Error.LISTENER_NOT_FOUND
        return Error.LEADER_NOT_AVAILABLE


def _wanted_topic(
    parts: ClusterParts,
    leaders: _Leaders,
    wanted: Any,
    operations: bool,
    refused: dict[str, ClusterError],
) -> dict[str, Any]:
    name, topic_id = wanted.name, getattr(wanted, "topic_id", None)
    if topic_id is not None and topic_id != _NO_ID:
        found = parts.node.state.topics_by_id.get(topic_id)
        if found is None:
            return {"error_code": Error.UNKNOWN_TOPIC_ID, "name": None, "topic_id": topic_id}
        return _topic(leaders, found, operations)
    name = name or ""
    found = parts.node.state.topics.get(name)
    if found is not None:
        return _topic(leaders, found, operations)
    if name in refused:
        code = refused[name].error
    else:
        code = (
            Error.UNKNOWN_TOPIC_OR_PARTITION if _is_legal(name) else Error.INVALID_TOPIC_EXCEPTION
        )
    answer = {"error_code": code, "name": name, "is_internal": name in INTERNAL_TOPICS}
    if operations:
        answer["topic_authorized_operations"] = TOPIC_OPERATIONS
    return answer


def _topic(leaders: _Leaders, topic: Topic, operations: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": topic.is_internal,
        "partitions": [
            _partition(leaders, index, state) for index, state in enumerate(topic.partitions)
        ],
    }
    if operations:
        answer["topic_authorized_operations"] = TOPIC_OPERATIONS
    return answer


def _partition(leaders: _Leaders, index: int, state: PartitionState) -> dict[str, Any]:
    reachable = leaders.reachable
    is_led = state.leader in reachable
    return {
        "error_code": Error.NONE if is_led else leaders.error(state.leader),
        "partition_index": index,
        "leader_id": state.leader if is_led else NO_LEADER,
        "leader_epoch": state.leader_epoch,
        "replica_nodes": state.replicas,
        "isr_nodes": state.isr,
        "offline_replicas": [each for each in state.replicas if each not in reachable],
    }
