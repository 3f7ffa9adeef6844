"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets."""

from __future__ import annotations

import asyncio
from typing import Any

from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import FAILED, on_groups, on_topics, the_group
from moldau.broker.api.sharing.acknowledging import NO_TOPIC
from moldau.broker.api.sharing.parts import SharingParts, handles
from moldau.broker.coordination.groups.held import HeldGroup
from moldau.broker.coordination.groups.share.group import ShareGroup
from moldau.broker.coordination.groups.share.records import KnownTopic
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation, Resource
from moldau.cluster.decisions.features import share_version
from moldau.cluster.errors import ClusterError
from moldau.wire.apis import Api
from moldau.wire.errors import Error

_NOT_HERE = "This server does not host this topic-partition."
_CLOSED = "The offsets of the group are being deleted or altered."
_NOTHING = "There is no offset information to delete."


def _refused(request: Request, error: ClusterError) -> Answer:
    return {"error_code": error.error, "error_message": error.message}


def _find(parts: SharingParts, group_id: str) -> tuple[HeldGroup, ShareGroup] | dict[str, Any]:
    """Return a share group, which is a new one if there is none; or why that cannot be."""
    if not share_version(parts.node.state):
        return {"error_code": Error.UNSUPPORTED_VERSION}
    if not group_id:
        return {"error_code": Error.INVALID_GROUP_ID}
    groups = parts.groups.shards.find(group_id)
    if isinstance(groups, Error):
        return {"error_code": groups}
    held = groups.by_id.get(group_id) or parts.groups.sharing.draft(groups, group_id)
    if not isinstance(held.group, ShareGroup):
        message = f"Group {group_id} is not a share group."
        return {"error_code": Error.GROUP_ID_NOT_FOUND, "error_message": message}
    return held, held.group


def _find_empty(
    parts: SharingParts, group_id: str
) -> tuple[HeldGroup, ShareGroup] | dict[str, Any]:
    found = _find(parts, group_id)
    if not isinstance(found, dict):
        if found[1].members:
            return {"error_code": Error.NON_EMPTY_GROUP, "error_message": "The group is not empty."}
        if found[1].is_closed:
            return {"error_code": Error.COORDINATOR_NOT_AVAILABLE, "error_message": _CLOSED}
    return found


# Describing


@handles(
    Api.DESCRIBE_SHARE_GROUP_OFFSETS,
    (0, 1),
    on_groups(Operation.DESCRIBE),
    on_topics(Operation.DESCRIBE),
)
async def describe_share_group_offsets(parts: SharingParts, request: Request) -> Answer:
    """Return how far groups have come."""
    groups = [_describe(parts, request, wanted) for wanted in request.body.groups]
    return {"groups": await asyncio.gather(*groups)}


async def _describe(parts: SharingParts, request: Request, wanted: Any) -> dict[str, Any]:
    answer: dict[str, Any] = {"group_id": wanted.group_id, "topics": []}
    if not request.may(Operation.DESCRIBE, Resource.GROUP, wanted.group_id):
        return answer | {"error_code": Error.GROUP_AUTHORIZATION_FAILED}
    found = _find(parts, wanted.group_id)
    if isinstance(found, dict):
        return answer | found
    state = parts.node.state
    if wanted.topics is None:
        asked = [
            (topic.name, sorted(topic.partitions))
            for id, topic in found[1].state.known.items()
            if id in state.topics_by_id
            and request.may(Operation.DESCRIBE, Resource.TOPIC, topic.name, quietly=True)
        ]
    else:
        asked = [(topic.topic_name, list(topic.partitions)) for topic in wanted.topics]
    answer["topics"] = await asyncio.gather(
        *(_describe_topic(parts, request, wanted.group_id, *each) for each in asked)
    )
    return answer


async def _describe_topic(
    parts: SharingParts, request: Request, group_id: str, name: str, indexes: list[int]
) -> dict[str, Any]:
    topic = parts.node.state.topics.get(name)
    answer = {"topic_name": name, "topic_id": NO_TOPIC if topic is None else topic.id}
    if not request.may_on_topic(Operation.DESCRIBE, name):
        code, message = FAILED[Resource.TOPIC]
        denied = {"error_code": code, "error_message": message, "start_offset": -1}
        told = [{"partition_index": index, **denied} for index in indexes]
        return {"topic_name": name, "topic_id": NO_TOPIC, "partitions": told}
    found = await asyncio.gather(
        *(parts.group_offsets.describe(group_id, name, index) for index in indexes)
    )
    partitions = [
        {
            "partition_index": index,
            "start_offset": each.start,
            "leader_epoch": each.leader_epoch,
            "lag": each.lag,
            "error_code": each.error,
            "error_message": each.message,
        }
        for index, each in zip(indexes, found, strict=True)
    ]
    return {**answer, "partitions": partitions}


