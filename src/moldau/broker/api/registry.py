"""The APIs that the broker answers: each is declared once, beside its handler.

A module declares its functions with the `handles` of its room: in which versions, which rights they
take, and whether only the controller may answer. A handler is given the parts of the broker that
its room uses, and a `Request`. It answers with a dict (see `moldau.wire.messages`), with bytes that
are encoded already, or with an awaitable of either. One that reads its request by hand (`reads`) is
given its connection and the frame, too. It may take its place in the order of answers itself, and
then answers with None.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from moldau.broker import api as apis
from moldau.broker.api.rights import Right
from moldau.broker.net.connection import Connection
from moldau.broker.net.request import Request
from moldau.cluster.errors import ClusterError
from moldau.wire.apis import Api

Answer = dict[str, Any] | bytes
P = TypeVar("P")
Handler = Callable[[P, Request], Answer | Awaitable[Answer]]
Reader = Callable[[P, Connection, Request, memoryview], bytes | None]
# A version, a frame, and where the body begins in it.
Decode = Callable[[int, memoryview, int], Any]
Refusal = Callable[[Request, ClusterError], Answer]


@dataclass(frozen=True, slots=True)
class Declaration:
    """One API: the first and the last version that are served, and what answers it.

    A `reader` is given the frame, a `handler` kio's object, each with the broker's `parts` that it
    uses. A handler with a `refusal` runs at the controller alone. `any_version` has requests of
    other versions answered, too. What `stages` appends leaves them to be written together. What is
    `forwardable` may come in another broker's envelope; what is `inter_broker` is for brokers only.
    """

    api: Api
    first: int
    last: int
    parts: type
    handler: Handler[Any] | None = None
    reader: Reader[Any] | None = None
    rights: tuple[Right, ...] = ()
    refusal: Refusal | None = None
    any_version: bool = False
    stages: bool = False
    decode: Decode | None = None
    forwardable: bool = False
    inter_broker: bool = False


DECLARED: dict[int, Declaration] = {}


class Room(Generic[P]):
    """Declares APIs whose handlers use the same parts of the broker."""

    def __init__(self, parts: type[P]) -> None:
        self._parts = parts

    def handles(
        self,
        api: Api,
        versions: tuple[int, int],
        *rights: Right,
        at_controller: Refusal | None = None,
        forwardable: bool = False,
        inter_broker: bool = False,
    ) -> Callable[[Handler[P]], Handler[P]]:
        """Declare the function that answers an API in these versions, both ends included.

        Who asks needs these rights. With `at_controller` only the controller calls it, and the
        others pass the request on to there. That function answers the request when it cannot be
        passed on. One that passes requests on by itself is `forwardable`.
        """

        def declare(handler: Handler[P]) -> Handler[P]:
            DECLARED[api] = Declaration(
                api,
                *versions,
                self._parts,
                handler,
                rights=rights,
                refusal=at_controller,
                forwardable=forwardable or at_controller is not None,
                inter_broker=inter_broker,
            )
            return handler

        return declare

    def reads(
        self,
        api: Api,
        versions: tuple[int, int],
        *rights: Right,
        decode: Decode | None = None,
        any_version: bool = False,
        stages: bool = False,
    ) -> Callable[[Reader[P]], Reader[P]]:
        """Declare the function that reads and answers an API by hand.

        Where there is an authorizer `decode` reads the request for it.
        """

        def declare(reader: Reader[P]) -> Reader[P]:
            DECLARED[api] = Declaration(
                api, *versions, self._parts, reader=reader, rights=rights, decode=decode,
                any_version=any_version, stages=stages,
            )  # fmt: skip
            return reader

        return declare


def load() -> dict[int, Declaration]:
    """Import every module of the APIs, which declares them."""
    for module in pkgutil.walk_packages(apis.__path__, f"{apis.__name__}."):
        importlib.import_module(module.name)
    return DECLARED
