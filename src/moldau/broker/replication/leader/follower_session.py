"""What followers are given: the leader's side of their fetch sessions (KIP-227).

A follower may copy thousands of partitions over one session, of which few have news at a time. So a
feed does not look at all of its partitions when it is asked: partitions tell it what has changed,
and an answer is made of those alone. A question names the partitions whose offset has moved since
the one before, which is how the leader learns how far the follower is.

    entry is in `news`         because
    it was named               the follower has moved on, or wants to hear
    its log has grown          there are records to send
    offsets or role changed    the follower has been told otherwise

Records stay news until the follower names the partition again: what it could not keep it is given
once more. Event loop only.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from moldau.broker.errors import code_and_message
from moldau.broker.net.responses import LongPoll
from moldau.broker.partitions.refusals import not_here
from moldau.broker.replication.follower.divergence import diverging, fenced
from moldau.log.errors import LogError
from moldau.wire.errors import Error
from moldau.wire.fetch import FetchCodec, FetchedPartition, FetchPartition, FetchRequest
from moldau.wire.primitives import TopicKey

if TYPE_CHECKING:
    from moldau.broker.net.connection import Connection
    from moldau.broker.partitions.partition import Partition
    from moldau.broker.server import Broker

logger = logging.getLogger("moldau.replication")

Place = tuple[TopicKey, int]


class Entry:
    """One partition of a feed: what the follower wants of it and was last told."""

    __slots__ = (
        "feed", "is_new", "is_unread", "partition", "place", "refusal", "told_start",
        "told_watermark", "wanted",
    )  # fmt: skip

    def __init__(
        self, feed: Feed, place: Place, partition: Partition | None, wanted: FetchPartition
    ) -> None:
        self.feed = feed
        self.place = place
        self.partition = partition
        self.wanted = wanted
        self.refusal: FetchedPartition | None = None
        # The follower has said where it is, which the leader has yet to take in.
        self.is_unread = True
        self.is_new = True
        self.told_watermark = self.told_start = -1

    # Called by the partition

    @property
    def replica(self) -> int:
        return self.feed.replica

    def log_grew(self, from_end: int) -> None:
        feed, partition = self.feed, self.partition
        assert partition is not None
        if self.wanted.fetch_offset >= from_end and partition.in_sync is not None:
            # It is not named while it has everything, but has had it all along.
            follower = partition.in_sync.followers.get(feed.replica)
            if follower is not None and follower.log_end >= from_end:
                follower.had_everything(feed.fetched_at)
        feed.news[self] = None
        feed.ring()

    def offsets_moved(self) -> None:
        self.feed.news[self] = None
        if self.feed.is_eager:
            self.feed.ring()

    def role_changed(self) -> None:
        self.feed.news[self] = None
        self.feed.ring()

    def progress_lost(self) -> None:
        self.is_unread = True
        self.feed.news[self] = None


class Feed:
    """The partitions that one follower copies over one session; id 0 is no session.

    `is_eager` has a high watermark that moved told at once, not with the next records: consumers
    may be reading from the follower.
    """

    def __init__(self, broker: Broker, session_id: int, by_id: bool, replica: int) -> None:
        self.id = session_id
        self.by_id = by_id
        self.replica = replica
        self.epoch = 0
        self.fetched_at = 0.0
        # By which the last question came.
        self.connection: Connection | None = None
        self.is_eager = bool(broker.settings.replica_selector_class)
        self.news: dict[Entry, None] = {}
        self._broker = broker
        self._replica_epoch = -1
        self._entries: dict[Place, Entry] = {}
        self._parked: FeedResponse | None = None
        self._is_rung = False

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_parked(self) -> bool:
        return self._parked is not None

    def close(self) -> None:
        """Tells the follower nothing more."""
        for entry in self._entries.values():
            self._drop(entry)
        self._entries.clear()
        self.news.clear()

    def take(self, request: FetchRequest, response: FeedResponse) -> None:
        """Takes in where the follower is, and answers now or when there is something to tell."""
        if self._parked is not None:
            # The follower has something to say and does not wait for the answer before.
            self._parked.release()
        self.fetched_at = time.monotonic()
        self.connection = response.connection
        if request.replica_epoch != self._replica_epoch:
            self._replica_epoch = request.replica_epoch
            # Where it is holds under the new registration too, though it names only what moves.
            for each in self._entries.values():
                each.is_unread = True
                self.news[each] = None
        for key, indexes in request.forgotten:
            for index in indexes:
                entry = self._entries.pop((key, index), None)
                if entry is not None:
                    self._drop(entry)
        for key, partitions in request.topics:
            name = self._broker.topic_name(key)
            for wanted in partitions:
                self._name(key, name, wanted)
        for entry in list(self.news):
            if entry.is_unread:
                self._read_progress(entry)
        self._parked = response
        if not self.try_answer():
            response.park()

    def ring(self) -> None:
        """Has a parked question answered once what is being done is done."""
        if self._parked is not None and not self._is_rung:
            self._is_rung = True
            self._broker.loop.call_soon(self._rung)

    def _rung(self) -> None:
        self._is_rung = False
        try:
            self.try_answer()
        except Exception:
            logger.exception("feeding broker %d failed", self.replica)
            if self._parked is not None:
                self._parked.connection.finish()

    def unpark(self) -> None:
        self._parked = None

    def abandoned(self, response: FeedResponse) -> None:
        """The connection of a question is gone."""
        if self._parked is response:
            self._parked = None
            if not self.id:
                self.close()

    def try_answer(self, *, now: bool = False) -> bool:
        """Gives the answer if it is worth it, or `now`; whether it did."""
        response = self._parked
        if response is None:
            return False
        request = response.request
        room = min(request.max_bytes, self._broker.settings.fetch_max_bytes)
        least = min(request.min_bytes, room)
        total = 0
        is_urgent = now or request.max_wait_ms <= 0
        told: list[tuple[Entry, FetchedPartition | None, bool]] = []
        for entry in self.news:
            answer, is_news_still = self._answer_of(entry, room - total, total == 0)
            told.append((entry, answer, is_news_still))
            if answer is not None:
                if answer.records is not None:
                    total += answer.records.size
                if self.is_eager or entry.is_new or answer.error or answer.diverging is not None:
                    is_urgent = True
        if not is_urgent and (total == 0 or total < least):
            return False
        self._parked = None
        response.answer(self._settle(told))
        if not self.id:
            self.close()
        return True

    def _settle(
        self, told: list[tuple[Entry, FetchedPartition | None, bool]]
    ) -> list[tuple[TopicKey, list[FetchedPartition]]]:
        topics: dict[TopicKey, list[FetchedPartition]] = {}
        for entry, answer, is_news_still in told:
            entry.is_new = False
            if answer is not None:
                topics.setdefault(entry.place[0], []).append(answer)
                entry.told_watermark, entry.told_start = answer.high_watermark, answer.log_start
            if not is_news_still and not entry.is_unread:
                del self.news[entry]
            elif answer is not None:
                # Who has been served goes to the end, so that nobody starves.
                del self.news[entry]
                self.news[entry] = None
        return list(topics.items())

    def _name(self, key: TopicKey, name: str, wanted: FetchPartition) -> None:
        place = (key, wanted.partition)
        partition = self._broker.partitions.get((name, wanted.partition))
        entry = self._entries.get(place)
        if partition is None:
            if entry is not None:
                self._drop(self._entries.pop(place))
            self.news[Entry(self, place, None, wanted)] = None
            return
        if entry is None or entry.partition is not partition:
            if entry is not None:
                self._drop(entry)
            entry = self._entries[place] = Entry(self, place, partition, wanted)
            if partition.feeds is None:
                partition.feeds = {}
            partition.feeds[entry] = None
        entry.wanted = wanted
        entry.is_unread = True
        entry.refusal = None
        # The follower drops an answer to what it wanted before, with the offsets in it.
        entry.told_watermark = entry.told_start = -1
        self.news[entry] = None

    def _drop(self, entry: Entry) -> None:
        self.news.pop(entry, None)
        if entry.partition is not None:
            entry.partition.feed_ended(entry)

    def _read_progress(self, entry: Entry) -> None:
        """Takes in where the follower is in a partition, or finds why it cannot be fed."""
        entry.is_unread = False
        entry.refusal = self._refuse(entry) or self._misplaced(entry)
        partition = entry.partition
        if entry.refusal is not None or partition is None or partition.in_sync is None:
            return
        registered = self._broker.state.brokers.get(self.replica)
        if registered is None or registered.epoch != self._replica_epoch:
            # Word of this life has yet to come, and of what it gave up. It is fed, and not counted.
            entry.is_unread = True
            return
        wanted, log = entry.wanted, partition.log
        follower = partition.in_sync.followers.get(self.replica)
        known_end = -1 if follower is None else follower.log_end
        if entry.is_new and known_end == wanted.fetch_offset < log.log_end:
            # It begins anew where it was: what it was sent from here may have been damaged, which
            # only who reads it can see.
            try:
                log.verify(wanted.fetch_offset)
            except LogError as error:
                entry.refusal = FetchedPartition(wanted.partition, code_and_message(error)[0])
                return
        partition.fetched_by(
            self.replica, wanted.fetch_offset, wanted.log_start, self._replica_epoch,
            self.fetched_at,
        )  # fmt: skip
        if partition.in_sync.may_join(self.replica, log.high_watermark):
            self._broker.replication.reconsider(partition)

    def _refuse(self, entry: Entry) -> FetchedPartition | None:
        """Why this follower is not to copy the partition from here."""
        partition, index = entry.partition, entry.place[1]
        if partition is None:
            return not_here(self._broker, *entry.place)
        leader = (partition.leader, partition.leader_epoch)
        epoch = entry.wanted.current_leader_epoch
        if not partition.is_leader or epoch < 0:
            # One that does not say which term it follows may have been on its way since another.
            return FetchedPartition(index, Error.NOT_LEADER_OR_FOLLOWER, leader=leader)
        fence = partition.check_epoch(epoch)
        if fence:
            return fenced(partition, fence)
        if self.replica not in partition.replicas or self.replica == self._broker.id:
            # One of us knows of a newer assignment than the other.
            return FetchedPartition(index, Error.UNKNOWN_LEADER_EPOCH)
        registered = self._broker.state.brokers.get(self.replica)
        if self._replica_epoch < (0 if registered is None else registered.epoch):
            # An earlier life of the follower, or one that does not say which it is (KIP-903).
            return FetchedPartition(index, Error.NOT_LEADER_OR_FOLLOWER, leader=leader)
        return None

    @staticmethod
    def _misplaced(entry: Entry) -> FetchedPartition | None:
        """Where the follower's log goes wrong, if it does."""
        assert entry.partition is not None
        wanted, log = entry.wanted, entry.partition.log
        if wanted.fetch_offset >= log.log_start:
            parted = diverging(entry.partition, wanted)
            if parted is not None or wanted.fetch_offset <= log.log_end:
                return parted
        return FetchedPartition(wanted.partition, Error.OFFSET_OUT_OF_RANGE)

    def _answer_of(
        self, entry: Entry, room: int, is_first: bool
    ) -> tuple[FetchedPartition | None, bool]:
        """What to tell of a partition, if anything, and whether it stays news after that."""
        refusal = entry.refusal or self._refuse(entry)
        if refusal is not None:
            return refusal, False
        assert entry.partition is not None
        wanted, log = entry.wanted, entry.partition.log
        answer = FetchedPartition(
            wanted.partition, 0, log.high_watermark, log.last_stable, log.log_start
        )
        has_more = log.log_end > wanted.fetch_offset
        if has_more:
            limit = max(min(wanted.max_bytes, room), 0)
            try:
                if limit > 0 or is_first:
                    end = log.log_end
                    answer.records = log.read(wanted.fetch_offset, limit, end, is_first)
            except LogError as error:
                code, _ = code_and_message(error)
                return FetchedPartition(wanted.partition, code), False
        is_news = (
            answer.records is not None
            or log.high_watermark != entry.told_watermark
            or log.log_start != entry.told_start
            or not self.id
        )
        return (answer if is_news else None), has_more


