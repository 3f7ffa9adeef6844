"""A scripted client: it finds brokers, asks them, and forgets connections that broke."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, NamedTuple
from uuid import UUID

from moldau.peer.aio import AsyncConnection
from moldau.peer.errors import PeerError
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.simulation.core.process import Machine, Process
from tests.simulation.core.world import PORT, World

TIMEOUT_S = 5.0
BACKOFF_S = 0.2


class Failed(Exception):
    """Nobody knows whether a request was done: no answer came."""


class Leader(NamedTuple):
    broker: int
    epoch: int
    topic_id: UUID
    partitions: int


class Talker:
    """The connections of one client, in a process of its own. Its name is the client's id."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.loop = world.loop
        self.dice: random.Random = world.dice(f"client {name}")
        number = len(world.others) + 1
        machine = world.network.add(Machine(name, f"10.0.2.{number}"))
        self.process = Process(name, machine)
        world.others.append(self.process)
        self._connections: dict[int, AsyncConnection] = {}
        self.is_stopping = False

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the script; whatever it does not expect ends the simulation."""
        self.world.spawn(self.process, self._guarded(work))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as problem:
            self.world.fail(problem)

    async def pause(self, around_s: float) -> None:
        await asyncio.sleep(around_s * self.dice.uniform(0.5, 1.5))

    async def to(self, broker: int) -> AsyncConnection:
        """A connection to a broker; Failed if there is none to be had."""
        connection = self._connections.get(broker)
        if connection is None or not connection.is_open:
            try:
                connection = await AsyncConnection.connect(
                    f"10.0.0.{broker}", PORT, self.name, TIMEOUT_S
                )
            except PeerError as problem:
                raise Failed(str(problem)) from None
            self._connections[broker] = connection
        return connection

    async def ask(
        self,
        broker: int,
        api: Api,
        timeout_s: float = TIMEOUT_S,
        at_most: int | None = None,
        **values: Any,
    ) -> Any:
        """An answer; Failed if none comes, and then the connection is dropped."""
        connection = await self.to(broker)
        try:
            async with asyncio.timeout(timeout_s):
                return await connection.ask(api, values, at_most)
        except TimeoutError:
            connection.close()
            raise Failed("timed out") from None
        except PeerError as problem:
            raise Failed(str(problem)) from None

    def any_broker(self) -> int:
        return self.dice.choice(list(self.world.nodes))

    async def leader_of(self, topic: str, partition: int) -> Leader | None:
        """Who leads a partition, as some broker sees it."""
        answer = await self.ask(
            self.any_broker(),
            Api.METADATA,
            topics=[{"topic_id": None, "name": topic}],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        (found,) = answer.topics
        if found.error_code != Error.NONE:
            return None
        for each in found.partitions:
            if each.partition_index == partition and each.leader_id >= 0:
                count = len(found.partitions)
                return Leader(int(each.leader_id), int(each.leader_epoch), found.topic_id, count)
        return None

    async def find_leader(self, topic: str, partition: int) -> Leader:
        """As `leader_of`, until there is one."""
        while True:
            try:
                found = await self.leader_of(topic, partition)
            except Failed:
                found = None
            if found is not None:
                return found
            await self.pause(BACKOFF_S)
