"""The APIs that the broker answers: one module each, or one for a close family.

A module registers its functions with `handles`. Produce and Fetch are hot and have an entrance of
their own in the connection; everything else arrives here as a `Request` and leaves as a dict (see
`moldau.wire.messages`), as bytes that are encoded already, or as an awaitable of either.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moldau.broker import api as apis
from moldau.cluster.errors import ClusterError
from moldau.wire.apis import Api

if TYPE_CHECKING:
    from moldau.broker.server import Broker

Answer = dict[str, Any] | bytes
Handler = Callable[["Broker", "Request"], Answer | Awaitable[Answer]]
Refusal = Callable[["Request", ClusterError], Answer]

# What a broker calls itself that passes on a client's request; its id follows.
FORWARDED_BY = "moldau-forwarded-by-"
_FORWARDED = re.compile(FORWARDED_BY + r"([0-9]{1,10})")

HANDLERS: dict[int, Handler] = {}


@dataclass(slots=True)
class Request:
    """One request: its header, kio's object for its body, and where it came in."""

    api: int
    version: int
    client_id: str
    body: Any
    raw: bytes
    local_host: str
    local_port: int
    client_host: str = ""

    @property
    def forwarded_by(self) -> int | None:
        """The broker that the client asked, where that passed the request on to this one."""
        match = _FORWARDED.fullmatch(self.client_id)
        return None if match is None else int(match[1])


def handles(api: Api, *, at_controller: Refusal | None = None) -> Callable[[Handler], Handler]:
    """Registers the function that answers an API, in the whole range of versions of its schema.

    With `at_controller` only the controller calls it, and the others pass the request on to there.
    That function answers the request when it cannot be passed on.
    """

    def register(handler: Handler) -> Handler:
        HANDLERS[api] = handler if at_controller is None else _routed(handler, at_controller)
        return handler

    return register


def _routed(handler: Handler, refuse: Refusal) -> Handler:
    def route(broker: Broker, request: Request) -> Answer | Awaitable[Answer]:
        if broker.controller.is_in_office:
            return handler(broker, request)
        return broker.forwarding.relay(request, handler, refuse)

    return route


def load() -> None:
    """Imports every module of the APIs, which registers them."""
    for module in pkgutil.walk_packages(apis.__path__, f"{apis.__name__}."):
        importlib.import_module(module.name)
