"""DescribeAcls, CreateAcls and DeleteAcls: the rules of who may do what."""

from __future__ import annotations

from functools import partial
from typing import Any

from moldau.broker.api.access.parts import AccessParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_cluster
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation
from moldau.cluster.decisions.access import (
    AclFilter,
    Binding,
    checked_binding,
    create_acls,
    delete_acls,
)
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.access import Acl, ResourcePattern
from moldau.wire.acls import CLUSTER_NAME, PatternType, Resource
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.primitives import MalformedRequest

_LITERAL = int(PatternType.LITERAL)


def _disabled(message: str) -> ClusterError:
    return ClusterError(Error.SECURITY_DISABLED, message)


def _refuse_description(request: Request, error: ClusterError) -> Answer:
    return {"error_code": error.error, "error_message": error.message, "resources": ()}


@handles(Api.DESCRIBE_ACLS, (1, 3), on_cluster(Operation.DESCRIBE), refused=_refuse_description)
def describe(parts: AccessParts, request: Request) -> Answer:
    """Return the rules that a filter means, those of each resource together."""
    if request.authorizer is None:
        disabled = _disabled("No Authorizer is configured on the broker")
        return _refuse_description(request, disabled)
    resources: dict[ResourcePattern, list[dict[str, Any]]] = {}
    for resource, acl in _filter(request.body).find(parts.node.state.access):
        resources.setdefault(resource, []).append(_described(acl))
    return {
        "resources": [
            {
                "resource_type": resource.kind,
                "resource_name": resource.name,
                "pattern_type": resource.pattern,
                "acls": acls,
            }
            for resource, acls in resources.items()
        ],
        # Null otherwise; Kafka has it so on success.
        "error_message": "",
    }


def _described(acl: Acl) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


def _filter(wanted: Any) -> AclFilter:
    found = AclFilter(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        getattr(wanted, "pattern_type_filter", _LITERAL),
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )
    try:
        found.check()
    except ClusterError as error:
        # As in Kafka, whose parser refuses them.
        raise MalformedRequest(f"a filter has unknown elements: {error}") from None
    return found


def _refuse_creation(request: Request, error: ClusterError) -> Answer:
    return {"results": [_failure(error) for _ in request.body.creations]}


@handles(Api.CREATE_ACLS, (1, 3), on_cluster(Operation.ALTER), at_controller=_refuse_creation)
async def create(parts: AccessParts, request: Request) -> Answer:
    """Add rules; one that is there already is as good."""
    if request.authorizer is None:
        return _refuse_creation(request, _disabled("No Authorizer is configured."))
    wanted = [_binding(each) for each in request.body.creations]
    try:
        outcomes = await parts.controller.alter_access(partial(create_acls, wanted=wanted))
    except ClusterError as error:
        return _refuse_creation(request, error)
    # As in Kafka, an empty text and not none.
    done = {"error_message": ""}
    return {"results": [done if each is None else _failure(each) for each in outcomes]}


def _binding(wanted: Any) -> Binding | ClusterError:
    kind, name = wanted.resource_type, wanted.resource_name
    resource = ResourcePattern(kind, name, getattr(wanted, "resource_pattern_type", _LITERAL))
    acl = Acl(wanted.principal, wanted.host, wanted.operation, wanted.permission_type)
    if kind == Resource.CLUSTER and name != CLUSTER_NAME:
        message = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
        return ClusterError(Error.INVALID_REQUEST, message)
    if not name:
        return ClusterError(Error.INVALID_REQUEST, "Invalid empty resource name")
    try:
        return checked_binding(resource, acl)
    except ClusterError as error:
        return error


def _failure(error: ClusterError) -> dict[str, Any]:
    return {"error_code": error.error, "error_message": error.message}


def _refuse_deletion(request: Request, error: ClusterError) -> Answer:
    return {"filter_results": [_failure(error) for _ in request.body.filters]}


@handles(Api.DELETE_ACLS, (1, 3), on_cluster(Operation.ALTER), at_controller=_refuse_deletion)
async def delete(parts: AccessParts, request: Request) -> Answer:
    """Delete all rules that any of the filters means."""
    if request.authorizer is None:
        return _refuse_deletion(request, _disabled("No Authorizer is configured."))
    filters = [_filter(each) for each in request.body.filters]
    try:
        outcomes = await parts.controller.alter_access(partial(delete_acls, filters=filters))
    except ClusterError as error:
        return _refuse_deletion(request, error)
    return {"filter_results": [_deleted(each) for each in outcomes]}


def _deleted(outcome: list[Binding] | ClusterError) -> dict[str, Any]:
    if isinstance(outcome, ClusterError):
        return _failure(outcome)
    return {
        "matching_acls": [
            {
                "resource_type": resource.kind,
                "resource_name": resource.name,
                "pattern_type": resource.pattern,
                **_described(acl),
            }
            for resource, acl in outcome
        ]
    }
