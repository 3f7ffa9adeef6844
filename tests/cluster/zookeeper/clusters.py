"""Brokers that have nothing but a store."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from kazoo.client import KazooClient

from moldau.cluster.state.changes import AnyChange
from moldau.cluster.state.topics import BrokerInfo, PartitionState, Topic
from moldau.cluster.zookeeper import ZooKeeperStore
from moldau.testing.waiting import until_async

SESSION_MS = 15_000


class Member:
    """A store, registered, that writes down what it is told."""

    def __init__(
        self,
        connect: str,
        id: int,
        session_ms: int = SESSION_MS,
        folder: str = "",
        connection_ms: int = 15_000,
    ) -> None:
        self.id = id
        self.store = ZooKeeperStore(
            connect, id, session_timeout_ms=session_ms, connection_timeout_ms=connection_ms
        )
        self.info = BrokerInfo(id, "127.0.0.1", 9000 + id, folder_id=folder or f"folder-{id}")
        self.registered = self.info
        self.changes: list[AnyChange] = []
        self.fences: list[bool] = []
        self.rejoined = 0
        self.store.subscribe(self._changed)
        self.store.on_fence(self.fences.append)

    def _changed(self, changes: Sequence[AnyChange]) -> None:
        self.changes.extend(changes)

    async def join(self, *, rejoins: bool = True) -> None:
        await self.store.open()
        self.registered = await self.store.register(self.info)
        if rejoins:
            self.store.on_new_session(self._rejoin)

    async def _rejoin(self) -> None:
        self.registered = await self.store.register(self.info)
        self.rejoined += 1

    @property
    def controller(self) -> int:
        return self.store.state.controller_id

    def topic(self, name: str) -> Topic:
        return self.store.state.topics[name]


@asynccontextmanager
async def joined(
    connect: str, *ids: int, session_ms: int = SESSION_MS, rejoins: bool = True
) -> AsyncIterator[list[Member]]:
    """Members in this order; the first is the controller, and all know of all."""
    async with AsyncExitStack() as stack:
        members: list[Member] = []
        for id in ids:
            member = Member(connect, id, session_ms)
            members.append(member)
            stack.push_async_callback(member.store.close)
            await member.join(rejoins=rejoins)
            await until_async(lambda: members[-1].controller == ids[0])
        await until_async(lambda: all(set(m.store.state.brokers) == set(ids) for m in members))
        yield members


def tell(raw: KazooClient, **what: object) -> None:
    """Say that something has changed, as a broker that changed it would."""
    notice = {"commit": "by hand", "from": 99, **what}
    raw.create("/changes/c-", json.dumps(notice).encode(), sequence=True)


def partition(*replicas: int, epoch: int = 0, isr: tuple[int, ...] | None = None) -> PartitionState:
    return PartitionState(replicas, replicas if isr is None else isr, replicas[0], epoch)


def topic(name: str, partitions: int = 1, *replicas: int) -> Topic:
    return Topic(name, uuid.uuid4(), (partition(*(replicas or (1, 2))),) * partitions)
