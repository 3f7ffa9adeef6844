"""This broker's place in its cluster: how it enters, what it does when cut off, how it leaves.

    open      the state is read, nothing is served
    enter     whatever an earlier life of this broker led, or lost, is given up, by a commit of its
              own
    register  the broker is one of the cluster's; the controller may elect it from now on
    fenced    out of touch for a session timeout by its own clock: it leads nothing
    rejoin    a session was lost: enter and register again, as after a start

Leadership exists only by an election after the registration. So it does not matter what an earlier
life had promised, or what became of its disk: where something was lost (see `losses`) the broker is
neither in sync nor eligible. A folder with another id than the one last registered has lost
everything.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from moldau.broker.membership.identity import Identity
from moldau.broker.membership.losses import Losses
from moldau.broker.net.connections import Connections
from moldau.broker.partitions.partitions import Partitions
from moldau.broker.partitions.replicas import Replicas
from moldau.broker.settings.broker import BrokerSettings
from moldau.cluster.controller import Controller
from moldau.cluster.decisions.elections import departed
from moldau.cluster.decisions.features import GROUP_VERSION, SHARE_VERSION, TRANSACTION_VERSION
from moldau.cluster.embedded import EmbeddedStore
from moldau.cluster.liveness import dead_among
from moldau.cluster.state.topics import BrokerInfo, Endpoint
from moldau.cluster.store import Conflict, MetadataStore
from moldau.log.store.last_life import LastLife
from moldau.peer.peers import Peers

if TYPE_CHECKING:
    from moldau.broker.net.listener import Listener
    from moldau.cluster.zookeeper.sessions.client import ZooKeeperSecurity

logger = logging.getLogger("moldau.broker")

_CONFLICTS = 100
_WILDCARDS = frozenset(("", "0.0.0.0", "::"))


class Membership:
    """A broker's way into its cluster and out again. Event loop only."""

    def __init__(
        self,
        partitions: Partitions,
        replicas: Replicas,
        controller: Controller,
        peers: Peers,
        connections: Connections[Any],
        listeners: Sequence[Listener],
    ) -> None:
        self._partitions = partitions
        self._node = node = partitions.node
        self._replicas = replicas
        self._controller = controller
        self._peers = peers
        self._connections = connections
        self._listeners = listeners
        self._is_leaving = False
        # Whether the traces of an earlier life have been processed.
        self.has_entered = False
        self.is_clustered = node.is_clustered
        self._identity = Identity(node.logs, node.id)
        self.store = node.store
        # Where this broker serves HTTP, if it does, and how.
        self._http: tuple[str, int] | None = None
        self._http_scheme = "http"

    def serves_http_at(self, host: str, port: int, *, has_tls: bool = False) -> None:
        """Let other brokers know the address, with the next registration."""
        self._http = (host, port)
        self._http_scheme = "https" if has_tls else "http"

    async def open(self) -> None:
        """Read the cluster's state and make sure that this data folder belongs to it."""
        if self.is_clustered:
            self._identity.check_clustered()
        else:
            self._identity.check_alone()
        await self.store.open()
        if self.is_clustered:
            self._identity.claim(self.store.state.cluster_id)
        self.store.on_fence(self._fence)
        self.store.on_new_session(self._rejoin)
        self.store.on_registering(self._node.logs.life.expect_registration)
        self.store.on_registration(self._node.logs.life.registered)

    async def enter(self) -> None:
        """Give up what an earlier process led and what was lost; does nothing without a cluster.

        Only then are the signs of that life replaced by those of this one. So whenever a start
        fails before, the next one finds the same.
        """
        node = self._node
        if not self.is_clustered:
            node.logs.life.last = LastLife()
            self.has_entered = True
            return
        losses = self._losses()
        await self.store.arrive(self._identity.folder_id)
        state = self.store.state
        dead = await dead_among(self._peers, state.brokers.keys() - {node.id})
        for _ in range(_CONFLICTS):
            alive = state.brokers.keys() - dead
            changes = departed(state, node.id, losses, alive, self._controller.minimum_isr)
            try:
                if changes:
                    await self.store.commit(changes, as_controller=False)
            except Conflict:
                continue
            break
        else:
            raise Conflict("this broker could not join: the cluster's state keeps changing")
        if not self.has_entered:
            losses.tell()
            node.logs.life.begin(self.store.registration, node.logs.logs.values())
            self.has_entered = True

    def _losses(self) -> Losses:
        logs = self._node.logs
        if self.has_entered:
            return Losses(logs, is_same_life=True)
        known = self.store.folder_id_of(self._node.id)
        is_wiped = known is not None and known != self._identity.folder_id
        return Losses(logs, self.store.registration, is_wiped=is_wiped)

    async def register(self) -> None:
        """Register as a broker of the cluster, at the address where it now listens."""
        settings = self._node.settings
        own = own_info(settings, self._listeners, self._identity.folder_id)
        if self._http is not None:
            host, port = _reachable(settings, self._http)
            name = f"[{host}]" if ":" in host else host
            http = f"{self._http_scheme}://{name}:{port}"
            own = msgspec.structs.replace(own, http=http)
        info = await self.store.register(own)
        if self.is_clustered:
            logger.info(
                "registered as broker %d at %s:%d in cluster %s, epoch %d",
                info.id, info.host, info.port, self.store.state.cluster_id, info.epoch,
            )  # fmt: skip

    def _fence(self, fenced: bool) -> None:
        if fenced:
            logger.error("out of the cluster: this broker leads nothing until it is back")
            for connection in self._connections:
                connection.fenced()
        else:
            logger.warning("in the cluster again: this broker may lead")
        self._replicas.fence(fenced)

    async def _rejoin(self) -> None:
        if self._is_leaving:
            # Until the store is closed: a broker that stops does not come back.
            await asyncio.Event().wait()
        await self.enter()
        self._replicas.reconcile()
        await self.register()

    async def leave(self) -> None:
        """Hand over what this broker leads, so that nobody has to notice that it is gone."""
        settings = self._node.settings
        self._is_leaving = True
        if not self.is_clustered or not settings.controlled_shutdown_enable:
            return
        try:
            async with asyncio.timeout(settings.controlled_shutdown_timeout_ms / 1000):
                await self._controller.hand_over()
        except TimeoutError:
            logger.warning(
                "stopping while still leading %d partitions: no other replica took "
                "over within %d ms",
                sum(partition.is_leader for partition in self._partitions.values()),
                settings.controlled_shutdown_timeout_ms,
            )


