"""The connections of a broker, and clients that push, for tests."""

from __future__ import annotations

import select

from moldau.broker.net.connection import Connection
from moldau.testing import Broker
from tests.broker.wire_client import (
    Client,
    inside,
)


def connections(broker: Broker) -> list[Connection]:
    return inside(broker, lambda server: list(server.connections))


def push(client: Client, data: bytes, times: int, patience_s: float = 0.5) -> int:
    """Sends without reading until the broker takes no more; the bytes that it took."""
    sent = 0
    client.socket.setblocking(False)
    for _ in range(times):
        view = memoryview(data)
        while view:
            if not select.select([], [client.socket], [], patience_s)[1]:
                return sent
            count = client.socket.send(view)
            view = view[count:]
            sent += count
    return sent
