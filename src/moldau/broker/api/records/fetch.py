"""Fetch: records as slices of segment files, at once or when enough have come.

A fetch that finds fewer than `min_bytes` is parked. It is read again when a high watermark of its
partitions moves, and answered when it has enough or its time is up. Followers are given more than
consumers, in another way: see `moldau.broker.replication.leader.follower_session`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from moldau.broker.api.records.fetch_sessions import FetchSession
from moldau.broker.api.records.parts import RecordParts, reads
from moldau.broker.api.rights import Right, on_topics
from moldau.broker.errors import code_and_message
from moldau.broker.metrics import Metrics
from moldau.broker.net.connection import Connection
from moldau.broker.net.request import Request
from moldau.broker.net.responses import LongPoll, Response
from moldau.broker.partitions.partition import Partition
from moldau.broker.partitions.refusals import named, not_here
from moldau.broker.replication.divergence import diverging, fenced
from moldau.broker.replication.leader.follower_fetch import FollowerFetchResponse
from moldau.broker.replication.leader.replica_selector import is_rack_aware, select_replica
from moldau.broker.security.authorizer import Operation, Resource
from moldau.cluster.state.topics import NO_LEADER
from moldau.log.errors import LogError
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.fetch.codec import FetchCodec, fetch_codec
from moldau.wire.fetch.request import FetchPartition, FetchRequest
from moldau.wire.fetch.response import FetchedPartition
from moldau.wire.fetch.session import FIRST_EPOCH, SessionError
from moldau.wire.primitives import TopicKey

logger = logging.getLogger("moldau.broker")

READ_COMMITTED = 1
_READ = Operation.READ
# The memory of one partition of a session in an answer that waits to be sent.
_HELD_PER_PARTITION = 256

Wanted = Sequence[tuple[TopicKey, Sequence[FetchPartition]]]
Fetched = list[tuple[TopicKey, list[FetchedPartition]]]


class FetchResponse(LongPoll):
    """The answer to one Fetch request, parked for as long as it lacks bytes and has time."""

    __slots__ = (
        "_codec", "_parts", "_session", "_timer", "_topics", "_wanted", "connection", "wanted",
    )  # fmt: skip

    def __init__(
        self,
        parts: RecordParts,
        connection: Connection,
        request: Request,
        codec: FetchCodec,
        wanted: FetchRequest,
        session: FetchSession | None,
    ) -> None:
        self.connection = connection
        self.request = request
        self.parts = None
        self.wanted = wanted
        self._parts = parts
        self._codec = codec
        self._session = session
        self._wanted: Wanted = wanted.topics if session is None else session.wanted()
        self._topics: Fetched = []
        self._timer: asyncio.TimerHandle | None = None

    def park(self) -> None:
        """Wait for more records, until the deadline."""
        self._timer = self._parts.node.loop.call_later(
            self.wanted.max_wait_ms / 1000, self.complete
        )
        for partition in self._partitions():
            partition.wait(self)

    def notify(self) -> None:
        """A high watermark moved, or a partition changed hands."""
        try:
            is_enough = self.read()
        except Exception:
            self._give_up()
            return
        if is_enough:
            self.abandon()
            self.connection.respond(self, self.connection.exit.leave(self))

    def complete(self) -> None:
        """Answer with what is there: time is up."""
        self.abandon()
        try:
            self.read()
        except Exception:
            self._give_up()
            return
        self.connection.respond(self, self.connection.exit.leave(self))

    def _give_up(self) -> None:
        """A read that fails costs its own client the connection, not the writer that woke it."""
        logger.exception("a parked fetch from %s failed", self.connection.context.client)
        self.abandon()
        self.connection.finish()

    def abandon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            for partition in self._partitions():
                partition.unwait(self)

    def _partitions(self) -> list[Partition]:
        found = []
        for key, partitions in self._wanted:
            topic = self._parts.partitions.topic_name(key)
            for wanted in partitions:
                partition = self._parts.partitions.get((topic, wanted.partition))
                if partition is not None:
                    found.append(partition)
        return found

    def read(self) -> bool:
        """Read the answer as of now; return whether it is enough."""
        request, parts = self.wanted, self._parts
        room = min(request.max_bytes, parts.node.settings.fetch_max_bytes)
        least = min(request.min_bytes, room)
        # Only a client that names its rack is sent to, and served by, a replica nearby.
        is_near = bool(request.rack_id) and is_rack_aware(
            parts.node.settings.replica_selector_class
        )
        listener = self.connection.context.listener if is_near else ""
        total = 0
        urgent = may_read_any = False
        topics: Fetched = []
        by_id = parts.node.state.topics_by_id
        question = self.request
        authorizer = question.authorizer
        for key, partitions in self._wanted:
            if isinstance(key, str):
                topic = key
            else:
                known = by_id.get(key)
                topic = "" if known is None else known.name
            # Asked each time: rights may go while a fetch waits, and a session outlives them.
            may_read = authorizer is None or not topic or question.may_on_topic(_READ, topic)
            answers = []
            for wanted in partitions:
                if not may_read:
                    answers.append(_denied(wanted.partition))
                    continue
                may_read_any = True
                partition = parts.partitions.get((topic, wanted.partition))
                if partition is None or not (partition.is_leader or is_near):
                    answer = _refuse(parts, key, wanted, partition)
                elif is_near and (sent_on := _send_on(parts, partition, wanted, request, listener)):
                    answer = sent_on
                else:
                    answer = _read_partition(partition, wanted, request, room - total, total == 0)
                answers.append(answer)
                if answer.records is not None:
                    total += answer.records.size
                elif answer.error or answer.diverging is not None or answer.preferred_replica >= 0:
                    urgent = True
            if answers:
                topics.append((key, answers))
        self._topics = topics
        return urgent or total >= least or not may_read_any

    @property
    def volume(self) -> int:
        return sum(
            each.records.size
            for _, found in self._topics
            for each in found
            if each.records is not None
        )

    def withhold(self) -> None:
        # KIP-219: an empty answer that says how long to wait; the session stays as it is.
        self._topics = []
        if self.wanted.session_epoch == FIRST_EPOCH:
            # A client expects all partitions in the first answer of a session, or none at all.
            self._session = None

    def encode(self, throttle_ms: int) -> list[Any]:
        endpoints = None
        topics = self._topics
        for _, partitions in topics:
            for answer in partitions:
                if answer.leader is not None:
                    endpoints = self.connection.endpoints()
        session = self._session
        if session is not None:
            topics = session.changes(topics)
        session_id = 0 if session is None else session.id
        return self._codec.encode_response(
            self.request.correlation_id, 0, session_id, topics, endpoints, throttle_ms
        )

    def errors(self) -> Iterator[int]:
        return (each.error for _, found in self._topics for each in found if each.error)

    def tally(self, metrics: Metrics) -> None:
        for key, found in self._topics:
            topic = metrics.topic(key)
            metrics.fetches[topic] += len(found)
            for each in found:
                if each.records is not None:
                    metrics.bytes_out[topic] += each.records.size
                elif each.error:
                    metrics.failed(Api.FETCH, key, each.error)


class RefusedFetch(Response):
    """The answer to a request that does not fit its session, or of somebody who may read
    nothing."""

    __slots__ = ("_codec", "_error", "_topics", "connection")

    def __init__(
        self,
        connection: Connection,
        request: Request,
        codec: FetchCodec,
        error: Error,
        topics: Fetched,
    ) -> None:
        super().__init__(request)
        self.connection = connection
        self._codec = codec
        self._error = error
        self._topics = topics

    def encode(self, throttle_ms: int) -> list[Any]:
        return self._codec.encode_response(
            self.request.correlation_id, self._error, 0, self._topics, None, throttle_ms
        )

    def errors(self) -> Iterator[int]:
        if self._error:
            yield self._error
        for _, found in self._topics:
            yield from (each.error for each in found)


@reads(
    Api.FETCH,
    (4, 18),
    Right(Operation.CLUSTER_ACTION, Resource.CLUSTER),
    on_topics(Operation.READ),
)
def fetch(parts: RecordParts, connection: Connection, request: Request, frame: memoryview) -> None:
    """Read the request and take its place among the connection's answers."""
    codec = fetch_codec(request.version)
    wanted = codec.decode_request(frame, request.start)
    if wanted.replica_id >= 0:
        _serve_follower(parts, connection, request, codec, wanted)
        return
    try:
        session = None
        if codec.has_sessions:
            principal = request.context.principal
            session = parts.sessions.open(wanted, codec.by_id, principal)
    except SessionError as error:
        _refuse_fetch(connection, request, codec, error.code)
        return
    response = FetchResponse(parts, connection, request, codec, wanted, session)
    connection.reserve(response, request.size + _HELD_PER_PARTITION * len(session or ()))
    if response.read() or wanted.max_wait_ms <= 0:
        response.parts = connection.exit.leave(response)
    else:
        response.park()


