"""The APIs that the broker answers: each is declared once, beside its handler.

A module declares its functions with the `handles` of its room: in which versions, which rights they
take, and whether only the controller may answer. A handler is given the parts of the broker that
its room uses, and a `Request`. It answers with a dict (see `moldau.wire.messages`), with bytes that
are encoded already, or with an awaitable of either. One that reads its request by hand (`reads`) is
given its connection and the frame, too. It may take its place in the order of answers itself, and
then answers with None.

Most modules are imported on the first use of an API that they declare (see `catalog`). Until then
nothing is known of it but its versions.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import msgspec

from moldau.broker.api.catalog import AT_START, MODULES
from moldau.broker.api.rights import Right
from moldau.broker.net.connection import Connection
from moldau.broker.net.request import Request
from moldau.cluster.errors import ClusterError
from moldau.wire.apis import VERSIONS, Api

Answer = dict[str, Any] | bytes
P = TypeVar("P")
Handler = Callable[[P, Request], Answer | Awaitable[Answer]]
Reader = Callable[[P, Connection, Request, memoryview], bytes | None]
Refusal = Callable[[Request, ClusterError], Answer]


class Declaration(msgspec.Struct, frozen=True):
    """One API: the first and the last version that are served, and what answers it.

    A `reader` is given the frame, a `handler` kio's object, each with the broker's `parts` that it
    uses. `refused` answers a request whose sender lacks one of the `rights` that it takes as a
    whole. A handler with a `refusal` runs at the controller alone. `any_version` has requests of
    other versions answered, too. What `stages` appends leaves them to be written together. What is
    `forwardable` may come in another broker's envelope; what is `inter_broker` is for brokers only.
    There are no `parts` as long as its module has not been imported.
    """

    api: Api
    first: int
    last: int
    parts: type | None = None
    handler: Handler[Any] | None = None
    reader: Reader[Any] | None = None
    rights: tuple[Right, ...] = ()
    refused: Refusal | None = None
    refusal: Refusal | None = None
    any_version: bool = False
    stages: bool = False
    forwardable: bool = False
    inter_broker: bool = False


_MODULES = {
    api: f"moldau.broker.api.{module}" for module, found in MODULES.items() for api in found
}

DECLARED: dict[int, Declaration] = {
    api: Declaration(api, VERSIONS[api].first, VERSIONS[api].last) for api in _MODULES
}


class Room(Generic[P]):
    """Declares APIs whose handlers use the same parts of the broker."""

    def __init__(self, parts: type[P]) -> None:
        self._parts = parts

    def handles(
        self,
        api: Api,
        versions: tuple[int, int],
        *rights: Right,
        refused: Refusal | None = None,
        at_controller: Refusal | None = None,
        forwardable: bool = False,
        inter_broker: bool = False,
    ) -> Callable[[Handler[P]], Handler[P]]:
        """Declare the function that answers an API in these versions, both ends included.

        Who asks needs these rights; `refused` answers who lacks one that the whole request takes,
        and if it is not given `at_controller` does. With that, only the controller calls the
        handler, and the others pass the request on to there. `at_controller` answers the request
        when it cannot be passed on. One that passes requests on by itself is `forwardable`.
        """

        def declare(handler: Handler[P]) -> Handler[P]:
            DECLARED[api] = Declaration(
                api,
                *versions,
                self._parts,
                handler,
                rights=rights,
                refused=refused or at_controller,
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
        any_version: bool = False,
        stages: bool = False,
    ) -> Callable[[Reader[P]], Reader[P]]:
        """Declare the function that reads and answers an API by hand, and asks for all rights."""

        def declare(reader: Reader[P]) -> Reader[P]:
            DECLARED[api] = Declaration(
                api, *versions, self._parts, reader=reader, rights=rights,
                any_version=any_version, stages=stages,
            )  # fmt: skip
            return reader

        return declare


def declared() -> dict[int, Declaration]:
    """Return all APIs, with what is needed at a start imported."""
    for module in AT_START:
        importlib.import_module(f"moldau.broker.api.{module}")
    return DECLARED


def is_imported(api: int) -> bool:
    """Return whether the module that declares an API has been imported."""
    return DECLARED[api].parts is not None


def take_up(api: int) -> None:
    """Import the module that declares an API. Any thread."""
    importlib.import_module(_MODULES[Api(api)])


def load() -> dict[int, Declaration]:
    """Import every module of the APIs."""
    for api in _MODULES:
        take_up(api)
    return DECLARED
