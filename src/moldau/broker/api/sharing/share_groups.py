"""ShareGroupHeartbeat and ShareGroupDescribe."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_groups, on_topics, the_group
from moldau.broker.api.sharing.parts import SharingParts, handles
from moldau.broker.coordination.groups.assignors.assignor import Assignment
from moldau.broker.coordination.groups.share.group import ASSIGNOR, ShareGroup
from moldau.broker.coordination.groups.share.messages import JOINS, LEAVES, Heard, Heartbeat
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation, Resource
from moldau.cluster.decisions.features import share_version
from moldau.cluster.errors import ClusterError
from moldau.wire.apis import Api
from moldau.wire.errors import Error


def _refused(request: Request, error: ClusterError) -> Answer:
    # Without words, as in Kafka.
    return {"error_code": error.error}


@handles(
    Api.SHARE_GROUP_HEARTBEAT,
    (1, 1),
    on_groups(Operation.READ, the_group),
    on_topics(Operation.DESCRIBE),
    refused=_refused,
)
def share_group_heartbeat(parts: SharingParts, request: Request) -> Answer | Awaitable[Answer]:
    """Hear from a member, and tell it what to fetch from."""
    body = request.body
    if not share_version(parts.node.state):
        return {"error_code": Error.UNSUPPORTED_VERSION}
    problem = _problem(body)
    if problem is not None:
        return {"error_code": Error.INVALID_REQUEST, "error_message": problem or None}
    topics = body.subscribed_topic_names
    if not all(request.may_on_topic(Operation.DESCRIBE, name) for name in topics or ()):
        return {"error_code": Error.TOPIC_AUTHORIZATION_FAILED}
    heartbeat = Heartbeat(
        body.member_id, body.member_epoch, body.rack_id,
        None if topics is None else tuple(topics),
        request.client_id, request.context.client_host,
    )  # fmt: skip
    heard = parts.groups.sharing.heartbeat(parts.groups.shards, body.group_id, heartbeat)
    if heard.done():
        return _answer(heard.result())

    async def wait() -> Answer:
        return _answer(await heard)

    return wait()


def _problem(body: Any) -> str | None:
    """Return what makes no sense about a heartbeat."""
    if not body.group_id:
        return "GroupId can't be empty."
    if not body.member_id:
        return ""
    if body.rack_id == "":
        return "RackId can't be empty."
    if body.member_epoch < LEAVES:
        return "MemberEpoch is invalid."
    if body.member_epoch == JOINS and not body.subscribed_topic_names:
        return "SubscribedTopicNames must be set in first request."
    return None


def _answer(heard: Heard) -> Answer:
    answer: dict[str, Any] = {
        "error_code": heard.error,
        "error_message": heard.message,
        "member_id": heard.member_id,
        "member_epoch": heard.epoch,
        "heartbeat_interval": heard.interval_ms,
    }
    if heard.assignment is not None:
        answer["assignment"] = {"topic_partitions": _partitions(heard.assignment)}
    return answer


def _partitions(assignment: Assignment) -> list[dict[str, Any]]:
    return [{"topic_id": id, "partitions": sorted(has)} for id, has in assignment.items()]


@handles(
    Api.SHARE_GROUP_DESCRIBE, (1, 1), on_groups(Operation.DESCRIBE), on_topics(Operation.DESCRIBE)
)
def share_group_describe(parts: SharingParts, request: Request) -> Answer:
    """Return share groups with their members."""
    return {"groups": [_describe(parts, request, id) for id in request.body.group_ids]}


def _describe(parts: SharingParts, request: Request, group_id: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"group_id": group_id}
    if not share_version(parts.node.state):
        return answer | {"error_code": Error.UNSUPPORTED_VERSION}
    if not request.may(Operation.DESCRIBE, Resource.GROUP, group_id):
        return answer | {"error_code": Error.GROUP_AUTHORIZATION_FAILED}
    held = parts.groups.find(group_id) if group_id else Error.INVALID_GROUP_ID
    if isinstance(held, Error):
        words = f"Group {group_id} not found." if held is Error.GROUP_ID_NOT_FOUND else None
        return answer | {"error_code": held, "error_message": words}
    group = held.group
    if not isinstance(group, ShareGroup):
        message = f"Group {group_id} is not a share group."
        return answer | {"error_code": Error.GROUP_ID_NOT_FOUND, "error_message": message}
    topics = {name for member in group.members.values() for name in member.topics}
    if not all(request.may_on_topic(Operation.DESCRIBE, name) for name in topics):
        message = "The group has described topic(s) that the client is not authorized to describe."
        code = Error.TOPIC_AUTHORIZATION_FAILED
        return answer | {"error_code": code, "error_message": message}
    answer |= {
        "group_state": group.state_name,
        "group_epoch": group.state.epoch,
        "assignment_epoch": group.state.target_epoch,
        "assignor_name": ASSIGNOR.name,
        "members": [_member(parts, group, id) for id in group.members],
    }
    if request.body.include_authorized_operations:
        answer["authorized_operations"] = request.operations(Resource.GROUP, group_id)
    return answer


def _member(parts: SharingParts, group: ShareGroup, id: str) -> dict[str, Any]:
    member, current = group.members[id], group.state.currents[id]
    by_id = parts.node.state.topics_by_id
    assigned = [
        {"topic_name": by_id[each["topic_id"]].name, **each}
        for each in _partitions(current.assigned)
        if each["topic_id"] in by_id
    ]
    return {
        "member_id": id,
        "rack_id": member.rack,
        "member_epoch": current.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.topics,
        "assignment": {"topic_partitions": assigned},
    }
