"""Follower sessions: the leader's side of a follower's fetch session (KIP-227).

A follower may copy thousands of partitions over one session, of which few change at a time. So a
session does not look at all of its partitions for an answer: partitions say when they have changed,
and an answer is made of those alone. A request names the partitions whose offset has moved since
the one before, which is how the leader learns how far the follower is.

    a partition is in `changed`    because
    it was named                   the follower has moved on, or wants to hear
    its log has grown              there are records to send
    offsets or role changed        the follower was sent others

A partition with records to send stays there until the follower names it again: what the follower
could not keep, it is sent once more. Event loop only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from moldau.broker.net.connection import Connection
from moldau.broker.partitions.partition import Partition
from moldau.broker.partitions.partitions import Partitions
from moldau.broker.replication.leader.follower_fetch import FollowerFetchResponse
from moldau.broker.replication.leader.session_partition import SessionKey, SessionPartition
from moldau.wire.fetch.request import FetchPartition, FetchRequest
from moldau.wire.fetch.response import FetchedPartition
from moldau.wire.primitives import TopicKey

logger = logging.getLogger("moldau.replication")


class FollowerSession:
    """The partitions that one follower copies over one session; id 0 is no session.

    `is_eager` has a high watermark that moved sent at once, not with the next records: consumers
    may be reading from the follower.
    """

    def __init__(
        self,
        partitions: Partitions,
        reconsider: Callable[[Partition], None],
        session_id: int,
        by_id: bool,
        replica: int,
    ) -> None:
        self.id = session_id
        self.by_id = by_id
        self.replica = replica
        # The epoch of the follower's registration, as it says (KIP-903).
        self.replica_epoch = -1
        self.epoch = 0
        self.fetched_at = 0.0
        # By which the last request came.
        self.connection: Connection | None = None
        self.is_eager = bool(partitions.node.settings.replica_selector_class)
        self.changed: dict[SessionPartition, None] = {}
        self._held = partitions
        self._node = partitions.node
        self._reconsider = reconsider
        self._partitions: dict[SessionKey, SessionPartition] = {}
        self._parked: FollowerFetchResponse | None = None
        self._will_answer = False

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def is_parked(self) -> bool:
        return self._parked is not None

    def close(self) -> None:
        """Send the follower nothing more."""
        for each in self._partitions.values():
            self._drop(each)
        self._partitions.clear()
        self.changed.clear()

    def take(self, request: FetchRequest, response: FollowerFetchResponse) -> None:
        """Take in where the follower is, and answer now or when there is something to send."""
        if self._parked is not None:
            # The follower has something to say and does not wait for the answer before.
            self._parked.release()
        self.fetched_at = time.monotonic()
        self.connection = response.connection
        if request.replica_epoch != self.replica_epoch:
            self.replica_epoch = request.replica_epoch
            # Where it is holds under the new registration too, though it names only what moves.
            for each in self._partitions.values():
                each.has_progress = True
                self.changed[each] = None
        for key, indexes in request.forgotten:
            for index in indexes:
                forgotten = self._partitions.pop((key, index), None)
                if forgotten is not None:
                    self._drop(forgotten)
        for key, partitions in request.topics:
            name = self._held.topic_name(key)
            for wanted in partitions:
                self._update(key, name, wanted)
        for each in list(self.changed):
            if each.has_progress:
                each.take_progress()
        self._parked = response
        if not self.try_answer():
            response.park()

    def answer_soon(self) -> None:
        """Answer a parked request once what is being done is done."""
        if self._parked is not None and not self._will_answer:
            self._will_answer = True
            self._node.loop.call_soon(self._answer_parked)

    def _answer_parked(self) -> None:
        self._will_answer = False
        try:
            self.try_answer()
        except Exception:
            logger.exception("serving the follower on broker %d failed", self.replica)
            if self._parked is not None:
                self._parked.connection.finish()

    def unpark(self) -> None:
        self._parked = None

    def abandoned(self, response: FollowerFetchResponse) -> None:
        """The connection of a request is gone."""
        if self._parked is response:
            self._parked = None
            if not self.id:
                self.close()

    def try_answer(self, *, now: bool = False) -> bool:
        """Give the answer if it is worth it, or `now`; whether it did."""
        response = self._parked
        if response is None:
            return False
        request = response.wanted
        room = min(request.max_bytes, self._node.settings.fetch_max_bytes)
        least = min(request.min_bytes, room)
        total = 0
        is_urgent = now or request.max_wait_ms <= 0
        found: list[tuple[SessionPartition, FetchedPartition | None, bool]] = []
        for each in self.changed:
            answer, has_more = each.answer(room - total, total == 0)
            found.append((each, answer, has_more))
            if answer is not None:
                if answer.records is not None:
                    total += answer.records.size
                if self.is_eager or each.is_new or answer.error or answer.diverging is not None:
                    is_urgent = True
        if not is_urgent and (total == 0 or total < least):
            return False
        self._parked = None
        response.answer(self._settle(found))
        if not self.id:
            self.close()
        return True

    def _settle(
        self, found: list[tuple[SessionPartition, FetchedPartition | None, bool]]
    ) -> list[tuple[TopicKey, list[FetchedPartition]]]:
        topics: dict[TopicKey, list[FetchedPartition]] = {}
        for each, answer, has_more in found:
            each.is_new = False
            if answer is not None:
                topics.setdefault(each.key[0], []).append(answer)
                each.sent_high_watermark = answer.high_watermark
                each.sent_log_start = answer.log_start
            if not has_more and not each.has_progress:
                del self.changed[each]
            elif answer is not None:
                # A served partition goes to the end, so that none starves.
                del self.changed[each]
                self.changed[each] = None
        return list(topics.items())

    def _update(self, key: TopicKey, name: str, wanted: FetchPartition) -> None:
        session_key = (key, wanted.partition)
        partition = self._held.get((name, wanted.partition))
        known = self._partitions.get(session_key)
        if partition is None:
            if known is not None:
                self._drop(self._partitions.pop(session_key))
            self.changed[
                SessionPartition(self._held, self._reconsider, self, session_key, None, wanted)
            ] = None
            return
        if known is None or known.partition is not partition:
            if known is not None:
                self._drop(known)
            known = SessionPartition(
                self._held, self._reconsider, self, session_key, partition, wanted
            )
            self._partitions[session_key] = known
            partition.session_began(known)
        known.wanted = wanted
        known.has_progress = True
        known.refusal = None
        # The follower drops an answer to what it wanted before, with the offsets in it.
        known.sent_high_watermark = known.sent_log_start = -1
        self.changed[known] = None

    def _drop(self, dropped: SessionPartition) -> None:
        self.changed.pop(dropped, None)
        if dropped.partition is not None:
            dropped.partition.session_ended(dropped)