# Setting them anew


@handles(
    Api.ALTER_SHARE_GROUP_OFFSETS,
    (0, 0),
    on_groups(Operation.READ, the_group),
    on_topics(Operation.READ),
    refused=_refused,
)
async def alter_share_group_offsets(parts: SharingParts, request: Request) -> Answer:
    """Have an empty group begin anew at these offsets."""
    found = _find_empty(parts, request.body.group_id)
    if isinstance(found, dict):
        return found
    held, group = found
    with group.closed():
        return await _alter(parts, request, held, group)


async def _alter(
    parts: SharingParts, request: Request, held: HeldGroup, group: ShareGroup
) -> Answer:
    epoch = await parts.groups.sharing.bump(held, group)
    if isinstance(epoch, Error):
        return {"error_code": epoch}
    topics = await asyncio.gather(
        *(_alter_topic(parts, request, epoch, topic) for topic in request.body.topics)
    )
    known = dict(group.state.known)
    for name, altered in ((each["topic_name"], each["partitions"]) for each in topics):
        topic = parts.node.state.topics.get(name)
        done = {each["partition_index"] for each in altered if not each["error_code"]}
        if topic is not None and done:
            before = known.get(topic.id, KnownTopic(name, frozenset()))
            known[topic.id] = KnownTopic(name, before.partitions | done)
    if known != group.state.known:
        error = await parts.groups.sharing.know(held, group, known)
        if error:
            return {"error_code": error}
    return {"responses": topics}


async def _alter_topic(
    parts: SharingParts, request: Request, epoch: int, topic: Any
) -> dict[str, Any]:
    name, group_id = topic.topic_name, request.body.group_id
    known = parts.node.state.topics.get(name)
    partitions: list[dict[str, Any]] = []
    for each in topic.partitions:
        told: dict[str, Any] = {"partition_index": each.partition_index, "error_code": Error.NONE}
        if not request.may_on_topic(Operation.READ, name):
            told["error_code"], told["error_message"] = FAILED[Resource.TOPIC]
        else:
            refused = await parts.group_offsets.set(
                group_id, epoch, name, each.partition_index, each.start_offset
            )
            if refused is not None:
                is_unknown = refused.error is Error.UNKNOWN_TOPIC_OR_PARTITION
                message = _NOT_HERE if is_unknown else refused.message
                told |= {"error_code": refused.error, "error_message": message}
        partitions.append(told)
    id = NO_TOPIC if known is None else known.id
    return {"topic_name": name, "topic_id": id, "partitions": partitions}


@handles(
    Api.DELETE_SHARE_GROUP_OFFSETS,
    (0, 0),
    on_groups(Operation.DELETE, the_group),
    on_topics(Operation.READ),
    refused=_refused,
)
async def delete_share_group_offsets(parts: SharingParts, request: Request) -> Answer:
    """Forget how far an empty group has come in topics."""
    found = _find_empty(parts, request.body.group_id)
    if isinstance(found, dict):
        return found
    held, group = found
    with group.closed():
        return await _delete(parts, request, held, group)


async def _delete(
    parts: SharingParts, request: Request, held: HeldGroup, group: ShareGroup
) -> Answer:
    known = dict(group.state.known)
    topics: list[dict[str, Any]] = []
    for wanted in request.body.topics:
        name = wanted.topic_name
        topic = parts.node.state.topics.get(name)
        told: dict[str, Any] = {"topic_name": name, "topic_id": NO_TOPIC}
        if not request.may_on_topic(Operation.READ, name):
            told["error_code"], told["error_message"] = FAILED[Resource.TOPIC]
        elif topic is None:
            told |= {"error_code": Error.UNKNOWN_TOPIC_OR_PARTITION, "error_message": _NOT_HERE}
        elif topic.id not in known:
            told |= {"error_code": Error.UNKNOWN_TOPIC_OR_PARTITION, "error_message": _NOTHING}
        else:
            told["topic_id"] = topic.id
            indexes = range(len(topic.partitions))
            refused = await parts.group_offsets.delete(group.id, topic.id, indexes)
            if group.is_dead:
                # Another broker coordinates it, where somebody may be in it by now.
                return {"error_code": Error.NOT_COORDINATOR}
            if refused is not None:
                told |= {"error_code": refused.error, "error_message": refused.message}
            else:
                known.pop(topic.id, None)
        topics.append(told)
    if known != group.state.known:
        error = await parts.groups.sharing.know(held, group, known)
        if error:
            return {"error_code": error}
    return {"responses": topics}
