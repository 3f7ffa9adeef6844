"""FindCoordinator: which broker coordinates a group."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from functools import partial
from typing import Any

from moldau.broker.api.groups.parts import GroupParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_groups, on_transactional_ids
from moldau.broker.coordination.shards import Shards
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation
from moldau.cluster.errors import ClusterError
from moldau.wire.apis import Api
from moldau.wire.errors import Error

GROUP = 0
TRANSACTION = 1

_SEVERAL_KEYS = 4
_NOWHERE = {"node_id": -1, "host": "", "port": -1}


def _keys(key_type: int, request: Request) -> Iterable[str]:
    if _key_type(request) != key_type:
        return ()
    if request.version < _SEVERAL_KEYS:
        return (request.body.key,)
    return request.body.coordinator_keys  # type: ignore[no-any-return]


@handles(
    Api.FIND_COORDINATOR,
    (0, 6),
    on_groups(Operation.DESCRIBE, partial(_keys, GROUP)),
    on_transactional_ids(Operation.DESCRIBE, partial(_keys, TRANSACTION)),
)
def find_coordinator(parts: GroupParts, request: Request) -> Answer | Awaitable[Answer]:
    """Find the coordinator of a key, or since v4 of several; the first ever creates its topic."""
    shards = _shards(parts, _key_type(request))
    if shards is not None and not shards.has_topic:
        return _create_and_answer(parts, request, shards)
    return _answer(parts, request, None)


async def _create_and_answer(parts: GroupParts, request: Request, shards: Shards[Any]) -> Answer:
    return _answer(parts, request, await shards.ensure_topic())


def _shards(parts: GroupParts, key_type: int) -> Shards[Any] | None:
    """Return the topic that says who coordinates keys of this type; None where there are none."""
    return parts.groups.shards if key_type == GROUP else None


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
    shards = _shards(parts, key_type)
    if key_type == TRANSACTION:
        return _refused(
            Error.COORDINATOR_NOT_AVAILABLE, "This broker does not support transactions."
        )
    if shards is None:
        return _refused(Error.INVALID_REQUEST, f"There are no keys of type {key_type}.")
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
