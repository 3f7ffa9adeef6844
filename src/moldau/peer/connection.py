"""The blocking face: one connection, for one thread."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any, Self, TypeVar

from moldau.peer.dialogue import Asked, Dialogue
from moldau.peer.errors import ConnectionLost, MalformedAnswer
from moldau.peer.fetching import FetchAnswer, FetchQuestion
from moldau.wire.apis import Api
from moldau.wire.messages import Values
from moldau.wire.primitives import INT32

# A peer that claims a huge answer costs us memory only as fast as it sends.
FIRST_BUFFER = 1 << 20
LARGEST_FRAME = 1 << 30

T = TypeVar("T")


class Connection:
    """A greeted connection to one broker.

    Errors of the socket come as ConnectionLost, and the connection is closed after any. The views
    that an answer holds are valid until the next answer is received. `unanswered` counts questions
    under way: who gives the connection up with any of them open must close it.
    """

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        *,
        timeout_s: float = 30.0,
        connect_timeout_s: float = 10.0,
    ) -> None:
        self.address = f"{host}:{port}"
        self.unanswered = 0
        self._dialogue = Dialogue(self.address, client_id)
        self._timeout_s = timeout_s
        self._buffer = bytearray(FIRST_BUFFER)
        try:
            self._socket = socket.create_connection((host, port), connect_timeout_s)
        except OSError as reason:
            raise ConnectionLost(self.address, _reason(reason)) from None
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._greet()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def _greet(self) -> None:
        greeted = False
        while not greeted:
            asked, frame = self._dialogue.greeting()
            self._send(frame)
            greeted = self._understood(self._dialogue.greeted, asked)

    @property
    def is_open(self) -> bool:
        return self._socket.fileno() >= 0

    def close(self) -> None:
        self._socket.close()

    def version_of(self, api: Api) -> int:
        return self._dialogue.version_of(api)

    def ask(self, api: Api, values: Values, at_most: int | None = None) -> Any:
        """One question and its answer, as kio's object."""
        asked, frame = self._dialogue.ask(api, values, at_most)
        self._send(frame)
        return self._understood(self._dialogue.answer, asked)

    def send_fetch(self, question: FetchQuestion) -> Asked:
        """Ask, and do something else while the broker answers."""
        asked, frame = self._dialogue.ask_fetch(question)
        self._send(frame)
        return asked

    def receive_fetch(self, asked: Asked) -> FetchAnswer:
        return self._understood(self._dialogue.fetched, asked)

    def fetch(self, question: FetchQuestion) -> FetchAnswer:
        return self.receive_fetch(self.send_fetch(question))

    def _understood(self, understand: Callable[[Asked, memoryview], T], asked: Asked) -> T:
        frame = self._receive()
        try:
            return understand(asked, frame)
        except MalformedAnswer:
            self.close()
            raise

    def _send(self, frame: bytes) -> None:
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(frame)
        except OSError as reason:
            self.close()
            raise ConnectionLost(self.address, _reason(reason)) from None
        self.unanswered += 1

    def _receive(self) -> memoryview:
        deadline = time.monotonic() + self._timeout_s
        try:
            self._fill(4, deadline)
            (size,) = INT32.unpack_from(self._buffer)
            if not 4 <= size <= LARGEST_FRAME:
                raise MalformedAnswer(self.address, f"an answer of {size} bytes")
            self._fill(size, deadline)
        except OSError as reason:
            self.close()
            raise ConnectionLost(self.address, _reason(reason)) from None
        except ConnectionLost:
            self.close()
            raise
        self.unanswered -= 1
        return memoryview(self._buffer)[:size]

    def _fill(self, size: int, deadline: float) -> None:
        filled = 0
        while filled < size:
            if filled == len(self._buffer):
                # Not grown in place: views of the last answer may still be around.
                larger = bytearray(min(size, 2 * len(self._buffer)))
                larger[:filled] = self._buffer[:filled]
                self._buffer = larger
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            room = min(size, len(self._buffer)) - filled
            with memoryview(self._buffer) as view:
                got = self._socket.recv_into(view[filled:], room)
            if got == 0:
                raise ConnectionLost(self.address, "the broker closed the connection")
            filled += got
            # A slow answer that keeps coming is not a dead one.
            deadline = max(deadline, time.monotonic() + self._timeout_s / 2)


def _reason(problem: OSError) -> str:
    if isinstance(problem, TimeoutError):
        return "timed out"
    return problem.strerror or str(problem) or type(problem).__name__
