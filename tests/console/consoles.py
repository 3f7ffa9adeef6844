"""Consoles for tests: the real application on a real server, in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Generator
from typing import Any, Self

import httpx

from moldau.console.console import Console
from moldau.console.settings import ConsoleSettings
from moldau.http.console.server import ConsoleServer

CSRF = {"X-Moldau-Console": "1"}
_WITHIN_S = 30.0


class RunningConsole:
    """A console with a browser of its own, which keeps cookies."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._ready = threading.Event()
        self._stopping: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self.console: Console
        self.http: httpx.Client

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_WITHIN_S)
        return self

    def __exit__(self, *problem: object) -> None:
        self.http.close()
        assert self._loop is not None
        assert self._stopping is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_WITHIN_S)
        assert not self._thread.is_alive()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        server = ConsoleServer(self._settings, "127.0.0.1", 0)
        await server.start()
        self.console = server.console
        self.url = server.url
        self.http = httpx.Client(base_url=server.url, timeout=_WITHIN_S)
        self._ready.set()
        await self._stopping.wait()
        await server.stop()

    def get(self, path: str, status: int = 200, **query: Any) -> Any:
        """Return what a GET is answered with; names that are Python's own have a `_` behind."""
        given = {name.rstrip("_"): value for name, value in query.items()}
        return _checked(self.http.get(path, params=given), status)

    def send(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        """Return what a change is answered with."""
        answer = self.http.request(method, path, json=body, headers=CSRF)
        return _checked(answer, status)

    def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        return self.send("POST", path, body if body is not None else {}, status)

    def events(self, path: str, **query: Any) -> Generator[tuple[str, Any], None, None]:
        """Yield the events of a stream, until the caller has had enough."""
        with self.http.stream("GET", path, params=query) as answer:
            if answer.status_code != 200:
                answer.read()
                raise AssertionError(answer.text)
            name = ""
            for line in answer.iter_lines():
                key, _, rest = line.partition(": ")
                if key == "event":
                    name = rest
                elif key == "data":
                    yield name, json.loads(rest)


def _checked(answer: httpx.Response, status: int) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()
