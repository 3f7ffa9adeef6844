"""What a connection still has to send: bytes and slices of files, in one ordered queue.

Everything goes through a dup of the socket. Mixing the transport's own writes with sendfile on the
raw descriptor would reorder, so the transport never writes. Event loop only.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from moldau.log.files.open_files import Slice

# Tells the kernel that a sendfile follows, so that a header does not leave as a packet of its own.
_MORE = getattr(socket, "MSG_MORE", 0)
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_READ_CHUNK = 128 << 10
# The most of one slice that is sent before others are served: a peer on this machine may read as
# fast as it is sent to, and never be full.
_MOST_AT_ONCE = 4 << 20
_CONGESTION: int | None = getattr(socket, "TCP_CONGESTION", None)
# The one algorithm that every Linux has and lets everybody choose.
_UNPACED = b"reno"


class Output:
    """The ordered send queue of one connection.

    A slice that the page cache does not hold would make sendfile block the loop for everybody: its
    ends and middle are probed first, and a cold one is read by a thread before it is sent.
    """

    __slots__ = (
        "_closed",
        "_drained",
        "_failed",
        "_loop",
        "_queue",
        "_socket",
        "_trusted",
        "_waiting",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        drained: Callable[[], None],
        failed: Callable[[OSError], None],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._drained = drained
        self._failed = failed
        self._queue: deque[Any] = deque()
        self._waiting = False
        self._closed = False
        self._trusted = False

    @property
    def backed_up(self) -> bool:
        """Whether the peer has yet to take what it was sent."""
        return self._waiting

    def put(self, part: bytes | bytearray | Slice) -> None:
        """Queues a part; nothing leaves before `flush`."""
        self._queue.append(part)

    def flush(self) -> None:
        """Sends as much as the socket takes and goes on by itself when it takes more."""
        if self._waiting or self._closed or not self._queue:
            return
        try:
            done = self._send_all()
        except OSError as reason:
            self.close()
            self._failed(reason)
            return
        if not done and not self._closed:
            self._waiting = True

    def close(self) -> None:
        """Drops what is queued and lets go of the socket."""
        if self._closed:
            return
        self._closed = True
        self._queue.clear()
        if self._waiting:
            self._loop.remove_writer(self._socket.fileno())
        self._socket.close()

    def _send_all(self) -> bool:
        """True when the queue is empty; False when a wait was begun."""
        queue = self._queue
        while queue:
            head = queue[0]
            done = self._send_slice(head) if isinstance(head, Slice) else self._send_bytes()
            if not done:
                return False
        return True

    def _send_bytes(self) -> bool:
        queue = self._queue
        parts = [queue.popleft()]
        while queue and not isinstance(queue[0], Slice):
            parts.append(queue.popleft())
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        try:
            sent = self._socket.send(data, _MORE if queue else 0)
        except BlockingIOError:
            sent = 0
        if sent == len(data):
            return True
        queue.appendleft(memoryview(data)[sent:])
        self._wait_for_room()
        return False

    def _send_slice(self, piece: Slice) -> bool:
        file, position, size = piece
        descriptor = file.fd
        if not self._trusted and not _is_warm(descriptor, position, size):
            self._waiting = True
            self._loop.run_in_executor(None, _warm, piece).add_done_callback(self._warmed)
            return False
        left = _MOST_AT_ONCE
        while size:
            try:
                if left <= 0:
                    raise BlockingIOError
                sent = os.sendfile(self._socket.fileno(), descriptor, position, min(size, left))
            except BlockingIOError:
                self._queue[0] = Slice(file, position, size)
                self._wait_for_room()
                return False
            if sent == 0:
                raise OSError(f"a segment ended {size} bytes before the slice that was promised")
            position += sent
            size -= sent
            left -= sent
        self._queue.popleft()
        self._trusted = False
        return True

    def _wait_for_room(self) -> None:
        self._loop.add_writer(self._socket.fileno(), self._on_room)

    def _on_room(self) -> None:
        self._loop.remove_writer(self._socket.fileno())
        self._resume()

    def _warmed(self, reading: asyncio.Future[None]) -> None:
        if self._closed:
            return
        reason = reading.exception()
        if isinstance(reason, OSError):
            self.close()
            self._failed(reason)
            return
        # Sent even if memory is so short that it was dropped again: going round would not end.
        self._trusted = True
        self._resume()

    def _resume(self) -> None:
        self._waiting = False
        self.flush()
        if not self._waiting and not self._closed:
            self._drained()


def own_socket(transport: asyncio.BaseTransport) -> socket.socket:
    """A socket of our own for a transport's connection; OSError when there are too many."""
    own = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
    own.setblocking(False)
    peer = transport.get_extra_info("peername")
    if peer and peer[0] == own.getsockname()[0]:
        send_unpaced(own)
    return own


def send_unpaced(sock: socket.socket) -> None:
    """Has the kernel send as fast as it is read; for a peer on this machine.

    Where BBR is the default, it paces even there: a timer for every 64 KB, which is more than half
    of what sending costs. Between machines the choice stays the system's.
    """
    if _CONGESTION is not None:
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, _CONGESTION, _UNPACED)


def _is_warm(descriptor: int, position: int, size: int) -> bool:
    """Whether the page cache holds both ends and the middle; True where that can't be asked."""
    if not _NOWAIT:
        return True
    byte = [bytearray(1)]
    try:
        for place in (position, position + size // 2, position + size - 1):
            os.preadv(descriptor, byte, place, _NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        # A file system that does not know the flag.
        return True
    return True


def _warm(piece: Slice) -> None:
    """Reads a slice into the page cache; runs on a thread and may block there."""
    file, position, size = piece
    scratch = [bytearray(min(size, _READ_CHUNK))]
    end = position + size
    while position < end:
        got = os.preadv(file.fd, scratch, position)
        if got == 0:
            return
        position += got
