"""Metadata: which brokers there are, and who leads what."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any
from uuid import UUID

from moldau.broker.api.cluster.parts import ClusterParts, handles
from moldau.broker.api.mutations import Mutations
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import Right, cluster_operations, on_topics, refusal
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

_NO_ID = UUID(int=0)
# By one request, since creating holds up everybody else; the client asks again for the others.
_MOST_CREATED = 1000
# Before that, clients did not know the error for a leader without their listener.
_FIRST_WITH_LISTENERS = 6
# Before that, requests had room for ids, but answers none for topics without a name.
_FIRST_BY_ID = 12


@handles(
    Api.METADATA,
    (0, 13),
    on_topics(Operation.DESCRIBE),
    Right(Operation.CREATE, Resource.CLUSTER),
    on_topics(Operation.CREATE),
)
def metadata(parts: ClusterParts, request: Request) -> Answer | Awaitable[Answer]:
    """Answer from the cache, from the state, or after creating the topics that are missing."""
    parts.brokers.check_current()
    context = request.context
    asker = None
    if request.authorizer is not None:
        # What one may see is none of another's business.
        asker = (context.principal, context.client_host)
    key = (request.version, context.local_host, context.local_port, request.raw, asker)
    # The audit may have to see every admission.
    may_remember = request.authorizer is None or request.authorizer.may_remember
    answer = parts.metadata_cache.get(parts.node.state.version, key) if may_remember else None
    if answer is not None:
        return answer
    if request.version < _FIRST_BY_ID and _names_ids(request):
        return _refuse_ids(request)
    missing = _to_create(parts, request)
    refused = _may_not_create(request, missing)
    missing = [name for name in missing if name not in refused]
    if missing:
        return _create_and_answer(parts, request, missing[:_MOST_CREATED], refused)
    described = _describe(parts, request, refused)
    answer = encode_response(request.api, request.version, described)
    is_denied = asker is not None and any(_is_denied(each) for each in described["topics"])
    if may_remember and not is_denied:
        # A refusal is to be seen by the audit each time.
        parts.metadata_cache.put(parts.node.state.version, key, answer)
    return answer


def _is_denied(topic: dict[str, Any]) -> bool:
    return topic.get("error_code") is Error.TOPIC_AUTHORIZATION_FAILED


def _may_not_create(request: Request, missing: list[str]) -> dict[str, ClusterError]:
    if not missing or request.may_on_cluster(Operation.CREATE, quietly=True):
        return {}
    denied = refusal(Resource.TOPIC)
    return {name: denied for name in missing if not request.may_on_topic(Operation.CREATE, name)}


async def _create_and_answer(
    parts: ClusterParts, request: Request, missing: list[str], refused: dict[str, ClusterError]
) -> Answer:
    mutations = Mutations(parts.quotas, request, strict_since=0)
    if parts.controller.is_active:
        # Another controller counts them itself.
        size = parts.node.settings.num_partitions
        missing = [name for name in missing if mutations.take(size) is None]
    new = [NewTopic(name) for name in missing]
    results = await parts.controller.ensure_topics(new, request.context)
    await parts.replicas.caught_up()
    refused |= {
        name: result
        for name, result in zip(missing, results, strict=True)
        # Clients do not expect it here: for now the topic is unknown, and they ask again.
        if isinstance(result, ClusterError) and result.error is not Error.THROTTLING_QUOTA_EXCEEDED
    }
    return mutations.told(_describe(parts, request, refused))


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
    if request.authorizer is None:
        return missing
    return [name for name in missing if request.may_on_topic(Operation.DESCRIBE, name)]


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
    leaders = _Leaders(parts, request)
    if _wants_all(request):
        known = parts.node.state.topics.values()
        topics = [_topic(leaders, topic) for topic in known if leaders.may_show(topic.name)]
    else:
        found = [_wanted_topic(parts, leaders, wanted, refused) for wanted in body.topics]
        # However often, and by name or by id, a topic is answered once.
        topics = list({(each["name"], each.get("topic_id")): each for each in found}.values())
    answer: dict[str, Any] = {
        "brokers": parts.brokers.describe(request.context, with_departed=bool(body.topics)),
        "cluster_id": parts.node.state.cluster_id,
        "controller_id": parts.node.state.controller_id,
        "topics": topics,
    }
    if getattr(body, "include_cluster_authorized_operations", False):
        answer["cluster_authorized_operations"] = cluster_operations(request)
    return answer


class _Leaders:
    """The brokers that the client can reach, and the answer about a leader that it cannot; what it
    may know of topics, and do to them."""

    def __init__(self, parts: ClusterParts, request: Request) -> None:
        self._request = request
        self._is_named = not _wants_all(request)
        self._tells_operations = getattr(request.body, "include_topic_authorized_operations", False)
        self.reachable = parts.brokers.reachable(request.context.listener)
        self._registered = parts.node.state.brokers
        self._names_listeners = request.version >= _FIRST_WITH_LISTENERS

    def may_show(self, topic: str) -> bool:
        """Return whether the client may know of a topic."""
        if self._request.authorizer is None:
            return True
        return self._request.may(
            Operation.DESCRIBE, Resource.TOPIC, topic, quietly=not self._is_named
        )

    def operations(self, topic: str) -> dict[str, int]:
        """Return what the client may do to a topic, if it wants to know."""
        if not self._tells_operations:
            return {}
        return {"topic_authorized_operations": self._request.operations(Resource.TOPIC, topic)}

    def error(self, leader: int) -> Error:
        """Say why a leader cannot be reached."""
        if leader in self._registered and self._names_listeners:
            return Error.LISTENER_NOT_FOUND
        return Error.LEADER_NOT_AVAILABLE


def _wanted_topic(
    parts: ClusterParts,
    leaders: _Leaders,
    wanted: Any,
    refused: dict[str, ClusterError],
) -> dict[str, Any]:
    denied = Error.TOPIC_AUTHORIZATION_FAILED
    name, topic_id = wanted.name, getattr(wanted, "topic_id", None)
    if topic_id is not None and topic_id != _NO_ID:
        found = parts.node.state.topics_by_id.get(topic_id)
        if found is None:
            return {"error_code": Error.UNKNOWN_TOPIC_ID, "name": None, "topic_id": topic_id}
        if not leaders.may_show(found.name):
            return {"error_code": denied, "name": None, "topic_id": topic_id}
        return _topic(leaders, found)
    name = name or ""
    if not leaders.may_show(name):
        return {"error_code": denied, "name": name}
    found = parts.node.state.topics.get(name)
    if found is not None:
        return _topic(leaders, found)
    if name in refused:
        code = refused[name].error
    else:
        code = (
            Error.UNKNOWN_TOPIC_OR_PARTITION if _is_legal(name) else Error.INVALID_TOPIC_EXCEPTION
        )
    answer = {"error_code": code, "name": name, "is_internal": name in INTERNAL_TOPICS}
    return answer if code is denied else answer | leaders.operations(name)


def _topic(leaders: _Leaders, topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": topic.is_internal,
        "partitions": [
            _partition(leaders, index, state) for index, state in enumerate(topic.partitions)
        ],
        **leaders.operations(topic.name),
    }


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
