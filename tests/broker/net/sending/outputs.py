"""Outputs over real sockets, for tests."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from moldau.broker.net.outputs.output import OutputForm
from moldau.broker.net.outputs.transport_output import TransportOutput
from moldau.log.files.open_files import OpenFile
from moldau.testing.waiting import until_async

CONTENT = bytes(range(256)) * 4096


Work = Callable[["Wire"], Awaitable[None]]


Run = Callable[[Work], None]


class Wire(asyncio.Protocol):
    """An Output on one end of a socket pair, and what its callbacks were told."""

    def __init__(self, form: OutputForm, peer: socket.socket) -> None:
        self._form = form
        self.peer = peer
        self.drained = 0
        self.failures: list[Exception] = []
        self.loop = asyncio.get_running_loop()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.output = self._form(self.loop, transport, self._on_drained, self.failures.append)
        self.output.begin()

    def pause_writing(self) -> None:
        self.output.pause_writing()

    def resume_writing(self) -> None:
        self.output.resume_writing()

    def eof_received(self) -> bool:
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.output.close()
        if self._form is TransportOutput:
            self.failures.append(exc or ConnectionResetError())

    def _on_drained(self) -> None:
        self.drained += 1

    async def receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = await asyncio.wait_for(self.loop.sock_recv(self.peer, 1 << 16), 60)
            assert piece, "the other end was closed"
            data += piece
        return bytes(data)

    async def until(self, condition: Callable[[], object]) -> None:
        await until_async(condition, poll_s=0.001)


def run(form: OutputForm, loop_factory: Callable[[], Any], work: Work) -> None:
    async def connect_and_work() -> None:
        own, peer = socket.socketpair()
        peer.setblocking(False)
        loop = asyncio.get_running_loop()
        _, wire = await loop.create_unix_connection(lambda: Wire(form, peer), sock=own)
        try:
            await work(wire)
        finally:
            wire.output.close()
            wire.transport.abort()
            wire.peer.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(connect_and_work())


def opened(tmp_path: Path) -> OpenFile:
    path = tmp_path / "segment"
    path.write_bytes(CONTENT)
    return OpenFile(os.open(path, os.O_RDWR))
