"""ShareFetch: gives a member records, and takes in what became of earlier ones.

A fetch that finds less than `min_bytes` to acquire is parked. It is tried again when a partition of
its session may have more, in the order in which members wait. What it says of earlier records is
written down meanwhile, and before it is answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

from moldau.broker.api.rights import on_groups, on_topics
from moldau.broker.api.sharing.acknowledging import NO_TOPIC, acknowledge, has_acknowledgements
from moldau.broker.api.sharing.parts import SharingParts, reads
from moldau.broker.metrics import Metrics
from moldau.broker.net.connection import Connection
from moldau.broker.net.outputs.page_cache import warm
from moldau.broker.net.request import Request
from moldau.broker.net.responses import LongPoll, Response
from moldau.broker.partitions.refusals import absent
from moldau.broker.security.authorizer import Operation, Resource
from moldau.broker.sharing.delivery import Verdict
from moldau.broker.sharing.reading import Cold
from moldau.broker.sharing.sessions import FINAL, INITIAL, ShareSession, ShareSessionError
from moldau.broker.sharing.shared_partition import SharedPartition
from moldau.cluster.decisions.features import share_version
from moldau.log.errors import LogError
from moldau.log.files.open_files import Slice
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.messages import decode_request, is_loaded, load, milliseconds
from moldau.wire.primitives import TopicIdPartition
from moldau.wire.share_fetch import SharedRecords, encode_share_fetch

logger = logging.getLogger("moldau.share")

_EXACTLY = 1
# After so many the disk is waited for after all: memory may be so short that it never ends.
_MOST_WARMINGS = 64
# Errors of a shared partition that clients know what to do about.
_KNOWN = (Error.NOT_LEADER_OR_FOLLOWER, Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID)


class ShareFetchResponse(LongPoll):
    """The answer to one ShareFetch, parked for as long as there is nothing to acquire."""

    __slots__ = (
        "_answers", "_is_complete", "_is_due", "_is_leaving", "_is_warming", "_member", "_parts",
        "_said", "_shared", "_timer", "_wanted", "_warmings", "connection", "session",
    )  # fmt: skip

    def __init__(
        self,
        parts: SharingParts,
        connection: Connection,
        request: Request,
        session: ShareSession,
        said: dict[TopicIdPartition, asyncio.Future[Verdict]],
    ) -> None:
        super().__init__(request)
        self.connection = connection
        self.session = session
        self._member: str = request.body.member_id
        self._parts = parts
        self._said = said
        self._wanted = session.in_turn()
        self._shared: dict[TopicIdPartition, SharedPartition] = {}
        self._answers: dict[TopicIdPartition, SharedRecords] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_complete = self._is_due = False
        # Whether something is being read into the page cache, and how often that has been done.
        self._is_warming = False
        self._warmings = 0
        # Whether the handler has returned, so that the answer has to be sent from here.
        self._is_leaving = False

    def begin(self, *, fetches: bool) -> None:
        """Answer at once if that is possible, and wait otherwise."""
        waits_s = milliseconds(self.request.body.max_wait) / 1000
        if not fetches or self.acquire(is_due=waits_s <= 0):
            self._is_complete = True
        else:
            self._timer = self._parts.node.loop.call_later(waits_s, self.complete)
            for shared in self._shared.values():
                shared.wait(self)
        for outcome in self._said.values():
            if not outcome.done():
                outcome.add_done_callback(self._heard)
        self._leave()
        self._is_leaving = True

    def notify(self) -> None:
        """There may be something to acquire, or a partition changed hands."""
        self._try()

    def complete(self) -> None:
        """Answer with what is there: time is up."""
        self._is_due = True
        self._try()

    def _try(self) -> None:
        if self._is_complete:
            return
        try:
            is_enough = self.acquire(is_due=self._is_due)
        except Exception:
            logger.exception("a share fetch from %s failed", self.connection.context.client)
            self.abandon()
            self.connection.finish()
            return
        if is_enough:
            self.abandon()
            self._is_complete = True
            self._leave()

    def _heard(self, outcome: asyncio.Future[Verdict]) -> None:
        self._leave()

    def _leave(self) -> None:
        """Send the answer if all of it is known."""
        if not self._is_complete or self.parts is not None:
            return
        if not all(outcome.done() for outcome in self._said.values()):
            return
        for place, outcome in self._said.items():
            answer = self._answers.setdefault(place, SharedRecords(place[1]))
            answer.is_acknowledged = True
            answer.said, answer.message = outcome.result()
            if answer.said is Error.NOT_LEADER_OR_FOLLOWER:
                answer.leader = absent(self._parts.partitions, *place)[1]
        if self.request.body.share_session_epoch == FINAL:
            self._parts.shares.sessions.end(self.session)
        parts = self.connection.exit.leave(self)
        if self._is_leaving:
            self.connection.respond(self, parts)
        else:
            self.parts = parts

    def abandon(self) -> None:
        self._is_complete = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for shared in self._shared.values():
            shared.unwait(self)

    # Acquiring

    def acquire(self, *, is_due: bool) -> bool:
        """Acquire what there is; return whether that is enough to answer."""
        if not self.session.is_open:
            # What was taken now would be released by nobody, and perhaps seen by nobody.
            return True
        body = self.request.body
        room = max(min(body.max_bytes, self._parts.node.settings.fetch_max_bytes), 0)
        total = 0
        is_urgent = is_due
        found: list[tuple[TopicIdPartition, SharedPartition, Slice]] = []
        for place in self._wanted:
            shared = self._find(place)
            if isinstance(shared, SharedRecords):
                self._answers[place] = shared
                is_urgent = is_urgent or bool(shared.error)
                continue
            try:
                records = None if total >= room else shared.peek(room - total, is_first=not total)
            except LogError as problem:
                logger.warning("%s cannot be read: %s", shared.key, problem)
                self._answers[place] = SharedRecords(place[1], Error.KAFKA_STORAGE_ERROR)
                is_urgent = True
                continue
            if records is not None:
                total += records.size
                found.append((place, shared, records))
        if total < body.min_bytes and not is_urgent:
            return False
        # What is being read is worth waiting for, even if time is up.
        return self._take(found) or (is_urgent and not self._is_warming)

    def _take(self, found: list[tuple[TopicIdPartition, SharedPartition, Slice]]) -> bool:
        body = self.request.body
        most, taken_any = body.max_records, False
        is_exact = getattr(body, "share_acquire_mode", 0) == _EXACTLY
        for place, shared, records in found:
            if most <= 0:
                break
            try:
                taken = shared.take(
                    self._member,
                    records,
                    most,
                    max(body.batch_size, 1),
                    is_exact=is_exact,
                    may_block=self._warmings >= _MOST_WARMINGS,
                )
            except Cold as cold:
                self._warm(cold.piece)
                continue
            if taken is not None:
                answer = self._answers[place] = SharedRecords(place[1])
                answer.records, answer.acquired = taken
                most -= sum(each.last - each.first + 1 for each in taken.acquired)
                taken_any = True
        return taken_any

    def _warm(self, piece: Slice) -> None:
        """Read a piece of a log into the page cache, on a thread, and try again then."""
        if not self._is_warming:
            self._is_warming = True
            reading = self._parts.node.loop.run_in_executor(None, warm, piece)
            reading.add_done_callback(self._warmed)

    def _warmed(self, reading: asyncio.Future[None]) -> None:
        self._is_warming = False
        # If it cannot be read, whoever reads it next says why.
        self._warmings = self._warmings + 1 if reading.exception() is None else _MOST_WARMINGS
        self._try()

    def _find(self, place: TopicIdPartition) -> SharedPartition | SharedRecords:
        """Return a shared partition, or the answer if there is nothing to be had of it."""
        topic_id, index = place
        partitions = self._parts.partitions
        name = partitions.topic_name(topic_id)
        answer = SharedRecords(index)
        if name and not self.request.may_on_topic(Operation.READ, name):
            answer.error = Error.TOPIC_AUTHORIZATION_FAILED
            return answer
        partition = partitions.get((name, index))
        if partition is None or not partition.is_leader:
            answer.error, answer.leader = absent(partitions, topic_id, index)
            return answer
        shared = self._shared.get(place)
        if shared is None:
            shared = self._shared[place] = self._parts.shares.get(self.session.group, partition)
            shared.readers.add(self._member)
        if not shared.error:
            return shared
        # One that no coordinator could be found for is tried again by the next fetch.
        if shared.error is not Error.COORDINATOR_NOT_AVAILABLE:
            known = shared.error in _KNOWN
            answer.error = shared.error if known else Error.UNKNOWN_SERVER_ERROR
        return answer

    # Answering

    @property
    def volume(self) -> int:
        return sum(each.records.size for each in self._answers.values() if each.records is not None)

    def encode(self, throttle_ms: int) -> list[Any]:
        topics: dict[Any, list[SharedRecords]] = {}
        leaders: set[int] = set()
        is_first = self.request.body.share_session_epoch == INITIAL
        for place in self._wanted if is_first else self._answers:
            answer = self._answers.get(place) or SharedRecords(place[1])
            if is_first or answer.error or answer.records is not None or answer.is_acknowledged:
                topics.setdefault(place[0], []).append(answer)
            if answer.leader is not None:
                leaders.add(answer.leader[0])
        endpoints = [each for each in self.connection.endpoints() if each[0] in leaders]
        lock_ms = self._parts.shares.config(self.session.group).share_record_lock_duration_ms
        return encode_share_fetch(
            self.request.correlation_id, 0, None, lock_ms, topics.items(), endpoints, throttle_ms
        )

    def errors(self) -> Iterator[int]:
        for each in self._answers.values():
            yield from (code for code in (each.error, each.said) if code)

    def tally(self, metrics: Metrics) -> None:
        super().tally(metrics)
        for (topic_id, _), each in self._answers.items():
            if each.records is not None:
                metrics.bytes_out[metrics.topic(topic_id)] += each.records.size


class RefusedShareFetch(Response):
    """The answer to a request that is refused as a whole."""

    __slots__ = ("_error", "_message", "connection")

    def __init__(
        self, connection: Connection, request: Request, error: Error, message: str | None = None
    ) -> None:
        super().__init__(request)
        self.connection = connection
        self._error = error
        self._message = message

    def encode(self, throttle_ms: int) -> list[Any]:
        correlation_id = self.request.correlation_id
        return encode_share_fetch(
            correlation_id, self._error, self._message, 0, (), (), throttle_ms
        )

    def errors(self) -> Iterator[int]:
        yield self._error


@reads(Api.SHARE_FETCH, (1, 2), on_groups(Operation.READ), on_topics(Operation.READ))
def share_fetch(
    parts: SharingParts, connection: Connection, request: Request, frame: memoryview
) -> None:
    """Read the request and take its place among the connection's answers."""
    api, version = request.api, request.version
    if not is_loaded(api, version):
        connection.put_aside(lambda frame: asyncio.to_thread(load, api, version))
        return
    request.body = body = decode_request(api, version, memoryview(bytes(frame[request.start :])))
    refusal = _refusal(parts, request)
    if refusal is None:
        try:
            session = _session(parts, connection, body)
        except ShareSessionError as error:
            refusal = error.code
    if refusal is not None:
        refused = RefusedShareFetch(connection, request, refusal)
        refused.parts = connection.exit.leave(refused)
        connection.reserve(refused)
        return
    is_renewal = getattr(body, "is_renew_ack", False)
    said = {}
    if has_acknowledgements(body.topics):
        said = acknowledge(parts, request, body.topics)
    response = ShareFetchResponse(parts, connection, request, session, said)
    connection.reserve(response, request.size)
    response.begin(fetches=body.share_session_epoch != FINAL and not is_renewal)


