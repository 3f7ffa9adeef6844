"""The asyncio face: one connection on the running loop, any number of questions under way."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Self, TypeVar, cast

from moldau.peer.connection import FIRST_BUFFER, LARGEST_FRAME
from moldau.peer.dialogue import Asked, Dialogue
from moldau.peer.errors import ConnectionLost, MalformedAnswer
from moldau.peer.fetching import FetchAnswer, FetchQuestion
from moldau.wire.apis import Api
from moldau.wire.messages import Values
from moldau.wire.primitives import INT32

# What a small answer needs is had faster anew.
_WORTH_REUSE = 16 << 10

T = TypeVar("T")


class AsyncConnection(asyncio.BufferedProtocol):
    """A greeted connection to one broker; made by `connect`.

    Answers come in the order of the questions. Every answer arrives in memory of its own, so what
    it holds stays valid, until it is given back by `recycle`. When the connection breaks, all who
    wait get ConnectionLost.
    """

    def __init__(self, address: str, client_id: str) -> None:
        self.address = address
        self._dialogue = Dialogue(address, client_id)
        self._waiting: deque[asyncio.Future[memoryview]] = deque()
        self._transport: asyncio.Transport | None = None
        self._size = bytearray(4)
        self._frame: bytearray | None = None
        self._spare: bytearray | None = None
        self._frame_size = 0
        self._filled = 0

    @classmethod
    async def connect(cls, host: str, port: int, client_id: str, timeout_s: float = 10.0) -> Self:
        """Connected and greeted; ConnectionLost when that fails or takes longer."""
        address = f"{host}:{port}"
        connection: Self | None = None
        try:
            async with asyncio.timeout(timeout_s):
                loop = asyncio.get_running_loop()
                _, connection = await loop.create_connection(
                    lambda: cls(address, client_id), host, port
                )
                while True:
                    asked, frame = connection._dialogue.greeting()
                    answer = await connection._exchange(frame)
                    if connection._understood(connection._dialogue.greeted, asked, answer):
                        return connection
        except OSError as reason:
            if connection is not None:
                connection.close()
            text = "timed out" if isinstance(reason, TimeoutError) else reason.strerror
            raise ConnectionLost(address, text or str(reason)) from None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        self._fail("closed")

    async def ask(self, api: Api, values: Values, at_most: int | None = None) -> Any:
        """One question and its answer, as kio's object."""
        asked, frame = self._dialogue.ask(api, values, at_most)
        return self._understood(self._dialogue.answer, asked, await self._exchange(frame))

    async def relay(self, api: int, version: int, body: bytes) -> bytes:
        """One question of somebody else's, encoded, and the encoded answer."""
        asked, frame = self._dialogue.relay(api, version, body)
        return self._understood(self._dialogue.relayed, asked, await self._exchange(frame))

    async def fetch(self, question: FetchQuestion) -> FetchAnswer:
        """One Fetch; the records are views of the frame that they came in."""
        asked, frame = self._dialogue.ask_fetch(question)
        return self._understood(self._dialogue.fetched, asked, await self._exchange(frame))

    def recycle(self, records: memoryview) -> None:
        """Takes back the memory of an answer that nobody looks at any more, for another one.

        Memory that was used before is much cheaper than fresh.
        """
        if isinstance(records.obj, bytearray):
            self._spare = records.obj

    async def _exchange(self, frame: bytes) -> memoryview:
        if self._transport is None or self._transport.is_closing():
            raise ConnectionLost(self.address, "the connection is closed")
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        # A question whose asker went away stays in the queue: its answer still comes.
        self._waiting.append(answer)
        self._transport.write(frame)
        return await answer

    def _understood(
        self, understand: Callable[[Asked, memoryview], T], asked: Asked, frame: memoryview
    ) -> T:
        try:
            return understand(asked, frame)
        except MalformedAnswer as problem:
            self._fail(problem.reason)
            raise

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, problem: Exception | None) -> None:
        self._fail(str(problem) if problem else "the broker closed the connection")

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is None:
            return memoryview(self._size)[self._filled :]
        if self._filled == len(self._frame) < self._frame_size:
            # A peer that claims a huge answer costs us memory only as fast as it sends.
            larger = bytearray(min(self._frame_size, 2 * len(self._frame)))
            larger[: self._filled] = self._frame
            self._frame = larger
        return memoryview(self._frame)[self._filled : self._frame_size]

    def buffer_updated(self, count: int) -> None:
        self._filled += count
        if self._frame is None:
            if self._filled < 4:
                return
            (self._frame_size,) = INT32.unpack(self._size)
            if not 4 <= self._frame_size <= LARGEST_FRAME or not self._waiting:
                self._fail(f"an answer of {self._frame_size} bytes to no question of ours")
                return
            self._frame, self._filled = self._buffer(), 0
        elif self._filled == self._frame_size:
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_result(memoryview(self._frame)[: self._frame_size])
            self._frame, self._filled = None, 0

    def _buffer(self) -> bytearray:
        spare = self._spare
        if spare is None or self._frame_size < _WORTH_REUSE:
            return bytearray(min(self._frame_size, FIRST_BUFFER))
        self._spare = None
        return spare

    def _fail(self, reason: str) -> None:
        if self._transport is not None:
            self._transport.abort()
        while self._waiting:
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(ConnectionLost(self.address, reason))
