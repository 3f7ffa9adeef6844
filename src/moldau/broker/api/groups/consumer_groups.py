"""ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any
from uuid import UUID

from moldau.broker.api.groups.group_membership import when_done
from moldau.broker.api.groups.parts import GroupParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_groups, on_topics, refusal, the_group
from moldau.broker.coordination.groups.assignors.assignor import Assignment
from moldau.broker.coordination.groups.consumer.group import ConsumerGroup
from moldau.broker.coordination.groups.consumer.membership import new_member_id
from moldau.broker.coordination.groups.consumer.messages import (
    JOINS,
    LEAVES,
    LEAVES_FOR_NOW,
    Heartbeat,
    HeartbeatAnswer,
    Refused,
    SteadyBeat,
)
from moldau.broker.coordination.groups.consumer.parts import Owned
from moldau.broker.coordination.groups.consumer.regexes import problem_with
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation, Resource
from moldau.cluster.decisions.features import group_version
from moldau.cluster.errors import ClusterError
from moldau.wire.apis import Api
from moldau.wire.errors import Error

# The version since which clients make their member ids themselves (KIP-1082).
_OWN_MEMBER_ID = 1
_NO_TOPIC = UUID(int=0)
# The fields of a heartbeat from the rack on are for news; librdkafka's regular expression is empty.
_FIRST_NEWS = 4
_NO_NEWS = ((None, -1, None, None, None, None), (None, -1, None, "", None, None))
_CLASSIC, _CONSUMER = 0, 1


def _refuse(request: Request, error: ClusterError) -> Answer:
    # Without words, as in Kafka.
    return _answer(HeartbeatAnswer(error.error))


@handles(
    Api.CONSUMER_GROUP_HEARTBEAT,
    (0, 1),
    on_groups(Operation.READ, the_group),
    on_topics(Operation.DESCRIBE),
    refused=_refuse,
)
def consumer_group_heartbeat(parts: GroupParts, request: Request) -> Answer | Awaitable[Answer]:
    """Hear a member that joins, lives or leaves, and tell it what it has."""
    body = request.body
    if not group_version(parts.node.state):
        message = "Some brokers do not know consumer groups yet."
        return _answer(HeartbeatAnswer(Error.UNSUPPORTED_VERSION, message))
    if body.member_epoch > JOINS and body[_FIRST_NEWS:] in _NO_NEWS:
        groups = parts.groups
        beat = SteadyBeat(
            body.member_id,
            body.member_epoch,
            body.instance_id,
            request.client_id,
            f"/{request.context.client_host}",
        )
        steady = groups.consumers.steady(groups.shards, body.group_id, beat)
        if steady is not None:
            return _answer(steady)
    for name in body.subscribed_topic_names or ():
        if not request.may_on_topic(Operation.DESCRIBE, name):
            return _refuse(request, refusal(Resource.TOPIC))
    try:
        _check(parts, request)
    except Refused as refused:
        return _answer(HeartbeatAnswer(refused.error, refused.message))
    regex = body.subscribed_topic_regex
    if regex and not _knows_regex(parts, body.group_id, regex):
        return _hear_of_regex(parts, request, regex)
    return _hear(parts, request)


def _check(parts: GroupParts, request: Request) -> None:
    """Refuse a request that makes no sense, in Kafka's order."""
    body, epoch = request.body, request.body.member_epoch
    needs_id = request.version >= _OWN_MEMBER_ID or epoch > JOINS or epoch == LEAVES
    for is_wrong, message in (
        (needs_id and not body.member_id, "MemberId can't be empty."),
        (not body.group_id, "GroupId can't be empty."),
        (body.instance_id == "", "InstanceId can't be empty."),
        (body.rack_id == "", "RackId can't be empty."),
    ):
        if is_wrong:
            raise Refused(Error.INVALID_REQUEST, message)
    if epoch == JOINS:
        _check_join(body)
    elif epoch == LEAVES_FOR_NOW and body.instance_id is None:
        raise Refused(Error.INVALID_REQUEST, "InstanceId can't be null.")
    elif epoch < LEAVES_FOR_NOW:
        raise Refused(Error.INVALID_REQUEST, "MemberEpoch is invalid.")
    assignors = parts.node.settings.group_consumer_assignors
    if body.server_assignor is not None and body.server_assignor not in assignors:
        raise Refused(
            Error.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {body.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(assignors)}.",
        )


