"""HTTP in a thread of its own, for a process that has no event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Self

from starlette.routing import BaseRoute

from moldau.broker.net.hangups import Hangups
from moldau.http.server import HttpLimits, HttpServer

_WITHIN_S = 10.0


class HttpThread:
    """A server with some routes, from `__enter__` to `__exit__`. Routes run in its thread."""

    def __init__(self, host: str, port: int, routes: Sequence[BaseRoute]) -> None:
        self._host, self._port = host, port
        self._routes = routes
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: HttpServer | None = None
        self._problem: BaseException | None = None
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="moldau-http", daemon=True)

    @property
    def url(self) -> str:
        assert self._server is not None
        return self._server.url

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait(_WITHIN_S)
        if self._problem is not None:
            raise self._problem
        return self

    def __exit__(self, *problem: object) -> None:
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_WITHIN_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as problem:
            self._problem = problem
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        hangups = Hangups(self._loop.call_later)
        server = HttpServer(self._host, self._port, self._routes, HttpLimits(), hangups)
        await server.start()
        self._server = server
        self._ready.set()
        try:
            await self._stopping.wait()
        finally:
            await server.stop()
            hangups.tell()