def own_info(
    settings: BrokerSettings, listeners: Iterable[Listener], folder_id: str = ""
) -> BrokerInfo:
    """Return this broker as it registers, at the addresses where it listens by now."""
    endpoints = tuple(_endpoint(settings, each) for each in listeners)
    (inter_broker,) = (
        each for each in endpoints if each.listener == settings.inter_broker_listener
    )
    return BrokerInfo(
        settings.node_id,
        inter_broker.host,
        inter_broker.port,
        settings.broker_rack or None,
        folder_id=folder_id,
        keeps_elr=True,
        transaction_version=TRANSACTION_VERSION,
        group_version=GROUP_VERSION,
        share_version=SHARE_VERSION,
        endpoints=endpoints,
    )


def _endpoint(settings: BrokerSettings, listener: Listener) -> Endpoint:
    address = listener.advertised or (listener.host, listener.port)
    return Endpoint(listener.name, *_reachable(settings, address), listener.protocol)


def _reachable(settings: BrokerSettings, address: tuple[str, int]) -> tuple[str, int]:
    """Return an address that others can connect to."""
    host, port = address
    if settings.zookeeper_connect and host in _WILDCARDS:
        host = _address_towards(settings.zookeeper_connect)
    return host, port


def new_store(settings: BrokerSettings, listeners: Iterable[Listener]) -> MetadataStore:
    """Return the store of what the cluster agrees on: ZooKeeper, or a file of a broker alone."""
    if not settings.zookeeper_connect:
        return EmbeddedStore(settings.folder, own_info(settings, listeners))
    # A broker alone has no use for it, and starts sooner without.
    from moldau.cluster.zookeeper import ZooKeeperStore

    return ZooKeeperStore(
        settings.zookeeper_connect,
        settings.node_id,
        session_timeout_ms=settings.zookeeper_session_timeout_ms,
        connection_timeout_ms=settings.zookeeper_connection_timeout_ms,
        security=_zookeeper_security(settings),
    )


def _zookeeper_security(settings: BrokerSettings) -> ZooKeeperSecurity:
    from moldau.cluster.zookeeper.sessions.client import ZooKeeperSecurity

    tls = None
    if settings.zookeeper_ssl_client_enable:
        from moldau.security.tls_settings import TlsSettings

        tls = TlsSettings(
            ssl_keystore_type=settings.zookeeper_ssl_keystore_type,
            ssl_keystore_location=settings.zookeeper_ssl_keystore_location,
            ssl_keystore_password=settings.zookeeper_ssl_keystore_password,
            ssl_truststore_type=settings.zookeeper_ssl_truststore_type,
            ssl_truststore_location=settings.zookeeper_ssl_truststore_location,
            ssl_truststore_password=settings.zookeeper_ssl_truststore_password,
            ssl_endpoint_identification_algorithm=(
                settings.zookeeper_ssl_endpoint_identification_algorithm
            ),
        )
    return ZooKeeperSecurity(
        settings.zookeeper_digest, settings.zookeeper_set_acl, tls, settings.zookeeper_login
    )


def _address_towards(connect: str) -> str:
    """Return this machine's address as seen on the way to ZooKeeper; other brokers are likely
    there."""
    host, _, port = connect.partition("/")[0].split(",")[0].rpartition(":")
    if not host:
        host, port = port, "2181"
    family, _, _, _, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])
