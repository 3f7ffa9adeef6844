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
from collections.abc import Collection, Coroutine, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from moldau.broker import logs
from moldau.broker.api.cluster.metadata import MetadataCache
from moldau.broker.api.entrance import Entrance
from moldau.broker.api.forwarding import Forwarding
from moldau.broker.api.records.fetch_sessions import FetchSessions
from moldau.broker.api.records.produce import ProduceResponse
from moldau.broker.coordination.groups.coordinator import GroupCoordinator
from moldau.broker.dynamic_settings import effective_settings
from moldau.broker.membership.departures import Departures
from moldau.broker.membership.membership import Membership
from moldau.broker.net.connection import Connection
from moldau.broker.net.context import Context
from moldau.broker.net.exit import Exit
from moldau.broker.net.hangups import Hangups
from moldau.broker.net.listener import Listener, in_words
from moldau.broker.net.request_memory import RequestMemory
from moldau.broker.net.socket_output import SocketOutput
from moldau.broker.net.transport_output import TransportOutput
from moldau.broker.net.turns import Turns
from moldau.broker.partitions.flusher import Flusher
from moldau.broker.partitions.partition import Partition
from moldau.broker.partitions.refused_writes import RefusedWrites
from moldau.broker.partitions.repairs import Repairs
from moldau.broker.partitions.replicas import Owner, Replicas
from moldau.broker.replication.replication import Replication
from moldau.broker.settings import BrokerSettings
from moldau.broker.upkeep.stalls import Stalls
from moldau.broker.upkeep.start_progress import StartProgress
from moldau.broker.upkeep.upkeep import Upkeep
from moldau.cluster.controller import Controller
from moldau.cluster.decisions.assignment import NewTopic
from moldau.cluster.errors import ClusterError
from moldau.cluster.peers import peers_in
from moldau.cluster.state.changes import (
    AnyChange,
    DeletionsSettled,
    LeadersRestarted,
)
from moldau.cluster.state.internal_topics import CONSUMER_OFFSETS
from moldau.cluster.state.topics import BrokerInfo, Endpoint, Topic
from moldau.log.errors import StorageError
from moldau.log.log import Log
from moldau.log.store.store import LogStore, Progress
from moldau.settings import INT_MAX
from moldau.topic_partition import TopicPartition
from moldau.wire.primitives import Endpoint as LeaderEndpoint
from moldau.wire.primitives import TopicKey

logger = logging.getLogger("moldau.broker")

# Descriptors that are neither segment files nor connections.
_SPARE_FILES = 32
_SWITCH_S = 0.0005


