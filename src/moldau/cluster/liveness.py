"""Liveness: brokers that have died, found by connections instead of by waiting for a session.

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
from collections.abc import Awaitable, Callable, Iterable

from moldau.cluster.state.topics import BrokerInfo
from moldau.peer.errors import ConnectionRefused, PeerError
from moldau.peer.peers import Lane, Peers, Purpose

# Nothing is ever said over its connections. The pause is that before an address is tried again
# that did not answer, or a death is reported again.
LIVENESS = Purpose("liveness", greets=False, first_backoff_s=0.25, longest_backoff_s=0.25)
# A broker that was reported this often and is still watched is alive.
MOST_REPORTS = 4

Report = Callable[[BrokerInfo], Awaitable[None]]

logger = logging.getLogger(__name__)


class Liveness:
    """Holds a connection to each broker that is watched. Event loop only.

    `report` is awaited with a broker whose address refuses connections, and again for a while if
    the broker is still watched; what it raises is logged, and does not count as a report.
    """

    def __init__(self, peers: Peers, report: Report) -> None:
        self._peers = peers
        self._report = report
        self._watches: dict[BrokerInfo, asyncio.Task[None]] = {}
        # Brokers that were reported dead, and not connected to since.
        self._reported: set[int] = set()

    def watch(self, brokers: Iterable[BrokerInfo]) -> None:
        """Watch these from now on, and nobody else."""
        wanted = dict.fromkeys(brokers)
        for broker in [each for each in self._watches if each not in wanted]:
            self._watches.pop(broker).cancel()
        for broker in wanted:
            if broker not in self._watches:
                self._watches[broker] = asyncio.create_task(
                    self._watch(broker), name=f"liveness-of-broker-{broker.id}"
                )

    async def stop(self) -> None:
        """Watch nobody any more."""
        tasks = list(self._watches.values())
        self.watch(())
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, broker: BrokerInfo) -> None:
        lane = self._peers.lane(broker.id, LIVENESS)
        try:
            await self._watch_by(lane, broker)
        finally:
            lane.close()

    async def _watch_by(self, lane: Lane, broker: BrokerInfo) -> None:
        reports = 0
        is_alive = broker.id in self._reported
        is_told = False
        while True:
            try:
                connection = await lane.connection()
            except ConnectionRefused:
                if not is_alive:
                    reports += await self._say_dead(broker)
                    is_alive = reports == MOST_REPORTS
                elif not is_told:
                    is_told = True
                    self._tell_of_firewall(broker)
            except PeerError as problem:
                # Unreachable or out of time: not a proof of anything.
                logger.debug("cannot connect to broker %d: %s", broker.id, problem)
            else:
                self._reported.discard(broker.id)
                reports, is_alive, is_told = 0, False, False
                await connection.until_closed()

    async def _say_dead(self, broker: BrokerInfo) -> bool:
        """Report a broker; whether that could be done."""
        try:
            await self._report(broker)
        except Exception as problem:
            logger.warning(
                "broker %d is dead, but its death could not be published: %s", broker.id, problem
            )
            return False
        self._reported.add(broker.id)
        return True

    @staticmethod
    def _tell_of_firewall(broker: BrokerInfo) -> None:
        logger.warning(
            "broker %d at %s:%d refuses connections from here, but is alive: is there a firewall "
            "in between? Until it is reachable, it counts as dead only when its session ends",
            broker.id, broker.host, broker.port,
        )  # fmt: skip


async def dead_among(peers: Peers, brokers: Iterable[int]) -> set[int]:
    """Return those of the brokers at whose address nobody listens."""

    async def is_dead(broker: int) -> bool:
        try:
            await peers.probe(broker)
        except ConnectionRefused:
            return True
        except PeerError:
            return False
        return False

    probed = list(brokers)
    answers = await asyncio.gather(*(is_dead(broker) for broker in probed))
    return {broker for broker, dead in zip(probed, answers, strict=True) if dead}
