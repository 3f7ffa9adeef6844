"""Registrations: who takes part in the cluster."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from moldau.cluster.state.topics import BrokerInfo
from moldau.cluster.store import StoreError
from moldau.cluster.zookeeper.sessions.operations import (
    Check,
    Create,
    Delete,
    NoNode,
    Operation,
    Refused,
    SetData,
    Stat,
    Unanswered,
)
from moldau.cluster.zookeeper.sessions.session import Session
from moldau.cluster.zookeeper.znodes import (
    DamagedNode,
    Paths,
    decode_broker,
    encode_broker,
)

logger = logging.getLogger("moldau.cluster.zookeeper")

T = TypeVar("T")

_RETRY_S = 0.1


class Occupied(Exception):
    """Another broker, or this one with another data folder, is registered under the id."""

    def __init__(self, holder: BrokerInfo) -> None:
        super().__init__(f"broker {holder.id} is registered at {holder.host}:{holder.port}")
        self.holder = holder


class Registrations:
    """/brokers and /folders. Event loop only, one call at a time (the store's lock).

    A registration belongs to a session. Each writes /folders/<id> too, whose version therefore
    tells registrations apart where a transaction has to: `guards` in one make it fail when the
    registration is no more, or another. Before the first, there are none.
    """

    def __init__(self, session: Session, paths: Paths) -> None:
        self._session = session
        self._paths = paths
        self.guards: list[Check] = []
        # As this process wrote it last; nobody else writes that node.
        self.folder_version: int | None = None
        # Told the version of /folders/<id> before that is written.
        self.listeners: list[Callable[[int], None]] = []

    def lose(self) -> None:
        """The registration is gone; what is written from now on is written by nobody's right."""
        self.guards = []

    async def when_free(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do what no other process may have this broker's id for; StoreError if one keeps it."""
        # Another's session may still have to run out, by its own timeout.
        deadline = time.monotonic() + 1.5 * self._session.timeout_s + 1
        while True:
            try:
                return await work()
            except Unanswered as error:
                logger.info("%s; registering again", error)
            except Refused as refusal:
                logger.info("%s; registering again", refusal)
                if time.monotonic() > deadline:
                    raise
            except Occupied as error:
                if time.monotonic() > deadline:
                    raise StoreError(
                        f"{error}, with another data folder, and is alive. Give this broker "
                        "another id, or stop the other one"
                    ) from error
            await asyncio.sleep(_RETRY_S)

    async def arrive(self, id: int, folder_id: str) -> None:
        """Begin another life of the broker: what others decide about the last one fails.

        Occupied if the broker lives with another data folder.
        """
        path = self._paths.folder(id)
        try:
            data, stat = await self._session.get(path)
        except NoNode:
            return
        # After the version was read: a registration from now on makes the write fail.
        broker = self._paths.broker(id)
        with suppress(NoNode):
            held, broker_stat = await self._session.get(broker)
            _check_folder(broker, id, folder_id, held, broker_stat.czxid)
        self._tell(stat.version)
        (written,) = await self._session.multi([SetData(path, data, stat.version)])
        self.folder_version = written.version

    async def register(self, broker: BrokerInfo, notice: Create) -> BrokerInfo:
        """Register, or say something new of a registration of this session.

        A registration of an earlier life is replaced; it is one if it came with the same data
        folder, which only one process at a time can hold. Otherwise Occupied.
        """
        path, folder = self._paths.broker(broker.id), self._paths.folder(broker.id)
        session_id = self._session.id
        data = encode_broker(broker)
        folder_id = broker.folder_id.encode()
        operations: list[Operation] = [notice]
        try:
            held, stat = await self._session.get(path)
        except NoNode:
            operations.append(Create(path, data, ephemeral=True))
        else:
            if stat.owner == session_id:
                operations.append(SetData(path, data, stat.version))
            else:
                _check_folder(path, broker.id, broker.folder_id, held, stat.czxid)
                logger.info(
                    "replacing the registration of an earlier process of broker %d", broker.id
                )
                operations += [Delete(path, stat.version), Create(path, data, ephemeral=True)]
        folder_stat = await self._session.exists(folder)
        if folder_stat is None:
            operations.append(Create(folder, folder_id))
            self._tell(-1)
        else:
            operations.append(SetData(folder, folder_id, folder_stat.version))
            self._tell(folder_stat.version)
        results = await self._session.multi(operations)
        folder_version = results[-1].version if isinstance(results[-1], Stat) else 0
        self.folder_version = folder_version
        self.guards = [Check(path), Check(folder, folder_version)]
        registered, stat = await self._session.get(path)
        return decode_broker(path, broker.id, registered, stat.czxid)

    async def expel(self, broker: BrokerInfo, guards: Sequence[Check], notice: Create) -> bool:
        """Delete the registration if it is this one; whether it was."""
        path, folder = self._paths.broker(broker.id), self._paths.folder(broker.id)
        folder_stat = await self._session.exists(folder)
        stat = await self._session.exists(path)
        if folder_stat is None or stat is None or stat.czxid != broker.epoch:
            return False
        try:
            await self._session.multi(
                [*guards, Check(folder, folder_stat.version), Delete(path), notice]
            )
        except Refused as refusal:
            if refusal.at < len(guards):
                raise
            return False
        return True

    async def withdraw(self, broker: BrokerInfo, notice: Create) -> None:
        """Take back this session's registration, if it is still there."""
        path = self._paths.broker(broker.id)
        stat = await self._session.exists(path)
        if stat is not None and stat.czxid == broker.epoch and stat.owner == self._session.id:
            await self._session.multi([Delete(path), notice])

    def _tell(self, version: int) -> None:
        for listener in self.listeners:
            listener(version)


def _check_folder(path: str, id: int, folder_id: str, held: bytes, epoch: int) -> None:
    """Occupied if the registration came with another data folder than this."""
    try:
        holder = decode_broker(path, id, held, epoch)
    except DamagedNode as error:
        logger.error("%s; replacing it", error)
        return
    if holder.folder_id != folder_id:
        raise Occupied(holder)