def _serve_follower(
    parts: RecordParts,
    connection: Connection,
    request: Request,
    codec: FetchCodec,
    wanted: FetchRequest,
) -> None:
    if not request.may_on_cluster(Operation.CLUSTER_ACTION):
        topics: Fetched = [
            (key, [_denied(each.partition) for each in partitions])
            for key, partitions in wanted.topics
        ]
        _refuse_fetch(connection, request, codec, Error.NONE, topics)
        return
    if parts.follower_sessions.knows(wanted.replica_id):
        request.context.believe()
    try:
        session = parts.follower_sessions.open(wanted, codec.by_id)
    except SessionError as error:
        _refuse_fetch(connection, request, codec, error.code)
        return
    response = FollowerFetchResponse(parts.node.loop, connection, request, codec, wanted, session)
    connection.reserve(response)
    session.take(wanted, response)


def _denied(index: int) -> FetchedPartition:
    answer = FetchedPartition(index, Error.TOPIC_AUTHORIZATION_FAILED)
    answer.aborted = []
    return answer


def _refuse_fetch(
    connection: Connection,
    request: Request,
    codec: FetchCodec,
    error: Error,
    topics: Fetched | None = None,
) -> None:
    refusal = RefusedFetch(connection, request, codec, error, topics or [])
    refusal.parts = connection.exit.leave(refusal)
    connection.reserve(refusal)


