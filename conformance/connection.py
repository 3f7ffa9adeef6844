"""One connection to a broker: requests of any version, and bytes of any kind."""

from __future__ import annotations

import itertools
import socket
from struct import Struct
from typing import Any

from moldau.wire.apis import Api, is_flexible
from moldau.wire.headers import request_frame
from moldau.wire.messages import decode_response, encode_request

PATIENCE_S = 20.0
CLIENT_ID = "conformance"
_SIZE = Struct(">i")


class HungUp(Exception):
    """The broker closed the connection instead of answering."""


class NoAnswer(Exception):
    """The broker kept the connection and said nothing."""


class Connection:
    """Requests in order, answers in order. Connects on first use, and again after a hang-up."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._socket: socket.socket | None = None
        self._ids = itertools.count(1)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(
        self, api: Api, version: int, values: dict[str, Any], patience_s: float = PATIENCE_S
    ) -> Any:
        """kio's object of the answer; HungUp or NoAnswer where there is none."""
        return self.answer(api, version, self.send(api, version, values), patience_s)

    def send(self, api: Api, version: int, values: dict[str, Any]) -> int:
        """Send a request without waiting; its correlation id."""
        correlation_id = next(self._ids)
        body = encode_request(api, version, values)
        self._send(request_frame(api, version, correlation_id, CLIENT_ID, body))
        return correlation_id

    def answer(
        self, api: Api, version: int, correlation_id: int, patience_s: float = PATIENCE_S
    ) -> Any:
        """The next answer, which must be the one to that request."""
        frame = self.frame(patience_s)
        (found,) = _SIZE.unpack_from(frame)
        if found != correlation_id:
            raise AssertionError(f"answer {found} to request {correlation_id}")
        has_tags = is_flexible(api, version) and api is not Api.API_VERSIONS
        return decode_response(api, version, memoryview(frame)[5 if has_tags else 4 :])

    def exchange(self, data: bytes, patience_s: float) -> bytes:
        """Send bytes as they are; the next frame from its correlation id on."""
        self._send(data)
        return self.frame(patience_s)

    def half_close(self) -> None:
        """Say that no more will come."""
        assert self._socket is not None
        self._socket.shutdown(socket.SHUT_WR)

    def frame(self, patience_s: float = PATIENCE_S) -> bytes:
        """The next frame without its size."""
        (size,) = _SIZE.unpack(self._read(4, patience_s))
        return self._read(size, patience_s)

    def _send(self, data: bytes) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, PATIENCE_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._socket.sendall(data)
        except ConnectionError as problem:
            self.close()
            raise HungUp(str(problem)) from None

    def _read(self, size: int, patience_s: float) -> bytes:
        assert self._socket is not None
        self._socket.settimeout(patience_s)
        data = bytearray()
        try:
            while len(data) < size:
                piece = self._socket.recv(min(size - len(data), 1 << 20))
                if not piece:
                    self.close()
                    raise HungUp
                data += piece
        except TimeoutError:
            # Whatever comes later would be taken for the answer to something else.
            self.close()
            raise NoAnswer from None
        except ConnectionError:
            self.close()
            raise HungUp from None
        return bytes(data)
