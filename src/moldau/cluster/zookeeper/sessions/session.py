"""The edge to kazoo: its threads on one side, the event loop on the other."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from kazoo.client import KazooState
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionClosedRequireSaslError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import KazooTimeoutError

from moldau.cluster import clock
from moldau.cluster.lease import Lease
from moldau.cluster.store import StoreError
from moldau.cluster.zookeeper.sessions.client import ZooKeeperSecurity, new_client
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
    Unreachable,
)
from moldau.cluster.zookeeper.sessions.watcher import Watch, Watcher

logger = logging.getLogger("moldau.cluster.zookeeper")

# kazoo wakes its thread by a byte per request through a socket that blocks when some hundreds wait.
_IN_FLIGHT = 64
_STOP_WITHIN_S = 5.0
_TRIES_PER_START = 4

_BROKEN = (
    ConnectionClosedError,
    ConnectionLoss,
    KazooTimeoutError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)


class Session:
    """A client of the ensemble for the event loop. Event loop only, but for what says otherwise.

    `on_change` is called after each change of `is_connected` or `id` (another id is a new session,
    and the former one's ephemeral nodes are gone), `on_lease` when the lease ended and when it was
    renewed after that. Only what the ensemble's leader has answered renews it, for it is the leader
    who ends sessions; a server that is cut off from it still answers what only reads.

    Calls wait for a connection for as long as a session lives, so they are bounded, and raise
    Unreachable after that; at the start they wait for as long as `open` may take altogether,
    whatever becomes of the first connection.

    `timeout_s` is how long a session lives without a sign of life: as asked for, until the ensemble
    says otherwise.
    """

    def __init__(
        self,
        hosts: str,
        timeout_ms: int,
        *,
        on_change: Callable[[], None],
        on_lease: Callable[[bool], None],
        security: ZooKeeperSecurity | None = None,
    ) -> None:
        self.hosts = hosts
        self.timeout_s = timeout_ms / 1000
        self.is_connected = False
        self.id = 0
        self._on_change = on_change
        self._on_lease = on_lease
        self._connected, self._window = asyncio.Event(), asyncio.Semaphore(_IN_FLIGHT)
        self._in_flight: dict[asyncio.Future[Any], None] = {}
        self.lease = Lease(self.timeout_s, clock.now(), self._lease_ended)
        self._lease_timer: asyncio.TimerHandle | None = None
        self._heartbeat: asyncio.Task[None] | None = None
        self._lost_at: float | None = None
        self._starts_until, self._is_closed = -math.inf, False
        self._client, self._handler = new_client(
            hosts, self.timeout_s, self._heard_grant, security or ZooKeeperSecurity()
        )

    async def open(self, within_s: float) -> None:
        """Connect; StoreError if no server lets us in."""
        self._loop = asyncio.get_running_loop()
        self._starts_until = clock.now() + within_s
        # One of several servers may be silent, and the others must get their turn.
        self._handler.patience_s = min(self.timeout_s, within_s / _TRIES_PER_START)
        self._client.add_listener(self._heard_state)
        self._client.start_async()
        try:
            async with asyncio.timeout(within_s):
                await self._connected.wait()
        except TimeoutError:
            await self.close()
            raise self._handler.refusal or Unreachable(
                f"no ZooKeeper server at {self.hosts} answered within {within_s:g} s; check "
                "that they are running and that most of them can reach each other"
            ) from None
        self._heartbeat = asyncio.create_task(self._beat(), name="zookeeper-heartbeat")
        if not self.lease.is_over:
            self._watch_lease()

    async def close(self) -> None:
        """End the session, and with it its ephemeral nodes."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        stopped = asyncio.get_running_loop().create_future()
        # A daemon: kazoo may take long to let go of a server that hangs.
        threading.Thread(
            target=self._stop_client, args=(stopped,), name="moldau-zookeeper-stop", daemon=True
        ).start()
        try:
            async with asyncio.timeout(_STOP_WITHIN_S):
                await stopped
        except TimeoutError:
            logger.warning("ZooKeeper did not confirm the end of session %#x", self.id)
        self.is_connected = False
        for future in list(self._in_flight):
            if not future.done():
                future.set_exception(Unanswered("the ZooKeeper session was closed"))

    async def wait_until_connected(self) -> None:
        """Return when there is a connection; Unreachable if there is none for too long."""
        if self.is_connected:
            return
        patience_s = max(self.timeout_s, self._starts_until - clock.now())
        try:
            async with asyncio.timeout(patience_s):
                # It may be gone again before this task has its turn.
                while not self.is_connected:
                    await self._connected.wait()
        except TimeoutError:
            raise Unreachable(
                f"ZooKeeper at {self.hosts} has been out of reach for {patience_s:.1f} s"
            ) from None

    # -- calls

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Return a node's data; NoNode if it is not there, and then nothing is watched."""
        data, stat = await self._call(
            lambda: self._client.get_async(path, watch=self._watcher(watch)), path
        )
        return data, _stat(stat)

    async def get_many(self, paths: Iterable[str]) -> list[tuple[bytes, Stat] | None]:
        """Return the data of many nodes, in their order; None for those that are not there."""
        return await asyncio.gather(*(self._get_or_none(path) for path in paths))

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        stat = await self._call(
            lambda: self._client.exists_async(path, watch=self._watcher(watch)), path
        )
        return None if stat is None else _stat(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        found: list[str] = await self._call(
            lambda: self._client.get_children_async(path, watch=self._watcher(watch)), path
        )
        return found

    async def is_locked(self, path: str) -> bool:
        """Return whether a node has the ACL that new ones get; True if those get none."""
        acl = self._client.default_acl
        if acl is None:
            return True
        return bool((await self._call(partial(self._client.get_acls_async, path), path))[0] == acl)

    async def lock(self, path: str) -> None:
        """Give a node the ACL that new ones get."""
        acl, set_acls = self._client.default_acl, self._client.set_acls_async
        await self._call(partial(set_acls, path, acl), path)

    async def multi(self, operations: Sequence[Operation]) -> list[Any]:
        """Do all of it or nothing. Return a created node's path, a written node's Stat, else True.

        Refused if it cannot be so, Unreachable if it was not sent, Unanswered if nobody knows.
        """
        request = self._client.transaction()
        for operation in operations:
            match operation:
                case Create(path, data, ephemeral, sequence):
                    request.create(path, data, ephemeral=ephemeral, sequence=sequence)
                case SetData(path, data, version):
                    request.set_data(path, data, version)
                case Delete(path, version):
                    request.delete(path, version)
                case Check(path, version):
                    request.check(path, version)
        results: list[Any] = await self._call(request.commit_async, str(operations[0]), renews=True)
        for place, result in enumerate(results):
            if isinstance(result, KazooException) and not isinstance(
                result, RolledBackError | RuntimeInconsistency
            ):
                raise Refused(place, operations[place], result)
        return [result if isinstance(result, str | bool) else _stat(result) for result in results]

    async def sync(self) -> None:
        """Let the server that we are connected to catch up with the ensemble."""
        await self._call(partial(self._client.sync_async, "/"), "/", renews=True)

    async def _get_or_none(self, path: str) -> tuple[bytes, Stat] | None:
        try:
            return await self.get(path)
        except NoNode:
            return None

    async def _call(self, start: Callable[[], Any], what: str, *, renews: bool = False) -> Any:
        await self.wait_until_connected()
        async with self._window:
            return await self._send(start, what, renews=renews)

    async def _send(self, start: Callable[[], Any], what: str, *, renews: bool) -> Any:
        if not self.is_connected:
            raise Unreachable(f"ZooKeeper at {self.hosts} is out of reach")
        future: asyncio.Future[Any] = self._loop.create_future()
        self._in_flight[future] = None
        sent_at = clock.now() if renews else None
        try:
            start().rawlink(partial(self._heard_answer, future, sent_at))
            return await future
        except _BROKEN as error:
            if self._handler.refusal is not None:
                raise self._handler.refusal from error
            raise Unanswered(
                f"the connection to ZooKeeper broke ({type(error).__name__}) during {what}"
            ) from error
        except (NoAuthError, SessionClosedRequireSaslError):
            raise StoreError(
                f"ZooKeeper denied this broker access ({what}); check zookeeper.digest or "
                "zookeeper.sasl.jaas.config, which must be the same for all brokers of a cluster"
            ) from None
        finally:
            self._in_flight.pop(future, None)

    # -- on kazoo's threads

    def _heard_answer(
        self, future: asyncio.Future[Any], sent_at: float | None, result: Any
    ) -> None:
        self._post(self._settle, future, sent_at, result.exception, result.value)

    def _heard_grant(self, timeout_s: float) -> None:
        self._post(self._take_grant, timeout_s)

    def _heard_state(self, state: str) -> None:
        if state != KazooState.SUSPENDED:
            self._handler.has_session = state == KazooState.CONNECTED
        client_id = self._client.client_id
        self._post(self._take_state, state, client_id[0] if client_id else 0)

    def _watcher(self, watch: Watch | None) -> Callable[[Any], None] | None:
        return None if watch is None else Watcher(self._post, watch)

    def _stop_client(self, stopped: asyncio.Future[None]) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:
            logger.warning("the ZooKeeper client did not stop cleanly: %s", error)
        self._post(lambda: None if stopped.done() else stopped.set_result(None))

    def _post(self, function: Callable[..., None], *arguments: Any) -> None:
        # If the loop is closed, nobody is left to hear of it.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    # -- on the loop again

    def _settle(
        self,
        future: asyncio.Future[Any],
        sent_at: float | None,
        error: Exception | None,
        value: Any,
    ) -> None:
        """`sent_at` is None if the answer says nothing of how long the session lives."""
        if sent_at is not None and not isinstance(error, _BROKEN):
            self._renew_lease(sent_at)
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def _take_state(self, state: str, session_id: int) -> None:
        if self._is_closed:
            return
        if state == KazooState.CONNECTED:
            self._take_connection(session_id)
        else:
            was_connected, self.is_connected = self.is_connected, False
            self._connected.clear()
            if was_connected:
                self._lost_at = clock.now()
                left_s = 0.0 if self.lease.is_over else self.lease.ends_at - self._lost_at
                logger.warning(
                    "lost the connection to ZooKeeper at %s; reconnecting. Without it, this "
                    "broker counts as dead in %.1f s",
                    self.hosts,
                    max(0.0, left_s),
                )
            if state == KazooState.LOST:
                logger.warning(
                    "ZooKeeper ended session %#x: it had not heard from this broker", self.id
                )
                self.id = 0
        self._on_change()

    def _take_grant(self, timeout_s: float) -> None:
        """The ensemble has given the session another length than was asked for."""
        if timeout_s == self.timeout_s or self._is_closed:
            return
        logger.warning(
            "ZooKeeper granted a session timeout of %g s instead of the %g s in zookeeper.session."
            "timeout.ms; check its minSessionTimeout and maxSessionTimeout",
            timeout_s, self.timeout_s,
        )  # fmt: skip
        self.timeout_s = self.lease.duration = timeout_s
        if self._lease_timer is not None and not self.lease.is_over:
            self._watch_lease()

    def _take_connection(self, session_id: int) -> None:
        if self._lost_at is None:
            logger.info("connected to ZooKeeper at %s, session %#x", self.hosts, session_id)
        else:
            logger.info(
                "connected to ZooKeeper again after %.1f s, in %s session",
                clock.now() - self._lost_at,
                "the same" if session_id == self.id else "a new",
            )
        self._lost_at = None
        self.id = session_id
        self.is_connected = True
        self._connected.set()

    async def _beat(self) -> None:
        """Ask for a sign of life often enough to keep the lease; kazoo's own are not seen here."""
        while True:
            await self._connected.wait()
            # The change of state that goes with an error is logged and acted on elsewhere.
            with suppress(StoreError):
                # Past the window: reads of the whole tree may be waiting there.
                await self._send(partial(self._client.sync_async, "/"), "/", renews=True)
            await asyncio.sleep(self.timeout_s / 6)

    def _renew_lease(self, sent_at: float) -> None:
        if self.lease.renew(sent_at, clock.now()):
            self._on_lease(False)
            self._watch_lease()

    def _watch_lease(self) -> None:
        """Look at the clock when the lease should end; not after it has ended."""
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        delay = self.lease.ends_at - clock.now()
        if delay > 0:
            self._lease_timer = self._loop.call_later(delay, self._watch_lease)
        else:
            self.lease.expire()

    def _lease_ended(self) -> None:
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        if not self._is_closed:
            self._on_lease(True)


def _stat(stat: Any) -> Stat:
    return Stat(stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner, stat.mtime)
