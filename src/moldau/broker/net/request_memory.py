"""Memory for requests that are being received, over all connections (`queued.max.request.bytes`).

A connection asks for the whole size of a request before it receives more of it than its buffer
holds. Who gets memory can therefore always finish; who does not is not read from until somebody
else has finished. Requests up to 16 KiB need nothing of it and always get through.

Large requests leave a part of the memory to the others, so a small one never waits for them. One
large request at a time is let in even where `queued.max.request.bytes` is smaller than it.

Who has memory and sends slowly is left alone, unless others wait for it: then, after a grace, the
slowest sender is closed. Event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Protocol

from moldau.broker.net.input import BUSY, Input
from moldau.records.scratch import Scratch, give_back

# How long a connection waits, and a sender has held its memory, before the slowest one is closed.
GRACE_S = 5.0
_LOOK_S = 1.0
# The memory that large requests must leave to others.
_LEAST_RESERVE = 2 * BUSY
# Between two searches for buffers that nobody needs.
_RECLAIM_S = 0.1


class Sender(Protocol):
    """A connection, as far as it receives requests."""

    input: Input
    receiving_since: float

    def take_memory(self) -> None:
        """There is memory for the request that waits."""

    def close(self, reason: str) -> None:
        """End the connection at once and log why."""


class RequestMemory:
    """The memory in use, and the connections that wait for more."""

    def __init__(self, limit: Callable[[], int], connections: Collection[Sender]) -> None:
        self._limit = limit
        self._connections = connections
        self.small = self.large = 0
        # Since when each waits, in the order of arrival.
        self.waiting: dict[Sender, float] = {}
        self._is_serving = False
        self._reclaimed_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def taken(self) -> int:
        return self.small + self.large

    def take(self, size: int, instead_of: int) -> bool:
        """Resize a buffer to `size` bytes; False if it may not grow."""
        small = self.small - (instead_of if instead_of < BUSY else 0)
        large = self.large - (instead_of if instead_of >= BUSY else 0)
        if size > instead_of:
            limit = self._limit()
            for_large = limit - max(limit // 8, _LEAST_RESERVE)
            if size >= BUSY:
                if large and (large + size > for_large or small + large + size > limit):
                    return False
                if not self._is_serving and any(each.input.needed > BUSY for each in self.waiting):
                    return False
            elif small + min(large, max(for_large, 0)) + size > limit:
                return False
        if size >= BUSY:
            large += size
        else:
            small += size
        is_less = small + large < self.taken
        self.small, self.large = small, large
        if is_less and self.waiting:
            self._wake()
        return True

    def hold(self, size: int) -> None:
        """Count a buffer that has so many bytes already, whether there is room for it or not."""
        if size >= BUSY:
            self.large += size
        else:
            self.small += size

    # -- who waits

    def wait(self, connection: Sender, loop: asyncio.AbstractEventLoop) -> None:
        """Tell `connection` when it may try again."""
        self._loop = loop
        now = loop.time()
        self.waiting[connection] = now
        if now - self._reclaimed_at > _RECLAIM_S:
            self._reclaimed_at = now
            for each in self._connections:
                each.input.shrink()
        if self._timer is None:
            self._timer = loop.call_later(_LOOK_S, self._relieve)

    def forget(self, connection: Sender) -> None:
        self.waiting.pop(connection, None)

    def _wake(self) -> None:
        """Let waiting connections try again, in order, when the one that freed memory is done."""
        assert self._loop is not None
        self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        served = []
        is_large_turn = True
        self._is_serving = True
        for connection in self.waiting:
            is_large = connection.input.needed > BUSY
            if is_large and not is_large_turn:
                continue
            if connection.input.grow():
                served.append(connection)
            elif is_large:
                # A larger one does not wait for ever while smaller ones pass it.
                is_large_turn = False
        self._is_serving = False
        for connection in served:
            del self.waiting[connection]
        for connection in served:
            connection.take_memory()

    def _relieve(self) -> None:
        """Close the slowest sender if somebody has been waiting for too long."""
        self._timer = None
        if not self.waiting:
            return
        assert self._loop is not None
        self._timer = self._loop.call_later(_LOOK_S, self._relieve)
        for connection in self._connections:
            connection.input.shrink()
        self._serve()
        now = self._loop.time()
        if not self.waiting or now - next(iter(self.waiting.values())) < GRACE_S:
            return
        holders = [
            each
            for each in self._connections
            if each.input.extra
            and each.input.filled
            and now - each.receiving_since >= GRACE_S
            # Strangers hold none of it.
            and each.input.memory is self
        ]
        # Connections that wait send nothing themselves: they are closed only if no other holds
        # memory.
        senders = [each for each in holders if each not in self.waiting] or holders
        if senders:
            slowest = min(
                senders, key=lambda each: each.input.filled / (now - each.receiving_since)
            )
            slowest.close(
                "it sends its request too slowly, and other connections wait for the memory "
                "that it holds"
            )

    # -- large buffers that are done with

    def dispose(self, buffer: Scratch, position: int = 0) -> None:
        """Give a buffer back to the system in pieces, since it may hold 100 MB."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        if position < len(buffer):
            self._loop.call_soon(self.dispose, buffer, give_back(buffer, position))
