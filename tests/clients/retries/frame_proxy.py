"""A TCP proxy before a broker that looks at frames as they pass."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Self

PRODUCE = 0
_WITHIN_S = 60.0
_LENGTH = struct.Struct(">i")
_API_KEY = struct.Struct(">h")


class FrameProxy:
    """Stands before a broker on a port of its own; `pass_frames` serves one connection."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
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
        with self.lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def forward_to(self, host: str, port: int) -> None:
        """Begins to accept connections."""
        self._target = (host, port)
        threading.Thread(target=self._accept, name="frame-proxy", daemon=True).start()

    def pass_frames(self, client: socket.socket, broker: socket.socket) -> None:
        """Passes requests on, and their answers, until one side hangs up."""
        raise NotImplementedError

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            client,
            socket.create_connection(self._target, timeout=_WITHIN_S) as broker,
        ):
            with self.lock:
                self._open |= {client, broker}
            try:
                self.pass_frames(client, broker)
            finally:
                with self.lock:
                    self._open -= {client, broker}


def api_key(request: bytes) -> int:
    """What a frame asks for."""
    key: int = _API_KEY.unpack_from(request, _LENGTH.size)[0]
    return key


def read_frame(source: socket.socket) -> bytes | None:
    """One length-prefixed frame, prefix included; None when the other side has hung up."""
    prefix = _read_exactly(source, _LENGTH.size)
    if prefix is None:
        return None
    body = _read_exactly(source, _LENGTH.unpack(prefix)[0])
    return None if body is None else prefix + body


def _read_exactly(source: socket.socket, size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        part = source.recv(size - len(found))
        if not part:
            return None
        found += part
    return bytes(found)
