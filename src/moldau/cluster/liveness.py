"""Who has died, found out by connections instead of by waiting for a session to expire.

A process that ends closes its sockets at once and then nobody listens at its address: a connection
is closed, and the next refused. That is taken for death. Silence is not: a machine that is slow,
frozen or cut off refuses nothing, and only the end of its session says that it is gone.

A firewall can refuse connections in the name of a broker that lives. Such a broker registers again
after it was struck off, or is elected controller again. So from then on a refusal proves nothing,
until a connection to it has been made.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable

from moldau.cluster.state.topics import BrokerInfo

CONNECT_WITHIN_S = 5.0
# Before an address is tried again that did not answer, or a death is reported again.
PAUSE_S = 0.25
# What was reported so often, and is watched still, has not died of it.
_MOST_REPORTS = 4

Report = Callable[[BrokerInfo], Awaitable[None]]

logger = logging.getLogger(__name__)


class Liveness:
    """Holds a connection to each broker that is watched. Event loop only.

    `report` is awaited with a broker whose address refuses connections, and again for a while if
    the broker is still watched; what it raises is logged, and does not count as a report.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._watches: dict[BrokerInfo, asyncio.Task[None]] = {}
        # Brokers that were reported dead, and not connected to since.
        self._reported: set[int] = set()

    def watch(self, brokers: Iterable[BrokerInfo]) -> None:
        """Watch these from now on, and nobody else."""
        wanted = set(brokers)
        for broker in self._watches.keys() - wanted:
            self._watches.pop(broker).cancel()
        for broker in wanted - self._watches.keys():
            self._watches[broker] = asyncio.create_task(
                self._watch(broker), name=f"liveness-of-broker-{broker.id}"
            )

    async def stop(self) -> None:
        """Watch nobody any more."""
        tasks = list(self._watches.values())
        self.watch(())
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, broker: BrokerInfo) -> None:
        reports = 0
        is_alive = broker.id in self._reported
        is_told = False
        while True:
            try:
                async with asyncio.timeout(CONNECT_WITHIN_S):
                    held = await _Held.connect(broker)
            except ConnectionRefusedError:
                if not is_alive:
                    reports += await self._say_dead(broker)
                    is_alive = reports == _MOST_REPORTS
                elif not is_told:
                    is_told = True
                    self._tell_of_firewall(broker)
                await asyncio.sleep(PAUSE_S)
            except OSError as problem:
                # Unreachable or out of time: not a proof of anything.
                logger.debug("broker %d cannot be connected to: %s", broker.id, problem)
                await asyncio.sleep(PAUSE_S)
            else:
                self._reported.discard(broker.id)
                reports, is_alive, is_told = 0, False, False
                await held.until_closed()

    async def _say_dead(self, broker: BrokerInfo) -> bool:
        """Report a broker; whether that could be done."""
        try:
            await self._report(broker)
        except Exception as problem:
            logger.warning(
                "broker %d is dead, which could not be made known: %s", broker.id, problem
            )
            return False
        self._reported.add(broker.id)
        return True

    @staticmethod
    def _tell_of_firewall(broker: BrokerInfo) -> None:
        logger.warning(
            "broker %d at %s:%d refuses connections from here, but lives: is there a firewall in"
            " between? Until it is reached, only the end of its session counts as its death",
            broker.id, broker.host, broker.port,
        )  # fmt: skip


class _Held(asyncio.Protocol):
    """A connection over which nothing is ever said."""

    def __init__(self) -> None:
        self._closed = asyncio.Event()
        self._transport: asyncio.BaseTransport | None = None

    @classmethod
    async def connect(cls, broker: BrokerInfo) -> _Held:
        """Connected; ConnectionRefusedError only if every address of the host refuses."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(broker.host, broker.port, type=socket.SOCK_STREAM)
        refused = ConnectionRefusedError(f"{broker.host} has no address")
        for *_, (host, port, *_) in found:
            try:
                _, held = await loop.create_connection(cls, str(host), int(port))
            except ConnectionRefusedError as reason:
                refused = reason
            else:
                return held
        raise refused

    async def until_closed(self) -> None:
        try:
            await self._closed.wait()
        finally:
            self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, problem: Exception | None) -> None:
        self._closed.set()


async def dead_among(brokers: Iterable[BrokerInfo]) -> set[int]:
    """Those of the brokers at whose address nobody listens."""

    async def probe(broker: BrokerInfo) -> int | None:
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                held = await _Held.connect(broker)
        except ConnectionRefusedError:
            return broker.id
        except OSError:
            return None
        held.close()
        return None

    found = await asyncio.gather(*(probe(broker) for broker in brokers))
    return {broker for broker in found if broker is not None}
