"""Rights: what a request needs, as values that an API declares beside its handler."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import CLUSTER_NAME, Authorizer, Operation, Resource
from moldau.wire.primitives import MalformedRequest, TopicKey

# Finds the names of resources in a request. Topics may go by their ids.
Names = Callable[[Request], Iterable[TopicKey]]


class NotAuthorized(MalformedRequest):
    """A request that its sender has no right to. It costs the connection."""


@dataclass(frozen=True, slots=True)
class Right:
    """An operation on resources of a type.

    `names` finds the resources in a request, none where the right is not needed. Without it they
    turn up only while the request is handled (all groups, topics to create), and the handler asks.
    Whoever holds `unless` on the cluster needs no other.
    """

    operation: Operation
    resource: Resource
    names: Names | None = None
    unless: Operation | None = None


def on_cluster(operation: Operation, needs: Callable[[Request], bool] | None = None) -> Right:
    """Return a right on the cluster itself; with `needs` only for requests of which that is
    true."""

    def name(request: Request) -> Iterable[TopicKey]:
        return (CLUSTER_NAME,) if needs is None or needs(request) else ()

    return Right(operation, Resource.CLUSTER, name)


def on_topics(operation: Operation, names: Names, unless: Operation | None = None) -> Right:
    """Return a right on the topics that a request names."""
    return Right(operation, Resource.TOPIC, names, unless)


def on_groups(operation: Operation, names: Names) -> Right:
    """Return a right on the groups that a request names."""
    return Right(operation, Resource.GROUP, names)


def on_transactional_ids(operation: Operation, names: Names) -> Right:
    """Return a right on the transactional ids that a request names."""
    return Right(operation, Resource.TRANSACTIONAL_ID, names)


def the_group(request: Request) -> Iterable[TopicKey]:
    """Return the one group of a request."""
    return (request.body.group_id,)


def named_topics(request: Request) -> Iterable[TopicKey]:
    """Return the topics of a request that lists them by `name`."""
    return [topic.name for topic in request.body.topics or ()]


def as_follower(request: Request) -> bool:
    """Return whether a broker asks, to copy partitions."""
    return int(request.body.replica_id) >= 0


def check(
    authorizer: Authorizer,
    request: Request,
    rights: Iterable[Right],
    topic_name: Callable[[TopicKey], str],
) -> None:
    """Raise NotAuthorized at the first right that the sender of a request lacks."""
    principal, host = request.context.principal, request.context.client_host
    for right in rights:
        if right.unless is not None and authorizer.allows(
            principal, host, right.unless, Resource.CLUSTER, CLUSTER_NAME
        ):
            continue
        for key in () if right.names is None else right.names(request):
            name = topic_name(key) if right.resource is Resource.TOPIC else str(key)
            # An id that no topic has is refused as such.
            if name and not authorizer.allows(
                principal, host, right.operation, right.resource, name
            ):
                raise NotAuthorized(
                    f"{principal} lacks {right.operation.name} on {right.resource.name} {name!r}"
                )
