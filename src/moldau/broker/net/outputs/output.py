"""The output of a connection: the bytes and slices of files that it still has to send, in order.

`Output` is the queue and the waiting. How bytes and slices leave is a matter of its form:

    socket_output     through a socket of our own, slices by sendfile: for plain TCP
    transport_output  through the transport's own writes: for what stands between the broker and the
                      socket, as TLS does, or in its place
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from moldau.broker.net.outputs.page_cache import is_warm, warm
from moldau.log.files.open_files import Slice


class Output(ABC):
    """The ordered send queue of one connection. Event loop only.

    Parts leave in the order in which they were put, and none before `flush`. What the peer does not
    take at once waits; `drained` is called when all that waited has left. After `close` nothing
    more is sent, and nobody is called; who drops answers by it ends the connection, too.

    A slice that the page cache does not hold would block the loop for everybody: its ends and
    middle are probed first, and a cold one is read by a thread before it is sent. A slice holds its
    open file, so it does not matter what becomes of the path. If the file ends before the slice,
    the peer would take what follows for the rest of it: `failed` is called, and the owner has to
    end the connection.
    """

    __slots__ = (
        "_closed", "_drained", "_failed", "_loop", "_queue", "_trusted", "backed_up", "cold_reads",
        "put", "put_all",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        drained: Callable[[], None],
        failed: Callable[[OSError], None],
    ) -> None:
        self._loop = loop
        self._drained = drained
        self._failed = failed
        self._queue: deque[Any] = deque()
        # Queue a part, or all of several; nothing leaves before `flush`.
        self.put: Callable[[bytes | bytearray | Slice], None] = self._queue.append
        self.put_all: Callable[[Iterable[Any]], None] = self._queue.extend
        # Whether the peer still has to read what it was sent. Then `_resume` will be called.
        self.backed_up = False
        # How many slices a thread had to read first.
        self.cold_reads = 0
        self._closed = False
        # Whether the slice at the front has been read by a thread.
        self._trusted = False

    def flush(self) -> None:
        """Send as much as the peer takes, and go on by itself when it takes more."""
        if self.backed_up or self._closed or not self._queue:
            return
        try:
            done = self._send_all()
        except OSError as reason:
            self._fail(reason)
            return
        if not done and not self._closed:
            self.backed_up = True

    def close(self) -> None:
        """Drop what is queued."""
        if not self._closed:
            self._closed = True
            self._queue.clear()
            self._let_go()

    # -- the transport's own writes

    @abstractmethod
    def begin(self) -> None:
        """Ask the transport for `pause_writing` and `resume_writing`, which may come at once."""

    @abstractmethod
    def pause_writing(self) -> None:
        """Take note that the transport holds more than it wants to."""

    @abstractmethod
    def resume_writing(self) -> None:
        """Take note that the transport has sent what it held."""

    # -- what a form has to do

    @abstractmethod
    def _send_bytes(self) -> bool:
        """Take bytes off the queue, up to the next slice, and send them; False if it has to wait.

        What was not sent is at the front again.
        """

    @abstractmethod
    def _send_slice(self, piece: Slice) -> bool:
        """Send the slice at the front and `_take_off_slice`; False if the output has to wait.

        What was not sent is at the front again. OSError if the file is too short.
        """

    @abstractmethod
    def _let_go(self) -> None:
        """Give back what the form has of the system, and stop waiting."""

    # -- sending

    def _send_all(self) -> bool:
        """True when the queue is empty; False when a wait was begun."""
        queue = self._queue
        while queue:
            head = queue[0]
            if not isinstance(head, Slice):
                if not self._send_bytes():
                    return False
                continue
            file, position, size = head
            if not self._trusted and not is_warm(file.fd, position, size):
                self.backed_up = True
                self.cold_reads += 1
                self._loop.run_in_executor(None, warm, head).add_done_callback(self._warmed)
                return False
            if not self._send_slice(head):
                return False
        return True

    def _take_off_slice(self) -> None:
        """Take off the slice at the front, of which everything was sent."""
        self._queue.popleft()
        # The next one may be cold.
        self._trusted = False

    def _warmed(self, reading: asyncio.Future[None]) -> None:
        if self._closed:
            return
        reason = reading.exception()
        if isinstance(reason, OSError):
            self._fail(reason)
            return
        # Sent even if memory is so short that it was dropped again: otherwise this would never end.
        self._trusted = True
        self._resume()

    def _resume(self) -> None:
        self.backed_up = False
        self.flush()
        if not self.backed_up and not self._closed:
            self._drained()

    def _fail(self, reason: OSError) -> None:
        self.close()
        self._failed(reason)


def too_short(size: int) -> OSError:
    """Return the error for a file that ends before a slice of it does."""
    return OSError(f"a segment ended {size} bytes before the end of the promised slice")


# Makes the output of a new connection; raises OSError if the system has no more descriptors.
OutputForm = Callable[
    [asyncio.AbstractEventLoop, Any, Callable[[], None], Callable[[OSError], None]], Output
]
