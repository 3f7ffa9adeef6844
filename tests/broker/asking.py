"""A bare connection for tests that must choose the version of a request."""

from __future__ import annotations

import itertools
import socket
from struct import Struct
from typing import Any, Self

from moldau.testing import Broker
from moldau.wire.apis import VERSIONS, Api, is_flexible
from moldau.wire.headers import request_frame
from moldau.wire.messages import decode_response, encode_request

_SIZE = Struct(">i")
_names = itertools.count()


def fresh_name(prefix: str = "topic") -> str:
    """A topic name that no other test has."""
    return f"{prefix}-{next(_names)}"


def versions(api: Api) -> range:
    """Every version of an API that a broker answers."""
    return range(VERSIONS[api].first, VERSIONS[api].last + 1)


class Asker:
    """One connection; one question at a time."""

    def __init__(self, broker: Broker | tuple[str, int]) -> None:
        address = broker if isinstance(broker, tuple) else (broker.host, broker.port)
        self._socket = socket.create_connection(address, timeout=60)
        self._ids = itertools.count(1)
        self.client_id = "test"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self._socket.close()

    def ask(self, api: Api, version: int | None = None, **values: Any) -> Any:
        """kio's object of the response to a request with these fields; the newest version if none.

        Fields that the version lacks are left out of the request.
        """
        if version is None:
            version = VERSIONS[api].last
        correlation_id = next(self._ids)
        body = encode_request(api, version, values)
        self._socket.sendall(request_frame(api, version, correlation_id, self.client_id, body))
        (size,) = _SIZE.unpack(self._read(4))
        frame = self._read(size)
        assert _SIZE.unpack_from(frame)[0] == correlation_id
        return decode_response(
            api, version, memoryview(frame)[5 if is_flexible(api, version) else 4 :]
        )

    def create(self, name: str, partitions: int = 1, **configs: str) -> Any:
        """Create a topic that must not be refused; settings have underscores for dots."""
        answer = self.ask(
            Api.CREATE_TOPICS,
            topics=[
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "configs": [
                        {"name": key.replace("_", "."), "value": value}
                        for key, value in configs.items()
                    ],
                }
            ],
        )
        assert answer.topics[0].error_code == 0, answer
        return answer.topics[0]

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            assert piece, "the broker closed the connection"
            data += piece
        return bytes(data)
