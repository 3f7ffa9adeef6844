"""The answers of a connection, which leave in the order of its requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.broker.net.connection import Connection


class Response:
    """The place of one answer in the order of its connection; empty until it is known.

    `held` is what it and its request take meanwhile, as far as that counts; `reserve` sets it.
    """

    __slots__ = ("connection", "held", "parts")

    held: int

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.parts: list[Any] | None = None

    def abandon(self) -> None:
        """The connection is gone: lets go of whatever the answer was waiting for."""


class LongPoll(Response):
    """An answer that may only be waiting for news."""

    __slots__ = ()

    def complete(self) -> None:
        """Gives the answer now, with what there is."""
        raise NotImplementedError
