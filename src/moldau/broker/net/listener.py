"""Listeners: the addresses where clients reach a broker."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

from moldau.broker.net.output import OutputForm

# Connections that may wait to be taken.
_BACKLOG = 1024


class Listener:
    """One address, taken with `bind`, and open from `serve` to `close`. Event loop only.

    Between the two, whoever connects waits. Port 0 takes a free one, which `port` is after `bind`.
    Connections that come in here send by the form of `output`.
    """

    def __init__(self, host: str, port: int, output: OutputForm) -> None:
        self.host = host
        self.port = port
        self.output = output
        self._server: asyncio.Server | None = None

    async def bind(
        self, loop: asyncio.AbstractEventLoop, connect: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        """Take the address; `connect` makes the protocol of each connection."""
        self._server = await loop.create_server(
            connect, self.host, self.port, backlog=_BACKLOG, start_serving=False
        )
        for each in self._server.sockets:
            with socket.socket(fileno=os.dup(each.fileno())) as own:
                own.listen(_BACKLOG)
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def is_bound(self) -> bool:
        return self._server is not None

    async def serve(self) -> None:
        """Take the connections that wait, and all that come."""
        assert self._server is not None
        await self._server.start_serving()

    def close(self) -> None:
        """Take no further connection."""
        if self._server is not None:
            self._server.close()
