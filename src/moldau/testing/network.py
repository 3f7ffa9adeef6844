"""A network whose cables can be pulled, without root: every connection runs through here.

Each broker advertises a port of this network, which passes everything on to the broker's real port;
its connections to ZooKeeper run through ports of its own. Who is at the other end of a connection
to a broker, a client or another broker, is found out as `ss -p` does it: the kernel's table of
connections has the socket's number, and the process that holds it has it among its open files. So
a broker can be cut off in both directions though all share one address.

What is cut falls silent, as a broken cable does, and is not closed: what was sent meanwhile arrives
late, after `heal`. What is slow arrives later, in order. A connection that is broken ends at once
for who made it, while what that side had sent still arrives at the other one: after a reconnect,
old requests and new ones may overtake each other. A port whose broker has died is closed, so that
a connection to it is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from moldau.local.ports import HOST

T = TypeVar("T")

_CHUNK = 1 << 18
_MOST_ON_THE_WAY = 64
_CALL_WITHIN_S = 10.0
_CONNECTIONS = Path("/proc/net/tcp")
_LOCAL, _REMOTE, _INODE = 1, 2, 9


class _Link:
    """A connection that passes through here: its ends, and the socket to who made it."""

    __slots__ = ("is_broken", "near", "source", "target")

    def __init__(self, source: int | None, target: int | None, near: asyncio.StreamWriter) -> None:
        self.source, self.target, self.near = source, target, near
        self.is_broken = False


class Network:
    """Ports that pass on to brokers and to ZooKeeper. Its methods are for one thread."""

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise NotImplementedError("cutting brokers off needs Linux and its /proc")
        self._pids: dict[int, int] = {}
        self._cut: set[int] = set()
        self._cut_from_clients: set[int] = set()
        self._delay_s: dict[int, float] = {}
        self._links: set[_Link] = set()
        self._listeners: dict[int, asyncio.Server] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="moldau-network", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        if self._thread.is_alive():
            self._call(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CALL_WITHIN_S)
            self._loop.close()

    def to_broker(self, port: int, broker: int, real_port: int, pid: int) -> None:
        """Pass on from `port` to a broker whose process has begun."""
        self._pids[broker] = pid
        self._call(self._listen(port, None, broker, real_port))

    def from_broker(self, port: int, broker: int, real_port: int) -> None:
        """Pass on from `port`, which only this broker knows, to a server that is no broker."""
        self._call(self._listen(port, broker, None, real_port))

    def end(self, port: int) -> None:
        """Refuse connections to `port` from now on, since nobody is behind it any more."""
        self._call(self._unlisten(port))

    def cut(self, broker: int, *, from_clients: bool = True) -> None:
        """Silence all that the broker sends and is sent; with `from_clients` false, clients still
        reach it, and only other brokers and ZooKeeper do not."""
        self._cut.add(broker)
        if from_clients:
            self._cut_from_clients.add(broker)
        self._loop.call_soon_threadsafe(self._wake)

    def heal(self, broker: int) -> None:
        self._cut.discard(broker)
        self._cut_from_clients.discard(broker)
        self._loop.call_soon_threadsafe(self._wake)

    def slow(self, broker: int, delay_s: float) -> None:
        """Deliver so much later whatever the broker sends and is sent; 0 ends it."""
        self._delay_s[broker] = delay_s

    def break_connections(self, broker: int) -> None:
        """Break every connection from or to the broker; what is on its way still arrives."""
        self._loop.call_soon_threadsafe(self._break, broker)

    def is_cut(self, broker: int) -> bool:
        return broker in self._cut

    # -- on the loop

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_WITHIN_S)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _is_silent(self, source: int | None, target: int | None) -> bool:
        if source is None:
            return target in self._cut_from_clients
        return source in self._cut or target in self._cut

    async def _until_heard(self, source: int | None, target: int | None) -> None:
        while self._is_silent(source, target):
            await self._changed.wait()

    async def _listen(
        self, port: int, source: int | None, target: int | None, real_port: int
    ) -> None:
        if port in self._listeners:
            return

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            origin = source
            if origin is None:
                origin = self._owner(writer.get_extra_info("peername")[1], port)
            task = self._loop.create_task(self._join(reader, writer, origin, target, real_port))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self._listeners[port] = await asyncio.start_server(
            connected, HOST, port, limit=_CHUNK, backlog=256
        )

    async def _unlisten(self, port: int) -> None:
        listener = self._listeners.pop(port, None)
        if listener is not None:
            listener.close()

    async def _end(self) -> None:
        for port in list(self._listeners):
            await self._unlisten(port)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _join(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        source: int | None,
        target: int | None,
        real_port: int,
    ) -> None:
        """Pass everything on in both directions until either side ends."""
        try:
            await self._until_heard(source, target)
            far_reader, far_writer = await asyncio.open_connection(HOST, real_port, limit=_CHUNK)
        except OSError:
            writer.transport.abort()
            return
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        link = _Link(source, target, writer)
        self._links.add(link)
        ways = [
            self._loop.create_task(self._pass_on(reader, far_writer, link)),
            self._loop.create_task(self._pass_on(far_reader, writer, link)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            if link.is_broken and not ways[0].done():
                await ways[0]
        finally:
            self._links.discard(link)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            # Ends as a process does that is gone; what is still on its way may be lost.
            for each in (writer, far_writer):
                each.close()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: _Link
    ) -> None:
        """Read ahead of what is delivered: a slow link delays, and still carries as much."""
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MOST_ON_THE_WAY)
        delivering = self._loop.create_task(self._deliver(on_the_way, writer, link))
        try:
            while not delivering.done():
                await self._until_heard(link.source, link.target)
                try:
                    data = await reader.read(_CHUNK)
                except OSError:
                    data = b""
                await on_the_way.put((self._loop.time() + self._delay(link), data))
                if not data:
                    break
            await delivering
        finally:
            delivering.cancel()

    async def _deliver(
        self,
        on_the_way: asyncio.Queue[tuple[float, bytes]],
        writer: asyncio.StreamWriter,
        link: _Link,
    ) -> None:
        with contextlib.suppress(OSError):
            while True:
                due, data = await on_the_way.get()
                wait_s = due - self._loop.time()
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                await self._until_heard(link.source, link.target)
                if not data:
                    return
                writer.write(data)
                await writer.drain()

    def _delay(self, link: _Link) -> float:
        ends = (end for end in (link.source, link.target) if end is not None)
        return sum(self._delay_s.get(end, 0.0) for end in ends)

    def _break(self, broker: int) -> None:
        for link in self._links:
            if broker in (link.source, link.target):
                link.is_broken = True
                link.near.transport.abort()

    def _owner(self, from_port: int, to_port: int) -> int | None:
        """Return the broker whose process made this connection; None for anybody else's."""
        inode = _inode_of(from_port, to_port)
        if inode is None:
            return None
        for broker, pid in self._pids.items():
            if _holds(pid, f"socket:[{inode}]"):
                return broker
        return None


def _inode_of(from_port: int, to_port: int) -> str | None:
    local, remote = f":{from_port:04X}", f":{to_port:04X}"
    for line in _CONNECTIONS.read_text("ascii").splitlines()[1:]:
        fields = line.split()
        if fields[_LOCAL].endswith(local) and fields[_REMOTE].endswith(remote):
            return fields[_INODE]
    return None


def _holds(pid: int, name: str) -> bool:
    try:
        with os.scandir(f"/proc/{pid}/fd") as files:
            for file in files:
                with contextlib.suppress(OSError):
                    if os.readlink(file.path) == name:
                        return True
    except OSError:
        # The process has ended.
        return False
    return False