class FeedResponse(LongPoll):
    """The answer to one question of a follower."""

    __slots__ = ("_broker", "_codec", "_correlation_id", "_feed", "_timer", "request")

    def __init__(
        self,
        broker: Broker,
        connection: Connection,
        codec: FetchCodec,
        correlation_id: int,
        request: FetchRequest,
        feed: Feed,
    ) -> None:
        super().__init__(connection)
        self.request = request
        self._broker = broker
        self._codec = codec
        self._correlation_id = correlation_id
        self._feed = feed
        self._timer: asyncio.TimerHandle | None = None

    def park(self) -> None:
        self._timer = self._broker.loop.call_later(self.request.max_wait_ms / 1000, self.complete)

    def complete(self) -> None:
        """Answers with what there is: time is up."""
        self._feed.try_answer(now=True)

    def release(self) -> None:
        """Answers with nothing: a later question will be answered instead."""
        self._feed.unpark()
        self.answer([])

    def abandon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._feed.abandoned(self)

    def answer(self, topics: list[tuple[TopicKey, list[FetchedPartition]]]) -> None:
        parts = self._codec.encode(self._correlation_id, 0, self._feed.id, topics)
        if self._timer is None:
            # Its place is taken and its turn has not come yet.
            self.parts = parts
        else:
            self._timer.cancel()
            self._timer = None
            self.connection.respond(self, parts)
