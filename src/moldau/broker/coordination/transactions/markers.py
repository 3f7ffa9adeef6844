"""Markers: the end of a decided transaction, written to all of its partitions; and fences, which
shut the producer of one that was taken over out of them.

The leader of each partition writes its marker. This broker does so at once for what it leads, the
others are asked, each by one request at a time for all transactions that wait. What fails is tried
again with whoever leads then: a marker that is written twice does no harm. A partition that is gone
needs none. A leader that has seen a later coordinator refuses; the later one finishes then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from moldau.broker.coordination.host import Host
from moldau.broker.coordination.transactions.outbox import WITHIN_S, Outbox
from moldau.broker.partitions.marker_writes import MarkerWrites
from moldau.broker.partitions.partitions import Partitions
from moldau.log.fences import Fence
from moldau.log.markers import TransactionEnd
from moldau.peer.aio import AsyncConnection
from moldau.peer.errors import PeerError
from moldau.peer.peers import Peers, Purpose
from moldau.topic_partition import TopicPartition
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.primitives import MalformedRequest

logger = logging.getLogger("moldau.transactions")

MARKING = Purpose("moldau-markers")
_UNKNOWN = Error.UNKNOWN_SERVER_ERROR
# The last version of Produce without topic ids.
_PRODUCE_VERSION = 12
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5

_FINAL = frozenset({Error.NONE, Error.INVALID_PRODUCER_EPOCH, Error.UNSUPPORTED_FOR_MESSAGE_FORMAT})


class Marker(NamedTuple):
    """The end of a transaction for some partitions, as WriteTxnMarkers has it.

    One that is `only_fences` leaves the transaction open.
    """

    producer_id: int
    producer_epoch: int
    commits: bool
    coordinator_epoch: int
    version: int
    partitions: tuple[TopicPartition, ...]
    only_fences: bool = False


Outcome = dict[TopicPartition, Error]
WriteHere = Callable[[Marker], Awaitable[Outcome]]


class Sending:
    """The markers of one transaction that are not written yet."""

    __slots__ = ("_done", "_is_wanted", "id", "marker", "remaining")

    def __init__(
        self, id: str, marker: Marker, is_wanted: Callable[[], bool], done: Callable[[], None]
    ) -> None:
        self.id = id
        self.marker = marker
        self.remaining = set(marker.partitions)
        self._is_wanted = is_wanted
        self._done = done

    @property
    def is_wanted(self) -> bool:
        """Whether this broker still coordinates the transaction."""
        return self._is_wanted()

    def written(self, partitions: Iterable[TopicPartition]) -> None:
        if not self.remaining:
            return
        self.remaining.difference_update(partitions)
        if not self.remaining and self.is_wanted:
            self._done()


class Markers:
    """Sends the markers of decided transactions until they are written. Event loop only."""

    def __init__(self, host: Host, me: int, peers: Peers, write_here: WriteHere) -> None:
        self._host = host
        self._me = me
        self._write_here = write_here
        self._outboxes: dict[int, Outbox[Marker, Outcome]] = {}
        self._peers = peers

    def send(
        self, id: str, marker: Marker, is_wanted: Callable[[], bool], done: Callable[[], None]
    ) -> None:
        """Write a marker to all of its partitions, however long it takes, and call `done`.

        Ends early, and calls nobody, when it is not wanted any more.
        """
        if not marker.partitions:
            done()
            return
        sending = Sending(id, marker, is_wanted, done)
        self._distribute(sending, marker.partitions, _FIRST_PAUSE_S)

    def _distribute(
        self, sending: Sending, partitions: Iterable[TopicPartition], pause_s: float
    ) -> None:
        state = self._host.state
        by_leader: dict[int, list[TopicPartition]] = {}
        gone: list[TopicPartition] = []
        for each in partitions:
            partition = state.partition(*each)
            if partition is None:
                gone.append(each)
            else:
                leader = partition.leader if partition.leader in state.brokers else -1
                by_leader.setdefault(leader, []).append(each)
        if gone:
            logger.info(
                "transaction %r: %d partitions no longer exist and need no marker",
                sending.id,
                len(gone),
            )
        for leader, led in by_leader.items():
            self._host.spawn(self._deliver(sending, leader, tuple(led), pause_s))
        sending.written(gone)

    async def _deliver(
        self, sending: Sending, leader: int, partitions: tuple[TopicPartition, ...], pause_s: float
    ) -> None:
        marker = sending.marker._replace(partitions=partitions)
        outcome: Outcome = {}
        try:
            if leader == self._me:
                outcome = await self._write_here(marker)
            elif leader >= 0:
                outcome = await self._outbox(leader).put(marker)
        except (PeerError, TimeoutError, MalformedRequest) as problem:
            logger.warning("broker %d did not accept markers, trying again: %s", leader, problem)
        except Exception:
            # The transaction is decided: nothing may keep its markers from being tried again.
            logger.exception("markers for broker %d failed, trying again", leader)
        if not sending.is_wanted:
            return
        failed = [each for each in partitions if outcome.get(each, _UNKNOWN) not in _FINAL]
        if failed and any(
            outcome.get(each) is Error.TRANSACTION_COORDINATOR_FENCED for each in failed
        ):
            logger.warning(
                "transaction %r: a coordinator with a later epoch than %d writes its markers",
                sending.id, marker.coordinator_epoch,
            )  # fmt: skip
            return
        for each in partitions:
            if outcome.get(each) is Error.INVALID_PRODUCER_EPOCH:
                logger.warning(
                    "transaction %r: %s-%d has seen a later epoch than %d of producer %d and "
                    "needs no marker", sending.id, *each, marker.producer_epoch, marker.producer_id,
                )  # fmt: skip
        sending.written(each for each in partitions if each not in failed)
        if failed:
            await asyncio.sleep(pause_s)
            if sending.is_wanted:
                self._distribute(sending, failed, min(2 * pause_s, _LONGEST_PAUSE_S))

    def _outbox(self, broker: int) -> Outbox[Marker, Outcome]:
        outbox = self._outboxes.get(broker)
        if outbox is None:
            lane = self._peers.lane(broker, MARKING)
            outbox = Outbox(self._host, lane, lambda marker: marker.producer_id, _ask)
            self._outboxes[broker] = outbox
        return outbox


async def write_markers(partitions: Partitions, marker: Marker) -> Outcome:
    """Write a marker to partitions that this broker leads."""
    end: TransactionEnd | Fence = TransactionEnd(
        marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.commits,
        marker.version,
    )  # fmt: skip
    if marker.only_fences:
        end = Fence(marker.producer_id, marker.producer_epoch)
    writes = MarkerWrites(partitions)
    await writes.write([(end, marker.partitions)], WITHIN_S)
    return {place: error for (_, place), error in writes.errors.items()}


async def _ask(connection: AsyncConnection, markers: Sequence[Marker]) -> list[Outcome]:
    outcomes: dict[int, Outcome] = {}
    ends = [_encoded(marker) for marker in markers if not marker.only_fences]
    if ends:
        response = await connection.ask(Api.WRITE_TXN_MARKERS, {"markers": ends})
        for marker in response.markers:
            outcome = outcomes.setdefault(int(marker.producer_id), {})
            for topic in marker.topics:
                for each in topic.partitions:
                    outcome[topic.name, int(each.partition_index)] = _error(each.error_code)
    for fence in markers:
        if fence.only_fences:
            outcomes[fence.producer_id] = await _ask_for_fence(connection, fence)
    return [outcomes.get(marker.producer_id, {}) for marker in markers]


async def _ask_for_fence(connection: AsyncConnection, marker: Marker) -> Outcome:
    """Have another broker write a fence.

    WriteTxnMarkers has no room for it. A broker that does not know of fences refuses the batch.
    """
    batch = bytes(Fence(marker.producer_id, marker.producer_epoch).encode())
    topics: dict[str, list[dict[str, object]]] = {}
    for topic, index in marker.partitions:
        topics.setdefault(topic, []).append({"index": index, "records": batch})
    values = {
        "transactional_id": None,
        "acks": -1,
        "timeout": int(WITHIN_S * 1000),
        "topic_data": [{"name": name, "partition_data": data} for name, data in topics.items()],
    }
    response = await connection.ask(Api.PRODUCE, values, _PRODUCE_VERSION)
    return {
        (str(topic.name), int(each.index)): _error(each.error_code)
        for topic in response.responses
        for each in topic.partition_responses
    }


def _error(code: int) -> Error:
    try:
        return Error(int(code))
    except ValueError:
        return _UNKNOWN


def _encoded(marker: Marker) -> dict[str, object]:
    topics: dict[str, list[int]] = {}
    for topic, index in marker.partitions:
        topics.setdefault(topic, []).append(index)
    return {
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "transaction_result": marker.commits,
        "topics": [
            {"name": topic, "partition_indexes": indexes} for topic, indexes in topics.items()
        ],
        "coordinator_epoch": marker.coordinator_epoch,
        "transaction_version": marker.version,
    }
