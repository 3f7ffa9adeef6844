"""Asyncio connections: each to one broker, with any number of requests in flight."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from moldau.peer.authenticating import authentication
from moldau.peer.connection import FIRST_BUFFER, LARGEST_FRAME, is_refusal, tls_failure
from moldau.peer.dialogue import Asked, Dialogue
from moldau.peer.errors import (
    ConnectionLost,
    ConnectionRefused,
    MalformedAnswer,
    NotAuthenticated,
    PeerError,
)
from moldau.wire.apis import Api
from moldau.wire.fetch.request import FetchRequest
from moldau.wire.fetch.response import FetchAnswer
from moldau.wire.messages import Values
from moldau.wire.primitives import INT32

if TYPE_CHECKING:
    from moldau.security.client import ClientSecurity

# For a small response, new memory is faster.
_WORTH_REUSE = 16 << 10
# From this size on, wait for the expected bytes, up to a limit, instead of reading them as they
# come.
_WORTH_WAITING = 128 << 10
_AT_ONCE = 512 << 10
# How long a closing connection waits for the other side's end of TLS.
_SHUTDOWN_S = 1.0

# A network that loses everything in silence: the kernel would try for a quarter of an hour, and
# what it still has would arrive late. It gives both up after this (Linux only).
_USER_TIMEOUT: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)
_UNHEARD_MS = 10_000

T = TypeVar("T")


class AsyncConnection(asyncio.BufferedProtocol):
    """A connection to one broker; made by `connect`, or by `open` to say nothing.

    Answers come in the order of the questions. Every answer arrives in memory of its own, so what
    it holds stays valid, until it is given back by `recycle`. When the connection breaks, all who
    wait get ConnectionLost.
    """

    def __init__(
        self, address: str, client_id: str, security: ClientSecurity | None = None
    ) -> None:
        self.address = address
        self._security = security
        # Requests that wait for the end of a re-authentication; None if there is none.
        self._held: list[tuple[asyncio.Future[Any], Callable[[memoryview], Any], bytes]] | None
        self._held = None
        self._renewal: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._dialogue = Dialogue(address, client_id)
        self._waiting: deque[tuple[asyncio.Future[Any], Callable[[memoryview], Any]]] = deque()
        self._transport: asyncio.Transport | None = None
        self._size = bytearray(4)
        self._frame: bytearray | None = None
        self._spare: bytearray | None = None
        self._frame_size = 0
        self._woken_at = 1
        self._filled = 0
        self._is_greeted = False
        self._closed = asyncio.Event()
        # When the last answer came, or the first of the questions that wait was asked.
        self._heard_at = 0.0
        self._silence: asyncio.TimerHandle | None = None

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        client_id: str,
        timeout_s: float = 10.0,
        security: ClientSecurity | None = None,
    ) -> Self:
        """Connected, greeted and authenticated; ConnectionLost when that fails or takes longer."""
        started = asyncio.get_running_loop().time()
        connection = await cls.open(host, port, client_id, timeout_s, security)
        is_ready = False
        try:
            async with asyncio.timeout_at(started + timeout_s):
                await connection._greet()
                await connection._authenticate()
                is_ready = True
        except TimeoutError:
            raise ConnectionLost(connection.address, "timed out") from None
        finally:
            if not is_ready:
                connection.close()
        return connection

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        client_id: str,
        timeout_s: float = 10.0,
        security: ClientSecurity | None = None,
    ) -> Self:
        """Connected, with nothing said yet. ConnectionLost when that fails or takes longer;
        ConnectionRefused only if every address of the host refuses."""
        address = f"{host}:{port}"
        loop = asyncio.get_running_loop()
        problems: list[OSError] = []
        tls = {} if security is None else _tls(address, security, host)
        try:
            async with asyncio.timeout(timeout_s):
                for *_, (each, *_) in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                    try:
                        _, connection = await loop.create_connection(
                            lambda: cls(address, client_id, security), str(each), port, **tls
                        )
                    except OSError as problem:
                        problems.append(problem)
                    else:
                        return connection
        except TimeoutError:
            raise ConnectionLost(address, "timed out") from None
        except OSError as problem:
            raise ConnectionLost(address, _reason(problem)) from None
        if tls and problems and not isinstance(problems[-1], ConnectionRefusedError):
            raise tls_failure(address, problems[-1])
        if problems and all(isinstance(problem, ConnectionRefusedError) for problem in problems):
            raise ConnectionRefused(address, _reason(problems[-1]))
        reasons = dict.fromkeys(_reason(problem) for problem in problems)
        raise ConnectionLost(address, ", ".join(reasons))

    async def _greet(self) -> None:
        while not self._is_greeted:
            asked, frame = self._dialogue.greeting()
            self._is_greeted = await self._exchange(asked, frame, self._dialogue.greeted)

    async def _authenticate(self) -> None:
        """Prove who we are, if the broker wants to know, and again before that ceases to count."""
        security = self._security
        if security is None or not security.has_sasl:
            return
        steps = authentication(self.address, security)
        answer = None
        try:
            while True:
                api, values = steps.send(answer)
                asked, frame = self._dialogue.ask(api, values)
                answer = await self._exchange_now(asked, frame, self._dialogue.answer)
        except StopIteration as done:
            if done.value:
                loop = asyncio.get_running_loop()
                self._renewal = loop.call_later(done.value, self._renew)

    def _renew(self) -> None:
        self._held = []
        self._renewing = asyncio.create_task(self._authenticate_again())

    async def _authenticate_again(self) -> None:
        try:
            await self._authenticate()
        except PeerError as problem:
            self._fail(str(problem))
        # The broker takes no request in between.
        held, self._held = self._held or [], None
        for answer, understand, frame in held:
            if self.is_open and self._transport is not None:
                self._waiting.append((answer, understand))
                self._transport.write(frame)
            elif not answer.done():
                answer.set_exception(ConnectionLost(self.address, "the connection is closed"))

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self, reason: str = "closed") -> None:
        """All who wait get ConnectionLost, with the reason."""
        self._fail(reason)

    async def until_closed(self) -> None:
        """Wait for the end of the connection, whoever ends it."""
        await self._closed.wait()

    def limit_silence(self, limit_s: Callable[[], float]) -> None:
        """Hang up when a question waits for longer than that, and no other was answered meanwhile.

        One timer for all questions, which are many.
        """
        loop = asyncio.get_running_loop()
        limit = limit_s()
        left_s = self._heard_at + limit - loop.time() if self._waiting else limit
        if left_s > 0:
            self._silence = loop.call_later(left_s, self.limit_silence, limit_s)
        else:
            self._fail(f"no response within {limit:g} s")

    def speaks(self, api: Api) -> bool:
        """Return whether the broker has announced an API in a version that we know."""
        return self._dialogue.speaks(api)

    async def ask(self, api: Api, values: Values, at_most: int | None = None) -> Any:
        """Send one request and return its response, as kio's object."""
        asked, frame = self._dialogue.ask(api, values, at_most)
        return await self._exchange(asked, frame, self._dialogue.answer)

    async def relay(self, api: int, version: int, body: bytes) -> bytes:
        """Send another's encoded request and return the encoded response."""
        asked, frame = self._dialogue.relay(api, version, body)
        return await self._exchange(asked, frame, self._dialogue.relayed)

    def fetch(self, request: FetchRequest) -> asyncio.Future[FetchAnswer]:
        """Send a Fetch at once and return its response; the records are views of the frame they
        come in.

        No coroutine: a follower asks a thousand times a second.
        """
        asked, frame = self._dialogue.ask_fetch(request)
        return self._exchange(asked, frame, self._dialogue.fetched)

    def recycle(self, records: memoryview) -> None:
        """Reuse the memory of a response that is no longer needed.

        Memory that was used before is much cheaper than fresh.
        """
        if isinstance(records.obj, bytearray):
            self._spare = records.obj

    def _exchange(
        self, asked: Asked, frame: bytes, understand: Callable[[Asked, memoryview], T]
    ) -> asyncio.Future[T]:
        if self._held is None:
            return self._exchange_now(asked, frame, understand)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._held.append((answer, partial(understand, asked), frame))
        return answer

    def _exchange_now(
        self, asked: Asked, frame: bytes, understand: Callable[[Asked, memoryview], T]
    ) -> asyncio.Future[T]:
        if self._transport is None or self._transport.is_closing():
            raise ConnectionLost(self.address, "the connection is closed")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        if not self._waiting:
            self._heard_at = loop.time()
        # A question whose asker went away stays in the queue: its answer still comes.
        self._waiting.append((answer, partial(understand, asked)))
        self._transport.write(frame)
        return answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if _USER_TIMEOUT is not None:
            connected = transport.get_extra_info("socket")
            connected.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, _UNHEARD_MS)
        # Of encrypted bytes nobody knows how many will come.
        self._may_wait = transport.get_extra_info("ssl_object") is None

    def connection_lost(self, problem: Exception | None) -> None:
        if isinstance(problem, OSError) and not self._is_greeted and is_refusal(problem):
            self._fail_by(tls_failure(self.address, problem))
        else:
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
                self._fail(f"an answer of {self._frame_size} bytes to a request that was not sent")
                return
            self._frame, self._filled = self._buffer(), 0
            if self._frame_size >= _WORTH_WAITING and self._may_wait:
                self._wake_at(self._frame_size)
        elif self._filled == self._frame_size:
            if self._woken_at > 1:
                self._wake_at(1)
            frame = memoryview(self._frame)[: self._frame_size]
            self._frame, self._filled = None, 0
            self._answered(frame)
        elif self._woken_at > 1:
            self._wake_at(self._frame_size - self._filled)

    def _wake_at(self, size: int) -> None:
        """Let the kernel wake this process when that many bytes have arrived, or enough of them.

        A large answer would otherwise be read in dozens of pieces. An end of the connection is told
        at once all the same.
        """
        size = min(size, _AT_ONCE)
        if size != self._woken_at and self._transport is not None:
            self._woken_at = size
            connected = self._transport.get_extra_info("socket")
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def _answered(self, frame: memoryview) -> None:
        answer, understand = self._waiting.popleft()
        self._heard_at = asyncio.get_running_loop().time()
        if answer.done():
            return
        try:
            answer.set_result(understand(frame))
        except Exception as problem:
            answer.set_exception(problem)
            if isinstance(problem, MalformedAnswer):
                self._fail(problem.reason)

    def _buffer(self) -> bytearray:
        spare = self._spare
        if spare is None or self._frame_size < _WORTH_REUSE:
            return bytearray(min(self._frame_size, FIRST_BUFFER))
        self._spare = None
        return spare

    def _fail(self, reason: str) -> None:
        self._fail_by(ConnectionLost(self.address, reason))

    def _fail_by(self, problem: ConnectionLost) -> None:
        if self._transport is not None:
            self._transport.abort()
        for timer in (self._silence, self._renewal):
            if timer is not None:
                timer.cancel()
        self._closed.set()
        while self._waiting:
            answer, _ = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(type(problem)(problem.address, problem.reason))


def _tls(address: str, security: ClientSecurity, host: str) -> dict[str, Any]:
    """Return what `create_connection` has to know of TLS."""
    from moldau.security.key_material import TlsError

    try:
        context = security.context()
    except TlsError as problem:
        raise NotAuthenticated(address, str(problem)) from None
    if context is None:
        return {}
    return {"ssl": context, "server_hostname": host, "ssl_shutdown_timeout": _SHUTDOWN_S}


def _reason(problem: OSError) -> str:
    return problem.strerror or str(problem)
