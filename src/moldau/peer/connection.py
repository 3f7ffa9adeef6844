"""A blocking connection, for one thread."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import UUID

from moldau.peer.authenticating import authentication
from moldau.peer.dialogue import Asked, Dialogue
from moldau.peer.errors import ConnectionLost, MalformedAnswer, NotAuthenticated, Refused
from moldau.peer.fetch_stream import FetchStream
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.fetch.request import FetchRequest
from moldau.wire.messages import Values
from moldau.wire.primitives import INT32, TopicKey

if TYPE_CHECKING:
    from moldau.security.client import ClientSecurity

# A peer that claims a huge answer costs us memory only as fast as it sends.
FIRST_BUFFER = 1 << 20
LARGEST_FRAME = 1 << 30
# Enough for what precedes the records of a fetch, unless many transactions were aborted.
_BEGINNING = 4096
# The usual size of a fetch.
_WINDOW = 8 << 20

T = TypeVar("T")


class Connection:
    """A greeted connection to one broker.

    Errors of the socket come as ConnectionLost, and the connection is closed after any.
    `unanswered` counts questions under way: who gives the connection up with any of them open must
    close it.
    """

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        *,
        timeout_s: float = 30.0,
        connect_timeout_s: float = 10.0,
        security: ClientSecurity | None = None,
        origin: str = "",
        local_receive_bytes: int | None = None,
    ) -> None:
        self.address = f"{host}:{port}"
        self.unanswered = 0
        self._security = security
        self._is_greeted = False
        # When to authenticate again.
        self._renew_at = math.inf
        self._dialogue = Dialogue(self.address, client_id, origin)
        try:
            self._socket = socket.create_connection((host, port), connect_timeout_s)
        except OSError as reason:
            raise ConnectionLost(self.address, _reason(reason)) from None
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.settimeout(timeout_s)
            if local_receive_bytes is not None and _is_local(self._socket):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, local_receive_bytes)
            else:
                _widen(self._socket)
            if security is not None:
                self._encrypt(security, host)
            self._greet()
            self._authenticate()
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
        self._is_greeted = True

    def _encrypt(self, security: ClientSecurity, host: str) -> None:
        from moldau.security.key_material import TlsError

        try:
            context = security.context()
            if context is not None:
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
        except TlsError as problem:
            raise NotAuthenticated(self.address, str(problem)) from None
        except OSError as problem:
            raise tls_failure(self.address, problem) from None

    def _authenticate(self) -> None:
        """Prove who we are, if the broker wants to know."""
        security, self._renew_at = self._security, math.inf
        if security is None or not security.has_sasl:
            return
        steps = authentication(self.address, security)
        answer = None
        try:
            while True:
                api, values = steps.send(answer)
                answer = self.ask(api, values)
        except StopIteration as done:
            if done.value:
                self._renew_at = time.monotonic() + done.value

    @property
    def is_open(self) -> bool:
        return self._socket.fileno() >= 0

    def close(self) -> None:
        self._socket.close()

    def version_of(self, api: Api) -> int:
        return self._dialogue.version_of(api)

    def level_of(self, feature: str) -> int:
        """Return the level that the cluster has finalized for a feature, 0 for none (KIP-584)."""
        return self._dialogue.levels.get(feature, 0)

    def ask(self, api: Api, values: Values, at_most: int | None = None) -> Any:
        """Send one request and return its response, as kio's object."""
        return self.receive(self.send(api, values, at_most))

    def send(self, api: Api, values: Values, at_most: int | None = None) -> Asked:
        """Send one request, and do something else while the broker answers."""
        asked, frame = self._dialogue.ask(api, values, at_most)
        self._send(frame)
        return asked

    def receive(self, asked: Asked) -> Any:
        """Return the response, as kio's object. Responses come in the order of the requests."""
        return self._understood(self._dialogue.answer, asked)

    def fetch_key(self, topic: str, topic_id: UUID | None) -> TopicKey:
        """Return how a Fetch to this broker names a topic."""
        return self._dialogue.fetch_key(topic, topic_id)

    def send_fetch(self, request: FetchRequest) -> Asked:
        """Ask, and do something else while the broker answers."""
        asked, frame = self._dialogue.ask_fetch(request)
        self._send(frame)
        return asked

    def receive_fetch(self, asked: Asked) -> FetchStream:
        """Return the response, whose records must be taken before the next request.

        Refused when the broker answers for no partition at all; without an error, that is how
        Kafka throttles.
        """
        size = self._begin()
        start = self._start(size, _BEGINNING)
        try:
            while (begun := self._dialogue.fetch_begun(asked, memoryview(start), size)) is None:
                start = self._grown(start, size)
        except MalformedAnswer:
            self.close()
            raise
        first = memoryview(start)[begun.records_at :]
        records, after = first[: begun.records_size], first[begun.records_size :]
        to_come = size - begun.records_at - begun.records_size - len(after)

        def finish() -> None:
            if to_come:
                self._take(memoryview(bytearray(to_come)))
            self.unanswered -= 1

        if begun.partition is None:
            finish()
            code = begun.error or Error.THROTTLING_QUOTA_EXCEEDED
            raise Refused(code, f"fetch from {self.address}")
        return FetchStream(begun.partition, begun.records_size, records, self._take, finish)

    def _understood(self, understand: Callable[[Asked, memoryview], T], asked: Asked) -> T:
        frame = self._receive()
        try:
            return understand(asked, frame)
        except MalformedAnswer:
            self.close()
            raise

    def _send(self, frame: bytes) -> None:
        if not self.unanswered and time.monotonic() >= self._renew_at:
            self._authenticate()
        try:
            self._socket.sendall(frame)
        except OSError as problem:
            raise self._lost(problem) from None
        self.unanswered += 1

    def _lost(self, problem: OSError) -> ConnectionLost:
        self.close()
        if not self._is_greeted and is_refusal(problem):
            return tls_failure(self.address, problem)
        return ConnectionLost(self.address, _reason(problem))

    def _receive(self) -> memoryview:
        size = self._begin()
        frame = self._start(size, FIRST_BUFFER)
        while len(frame) < size:
            frame = self._grown(frame, size)
        self.unanswered -= 1
        return memoryview(frame)

    def _start(self, size: int, most: int) -> bytearray:
        start = bytearray(min(size, most))
        self._take(memoryview(start))
        return start

    def _grown(self, start: bytearray, size: int) -> bytearray:
        """Read more of the response, which has `size` bytes."""
        more = bytearray(min(size, 8 * len(start)))
        more[: len(start)] = start
        self._take(memoryview(more)[len(start) :])
        return more

    def _begin(self) -> int:
        """Return the size of the answer that comes next."""
        prefix = bytearray(4)
        self._take(memoryview(prefix))
        (size,) = INT32.unpack(prefix)
        if not 4 <= size <= LARGEST_FRAME:
            self.close()
            raise MalformedAnswer(self.address, f"a response of {size} bytes")
        return int(size)

    def _take(self, room: memoryview) -> None:
        """Fill `room` with what comes next; a slow answer that keeps coming is not a dead one."""
        filled = 0
        try:
            while filled < len(room):
                got = self._socket.recv_into(room[filled:])
                if got == 0:
                    raise ConnectionLost(self.address, "the broker closed the connection")
                filled += got
        except OSError as problem:
            raise self._lost(problem) from None
        except ConnectionLost:
            self.close()
            raise


