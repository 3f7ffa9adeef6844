"""OffsetCommit, OffsetFetch and OffsetDelete."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any

from moldau.broker.api.groups.group_membership import when_done
from moldau.broker.api.groups.parts import GroupParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_groups, on_topics, the_group
from moldau.broker.coordination.groups.group import Commit
from moldau.broker.coordination.groups.offsets import Offsets
from moldau.broker.coordination.groups.records import CommittedOffset
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation, Resource
from moldau.cluster.errors import ClusterError
from moldau.topic_partition import TopicPartition
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.messages import milliseconds
from moldau.wire.primitives import TopicKey

# The versions since which topics go by their ids, and groups that are unknown are called so.
_TOPIC_IDS = 10
_UNKNOWN_GROUP = 9
# The first version in which OffsetFetch has its own error and asks for several groups.
_GROUP_ERROR = 2
_SEVERAL_GROUPS = 8

_NOTHING = Offsets()


def _refuse_commit(request: Request, error: ClusterError) -> Answer:
    return {
        "topics": [
            {
                **_named(topic.name if request.version < _TOPIC_IDS else topic.topic_id),
                "partitions": [
                    {"partition_index": each.partition_index, "error_code": error.error}
                    for each in topic.partitions
                ],
            }
            for topic in request.body.topics
        ]
    }


@handles(
    Api.OFFSET_COMMIT,
    (2, 10),
    on_groups(Operation.READ, the_group),
    on_topics(Operation.READ),
    refused=_refuse_commit,
)
def offset_commit(parts: GroupParts, request: Request) -> Answer | Awaitable[Answer]:
    """Answered once the offsets are on every in-sync replica."""
    body = request.body
    now_ms = parts.node.now_ms()
    expires_at = -1
    if request.version <= 4 and milliseconds(body.retention_time) != -1:
        expires_at = now_ms + milliseconds(body.retention_time)
    committed: dict[TopicPartition, CommittedOffset] = {}
    refused: dict[tuple[TopicKey, int], Error] = {}
    for topic in body.topics:
        key, name = _topic(parts, request, topic)
        may_read = not name or request.may_on_topic(Operation.READ, name)
        for each in topic.partitions:
            index = each.partition_index
            metadata = each.committed_metadata or ""
            error = Error.TOPIC_AUTHORIZATION_FAILED
            if may_read:
                error = _check(parts, key, name, index, metadata)
            if error:
                refused[key, index] = error
            else:
                epoch = getattr(each, "committed_leader_epoch", -1)
                committed[name, index] = CommittedOffset(
                    each.committed_offset, epoch, metadata, now_ms, expires_at
                )

    def tell(error: Error) -> Answer:
        if error is Error.GROUP_ID_NOT_FOUND and request.version < _UNKNOWN_GROUP:
            error = Error.ILLEGAL_GENERATION
        topics = []
        for topic in body.topics:
            key = topic.name if request.version < _TOPIC_IDS else topic.topic_id
            partitions = [
                {
                    "partition_index": each.partition_index,
                    "error_code": refused.get((key, each.partition_index), error),
                }
                for each in topic.partitions
            ]
            if partitions:
                topics.append({**_named(key), "partitions": partitions})
        return {"topics": topics}

    if refused and not committed:
        return tell(Error.NONE)
    answer = parts.groups.commit(
        body.group_id,
        Commit(
            body.member_id,
            getattr(body, "group_instance_id", None),
            body.generation_id_or_member_epoch,
            committed.keys(),
            request.version,
        ),
        committed,
    )
    return tell(answer) if isinstance(answer, Error) else when_done(answer, tell)


def _topic(parts: GroupParts, request: Request, topic: Any) -> tuple[TopicKey, str]:
    """Return the request's own name or id of a topic, and its name; no name for an unknown id."""
    if request.version < _TOPIC_IDS:
        return topic.name, topic.name
    return topic.topic_id, parts.partitions.topic_name(topic.topic_id)


def _named(key: TopicKey) -> dict[str, Any]:
    return {"name": key} if isinstance(key, str) else {"topic_id": key}


def _check(parts: GroupParts, key: TopicKey, name: str, index: int, metadata: str) -> Error:
    if not name and not isinstance(key, str):
        return Error.UNKNOWN_TOPIC_ID
    if parts.node.state.partition(name, index) is None:
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    if metadata and len(metadata.encode()) > parts.node.settings.offset_metadata_max_bytes:
        return Error.OFFSET_METADATA_TOO_LARGE
    return Error.NONE


@handles(
    Api.OFFSET_FETCH,
    (1, 10),
    on_groups(Operation.DESCRIBE),
    on_topics(Operation.DESCRIBE),
)
def offset_fetch(parts: GroupParts, request: Request) -> Answer:
    """Return what groups have committed; -1 where they have not."""
    body, version = request.body, request.version
    stable = getattr(body, "require_stable", False)
    if version >= _SEVERAL_GROUPS:
        groups = []
        for wanted in body.groups:
            member = (getattr(wanted, "member_id", None), getattr(wanted, "member_epoch", -1))
            error, topics = _fetch(parts, request, wanted.group_id, wanted.topics, stable, member)
            groups.append({"group_id": wanted.group_id, "error_code": error, "topics": topics})
        return {"groups": groups}
    error, topics = _fetch(parts, request, body.group_id, body.topics, stable)
    if version < _GROUP_ERROR and error:
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {**_fetched(index, None), "error_code": error}
                    for index in topic.partition_indexes
                ],
            }
            for topic in body.topics
        ]
    return {"error_code": error, "topics": topics}


