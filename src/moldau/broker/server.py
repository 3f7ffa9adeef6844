"""The composition root: builds the parts of a broker, hands them to each other, runs them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

from moldau.broker.api.access.parts import AccessParts
from moldau.broker.api.cluster.envelope import EnvelopeParts
from moldau.broker.api.cluster.metadata_cache import MetadataCache
from moldau.broker.api.cluster.parts import ClusterParts
from moldau.broker.api.entrance import Entrance
from moldau.broker.api.forwarding import Forwarding
from moldau.broker.api.groups.parts import GroupParts
from moldau.broker.api.records.fetch_sessions import FetchSessions
from moldau.broker.api.records.parts import RecordParts
from moldau.broker.api.sharing.parts import SharingParts
from moldau.broker.api.topics.parts import TopicParts
from moldau.broker.api.transactions.parts import TransactionParts
from moldau.broker.coordination.groups.coordinator import GroupCoordinator
from moldau.broker.coordination.node_host import NodeHost
from moldau.broker.coordination.on_demand import OnDemand
from moldau.broker.coordination.transactions.verification import Verification
from moldau.broker.membership.departures import Departures
from moldau.broker.membership.known_brokers import KnownBrokers
from moldau.broker.membership.membership import Membership, new_store
from moldau.broker.net.connection import Connection
from moldau.broker.net.connections import Connections
from moldau.broker.net.listener import Listener
from moldau.broker.net.listeners import new_listeners
from moldau.broker.net.throttling import Throttling
from moldau.broker.node import Node
from moldau.broker.partitions.partitions import Partitions
from moldau.broker.partitions.repairs import Repairs
from moldau.broker.partitions.replicas import Replicas
from moldau.broker.replication.replication import Replication
from moldau.broker.security.cluster_credentials import ClusterCredentials
from moldau.broker.security.guard import Guard
from moldau.broker.security.origins import Origins
from moldau.broker.security.quotas import Quotas
from moldau.broker.settings.broker import BrokerSettings
from moldau.broker.settings.dynamic import effective_settings, listener_texts
from moldau.broker.upkeep.audit_topic import AuditTopic
from moldau.broker.upkeep.stalls import Stalls
from moldau.broker.upkeep.upkeep import Upkeep
from moldau.cluster.controller import Controller
from moldau.cluster.peers import peers_in
from moldau.cluster.state.changes import (
    AnyChange,
    DeletionsSettled,
    LeadersRestarted,
)
from moldau.cluster.state.internal_topics import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
)
from moldau.log.store.store import LogStore, Progress
from moldau.settings import INT_MAX

if TYPE_CHECKING:
    from moldau.broker.coordination.transactions.coordinator import TransactionCoordinator
    from moldau.broker.sharing.shares import Shares

logger = logging.getLogger("moldau.broker")


class Companion(Protocol):
    """Something that lives beside a broker, in its loop: its HTTP side."""

    @property
    def address(self) -> str:
        """HOST:PORT, where it is reached."""

    @property
    def url(self) -> str:
        """The same, for a client."""

    async def start(self) -> None:
        """Begin: the data folder is this broker's, but nothing is served yet."""

    async def served(self) -> None:
        """Take note that the broker serves."""

    async def stopping(self) -> None:
        """Take note that the broker is about to stop."""

    async def drained(self) -> None:
        """Take note that no request of a client is under way any more."""

    async def stop(self) -> None:
        """End: the broker has stopped, and may not even have started."""


CompanionOf = Callable[["Broker"], Companion]