def _is_local(connected: socket.socket) -> bool:
    """Return whether the other end is on this machine."""
    here, there = connected.getsockname()[0], connected.getpeername()[0]
    return bool(here == there)


def _widen(connected: socket.socket) -> None:
    """Let the kernel receive a whole fetch at once while we process the last one.

    It finds the size of its buffer by how fast we read, and the broker stops and goes meanwhile.
    Waiting for that many bytes makes room for them, where SO_RCVBUF would set a limit; no memory is
    taken before they come. Only a hint: the system's limits hold.
    """
    with suppress(OSError):
        for size in (_WINDOW, 1):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)


def is_refusal(problem: BaseException | None) -> bool:
    """Return whether TLS ended a connection by which nothing has come yet.

    In TLS 1.3 a broker looks at our certificate when our part of the handshake is done.
    """
    # Without TLS, ssl need not be loaded.
    return type(problem).__module__ == "ssl"


def tls_failure(address: str, problem: OSError) -> ConnectionLost:
    """Return the error for a TLS handshake that failed."""
    import ssl

    from moldau.security.tls import problem_in_words

    reason = f"the TLS handshake failed: {problem_in_words(problem)}"
    is_final = isinstance(problem, ssl.SSLError) and not isinstance(problem, ssl.SSLEOFError)
    return (NotAuthenticated if is_final else ConnectionLost)(address, reason)


def _reason(problem: OSError) -> str:
    if isinstance(problem, TimeoutError):
        return "timed out"
    return problem.strerror or str(problem) or type(problem).__name__
