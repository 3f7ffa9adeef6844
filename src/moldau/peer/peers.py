"""Peers: a broker's connections to the other brokers of its cluster, one for each purpose.

A broker talks to another for several reasons, and what takes long for one must not delay the rest:
a follower's long poll would hold up a request that is passed on to the controller. So there is a
lane for each broker and purpose, with a connection of its own. All else is the same for everybody,
and is here: where a broker is to be found, the first words on a connection, how long to wait before
another attempt, how long without an answer is too long, and when a connection is of no more use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from moldau.peer.aio import AsyncConnection
from moldau.peer.errors import ConnectionLost, PeerError

if TYPE_CHECKING:
    from moldau.security.client import ClientSecurity

CONNECT_WITHIN_S = 5.0


class PeerAddress(NamedTuple):
    """The address of a broker; `epoch` is that of its registration."""

    host: str
    port: int
    epoch: int


class Purpose(NamedTuple):
    """The purpose of a connection. `name` begins the client id that the peer sees.

    One that does not greet carries no requests. The pauses are those between attempts to connect:
    the first, which doubles up to the longest.
    """

    name: str
    greets: bool = True
    first_backoff_s: float = 0.05
    longest_backoff_s: float = 0.25


class Lane:
    """The way to one broker for one purpose: a connection, replaced as needed. Event loop only.

    `patience_s` says how long a request may go unanswered before the connection counts as dead.
    """

    def __init__(
        self,
        peers: Peers,
        broker: int,
        purpose: Purpose,
        patience_s: Callable[[], float] | None,
    ) -> None:
        self.broker = broker
        self._peers = peers
        self._purpose = purpose
        self._patience_s = patience_s
        self._connecting = asyncio.Lock()
        self._connection: AsyncConnection | None = None
        # Where the connection goes, or where the last attempt went.
        self._address: PeerAddress | None = None
        self._failures = 0
        self._failed_at = 0.0
        # Set, and replaced, when the broker has registered elsewhere or again.
        self._moved = asyncio.Event()

    async def connection(self) -> AsyncConnection:
        """Return the connection, opened if there is none.

        PeerError when it cannot be opened, ConnectionRefused when nobody listens there. After a
        failure the next attempt waits a while, but not for a broker that has registered since.
        """
        connection = self._connection
        if connection is not None and connection.is_open:
            return connection
        async with self._connecting:
            connection = self._connection
            if connection is None or not connection.is_open:
                connection = await self._connect()
            return connection

    def close(self) -> None:
        """Hang up; whoever waits for an answer gets ConnectionLost."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def refresh(self) -> None:
        """Hang up on a broker that has registered elsewhere or anew since it was connected to."""
        address = self._peers.locate(self.broker)
        if address is None or address == self._address:
            return
        self._failures = 0
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        if self._connection is not None:
            self._connection.close("the broker has registered again")

    async def _connect(self) -> AsyncConnection:
        await self._back_off()
        peers, purpose = self._peers, self._purpose
        self._address = address = peers.locate(self.broker)
        # A broker that asks who we are does not wait for an answer for long.
        says_something = purpose.greets or peers.security is not None
        connect = AsyncConnection.connect if says_something else AsyncConnection.open
        try:
            if address is None:
                raise ConnectionLost(f"broker {self.broker}", "it is not registered")
            connection = await connect(
                address.host,
                address.port,
                f"{purpose.name}-{peers.me}",
                CONNECT_WITHIN_S,
                peers.security,
            )
        except PeerError:
            self._failures += 1
            self._failed_at = asyncio.get_running_loop().time()
            raise
        self._failures = 0
        if peers.locate(self.broker) not in (address, None):
            connection.close()
            raise ConnectionLost(connection.address, "the broker has registered again")
        if self._patience_s is not None:
            connection.limit_silence(self._patience_s)
        self._connection = connection
        return connection

    async def _back_off(self) -> None:
        if not self._failures:
            return
        purpose = self._purpose
        pause_s = min(
            purpose.first_backoff_s * 2.0 ** min(self._failures - 1, 20), purpose.longest_backoff_s
        )
        left_s = self._failed_at + pause_s - asyncio.get_running_loop().time()
        if left_s <= 0:
            return
        try:
            async with asyncio.timeout(left_s):
                await self._moved.wait()
        except TimeoutError:
            return


class Peers:
    """The lanes of the broker `me`. Event loop only.

    `locate` answers where a broker is registered at the moment, None if it is not. Whoever knows of
    changes calls `refresh`.
    """

    def __init__(self, me: int, locate: Callable[[int], PeerAddress | None]) -> None:
        self.me = me
        self.locate = locate
        # How brokers prove to each other who they are.
        self.security: ClientSecurity | None = None
        self._lanes: dict[tuple[int, Purpose, int], Lane] = {}

    def lane(
        self,
        broker: int,
        purpose: Purpose,
        number: int = 0,
        patience_s: Callable[[], float] | None = None,
    ) -> Lane:
        """Return the lane to a broker for a purpose; `number` is for those that have several."""
        lane = self._lanes.get((broker, purpose, number))
        if lane is None:
            lane = self._lanes[broker, purpose, number] = Lane(self, broker, purpose, patience_s)
        return lane

    async def probe(self, broker: int) -> None:
        """Return if somebody listens at a broker's address; ConnectionRefused if nobody does.

        ConnectionLost where we cannot know.
        """
        address = self.locate(broker)
        if address is None:
            raise ConnectionLost(f"broker {broker}", "it is not registered")
        found = await AsyncConnection.open(
            address.host, address.port, f"probe-{self.me}", CONNECT_WITHIN_S, self.security
        )
        found.close()

    def refresh(self) -> None:
        """Hang up on all brokers that have registered elsewhere or anew."""
        for lane in self._lanes.values():
            lane.refresh()

    def close(self) -> None:
        """Hang up on everybody."""
        for lane in self._lanes.values():
            lane.close()
