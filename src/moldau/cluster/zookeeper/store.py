"""The metadata of a cluster, in ZooKeeper."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from moldau.cluster.lease import Lease
from moldau.cluster.state.changes import AnyChange, ControllerElected, DeletionsSettled
from moldau.cluster.state.state import ClusterState
from moldau.cluster.state.topics import BrokerInfo
from moldau.cluster.store import (
    Conflict,
    FenceListener,
    Listener,
    NotController,
    RegistrationListener,
    StoreError,
)
from moldau.cluster.zookeeper import producer_ids
from moldau.cluster.zookeeper.commits import Commits, Displaced
from moldau.cluster.zookeeper.creation import create_cluster
from moldau.cluster.zookeeper.election import NOBODY, Election
from moldau.cluster.zookeeper.fence import Fence
from moldau.cluster.zookeeper.housekeeping import Housekeeping
from moldau.cluster.zookeeper.refresher import Refresher
from moldau.cluster.zookeeper.registration import Registrations
from moldau.cluster.zookeeper.rejoining import Rejoining
from moldau.cluster.zookeeper.sessions.client import ZooKeeperSecurity
from moldau.cluster.zookeeper.sessions.operations import (
    Refused,
    Unanswered,
    Unreachable,
)
from moldau.cluster.zookeeper.sessions.session import Session
from moldau.cluster.zookeeper.tree import Tree
from moldau.cluster.zookeeper.writes import Draft
from moldau.cluster.zookeeper.znodes import Paths, split_connect

logger = logging.getLogger("moldau.cluster.zookeeper")

T = TypeVar("T")

_ATTEMPTS = 5
_RETRY_S = 0.1


class ZooKeeperStore:
    """A MetadataStore in a ZooKeeper ensemble (see `znodes` for the layout). Event loop only.

    `connect` is HOST:PORT,...[/CHROOT]; the chroot is created. A broker takes part from `register`
    on: only then may it be elected controller.

    One task keeps up with ZooKeeper: it reads what notices name, looks for the controller, and as
    controller tells of brokers that came and went. Everything that reads or writes nodes that the
    state is made of holds `_lock`, so a state and its nodes' versions always belong together.

    When the session ends, or the registration is taken back, the broker is fenced; the state is
    read anew and `rejoin` awaited, again and again until the broker is registered. When only the
    lease ended (nothing heard for the session's length), it is fenced until ZooKeeper confirms
    that the registration is still there.
    """

    def __init__(
        self,
        connect: str,
        broker_id: int,
        *,
        session_timeout_ms: int = 6_000,
        connection_timeout_ms: int = 15_000,
        security: ZooKeeperSecurity | None = None,
    ) -> None:
        try:
            hosts, chroot = split_connect(connect)
        except ValueError as error:
            raise StoreError(str(error)) from error
        self.broker_id = broker_id
        self._connect_within_s = connection_timeout_ms / 1000
        self._paths = Paths(chroot)
        try:
            self._session = Session(
                hosts,
                session_timeout_ms,
                on_change=self._session_changed,
                on_lease=self._lease_changed,
                security=security,
            )
        except ValueError as error:
            raise StoreError(f"'{hosts}' is not a list of ZooKeeper servers: {error}") from error
        self._refresher = Refresher(self._session, self._refresh_stale)
        mark = self._refresher.mark
        self._tree = Tree(self._session, self._paths, broker_id, lambda: mark("notices"))
        self._election = Election(self._session, self._paths, broker_id, lambda: mark("controller"))
        self._registrations = Registrations(self._session, self._paths)
        self._commits = Commits(self._session, self._paths, self._tree, broker_id)
        self._housekeeping = Housekeeping(
            self._session,
            self._paths,
            self._tree,
            self._election,
            self._commits,
            on_members=lambda: mark("members"),
        )
        self._lock = asyncio.Lock()
        self._fence = Fence(broker_id)
        self._registration_listeners: list[RegistrationListener] = []
        self._lapses = 0  # How often the lease has ended.
        self._is_open = False
        # The session that the brokers' events come from.
        self._seen_session = 0
        self._registered: BrokerInfo | None = None
        self._was_registered = False
        self._refreshing: asyncio.Task[None] | None = None
        self._rejoining = Rejoining(
            broker_id, lambda: self._registered is not None, lambda: mark("notices")
        )

    @property
    def state(self) -> ClusterState:
        return self._tree.state

    @property
    def lease(self) -> Lease:
        return self._session.lease

    def subscribe(self, listener: Listener) -> None:
        self._tree.listeners.append(listener)

    def on_fence(self, listener: FenceListener) -> None:
        self._fence.listeners.append(listener)

    def on_new_session(self, rejoin: Callable[[], Awaitable[None]]) -> None:
        self._rejoining.rejoin = rejoin

    def on_registration(self, listener: RegistrationListener) -> None:
        self._registration_listeners.append(listener)

    def on_registering(self, listener: Callable[[int], None]) -> None:
        self._registrations.listeners.append(listener)

    @property
    def registration(self) -> int:
        if self._registrations.folder_version is not None:
            return self._registrations.folder_version
        return self._tree.folder_versions.get(self.broker_id, -1)

    def folder_id_of(self, broker: int) -> str | None:
        return self._tree.folder_ids.get(broker) or None

    async def open(self) -> None:
        await self._session.open(self._connect_within_s)
        try:
            await self._start()
        except BaseException:
            await self._session.close()
            raise
        self._is_open = True
        self._refreshing = asyncio.create_task(self._refresher.run(), name="zookeeper-store")

    async def close(self) -> None:
        was_open, self._is_open = self._is_open, False
        if not was_open:
            return
        await self._stop_following()
        # Callers that wait for the lock find the store closed.
        async with self._lock:
            if self._registered is not None and self._session.is_connected:
                notice = self._commits.notice(brokers=True)
                try:
                    await self._registrations.withdraw(self._registered, notice)
                except StoreError as error:
                    logger.info(
                        "could not unregister; the registration ends with the session: %s", error
                    )
            await self._session.close()

    async def _stop_following(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)
        await self._rejoining.stop()

    async def arrive(self, folder_id: str) -> None:
        await self._when_free(lambda: self._arrive(folder_id))

    async def register(self, broker: BrokerInfo) -> BrokerInfo:
        return await self._when_free(lambda: self._register(broker))

    async def _when_free(self, work: Callable[[], Awaitable[T]]) -> T:
        async def attempt() -> T:
            async with self._lock:
                await self._be_current()
                return await work()

        return await self._registrations.when_free(attempt)

    async def expel(self, broker: BrokerInfo) -> None:
        async with self._lock:
            await self._repeatedly(lambda: self._expel(broker))

    async def depose(self) -> None:
        controller = self.state.controller_id
        if controller == NOBODY:
            return
        async with self._lock:
            await self._repeatedly(lambda: self._depose(controller))

    async def commit(self, changes: Sequence[AnyChange], *, as_controller: bool = True) -> None:
        if not self._is_open:
            raise StoreError("the metadata store is closed")
        draft = Draft(self.state, changes)
        settled = [change for change in changes if isinstance(change, DeletionsSettled)]
        if not draft.changes:
            self._tree.publish(settled)
            return
        if not as_controller and not draft.only_changes_partitions:
            raise NotController("only the controller may commit this")
        if as_controller and not self._election.is_held:
            raise NotController(f"broker {self.broker_id} is not the controller")
        registered = self._registered
        joining = [] if as_controller else self._commits.joining(draft)
        async with self._lock:
            await self._be_current()
            if registered is not self._registered:
                raise Conflict("the broker has registered again in the meantime")
            try:
                if as_controller:
                    await self._commits.write(draft, self._election.guards)
                else:
                    await self._commits.write(draft, [*self._registrations.guards, *joining])
            except NotController:
                self._step_down()
                raise
            except Displaced as problem:
                if self._registrations.guards:
                    self._lose_registration(str(problem))
                    self._refresher.mark("notices")
                raise
            self._tree.publish(settled)

    async def allocate_producer_ids(self, count: int) -> range:
        return await producer_ids.reserve(self._session, self._paths.producer_ids, count)

    # -- the beginning and the end of sessions

    async def _start(self) -> None:
        while True:
            try:
                await create_cluster(self._session, self._paths)
                await self._be_current()
                await self._look_for_controller()
                return
            except Unanswered as error:
                logger.info("%s; starting again", error)

    async def _be_current(self) -> None:
        """Expect the lock. In a new session everything is read anew before anything is done."""
        if not self._is_open and self._tree.is_loaded:
            raise StoreError("the metadata store is closed")
        await self._session.wait_until_connected()
        await self._tree.be_current()

    def _session_changed(self) -> None:
        session_id = self._session.id
        if session_id != self._seen_session and self._seen_session:
            self._lose_session()
        self._seen_session = session_id
        if self._session.is_connected:
            # Watches are gone with the connection.
            self._refresher.mark("notices", "controller", "members")

    def _lease_changed(self, is_over: bool) -> None:
        if is_over:
            self._lapses += 1
            if self._was_registered:
                self._fence.close("it has not heard from ZooKeeper for a whole session timeout")
        else:
            self._refresher.mark("notices", "controller", "members")

    def _lose_session(self) -> None:
        self._lose_registration("its ZooKeeper session ended")
        self._step_down()

    def _lose_registration(self, reason: str) -> None:
        if self._registered is not None:
            self._registered = None
            self._registrations.lose()
            self._fence.close(reason)

    def _step_down(self) -> None:
        self._election.lose()
        if self.state.controller_id == self.broker_id:
            self._tree.publish([ControllerElected(NOBODY)])
        self._refresher.mark("controller")

    # -- keeping up

    async def _refresh_stale(self, stale: set[str]) -> None:
        async with self._lock:
            try:
                await self._refresh(stale)
            except NotController as error:
                logger.info("%s", error)
                self._step_down()
                self._refresher.mark(*stale)

    async def _refresh(self, stale: set[str]) -> None:
        lapses = self._lapses
        await self._be_current()
        if stale & {"notices", "members"}:
            await self._tree.catch_up()
        if "controller" in stale:
            await self._look_for_controller()
        self._check_registration()
        if self._election.is_held:
            if "members" in stale:
                await self._housekeeping.announce_members()
            await self._housekeeping.trim()
        is_settled = self._registered is not None and not self._rejoining.is_under_way
        # Part of what was read is older than the lease if the lease ended in the meantime.
        if is_settled and not self.lease.is_over and lapses == self._lapses:
            self._fence.open()

    async def _look_for_controller(self) -> None:
        holder = await self._election.look(may_be_elected=self._may_be_elected)
        if holder == self.state.controller_id:
            return
        if self._election.is_held:
            # Everything committed under the last controller is known before the first decision.
            await self._tree.catch_up()
            await self._housekeeping.announce_members()
        self._tree.publish([ControllerElected(holder)])

    @property
    def _may_be_elected(self) -> bool:
        return self._registered is not None and not self._registered.stopping

    def _check_registration(self) -> None:
        """Somebody may have taken us for dead, or registered under our id."""
        own = self._registered
        now = self.state.brokers.get(self.broker_id)
        if own is not None and (now is None or now.epoch != own.epoch):
            by = (
                f"broker {now.id} at {now.host}:{now.port}" if now is not None else "the controller"
            )
            self._lose_registration(f"its registration was removed by {by}")
        if self._was_registered and self._registered is None and self._is_open:
            self._rejoining.begin()

    async def _arrive(self, folder_id: str) -> None:
        await self._registrations.arrive(self.broker_id, folder_id)
        # The state now contains earlier decisions of others.
        await self._session.sync()
        await self._tree.catch_up()

    async def _register(self, broker: BrokerInfo) -> BrokerInfo:
        notice = self._commits.notice(brokers=True)
        registered = await self._registrations.register(broker, notice)
        for listener in self._registration_listeners:
            listener(registered.epoch, self.registration)
        # Only what the state shows too can be missed there.
        await self._tree.catch_up()
        self._registered = registered
        self._was_registered = True
        if registered.stopping and self._election.is_held:
            # Another takes over before this broker is gone.
            await self._election.depose(self.broker_id)
            self._step_down()
        self._refresher.mark("controller")
        return registered

    async def _expel(self, broker: BrokerInfo) -> None:
        notice = self._commits.notice(brokers=True)
        try:
            was_it = await self._registrations.expel(broker, self._election.guards, notice)
        except Refused as refusal:
            self._step_down()
            raise NotController("another broker has been elected controller") from refusal
        if was_it:
            logger.info("removed the registration of broker %d, which is gone", broker.id)
        await self._tree.catch_up()
        self._check_registration()

    async def _depose(self, controller: int) -> None:
        if not self._election.is_held:
            await self._election.depose(controller)
        self._refresher.mark("controller")

    async def _repeatedly(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something that may be done twice: if the connection breaks, do it again."""
        for _ in range(_ATTEMPTS):
            await self._be_current()
            try:
                await work()
                return
            except Unanswered as error:
                logger.info("%s; trying again", error)
        raise Unreachable(f"the connection to ZooKeeper at {self._session.hosts} keeps breaking")
