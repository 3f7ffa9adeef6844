"""The host of the routes: what a module that serves HTTP is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import Request

from moldau.broker.security.authorizer import CLUSTER_NAME, NO_API, Operation, Resource

if TYPE_CHECKING:
    from moldau.broker.server import Broker

Hook = Callable[[], Awaitable[None]]


class Host:
    """The broker, and the hooks of those who have to begin and end with it. Event loop only.

    A module gives `routes(host) -> list[Route]`, which is called once, when all parts of the broker
    exist and none has started. `on_start` hooks run when the broker serves, in their order;
    `on_stop` hooks when it begins to stop, `on_drained` hooks when its clients have been answered,
    both in reverse.
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.on_start: list[Hook] = []
        self.on_stop: list[Hook] = []
        self.on_drained: list[Hook] = []

    def require(
        self,
        request: Request,
        operation: Operation,
        resource: Resource = Resource.CLUSTER,
        name: str = CLUSTER_NAME,
        *,
        tells: bool = True,
    ) -> None:
        """Refuse the request with 403 unless its sender holds this right. The audit hears of a
        refusal in any case, and of an admission if this call `tells`: once of each request."""
        if not tells and self.may(request, operation, resource, name, quietly=True):
            return
        if not self.may(request, operation, resource, name):
            principal = request.scope["principal"]
            raise HTTPException(
                403, f"{principal} lacks {operation.name} on {resource.name} {name!r}"
            )

    def may(
        self,
        request: Request,
        operation: Operation,
        resource: Resource = Resource.CLUSTER,
        name: str = CLUSTER_NAME,
        *,
        quietly: bool = False,
        as_peer: bool = False,
    ) -> bool:
        """Return whether the sender of a request holds this right; `quietly` where that is only
        one of several ways. `as_peer` asks about the broker that has passed it on."""
        authorizer = self.broker.entrance.authorizer
        if authorizer is None:
            return True
        principal = request.scope["principal"]
        address = request.client.host if request.client is not None else ""
        if as_peer and request.scope.get("peer"):
            address = request.scope["peer"][0]
        return authorizer.allows(principal, address, operation, resource, name, quietly=quietly)

    def may_any(self, request: Request, operation: Operation, resource: Resource) -> bool:
        """Return whether there can be any resource of a kind for which the sender holds a right."""
        authorizer = self.broker.entrance.authorizer
        if authorizer is None:
            return True
        address = request.client.host if request.client is not None else ""
        principal = request.scope["principal"]
        return authorizer.allows_any(principal, address, operation, resource, NO_API, quietly=True)