def _fetch(
    parts: GroupParts,
    request: Request,
    group_id: str,
    wanted: Iterable[Any] | None,
    stable: bool,
    member: tuple[str | None, int] = (None, -1),
) -> tuple[Error, list[dict[str, Any]]]:
    if not request.may(Operation.DESCRIBE, Resource.GROUP, group_id):
        return Error.GROUP_AUTHORIZATION_FAILED, []
    held = parts.groups.find(group_id)
    if held is Error.GROUP_ID_NOT_FOUND:
        offsets = _NOTHING
    elif isinstance(held, Error):
        return held, []
    else:
        offsets = held.offsets
        error = held.group.check_fetch(*member)
        if error:
            return error, []
    if wanted is None:
        return Error.NONE, _fetch_all(parts, request, offsets, stable)
    topics: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    for topic in wanted:
        key, name = _topic(parts, request, topic)
        error = Error.NONE
        if not name and not isinstance(key, str):
            error = Error.UNKNOWN_TOPIC_ID
        elif not request.may_on_topic(Operation.DESCRIBE, name):
            error = Error.TOPIC_AUTHORIZATION_FAILED
        if error:
            partitions = [
                {**_fetched(index, None), "error_code": error} for index in topic.partition_indexes
            ]
        else:
            partitions = [
                _fetch_one(offsets, name, index, stable) for index in topic.partition_indexes
            ]
        is_denied = error is Error.TOPIC_AUTHORIZATION_FAILED
        (refused if is_denied else topics).append({**_named(key), "partitions": partitions})
    return Error.NONE, topics + refused


def _fetch_all(
    parts: GroupParts, request: Request, offsets: Offsets, stable: bool
) -> list[dict[str, Any]]:
    topics = []
    for name, committed in offsets.by_topic.items():
        if not request.may(Operation.DESCRIBE, Resource.TOPIC, name, quietly=True):
            continue
        key: TopicKey = name
        if request.version >= _TOPIC_IDS:
            known = parts.node.state.topics.get(name)
            if known is None:
                continue
            key = known.id
        partitions = [_fetch_one(offsets, name, index, stable) for index in committed]
        topics.append({**_named(key), "partitions": partitions})
    return topics


def _fetch_one(offsets: Offsets, topic: str, index: int, stable: bool) -> dict[str, Any]:
    if stable and offsets.is_unstable(topic, index):
        return {**_fetched(index, None), "error_code": Error.UNSTABLE_OFFSET_COMMIT}
    return _fetched(index, offsets.get(topic, index))


def _fetched(index: int, committed: CommittedOffset | None) -> dict[str, Any]:
    if committed is None:
        return {"partition_index": index, "committed_offset": -1, "metadata": ""}
    return {
        "partition_index": index,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
    }


@handles(
    Api.OFFSET_DELETE,
    (0, 0),
    on_groups(Operation.DELETE, the_group),
    on_topics(Operation.READ),
    refused=lambda request, error: {"error_code": error.error},
)
def offset_delete(parts: GroupParts, request: Request) -> Answer | Awaitable[Answer]:
    """Forget offsets of topics that no member of the group is subscribed to (KIP-496)."""
    body = request.body
    denied = {
        topic.name for topic in body.topics if not request.may_on_topic(Operation.READ, topic.name)
    }
    if not body.group_id:
        return {"error_code": Error.INVALID_GROUP_ID}
    held = parts.groups.find(body.group_id)
    if isinstance(held, Error):
        return {"error_code": held}
    group = held.group
    error = group.check_delete_offsets()
    if error:
        return {"error_code": error}
    partitions: list[TopicPartition] = []
    topics: list[dict[str, Any]] = []
    for topic in body.topics:
        if not topic.partitions:
            continue
        if topic.name in denied:
            topics.append(_refused(topic))
            continue
        errors = {}
        for each in topic.partitions:
            index = each.partition_index
            if parts.node.state.partition(topic.name, index) is None:
                errors[index] = Error.UNKNOWN_TOPIC_OR_PARTITION
            elif group.is_subscribed_to(topic.name):
                errors[index] = Error.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                errors[index] = Error.NONE
                partitions.append((topic.name, index))
        topics.append(
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": index, "error_code": error}
                    for index, error in errors.items()
                ],
            }
        )

    def tell(error: Error) -> Answer:
        return {"error_code": error} if error else {"topics": topics}

    return when_done(parts.groups.delete_offsets(held, partitions), tell)


def _refused(topic: Any) -> dict[str, Any]:
    denied = Error.TOPIC_AUTHORIZATION_FAILED
    return {
        "name": topic.name,
        "partitions": [
            {"partition_index": each.partition_index, "error_code": denied}
            for each in topic.partitions
        ],
    }
