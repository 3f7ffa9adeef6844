"""Rights: what a request needs, as values that an API declares beside its handler.

A right that names its resources is needed for the whole request: the entrance asks for it and has
the request refused where it lacks. A right without is one that the handler asks for itself by
`Request.may`, resource by resource, and answers for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import CLUSTER_NAME, Operation, Resource
from moldau.cluster.errors import ClusterError
from moldau.wire.errors import Error

# Finds the names of resources in a request.
Names = Callable[[Request], Iterable[str]]

# The error for each kind of resource, with Kafka's message.
FAILED = {
    Resource.TOPIC: (Error.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    Resource.GROUP: (Error.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    Resource.CLUSTER: (Error.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    Resource.TRANSACTIONAL_ID: (
        Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
}


class Right(msgspec.Struct, frozen=True):
    """An operation on resources of a type; on those that `names` finds, or that the handler
    does."""

    operation: Operation
    resource: Resource
    names: Names | None = None


def on_cluster(operation: Operation) -> Right:
    """Return a right on the cluster itself."""
    return Right(operation, Resource.CLUSTER, lambda request: (CLUSTER_NAME,))


def on_topics(operation: Operation) -> Right:
    """Return a right on each topic of a request, for which its handler asks."""
    return Right(operation, Resource.TOPIC)


def on_groups(operation: Operation, names: Names | None = None) -> Right:
    """Return a right on the groups that a request names."""
    return Right(operation, Resource.GROUP, names)


def on_transactional_ids(operation: Operation, names: Names | None = None) -> Right:
    """Return a right on the transactional ids that a request names."""
    return Right(operation, Resource.TRANSACTIONAL_ID, names)


def the_group(request: Request) -> Iterable[str]:
    """Return the one group of a request."""
    return (request.body.group_id,)


def lacking(request: Request, rights: Iterable[Right]) -> ClusterError | None:
    """Return the error for the first right that the sender of a request lacks as a whole."""
    for right in rights:
        for name in () if right.names is None else right.names(request):
            if not request.may(right.operation, right.resource, name):
                return refusal(right.resource)
    return None


def refusal(resource: Resource) -> ClusterError:
    """Return the error for a right that somebody lacks, as Kafka says it."""
    return ClusterError(*FAILED[resource])


def cluster_operations(request: Request) -> int:
    """Return what who asks may do to the cluster, as Kafka's bit field; nothing to who may not
    describe it."""
    if not request.may_on_cluster(Operation.DESCRIBE):
        return 0
    return request.operations(Resource.CLUSTER, CLUSTER_NAME)
