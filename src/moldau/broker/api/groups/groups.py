"""DescribeGroups, ListGroups and DeleteGroups."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from moldau.broker.api.groups.parts import GroupParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import Right, on_groups
from moldau.broker.coordination.groups.classic.generations import State
from moldau.broker.coordination.groups.classic.group import ClassicGroup
from moldau.broker.coordination.groups.share.group import ShareGroup
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation, Resource
from moldau.wire.apis import Api
from moldau.wire.errors import Error

# The version since which a group that is not there is an error (KIP-1043).
_UNKNOWN_GROUP = 6


@handles(Api.DESCRIBE_GROUPS, (0, 6), on_groups(Operation.DESCRIBE))
def describe_groups(parts: GroupParts, request: Request) -> Answer:
    """Return each group with its members; one that is not there is dead."""
    operations = getattr(request.body, "include_authorized_operations", False)
    groups: list[dict[str, Any]] = []
    denied: list[dict[str, Any]] = []
    for group_id in request.body.groups:
        if not request.may(Operation.DESCRIBE, Resource.GROUP, group_id):
            nothing: dict[str, Any] = {"group_id": group_id, "group_state": "", "members": ()}
            denied.append(nothing | {"error_code": Error.GROUP_AUTHORIZATION_FAILED})
            continue
        answer = _describe(parts, group_id, request.version)
        if operations and not answer.get("error_code"):
            answer["authorized_operations"] = request.operations(Resource.GROUP, group_id)
        groups.append(answer)
    return {"groups": denied + groups}


def _describe(parts: GroupParts, group_id: str, version: int) -> dict[str, Any]:
    held = parts.groups.find(group_id)
    if not isinstance(held, Error) and isinstance(held.group, ClassicGroup):
        return _described(held.group)
    error = held if isinstance(held, Error) else Error.GROUP_ID_NOT_FOUND
    answer: dict[str, Any] = {"group_id": group_id, "group_state": "", "members": ()}
    if error is not Error.GROUP_ID_NOT_FOUND:
        return answer | {"error_code": error}
    answer["group_state"] = State.DEAD.value
    if version >= _UNKNOWN_GROUP:
        what = "not found" if isinstance(held, Error) else "is not a classic group"
        answer |= {"error_code": error, "error_message": f"Group {group_id} {what}."}
    return answer


def _described(group: ClassicGroup) -> dict[str, Any]:
    is_stable = group.state is State.STABLE
    protocol = (group.protocol or "") if is_stable else ""
    return {
        "group_id": group.id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": protocol,
        "members": [
            {
                "member_id": member.id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(protocol) if is_stable else b"",
                "member_assignment": member.assignment,
            }
            for member in group.members.values()
        ],
    }


@handles(
    Api.LIST_GROUPS,
    (0, 5),
    Right(Operation.DESCRIBE, Resource.CLUSTER),
    on_groups(Operation.DESCRIBE),
)
def list_groups(parts: GroupParts, request: Request) -> Answer:
    """Return the groups of this broker that who asks may know of, in the states (v4) and of the
    types (v5) that are asked for."""
    found = parts.groups.list_groups()
    if isinstance(found, Error):
        return {"error_code": found, "groups": ()}
    may_know_all = request.may_on_cluster(Operation.DESCRIBE, quietly=True)
    states = {state.lower() for state in getattr(request.body, "states_filter", ())}
    types = {kind.lower() for kind in getattr(request.body, "types_filter", ())}
    groups = [
        {
            "group_id": held.group.id,
            "protocol_type": held.group.protocol_type or "",
            "group_state": held.group.state_name,
            "group_type": held.group.kind,
        }
        for held in found
        if (not states or held.group.state_name.lower() in states)
        and (not types or held.group.kind in types)
        and (
            may_know_all
            or request.may(Operation.DESCRIBE, Resource.GROUP, held.group.id, quietly=True)
        )
    ]
    return {"groups": groups}


@handles(
    Api.DELETE_GROUPS,
    (0, 2),
    on_groups(Operation.DELETE),
)
async def delete_groups(parts: GroupParts, request: Request) -> Answer:
    """Delete groups that have no members."""
    wanted = dict.fromkeys(request.body.groups_names)
    denied = [
        group_id
        for group_id in wanted
        if not request.may(Operation.DELETE, Resource.GROUP, group_id)
    ]
    answers = {group_id: _delete(parts, group_id) for group_id in wanted if group_id not in denied}
    results = [
        {"group_id": group_id, "error_code": await answer} for group_id, answer in answers.items()
    ]
    refused = Error.GROUP_AUTHORIZATION_FAILED
    return {
        "results": results + [{"group_id": group_id, "error_code": refused} for group_id in denied]
    }


def _delete(parts: GroupParts, group_id: str) -> Awaitable[Error]:
    held = parts.groups.find(group_id)
    if not isinstance(held, Error) and isinstance(held.group, ShareGroup):
        return _delete_share_group(parts, held.group)
    return parts.groups.delete_group(group_id)


async def _delete_share_group(parts: GroupParts, group: ShareGroup) -> Error:
    """Delete a group after all that is written of its partitions, so that nothing is left."""
    error = Error.COORDINATOR_NOT_AVAILABLE if group.is_closed else group.check_delete()
    if error:
        return error
    with group.closed():
        for id, topic in group.state.known.items():
            refused = await parts.shares.group_offsets.delete(group.id, id, topic.partitions)
            if refused is not None:
                return refused.error
            if group.is_dead:
                # Another broker coordinates it, where somebody may be in it by now.
                return Error.NOT_COORDINATOR
        return await parts.groups.delete_group(group.id)
