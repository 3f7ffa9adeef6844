"""Transports: the two ends of a simulated connection, with asyncio's contract."""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.core.process import Machine, Process

if TYPE_CHECKING:
    from tests.simulation.network.network import Network

# What the systems on both sides hold of one direction before the writer has to wait.
_WINDOW = 256 << 10


class _Socket:
    """The options of a socket that is none."""

    def setsockopt(self, *arguments: Any) -> None:
        """Do nothing."""


_SOCKET = _Socket()


class Transport(asyncio.Transport):
    """One end. Bytes arrive in order, in pieces, and some time after they were written."""

    def __init__(
        self,
        network: Network,
        process: Process,
        near: Machine,
        far: Machine,
        own: tuple[str, int],
        peer: tuple[str, int],
    ) -> None:
        super().__init__()
        self._network = network
        self._loop = network._loop
        self.process = process
        self.near = near
        self.far = far
        self.link = f"{near.name}>{far.name} ".encode()
        self._own = own
        self._peer = peer
        self.other: Transport
        self._protocol: Any = None
        self.is_closed = False
        self._is_closing = False
        self._is_lost = False
        # What arrived and was not read yet.
        self._received: deque[bytes] = deque()
        self._is_reading = True
        self._is_feeding = False
        self._has_ended = False
        # What was written and not read by the other side; then whether the writer waits.
        self._in_flight = 0
        self._is_paused = False
        self._high_water = 64 << 10
        self._line: deque[Callable[[], object]] = deque()
        self._stalled_until = 0.0
        # How much of the line is kept under way; None if nothing is.
        self._held: int | None = None

    def begin(self, protocol: Any) -> None:
        if self.is_closed:
            return
        self._protocol = protocol
        protocol.connection_made(self)
        self._feed_soon()

    # -- asyncio's contract

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"sockname": self._own, "peername": self._peer, "socket": _SOCKET}.get(name, default)

    def is_closing(self) -> bool:
        return self._is_closing

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_water = 64 << 10 if high is None else high

    def get_write_buffer_size(self) -> int:
        return max(0, self._in_flight - _WINDOW)

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._feed_soon()

    def write(self, data: Any) -> None:
        if self._is_closing or self.is_closed or not data:
            return
        sent = bytes(data)
        if self._network.on_sent is not None:
            self._network.on_sent(self, sent)
        self._in_flight += len(sent)
        self._carry(lambda: self.other._arrived(sent))
        if not self._is_paused and self._in_flight > _WINDOW + self._high_water:
            self._is_paused = True
            self._protocol.pause_writing()

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        """Send what was written, then end."""
        if self._is_closing:
            return
        self._is_closing = True
        self._carry(self.other._ended)
        self._loop.soon_in(self.process, self._lose, None)

    def abort(self) -> None:
        if self._is_lost or self.is_closed:
            return
        self._is_closing = True
        self._carry(self.other.reset)
        self._loop.soon_in(self.process, self._lose, None)

    def stall(self, lasts_s: float) -> None:
        """Let nothing that is written from now on arrive for so long."""
        self._stalled_until = self._loop.now_s + lasts_s

    def hold(self) -> None:
        """Keep what is written from now on under way until it is let go."""
        if self._held is None:
            self._held = 0

    def let_go(self, count: int | None = None) -> None:
        """Let what is held arrive, or the first so many writes of it."""
        held = self._held or 0
        going = held if count is None else min(count, held)
        self._held = None if count is None else held - going
        for _ in range(going):
            self._network.carry(self.near, self.far, self._next)

    # -- the system's side

    def _carry(self, arrive: Callable[[], object]) -> None:
        """Over the link, after all that went before it: whatever gets there first is the next."""
        self._line.append(arrive)
        if self._held is not None:
            self._held += 1
            return
        stalled_s = self._stalled_until - self._loop.now_s
        if stalled_s > 0.0:
            self._loop.later_in(
                self._loop.outside, stalled_s, self._network.carry, self.near, self.far, self._next
            )
        else:
            self._network.carry(self.near, self.far, self._next)

    def _next(self) -> None:
        self._line.popleft()()

    def _arrived(self, data: bytes) -> None:
        if not self.is_closed:
            self._received.append(data)
            self._feed_soon()

    def _ended(self) -> None:
        if not self.is_closed:
            self._has_ended = True
            self._feed_soon()

    def reset(self) -> None:
        """The other side, or somebody in between, has dropped the connection."""
        if not self.is_closed:
            self._received.clear()
            problem = ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
            self._loop.soon_in(self.process, self._lose, problem)

    def vanish(self, *, tell: bool) -> None:
        """The process is dead; only the machine can tell the other side."""
        if tell and not self.is_closed:
            self._carry(self.other.reset)
        self.is_closed = self._is_closing = self._is_lost = True
        self._protocol = None
        self._network.forget(self)

    def _feed_soon(self) -> None:
        if self._protocol is not None and not self._is_feeding:
            self._is_feeding = True
            self._loop.soon_in(self.process, self._feed)

    def _feed(self) -> None:
        """Give the protocol one piece of what arrived."""
        self._is_feeding = False
        if self.is_closed or not self._is_reading or self._is_closing:
            return
        if not self._received:
            if self._has_ended:
                self._has_ended = False
                if not self._protocol.eof_received():
                    self.close()
            return
        data = self._received.popleft()
        if len(self._received) and self._network._dice.random() < 0.5:
            data += self._received.popleft()
        elif len(data) > 1 and self._network._dice.random() < 0.05:
            place = 1 + int(self._network._dice.random() * (len(data) - 1))
            self._received.appendleft(data[place:])
            data = data[:place]
        buffer = self._protocol.get_buffer(-1)
        taken = min(len(buffer), len(data))
        buffer[:taken] = data[:taken]
        if taken < len(data):
            self._received.appendleft(data[taken:])
        self.other._taken(taken)
        self._protocol.buffer_updated(taken)
        if self._received or self._has_ended:
            self._feed_soon()

    def _taken(self, size: int) -> None:
        self._in_flight -= size
        if self._is_paused and self._in_flight <= _WINDOW:
            self._is_paused = False
            self._loop.soon_in(self.process, self._resume)

    def _resume(self) -> None:
        if not self.is_closed and not self._is_lost:
            self._protocol.resume_writing()

    def _lose(self, problem: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self.is_closed = self._is_closing = True
        self._network.forget(self)
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(problem)

    def discard(self) -> None:
        """Let go of the protocol: the simulation is over."""
        self._protocol = None
