"""The answers of a connection, which leave in the order of its requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from moldau.broker.net.request import Request

if TYPE_CHECKING:
    from moldau.broker.net.connection import Connection


class Response:
    """The place of one answer in the order of its connection; empty until it is known.

    `held` is what it and its request take meanwhile, as far as that counts; `reserve` sets it.
    """

    __slots__ = ("connection", "held", "parts", "request")

    held: int

    def __init__(self, connection: Connection, request: Request) -> None:
        self.connection = connection
        self.request = request
        self.parts: list[Any] | None = None

    def encode(self, throttle_ms: int) -> list[Any]:
        """The whole answer in the parts that it is sent in. Only `Exit.leave` calls this."""
        raise NotImplementedError

    def errors(self) -> Iterator[int]:
        """The codes of all errors that the answer tells of."""
        raise NotImplementedError

    def abandon(self) -> None:
        """The connection is gone: lets go of whatever the answer was waiting for."""


class LongPoll(Response):
    """An answer that may only be waiting for news."""

    __slots__ = ()

    def complete(self) -> None:
        """Gives the answer now, with what there is."""
        raise NotImplementedError
