"""The metadata of a cluster, in ZooKeeper."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

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
from moldau.cluster.zookeeper.commits import Commits, Displaced
from moldau.cluster.zookeeper.creation import create_cluster
from moldau.cluster.zookeeper.election import NOBODY, Office
from moldau.cluster.zookeeper.fence import Fence
from moldau.cluster.zookeeper.housekeeping import Duties
from moldau.cluster.zookeeper.operations import (
    Check,
    NoNode,
    Refused,
    SetData,
    Unanswered,
    Unreachable,
)
from moldau.cluster.zookeeper.registration import Membership, Occupied
from moldau.cluster.zookeeper.session import Session
from moldau.cluster.zookeeper.tree import Tree
from moldau.cluster.zookeeper.writes import Draft
from moldau.cluster.zookeeper.znodes import DamagedNode, Paths, decode_number, split_connect

logger = logging.getLogger("moldau.cluster.zookeeper")

T = TypeVar("T")

_ATTEMPTS = 5
# All brokers may want some at once.
_PRODUCER_ID_ATTEMPTS = 50
_RETRY_S = 0.1
_LONGEST_RETRY_S = 2.0


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
            )
        except ValueError as error:
            raise StoreError(f"'{hosts}' are no ZooKeeper servers: {error}") from error
        self._tree = Tree(self._session, self._paths, broker_id, self._notice_came)
        self._office = Office(self._session, self._paths, broker_id, self._office_changed)
        self._membership = Membership(self._session, self._paths)
        self._commits = Commits(self._session, self._paths, self._tree, broker_id)
        self._duties = Duties(
            self._session,
            self._paths,
            self._tree,
            self._office,
            self._commits,
            on_members=self._members_changed,
        )
        self._lock = asyncio.Lock()
        self._fence = Fence(broker_id)
        self._registration_listeners: list[RegistrationListener] = []
        # How often the lease has ended.
        self._lapses = 0
        self._rejoin: Callable[[], Awaitable[None]] | None = None
        self._is_open = False
        # Which session the tree was loaded in, and which the brokers' events come from.
        self._loaded_in = 0
        self._seen_session = 0
        self._registered: BrokerInfo | None = None
        self._was_registered = False
        # What may have changed since it was last looked at.
        self._stale: set[str] = set()
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._rejoining: asyncio.Task[None] | None = None

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
        self._rejoin = rejoin

    def on_registration(self, listener: RegistrationListener) -> None:
        self._registration_listeners.append(listener)

    def on_registering(self, listener: Callable[[int], None]) -> None:
        self._membership.listeners.append(listener)

    @property
    def registration(self) -> int:
        if self._membership.folder_version is not None:
            return self._membership.folder_version
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
        self._spawn(self._keep_up(), "zookeeper-store")

    async def close(self) -> None:
        was_open, self._is_open = self._is_open, False
        if not was_open:
            return
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Those who wait for the lock find the store closed.
        async with self._lock:
            if self._registered is not None and self._session.is_connected:
                notice = self._commits.notice(brokers=True)
                try:
                    await self._membership.withdraw(self._registered, notice)
                except StoreError as error:
                    logger.info("the end of the session tells that we left: %s", error)
            await self._session.close()

    async def arrive(self, folder_id: str) -> None:
        await self._when_free(lambda: self._arrive(folder_id))

    async def register(self, broker: BrokerInfo) -> BrokerInfo:
        return await self._when_free(lambda: self._register(broker))

    async def _when_free(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do what no other process may have this broker's id for; StoreError if one keeps it."""
        # Another's session may still have to run out, by its own timeout.
        deadline = time.monotonic() + 1.5 * self._session.timeout_s + 1
        while True:
            try:
                async with self._lock:
                    await self._be_current()
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
                        f"{error}, from another data folder, and lives. Give this broker another"
                        " id, or stop that one"
                    ) from error
            await asyncio.sleep(_RETRY_S)

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
        if as_controller and not self._office.is_held:
            raise NotController(f"broker {self.broker_id} is not the controller")
        registered = self._registered
        joining = [] if as_controller else self._joining(draft)
        async with self._lock:
            await self._be_current()
            if registered is not self._registered:
                raise Conflict("the broker's registration is another one by now")
            try:
                if as_controller:
                    await self._commits.write(draft, self._office.guards)
                else:
                    await self._commits.write(draft, [*self._membership.guards, *joining])
            except NotController:
                self._lose_office()
                raise
            except Displaced as problem:
                if self._membership.guards:
                    self._lose_registration(str(problem))
                    self._mark("notices")
                raise
            self._tree.publish(settled)

    def _joining(self, draft: Draft) -> list[Check]:
        """Guards that whoever comes into sync is in the life that it was judged by (KIP-903)."""
        registrations = self._tree.registrations
        joining = sorted(draft.joining())
        if not all(broker in registrations for broker in joining):
            raise Conflict(f"of the brokers {joining} not all are registered")
        return [Check(self._paths.folder(broker), registrations[broker]) for broker in joining]

    async def allocate_producer_ids(self, count: int) -> range:
        path = self._paths.producer_ids
        for _ in range(_PRODUCER_ID_ATTEMPTS):
            try:
                data, stat = await self._session.get(path)
                first = decode_number(path, data)
                written = b"%d" % (first + count)
                await self._session.multi([SetData(path, written, stat.version)])
                return range(first, first + count)
            except (Refused, Unanswered) as error:
                # Somebody else took these, or perhaps we did: then nobody ever uses them.
                logger.debug("taking other producer ids: %s", error)
            except (DamagedNode, NoNode) as error:
                raise StoreError(f"no producer ids are to be had: {error}") from error
        raise StoreError(
            f"no producer ids are to be had: {_PRODUCER_ID_ATTEMPTS} times others were faster, or"
            " no answer came"
        )

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
        """Expects the lock. In a new session everything is read anew before anything is done."""
        if not self._is_open and self._loaded_in:
            raise StoreError("the metadata store is closed")
        await self._session.wait_until_connected()
        for _ in range(_ATTEMPTS):
            session_id = self._session.id
            if self._loaded_in == session_id:
                return
            try:
                await self._session.sync()
                await self._tree.load()
            except Unanswered as error:
                logger.info("%s; reading again", error)
            else:
                self._loaded_in = session_id
                return
        raise Unreachable(f"the connection to ZooKeeper at {self._session.hosts} does not last")

    def _session_changed(self) -> None:
        session_id = self._session.id
        if session_id != self._seen_session and self._seen_session:
            self._lose_session()
        self._seen_session = session_id
        if self._session.is_connected:
            # Watches are gone with the connection.
            self._mark("notices", "controller", "members")

    def _lease_changed(self, is_over: bool) -> None:
        if is_over:
            self._lapses += 1
            if self._was_registered:
                self._fence.close("nothing was heard of ZooKeeper for as long as a session lives")
        else:
            self._mark("notices", "controller", "members")

    def _lose_session(self) -> None:
        self._lose_registration("its ZooKeeper session ended")
        self._lose_office()

    def _lose_registration(self, reason: str) -> None:
        if self._registered is not None:
            self._registered = None
            self._membership.lose()
            self._fence.close(reason)

    def _lose_office(self) -> None:
        self._office.lose()
        if self.state.controller_id == self.broker_id:
            self._tree.publish([ControllerElected(NOBODY)])
        self._mark("controller")

    async def _rejoin_cluster(self, rejoin: Callable[[], Awaitable[None]]) -> None:
        pause = _RETRY_S
        while self._registered is None:
            try:
                await rejoin()
            except Exception as error:
                logger.warning("broker %d could not rejoin: %s", self.broker_id, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_RETRY_S)

    def _rejoined(self, task: asyncio.Task[None]) -> None:
        self._rejoining = None
        self._mark("notices")

    # -- keeping up

    def _notice_came(self) -> None:
        self._mark("notices")

    def _office_changed(self) -> None:
        self._mark("controller")

    def _members_changed(self) -> None:
        self._mark("members")

    def _mark(self, *what: str) -> None:
        self._stale.update(what)
        self._wake.set()

    async def _keep_up(self) -> None:
        pause = _RETRY_S
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._session.is_connected:
                continue
            stale, self._stale = self._stale, set()
            try:
                async with self._lock:
                    await self._refresh(stale)
            except (Unanswered, Unreachable) as error:
                logger.info("%s; catching up when it is back", error)
                self._mark(*stale)
                await asyncio.sleep(_RETRY_S)
            except NotController as error:
                logger.info("%s", error)
                self._lose_office()
                self._mark(*stale)
            except Exception as error:
                known = isinstance(error, StoreError | DamagedNode)
                logger.error("cannot keep up with ZooKeeper: %s", error, exc_info=not known)
                self._mark(*stale)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_RETRY_S)
            else:
                pause = _RETRY_S

    async def _refresh(self, stale: set[str]) -> None:
        lapses = self._lapses
        await self._be_current()
        if stale & {"notices", "members"}:
            await self._tree.catch_up()
        if "controller" in stale:
            await self._look_for_controller()
        self._check_registration()
        if self._office.is_held:
            if "members" in stale:
                await self._duties.announce_members()
            await self._duties.trim()
        is_settled = self._registered is not None and self._rejoining is None
        # Part of what was read is older than the lease if that ended meanwhile.
        if is_settled and not self.lease.is_over and lapses == self._lapses:
            self._fence.open()

    async def _look_for_controller(self) -> None:
        holder = await self._office.look(may_be_elected=self._may_be_elected)
        if holder == self.state.controller_id:
            return
        if self._office.is_held:
            # What was committed under the last controller is known before the first decision.
            await self._tree.catch_up()
            await self._duties.announce_members()
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
            self._lose_registration(f"its registration was taken back by {by}")
        if self._was_registered and self._registered is None:
            self._begin_rejoining()

    def _begin_rejoining(self) -> None:
        if self._rejoin is not None and self._rejoining is None and self._is_open:
            task = self._spawn(self._rejoin_cluster(self._rejoin), "zookeeper-rejoin")
            self._rejoining = task
            task.add_done_callback(self._rejoined)

    async def _arrive(self, folder_id: str) -> None:
        await self._membership.arrive(self.broker_id, folder_id)
        # What others decided before is part of the state by now.
        await self._session.sync()
        await self._tree.catch_up()

    async def _register(self, broker: BrokerInfo) -> BrokerInfo:
        notice = self._commits.notice(brokers=True)
        registered = await self._membership.register(broker, notice)
        for listener in self._registration_listeners:
            listener(registered.epoch, self.registration)
        # Only what the state shows too can be missed there.
        await self._tree.catch_up()
        self._registered = registered
        self._was_registered = True
        if registered.stopping and self._office.is_held:
            # Another takes over before this broker is gone.
            await self._office.depose(self.broker_id)
            self._lose_office()
        self._mark("controller")
        return registered

    async def _expel(self, broker: BrokerInfo) -> None:
        notice = self._commits.notice(brokers=True)
        try:
            was_it = await self._membership.expel(broker, self._office.guards, notice)
        except Refused as refusal:
            self._lose_office()
            raise NotController("another broker has been elected controller") from refusal
        if was_it:
            logger.info("expelled broker %d: it is gone", broker.id)
        await self._tree.catch_up()
        self._check_registration()

    async def _depose(self, controller: int) -> None:
        if not self._office.is_held:
            await self._office.depose(controller)
        self._mark("controller")

    async def _repeatedly(self, work: Callable[[], Awaitable[None]]) -> None:
        """For what may be done twice: if the connection breaks over it, it is done again."""
        for _ in range(_ATTEMPTS):
            await self._be_current()
            try:
                await work()
                return
            except Unanswered as error:
                logger.info("%s; trying again", error)
        raise Unreachable(f"the connection to ZooKeeper at {self._session.hosts} does not last")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
