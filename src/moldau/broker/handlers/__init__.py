"""The APIs that the broker answers: one module each, or one for a close family.

A module registers its functions with `handles`. Produce and Fetch are hot and have an entrance of
their own in the connection; everything else arrives here as a `Request` and leaves as a dict (see
`moldau.wire.messages`), as bytes that are encoded already, or as an awaitable of either.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moldau.wire.apis import Api

if TYPE_CHECKING:
    from moldau.broker.server import Broker

Answer = dict[str, Any] | bytes
Handler = Callable[["Broker", "Request"], Answer | Awaitable[Answer]]

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


def handles(api: Api) -> Callable[[Handler], Handler]:
    """Registers the function that answers an API, in the whole range of versions of its schema."""

    def register(handler: Handler) -> Handler:
        HANDLERS[api] = handler
        return handler

    return register


def load() -> None:
    """Imports every handler module of this package, which registers its APIs."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
