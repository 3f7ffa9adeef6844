"""The APIs that the broker answers: each is declared once, beside its handler.

A module declares its functions with `handles`: in which versions, which rights they take, and
whether only the controller may answer. A handler is given a `Request` and answers with a dict (see
`moldau.wire.messages`), with bytes that are encoded already, or with an awaitable of either. One
that reads its request by hand (`reads`) is given its connection and the frame, too. It may take its
place in the order of answers itself, and then answers with None.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.broker import api as apis
from moldau.broker.api.rights import Right
from moldau.broker.net.request import Request
from moldau.cluster.errors import ClusterError
from moldau.wire.apis import Api

if TYPE_CHECKING:
    from moldau.broker.net.connection import Connection
    from moldau.broker.server import Broker

Answer = dict[str, Any] | bytes
Handler = Callable[["Broker", Request], Answer | Awaitable[Answer]]
Reader = Callable[["Broker", "Connection", Request, memoryview], bytes | None]
# A version, a frame, and where the body begins in it.
Decode = Callable[[int, memoryview, int], Any]
Refusal = Callable[[Request, ClusterError], Answer]
_H = TypeVar("_H", bound=Handler)
_R = TypeVar("_R", bound=Reader)


@dataclass(frozen=True, slots=True)
class Declaration:
    """One API: the first and the last version that are served, and what answers it.

    A `reader` is given the frame, a `handler` kio's object. `any_version` has requests of other
    versions answered, too. What `stages` appends leaves them to be written together. What is
    `forwardable` may come in another broker's envelope; what is `inter_broker` is for brokers only.
    """

    api: Api
    first: int
    last: int
    handler: Handler | None = None
    reader: Reader | None = None
    rights: tuple[Right, ...] = ()
    any_version: bool = False
    stages: bool = False
    decode: Decode | None = None
    forwardable: bool = False
    inter_broker: bool = False


DECLARED: dict[int, Declaration] = {}


def handles(
    api: Api,
    versions: tuple[int, int],
    *rights: Right,
    at_controller: Refusal | None = None,
    forwardable: bool = False,
    inter_broker: bool = False,
) -> Callable[[_H], _H]:
    """Declares the function that answers an API in these versions, both ends included.

    Who asks needs these rights.

    With `at_controller` only the controller calls it, and the others pass the request on to there.
    That function answers the request when it cannot be passed on. One that passes requests on by
    itself is `forwardable`.
    """

    def declare(handler: _H) -> _H:
        routed = handler if at_controller is None else _routed(handler, at_controller)
        DECLARED[api] = Declaration(
            api,
            *versions,
            handler=routed,
            rights=rights,
            forwardable=forwardable or at_controller is not None,
            inter_broker=inter_broker,
        )
        return handler

    return declare


def reads(
    api: Api,
    versions: tuple[int, int],
    *rights: Right,
    decode: Decode | None = None,
    any_version: bool = False,
    stages: bool = False,
) -> Callable[[_R], _R]:
    """Declares the function that reads and answers an API by hand.

    Where there is an authorizer `decode` reads the request for it.
    """

    def declare(reader: _R) -> _R:
        DECLARED[api] = Declaration(
            api, *versions, reader=reader, rights=rights, decode=decode,
            any_version=any_version, stages=stages,
        )  # fmt: skip
        return reader

    return declare


def _routed(handler: Handler, refuse: Refusal) -> Handler:
    def route(broker: Broker, request: Request) -> Answer | Awaitable[Answer]:
        if broker.controller.is_in_office:
            return handler(broker, request)
        return broker.forwarding.relay(request, handler, refuse)

    return route


def load() -> dict[int, Declaration]:
    """Imports every module of the APIs, which declares them."""
    for module in pkgutil.walk_packages(apis.__path__, f"{apis.__name__}."):
        importlib.import_module(module.name)
    return DECLARED
