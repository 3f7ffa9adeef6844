"""The authorizer: the one who is asked whether somebody may do something."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from moldau.broker.security.principal import Principal
from moldau.wire.acls import CLUSTER_NAME, SUPPORTED, Operation, Resource
from moldau.wire.primitives import TopicKey

__all__ = [
    "CLUSTER_NAME", "NO_API", "Authorizer", "Grants", "Operation", "Resource", "all_operations",
]  # fmt: skip

# What is asked for by other means than a request of the protocol.
NO_API = -1


class Grants(msgspec.Struct, frozen=True):
    """The topics that a connection may write to, by the rules that it was asked under.

    Who sends a hundred writes at once is not asked a hundred times. Topics go by what requests call
    them, a name or an id.
    """

    rules: object
    writable: set[TopicKey]


class Authorizer(Protocol):
    """Decides by who asks and from which host. Event loop only.

    `rules` is another object whenever they have changed. What is granted may be remembered until
    then if it `may_remember`: not where every admission is counted.
    """

    rules: Any

    @property
    def may_remember(self) -> bool: ...

    def allows(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: Resource,
        name: str,
        api: int = NO_API,
        *,
        quietly: bool = False,
    ) -> bool:
        """Return whether somebody may do this to one resource. `api` is what it is asked for;
        `quietly` where a refusal only leaves something out, which is no news."""

    def allows_any(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: Resource,
        api: int,
        *,
        quietly: bool = False,
    ) -> bool:
        """Return whether there can be any resource of this kind that somebody may do this to."""


def all_operations(resource: Resource) -> int:
    """Return everything that can be done to a resource, as Kafka's bit field: bit n stands for
    operation n."""
    return sum(1 << operation for operation in SUPPORTED[resource])
