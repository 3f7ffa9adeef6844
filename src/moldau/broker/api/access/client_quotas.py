"""DescribeClientQuotas and AlterClientQuotas: how much users, clients and addresses may do."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import partial
from typing import Any

from moldau.broker.api.access.parts import AccessParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_cluster
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation
from moldau.cluster.decisions.access import QuotaChange, alter_quotas
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.access import QuotaEntity
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.quotas import CLIENT_ID, IP, IP_LIMITS, LIMITS, USER

# How a filter names entities of a type.
_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2
_TYPES = (USER, CLIENT_ID, IP)


def _invalid(message: str) -> ClusterError:
    return ClusterError(Error.INVALID_REQUEST, message)


def _refuse_description(request: Request, error: ClusterError) -> Answer:
    return {"error_code": error.error, "error_message": error.message, "entries": None}


@handles(
    Api.DESCRIBE_CLIENT_QUOTAS,
    (0, 1),
    on_cluster(Operation.DESCRIBE_CONFIGS),
    refused=lambda request, error: {"error_code": error.error, "entries": None},
)
def describe(parts: AccessParts, request: Request) -> Answer:
    """Return the entities that have limits and match all components of the filter."""
    try:
        wanted = _components(request.body.components)
    except ClusterError as error:
        return _refuse_description(request, error)
    quotas = parts.node.state.access.quotas
    return {
        "entries": [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
                "values": [{"key": key, "value": value} for key, value in limits.items()],
            }
            for entity, limits in quotas.items()
            if _matches(dict(entity), wanted, request.body.strict)
        ],
        "error_message": "",
    }


def _components(components: Any) -> dict[str, tuple[int, str | None]]:
    """Return the filter by type of entity; ClusterError where it makes no sense."""
    found: dict[str, tuple[int, str | None]] = {}
    for each in components:
        kind, how, name = each.entity_type, each.match_type, each.match
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in found:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in _TYPES:
            raise ClusterError(Error.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if how == _EXACT and name is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if how in (_DEFAULT, _SPECIFIED) and name is not None:
            what = "MATCH_TYPE_DEFAULT" if how == _DEFAULT else "MATCH_TYPE_SPECIFIED"
            raise _invalid(f"Request specified {what}, but also specified a match string.")
        if how not in (_EXACT, _DEFAULT, _SPECIFIED):
            raise _invalid(f"Unknown match type {how}")
        found[kind] = (how, name)
    if IP in found and len(found) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
    return found


def _matches(
    entity: Mapping[str, str | None],
    wanted: Mapping[str, tuple[int, str | None]],
    strict: bool,
) -> bool:
    if strict and len(entity) != len(wanted):
        return False
    return all(
        kind in entity and (how == _SPECIFIED or entity[kind] == name)
        for kind, (how, name) in wanted.items()
    )


def _refuse(request: Request, error: ClusterError) -> Answer:
    return {"entries": [_altered(each, error) for each in request.body.entries]}


@handles(
    Api.ALTER_CLIENT_QUOTAS, (0, 1), on_cluster(Operation.ALTER_CONFIGS), at_controller=_refuse
)
async def alter(parts: AccessParts, request: Request) -> Answer:
    """Set and remove limits of entities, each entity's all or none."""
    entries = request.body.entries
    seen: set[QuotaEntity] = set()
    wanted: list[QuotaChange | ClusterError] = []
    for entry in entries:
        try:
            wanted.append(_change(entry, seen))
        except ClusterError as error:
            wanted.append(error)
    try:
        outcomes = await parts.controller.alter_access(
            partial(alter_quotas, wanted=wanted), validate_only=request.body.validate_only
        )
    except ClusterError as error:
        return _refuse(request, error)
    pairs = zip(entries, outcomes, strict=True)
    return {"entries": [_altered(entry, outcome) for entry, outcome in pairs]}


def _change(entry: Any, seen: set[QuotaEntity]) -> QuotaChange:
    """Return what an entry asks for; ClusterError for what nobody could keep."""
    named = [(each.entity_type, each.entity_name) for each in entry.entity]
    entity: QuotaEntity = tuple(sorted(named, key=lambda each: each[0]))
    limits: dict[str, float | None] = {}
    for each in entry.ops:
        if each.key in limits:
            raise _invalid(
                f"Duplicate quota key {each.key} not updating quota for this entity {named}"
            )
        limits[each.key] = None if each.remove else each.value
    if entity in seen:
        raise _invalid(f"Ignoring duplicate entity {named}")
    seen.add(entity)
    known = _check_entity(dict(named), len(named))
    for key, value in limits.items():
        if value is not None:
            _check_limit(key, value, known)
    return QuotaChange(entity, limits)


def _check_entity(entity: Mapping[str, str | None], count: int) -> Mapping[str, bool]:
    """Return the limits that such an entity can have."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in _TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if count > len(entity):
        raise _invalid("Invalid client quota entity, duplicate entity entry")
    if IP not in entity:
        return LIMITS
    if len(entity) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity should not be combined with User or "
            "ClientId"
        )
    address = entity[IP]
    try:
        if address is not None:
            ipaddress.ip_address(address)
    except ValueError:
        raise _invalid(f"{address} is not a valid IP address.") from None
    return IP_LIMITS


def _check_limit(key: str, value: float, known: Mapping[str, bool]) -> None:
    if key not in known:
        raise _invalid(f"Invalid configuration key {key}")
    if not value > 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if known[key] and abs(value % 1.0) > 1e-6:
        raise _invalid(f"{key} cannot be a fractional value.")


def _altered(entry: Any, error: ClusterError | None) -> dict[str, Any]:
    entity = [
        {"entity_type": each.entity_type, "entity_name": each.entity_name} for each in entry.entity
    ]
    if error is None:
        return {"entity": entity}
    return {"entity": entity, "error_code": error.error, "error_message": error.message}
