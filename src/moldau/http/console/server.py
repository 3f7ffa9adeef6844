"""A console on a server of its own."""

from __future__ import annotations

import asyncio

from starlette.routing import Mount

from moldau.broker.net.hangups import Hangups
from moldau.console.app import application
from moldau.console.console import Console
from moldau.console.settings import ConsoleSettings
from moldau.http.server import HttpLimits, HttpServer

_LIMITS = HttpLimits(connections=500, body_bytes=8 << 20, timeout_s=60.0)


class ConsoleServer:
    """One console at one address, from `start` to `stop`. Event loop only."""

    def __init__(self, settings: ConsoleSettings, host: str, port: int) -> None:
        self.console = Console(settings)
        self._hangups = Hangups(asyncio.get_running_loop().call_later)
        routes = [Mount("/", application(self.console))]
        self._server = HttpServer(host, port, routes, _LIMITS, self._hangups)

    @property
    def url(self) -> str:
        return self._server.url

    async def start(self) -> None:
        """Take the address and answer; CannotListen if that fails."""
        await self._server.start()
        self.console.start()

    async def stop(self) -> None:
        await self.console.stop()
        await self._server.stop()
        self._hangups.tell()
