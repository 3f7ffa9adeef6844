"""DescribeTopicPartitions: Metadata in pages (KIP-966)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_topics
from moldau.broker.api.topics.parts import TopicParts, handles
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation, Resource
from moldau.cluster.state.internal_topics import INTERNAL_TOPICS
from moldau.cluster.state.topics import (
    NO_LEADER,
    InvalidTopicName,
    PartitionState,
    check_topic_name,
)
from moldau.wire.apis import Api
from moldau.wire.errors import Error

# Kafka's max.request.partition.size.limit.
MAX_PARTITIONS = 2000
# Kafka's value for operations that were not looked up.
UNKNOWN = -(1 << 31)


@handles(Api.DESCRIBE_TOPIC_PARTITIONS, (0, 0), on_topics(Operation.DESCRIBE))
def describe_topic_partitions(parts: TopicParts, request: Request) -> Answer:
    """Topics in the order of their names, from the cursor to the limit, and the next cursor."""
    body = request.body
    cursor = body.cursor
    asked = {topic.name for topic in body.topics}
    if cursor is not None and (
        cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)
    ):
        return {"topics": [_refused(name, Error.INVALID_REQUEST) for name in sorted(asked)]}
    first_topic = cursor.topic_name if cursor is not None else ""
    first_partition = cursor.partition_index if cursor is not None else 0
    names = sorted(name for name in asked or parts.node.state.topics if name >= first_topic)
    hidden = []
    if request.authorizer is not None:
        # Who asks for all topics is told of those that it may know of.
        may_know = {
            name
            for name in names
            if request.may(Operation.DESCRIBE, Resource.TOPIC, name, quietly=not asked)
        }
        if asked:
            denied = Error.TOPIC_AUTHORIZATION_FAILED
            hidden = [
                _refused(name, denied) | {"is_internal": False}
                for name in names
                if name not in may_know
            ]
        names = [name for name in names if name in may_know]
    left = max(1, min(body.response_partition_limit, MAX_PARTITIONS))
    reachable = parts.brokers.reachable(request.context.listener)
    topics: list[dict[str, Any]] = []
    for name in names:
        if left == 0:
            return _page(topics + hidden, name, 0)
        topic = parts.node.state.topics.get(name)
        if topic is None:
            operations = request.operations(Resource.TOPIC, name)
            unknown = _refused(name, _why_unknown(name))
            topics.append(unknown | {"topic_authorized_operations": operations})
            continue
        first = first_partition if name == first_topic else 0
        last = min(len(topic.partitions), first + left)
        partitions = [
            _described(reachable, index, topic.partitions[index]) for index in range(first, last)
        ]
        topics.append(
            {
                "name": name,
                "topic_id": topic.id,
                "is_internal": topic.is_internal,
                "partitions": partitions,
                "topic_authorized_operations": request.operations(Resource.TOPIC, name),
            }
        )
        if last < len(topic.partitions):
            return _page(topics + hidden, name, last)
        left -= len(partitions)
    return {"topics": topics + hidden}


def _page(topics: Iterable[dict[str, Any]], name: str, index: int) -> Answer:
    return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": index}}


def _why_unknown(name: str) -> Error:
    try:
        check_topic_name(name)
    except InvalidTopicName:
        return Error.INVALID_TOPIC_EXCEPTION
    return Error.UNKNOWN_TOPIC_OR_PARTITION


def _refused(name: str, error: Error) -> dict[str, Any]:
    return {
        "name": name,
        "error_code": error,
        "is_internal": name in INTERNAL_TOPICS,
        "topic_authorized_operations": UNKNOWN,
    }


def _described(reachable: Collection[int], index: int, state: PartitionState) -> dict[str, Any]:
    return {
        "partition_index": index,
        "leader_id": state.leader if state.leader in reachable else NO_LEADER,
        "leader_epoch": state.leader_epoch,
        "replica_nodes": state.replicas,
        "isr_nodes": state.isr,
        "eligible_leader_replicas": state.elr,
        "last_known_elr": state.last_known_elr,
        "offline_replicas": [each for each in state.replicas if each not in reachable],
    }