def _check_join(body: Any) -> None:
    if body.rebalance_timeout_ms == -1:
        raise Refused(
            Error.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request."
        )
    if body.topic_partitions is None or body.topic_partitions:
        raise Refused(Error.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
    if body.subscribed_topic_names is None and body.subscribed_topic_regex is None:
        raise Refused(
            Error.INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining.",
        )


def _knows_regex(parts: GroupParts, group_id: str, regex: str) -> bool:
    held = parts.groups.find(group_id)
    if isinstance(held, Error) or not isinstance(held.group, ConsumerGroup):
        return False
    return regex in held.group.state.regex_users


async def _hear_of_regex(parts: GroupParts, request: Request, regex: str) -> Answer:
    problem = await asyncio.to_thread(problem_with, regex)
    if problem is not None:
        message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {problem}."
        return _answer(HeartbeatAnswer(Error.INVALID_REGULAR_EXPRESSION, message))
    answer = _hear(parts, request)
    return await answer if isinstance(answer, Awaitable) else answer


def _hear(parts: GroupParts, request: Request) -> Answer | Awaitable[Answer]:
    body = request.body
    names = body.subscribed_topic_names
    heartbeat = Heartbeat(
        body.member_id or new_member_id(),
        body.member_epoch,
        body.instance_id,
        body.rack_id,
        body.rebalance_timeout_ms,
        None if names is None else frozenset(names),
        body.subscribed_topic_regex,
        body.server_assignor,
        _owned(body.topic_partitions),
        request.client_id,
        f"/{request.context.client_host}",
        parts.node.now_ms(),
    )

    def may_describe(topic: str) -> bool:
        return request.may(Operation.DESCRIBE, Resource.TOPIC, topic, quietly=True)

    groups = parts.groups
    heard = groups.consumers.heartbeat(groups.shards, body.group_id, heartbeat, may_describe)
    return when_done(heard, _answer)


def _owned(given: Any) -> Assignment | None:
    if given is None:
        return None
    found: dict[UUID, frozenset[int]] = {}
    for each in given:
        topic = each.topic_id or _NO_TOPIC
        found[topic] = found.get(topic, frozenset()) | frozenset(each.partitions)
    return found


def _answer(answer: HeartbeatAnswer) -> Answer:
    return {
        "error_code": answer.error,
        "error_message": answer.message,
        "member_id": answer.member_id,
        "member_epoch": answer.epoch,
        "heartbeat_interval": answer.interval_ms,
        "assignment": None
        if answer.assignment is None
        else {
            "topic_partitions": [
                {"topic_id": topic, "partitions": sorted(partitions)}
                for topic, partitions in answer.assignment.items()
            ]
        },
    }


@handles(
    Api.CONSUMER_GROUP_DESCRIBE,
    (0, 1),
    on_groups(Operation.DESCRIBE),
    on_topics(Operation.DESCRIBE),
)
def consumer_group_describe(parts: GroupParts, request: Request) -> Answer:
    """Return each consumer group with its epochs and members."""
    is_supported = bool(group_version(parts.node.state))
    groups: list[dict[str, Any]] = []
    denied: list[dict[str, Any]] = []
    for group_id in request.body.group_ids:
        nothing = {"group_id": group_id, "group_state": "", "assignor_name": "", "members": ()}
        if not is_supported:
            groups.append(nothing | {"error_code": Error.UNSUPPORTED_VERSION})
        elif not request.may(Operation.DESCRIBE, Resource.GROUP, group_id):
            denied.append(nothing | {"error_code": Error.GROUP_AUTHORIZATION_FAILED})
        else:
            groups.append(_described(parts, request, group_id, nothing))
    return {"groups": denied + groups}


def _described(
    parts: GroupParts, request: Request, group_id: str, nothing: dict[str, Any]
) -> dict[str, Any]:
    if not group_id:
        return nothing | {"error_code": Error.INVALID_GROUP_ID}
    held = parts.groups.find(group_id)
    if held is Error.GROUP_ID_NOT_FOUND:
        return nothing | {"error_code": held, "error_message": f"Group {group_id} not found."}
    if isinstance(held, Error):
        return nothing | {"error_code": held}
    group = held.group
    if not isinstance(group, ConsumerGroup):
        message = f"Group {group_id} is not a consumer group."
        return nothing | {"error_code": Error.GROUP_ID_NOT_FOUND, "error_message": message}
    answer = _describe(parts, group)
    topics = {
        each["topic_name"]
        for member in answer["members"]
        for kind in ("assignment", "target_assignment")
        for each in member[kind]["topic_partitions"]
    }
    may = all(request.may_on_topic(Operation.DESCRIBE, topic) for topic in sorted(topics))
    if not may:
        return nothing | {
            "error_code": Error.TOPIC_AUTHORIZATION_FAILED,
            "error_message": "The group has described topic(s) that the client is not authorized "
            "to describe.",
        }
    if request.body.include_authorized_operations:
        answer["authorized_operations"] = request.operations(Resource.GROUP, group_id)
    return answer


def _describe(parts: GroupParts, group: ConsumerGroup) -> dict[str, Any]:
    state = group.state
    members = []
    for id, member in group.members.items():
        current = state.current(id)
        members.append(
            {
                "member_id": id,
                "instance_id": member.instance_id,
                "rack_id": member.rack,
                "member_epoch": current.epoch,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "subscribed_topic_names": sorted(member.topics),
                "subscribed_topic_regex": member.regex,
                "assignment": _partitions(parts, current.assigned, current.revoking),
                "target_assignment": _partitions(parts, state.target(id)),
                "member_type": _CONSUMER if member.classic is None else _CLASSIC,
            }
        )
    return {
        "group_id": group.id,
        "group_state": group.state_name,
        "group_epoch": state.epoch.epoch,
        "assignment_epoch": state.target_epoch.epoch,
        "assignor_name": group.machine.assignor.name,
        "members": members,
    }


def _partitions(parts: GroupParts, *held: Assignment | Owned) -> dict[str, Any]:
    found: dict[UUID, set[int]] = {}
    for each in held:
        for topic, partitions in each.items():
            found.setdefault(topic, set()).update(partitions)
    named = ((topic, parts.partitions.topic_name(topic)) for topic in found)
    return {
        "topic_partitions": [
            {"topic_id": topic, "topic_name": name, "partitions": sorted(found[topic])}
            for topic, name in named
            if name
        ]
    }
