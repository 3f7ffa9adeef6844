"""A network between a store and ZooKeeper that can be cut, frozen, or broken at one request."""

from __future__ import annotations

import asyncio
import struct
from typing import Self

_HEADER = struct.Struct(">ii")


class Proxy:
    """Passes connections on to a server, on the event loop of the test.

    Of each connection the first answer may come late, as from a server that is busy.
    """

    def __init__(self, target: str, greets_after_s: float = 0.0) -> None:
        self._greets_after_s = greets_after_s
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._is_cut = False
        self._mark = b""
        self._passes_marked = False
        self._times = 0
        self._loses_answer = False
        self.broken = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *problem: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._close_all()

    @property
    def address(self) -> str:
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    def cut(self) -> None:
        """End all connections, and let none in."""
        self._is_cut = True
        self._close_all()

    def freeze(self) -> None:
        """Keep connections, but let nothing through."""
        self._flowing.clear()

    def heal(self) -> None:
        self._is_cut = False
        self._flowing.set()

    def break_at(self, mark: bytes, *, passes: bool, times: int = 1) -> None:
        """Break the connection over each of the next requests that contain `mark`, which still
        reach the server (only their answers do not come back), or do not."""
        self._mark, self._passes_marked, self._times = mark, passes, times

    def _close_all(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            if not self._is_cut:
                await self._connect(reader, writer)
        except OSError:
            pass
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection(*self._target)
        self._writers.add(forth)
        try:
            await asyncio.gather(self._pass_on(reader, forth), self._answer(back, writer))
        finally:
            forth.transport.abort()
            self._writers.discard(forth)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 20):
            await self._flowing.wait()
            if self._times and self._mark and self._mark in data:
                self._times -= 1
                self.broken += 1
                if not self._passes_marked:
                    raise ConnectionError("broken on purpose")
                self._loses_answer = True
            writer.write(data)
            await writer.drain()
        raise ConnectionError("closed")

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(self._greets_after_s)
        while data := await reader.read(1 << 20):
            await self._flowing.wait()
            if self._loses_answer:
                self._loses_answer = False
                raise ConnectionError("broken on purpose")
            writer.write(data)
            await writer.drain()
        raise ConnectionError("closed")


class FrameProxy(Proxy):
    """Passes requests and answers on one by one: it knows the numbers of requests, and can lose the
    answer to one of them."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        # The numbers of the requests of each connection.
        self.asked: list[list[int]] = []
        self._lost: int | None = None

    def lose_answer_to(self, mark: bytes) -> None:
        """Lose the answer to the next request with `mark`, but none to those that follow."""
        self._mark, self.broken = mark, 0

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked: list[int] = []
        self.asked.append(asked)
        # The first asks for a session, and has no number.
        writer.write(await _frame(reader))
        while True:
            frame = await _frame(reader)
            _, number = _HEADER.unpack_from(frame)
            if number > 0:
                asked.append(number)
            if self._mark and self._mark in frame:
                self._mark, self._lost = b"", number
            writer.write(frame)
            await writer.drain()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await _frame(reader))
        while True:
            frame = await _frame(reader)
            if self._lost == _HEADER.unpack_from(frame)[1]:
                self._lost = None
                self.broken += 1
            else:
                writer.write(frame)
                await writer.drain()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    try:
        size = await reader.readexactly(4)
        return size + await reader.readexactly(int.from_bytes(size, "big"))
    except asyncio.IncompleteReadError:
        raise ConnectionError("closed") from None