class Broker:
    """One broker. Everything here happens on one event loop."""

    def __init__(
        self,
        settings: BrokerSettings,
        most_connections: int = INT_MAX,
        on_progress: Progress | None = None,
    ) -> None:
        self.settings = self._started_with = settings
        self._on_progress = on_progress
        # What the process has descriptors for, whatever max.connections says.
        self._most_connections = most_connections
        # A lookup by time or a check of records may decompress 128 MB, so only a few run at once.
        self.lookups = asyncio.Semaphore(2)
        # Whether any topic has had its records looked into; most brokers have none.
        self.checks_records = False
        self.id = settings.node_id
        self.partitions: dict[TopicPartition, Partition] = {}
        self.sessions = FetchSessions(settings.max_incremental_fetch_session_cache_slots)
        self.metadata_cache = MetadataCache()
        self.connections: set[Connection] = set()
        self.request_memory = RequestMemory(
            lambda: self.settings.queued_max_request_bytes, self.connections
        )
        self.replicas = Replicas(self)
        self.refused_writes = RefusedWrites()
        self._dirty: list[Partition] = []
        self._tasks: set[asyncio.Task[None]] = set()
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

    @property
    def host(self) -> str:
        """Where the first listener listens."""
        return self.listeners[0].host

    @property
    def port(self) -> int:
        return self.listeners[0].port

    async def start(self) -> None:
        """Opens the data folder, takes up its partitions, and serves."""
        settings = self.settings
        self.loop = asyncio.get_running_loop()
        self.stalls = Stalls(self.loop)
        self.hangups = Hangups(self.loop.call_later)
        self.turns = Turns(self.loop)
        self._flusher = Flusher(self.loop)
        self.groups = GroupCoordinator(self)
        # Coordinators by the internal topic that each of them owns.
        self.owners: dict[str, Owner] = {CONSUMER_OFFSETS.name: self.groups}
        self.replication = Replication(self)
        self.repairs = Repairs(self)
        self.entrance = Entrance(self)
        self.exit = Exit()
        self.logs = LogStore(
            settings.folder,
            defaults=settings.topic_defaults,
            max_open_files=settings.max_open_files,
            on_progress=self._on_progress,
        )
        self.logs.open()
        self._upkeep = Upkeep(self)
        try:
            await self._start_serving()
        except BaseException:
            await self.stop()
            raise

    async def _start_serving(self) -> None:
        self.membership = Membership(self)
        self.store = self.membership.store
        await self.membership.open()
        self.state = self.store.state
        self.peers = peers_in(self.store, self.id)
        self.controller = Controller(self.store, self.settings, self.id, self.peers)
        self.forwarding = Forwarding(self)
        self.departures = Departures(self.loop, self.state.brokers, self.metadata_cache.clear)
        self.store.subscribe(self.departures.apply)
        self.configure()
        self.replicas.reconcile()
        await self._settle_the_past()
        self.replicas.take_up_all()
        self.store.subscribe(self.replicas.apply)
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
        """Takes the addresses, but lets whoever connects wait until there is a broker to talk to.

        Once it is registered others must find somebody there, or it would count as dead. Before,
        it knows of a cluster that it is no part of, perhaps of one without any broker: who believes
        that has nobody left to ask.
        """
        try:
            for listener in self.listeners:
                await listener.bind(self.loop, partial(Connection, self, listener))
        except OSError:
            self._stop_listening()
            raise

    def _stop_listening(self) -> None:
        for listener in self.listeners:
            listener.close()

    async def _settle_the_past(self) -> None:
        """Makes known what an earlier life of this broker leaves behind."""
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
        """Answers what is under way, writes everything down and marks a clean stop."""
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
        for connection in list(self.connections):
            connection.finish()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._upkeep.stop()
        await self._flusher.close()
        self.stalls.stop()
        self.hangups.tell()
        if hasattr(self, "store"):
            await self.store.close()
        if hasattr(self, "membership") and self.membership.has_entered:
            self.logs.close()
        else:
            self.logs.leave_as_found()

    async def _drain(self) -> None:
        for connection in list(self.connections):
            connection.wind_down()
        deadline = self.loop.time() + self.settings.shutdown_drain_ms / 1000
        while self.loop.time() < deadline:
            if not self.connections:
                return
            await asyncio.sleep(0.01)

    # -- for connections and handlers

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def topic_name(self, key: TopicKey) -> str:
        """The name that a request means by a name or an id; empty for an id that is not known."""
        if isinstance(key, str):
            return key
        topic = self.state.topics_by_id.get(key)
        return "" if topic is None else topic.name

    def commit(self, staged: list[ProduceResponse]) -> None:
        """Writes all staged appends, settles their answers, and wakes who waited for them."""
        failed: dict[Partition, StorageError] = {}
        dirty = self._dirty.copy()
        self._dirty.clear()
        for partition in dirty:
            error = partition.commit()
            if error is not None:
                failed[partition] = error
                logger.error("append to %s-%d failed: %s", partition.topic, partition.index, error)
        loop, refused = self.loop, self.refused_writes
        for response in staged:
            response.settle(loop, failed, refused)
        for partition in dirty:
            partition.announce()

    def describe_brokers(
        self, context: Context, *, with_departed: bool = False
    ) -> list[dict[str, Any]]:
        """The brokers as Metadata shows them to who came in by this connection's listener.

        Who has no such listener is not shown. Without an advertised address a broker names itself
        by the address that the client reached, so that no listener has to be configured for it to
        be found again. It names itself even while it is not registered, as after the loss of a
        session: a client that is told of no broker at all has nobody left to ask.
        """
        listener = context.listener
        reached = (context.local_host, context.local_port)
        host, port = self.listener(listener).advertised or reached
        rack = self.settings.broker_rack or None
        own = BrokerInfo(self.id, host, port, rack, endpoints=(Endpoint(listener, host, port),))
        departed = self.departures.brokers if with_departed else {}
        known = {**departed, **self.state.brokers, self.id: own}
        return [
            {"node_id": id, "host": host, "port": port, "rack": rack}
            for id, host, port, rack in _reached_by(listener, known.values())
        ]

    def reachable(self, listener: str) -> Collection[int]:
        """The registered brokers that have this listener."""
        brokers = self.state.brokers.items()
        return {id for id, info in brokers if info.endpoint(listener) is not None}

    def endpoints(self, listener: str) -> list[LeaderEndpoint]:
        """The addresses of all brokers, for answers that name a leader (KIP-951)."""
        return _reached_by(listener, self.state.brokers.values())

    def listener(self, name: str) -> Listener:
        return next(each for each in self.listeners if each.name == name)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine that ends with the broker."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def register(self, connection: Connection) -> bool:
        """Counts a connection in; False when there are too many."""
        self.connections.add(connection)
        return len(self.connections) <= min(self.settings.max_connections, self._most_connections)

    def unregister(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.replication.follower_sessions.hung_up(connection)
        self.request_memory.forget(connection)

    # -- the cluster's changes

    async def ensure_topic(self, topic: NewTopic) -> ClusterError | None:
        """Creates a topic unless it exists; done when this broker holds its part of it."""
        (outcome,) = await self.controller.ensure_topics([topic])
        await self.replicas.caught_up()
        return outcome if isinstance(outcome, ClusterError) else None

    def new_partition(self, topic: Topic, index: int, log: Log) -> Partition:
        lag_s = self.settings.replica_lag_time_max_ms / 1000
        return Partition(
            topic.name, topic.id, index, log, self.id, self._dirty, self._flusher, lag_s
        )

    def configure(self) -> None:
        """Takes in the settings that were changed while the broker runs."""
        self.settings = effective_settings(self._started_with, self.state.broker_configs)
        self.controller.defaults = self.settings
        for name in self.state.topics:
            self.replicas.configure(name)


def _reached_by(listener: str, brokers: Iterable[BrokerInfo]) -> list[LeaderEndpoint]:
    """Where clients of a listener reach these brokers, as far as they have it."""
    return [
        (info.id, endpoint.host, endpoint.port, info.rack)
        for info in brokers
        if (endpoint := info.endpoint(listener)) is not None
    ]


def raise_file_limit() -> int:
    """Allows this process as many open files as it may have; answers how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def run(settings: BrokerSettings) -> None:
    """Runs a broker in this process until SIGTERM or SIGINT."""
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
    logger.info("stopping: finishing what is under way")
    started = time.monotonic()
    await broker.stop()
    logger.info("stopped cleanly in %.2f s", time.monotonic() - started)