class Broker:
    """One broker on the running loop, where everything happens. It is complete once it is built.

    `start` opens the parts in their order and runs them until `stop`.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        most_connections: int = INT_MAX,
        on_progress: Progress | None = None,
        companion: CompanionOf | None = None,
    ) -> None:
        self.listeners = new_listeners(settings)
        self.logs = LogStore(
            settings.folder,
            defaults=settings.topic_defaults,
            max_open_files=settings.max_open_files,
            on_progress=on_progress,
        )
        self.store = new_store(settings, self.listeners)
        self.node = node = Node(settings, self.logs, self.store)
        self.id, self.loop, self.state = node.id, node.loop, node.state
        self.stalls = Stalls(node.loop)
        self.peers = peers_in(self.store, node.id, settings.inter_broker_listener)
        if any(each.is_inter_broker and each.door is not None for each in self.listeners):
            from moldau.broker.net.doors.inter_broker import inter_broker_security

            self.peers.security = inter_broker_security(settings, settings.given)
        self.controller = Controller(self.store, settings, node.id, self.peers)
        self.forwarding = Forwarding(node, self.controller, self.peers)

        self.partitions = partitions = Partitions(node)
        self.replicas = Replicas(partitions, self.configure)
        self.replication = Replication(partitions, self.peers)
        self.repairs = Repairs(partitions, self.replicas, self.replication.partition_changed)
        self._host = host = NodeHost(node, self.controller, self.replicas)
        self.groups = GroupCoordinator(host)
        self._transactions = OnDemand(self._new_transactions, lambda built: built)
        self._shares = OnDemand(self._new_shares, lambda built: built.states)
        partitions.verifier = Verification(host, node.id, self.peers, self._transactions)
        partitions.marker_writers[CONSUMER_OFFSETS.name] = self.groups
        self.replicas.on_failure = self.repairs.on_failure
        self.replicas.owners[CONSUMER_OFFSETS.name] = self.groups
        self.replicas.owners[TRANSACTION_STATE.name] = self._transactions
        self.replicas.owners[SHARE_GROUP_STATE.name] = self._shares
        self.replicas.watchers += (self.replication, self.repairs)

        self.guard = Guard(node)
        self.quotas = Quotas.of(self.state.access, settings)
        self.credentials = ClusterCredentials(self.state.access, lambda: self.state.version)
        for listener in self.listeners:
            if listener.door is not None:
                listener.door.credentials = self.credentials
                listener.door.secret = self.salts
                listener.door.audit = self.guard.audit
        self.metadata_cache = MetadataCache()
        self.origins = Origins(lambda: self.state.access.secret)
        self.departures = Departures(node.loop, self.state.brokers, self.metadata_cache.clear)
        self.brokers = KnownBrokers(node, self.departures, self.listeners, self.replicas)
        self.entrance = Entrance(node, self.forwarding, self._api_parts())
        self.entrance.authorizer = self.guard.authorizer
        self.connections: Connections[Connection] = Connections(
            node, self.entrance.handle, self.entrance.admit, partitions.commit,
            self.brokers.endpoints, self.stalls, most_connections,
        )  # fmt: skip
        self.connections.quotas = self.quotas
        self.connections.audit = self.guard.audit
        self.connections.brokers_come_apart = len(self.listeners) > 1
        self.throttling = Throttling(self.quotas, self.connections)
        self.store.subscribe(self.throttling.apply)
        self.connections.on_close.append(self.replication.follower_sessions.hung_up)
        self.membership = Membership(
            partitions, self.replicas, self.controller, self.peers, self.connections,
            self.listeners,
        )  # fmt: skip
        self._audit_topic: AuditTopic | None = None
        if name := settings.audit_topic:
            self._audit_topic = AuditTopic(name, node, partitions, self.controller, self.peers)
            self.guard.audit.publish = self._audit_topic.publish
        self._upkeep = Upkeep(partitions, self.replicas, self.connections)
        self.phase: Literal["starting", "serving", "stopping"] = "starting"
        self.companion = None if companion is None else companion(self)

    def _api_parts(self) -> list[object]:
        """Return what the APIs of each room use."""
        node, partitions, replicas = self.node, self.partitions, self.replicas
        controller, brokers, cache = self.controller, self.brokers, self.metadata_cache
        groups, shares, transactions = self.groups, self._shares, self._transactions
        sessions = FetchSessions(node.settings.max_incremental_fetch_session_cache_slots)
        followers = self.replication.follower_sessions
        return [
            RecordParts(node, partitions, sessions, followers),
            GroupParts(node, partitions, groups, transactions, brokers, shares),
            TransactionParts(node, partitions, transactions, groups, controller.producer_ids),
            TopicParts(
                node, replicas, controller, brokers, self.forwarding, self.quotas, groups, shares
            ),
            SharingParts(node, partitions, shares, brokers, groups),
            AccessParts(node, controller),
            EnvelopeParts(node, controller, lambda request: self.entrance.call(request)),
            ClusterParts(
                node, partitions, replicas, controller, brokers, cache, self.quotas, self.origins
            ),
        ]

    @property
    def transactions(self) -> TransactionCoordinator:
        return self._transactions()

    def _new_transactions(self) -> TransactionCoordinator:
        from moldau.broker.coordination.transactions.coordinator import TransactionCoordinator
        from moldau.broker.coordination.transactions.markers import Markers, write_markers

        host = self._host
        markers = Markers(host, self.id, self.peers, partial(write_markers, self.partitions))
        made = TransactionCoordinator(host, self.controller.producer_ids, markers)
        made.start()
        return made

    @property
    def shares(self) -> Shares:
        return self._shares()

    @property
    def shares_in_use(self) -> Shares | None:
        """Return the share groups if anybody has needed them yet."""
        return self._shares.built

    def _new_shares(self) -> Shares:
        from moldau.broker.sharing.shares import Shares

        made = Shares(self._host, self.id, self.partitions, self.peers)
        self.replicas.watchers.append(made)
        self.connections.on_close.append(made.sessions.hung_up)
        made.states.start()
        return made

    @property
    def settings(self) -> BrokerSettings:
        """As they are now: some may be changed while the broker runs."""
        return self.node.settings

    @property
    def host(self) -> str:
        """Where the first listener listens."""
        return self.listeners[0].host

    @property
    def port(self) -> int:
        return self.listeners[0].port

    def salts(self) -> bytes:
        """Return what users that do not exist get their salts from, the same at every broker."""
        return self.state.cluster_id.encode() + self.state.access.secret

    def listener(self, name: str) -> Listener:
        return next(each for each in self.listeners if each.name == name)

    async def start(self) -> None:
        """Open the data folder and its partitions, and serve."""
        self.logs.open()
        self._upkeep.open()
        try:
            if self.companion is not None:
                await self.companion.start()
            await self._start_serving()
            self.phase = "serving"
            if self.companion is not None:
                await self.companion.served()
        except BaseException:
            await self.stop()
            raise

    async def _start_serving(self) -> None:
        await self.membership.open()
        self.departures.apply(())
        self.store.subscribe(self.departures.apply)
        self.configure()
        self.replicas.reconcile()
        await self._settle_the_past()
        self.replicas.take_up_all()
        self.store.subscribe(self.replicas.apply)
        await self.replicas.caught_up()
        await self._listen()
        await self.membership.register()
        self._upkeep.start()
        self.groups.start()
        self.replication.start()
        self.controller.start()
        self.stalls.start()
        for listener in self.listeners:
            if listener.door is not None:
                await listener.door.prepare()
                for work in listener.door.watches():
                    self.node.spawn(work)
            await listener.serve()

    async def _listen(self) -> None:
        """Bind the addresses, but let clients wait until the broker is ready.

        Once it is registered others must find somebody there, or it would count as dead. Before,
        it knows of a cluster that it is no part of, perhaps of one without any broker: who believes
        that has nobody left to ask.
        """
        try:
            for listener in self.listeners:
                connect = partial(Connection, self.connections, listener)
                await listener.bind(self.loop, connect)
                if listener.door is not None:
                    listener.acceptor = listener.door.acceptor(
                        self.connections, connect, listener.is_inter_broker
                    )
        except OSError:
            self._stop_listening()
            raise

    def _stop_listening(self) -> None:
        for listener in self.listeners:
            listener.close()

    async def _settle_the_past(self) -> None:
        """Report what an earlier process of this broker left behind."""
        changes: list[AnyChange] = []
        if not self.membership.is_clustered:
            if self.state.deleted:
                changes.append(DeletionsSettled())
            if self.logs.logs and not self.logs.was_clean:
                changes.append(LeadersRestarted(self.id))
        if changes:
            await self.store.commit(changes)
        await self.membership.enter()

    async def stop(self) -> None:
        """Answer open requests, save everything and mark a clean stop."""
        beside = self.companion if self.phase == "serving" else None
        if beside is not None:
            await beside.stopping()
        self.phase = "stopping"
        if self.listeners[0].is_bound:
            if self._audit_topic is not None:
                # While its partition can be written to. What follows is in the log only.
                self.guard.stop()
                await self._audit_topic.close()
                self.guard.audit.publish = None
            await self.membership.leave()
            self._stop_listening()
            self.groups.stop()
            for coordinator in (self._transactions.built, self._shares.built):
                if coordinator is not None:
                    coordinator.stop()
            await self.controller.stop()
            await self._drain()
            if beside is not None:
                await beside.drained()
            await self.repairs.stop()
            self.departures.close()
            await self.replication.stop()
            self.peers.close()
        for connection in self.connections:
            connection.finish()
        await self.node.end_tasks()
        await self._upkeep.stop()
        await self.partitions.close()
        self.stalls.stop()
        self.connections.hangups.tell()
        self.guard.stop()
        await self.store.close()
        if self.membership.has_entered:
            self.logs.close()
        else:
            self.logs.leave_as_found()
        if self.companion is not None:
            await self.companion.stop()

    async def _drain(self) -> None:
        for connection in self.connections:
            connection.wind_down()
        deadline = self.loop.time() + self.settings.shutdown_drain_ms / 1000
        while self.loop.time() < deadline:
            if not self.connections:
                return
            await asyncio.sleep(0.01)

    def configure(self) -> None:
        """Apply settings that were changed while the broker runs."""
        node = self.node
        node.settings = effective_settings(node.started_with, self.state.broker_configs)
        self.controller.defaults = node.settings
        given = listener_texts(node.settings, self.state.broker_configs)
        for listener in self.listeners:
            if listener.door is not None:
                listener.door.configure(given)
                if listener.is_inter_broker and self.peers.security is not None:
                    from moldau.broker.net.doors.inter_broker import inter_broker_security

                    self.peers.security = inter_broker_security(node.settings, given)
        for name in self.state.topics:
            self.replicas.configure(name)