def _refusal(parts: SharingParts, request: Request) -> Error | None:
    """Return why the request as a whole makes no sense; None if it does."""
    body = request.body
    if not share_version(parts.node.state):
        return Error.UNSUPPORTED_VERSION
    if not body.group_id or not body.member_id:
        return Error.INVALID_REQUEST
    if not request.may(Operation.READ, Resource.GROUP, body.group_id):
        return Error.GROUP_AUTHORIZATION_FAILED
    if getattr(body, "share_acquire_mode", 0) not in (0, _EXACTLY):
        return Error.INVALID_REQUEST
    if body.share_session_epoch == INITIAL and has_acknowledgements(body.topics):
        return Error.INVALID_REQUEST
    return None


def _session(parts: SharingParts, connection: Connection, body: Any) -> ShareSession:
    """Return the session of a request, brought up to what the request says."""
    shares, epoch = parts.shares, body.share_session_epoch
    if epoch == INITIAL:
        session = shares.sessions.open(body.group_id, body.member_id, connection)
    else:
        session = shares.sessions.resume(body.group_id, body.member_id, epoch)
        session.connection = connection
    if epoch != FINAL:
        for topic in body.topics:
            for each in topic.partitions:
                session.partitions[topic.topic_id or NO_TOPIC, each.partition_index] = None
        forgotten = body.forgotten_topics_data
        shares.drop(
            session,
            [(topic.topic_id, index) for topic in forgotten for index in topic.partitions],
        )
    return session
