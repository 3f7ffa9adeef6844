"""Output through a socket of our own: bytes by send, slices of files by sendfile.

The socket is a dup of the transport's. Mixing the transport's own writes with sendfile on the raw
descriptor would reorder, so the transport never writes.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

from moldau.broker.net.outputs.output import Output, too_short
from moldau.log.files.open_files import Slice

# Tells the kernel that a sendfile follows, so that a header does not leave as a packet of its own.
_MORE = getattr(socket, "MSG_MORE", 0)
# The most of one slice that is sent before others are served: a peer on this machine may read as
# fast as it is sent to, and never be full.
_MOST_AT_ONCE = 4 << 20


class SocketOutput(Output):
    """The form for plain TCP. Its wait is for room in the socket's buffer."""

    __slots__ = ("_socket",)

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.BaseTransport,
        drained: Callable[[], None],
        failed: Callable[[OSError], None],
    ) -> None:
        super().__init__(loop, drained, failed)
        self._socket = _own_socket(transport)

    # The transport has nothing to write.

    def begin(self) -> None:
        """Do nothing."""

    def pause_writing(self) -> None:
        """Do nothing."""

    def resume_writing(self) -> None:
        """Do nothing."""

    def _let_go(self) -> None:
        if self.backed_up:
            self._loop.remove_writer(self._socket.fileno())
        self._socket.close()

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
        left = _MOST_AT_ONCE
        while size:
            try:
                if left <= 0:
                    raise BlockingIOError
                sent = os.sendfile(self._socket.fileno(), file.fd, position, min(size, left))
            except BlockingIOError:
                self._queue[0] = Slice(file, position, size)
                self._wait_for_room()
                return False
            if sent == 0:
                raise too_short(size)
            position += sent
            size -= sent
            left -= sent
        self._take_off_slice()
        return True

    def _wait_for_room(self) -> None:
        self._loop.add_writer(self._socket.fileno(), self._on_room)

    def _on_room(self) -> None:
        self._loop.remove_writer(self._socket.fileno())
        self._resume()


def _own_socket(transport: asyncio.BaseTransport) -> socket.socket:
    """Return a socket of our own for a transport's connection; OSError when there are too many."""
    own = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
    own.setblocking(False)
    return own
