"""FindCoordinator: which broker coordinates a group, a transactional id, or a shared partition."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from moldau.broker.api.groups.parts import GroupParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import Right, on_groups, on_transactional_ids
from moldau.broker.api.rights import refusal as lacking_right
from moldau.broker.coordination.shards import Shards
from moldau.broker.coordination.share.state import parse_key
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation, Resource
from moldau.cluster.decisions.features import share_version, transaction_version
from moldau.cluster.errors import ClusterError
from moldau.wire.apis import Api
from moldau.wire.errors import Error

GROUP = 0
TRANSACTION = 1
SHARE = 2

_SEVERAL_KEYS = 4
_SHARE_KEYS = 6
_NOWHERE = {"node_id": -1, "host": "", "port": -1}
# What the keys of each type are to the authorizer.
_RESOURCES = {GROUP: Resource.GROUP, TRANSACTION: Resource.TRANSACTIONAL_ID}


@handles(
    Api.FIND_COORDINATOR,
    (0, 6),
    on_groups(Operation.DESCRIBE),
    on_transactional_ids(Operation.DESCRIBE),
    Right(Operation.CLUSTER_ACTION, Resource.CLUSTER),
)
def find_coordinator(parts: GroupParts, request: Request) -> Answer | Awaitable[Answer]:
    """Find the coordinator of a key, or since v4 of several; the first ever creates its topic."""
    parts.brokers.check_current()
    shards = _shards(parts, _key_type(request))
    if shards is not None and not shards.has_topic and _may_find_any(request):
        return _create_and_answer(parts, request, shards)
    return _answer(parts, request, None)


def _may_find_any(request: Request) -> bool:
    """Return whether there is a reason to create the topic of the coordinators."""
    several = request.version >= _SEVERAL_KEYS
    keys = request.body.coordinator_keys if several else (request.body.key,)
    return any(_may_find(request, key, quietly=True) for key in keys)


def _may_find(request: Request, key: str, *, quietly: bool = False) -> bool:
    if _key_type(request) == SHARE:
        return request.may_on_cluster(Operation.CLUSTER_ACTION, quietly=quietly)
    resource = _RESOURCES.get(_key_type(request))
    return resource is None or request.may(Operation.DESCRIBE, resource, key, quietly=quietly)


async def _create_and_answer(parts: GroupParts, request: Request, shards: Shards[Any]) -> Answer:
    return _answer(parts, request, await shards.ensure_topic())


def _shards(parts: GroupParts, key_type: int) -> Shards[Any] | None:
    """Return the topic that says who coordinates keys of this type; None where there are none."""
    if key_type == GROUP:
        return parts.groups.shards
    if key_type == TRANSACTION and transaction_version(parts.node.state):
        return parts.transactions.shards
    if key_type == SHARE and share_version(parts.node.state):
        return parts.shares.states.shards
    return None


def _key_type(request: Request) -> int:
    return int(getattr(request.body, "key_type", GROUP))


def _answer(parts: GroupParts, request: Request, refusal: ClusterError | None) -> Answer:
    if request.version < _SEVERAL_KEYS:
        return _coordinator(parts, request, request.body.key, refusal)
    return {
        "coordinators": [
            {"key": key, **_coordinator(parts, request, key, refusal)}
            for key in request.body.coordinator_keys
        ]
    }


def _coordinator(
    parts: GroupParts, request: Request, key: str, refusal: ClusterError | None
) -> dict[str, Any]:
    key_type = _key_type(request)
    if not _may_find(request, key):
        denied = lacking_right(_RESOURCES.get(key_type, Resource.CLUSTER))
        return _refused(denied.error, denied.message if request.version < _SEVERAL_KEYS else "")
    shards = _shards(parts, key_type)
    if shards is None and key_type == TRANSACTION:
        return _refused(
            Error.COORDINATOR_NOT_AVAILABLE, "Some brokers do not support transactions yet."
        )
    if shards is None:
        return _refused(Error.INVALID_REQUEST, f"There are no keys of type {key_type}.")
    if key_type == SHARE and (request.version < _SHARE_KEYS or parse_key(key) is None):
        return _refused(Error.INVALID_REQUEST, "The key is not GROUP:TOPIC_ID:PARTITION.")
    if refusal is not None:
        return _refused(Error.COORDINATOR_NOT_AVAILABLE, refusal.message)
    leader = shards.leader_of(key)
    for node in parts.brokers.describe(request.context):
        if node["node_id"] == leader:
            found = {"node_id": leader, "host": node["host"], "port": node["port"]}
            return found | {"error_message": "NONE" if request.version < _SEVERAL_KEYS else ""}
    return _refused(Error.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")


def _refused(error: Error, message: str) -> dict[str, Any]:
    return {"error_code": error, "error_message": message, **_NOWHERE}
