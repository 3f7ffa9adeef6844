"""Peers that are not brokers: a listener that says what a test wants it to say."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from moldau.peer.fetch_stream import FetchStream
from moldau.wire.fetch.response import FetchAnswer, FetchedPartition


@contextmanager
def listener(serve: Callable[[socket.socket], None]) -> Iterator[tuple[str, int]]:
    """Runs `serve` on every connection to the address, one after another."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    try:
                        serve(connection)
                    except OSError:
                        pass

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()
        server.shutdown(socket.SHUT_RDWR)
    thread.join(60)


def read_frame(connection: socket.socket) -> bytes:
    """One request, without its size."""
    size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    return connection.recv(size, socket.MSG_WAITALL)


def partitions_of(answer: FetchAnswer) -> list[FetchedPartition]:
    """The partitions of all topics."""
    return [each for _, partitions in answer.topics for each in partitions]


class Slice:
    """Stands in for a slice of a segment file."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)


def taken(stream: FetchStream) -> memoryview:
    """All the records of an answer."""
    records = memoryview(bytearray(stream.left))
    stream.fill(records)
    return records
