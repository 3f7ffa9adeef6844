"""The input of a connection: the bytes that were received and not handled yet.

An idle connection has a small buffer, a busy one a larger one. A request that is larger than either
gets memory of its own, in one piece and once: pages are taken as bytes arrive, and nothing is ever
copied from a smaller buffer to a larger one but what the busy buffer held. Event loop only.
"""

from __future__ import annotations

from typing import Protocol

from moldau.records.scratch import Scratch, scratch

# The buffer of an idle connection.
SMALL = 16 << 10
# The largest buffer of a busy connection. A larger request counts as large.
BUSY = 2 << 20
# The most that one receive takes of a large request.
_RECEIVE = 128 << 10


class Memory(Protocol):
    """The memory for requests that are being received, over all connections."""

    def take(self, size: int, instead_of: int) -> bool:
        """Resize a buffer to `size` bytes; False if it may not grow."""
        ...

    def hold(self, size: int) -> None:
        """Count a buffer that has so many bytes already, whether there is room for it or not."""

    def dispose(self, buffer: Scratch, position: int = 0) -> None:
        """Give a large buffer back to the system."""


class Input:
    """The buffer of one connection, in which an unfinished frame always begins at the front."""

    __slots__ = ("_buffer", "_most", "awaited", "filled", "memory", "needed", "view")

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._most = BUSY
        self._buffer: Scratch = bytearray(SMALL)
        self.view = memoryview(self._buffer)
        self.filled = 0
        # The size of the unfinished frame, where that is known.
        self.needed = 0
        # How much must be there before it is worth another look.
        self.awaited = 0

    def room(self) -> memoryview:
        """Return where the next bytes go."""
        filled, needed = self.filled, self.needed
        if needed > BUSY:
            # Nothing of the next frame, so that nothing is left to move to the front.
            return self.view[filled : min(needed, filled + _RECEIVE)]
        return self.view[filled : filled + BUSY]

    @property
    def extra(self) -> int:
        """The memory of the buffer beyond that of an idle connection."""
        return max(len(self.view) - SMALL, 0)

    def draw_on(self, memory: Memory, most: int) -> None:
        """Take memory from there from now on, for a busy connection no more than `most`."""
        if memory is not self.memory and self.extra:
            self.memory.take(0, self.extra)
            memory.hold(self.extra)
        self.memory = memory
        self._most = max(min(most, BUSY), SMALL)

    def take_off(self, start: int, needed: int) -> bool:
        """Drop what was handled, up to `start`; an unfinished frame of `needed` bytes follows.

        False when there is no memory for that frame now.
        """
        rest = self.filled - start
        if start and rest:
            self.view[:rest] = self.view[start : self.filled]
        was_full = self.filled == len(self.view)
        self.filled = rest
        self.needed = needed
        self.awaited = needed
        if needed > len(self.view):
            # A client gets the memory that it announces only once it really sends, and before there
            # is much to copy.
            self.awaited = SMALL
            return rest < SMALL or self.grow()
        if was_full and len(self.view) < self._most:
            self._resize(min(4 * len(self.view), self._most))
        return True

    def grow(self) -> bool:
        """Make room for the whole unfinished frame; False if there is no memory for it now."""
        if self.needed > BUSY:
            return self._resize(self.needed)
        wanted = max(min(4 * len(self.view), self._most), self.needed)
        return self._resize(wanted) or self._resize(self.needed)

    def shrink(self) -> None:
        """Give back the buffer of a connection that was busy once."""
        if not self.filled and self.extra:
            self._resize(SMALL)

    def drop(self) -> None:
        """Release everything: the connection has ended."""
        self.filled = self.needed = 0
        self.shrink()
        self._buffer = bytearray()
        self.view = memoryview(self._buffer)

    def _resize(self, capacity: int) -> bool:
        memory = self.memory
        if not memory.take(capacity - SMALL, self.extra):
            return False
        # Only what is lasting is worth having all its pages at once.
        buffer = bytearray(capacity) if capacity <= BUSY else scratch(capacity)
        view = memoryview(buffer)
        view[: self.filled] = self.view[: self.filled]
        self.awaited = self.needed
        old, self._buffer, self.view = self._buffer, buffer, view
        if len(old) > BUSY:
            memory.dispose(old)
        return True
