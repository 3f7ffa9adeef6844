"""Elections of the controller: who it is, and how one is elected and replaced."""

from __future__ import annotations

import logging

from moldau.cluster.store import NotController
from moldau.cluster.zookeeper.sessions.operations import (
    Check,
    Create,
    Delete,
    NoNode,
    Operation,
    Refused,
    SetData,
)
from moldau.cluster.zookeeper.sessions.session import Session
from moldau.cluster.zookeeper.sessions.watcher import Watch
from moldau.cluster.zookeeper.znodes import (
    DamagedNode,
    Holder,
    Paths,
    decode_holder,
    decode_number,
    encode_holder,
)

logger = logging.getLogger("moldau.cluster.zookeeper")

NOBODY = -1


class Election:
    """/controller and /controller-epoch. Event loop only, one call at a time (the store's lock).

    The controller is the session that created /controller, by a transaction that also wrote
    /controller-epoch. Whoever is elected later writes that node again, so `guards` in a
    transaction fails from then on whatever its sender still believes.
    """

    def __init__(self, session: Session, paths: Paths, broker_id: int, on_change: Watch) -> None:
        self._session = session
        self._paths = paths
        self._broker_id = broker_id
        self._on_change = on_change
        self._epoch_version: int | None = None
        self.epoch = 0

    @property
    def is_held(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._epoch_version is not None

    @property
    def guards(self) -> list[Check]:
        """Return the check that makes a transaction the controller's; raise NotController if it is
        another's.
        """
        if self._epoch_version is None:
            raise NotController(f"broker {self._broker_id} is not the controller")
        return [Check(self._paths.controller_epoch, self._epoch_version)]

    def lose(self) -> None:
        """The session has ended, or another was elected."""
        if self.is_held:
            logger.warning(
                "broker %d is no longer the controller of epoch %d", self._broker_id, self.epoch
            )
        self._epoch_version = None

    async def look(self, *, may_be_elected: bool) -> int:
        """Return who is the controller; watches for the next change. Becomes it if there is
        none."""
        while True:
            if await self._session.exists(self._paths.controller, self._on_change) is None:
                self.lose()
                if not may_be_elected or not await self._take():
                    return NOBODY
                continue
            try:
                data, stat = await self._session.get(self._paths.controller)
                holder = decode_holder(self._paths.controller, data)
            except NoNode:
                continue
            except DamagedNode as error:
                logger.error("%s; there will be no controller until it is deleted", error)
                self.lose()
                return NOBODY
            if stat.owner == self._session.id:
                return await self._recognize(holder, stat.owner)
            self.lose()
            if holder.id != self._broker_id:
                return holder.id
            # An earlier life of this broker, whose session has not expired yet.
            if not may_be_elected or not await self.depose(holder.id):
                return NOBODY

    async def depose(self, id: int) -> bool:
        """Remove the broker with this id as controller, if it still is the one; whether it was."""
        try:
            epoch, version = await self._read_epoch()
            data, _ = await self._session.get(self._paths.controller)
            holder = decode_holder(self._paths.controller, data)
            # A broker that is elected in between has another epoch, and stays controller.
            if holder.id != id or holder.epoch != epoch:
                return False
            await self._session.multi(
                [Check(self._paths.controller_epoch, version), Delete(self._paths.controller)]
            )
        except (NoNode, Refused, DamagedNode):
            return False
        logger.info("took over as controller from broker %d, which is gone", id)
        return True

    async def _take(self) -> bool:
        """Try to be elected. False if that cannot be: the next event will tell."""
        try:
            epoch, version = await self._read_epoch()
        except DamagedNode as error:
            logger.error("%s; no controller can be elected", error)
            return False
        operations: list[Operation] = [
            # Only a registered broker is elected.
            Check(self._paths.broker(self._broker_id)),
            Create(
                self._paths.controller,
                encode_holder(Holder(self._broker_id, epoch + 1)),
                ephemeral=True,
            ),
            SetData(self._paths.controller_epoch, b"%d" % (epoch + 1), version),
        ]
        try:
            await self._session.multi(operations)
        except Refused as refusal:
            return refusal.at > 0
        return True

    async def _recognize(self, holder: Holder, session: int) -> int:
        """Take up being the controller, which this session is."""
        if self._epoch_version is not None:
            return self._broker_id
        try:
            epoch, version = await self._read_epoch()
        except DamagedNode as error:
            logger.error("%s; there will be no controller until it is repaired", error)
            return NOBODY
        if self._session.id != session:
            # It has ended since: `lose` came before there was anything to lose.
            return NOBODY
        if epoch != holder.epoch:
            logger.error(
                "%s says epoch %d, but this broker was elected controller in epoch %d",
                self._paths.controller_epoch,
                epoch,
                holder.epoch,
            )
            return NOBODY
        self._epoch_version = version
        self.epoch = epoch
        logger.info("broker %d is the controller, epoch %d", self._broker_id, epoch)
        return self._broker_id

    async def _read_epoch(self) -> tuple[int, int]:
        path = self._paths.controller_epoch
        try:
            data, stat = await self._session.get(path)
        except NoNode:
            raise DamagedNode(path, "it is missing") from None
        return decode_number(path, data), stat.version