def _read_partition(
    partition: Partition, wanted: FetchPartition, request: FetchRequest, room: int, first: bool
) -> FetchedPartition:
    log = partition.log
    if wanted.current_leader_epoch >= 0:
        fence = partition.check_epoch(wanted.current_leader_epoch)
        if fence:
            return fenced(partition, fence)
    if wanted.last_fetched_epoch >= 0 and wanted.fetch_offset >= log.log_start:
        parted = diverging(partition, wanted)
        if parted is not None:
            return parted
    committed = request.isolation_level == READ_COMMITTED
    last_stable = log.last_stable
    up_to = last_stable if committed else log.high_watermark
    answer = FetchedPartition(wanted.partition, 0, log.high_watermark, last_stable, log.log_start)
    if committed:
        answer.aborted = []
    try:
        limit = max(min(wanted.max_bytes, room), 0)
        if limit > 0 or first:
            answer.records = log.read(wanted.fetch_offset, limit, up_to, first)
            if committed and log.has_aborted and answer.records is not None:
                answer.aborted = log.aborted_transactions(wanted.fetch_offset, log.reader.following)
    except LogError as error:
        answer.error, _ = code_and_message(error)
        answer.high_watermark = answer.last_stable = answer.log_start = -1
        answer.records = answer.aborted = None
    return answer


def _send_on(
    parts: RecordParts,
    partition: Partition,
    wanted: FetchPartition,
    request: FetchRequest,
    listener: str,
) -> FetchedPartition | None:
    """Name the replica that a consumer should read from; None where it is to be served here."""
    if not partition.is_leader:
        # One that leads no more, or is cut off, does not know how far it may be read.
        is_following = partition.leader not in (parts.node.id, NO_LEADER)
        return None if is_following else _refuse(parts, partition.topic, wanted, partition)
    epoch = wanted.current_leader_epoch
    if epoch >= 0 and partition.check_epoch(epoch):
        return None
    preferred = select_replica(
        partition, parts.node.state, request.rack_id, listener, wanted.fetch_offset, parts.node.id
    )
    if preferred is None:
        return None
    log = partition.log
    return FetchedPartition(
        wanted.partition, 0, log.high_watermark, log.last_stable, log.log_start,
        preferred_replica=preferred,
    )  # fmt: skip


def _refuse(
    parts: RecordParts, key: TopicKey, wanted: FetchPartition, partition: Partition | None
) -> FetchedPartition:
    if partition is not None:
        leader = named(partition.leader, partition.leader_epoch)
        return FetchedPartition(wanted.partition, Error.NOT_LEADER_OR_FOLLOWER, leader=leader)
    return not_here(parts.partitions, key, wanted.partition)
