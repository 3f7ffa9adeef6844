"""The composition root: builds the parts of a broker, hands them to each other, runs them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import resource
import signal
import sys
import time
from dataclasses import replace
from functools import partial

from moldau.broker import logs
from moldau.broker.api.cluster.envelope import EnvelopeParts
from moldau.broker.api.cluster.metadata_cache import MetadataCache
from moldau.broker.api.cluster.parts import ClusterParts
from moldau.broker.api.entrance import Entrance
from moldau.broker.api.forwarding import Forwarding
from moldau.broker.api.groups.parts import GroupParts
from moldau.broker.api.records.fetch_sessions import FetchSessions
from moldau.broker.api.records.parts import RecordParts
from moldau.broker.api.topics.parts import TopicParts
from moldau.broker.coordination.groups.coordinator import GroupCoordinator
from moldau.broker.coordination.node_host import NodeHost
from moldau.broker.dynamic_settings import effective_settings
from moldau.broker.membership.departures import Departures
from moldau.broker.membership.known_brokers import KnownBrokers
from moldau.broker.membership.membership import Membership, new_store
from moldau.broker.net.connection import Connection
from moldau.broker.net.connections import Connections
from moldau.broker.net.listener import Listener, in_words
from moldau.broker.net.socket_output import SocketOutput
from moldau.broker.net.transport_output import TransportOutput
from moldau.broker.node import Node
from moldau.broker.partitions.partitions import Partitions
from moldau.broker.partitions.repairs import Repairs
from moldau.broker.partitions.replicas import Replicas
from moldau.broker.replication.replication import Replication
from moldau.broker.settings import BrokerSettings
from moldau.broker.upkeep.stalls import Stalls
from moldau.broker.upkeep.start_progress import StartProgress
from moldau.broker.upkeep.upkeep import Upkeep
from moldau.cluster.controller import Controller
from moldau.cluster.peers import peers_in
from moldau.cluster.state.changes import (
    AnyChange,
    DeletionsSettled,
    LeadersRestarted,
)
from moldau.cluster.state.internal_topics import CONSUMER_OFFSETS
from moldau.log.store.store import LogStore, Progress
from moldau.settings import INT_MAX

logger = logging.getLogger("moldau.broker")

# Descriptors that are neither segment files nor connections.
_SPARE_FILES = 32
_SWITCH_S = 0.0005


class Broker:
    """One broker on the running loop, where everything happens. It is complete once it is built.

    `start` opens the parts in their order and runs them until `stop`.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        most_connections: int = INT_MAX,
        on_progress: Progress | None = None,
    ) -> None:
        output = SocketOutput if settings.socket_sendfile_enable else TransportOutput
        self.listeners = [
            Listener(
                each.name,
                each.host,
                each.port,
                each.advertised,
                output,
                is_inter_broker=each.name == settings.inter_broker_listener,
            )
            for each in settings.all_listeners
        ]
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
        self.peers = peers_in(self.store, node.id)
        self.controller = Controller(self.store, settings, node.id, self.peers)
        self.forwarding = Forwarding(node, self.controller, self.peers)

        self.partitions = partitions = Partitions(node)
        self.replicas = Replicas(partitions, self.configure)
        self.replication = Replication(partitions, self.peers)
        self.repairs = Repairs(partitions, self.replicas, self.replication.partition_changed)
        self.groups = GroupCoordinator(NodeHost(node, self.controller, self.replicas))
        self.replicas.watchers += (self.replication, self.repairs)
        self.replicas.on_failure = self.repairs.on_failure
        self.replicas.owners[CONSUMER_OFFSETS.name] = self.groups

        self.metadata_cache = MetadataCache()
        self.departures = Departures(node.loop, self.state.brokers, self.metadata_cache.clear)
        self.brokers = KnownBrokers(node, self.departures, self.listeners)
        self.entrance = Entrance(node, self.forwarding, partitions.topic_name, self._api_parts())
        self.connections: Connections[Connection] = Connections(
            node, self.entrance.handle, partitions.commit, self.brokers.endpoints, self.stalls,
            most_connections,
        )  # fmt: skip
        self.connections.on_close.append(self.replication.follower_sessions.hung_up)
        self.membership = Membership(
            partitions, self.replicas, self.controller, self.peers, self.connections,
            self.listeners,
        )  # fmt: skip
        self._upkeep = Upkeep(partitions, self.replicas, self.connections)

    def _api_parts(self) -> list[object]:
        """What the APIs of each room use."""
        node, partitions, replicas = self.node, self.partitions, self.replicas
        controller, brokers = self.controller, self.brokers
        sessions = FetchSessions(node.settings.max_incremental_fetch_session_cache_slots)
        followers = self.replication.follower_sessions
        return [
            RecordParts(node, partitions, sessions, followers, controller.producer_ids),
            GroupParts(node, partitions, self.groups, brokers),
            TopicParts(node, replicas, controller, brokers, self.forwarding),
            EnvelopeParts(node, controller, lambda request: self.entrance.call(request)),
            ClusterParts(node, partitions, replicas, controller, brokers, self.metadata_cache),
        ]

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

    def listener(self, name: str) -> Listener:
        return next(each for each in self.listeners if each.name == name)

    async def start(self) -> None:
        """Open the data folder and its partitions, and serve."""
        self.logs.open()
        self._upkeep.open()
        try:
            await self._start_serving()
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
            await listener.serve()

    async def _listen(self) -> None:
        """Bind the addresses, but let clients wait until the broker is ready.

        Once it is registered others must find somebody there, or it would count as dead. Before,
        it knows of a cluster that it is no part of, perhaps of one without any broker: who believes
        that has nobody left to ask.
        """
        try:
            for listener in self.listeners:
                await listener.bind(self.loop, partial(Connection, self.connections, listener))
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
        if self.listeners[0].is_bound:
            await self.membership.leave()
            self._stop_listening()
            self.groups.stop()
            await self.controller.stop()
            await self._drain()
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
        await self.store.close()
        if self.membership.has_entered:
            self.logs.close()
        else:
            self.logs.leave_as_found()

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
        for name in self.state.topics:
            self.replicas.configure(name)


def raise_file_limit() -> int:
    """Raise this process's limit of open files as far as allowed; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def run(settings: BrokerSettings) -> None:
    """Run a broker in this process until SIGTERM or SIGINT."""
    import uvloop

    logs.configure(settings.log_format, settings.log_level)
    # The loop gives the interpreter up at every call to the system, and waits this long to get it
    # back from a thread that is busy: with Python's 5 ms a request would take 10 ms and more.
    sys.setswitchinterval(_SWITCH_S)
    limit = raise_file_limit()
    # Sockets need descriptors too, two each, so segment files get at most half.
    files = min(settings.max_open_files, max(16, limit // 2))
    most_connections = max(1, (limit - files - _SPARE_FILES) // 2)
    uvloop.run(_serve(replace(settings, max_open_files=files), most_connections))


async def _serve(settings: BrokerSettings, most_connections: int) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    with StartProgress() as progress:
        broker = Broker(settings, most_connections, progress)
        await broker.start()
    # Nothing that exists now will ever be garbage: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    # The contract of the command line: one plain line when the broker serves.
    print(f"moldau broker {broker.id} ready on {in_words(broker.listeners)}", flush=True)  # noqa: T201
    await stopping.wait()
    logger.info("stopping: finishing open requests")
    started = time.monotonic()
    await broker.stop()
    logger.info("stopped cleanly in %.2f s", time.monotonic() - started)
