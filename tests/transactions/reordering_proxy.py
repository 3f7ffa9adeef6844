"""A TCP proxy that lets requests come late: after others that were sent later, by another
connection."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Callable
from typing import NamedTuple, Self

from tests.clients.retries.frame_proxy import api_key, read_frame

_WITHIN_S = 60.0


class _Held(NamedTuple):
    """A request on its way, and the connection on which it is to arrive."""

    request: bytes
    broker: socket.socket


class ReorderingProxy:
    """Stands before a broker on a port of its own.

    A request that is held is on its way for so long that its sender gives up the connection: it is
    broken for the sender, while the broker still gets the request, at `release`. Everything else
    is passed on as it comes, one request at a time in each connection.
    """

    def __init__(self) -> None:
        # By the key of an API, how many requests are to be held.
        self._to_hold: dict[int, int] = {}
        self._held: list[_Held] = []
        self._shuffles: Callable[[int], None] = lambda api: None
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._target = ("", 0)
        self._open: set[socket.socket] = set()
        self.late = 0

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        # A blocked accept wakes up on shutdown, not on close.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            held, self._held = self._held, []
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        for late in held:
            late.broker.close()

    def forward_to(self, host: str, port: int) -> None:
        """Begin to accept connections."""
        self._target = (host, port)
        threading.Thread(target=self._accept, name="reordering-proxy", daemon=True).start()

    def hold(self, api: int) -> None:
        """Hold the next request for an API."""
        with self._lock:
            self._to_hold[api] = self._to_hold.get(api, 0) + 1

    @property
    def held(self) -> int:
        with self._lock:
            return len(self._held)

    def release(self) -> None:
        """Let all that is held arrive, and return when it is answered."""
        with self._lock:
            held, self._held = self._held, []
        for each in held:
            self._deliver(each)

    def shuffle(self, dice: random.Random, apis: set[int], share: float) -> None:
        """From now on hold this share of the requests for some APIs, each until a random moment."""

        def decide(api: int) -> None:
            with self._lock:
                if api in apis and dice.random() < share:
                    self._to_hold[api] = 1
                late = self._held.pop(0) if self._held and dice.random() < share else None
            if late is not None:
                self._deliver(late)

        self._shuffles = decide

    def _deliver(self, held: _Held) -> None:
        with contextlib.suppress(OSError), held.broker:
            held.broker.sendall(held.request)
            read_frame(held.broker)
            self.late += 1

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                broker = socket.create_connection(self._target, timeout=_WITHIN_S)
            except OSError:
                return
            ends = {client, broker}
            with self._lock:
                self._open |= ends
            is_kept = False
            try:
                while (request := read_frame(client)) is not None:
                    is_kept = self._takes(request, broker)
                    if is_kept:
                        break
                    broker.sendall(request)
                    answer = read_frame(broker)
                    if answer is None:
                        break
                    client.sendall(answer)
            except OSError:
                pass
            finally:
                with self._lock:
                    self._open -= ends
                if not is_kept:
                    broker.close()

    def _takes(self, request: bytes, broker: socket.socket) -> bool:
        api = api_key(request)
        self._shuffles(api)
        with self._lock:
            wanted = self._to_hold.get(api, 0)
            if not wanted:
                return False
            self._to_hold[api] = wanted - 1
            self._held.append(_Held(request, broker))
            return True
