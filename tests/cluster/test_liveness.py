from __future__ import annotations

import asyncio
import socket

import msgspec

from moldau.cluster.liveness import Liveness, Report, dead_among
from moldau.cluster.state.topics import BrokerInfo
from moldau.peer.peers import PeerAddress, Peers
from moldau.testing.waiting import until_async


class Listener:
    """Somebody who listens at an address, until it dies."""

    def __init__(self, id: int) -> None:
        self._id = id
        self._server: asyncio.Server | None = None
        self.port = 0
        self.connections: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections.append(writer)

        self._server = await asyncio.start_server(accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def info(self) -> BrokerInfo:
        return BrokerInfo(self._id, "127.0.0.1", self.port)

    def drop_connections(self) -> None:
        while self.connections:
            self.connections.pop().transport.abort()

    def die(self) -> None:
        assert self._server is not None
        self._server.close()
        self.drop_connections()


class Deaths:
    """Who was reported dead."""

    def __init__(self) -> None:
        self.reported: list[int] = []

    async def __call__(self, broker: BrokerInfo) -> None:
        self.reported.append(broker.id)


class Cluster:
    """Where brokers are registered, and who was reported dead among those that are watched."""

    def __init__(self, report: Report | None = None) -> None:
        self.deaths = Deaths()
        self._brokers: dict[int, BrokerInfo] = {}
        self.peers = Peers(0, self._locate)
        self.liveness = Liveness(self.peers, report or self.deaths)

    def _locate(self, id: int) -> PeerAddress | None:
        info = self._brokers.get(id)
        return None if info is None else PeerAddress(info.host, info.port, info.epoch)

    def register(self, *brokers: BrokerInfo) -> None:
        self._brokers = {info.id: info for info in brokers}
        self.peers.refresh()

    def watch(self, *brokers: BrokerInfo) -> None:
        """Only these are registered from now on, and they are watched."""
        self.register(*brokers)
        self.liveness.watch(brokers)

    @property
    def reported(self) -> list[int]:
        return self.deaths.reported


def test_a_broker_that_ends_is_reported_and_the_others_are_not() -> None:
    async def scenario() -> None:
        one, two = Listener(1), Listener(2)
        await one.start()
        await two.start()
        cluster = Cluster()
        cluster.watch(one.info, two.info)
        await until_async(lambda: len(one.connections) == len(two.connections) == 1)
        one.die()
        await until_async(lambda: bool(cluster.reported))
        assert set(cluster.reported) == {1}
        assert len(two.connections) == 1
        await cluster.liveness.stop()
        two.die()

    asyncio.run(scenario())


def test_a_closed_connection_alone_is_no_death() -> None:
    async def scenario() -> None:
        one = Listener(1)
        await one.start()
        cluster = Cluster()
        cluster.watch(one.info)
        for _ in range(3):
            await until_async(lambda: len(one.connections) == 1)
            one.drop_connections()
        await until_async(lambda: len(one.connections) == 1)
        assert not cluster.reported
        await cluster.liveness.stop()
        one.die()

    asyncio.run(scenario())


def test_a_death_that_could_not_be_made_known_is_reported_again() -> None:
    async def scenario() -> None:
        attempts = []

        async def fails_once(broker: BrokerInfo) -> None:
            attempts.append(broker.id)
            if len(attempts) == 1:
                raise RuntimeError("no word from the store")

        one = Listener(1)
        await one.start()
        one.die()
        cluster = Cluster(fails_once)
        cluster.watch(one.info)
        await until_async(lambda: len(attempts) > 1)
        await cluster.liveness.stop()

    asyncio.run(scenario())


def test_who_is_watched_again_after_a_report_lives_whatever_refuses_in_its_name() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        one = Listener(1)
        await one.start()
        one.die()
        cluster.watch(one.info)
        await until_async(lambda: bool(cluster.reported))
        # It was struck off, and registered again.
        cluster.watch()
        count = len(cluster.reported)
        again = msgspec.structs.replace(one.info, epoch=7)
        cluster.watch(again)
        other = Listener(2)
        await other.start()
        other.die()
        # Somebody else who dies later is reported, and with pauses as long.
        cluster.watch(again, other.info)
        await until_async(lambda: cluster.reported.count(2) > 1)
        assert cluster.reported.count(1) == count
        # Once it can be reached, a refusal means what it meant.
        await one.start()
        await until_async(lambda: len(one.connections) == 1)
        one.die()
        await until_async(lambda: cluster.reported.count(1) > count)
        await cluster.liveness.stop()

    asyncio.run(scenario())


def test_a_broker_that_survives_its_reports_is_reported_no_more() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        one = Listener(1)
        await one.start()
        one.die()
        # As a controller that is elected again at once is watched all the time.
        cluster.watch(one.info)
        await until_async(lambda: len(cluster.reported) == 4)
        late = Listener(2)
        await late.start()
        late.die()
        cluster.watch(one.info, late.info)
        await until_async(lambda: cluster.reported.count(2) > 1)
        assert cluster.reported.count(1) == 4
        await cluster.liveness.stop()

    asyncio.run(scenario())


def test_nobody_is_reported_who_is_watched_no_more() -> None:
    async def scenario() -> None:
        one, two = Listener(1), Listener(2)
        await one.start()
        await two.start()
        cluster = Cluster()
        cluster.watch(one.info, two.info)
        await until_async(lambda: len(one.connections) == len(two.connections) == 1)
        cluster.watch(two.info)
        one.die()
        two.die()
        await until_async(lambda: bool(cluster.reported))
        assert set(cluster.reported) == {2}
        await cluster.liveness.stop()

    asyncio.run(scenario())


def test_only_who_refuses_counts_as_dead() -> None:
    async def scenario() -> None:
        alive, dead = Listener(1), Listener(2)
        await alive.start()
        await dead.start()
        dead.die()
        # Like a frozen process: the system takes connections in, nobody ever answers.
        with socket.create_server(("127.0.0.1", 0), backlog=1) as frozen:
            silent = BrokerInfo(3, "127.0.0.1", frozen.getsockname()[1])
            by_name = BrokerInfo(4, "localhost", dead.port)
            cluster = Cluster()
            cluster.register(alive.info, dead.info, silent, by_name)
            found = await dead_among(cluster.peers, range(1, 5))
        assert found == {2, 4}
        alive.die()

    asyncio.run(scenario())
