"""Links to a broker on which what it answers can be held back."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from tests.broker.replication.brokers import Brokers


class HeldLink:
    """The address of a broker: passes everything on, until `hold_from` meets what it waits for.

    From then on nothing more arrives on that one connection before `release`.
    """

    def __init__(self, cluster: Brokers, number: int) -> None:
        self._cluster = cluster
        self._number = number
        self._mark = b""
        self._released = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_holding = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def address(self) -> str:
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    def hold_from(self, mark: bytes) -> None:
        """Hold back the next answer that contains this, and all that follow it."""
        self._mark = mark

    def release(self) -> None:
        self._released.set()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._join(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            port = self._cluster[self._number].port
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        except (OSError, KeyError):
            writer.close()
            return
        ways = [
            asyncio.ensure_future(self._pass_on(reader, far_writer)),
            asyncio.ensure_future(self._pass_on(far_reader, writer, holds=True)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for each in (writer, far_writer):
                each.close()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, holds: bool = False
    ) -> None:
        while data := await reader.read(1 << 16):
            if holds and self._mark and self._mark in data:
                self._mark = b""
                self.is_holding = True
                await self._released.wait()
            writer.write(data)
