"""DescribeGroups, ListGroups and DeleteGroups."""

from __future__ import annotations

from typing import Any

from moldau.broker.api.groups.parts import GroupParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import Right, on_groups
from moldau.broker.coordination.groups.classic.generations import State
from moldau.broker.coordination.groups.classic.group import ClassicGroup
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation, Resource
from moldau.wire.apis import Api
from moldau.wire.errors import Error

# The permitted operations on a group, as Kafka's bit field: read, delete, describe, and describe
# and alter its settings.
GROUP_OPERATIONS = sum(1 << bit for bit in (3, 6, 8, 10, 11))

# The version since which a group that is not there is an error (KIP-1043).
_UNKNOWN_GROUP = 6


@handles(
    Api.DESCRIBE_GROUPS, (0, 6), on_groups(Operation.DESCRIBE, lambda request: request.body.groups)
)
def describe_groups(parts: GroupParts, request: Request) -> Answer:
    """Return each group with its members; one that is not there is dead."""
    operations = getattr(request.body, "include_authorized_operations", False)
    groups = []
    for group_id in request.body.groups:
        answer = _describe(parts, group_id, request.version)
        if operations and not answer.get("error_code"):
            answer["authorized_operations"] = GROUP_OPERATIONS
        groups.append(answer)
    return {"groups": groups}


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
        answer |= {"error_code": error, "error_message": f"Group {group_id} not found."}
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
    Api.LIST_GROUPS, (0, 5), Right(Operation.DESCRIBE, Resource.GROUP, unless=Operation.DESCRIBE)
)
def list_groups(parts: GroupParts, request: Request) -> Answer:
    """Return the groups of this broker, in the states (v4) and of the types (v5) that are asked
    for."""
    found = parts.groups.list_groups()
    if isinstance(found, Error):
        return {"error_code": found, "groups": ()}
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
    ]
    return {"groups": groups}


@handles(
    Api.DELETE_GROUPS,
    (0, 2),
    on_groups(Operation.DELETE, lambda request: request.body.groups_names),
)
async def delete_groups(parts: GroupParts, request: Request) -> Answer:
    """Delete groups that have no members."""
    wanted = dict.fromkeys(request.body.groups_names)
    answers = {group_id: parts.groups.delete_group(group_id) for group_id in wanted}
    return {
        "results": [
            {"group_id": group_id, "error_code": await answer}
            for group_id, answer in answers.items()
        ]
    }
