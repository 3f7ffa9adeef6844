"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from moldau.broker.api.groups.parts import GroupParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_groups, the_group
from moldau.broker.coordination.groups.classic.messages import Departure, Join, Joined, Sync, Synced
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation
from moldau.cluster.errors import ClusterError
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.messages import milliseconds

T = TypeVar("T")

# The versions since which a client knows what the coordinator then does.
_MEMBER_ID_REQUIRED = 4
_NULLABLE_PROTOCOL = 7
_SKIP_ASSIGNMENT = 9
_SEVERAL_LEAVE = 3
# KIP-559
_PROTOCOL_IN_SYNC = 5


def when_done(answer: asyncio.Future[T], tell: Callable[[T], Answer]) -> Answer | Awaitable[Answer]:
    """Return the answer at once where it is known already, which spares a task."""
    return tell(answer.result()) if answer.done() else _later(answer, tell)


async def _later(answer: asyncio.Future[T], tell: Callable[[T], Answer]) -> Answer:
    return tell(await answer)


def _refuse_join(request: Request, error: ClusterError) -> Answer:
    return _joined(Joined(error.error, ""), request.version)


@handles(Api.JOIN_GROUP, (0, 9), on_groups(Operation.READ, the_group), refused=_refuse_join)
def join_group(parts: GroupParts, request: Request) -> Answer | Awaitable[Answer]:
    """Answered once the group's members have all joined, or had the time to."""
    body, version = request.body, request.version
    session_timeout_ms = milliseconds(body.session_timeout)
    rebalance_timeout_ms = session_timeout_ms
    if version >= 1:
        rebalance_timeout_ms = milliseconds(body.rebalance_timeout)
    join = Join(
        body.member_id,
        body.protocol_type,
        tuple({each.name: each.metadata for each in body.protocols}.items()),
        session_timeout_ms,
        rebalance_timeout_ms,
        getattr(body, "group_instance_id", None),
        request.client_id,
        f"/{request.context.client_host}",
        version >= _MEMBER_ID_REQUIRED,
        version >= _SKIP_ASSIGNMENT,
    )
    return when_done(
        parts.groups.join(body.group_id, join), lambda joined: _joined(joined, version)
    )


def _joined(joined: Joined, version: int) -> Answer:
    protocol = joined.protocol
    if protocol is None and version < _NULLABLE_PROTOCOL:
        protocol = ""
    return {
        "error_code": joined.error,
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        "protocol_name": protocol,
        "leader": joined.leader,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "metadata": member.metadata,
            }
            for member in joined.members
        ],
    }


@handles(
    Api.SYNC_GROUP,
    (0, 5),
    on_groups(Operation.READ, the_group),
    refused=lambda request, error: _synced(Synced(error.error)),
)
def sync_group(parts: GroupParts, request: Request) -> Answer | Awaitable[Answer]:
    """Answered once the leader's assignment is stored."""
    body = request.body
    protocol_type = getattr(body, "protocol_type", None)
    protocol = getattr(body, "protocol_name", None)
    if request.version >= _PROTOCOL_IN_SYNC and (protocol_type is None or protocol is None):
        return _synced(Synced(Error.INCONSISTENT_GROUP_PROTOCOL))
    sync = Sync(
        body.member_id,
        body.generation_id,
        getattr(body, "group_instance_id", None),
        protocol_type,
        protocol,
        {each.member_id: each.assignment for each in body.assignments},
    )
    return when_done(parts.groups.sync(body.group_id, sync), _synced)


def _synced(synced: Synced) -> Answer:
    return {
        "error_code": synced.error,
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol,
        "assignment": synced.assignment,
    }


def _refuse(request: Request, error: ClusterError) -> Answer:
    return {"error_code": error.error}


@handles(Api.HEARTBEAT, (0, 4), on_groups(Operation.READ, the_group), refused=_refuse)
def heartbeat(parts: GroupParts, request: Request) -> Answer:
    """Note that a member lives."""
    body = request.body
    instance_id = getattr(body, "group_instance_id", None)
    error = parts.groups.heartbeat(body.group_id, body.member_id, instance_id, body.generation_id)
    return {"error_code": error}


@handles(Api.LEAVE_GROUP, (0, 5), on_groups(Operation.READ, the_group), refused=_refuse)
def leave_group(parts: GroupParts, request: Request) -> Answer:
    """Let a member leave, or since v3 any number of them."""
    body = request.body
    if request.version < _SEVERAL_LEAVE:
        outcome = parts.groups.leave(body.group_id, [Departure(body.member_id)])
        return {"error_code": outcome if isinstance(outcome, Error) else outcome[0]}
    departures = [Departure(each.member_id, each.group_instance_id) for each in body.members]
    outcome = parts.groups.leave(body.group_id, departures)
    if isinstance(outcome, Error):
        return {"error_code": outcome, "members": ()}
    members: list[dict[str, Any]] = [
        {"member_id": left.member_id, "group_instance_id": left.instance_id, "error_code": error}
        for left, error in zip(departures, outcome, strict=True)
    ]
    return {"members": members}
