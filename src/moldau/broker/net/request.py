"""Requests: what every API is given, Produce and Fetch included."""

from __future__ import annotations

from typing import Any

import msgspec

from moldau.broker.net.context import Context
from moldau.broker.security.authorizer import (
    CLUSTER_NAME,
    Authorizer,
    Operation,
    Resource,
    all_operations,
)
from moldau.wire.acls import SUPPORTED


class AskAnotherBroker(Exception):
    """What this broker knows is too old for an answer: the connection ends, and clients go on to
    another broker."""


class Request(msgspec.Struct):
    """One request: its header, its connection's context, and its body.

    `context` says who asks and from where. The body begins at `start` in a frame of `size` bytes.
    Who reads that by hand (Produce, Fetch, ApiVersions) is given it beside the request, since its
    memory is reused afterwards. For all others `raw` has the bytes of the body, and `body` kio's
    object of them. `received_at` is a time of `time.monotonic`.

    One that `is_relayed` is answered by the controller, another broker.

    Who asks may do everything if there is no `authorizer`.

    One that `is_forwarded` came in another broker's envelope: then `context` is that of the client.
    """

    api: int
    version: int
    correlation_id: int
    client_id: str
    context: Context
    start: int = 0
    size: int = 0
    received_at: float = 0.0
    raw: bytes = b""
    body: Any = None
    is_forwarded: bool = False
    is_relayed: bool = False
    authorizer: Authorizer | None = None

    def may(
        self, operation: Operation, resource: Resource, name: str, *, quietly: bool = False
    ) -> bool:
        """Return whether who asks may do this; `quietly` where a refusal only leaves something
        out."""
        if self.authorizer is None:
            return True
        context = self.context
        return self.authorizer.allows(
            context.principal, context.client_host, operation, resource, name, self.api,
            quietly=quietly,
        )  # fmt: skip

    def may_on_topic(self, operation: Operation, name: str) -> bool:
        """Return whether who asks may do this to a topic."""
        return self.authorizer is None or self.may(operation, Resource.TOPIC, name)

    def may_on_cluster(self, operation: Operation, *, quietly: bool = False) -> bool:
        """Return whether who asks may do this to the cluster."""
        return self.may(operation, Resource.CLUSTER, CLUSTER_NAME, quietly=quietly)

    def operations(self, resource: Resource, name: str) -> int:
        """Return all that who asks may do to a resource, as Kafka's bit field (KIP-430)."""
        if self.authorizer is None:
            return all_operations(resource)
        return sum(
            1 << operation
            for operation in SUPPORTED[resource]
            if self.may(operation, resource, name, quietly=True)
        )
