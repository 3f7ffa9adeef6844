"""Output through the transport's own writes: slices of files are read and written in pieces.

It costs a copy, and needs no socket: only a transport with asyncio's contract for writes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from moldau.broker.net.outputs.output import Output, too_short
from moldau.log.files.open_files import Slice

# The most of a file that is in memory at once for one connection.
_PIECE = 128 << 10
# The most of one slice that is sent before others are served.
_MOST_AT_ONCE = 1 << 20
# A transport has to say at once that the peer does not take everything. With 0, asyncio's TLS would
# pause writers even when nothing is left.
_HIGH_WATER = 1


class TransportOutput(Output):
    """The form for any transport. Its wait is between `pause_writing` and `resume_writing`."""

    __slots__ = ("_awaits_room", "_paused", "_transport")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.WriteTransport,
        drained: Callable[[], None],
        failed: Callable[[OSError], None],
    ) -> None:
        super().__init__(loop, drained, failed)
        self._transport = transport
        self._paused = False
        # Whether it is the transport that will end the wait.
        self._awaits_room = False

    def begin(self) -> None:
        self._transport.set_write_buffer_limits(high=_HIGH_WATER, low=0)

    def pause_writing(self) -> None:
        self._paused = True
        if not self.backed_up:
            self.backed_up = self._awaits_room = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._awaits_room:
            self._awaits_room = False
            self._resume()

    def _let_go(self) -> None:
        # The transport's buffer is its own, and is dropped with it.
        self._awaits_room = False

    def _send_bytes(self) -> bool:
        queue, size = self._queue, 0
        parts = []
        while queue and size < _PIECE and not isinstance(queue[0], Slice):
            parts.append(queue.popleft())
            size += len(parts[-1])
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        if size > _PIECE:
            # TLS would encrypt all of it at once, and keep what the peer does not take.
            queue.appendleft(memoryview(data)[_PIECE:])
            data = bytes(memoryview(data)[:_PIECE])
        self._transport.write(data)
        if self._paused:
            self._awaits_room = True
        return not self._paused

    def _send_slice(self, piece: Slice) -> bool:
        file, position, size = piece
        left = _MOST_AT_ONCE
        while size and not self._paused and left > 0:
            data = os.pread(file.fd, min(size, _PIECE), position)
            if not data:
                raise too_short(size)
            self._transport.write(data)
            position += len(data)
            size -= len(data)
            left -= len(data)
        if size:
            self._queue[0] = Slice(file, position, size)
        else:
            self._take_off_slice()
        if self._paused:
            self._awaits_room = True
            return False
        if size:
            self._loop.call_soon(self._resume)
        return not size
