"""A broker that does nothing, to find out how fast the load generator itself can go.

It speaks just enough of the protocol for librdkafka: produced bytes are dropped inside the kernel
(`MSG_TRUNC`), fetches are answered with one prepared batch over and over. What a client reaches
against it is the client's ceiling on this machine; a broker cannot be seen to be faster.

Run as `python -m moldau.bench.null_broker MESSAGE_SIZE PARTITIONS`; it prints
`null broker ready on HOST:PORT` and lives until its standard input closes.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
from collections.abc import Callable

from moldau.bench.frames import one_batch
from moldau.broker.net.outputs.pacing import send_unpaced

_DROP = bytearray(4 << 20)

# The newest versions without flexible encoding: simple to write by hand.
_VERSIONS = {0: (0, 7), 1: (4, 4), 2: (1, 1), 3: (0, 4), 18: (0, 3)}


class _Frame:
    """One request, read from the socket field by field so that record bytes are never copied."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        (self._left,) = struct.unpack(">i", self._receive(4))

    def _receive(self, size: int) -> bytes:
        data = self._sock.recv(size, socket.MSG_WAITALL)
        if len(data) < size:
            raise EOFError
        return data

    def skip(self, size: int) -> None:
        self._left -= size
        while size > 0:
            got = self._sock.recv_into(
                _DROP, min(size, len(_DROP)), socket.MSG_TRUNC | socket.MSG_WAITALL
            )
            if got == 0:
                raise EOFError
            size -= got

    def finish(self) -> None:
        self.skip(self._left)

    def take(self, layout: str) -> tuple[int, ...]:
        unpacker = struct.Struct(">" + layout)
        self._left -= unpacker.size
        return unpacker.unpack(self._receive(unpacker.size))

    def text(self) -> bytes:
        """Return a (nullable) string, with its length prefix, as it came."""
        (size,) = self.take("h")
        if size <= 0:
            return struct.pack(">h", size)
        self._left -= size
        return struct.pack(">h", size) + self._receive(size)


class NullBroker:
    """Serves one port until closed; a thread per connection."""

    def __init__(self, message_size: int, partitions: int) -> None:
        self._partitions = partitions
        self._batch = one_batch(message_size, 1_000_000)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()
        self._answers: dict[int, Callable[[_Frame, int], bytes | None]] = {
            0: self._produce,
            1: self._fetch,
            2: self._list_offsets,
            3: self._metadata,
            18: self._api_versions,
        }

    def serve(self) -> None:
        while True:
            sock, _ = self._listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            send_unpaced(sock)
            threading.Thread(target=self._connection, args=(sock,), daemon=True).start()

    def _connection(self, sock: socket.socket) -> None:
        with sock:
            try:
                while True:
                    frame = _Frame(sock)
                    key, version, correlation = frame.take("hhi")
                    frame.text()
                    body = self._answers[key](frame, version)
                    frame.finish()
                    if body is not None:
                        sock.sendall(struct.pack(">ii", len(body) + 4, correlation) + body)
            except (EOFError, OSError):
                return

    def _api_versions(self, frame: _Frame, version: int) -> bytes:
        if version < 3:
            keys = b"".join(struct.pack(">hhh", k, *r) for k, r in _VERSIONS.items())
            throttle = b"" if version == 0 else bytes(4)
            return struct.pack(">hi", 0, len(_VERSIONS)) + keys + throttle
        keys = b"".join(struct.pack(">hhhx", k, *r) for k, r in _VERSIONS.items())
        return struct.pack(">hB", 0, len(_VERSIONS) + 1) + keys + bytes(5)

    def _metadata(self, frame: _Frame, version: int) -> bytes:
        (count,) = frame.take("i")
        topics = [frame.text() for _ in range(max(count, 0))]
        host = struct.pack(">h", len(self.host)) + self.host.encode()
        out = [bytes(4), struct.pack(">ii", 1, 0), host, struct.pack(">ihhi", self.port, -1, -1, 0)]
        out.append(struct.pack(">i", len(topics)))
        partitions = b"".join(
            struct.pack(">hiiiiii", 0, index, 0, 1, 0, 1, 0) for index in range(self._partitions)
        )
        for name in topics:
            out += [bytes(2), name, struct.pack(">bi", 0, self._partitions), partitions]
        return b"".join(out)

    def _produce(self, frame: _Frame, version: int) -> bytes | None:
        frame.text()
        acks, _, topics = frame.take("hii")
        out = [struct.pack(">i", topics)]
        for _ in range(topics):
            name = frame.text()
            (partitions,) = frame.take("i")
            out += [name, struct.pack(">i", partitions)]
            for _ in range(partitions):
                index, size = frame.take("ii")
                frame.skip(size)
                out.append(struct.pack(">ihqqq", index, 0, 0, -1, 0))
        return b"".join((*out, bytes(4))) if acks else None

    def _fetch(self, frame: _Frame, version: int) -> bytes:
        *_, topics = frame.take("iiiibi")
        out = [bytes(4), struct.pack(">i", topics)]
        end = 1 << 60
        for _ in range(topics):
            name = frame.text()
            (partitions,) = frame.take("i")
            out += [name, struct.pack(">i", partitions)]
            for _ in range(partitions):
                index, offset, _ = frame.take("iqi")
                out.append(
                    struct.pack(">ihqqii", index, 0, end, end, -1, len(self._batch))
                    # The base offset lies before the checksummed part, so it may be replaced.
                    + struct.pack(">q", offset)
                )
                out.append(self._batch[8:])
        return b"".join(out)

    def _list_offsets(self, frame: _Frame, version: int) -> bytes:
        _, topics = frame.take("ii")
        out = [struct.pack(">i", topics)]
        for _ in range(topics):
            name = frame.text()
            (partitions,) = frame.take("i")
            out += [name, struct.pack(">i", partitions)]
            for _ in range(partitions):
                index, _ = frame.take("iq")
                out.append(struct.pack(">ihqq", index, 0, -1, 0))
        return b"".join(out)


def main() -> None:
    broker = NullBroker(message_size=int(sys.argv[1]), partitions=int(sys.argv[2]))
    threading.Thread(target=broker.serve, daemon=True).start()
    sys.stdout.write(f"null broker ready on {broker.host}:{broker.port}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
