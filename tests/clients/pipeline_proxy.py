"""A TCP proxy that lets something happen between two requests that a client has under way."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self

from tests.clients.lossy_proxy import PRODUCE, api_key, read_frame

_WITHIN_S = 30.0


class PipelineProxy:
    """Stands before a broker on a port of its own.

    Of the first connection that writes, it collects `under_way` Produce requests without an answer,
    passes the first one on, calls `between` once that is answered, and only then passes on the
    others and all answers. So the client learns of the first answer when the rest is already
    decided. Everything else is passed on as it comes, one request at a time.
    """

    def __init__(self, under_way: int, between: Callable[[], None]) -> None:
        self._under_way = under_way
        self._between = between
        self.has_happened = threading.Event()
        self._lock = threading.Lock()
        self._is_taken = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._target = ("", 0)
        self._open: set[socket.socket] = set()

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
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def forward_to(self, host: str, port: int) -> None:
        """Begins to accept connections."""
        self._target = (host, port)
        threading.Thread(target=self._accept, name="pipeline-proxy", daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target, timeout=_WITHIN_S) as broker:
            with self._lock:
                self._open |= {client, broker}
            try:
                while (request := read_frame(client)) is not None:
                    if api_key(request) == PRODUCE and self._take():
                        self._interrupt(client, broker, request)
                    else:
                        client.sendall(_ask(broker, request))
            except OSError:
                pass
            finally:
                with self._lock:
                    self._open -= {client, broker}

    def _take(self) -> bool:
        with self._lock:
            was_taken, self._is_taken = self._is_taken, True
            return not was_taken

    def _interrupt(self, client: socket.socket, broker: socket.socket, first: bytes) -> None:
        pending = []
        left = self._under_way - 1
        while left:
            request = read_frame(client)
            if request is None:
                raise ConnectionError("the client has hung up")
            pending.append(request)
            left -= api_key(request) == PRODUCE
        answers = [_ask(broker, first)]
        self._between()
        answers += [_ask(broker, request) for request in pending]
        self.has_happened.set()
        client.sendall(b"".join(answers))


def _ask(broker: socket.socket, request: bytes) -> bytes:
    broker.sendall(request)
    answer = read_frame(broker)
    if answer is None:
        raise ConnectionError("the broker has hung up")
    return answer
